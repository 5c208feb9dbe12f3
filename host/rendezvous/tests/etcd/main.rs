//! Groups that meet by way of a real etcd: what works, and what must not.
#![cfg(target_os = "linux")]

mod faults;
mod leases;
#[allow(dead_code, reason = "shared with tests that use the rest")]
#[path = "../processes/ranks.rs"]
mod ranks;
mod server;

use ranks::{Ended, Running, all, bare, start};
use server::Server;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SECRET: &str = "a secret that only tests know";
/// How long a lease lasts.
const LEASE: Duration = Duration::from_secs(10);
/// Hash of the canonical sum of the shipped gradients.
const SUM: &str = "f451e8b1803300b6496b8170de51a7e4af53f4e2f2f2266ced7beefe4c47741a";

/// One rank, with so many seconds to join.
fn rank(rank: usize, size: usize, place: &str, job: &str, seconds: &str) -> Command {
    let mut command = bare();
    command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", size.to_string());
    command.env("UNISONO_RENDEZVOUS", place).env("UNISONO_JOB", job);
    command.env("UNISONO_SECRET", SECRET).args(["--seconds", seconds]);
    command
}

#[track_caller]
fn near(ended: &[Ended]) {
    for (me, ended) in ended.iter().enumerate() {
        let size = ended_size(ended);
        let routes: Vec<_> = (0..size).map(|p| if p == me { "self" } else { "near" }).collect();
        assert_eq!(ended.said(), format!("rank {me} of {size} by unisono: {}", routes.join(" ")));
    }
}

fn ended_size(ended: &Ended) -> usize {
    let size = ended.out.split(' ').nth(3).and_then(|size| size.parse().ok());
    size.unwrap_or_else(|| panic!("{ended:?}"))
}

#[test]
fn two_jobs_at_once_never_mix_and_leave_no_key() {
    let server = Server::begin();
    std::thread::scope(|scope| {
        for (job, size) in [("one", 4), ("one/0", 4), ("two", 3)] {
            let place = server.place("jobs");
            scope.spawn(move || near(&all(size, |r| rank(r, size, &place, job, "60"))));
        }
    });
    assert_eq!(server.keys(""), [""; 0]);
}

#[test]
fn routes_may_be_tcp_and_all_servers_of_a_list_are_tried() {
    let server = Server::begin();
    // Nobody is at the first one.
    let place = format!("etcd://127.0.0.1:{},{}/", ranks::free_port(), server.address());
    let make = |r| {
        let mut command = rank(r, 2, &place, "far", "60");
        command.arg("--far");
        command
    };
    let ended = all(2, make);
    assert!(ended[0].said().contains(": self far*1@"), "{ended:?}");
}

#[test]
fn launched_jobs_find_each_other_and_get_the_right_bits() {
    let server = Server::begin();
    let tool = Path::new(env!("CARGO_BIN_EXE_unisono-rank")).with_file_name("unisono");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/digits-mlp");
    let folder = tempfile::tempdir().expect("a folder");
    let launch = |job: usize| {
        let mut command = Command::new(&tool);
        let plain = bare();
        for (name, _) in plain.get_envs().filter(|(_, value)| value.is_none()) {
            command.env_remove(name);
        }
        command.args(["launch", "-n", "4", "--no-prefix"]);
        // Either way.
        match job {
            0 => command.env("UNISONO_RENDEZVOUS", server.place("launched")),
            _ => command.args(["--rendezvous", &server.place("launched")]),
        };
        command.arg("--").arg(&tool).args(["reduce", "--links", ["auto", "tcp"][job]]);
        command.args((0..4).map(|r| format!("{data}/rank{r}.safetensors")));
        command.arg("-o").arg(folder.path().join(format!("sum{job}.safetensors")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        start(&mut command)
    };
    let jobs = [launch(0), launch(1)];
    for ended in jobs.map(Running::end) {
        assert!(ended.said().contains(SUM), "{ended:?}");
    }
    assert_eq!(server.keys(""), [""; 0]);
}

#[test]
fn reduce_takes_the_place_as_an_option() {
    let server = Server::begin();
    let tool = Path::new(env!("CARGO_BIN_EXE_unisono-rank")).with_file_name("unisono");
    let make = |r: usize| {
        let mut command = Command::new(&tool);
        command.env("UNISONO_RANK", r.to_string()).env("UNISONO_SIZE", "2");
        command.env("UNISONO_JOB", "bench").env("UNISONO_SECRET", SECRET);
        // What the command line says comes first.
        command.env("UNISONO_RENDEZVOUS", "etcd://127.0.0.1:1/nowhere");
        command.args(["bench", "all_reduce", "-b", "8", "-e", "64K", "-f", "8", "-n", "2"]);
        command.args(["--rendezvous", &server.place("bench")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let ended = all(2, make);
    assert!(ended[0].out.contains("Out of bounds values : 0 OK"), "{ended:?}");
    assert_eq!(server.keys(""), [""; 0]);
}

#[test]
fn a_server_may_come_later() {
    let mut server = Server::absent();
    let place = server.place("late");
    let ranks: Vec<_> = (0..2).map(|r| start(&mut rank(r, 2, &place, "late", "60"))).collect();
    std::thread::sleep(Duration::from_secs(1));
    server.start();
    near(&ranks.into_iter().map(Running::end).collect::<Vec<_>>());
}

#[test]
fn a_server_that_is_started_anew_disturbs_nobody() {
    let mut server = Server::begin();
    let place = server.place("anew");
    let make = |r| start(&mut rank(r, 3, &place, "anew", "60"));
    let mut ranks = vec![make(0), make(1)];
    server.until("anew/", 2);
    server.kill();
    std::thread::sleep(Duration::from_secs(1));
    server.start();
    ranks.push(make(2));
    near(&ranks.into_iter().map(Running::end).collect::<Vec<_>>());
    assert_eq!(server.keys("anew/"), [""; 0]);
}

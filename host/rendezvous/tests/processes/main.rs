//! Ranks as real processes: groups that come together, and groups that do not.
#![cfg(target_os = "linux")]

mod faults;
mod ranks;
mod strangers;

use ranks::{all, free_port, rank};
use std::process::Command;

const SECRET: &str = "a secret that only tests know";

#[test]
fn all_sizes_are_near_on_one_host() {
    for size in [1, 2, 3, 4, 16] {
        let job = format!("near-{}-{size}", std::process::id());
        for (me, ended) in all(size, |r| rank(r, size, "local", &job)).iter().enumerate() {
            let routes: Vec<_> = (0..size).map(|p| if p == me { "self" } else { "near" }).collect();
            let wanted = format!("rank {me} of {size} by unisono: {}", routes.join(" "));
            assert_eq!(ended.said(), wanted);
        }
    }
}

#[test]
fn tcp_on_one_host_has_as_many_streams_as_asked_for() {
    for (size, streams, master) in [(2, 1, "127.0.0.1"), (3, 4, "[::1]"), (16, 2, "localhost")] {
        let master = format!("{master}:{}", free_port());
        let make = |r| {
            let mut command = rank(r, size, &master, "far");
            command.args(["--far", "--streams", &streams.to_string()]);
            command
        };
        for (me, ended) in all(size, make).iter().enumerate() {
            let far = format!("far*{streams}@127.0.0.1");
            let routes: Vec<_> =
                (0..size).map(|p| if p == me { "self".to_owned() } else { far.clone() }).collect();
            let wanted = format!("rank {me} of {size} by unisono: {}", routes.join(" "));
            assert_eq!(ended.said(), wanted);
        }
    }
}

#[test]
fn every_stream_gets_a_udp_socket_if_asked_for() {
    for (size, streams, master) in [(2, 1, "127.0.0.1"), (3, 4, "[::1]"), (16, 1, "localhost")] {
        let master = format!("{master}:{}", free_port());
        let make = |r| {
            let mut command = rank(r, size, &master, "udp");
            command.args(["--far", "--udp", "--streams", &streams.to_string()]);
            command
        };
        for (me, ended) in all(size, make).iter().enumerate() {
            let udp = format!("udp*{streams}@127.0.0.1");
            let routes: Vec<_> =
                (0..size).map(|p| if p == me { "self".to_owned() } else { udp.clone() }).collect();
            let wanted = format!("rank {me} of {size} by unisono: {}", routes.join(" "));
            assert_eq!(ended.said(), wanted);
        }
    }
}

#[test]
fn a_secret_opens_the_network() {
    // All of this host's addresses, by its name or the one that is not loopback.
    let master = format!("0.0.0.0:{}", free_port());
    let with = |mut command: Command| {
        command.env("UNISONO_SECRET", SECRET);
        command
    };
    for ended in all(3, |r| with(rank(r, 3, &master, "open"))) {
        assert!(ended.said().contains(" near"), "{ended:?}");
    }
    let ended = ranks::start(&mut rank(0, 2, &master, "open")).end();
    assert!(ended.error().contains("give all ranks the same UNISONO_SECRET"), "{ended:?}");
}

#[test]
fn a_secret_may_stand_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, format!("{SECRET}\n")).expect("a file");
    let job = format!("file-{}", std::process::id());
    let make = |r| {
        let mut command = rank(r, 2, "local", &job);
        match r {
            0 => command.env("UNISONO_SECRET", SECRET),
            _ => command.env("UNISONO_SECRET_FILE", &path),
        };
        command
    };
    for ended in all(2, make) {
        assert!(ended.said().contains(" near"), "{ended:?}");
    }
}

#[test]
fn one_hostname_leads_to_all_ranks() {
    // As Slurm does it: the name may mean 127.0.1.1 on the host itself.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let master = format!("{}:{}", name.trim(), free_port());
    let make = |r| {
        let mut command = rank(r, 2, &master, "name");
        command.env("UNISONO_SECRET", SECRET).arg("--far");
        command
    };
    for ended in all(2, make) {
        assert!(ended.said().contains(" far*1@"), "{ended:?}");
    }
}

#[test]
fn jobs_do_not_disturb_each_other() {
    let name = |job| format!("crowd-{}-{job}", std::process::id());
    std::thread::scope(|scope| {
        for job in 0..6 {
            let name = name(job);
            scope.spawn(move || {
                for ended in all(3, |r| rank(r, 3, "local", &name)) {
                    assert!(ended.said().contains(" near"), "{ended:?}");
                }
            });
        }
    });
}

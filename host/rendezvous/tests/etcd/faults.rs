//! Groups that must not come together.

use crate::ranks::{Running, all, bare, start};
use crate::server::Server;
use crate::{LEASE, SECRET, rank};
use std::net::TcpListener;
use std::time::Instant;

fn end(ranks: Vec<Running>) -> Vec<String> {
    ranks.into_iter().map(|rank| rank.end().error().to_owned()).collect()
}

#[test]
fn ranks_that_never_come_are_named_on_all() {
    let server = Server::begin();
    let place = server.place("few");
    let wanted = format!("ranks 2, 3 of 4 have not come within 3 s; rank 0 waits at {place}");
    for ended in all(2, |r| rank(r, 4, &place, "few", "3")) {
        assert_eq!(ended.error(), wanted);
    }
    let ended = start(&mut rank(1, 2, &place, "headless", "1")).end();
    let wanted = format!(
        "rank 0 has not come: nobody answers at {place} within 1 s \
         (no rank 0 has come to few/headless/)"
    );
    assert_eq!(ended.error(), wanted);
    assert_eq!(server.keys(""), [""; 0]);
}

#[test]
fn another_prefix_and_another_job_are_other_places() {
    let server = Server::begin();
    for (places, jobs) in [(["a", "b"], ["j", "j"]), (["a", "a"], ["j", "k"])] {
        let ended = all(2, |r| rank(r, 2, &server.place(places[r]), jobs[r], "2"));
        let zero = format!("rank 0 waits at {}", server.place("a"));
        assert!(ended[0].error().ends_with(&zero), "{ended:?}");
        let one = format!("(no rank 0 has come to {}/{}/)", places[1], jobs[1]);
        assert!(ended[1].error().ends_with(&one), "{ended:?}");
    }
}

#[test]
fn a_rank_that_is_killed_is_named_at_once() {
    let server = Server::begin();
    let make = |r| start(&mut rank(r, 4, &server.place("kill"), "kill", "300"));
    let ranks = vec![make(0), make(1)];
    let victim = make(2);
    let here = |rank: &str| ranks[0].threads().iter().any(|thread| thread == rank);
    while !here("unisono rank 1") || !here("unisono rank 2") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    victim.kill();
    let wanted = "rank 2 has gone: its process has ended, or its connection has";
    assert_eq!(end(ranks), [wanted; 2]);
    // Its key ends by itself.
    server.until("kill/", 0);
}

#[test]
fn a_rank_that_dies_on_its_way_to_rank_0_is_named_when_its_lease_ends() {
    let server = Server::begin();
    let make = |r| start(&mut rank(r, 3, &server.place("way"), "way", "300"));
    let ranks = vec![make(0), make(1)];
    server.until("way/", 2);
    server.put_for("way/way/000002", 2);
    let wanted = "rank 2 has gone before all had come: its lease at etcd has ended";
    assert_eq!(end(ranks), [wanted; 2]);
}

#[test]
fn a_rank_that_freezes_is_named_and_does_not_go_on() {
    let server = Server::begin();
    let make = |r| start(&mut rank(r, 4, &server.place("ice"), "ice", "300"));
    let ranks = vec![make(0), make(1)];
    let frozen = make(2);
    while !ranks[0].threads().contains(&"unisono rank 2".to_owned()) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    frozen.signal(rustix::process::Signal::STOP);
    let wanted = "rank 2 has gone before all had come: its lease at etcd has ended";
    assert_eq!(end(ranks), [wanted; 2]);
    frozen.signal(rustix::process::Signal::CONT);
    // It learns of it from whom it hears first: its clock, etcd or rank 0.
    let error = frozen.end().error().to_owned();
    assert!(error.contains("lease") || error.contains("rank 0 has gone"), "{error}");
}

#[test]
fn a_rank_that_is_there_twice_is_refused() {
    let server = Server::begin();
    let place = server.place("twice");
    let first = start(&mut rank(1, 2, &place, "twice", "300"));
    server.until("twice/", 1);
    let ended = start(&mut rank(1, 2, &place, "twice", "300")).end();
    let wanted = format!("{place}: rank 1 is there twice: process ");
    assert!(ended.error().starts_with(&wanted), "{ended:?}");
    // The first has its place still.
    let zero = start(&mut rank(0, 2, &place, "twice", "300"));
    crate::near(&[zero.end(), first.end()]);
}

#[test]
fn a_job_of_the_same_name_may_follow_one_that_crashed() {
    let server = Server::begin();
    let place = server.place("crash");
    let make = |r| rank(r, 2, &place, "crash", "300");
    let ranks: Vec<_> = (0..2).map(|r| start(make(r).args(["--stay", "--silent"]))).collect();
    server.until("crash/", 2);
    ranks.into_iter().for_each(Running::kill);
    crate::near(&all(2, make));
}

#[test]
fn secrets_are_checked_and_needed() {
    let server = Server::begin();
    let place = server.place("secret");
    let make = |r: usize| {
        let mut command = rank(r, 2, &place, "secret", "300");
        start(command.env("UNISONO_SECRET", [SECRET, "another secret, as long"][r]))
    };
    let zero = make(0);
    // Keys that are older than rank 0's may be left of another job.
    server.until("secret/", 1);
    let one = make(1);
    let ended = [zero.end(), one.end()];
    let wrong = "its shared secret is another one";
    let zero = "rank 1 has gone before all had come: its lease at etcd has ended";
    let more = ended[0].error().strip_prefix(zero).expect("its own words");
    // On a busy machine rank 1 may be gone before rank 0 has noted why it was refused.
    let noted = more.starts_with("; refused there: ") && more.ends_with(wrong);
    assert!(noted || more.is_empty(), "{ended:?}");
    assert!(ended[1].error().ends_with(wrong), "{ended:?}");
    let mut without = rank(0, 2, &place, "secret", "1");
    let ended = start(without.env_remove("UNISONO_SECRET")).end();
    assert!(ended.error().contains("give all ranks the same UNISONO_SECRET"), "{ended:?}");
}

#[test]
fn users_and_passwords_are_checked() {
    let server = Server::begin();
    server.lock();
    let with = |user: &str, password: Option<&str>| {
        let place = format!("etcd://{user}{}/p", server.address());
        let mut command = rank(0, 1, &place, "user", "60");
        if let Some(password) = password {
            command.env("UNISONO_ETCD_PASSWORD", password);
        }
        start(&mut command).end()
    };
    crate::near(&[with("root@", Some("password"))]);
    let began = Instant::now();
    for (user, password, wanted) in [
        ("root@", None, "UNISONO_ETCD_PASSWORD has to be set for user root"),
        ("root@", Some("wrong"), "it refuses the user or the password (etcdserver: auth"),
        ("", None, "it refuses the user or the password (etcdserver: user name is empty)"),
        ("guest@", Some("password"), "the user has no right to write there"),
    ] {
        let ended = with(user, password);
        assert!(ended.error().contains(wanted), "{user}: {ended:?}");
    }
    // No use in trying again.
    assert!(began.elapsed() < LEASE);
}

#[test]
fn what_is_no_etcd_is_said_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = silent.local_addr().expect("an address").port();
    let ended = start(&mut rank(0, 1, &format!("etcd://127.0.0.1:{port}/p"), "no", "4")).end();
    let wanted = "rank 0 has no place there after 4s: no answer for 3 s";
    assert!(ended.error().ends_with(wanted), "{ended:?}");
    let port = crate::ranks::free_port();
    let ended = start(&mut rank(0, 1, &format!("etcd://127.0.0.1:{port}/p"), "no", "1")).end();
    assert!(ended.error().contains(&format!("127.0.0.1:{port}: Connection refused")), "{ended:?}");
    let ended = start(&mut rank(0, 1, "redis://h:1/p", "no", "1")).end();
    let wanted = "UNISONO_RENDEZVOUS=redis://h:1/p: wanted is etcd://HOST:PORT[,HOST:PORT]/PREFIX";
    assert_eq!(ended.error(), wanted);
    let mut both = bare();
    both.env("UNISONO_RANK", "0").env("UNISONO_SIZE", "1").env("UNISONO_MASTER", "local");
    let ended = start(both.env("UNISONO_RENDEZVOUS", "etcd://h:1/p")).end();
    assert!(ended.error().contains("UNISONO_MASTER says where ranks meet, too"), "{ended:?}");
}

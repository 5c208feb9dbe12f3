//! Groups that must not come together, and say why on every rank.

use crate::SECRET;
use crate::ranks::{Ended, all, free_port, rank, start};
use std::process::Command;
use std::time::{Duration, Instant};

fn job(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn timed(mut command: Command, seconds: &str) -> Command {
    command.args(["--seconds", seconds]);
    command
}

#[test]
fn ranks_that_never_come_are_named_on_all() {
    let master = format!("127.0.0.1:{}", free_port());
    let begin = Instant::now();
    let ended = all(2, |r| timed(rank(r, 4, &master, "missing"), "1"));
    let wanted = format!("ranks 2, 3 of 4 have not come within 1 s; rank 0 waits at {master}");
    for ended in &ended {
        assert_eq!(ended.error(), wanted);
    }
    // A guard against waiting for ever.
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_missing_rank_0_is_named_with_its_address() {
    let master = format!("127.0.0.1:{}", free_port());
    let ended = start(&mut timed(rank(1, 2, &master, "headless"), "1")).end();
    let error = ended.error();
    assert!(error.starts_with("rank 0 has not come: nobody answers at 127.0.0.1:"), "{error}");
    assert!(error.contains("within 1 s (Connection refused"), "{error}");
    let ended = start(&mut timed(rank(1, 2, "local", &job("headless")), "1")).end();
    assert!(ended.error().contains("nobody answers at a Unix socket of this host"), "{ended:?}");
}

#[test]
fn the_most_impatient_rank_ends_the_wait_of_all() {
    let job = job("impatient");
    let begin = Instant::now();
    let ended = all(2, |r| timed(rank(r, 3, "local", &job), if r == 0 { "500" } else { "1" }));
    for ended in &ended {
        assert!(ended.error().starts_with("rank 2 of 3 has not come within "), "{ended:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(100));
}

#[test]
fn a_rank_that_is_there_twice_is_an_error_of_all() {
    let job = job("twice");
    let ended = all(3, |n| timed(rank([0, 1, 1][n], 3, "local", &job), "60"));
    let said: Vec<&str> = ended.iter().map(Ended::error).collect();
    assert!(said.iter().all(|s| s.contains("rank 1 is there twice: process ")), "{said:?}");
    assert_eq!(said.iter().filter(|s| s.contains("refuses rank 1")).count(), 1, "{said:?}");
}

#[test]
fn a_second_rank_0_is_refused() {
    let job = job("two-hubs");
    let mut first = start(timed(rank(0, 1, "local", &job), "60").args(["--stay", "--silent"]));
    first.joined();
    let second = start(&mut timed(rank(0, 1, "local", &job), "1")).end();
    assert!(second.error().contains(&format!("there is a rank 0 of job {job} already")));
    first.kill();
    // Nothing is left of it.
    start(&mut timed(rank(0, 1, "local", &job), "1")).end().said();
}

#[test]
fn another_size_is_an_error_of_all() {
    let job = job("size");
    let ended = all(2, |r| timed(rank(r, 3 + r, "local", &job), "60"));
    let wanted = "rank 1 says the group has 4 ranks, rank 0 3";
    // Rank 0 may itself come to its hub after it has heard that.
    for (rank, ended) in ended.iter().enumerate() {
        let refused = format!("rank 0 at a Unix socket of this host refuses rank {rank}: {wanted}");
        let said = ended.error();
        assert!(said == refused || (rank == 0 && said == wanted), "{said}");
    }
}

#[test]
fn another_job_at_the_same_address_is_not_joined() {
    let master = format!("127.0.0.1:{}", free_port());
    let ended = all(2, |r| timed(rank(r, 2, &master, ["one", "other"][r]), "1"));
    let error = ended[0].error();
    assert!(error.starts_with("rank 1 of 2 has not come within 1 s"), "{error}");
    assert!(error.contains("refused there: 127.0.0.1:"), "{error}");
    assert!(error.contains("it is about another job, other"), "{error}");
    assert!(ended[1].error().ends_with("(it is about another job, one)"), "{ended:?}");
}

#[test]
fn wrong_and_missing_secrets_are_told_on_both_sides() {
    let master = format!("127.0.0.1:{}", free_port());
    let cases = [
        (Some(SECRET), Some("another secret, as long"), "its shared secret is another one"),
        (Some(SECRET), None, "rank 0 has a shared secret, rank 1 none"),
        (None, Some(SECRET), "rank 0 has no shared secret, rank 1 one"),
    ];
    for (zero, one, wanted) in cases {
        let make = |r: usize| {
            let mut command = timed(rank(r, 2, &master, "secret"), "1");
            if let Some(secret) = [zero, one][r] {
                command.env("UNISONO_SECRET", secret);
            }
            command
        };
        let ended = all(2, make);
        for (r, ended) in ended.iter().enumerate() {
            assert!(ended.error().contains(wanted), "{ended:?}");
            let starts = ["rank 1 of 2 has not come", "rank 0 at 127.0.0.1:"][r];
            assert!(ended.error().starts_with(starts), "{ended:?}");
        }
    }
    let mut short = rank(0, 1, "local", "short");
    let ended = start(short.env("UNISONO_SECRET", "short")).end();
    assert!(ended.error().contains("has 5 B and could be guessed"), "{ended:?}");
}

#[test]
fn a_rank_that_is_killed_while_others_are_awaited_ends_the_wait() {
    let job = job("killed");
    let make = |r| timed(rank(r, 3, "local", &job), "300");
    let (zero, one) = (start(&mut make(0)), start(&mut make(1)));
    // Until it has been taken in; earlier it would only be missing.
    while !zero.threads().contains(&"unisono rank 1".to_owned()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    one.kill();
    assert_eq!(zero.end().error(), "rank 1 has gone: its process has ended, or its connection has");
}

#[test]
fn a_rank_that_is_killed_later_ends_the_next_step_of_all() {
    for victim in [0, 2] {
        let job = job(&format!("later-{victim}"));
        let make = |r: usize| {
            let mut command = timed(rank(r, 3, "local", &job), "300");
            command.arg("--stay");
            if r == victim {
                command.arg("--silent");
            }
            command
        };
        let mut running: Vec<_> = (0..3).map(|r| start(&mut make(r))).collect();
        running.iter_mut().for_each(crate::ranks::Running::joined);
        running.remove(victim).kill();
        let wanted = format!(
            "error: rank {victim} has gone: its process has ended, or its connection has\n"
        );
        for rank in running {
            assert_eq!(rank.end().err, wanted);
        }
    }
}

#[test]
fn a_rank_that_is_late_for_a_round_is_named_on_all() {
    let job = job("late");
    let make = |r: usize| {
        let mut command = timed(rank(r, 3, "local", &job), "1");
        command.arg("--stay");
        if r == 1 {
            command.arg("--silent");
        }
        command
    };
    let mut running: Vec<_> = (0..3).map(|r| start(&mut make(r))).collect();
    running.iter_mut().for_each(crate::ranks::Running::joined);
    let late = running.remove(1);
    for rank in running {
        let error = rank.end().err;
        assert_eq!(error, "error: rank 1 has not come to round 0 of the rendezvous within 1 s\n");
    }
    late.kill();
}

#[test]
fn ranks_that_want_different_routes_say_so() {
    let job = job("routes");
    let make = |r: usize| {
        let mut command = rank(r, 2, "local", &job);
        command.args(["--streams", ["1", "2"][r]]);
        command
    };
    for ended in all(2, make) {
        assert_eq!(
            ended.error(),
            "ranks want to be connected differently: rank 0 near = true, streams = 1, \
             datagrams = false, rank 1 near = true, streams = 2, datagrams = false"
        );
    }
}

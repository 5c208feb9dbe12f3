//! Leases that end: nothing new begins without them, and what runs goes on.

use crate::ranks::{Ended, Running, start};
use crate::server::Server;
use crate::{LEASE, rank};
use std::time::{Duration, Instant};

/// Ranks that have joined and are connected, use their routes for so long, then connect anew.
fn under_way(server: &Server, job: &str, seconds: &str) -> Vec<Running> {
    let make =
        |r| start(rank(r, 3, &server.place(job), job, "60").args(["--stay", "--again", seconds]));
    let mut ranks: Vec<Running> = (0..3).map(make).collect();
    ranks.iter_mut().for_each(Running::joined);
    ranks
}

fn ends(ranks: Vec<Running>) -> Vec<Ended> {
    ranks.into_iter().map(Running::end).collect()
}

#[test]
fn with_leases_groups_begin_as_often_as_wanted() {
    let server = Server::begin();
    for ended in ends(under_way(&server, "often", "11")) {
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
        assert!(ended.out.starts_with("went on\n"), "{ended:?}");
    }
    assert_eq!(server.keys(""), [""; 0]);
}

#[test]
fn a_server_that_freezes_during_a_job_stops_only_what_is_new() {
    for thaws in [false, true] {
        let server = Server::begin();
        let ranks = under_way(&server, "frozen", "15");
        server.freeze();
        if thaws {
            std::thread::sleep(LEASE + Duration::from_secs(2));
            // Too late: places that have been lost are not taken again.
            server.thaw();
        }
        for ended in ends(ranks) {
            assert_eq!((ended.code, ended.out.as_str()), (Some(1), "went on\n"), "{ended:?}");
            let who = "error: ranks 0, 1, 2 have no lease any more, so nothing new can begin: ";
            assert!(ended.err.starts_with(who), "{ended:?}");
            // A server that is back may be the first to say it.
            let silent = ended.err.contains("it has not renewed this rank's lease for 10 s");
            assert!(silent || thaws && ended.err.contains("lease has ended"), "{ended:?}");
        }
    }
}

#[test]
fn a_short_frost_harms_nobody() {
    let server = Server::begin();
    let ranks = under_way(&server, "short", "8");
    server.freeze();
    std::thread::sleep(Duration::from_secs(4));
    server.thaw();
    for ended in ends(ranks) {
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    }
}

#[test]
fn a_lease_that_is_taken_away_fences_its_rank() {
    let server = Server::begin();
    let ranks = under_way(&server, "taken", "5");
    server.revoke();
    for ended in ends(ranks) {
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), "went on\n"), "{ended:?}");
        assert!(ended.err.contains(": this rank's lease has ended"), "{ended:?}");
    }
}

#[test]
fn a_server_that_freezes_while_ranks_join_fences_them_in_time() {
    let server = Server::begin();
    let place = server.place("join");
    let mut ranks: Vec<_> = (0..2).map(|r| start(&mut rank(r, 3, &place, "join", "300"))).collect();
    server.until("join/", 2);
    server.freeze();
    let frozen = Instant::now();
    let late = start(&mut rank(2, 3, &place, "join", "5")).end();
    let wanted = "rank 2 has no place there after 5s: no answer for 3 s";
    assert!(late.error().ends_with(wanted), "{late:?}");
    assert!(ranks.iter_mut().all(Running::runs));
    let ended = ends(ranks);
    let took = frozen.elapsed();
    assert!(took < LEASE + Duration::from_secs(5), "{took:?}");
    let own = "it has not renewed this rank's lease for 10 s";
    for ended in &ended {
        // Whoever is second hears it from the first.
        let error = ended.error();
        assert!(error.contains(own) || error.contains("has gone"), "{error}");
    }
    assert!(ended.iter().any(|ended| ended.error().contains(own)), "{ended:?}");
}

//! A thousand groups, each with its own trouble.

use unisono_sim::{Summary, run};

/// Seeds whose runs once broke a rule, or which meet something that few others do.
const REMEMBERED: [u64; 9] = [1304, 2182, 2781, 3492, 9070, 9895, 15138, 20704, 51341];

#[test]
fn a_thousand_seeds_break_no_rule() {
    let mut summary = Summary::default();
    for seed in (0..1000).chain(REMEMBERED) {
        let report = run(seed);
        summary.add(&report);
        let what = report.complaints.join("\n  ");
        assert!(report.is_good(), "seed {seed}:\n  {what}\n  replay: {}", report.replay());
    }
    // The scenarios must meet what they are there for.
    println!("{summary}");
    assert!(summary.done > 5_000, "hardly any call ends well:\n{summary}");
    for (kind, name) in unisono_sim::member::KIND_NAMES.iter().enumerate() {
        let met = summary.failed[kind];
        // Members are honest here, and a call that cannot even begin is drawn once in a blue moon.
        let right = match *name {
            "protocol" => met == 0,
            "refused" => met > 0,
            _ => met > 50,
        };
        assert!(right, "{name}:\n{summary}");
    }
    assert!(summary.lost > 1_000 && summary.resent > 1_000, "the weather is too good:\n{summary}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in (0..1000).step_by(9) {
        let (a, b) = (run(seed), run(seed));
        assert_eq!(a.hash, b.hash, "seed {seed}");
        assert_eq!((a.virtual_ns, a.frames, a.done), (b.virtual_ns, b.frames, b.done));
    }
}

#[test]
fn the_trace_can_be_read_and_does_not_change_the_run() {
    let (quiet, traced) = (run(7), unisono_sim::run_traced(7));
    assert_eq!(quiet.hash, traced.hash);
    assert!(quiet.trace.is_empty());
    assert!(traced.trace.iter().any(|line| line.contains("begins call 0")));
}

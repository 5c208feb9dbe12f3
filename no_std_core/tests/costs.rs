//! Steps and bytes for review: the golden table, and the headline formulas of the file headers.

use std::fmt::Write as _;
use unisono_core::schedule::{Aggregators, Nodes, Owners, Schedule, Tally};
use unisono_core::{DType, Kind, Layout, Rank};

/// Divisible by all the group sizes of the table.
const COUNT: u64 = 1680;

fn layout(kind: Kind, ranks: u16, root: Rank, count: u64, chunk: u64) -> Layout {
    Layout { kind, ranks, count, chunk, root }
}

fn schedules(n: u16) -> Vec<(String, Schedule)> {
    let mut all: Vec<(String, Schedule)> = vec![
        ("ring".into(), Schedule::Ring),
        ("direct".into(), Schedule::Direct(Owners::equal(n).unwrap())),
        ("one-shot".into(), Schedule::OneShot),
        ("binomial".into(), Schedule::Binomial),
        ("double-tree".into(), Schedule::DoubleTree),
        ("halving-doubling".into(), Schedule::HalvingDoubling),
    ];
    for a in [1, 2] {
        all.push((format!("star/{a}"), Schedule::Star(Aggregators::new(a).unwrap())));
    }
    for size in [2, 4] {
        let nodes = Nodes::even(n, size).unwrap();
        all.push((format!("hierarchical/{size}"), Schedule::Hierarchical(nodes)));
    }
    for size in [1, 2, 4] {
        all.push((format!("hub/{size}"), Schedule::Hub(Nodes::even(n, size).unwrap())));
    }
    all
}

fn table() -> String {
    let mut text = String::from(
        "# Steps and bytes of every schedule; count 1680, chunk 1, root 0.\n\
         # star/A: A aggregators; hierarchical/S, hub/S: consecutive nodes of S ranks.\n\
         # Written by the test `costs` when UNISONO_BLESS=1 is set; review the difference.\n",
    );
    let head = ["N", "schedule", "kind", "dtype", "steps", "sent_max", "received_max"];
    let line = |text: &mut String, c: [&str; 9]| {
        let row = format!(
            "{:>2} {:<17} {:<14} {:<5} {:>5} {:>9} {:>12} {:>10} {:>10}",
            c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]
        );
        writeln!(text, "{}", row.trim_end()).unwrap();
    };
    let [a, b, c, d, e, f, g] = head;
    line(&mut text, [a, b, c, d, e, f, g, "folded_max", "sent_total"]);
    for n in [2, 3, 4, 7, 8, 16] {
        for (name, schedule) in schedules(n) {
            for kind in Kind::ALL.into_iter().filter(|&k| k != Kind::Barrier) {
                if !schedule.supports(kind, n) {
                    continue;
                }
                for dtype in [DType::F32, DType::BF16] {
                    let cost = schedule.cost(&layout(kind, n, 0, COUNT, 1), dtype);
                    let bytes =
                        [cost.sent_max, cost.received_max, cost.folded_max, cost.sent_total]
                            .map(|b| b.to_string());
                    let (n, steps) = (n.to_string(), cost.steps.to_string());
                    let [s, r, f, t] = bytes.each_ref().map(String::as_str);
                    line(&mut text, [&n, &name, kind.name(), dtype.name(), &steps, s, r, f, t]);
                }
            }
        }
    }
    text
}

#[test]
fn the_golden_table_holds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/costs.txt");
    let now = table();
    if std::env::var("UNISONO_BLESS").is_ok_and(|v| v == "1") {
        std::fs::write(path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (line, (now, golden)) in now.lines().zip(golden.lines()).enumerate() {
        assert_eq!(now, golden, "line {}; UNISONO_BLESS=1 accepts the new table", line + 1);
    }
    assert_eq!(now.len(), golden.len(), "lines were added or are missing");
}

/// The tables in the headers, written down a second time and independently.
#[test]
fn the_headers_tell_the_truth() {
    for n in [2u16, 4, 8, 16] {
        let (m, ranks, log) = (u128::from(COUNT) * 4, u128::from(n), n.ilog2());
        let wide = u128::from(n) - 1;
        let cost = |s: &Schedule, kind| s.cost(&layout(kind, n, n - 1, COUNT, 1), DType::F32);
        let of = |s: &Schedule, kind| (cost(s, kind).steps, cost(s, kind).sent_max);
        let direct = Schedule::Direct(Owners::equal(n).unwrap());
        let ring = Schedule::Ring;
        let halving = Schedule::HalvingDoubling;
        let all = 2 * m * wide / ranks;

        assert_eq!(of(&ring, Kind::AllReduce), (2 * u32::from(n - 1), all));
        assert_eq!(of(&ring, Kind::ReduceScatter), (u32::from(n - 1), m * wide));
        assert_eq!(of(&ring, Kind::AllGather), (u32::from(n - 1), m * wide));
        assert_eq!(of(&ring, Kind::Broadcast), (u32::from(n - 1), m));
        assert_eq!(of(&direct, Kind::AllReduce), (2, all));
        assert_eq!(of(&direct, Kind::ReduceScatter), (1, m * wide));
        assert_eq!(of(&direct, Kind::AllToAll), (1, m * wide));
        assert_eq!(of(&direct, Kind::Broadcast), (1, m * wide));
        assert_eq!(of(&Schedule::OneShot, Kind::AllReduce), (1, m * wide));
        assert_eq!(of(&halving, Kind::AllReduce), (2 * log, all));
        assert_eq!(of(&halving, Kind::AllGather), (log, m * wide));
        let through_root = (2 * log, m * u128::from(log));
        assert_eq!(of(&Schedule::Binomial, Kind::AllReduce), through_root);
        assert_eq!(of(&Schedule::Binomial, Kind::Reduce), (log, m));
        assert_eq!(of(&Schedule::DoubleTree, Kind::AllReduce).0, 2 * log);
        assert_eq!(of(&Schedule::DoubleTree, Kind::Broadcast), (log, m));
        // Every rank of the trees moves two elements for two chunks, three and one at most.
        assert_eq!(of(&Schedule::DoubleTree, Kind::AllReduce).1, if n == 2 { m } else { 2 * m });
        let star = Schedule::Star(Aggregators::new(1).unwrap());
        assert_eq!(of(&star, Kind::AllReduce), (2, ranks * m));
        assert_eq!(cost(&star, Kind::ReduceScatter).received_max, ranks * ranks * m);
        assert_eq!(of(&star, Kind::AllGather), (2, ranks * wide * m));
        assert_eq!(of(&star, Kind::Reduce), (2, m));
        assert_eq!(of(&star, Kind::Broadcast), (2, wide * m));
    }
    hubs_tell_the_truth();
    // Shares: M(1 + (N-2)s) for a rank, N t M for an aggregator.
    let weights = [3, 1, 0, 2, 6];
    let shares = Schedule::Direct(Owners::weighted(4, &weights).unwrap());
    let layout = layout(Kind::AllReduce, 4, 0, 12, 1);
    for (rank, &weight) in weights.iter().enumerate() {
        let want = if rank < 4 { 12 + 2 * weight } else { 4 * weight };
        let got = shares.traffic(&layout, DType::U8, rank as u16);
        assert_eq!((got.sent, got.received), (u128::from(want), u128::from(want)), "{rank}");
    }
}

/// The table in the header of `hub`, for nodes of equal size.
fn hubs_tell_the_truth() {
    for (n, s) in [(4u16, 2u16), (8, 2), (8, 4), (16, 2), (16, 4), (4, 1), (16, 1)] {
        let hub = Schedule::Hub(Nodes::even(n, s).unwrap());
        let m = u128::from(COUNT) * 4;
        let root = n - 1;
        let [ranks, nodes, size] = [n, n / s, s].map(u128::from);
        let deep = u32::from(s > 1);
        let of = |kind, rank| hub.traffic(&layout(kind, n, root, COUNT, 1), DType::F32, rank);
        let steps = |kind| hub.steps(&layout(kind, n, root, COUNT, 1));
        let sent = |kind| (of(kind, n).sent, of(kind, root).sent);
        assert_eq!(sent(Kind::AllReduce), (nodes * m, (2 * size - 1) * m / size));
        assert_eq!(sent(Kind::ReduceScatter), (ranks * m, ranks * m));
        assert_eq!(of(Kind::ReduceScatter, n).received, nodes * ranks * m);
        let gathered = (ranks + 1 - nodes) * m;
        assert_eq!(sent(Kind::AllGather), ((nodes - 1) * ranks * m, gathered));
        assert_eq!(sent(Kind::Reduce), (m, m));
        assert_eq!(of(Kind::Reduce, n).received, nodes * m);
        assert_eq!(sent(Kind::Broadcast), ((nodes - 1) * m, size * m));
        // The root is the last of its node, so the others are led by their last ranks.
        assert_eq!(of(Kind::Broadcast, s - 1).sent, (size - 1) * m);
        assert_eq!(steps(Kind::AllReduce), 2 + 2 * deep);
        for kind in [Kind::ReduceScatter, Kind::AllGather, Kind::Reduce, Kind::Broadcast] {
            assert_eq!(steps(kind), 2 + deep, "{kind}");
        }
    }
}

/// Fingerprints are part of the handshake, so they must not change by accident.
#[test]
fn fingerprints_are_stable_and_distinct() {
    let all = schedules(4);
    let mut prints: Vec<u64> = all.iter().map(|(_, s)| s.fingerprint()).collect();
    // FNV-1a of [1], [2, N, A, len, table], [7, A], [8 or 9, N, len, node_of], computed elsewhere.
    assert_eq!(Schedule::Ring.fingerprint(), 0xaf63_bc4c_8601_b62c);
    assert_eq!(all[1].1.fingerprint(), 0x310d_5989_eb86_6089);
    assert_eq!(all[6].1.fingerprint(), 0xbf54_0718_5d5a_16df);
    assert_eq!(all[8].1.fingerprint(), 0x77c2_3cce_556e_e941);
    assert_eq!(all[11].1.fingerprint(), 0xe45e_b170_c0d9_b61a);
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), all.len(), "two schedules have the same fingerprint");
    let renamed = [Nodes::new(&[7, 7, 2, 2]), Nodes::new(&[0, 0, 1, 1])];
    let [a, b] = renamed.map(|n| Schedule::Hierarchical(n.unwrap()).fingerprint());
    assert_eq!(a, b, "only the grouping counts");
    assert!(size_of::<Schedule>() <= 300);
}

/// With the hinted number of chunks in flight every member that works at all has something to send.
#[test]
fn the_window_hint_keeps_everybody_busy() {
    for n in [2, 3, 4, 7, 8, 16] {
        for (name, schedule) in schedules(n) {
            let layout = layout(Kind::AllReduce, n, 0, COUNT, 1);
            let window = u64::from(schedule.window_hint(n));
            for first in 0..2 * window {
                for rank in 0..schedule.members(n) {
                    let sends =
                        |chunk| schedule.flow(&layout, chunk, rank).sent != Tally::default();
                    let busy = (first..first + window).any(sends);
                    assert!(busy, "{name} N={n}: rank {rank} idles from chunk {first}");
                }
            }
        }
    }
}

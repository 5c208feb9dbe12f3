//! Selections of schedules by hand.

use unisono_core::Kind;
use unisono_planner::{Pick, Selection};

fn found(text: &str, kind: Kind, bytes: u64) -> Option<String> {
    let selection: Selection = text.parse().expect(text);
    selection.find(kind, bytes).map(|pick| pick.to_string())
}

#[test]
fn rules_are_found_by_size() {
    let text =
        "all-reduce:-8K=one-shot;8K-1M=halving-doubling;1M-=direct/256K broadcast:64-=binomial";
    let all = |bytes| found(text, Kind::AllReduce, bytes);
    assert_eq!(all(0).as_deref(), Some("one-shot"));
    assert_eq!(all(8191).as_deref(), Some("one-shot"));
    assert_eq!(all(8192).as_deref(), Some("halving-doubling"));
    assert_eq!(all(u64::MAX - 1).as_deref(), Some("direct/256K"));
    assert_eq!(found(text, Kind::Broadcast, 63), None);
    assert_eq!(found(text, Kind::Broadcast, 64).as_deref(), Some("binomial"));
    assert_eq!(found(text, Kind::Reduce, 64), None);
    // All ways to write a collective; a gap is the planner's.
    assert_eq!(found("AllReduce:-8=ring;64-=auto", Kind::AllReduce, 10), None);
    assert_eq!(found("all_reduce:-8=ring", Kind::AllReduce, 7).as_deref(), Some("ring"));
    // Shown as it is read.
    let selection: Selection = text.parse().expect(text);
    assert_eq!(selection.to_string(), text);
    assert_eq!(selection.to_string().parse(), Ok(selection));
}

#[test]
fn mistakes_are_shown_where_they_are() {
    for (text, at, near, words) in [
        ("", 1, "", "it is empty"),
        ("ring", 1, "ring", "a collective and a colon come first"),
        ("reduce-all:-=ring", 1, "reduce-all", "no such collective; there are all-reduce"),
        ("all-reduce:-8K=one-shot;8K-1M=halvin", 31, "halvin", "no such schedule; there are auto"),
        ("all-reduce:8K=ring", 12, "8K=ring", "a rule looks like 8K-1M=ring"),
        ("all-reduce:8K-ring", 12, "8K-ring", "a rule looks like 8K-1M=ring"),
        ("all-reduce:8K-4K=ring", 12, "8K-4K", "no size is in this range"),
        (
            "all-reduce:-8K=ring;4K-=ring",
            21,
            "4K-",
            "it begins before the rule before it has ended",
        ),
        ("all-reduce:-8X=ring", 13, "8X", "\"8X\" is no size"),
        ("all-reduce:-=ring:2", 14, "ring:2", "ring takes no number"),
        ("all-reduce:-=star:0", 14, "star:0", "no number after the colon"),
        ("all-reduce:-=ring/0", 14, "ring/0", "a chunk of 0 bytes"),
        ("\u{e9}:-=ring", 1, "\u{e9}", "no such collective"),
        ("all-reduce:-=ring allreduce:-=ring", 19, "allreduce", "it is there twice"),
    ] {
        let error = text.parse::<Selection>().expect_err(text);
        assert_eq!((error.at, error.near.as_str()), (at, near), "{text}: {error}");
        assert!(error.what.contains(words), "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("character {at}, at ")), "{error}");
    }
}

#[test]
fn picks_become_schedules() {
    let name = |text: &str, ranks| {
        let pick: Pick = text.parse().expect(text);
        pick.schedule(ranks).map(|schedule| schedule.map(|s| s.name()))
    };
    for plain in ["ring", "direct", "one-shot", "binomial", "double-tree", "halving-doubling"] {
        assert_eq!(name(plain, 4), Ok(Some(plain)));
    }
    assert_eq!(name("auto", 4), Ok(None));
    assert_eq!(name("star:2", 4), Ok(Some("star")));
    assert_eq!(name("hub", 4), Ok(Some("hub")));
    assert_eq!(
        name("hierarchical:5", 4),
        Err("a hierarchy of 5 nodes over 4 ranks is not possible".into())
    );
    for (ranks, nodes) in [(1, 1), (4, 2), (5, 4), (7, 3), (64, 64)] {
        let count = unisono_planner::nodes_of(ranks, nodes).map(|n| n.count());
        assert_eq!(count, Some(nodes), "{ranks} ranks");
    }
    assert!(unisono_planner::nodes_of(3, 4).is_none());
}

//! Forecasts: the whole text of one, and the numbers of others.

use crate::tool::{Ended, folder, run, succeed};

const FOUR_RANKS: &str = "\
all-reduce of f32 over 4 ranks, sum, canonical order

8 B: no algorithm is faster than 1.00 µs
  schedule          steps  busiest rank     time  of bound
  one-shot              1          24 B  1.04 µs      97 %  fastest
  direct                2          24 B  2.07 µs      48 %
  halving-doubling      4          16 B  4.05 µs      25 %
  binomial              4          16 B  4.05 µs      25 %
  hierarchical          4          16 B  4.05 µs      25 %
  double-tree           4          24 B  4.07 µs      25 %  needs --order any
  ring                  6          16 B  6.07 µs      16 %  needs --order any

67.1 MB: no algorithm is faster than 10.1 ms
  schedule          steps  busiest rank     time  of bound
  halving-doubling      4        101 MB  10.1 ms     100 %  fastest
  hierarchical          4        101 MB  10.1 ms     100 %
  direct                2        101 MB  10.3 ms      98 %
  ring                  6        101 MB  11.0 ms      91 %  needs --order any
  double-tree           4        134 MB  13.5 ms      75 %  needs --order any
  binomial              4        134 MB  13.5 ms      75 %
  one-shot              1        201 MB  33.6 ms      30 %

fastest from
  4 B      (4 B)      one-shot
  11.8 kB  (11840 B)  direct
  37.9 kB  (37888 B)  halving-doubling
";

const EXPLAINED: &str = "\
all-reduce of f32 over 4 ranks, sum, canonical order
best shares by member: 33.3 %, 33.3 %, 33.3 %, 0.0 %

8 B: one-shot, predicted 1.15 µs
  lower bound 1.00 µs (one message), of which it reaches 88 %
  1 step, chunks of 2 elements
  24 B through the busiest member
  runner-up direct, 2.12 µs (85 % more)

1.05 MB: binomial, predicted 443 µs
  lower bound 420 µs (what the slowest member's own data takes), of which it reaches 95 %
  4 steps, chunks of 4096 elements
  2.10 MB through the busiest member
  runner-up direct, best shares, 444 µs (0 % more)
  --order any would allow hierarchical, 438 µs

67.1 MB: binomial, predicted 27.0 ms
  lower bound 26.8 ms (what the slowest member's own data takes), of which it reaches 100 %
  4 steps, chunks of 16384 elements
  134 MB through the busiest member
  runner-up direct, best shares, 27.0 ms (0 % more)
  --order any would allow hierarchical, 27.0 ms

by size; another one has to be 3 % faster
  4 B to 2.26 kB: one-shot
  2.26 kB to any size: direct, best shares
";

fn forecast(args: &[&str]) -> serde_json::Value {
    let folder = folder();
    let args = [&["plan", "--json"][..], args].concat();
    serde_json::from_str(&succeed(folder.path(), &args)).expect("JSON")
}

#[test]
fn a_size_has_an_element() {
    let Ended { code, out, err } = run(folder().path(), &["plan", "-n", "2", "--sizes", "8,3"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert_eq!(err.lines().next(), Some("error: --sizes 3: one f32 has 4 B"));
}

#[test]
fn four_equal_ranks() {
    let folder = folder();
    let text = succeed(folder.path(), &["plan", "-n", "4", "--nodes", "2", "--sizes", "8,64M"]);
    assert_eq!(text, FOUR_RANKS);
}

#[test]
fn a_choice_is_explained_and_drawn() {
    let folder = folder();
    let options = ["--bandwidth", "10GB/s,10GB/s,10GB/s,2.5GB/s", "--sizes", "8,1M,64M"];
    let draw = ["--explain", "--plot", "times.svg"];
    let text = succeed(folder.path(), &[&["plan", "-n", "4"], &options[..], &draw[..]].concat());
    assert_eq!(text, EXPLAINED);
    let svg = std::fs::read_to_string(folder.path().join("times.svg")).expect("the picture");
    for name in ["lower bound", "one-shot", "direct", "direct, best shares", "binomial"] {
        assert!(svg.contains(&format!(">{name}</text>")), "{name} is not in {svg}");
    }
    assert!(svg.contains(">ring (--order any)</text>"), "{svg}");
}

#[test]
fn a_slow_rank_owns_nothing() {
    let rates = "100GB/s,100GB/s,100GB/s,25GB/s";
    let json = forecast(&["-n", "4", "--bandwidth", rates, "--alpha", "0ns", "--sizes", "1G"]);
    let all = json["sizes"][0]["schedules"].as_array().expect("schedules");
    let of = |name: &str| all.iter().find(|s| s["name"] == name).expect(name);
    // 1 GiB through the slow rank once, instead of one and a half times.
    let seconds = |name: &str| of(name)["seconds"].as_f64().expect("a time");
    let once = 1.073_741_824 / 25.0;
    assert!((seconds("direct, best shares") / once - 1.0).abs() < 0.02, "{json}");
    assert!((seconds("direct") / once - 1.5).abs() < 0.02, "{json}");
    assert_eq!(json["shares"][3], 0.0);
    assert!(all[0]["of_bound"].as_f64().is_some_and(|part| part > 0.98), "{json}");
}

#[test]
fn aggregators_and_folds_count() {
    let lists =
        ["--nodes", "2", "--aggregators", "1", "--bandwidth", "1GB/s,1GB/s,1GB/s,1GB/s,40GB/s"];
    let json = forecast(&[&["-n", "4", "--sizes", "64M"][..], &lists].concat());
    assert_eq!(json["aggregators"], 1);
    let names: Vec<_> = json["sizes"][0]["schedules"]
        .as_array()
        .expect("schedules")
        .iter()
        .filter_map(|s| s["name"].as_str())
        .collect();
    for name in ["star", "direct, best shares", "hierarchical", "hub"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let slow = forecast(&["-n", "4", "--sizes", "64M", "--reduce-rate", "1GB/s"]);
    let seconds = |json: &serde_json::Value| {
        json["sizes"][0]["schedules"][0]["seconds"].as_f64().expect("a time")
    };
    // Three quarters of 64 MiB a rank at 1 GB/s.
    assert!((seconds(&slow) - 0.0503).abs() < 0.003, "{}", seconds(&slow));
}

#[test]
fn exact_types_may_take_the_ring() {
    let json = forecast(&["-n", "8", "-d", "int32", "--sizes", "8"]);
    let all = json["sizes"][0]["schedules"].as_array().expect("schedules");
    assert!(all.iter().all(|s| s["permitted"] == true));
    let json = forecast(&["-n", "8", "--kind", "all-to-all", "--sizes", "8"]);
    assert_eq!(json["op"], serde_json::Value::Null);
    assert_eq!(json["crossovers"].as_array().map(Vec::len), Some(1));
}

#[test]
fn nonsense_is_refused() {
    let folder = folder();
    for (options, message) in [
        (&["-n", "0"][..], "0 ranks and 0 aggregators: 1 to 128 fit"),
        (&["-n", "129"], "129 ranks and 0 aggregators: 1 to 128 fit"),
        (&["-n", "2", "--alpha", "1us,1us,1us"], "--alpha has 3 values for 2 members"),
        (&["-n", "2", "--nodes", "3"], "3 nodes for 2 ranks"),
        (&["-n", "2", "-o", "xor"], "xor works on integers only, not on f32"),
        (
            &["-n", "2", "--bandwidth", "10"],
            "invalid value '10' for '--bandwidth <RATE,…>': a rate needs a unit, for example \
             10GB/s or 100Gbit/s",
        ),
    ] {
        let ended = run(folder.path(), &[&["plan"][..], options].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{options:?}");
        assert_eq!(ended.err, format!("error: {message}\n"), "{options:?}");
    }
}

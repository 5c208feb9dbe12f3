//! Forecasts: the whole text of one, and the numbers of others.

use crate::tool::{Ended, folder, run, succeed};

const FOUR_RANKS: &str = "\
all-reduce of f32 over 4 ranks, sum, canonical order

8 B: no algorithm is faster than 1.00 µs
  schedule          steps  busiest rank     time  of bound
  one-shot              1          24 B  1.00 µs     100 %  fastest
  direct                2          24 B  2.00 µs      50 %
  halving-doubling      4          16 B  4.00 µs      25 %
  binomial              4          16 B  4.00 µs      25 %
  double-tree           4          24 B  4.00 µs      25 %  needs --order any
  hierarchical          4          16 B  4.00 µs      25 %
  ring                  6          16 B  6.00 µs      17 %  needs --order any

67.1 MB: no algorithm is faster than 10.1 ms
  schedule          steps  busiest rank     time  of bound
  direct                2        101 MB  10.1 ms     100 %  fastest
  halving-doubling      4        101 MB  10.1 ms     100 %
  hierarchical          4        101 MB  10.1 ms     100 %
  ring                  6        101 MB  10.1 ms     100 %  needs --order any
  binomial              4        134 MB  13.4 ms      75 %
  double-tree           4        134 MB  13.4 ms      75 %  needs --order any
  one-shot              1        201 MB  20.1 ms      50 %

fastest from
  4 B      (4 B)     one-shot
  6.73 kB  (6728 B)  direct
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
fn a_slow_rank_owns_nothing() {
    let rates = "100GB/s,100GB/s,100GB/s,25GB/s";
    let json = forecast(&["-n", "4", "--bandwidth", rates, "--alpha", "0ns", "--sizes", "1G"]);
    let best = &json["sizes"][0]["schedules"][0];
    assert_eq!(best["name"], "direct, best shares");
    // 1 GiB through the slow rank once, instead of one and a half times.
    let seconds = best["seconds"].as_f64().expect("a time");
    assert!((seconds - 1.073_741_824 / 25.0).abs() < 1e-6, "{best}");
    assert_eq!(json["shares"][3], 0.0);
    assert_eq!(best["of_bound"], 1.0);
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
    assert!((seconds(&slow) - 0.0503).abs() < 0.001, "{}", seconds(&slow));
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

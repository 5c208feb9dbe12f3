//! The shipped gradients over every order of the ranks and every schedule: one hash.

use crate::data::orders;
use std::path::Path;
use std::process::Command;

const HASH: &str = "sha256";
/// Those that keep the canonical order.
const CANONICAL: [&str; 7] =
    ["auto", "direct", "one-shot", "binomial", "halving-doubling", "star", "hierarchical"];
/// Those that have an order of their own.
const OTHERS: [&str; 2] = ["ring", "double-tree"];

fn hash(on: &str, algo: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_unisono"));
    tool.current_dir(folder.path()).args(["reduce", "--on", on, "--algo", algo, "-o", "sum.st"]);
    tool.args((0..4).map(|rank| data.join(format!("rank{rank}.safetensors"))));
    if OTHERS.contains(&algo) {
        tool.args(["--order", "any"]);
    }
    let output = tool.args(["--verify", "--chunk", "4KiB"]).output().expect("the tool starts");
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{on} by {algo}: {err}");
    let text = String::from_utf8(out).expect("UTF-8");
    let line = text.lines().find_map(|line| line.strip_prefix(HASH)).expect("a hash");
    line.split_whitespace().next().expect("a hash").to_owned()
}

/// Each order of the ranks by these schedules, compared with the hash of four CPU ranks.
fn compare(schedules: &[&str], want: impl Fn(&str) -> String) {
    let orders = orders();
    assert_eq!(orders.len(), 12);
    for algo in schedules {
        let want = want(algo);
        assert_eq!(want.len(), 64);
        for on in &orders {
            assert_eq!(hash(on, algo), want, "{on} by {algo}");
        }
    }
}

#[test]
fn every_order_has_the_hash_of_four_cpu_ranks() {
    let want = hash("cpu,cpu,cpu,cpu", "direct");
    compare(&CANONICAL, |_| want.clone());
}

#[test]
fn so_it_has_by_schedules_with_an_order_of_their_own() {
    compare(&OTHERS, |algo| hash("cpu,cpu,cpu,cpu", algo));
}

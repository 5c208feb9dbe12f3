//! The shipped gradients over every order of the ranks and every schedule: one hash.

use std::path::Path;
use std::process::Command;

const HASH: &str = "sha256";
const RANKS: [&str; 4] = ["cpu", "cpu", "vulkan:0", "opencl:0"];
const SCHEDULES: [&str; 7] =
    ["auto", "direct", "one-shot", "binomial", "halving-doubling", "star", "hierarchical"];

/// Every different order of the four ranks.
fn orders() -> Vec<String> {
    let mut orders = Vec::new();
    for vulkan in 0..4 {
        for opencl in (0..4).filter(|&o| o != vulkan) {
            let mut order = [RANKS[0]; 4];
            (order[vulkan], order[opencl]) = (RANKS[2], RANKS[3]);
            orders.push(order.join(","));
        }
    }
    orders
}

fn hash(folder: &Path, on: &str, algo: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_unisono"));
    tool.current_dir(folder).args(["reduce", "--on", on, "--algo", algo, "-o", "sum.st"]);
    tool.args((0..4).map(|rank| data.join(format!("rank{rank}.safetensors"))));
    let output = tool.args(["--verify", "--chunk", "4KiB"]).output().expect("the tool starts");
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{on} by {algo}: {err}");
    let text = String::from_utf8(out).expect("UTF-8");
    let line = text.lines().find_map(|line| line.strip_prefix(HASH)).expect("a hash");
    line.split_whitespace().next().expect("a hash").to_owned()
}

#[test]
fn the_hash_is_that_of_four_cpu_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let want = hash(folder.path(), "cpu,cpu,cpu,cpu", "direct");
    assert_eq!(want.len(), 64);
    let orders = orders();
    assert_eq!(orders.len(), 12);
    for (i, on) in orders.iter().enumerate() {
        // Every order with two schedules, so that every schedule meets several orders; all of the
        // schedules with the first and the last order.
        let all = i == 0 || i == orders.len() - 1;
        for (j, algo) in SCHEDULES.iter().enumerate() {
            if all || i % SCHEDULES.len() == j || (i + 3) % SCHEDULES.len() == j {
                assert_eq!(hash(folder.path(), on, algo), want, "{on} by {algo}");
            }
        }
    }
}

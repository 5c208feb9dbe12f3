//! The result is defined by the data, not by where the ranks are.

use crate::job::{DATA, SUM, all, files, succeed, words};

fn hash(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("sha256"));
    line.and_then(|line| line.split_whitespace().next()).expect("a hash")
}

/// The shipped gradients over 4 ranks in these processes.
fn reduce(ons: &[&str], options: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("sum.safetensors");
    let line = |on: &&str| {
        let mut line = words(&format!("reduce --on {on} {options}{} -o", files()));
        line.push(output.display().to_string());
        line
    };
    let text = succeed(&ons.iter().map(line).collect::<Vec<_>>());
    if !options.contains("any") {
        let want = std::fs::read(format!("{DATA}/sum_canonical.safetensors"));
        let want = safetensors_of(&want.expect("the shipped sum"));
        assert_eq!(safetensors_of(&std::fs::read(&output).expect("the output")), want);
    }
    hash(&text).to_owned()
}

/// Tensors by name.
fn safetensors_of(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let file = safetensors::SafeTensors::deserialize(bytes).expect("a safetensors file");
    let mut all: Vec<_> = file.iter().map(|(n, t)| (n.to_owned(), t.data().to_vec())).collect();
    all.sort();
    all
}

const ONE_EACH: [&str; 4] = ["cpu"; 4];

#[test]
fn every_schedule_chunk_and_link_gives_the_shipped_sum() {
    let schedules = "one-shot direct binomial halving-doubling star star:2 hierarchical hub";
    for schedule in schedules.split(' ') {
        for links in ["auto", "tcp", "udp"] {
            let options = format!("--algo {schedule} --links {links}");
            assert_eq!(reduce(&ONE_EACH, &options), SUM, "{options}");
        }
    }
    for options in ["--chunk 1000 --window 1", "--chunk 100000", "--bucket 0 --chunk 333"] {
        for links in ["auto", "tcp", "udp"] {
            let options = format!("{options} --links {links}");
            assert_eq!(reduce(&ONE_EACH, &options), SUM, "{options}");
        }
    }
}

#[test]
fn other_orders_give_the_same_bits_in_processes_as_in_threads() {
    for schedule in ["ring", "double-tree"] {
        let options = format!("--algo {schedule} --order any");
        let threads = reduce(&["cpu,cpu,cpu,cpu"], &options);
        assert_eq!(reduce(&ONE_EACH, &options), threads);
        assert_eq!(reduce(&ONE_EACH, &format!("{options} --links tcp")), threads);
        assert_eq!(reduce(&ONE_EACH, &format!("{options} --links udp")), threads);
    }
}

#[test]
fn processes_may_have_different_numbers_of_ranks() {
    for ons in [&["cpu", "cpu,cpu,cpu"][..], &["cpu,cpu,cpu", "cpu"], &["cpu,cpu,cpu,cpu"]] {
        for options in ["--verify", "--links tcp", "--links udp", "--links auto-udp"] {
            assert_eq!(reduce(ons, options), SUM, "{ons:?} {options}");
        }
    }
}

/// Every type, operator and collective against the scalar reference.
#[test]
fn the_benchmark_finds_no_wrong_element() {
    let collectives = "all_reduce reduce_scatter all_gather reduce broadcast all_to_all";
    for collective in collectives.split(' ') {
        for links in ["auto", "tcp", "udp"] {
            let line = format!("bench {collective} --links {links} -d all -o all -n 1 -w 0");
            // The smallest ride in their frames.
            let line = format!("{line} -b 16 -e 70000 -f 64");
            let text = succeed(&all(3, &line));
            assert!(text.contains("Out of bounds values : 0 OK"), "{text}");
        }
    }
}

#[test]
fn one_process_and_sixteen() {
    let line = "bench -n 3 -b 8 -e 1M -f 16";
    let udp = (8, " --links udp");
    let rest = [(1, ""), (16, ""), (16, " --links tcp"), (2, " --memory host")];
    for (processes, options) in rest.into_iter().chain([udp]) {
        let text = succeed(&all(processes, &format!("{line}{options}")));
        assert!(text.contains("Out of bounds values : 0 OK"), "{text}");
    }
}

#[test]
fn seven_and_eight_ranks() {
    let line = |ranks: usize| {
        let on = vec!["cpu"; ranks].join(",");
        words(&format!("bench all_reduce --on {on} -n 3 -b 8 -e 256K -f 32"))
    };
    for lines in [[line(7), line(8)], [line(8), line(7)]] {
        assert!(succeed(&lines).contains("Out of bounds values : 0 OK"));
    }
}

//! Boards in groups of several processes, and several boards in one group.

use crate::job::{Job, SUM, fail, files, lines, succeed};
use std::time::{Duration, Instant};

/// The hash of the shipped gradients' sum over these processes.
fn hash(on: &[&str], options: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("sum.safetensors").display().to_string();
    let command = format!("reduce --json {options} -o {output}{}", files());
    let said = succeed(&lines(&command, on));
    let json: serde_json::Value = serde_json::from_str(&said).expect("a report");
    json["sha256"].as_str().expect("a hash").to_owned()
}

#[test]
fn the_same_bits_wherever_the_board_is() {
    let one = [
        ["cpu,dpu:qemu-aarch64", "cpu:3"],
        ["cpu:2", "cpu:2,dpu:qemu-riscv64"],
        ["cpu:2", "dpu:qemu-riscv64:rank,cpu"],
        ["cpu,dpu:qemu-aarch64-udp", "cpu:3"],
        ["dpu:qemu-aarch64-udp:rank,cpu", "cpu:2"],
    ];
    for (at, on) in one.iter().enumerate() {
        let links = ["auto", "tcp", "udp"][at % 3];
        assert_eq!(hash(on, &format!("--links {links}")), SUM, "{on:?} {links}");
        assert_eq!(hash(on, "--links auto"), SUM, "{on:?}");
    }
    let small = ["cpu,dpu:qemu-cortex-m:rank", "cpu", "cpu"];
    assert_eq!(hash(&small, "--links tcp"), SUM, "{small:?}");
}

#[test]
fn the_same_bits_through_several_boards() {
    let two = [
        ["cpu:4,dpu:qemu-aarch64,dpu:qemu-riscv64"].as_slice(),
        &["dpu:qemu-aarch64:rank,cpu,dpu:qemu-riscv64:rank,cpu"],
        &["cpu,dpu:qemu-aarch64:rank", "dpu:qemu-riscv64:rank,cpu"],
        &["cpu:2,dpu:qemu-aarch64", "cpu:2,dpu:qemu-riscv64"],
        &["cpu,dpu:qemu-aarch64", "dpu:qemu-riscv64-udp:rank,cpu", "cpu"],
    ];
    for on in two {
        assert_eq!(hash(on, ""), SUM, "{on:?}");
    }
    assert_eq!(hash(two[2], "--links tcp"), SUM);
}

/// Every type and operator, groups one after the other, in place and out of place.
#[test]
fn a_benchmark_over_processes_finds_no_wrong_element() {
    for on in [["cpu,dpu:qemu-riscv64", "cpu"], ["cpu", "cpu,dpu:qemu-aarch64:rank"]] {
        let command = "bench -b 3000 -e 3000 -n 2 -w 1 -d all -o all";
        let said = succeed(&lines(command, &on));
        assert!(said.contains("# Out of bounds values : 0 OK"), "{on:?}: {said}");
        for collective in ["all_gather", "broadcast", "reduce", "reduce_scatter", "alltoall"] {
            let command = format!("bench {collective} -b 3000 -e 3000 -n 2 -w 1");
            let said = succeed(&lines(&command, &on));
            assert!(said.contains("# Out of bounds values : 0 OK"), "{on:?}: {said}");
        }
    }
}

#[test]
fn a_topology_with_boards_of_two_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topology.json").display().to_string();
    let on = ["cpu,dpu:qemu-riscv64", "cpu,dpu:qemu-aarch64"];
    let said = succeed(&lines(&format!("probe -o {file}"), &on));
    for device in ["dpu:qemu-riscv64 (without data)", "dpu:qemu-aarch64 (without data)"] {
        assert!(said.contains(device), "{said}");
    }
    let said = succeed(&lines(&format!("bench --topology {file} -b 1K -e 4K -f 4 -n 2"), &on));
    assert!(said.contains("# Out of bounds values : 0 OK"), "{said}");
}

/// All processes end soon, with a line that names the board.
#[test]
fn a_board_that_is_killed_is_named_by_all() {
    for links in ["auto", "tcp"] {
        let command = format!("bench -b 4M -e 4M -n 1000000 -c 0 -v --links {links}");
        let mut job = Job::start(&lines(&command, &["cpu,dpu:qemu-aarch64", "cpu"]));
        let mut machine = None;
        let owner = job.children[0].id();
        job.until("the board starts", |_| {
            machine = machine_of(owner);
            machine.is_some()
        });
        // Its calls are under way, or it is still joining.
        std::thread::sleep(Duration::from_millis(2500));
        let pid = rustix::process::Pid::from_raw(machine.expect("found")).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        let killed = Instant::now();
        for output in job.end() {
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.contains("qemu-aarch64") && text.contains("gone"), "{links}: {text}");
        }
        assert!(killed.elapsed() < Duration::from_secs(20), "{links}");
    }
}

/// The emulator that a process has started.
fn machine_of(parent: u32) -> Option<i32> {
    let parent = format!("PPid:\t{parent}");
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let is_it = |path: &std::path::PathBuf| {
        let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        read("status").lines().any(|line| line == parent) && read("cmdline").starts_with("qemu-")
    };
    let path = processes.map(|entry| entry.path()).find(is_it)?;
    path.file_name()?.to_str()?.parse().ok()
}

#[test]
fn what_cannot_be_is_said_by_all() {
    let cases = [
        (["dpu:qemu-aarch64", "cpu"], 2, "process 0 names no rank"),
        (["cpu:2,dpu:qemu-cortex-m", "cpu:2"], 2, "takes part in groups of up to 4 members"),
        (["cpu,dpu:qemu-cortex-m", "cpu,dpu:qemu-riscv64"], 2, "different numbers of calls"),
        (["cpu", "cpu,dpu:file:/none"], 1, "/none"),
    ];
    for (on, _, why) in cases {
        let outputs = Job::start(&lines("bench -b 8 -e 8", &on)).end();
        for output in outputs {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && text.contains(why), "{on:?}: {text}");
        }
    }
    let two = ["cpu,dpu:qemu-aarch64", "cpu"];
    for text in fail(&lines("bench -b 8 -e 8 --algo ring", &two), 2) {
        assert!(text.contains("ring has no place for 1 member without data"), "{text}");
    }
}

//! What goes wrong in one process ends all of them, soon, with a line that says what and where.

use crate::job::{DATA, Job, all, fail, files, words};
use std::time::{Duration, Instant};

/// A long benchmark, under way.
fn under_way(options: &str) -> Job {
    let mut job = Job::start(&all(3, &format!("bench -b 8M -e 8M -n 1000000 -w 0 {options}")));
    // Its tensors are touched: the ranks have met.
    job.until("the ranks meet", |job| {
        job.children.iter().all(|child| {
            let path = format!("/proc/{}/statm", child.id());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
            pages.is_some_and(|pages| pages * 4096 > 24 << 20)
        })
    });
    job
}

#[test]
fn a_killed_process_is_named_by_all_others() {
    for options in ["", "--links tcp", "--links udp"] {
        let mut job = under_way(options);
        job.children[1].kill().expect("it runs");
        let killed = Instant::now();
        let outputs = job.end();
        let took = killed.elapsed();
        // The time limit of a call is 30 s: it was not what ended them.
        assert!(took < Duration::from_secs(20), "{took:?}");
        for rank in [0, 2] {
            let text = String::from_utf8_lossy(&outputs[rank].stderr);
            assert_eq!(outputs[rank].status.code(), Some(1), "{text}");
            assert!(text.contains("rank 1 is gone"), "{options}: {text}");
        }
    }
}

#[test]
fn a_process_that_is_told_to_end_ends_all() {
    let tcp = ("--links tcp", "8");
    for (options, size) in [("", "8"), tcp, ("", "1M"), ("--links udp", "1M")] {
        let line = format!("bench -b {size} -e {size} -n 1000000000 -c 0 {options}");
        let job = Job::start(&all(3, &line));
        // At any time: while they meet, or in their calls.
        std::thread::sleep(Duration::from_millis(700));
        let pid = rustix::process::Pid::from_child(&job.children[1]);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let told = Instant::now();
        let outputs = job.end();
        assert!(told.elapsed() < Duration::from_secs(20), "{line}");
        let codes: Vec<_> = outputs.iter().map(|output| output.status.code()).collect();
        assert_eq!(codes, [Some(1), Some(143), Some(1)], "{line}: {outputs:?}");
    }
}

#[test]
fn a_stopped_process_ends_the_others_when_the_time_is_over() {
    for links in ["auto", "tcp", "udp"] {
        let options = &format!("--timeout 1s --links {links}");
        let job = under_way(options);
        let stopped = job.children[2].id();
        let pid = rustix::process::Pid::from_raw(stopped as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
        let Job { mut children } = job;
        let last = children.pop();
        let outputs = Job { children }.end();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");
        drop(last.map(std::process::Child::wait_with_output));
        for output in outputs {
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{text}");
            // Whom a rank waited for may itself have waited for the one that is stopped.
            assert!(text.contains("gave up after 1s without any progress"), "{options}: {text}");
        }
    }
}

#[test]
fn what_one_process_cannot_do_no_process_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("sum.safetensors");
    let with = |files: &str, options: &str| {
        let mut line = words(&format!("reduce {options} {files} -o"));
        line.push(output.display().to_string());
        line
    };
    let own = |rank: usize| format!("{DATA}/rank{rank}.safetensors");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let other = elsewhere.path().join("other.safetensors");
    let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
    std::fs::write(&other, bytes).expect("a file");
    let other = other.display().to_string();
    let cases = [
        ([with(&own(0), ""), with("/none", "")], 1, "/none"),
        ([with(&own(0), ""), with(&own(1), "--op max")], 1, "have different --op: sum and max"),
        ([with(&own(0), "--bucket 1M"), with(&own(1), "")], 1, "have different --bucket: 1048576"),
        ([with(&own(0), ""), with(&other, "")], 1, "have different tensors"),
        ([with(&own(0), ""), with(&files(), "")], 1, "4 files for 2 ranks"),
        ([with(&own(0), ""), with(&own(1), "--on opencl:77")], 1, "opencl"),
        ([with(&own(0), "--on dpu:qemu-aarch64"), with(&own(1), "")], 1, "process 0 names no rank"),
    ];
    for (lines, _, want) in cases {
        let outputs = Job::start(&lines).end();
        for output in &outputs {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success());
            assert!(text.to_lowercase().contains(want), "{lines:?}: {text}");
            assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        }
    }
    assert!(!output.exists());
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn options_that_differ_are_named_by_all() {
    let cases = [
        ("--algo direct", "--algo binomial", "have different schedules: direct and binomial"),
        ("--algo direct:1:2:1", "--algo direct", "have different schedules: direct and direct"),
        ("", "--order any", "have different orders: canonical and any"),
        ("--chunk 1000", "", "have different chunks: 1000 elements and the planner's"),
    ];
    for (first, second, why) in cases {
        let line = |options: &str| words(&format!("bench -b 1M -e 1M -n 1 {options}"));
        for text in fail(&[line(first), line(second), line(first)], 2) {
            assert!(text.contains(&format!("processes 0 and 1 {why}")), "{text}");
        }
    }
}

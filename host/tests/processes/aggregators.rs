//! Members without data on CPUs: in a process with ranks, or in one of their own.

use crate::job::{Job, SUM, fail, files, lines, succeed};

#[test]
fn sums_go_through_them_with_the_same_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("sum.safetensors").display().to_string();
    let one = ["cpu:4,cpu:aggregator"];
    let two = ["cpu:2", "cpu:2,cpu:aggregator,cpu:aggregator"];
    let cases = [
        (&one[..], "auto", "star"),
        (&one, "hub:2", "hub"),
        (&two, "auto", "star"),
        (&two, "direct:2:2:1:1:3:2", "direct"),
    ];
    let command = |algo| format!("reduce --json --algo {algo} -o {output}{}", files());
    for (on, algo, schedule) in cases {
        let said = succeed(&lines(&command(algo), on));
        let json: serde_json::Value = serde_json::from_str(&said).expect("a report");
        assert_eq!(json["sha256"], SUM, "{on:?} {algo}");
        assert_eq!(json["sections"][0]["schedule"], schedule, "{on:?} {algo}");
    }
    for refused in fail(&lines(&command("ring"), &two), 2) {
        assert!(refused.contains("ring has no place for 2 members without data"), "{refused}");
    }
}

/// Those that reduce go through it, the others past it; every type and operator.
#[test]
fn a_process_may_have_nothing_else() {
    for links in ["auto", "tcp"] {
        let on = ["cpu:2", "cpu:aggregator", "cpu"];
        let command = format!("bench -b 3000 -e 3000 -n 2 -w 1 -d all -o all --links {links}");
        let said = succeed(&lines(&command, &on));
        assert!(said.contains("# Out of bounds values : 0 OK"), "{links}: {said}");
        for kind in ["all_gather", "broadcast", "reduce", "reduce_scatter", "all_to_all"] {
            let command = format!("bench {kind} -b 8 -e 128K -f 128 -n 3 --links {links}");
            let said = succeed(&lines(&command, &on));
            assert!(said.contains("# Out of bounds values : 0 OK"), "{links}: {said}");
        }
    }
    let refused = lines(&format!("reduce -o /none{}", files()), &["cpu:4", "cpu:aggregator"]);
    for output in Job::start(&refused).end() {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("--on names no rank"), "{text}");
    }
    let refused = lines("bench -b 8 -e 8", &["cpu:aggregator", "cpu:2"]);
    for text in fail(&refused, 2) {
        assert!(text.contains("process 0 names no rank"), "{text}");
    }
}

#[test]
fn they_are_measured_and_planned_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topology.json").display().to_string();
    let on = ["cpu:2", "cpu:aggregator"];
    let said = succeed(&lines(&format!("probe -o {file} --links tcp"), &on));
    assert!(said.contains("cpu:aggregator (without data)"), "{said}");
    let command = format!("bench --topology {file} --links tcp -b 8 -e 1M -f 8 -n 2");
    let said = succeed(&lines(&command, &on));
    assert!(said.contains("# Out of bounds values : 0 OK"), "{said}");
}

//! Measured links: in threads and processes, over memory and TCP; and plans that follow from them.

use crate::job::{Job, SUM, all, fail, files, succeed, words};
use std::path::Path;

/// A topology file's links: from, to, kind.
fn links(text: &str) -> Vec<(u64, u64, String)> {
    let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|x| x > 0.0);
    for member in json["members"].as_array().expect("members") {
        assert!(
            ["fold", "send", "receive", "both"].iter().all(|key| positive(&member[key])),
            "{member}"
        );
    }
    let link = |link: &serde_json::Value| {
        assert!(positive(&link["alpha"]) && positive(&link["rate"]), "{link}");
        assert!(link["message"].as_f64().is_some_and(|x| x >= 0.0), "{link}");
        let number = |key: &str| link[key].as_u64().expect("a number");
        (number("from"), number("to"), link["kind"].as_str().expect("a kind").to_owned())
    };
    json["links"].as_array().expect("links").iter().map(link).collect()
}

/// Every ordered pair, of the kind that it has to be.
fn demand(found: &[(u64, u64, String)], ranks: u64, kind: impl Fn(u64, u64) -> &'static str) {
    let pairs = (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let want: Vec<_> = pairs.map(|(a, b)| (a, b, kind(a, b).to_owned())).collect();
    assert_eq!(found, want);
}

#[test]
fn threads_and_processes_are_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topology.json");
    let svg = folder.path().join("links.svg");
    let show = |path: &Path| path.display().to_string();
    let line = format!("probe --on cpu,cpu,cpu -o {} --svg {}", show(&file), show(&svg));
    let text = succeed(&[words(&line)]);
    assert!(text.starts_with("link, from the row's member to the column's\n"), "{text}");
    let written = std::fs::read_to_string(&file).expect("the file");
    demand(&links(&written), 3, |_, _| "thread");
    assert!(std::fs::read_to_string(&svg).expect("the picture").starts_with("<svg "));

    let text = succeed(&all(2, "probe --links tcp --json"));
    demand(&links(&text), 2, |_, _| "tcp");
    for schedule in ["direct", "ring", "one-shot", "binomial", "double-tree", "halving-doubling"] {
        let timing = format!("{{\"schedule\":\"{schedule}\",\"bytes\":");
        assert_eq!(text.matches(&timing).count(), 9, "sizes of {schedule}: {text}");
    }
    let text = succeed(&all(2, "probe --no-calls --json"));
    assert!(!text.contains("timings"), "{text}");
    // A process with two ranks and one with one: both ways of meeting in one group.
    let lines = [words("probe --json --on cpu,cpu"), words("probe --json --on cpu")];
    let text = succeed(&lines);
    demand(&links(&text), 3, |a, b| if a + b == 1 { "thread" } else { "shared-memory" });
}

/// What all members have in common.
const REST: &str =
    r#""device":"cpu","numa":null,"data":true,"fold":1e10,"send":1e10,"receive":1e10"#;

/// A topology of two hosts with a slow wire, whatever the ranks really are.
fn two_hosts(ranks: usize) -> String {
    let member = |rank: usize| {
        let host = rank * 2 / ranks;
        format!(r#"{{"host":"h{host}",{REST}}}"#)
    };
    let pairs = (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let link = |(a, b): (usize, usize)| {
        let near = a * 2 / ranks == b * 2 / ranks;
        let (kind, alpha, rate) =
            if near { ("shared-memory", 1e-6, 1e10) } else { ("tcp", 5e-5, 1e8) };
        format!(r#"{{"from":{a},"to":{b},"kind":"{kind}","alpha":{alpha:e},"rate":{rate:e}}}"#)
    };
    let members: Vec<_> = (0..ranks).map(member).collect();
    let links: Vec<_> = pairs.map(link).collect();
    let (members, links) = (members.join(","), links.join(","));
    format!(r#"{{"unisono":"topology","version":1,"members":[{members}],"links":[{links}]}}"#)
}

#[test]
fn plans_follow_the_topology_and_results_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topology.json");
    std::fs::write(&file, two_hosts(4)).expect("written");
    let output = folder.path().join("sum.safetensors");
    let (file, output) = (file.display(), output.display());
    let reduce = |on: &str, options: &str| {
        words(&format!("reduce --on {on} {options} --json{} -o {output}", files()))
    };
    let checked = |lines: &[Vec<String>]| {
        let json: serde_json::Value = serde_json::from_str(&succeed(lines)).expect("JSON");
        assert_eq!(json["sha256"], SUM);
        json["sections"][0]["schedule"].as_str().expect("a schedule").to_owned()
    };
    let with = format!("--topology {file}");
    // Without it they are direct, which goes over the wire more often.
    assert_eq!(checked(&[reduce("cpu:4", "")]), "direct");
    let chosen = checked(&[reduce("cpu:4", &with)]);
    assert!(["hierarchical", "halving-doubling", "binomial"].contains(&&*chosen), "{chosen}");
    // One process knows it for all, and the links differ from what it says.
    for links in ["", " --links tcp"] {
        let mut lines = vec![reduce("cpu", links); 4];
        lines[0] = reduce("cpu", &format!("{with}{links}"));
        let chosen = checked(&lines);
        assert!(["hierarchical", "halving-doubling", "binomial"].contains(&&*chosen), "{chosen}");
    }
    let by_hand = "--algo all-reduce:-1K=one-shot;1K-=binomial/64K";
    assert_eq!(checked(&[reduce("cpu:4", &format!("{with} {by_hand}"))]), "binomial");
    assert_eq!(checked(&vec![reduce("cpu", by_hand); 4]), "binomial");
}

#[test]
fn processes_with_other_plans_never_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other, three] = ["own", "other", "three"].map(|name| folder.path().join(name));
    std::fs::write(&own, two_hosts(2)).expect("written");
    std::fs::write(&other, two_hosts(2).replace("5e-5", "6e-5")).expect("written");
    std::fs::write(&three, two_hosts(3)).expect("written");
    let bench = |options: String| words(&format!("bench -b 8 -e 8 {options}"));
    let with = |path: &Path| bench(format!("--topology {}", path.display()));
    for text in fail(&[with(&own), with(&other)], 2) {
        assert!(text.contains("process 1 has another topology than process 0"), "{text}");
    }
    for text in fail(&[with(&three), with(&three)], 2) {
        assert!(text.contains("the topology is about 3 ranks, the group has 2"), "{text}");
    }
    let pick = |rules: &str| bench(format!("--algo all-reduce:{rules}"));
    for text in fail(&[pick("-=ring"), pick("-=binomial")], 2) {
        assert!(text.contains("process 1 has another selection of schedules"), "{text}");
    }
    std::fs::write(&own, "{").expect("written");
    for text in fail(&[with(&own), with(&own)], 2) {
        assert!(text.contains("no topology: EOF while parsing"), "{text}");
    }
}

#[test]
fn the_environment_chooses_schedules() {
    let run = |text: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["bench", "-t", "2", "-b", "8", "-e", "8", "-n", "1"]);
        command.env("UNISONO_PLAN", text).output().expect("it runs")
    };
    assert!(run("all-reduce:-=halving-doubling").status.success());
    let output = run("all-reduce:-8K=one-shot;8K-=halvin");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    let want = "UNISONO_PLAN, character 29, at \"halvin\": no such schedule; there are auto, ring";
    assert!(text.contains(want), "{text}");
}

/// Of the same number of ranks, so it is only said: results do not depend on it.
#[test]
fn a_topology_of_other_devices_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("topology.json");
    let path = file.display().to_string();
    succeed(&[words(&format!("probe --on cpu,cpu -o {path}"))]);
    let text = std::fs::read_to_string(&file).expect("the file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let device = json["members"][1]["device"].as_str().expect("a name").to_owned();
    let line = words(&format!("bench -b 8 -e 8 -n 1 --on cpu,cpu --topology {path}"));
    let said = |line: &[String]| {
        let ended = Job::start(&[line.to_vec()]).end().remove(0);
        assert!(ended.status.success());
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    assert_eq!(said(&line), "");
    let other = text.replacen(&device, "OTHER", 2).replacen("OTHER", &device, 1);
    std::fs::write(&file, other).expect("the file");
    let warned = said(&line);
    assert!(warned.contains(&format!("member 1 is {device}, and the topology")), "{warned}");
}

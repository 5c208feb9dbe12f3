//! A link gets slower while a job runs: new plans make up for some of it, and change no bit.

use super::{HOSTS, Hosts, alone, on, unisono};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use unisono::{Call, DType, Error, Group, Kind, Max, Member, Replan, Sum, Topology, World};

const NAME: &str = "replan::a_link_that_gets_slower_is_planned_around";
/// Says which rank a process of this test is; another variable has the folder that all share.
const RANK: &str = "UNISONO_TEST_RANK";
const FOLDER: &str = "UNISONO_TEST_FOLDER";
/// Mbit/s of the link that changes, before and after.
const RATES: [u32; 2] = [200, 40];
/// Elements of a tensor: 1 MiB, a quarter of a second over the slow link.
const COUNT: usize = 1 << 18;
/// A hang guard.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a file that another process makes.
fn wait_for(file: &Path) {
    let end = Instant::now() + PATIENCE;
    while !file.exists() {
        assert!(Instant::now() < end, "{} is not there", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Limits the link of a host both ways.
fn limit(host: usize, mbit: u32) {
    let change = |dev: &str| {
        let words = format!("qdisc change dev {dev} root tbf rate {mbit}mbit burst 64kb");
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        words.extend(["latency", "100ms"].map(str::to_owned));
        words
    };
    let mut bridge = Command::new("tc");
    bridge.args(change(&format!("br-peer{host}")));
    let mut inside = on(host, "tc");
    inside.args(change("e0"));
    for mut command in [bridge, inside] {
        assert!(command.status().expect("`tc` runs").success(), "{command:?}");
    }
}

/// Sums one after the other: the median of their times in seconds, and a hash of their bits, which
/// all have to be the same.
fn calls(member: &mut Member, times: usize) -> Result<(f64, u64), Error> {
    let value = |at: usize| 1.01_f32.powi((at % 997) as i32 + 3 * i32::from(member.rank()));
    let first: Vec<f32> = (0..COUNT).map(value).collect();
    let mut taken = Vec::new();
    let mut hashes = Vec::new();
    for _ in 0..times {
        let mut tensor = first.clone();
        member.barrier()?;
        let started = Instant::now();
        member.all_reduce(&mut tensor, Sum)?;
        taken.push(started.elapsed().as_secs_f64());
        let add =
            |hash: u64, x: &f32| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3);
        hashes.push(tensor.iter().fold(0xcbf2_9ce4_8422_2325, add));
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:x?}");
    // A call is over when the last rank has it.
    member.all_reduce(&mut taken[..], Max)?;
    taken.sort_by(f64::total_cmp);
    Ok((taken[times / 2], hashes[0]))
}

/// One rank; the first one says what it has seen.
fn rank(rank: usize) {
    let folder = std::env::var(FOLDER).expect("a folder");
    let file = |name: &str| Path::new(&folder).join(name);
    let world = World::builder().rank(rank).size(HOSTS).root("10.99.0.1:29614").near(false);
    let world = world.secret("a secret that only tests know").build().expect("a world");
    let text = std::fs::read_to_string(file("topology.json")).expect("a topology");
    let topology = Topology::parse(&text).expect("a topology");
    let mut group = Group::builder().world(&world).topology(topology).build().expect("a group");
    let run = group.run(|member| {
        let (equal, bits) = calls(member, 30)?;
        let steady = member.replan(Replan::default())?;
        assert!(steady.measured.is_none(), "nothing has changed: drift {}", steady.drift);
        if rank == 0 {
            std::fs::write(file("settled"), "").expect("written");
        }
        wait_for(&file("slower"));
        let (before, same) = calls(member, 20)?;
        let started = Instant::now();
        let done = member.replan(Replan::default())?;
        let took = started.elapsed();
        assert!(done.drift > 1.3 && done.changed, "drift {}, {done:?}", done.drift);
        let (after, still) = calls(member, 20)?;
        assert_eq!([same, still], [bits; 2], "bits depend on the plan");
        let sent = |topology: &Topology| topology.members[HOSTS - 1].send / 1e6;
        let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, COUNT as u64) };
        let schedule = member.plan(&call)?.schedule.name();
        let found = done.measured.as_deref().map_or(0.0, sent);
        let sent = sent(&done.before);
        let about = format!(
            "by {schedule}; drift {:.2}, {took:.1?}; rank 3 sends {sent:.1}, then {found:.1} MB/s",
            done.drift
        );
        Ok::<_, Error>((equal, before, after, about, bits))
    });
    let (equal, before, after, about, bits) = run.expect("no error").remove(0);
    println!(
        "rank {rank}: {:.0} ms, slower {:.0} ms, re-planned {:.0} ms {about}; bits {bits:x}",
        equal * 1e3,
        before * 1e3,
        after * 1e3
    );
    // A third of it is all that there is to gain: the slow rank's own data take the rest.
    assert!(after * 1.15 < before, "{after} after {before}");
    assert!(before > equal * 1.3, "the link was slower");
}

#[test]
fn a_link_that_gets_slower_is_planned_around() {
    if let Ok(own) = std::env::var(RANK) {
        return rank(own.parse().expect("a number"));
    }
    let _alone = alone();
    let _hosts = Hosts::with(RATES[0]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    unisono(&format!("probe --links tcp -o {}", file("topology.json").display()));
    let program = std::env::current_exe().expect("this program");
    let start = |rank: usize| {
        let mut command = on(rank, &program.display().to_string());
        command.args(["--exact", NAME, "--nocapture"]);
        command.env(RANK, rank.to_string()).env(FOLDER, folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a rank starts")
    };
    let mut ranks: Vec<_> = (0..HOSTS).map(start).collect();
    let end = Instant::now() + PATIENCE;
    // A rank that fails before says why.
    while !file("settled").exists() && Instant::now() < end {
        let ended = |rank: &mut std::process::Child| matches!(rank.try_wait(), Ok(Some(_)));
        if ranks.iter_mut().any(ended) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    limit(HOSTS - 1, RATES[1]);
    std::fs::write(file("slower"), "").expect("written");
    let ended: Vec<Output> =
        ranks.into_iter().map(|rank| rank.wait_with_output().expect("its output")).collect();
    let said = |output: &Output| {
        let text = [&output.stdout[..], &output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let all: Vec<String> = ended.iter().map(said).collect();
    assert!(ended.iter().all(|output| output.status.success()), "{all:#?}");
    let line =
        |text: &String| text.lines().find(|line| line.starts_with("rank ")).map(str::to_owned);
    let lines: Vec<_> = all.iter().map(|text| line(text).expect("what it has seen")).collect();
    println!("{}", lines.join("\n"));
    let bits = |line: &String| line.rsplit(' ').next().map(str::to_owned);
    assert!(lines.iter().all(|line| bits(line) == bits(&lines[0])), "{lines:#?}");
}

/// `unisono bench --replan` says when it has planned anew, and what has changed.
#[test]
fn the_benchmark_says_what_has_changed() {
    let _alone = alone();
    let _hosts = Hosts::with(RATES[0]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (topology, json) = (path("topology.json"), path("results.json"));
    unisono(&format!("probe --links tcp --no-calls -o {topology}"));
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            // At any time after the first calls: some 20 s are to come.
            std::thread::sleep(Duration::from_secs(4));
            limit(HOSTS - 1, RATES[1]);
        });
        let size = "-b 1M -e 1M -n 5 --samples 16";
        let plans = format!("--topology {topology} --replan 20 -J {json}");
        unisono(&format!("bench --links tcp {size} {plans}"))
    });
    assert!(said.contains("Out of bounds values : 0 OK"), "{said}");
    let made = said.lines().find(|line| line.starts_with("# Re-planned after "));
    let made = made.unwrap_or_else(|| panic!("no new plan: {said}"));
    assert!(made.contains(" before, now "), "{made}");
    let rates = said.lines().find(|line| line.starts_with("#   member 3 sends "));
    assert!(rates.is_some_and(|line| line.contains(" MB/s (before 2")), "{said}");
    let text = std::fs::read_to_string(json).expect("the results");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let first = &json["replans"][0];
    assert!(first["changed"] == true && first["drift"].as_f64() > Some(1.3), "{first}");
    assert_ne!(first["schedule"], first["before"]);
}

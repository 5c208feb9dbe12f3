//! Hosts, as far as the network is concerned, whose packets get lost, or whose links get slower.
//! Takes root, `ip`, `tc` and `nft`; `cargo xtask test --only net` brings them.
#![cfg(target_os = "linux")]

mod replan;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");
/// Hash of the canonical sum of the shipped gradients.
const SUM: &str = "f451e8b1803300b6496b8170de51a7e4af53f4e2f2f2266ced7beefe4c47741a";
const HOSTS: usize = 4;

/// The script has one set of names.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hosts on one bridge; gone with this object.
struct Hosts;

fn script(args: &[&str]) {
    let done = Command::new(Path::new(PACKAGE).join("peers/netns.sh")).args(args).status();
    assert!(done.expect("the script starts").success(), "network namespaces take root and `ip`");
}

impl Hosts {
    fn make() -> Self {
        Self::with(1000)
    }

    /// With links of this rate, in Mbit/s.
    fn with(rate: u32) -> Self {
        script(&[rate.to_string().as_str(); HOSTS]);
        Self
    }

    /// From now on so many thousandths of these packets get lost on their way into each host.
    fn lose(&self, protocol: &str, per_mille: u32) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules");
        let rules = format!(
            "table inet loss {{\n chain input {{\n  type filter hook input priority 0;\n  \
             meta l4proto {protocol} numgen random mod 1000 < {per_mille} counter drop\n }}\n}}\n"
        );
        std::fs::write(&file, rules).expect("a file");
        for host in 0..HOSTS {
            // Packets as they are on a wire: a drop is one of them, not a run.
            let ip = format!("-n peer{host} link set e0 gso_max_size 1500 gso_max_segs 1");
            let done = Command::new("ip").args(ip.split(' ')).status().expect("`ip` runs");
            assert!(done.success());
            let done = on(host, "nft").arg("-f").arg(&file).status().expect("`ip` runs");
            assert!(done.success(), "`nft` loads its rules");
        }
    }

    /// Packets that got lost at a host.
    fn lost(host: usize) -> u64 {
        let rules = on(host, "nft").args(["list", "ruleset"]).output().expect("`ip` runs");
        let text = String::from_utf8_lossy(&rules.stdout).into_owned();
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).and_then(|count| count.parse().ok()).expect("a counter")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        script(&["clean"]);
    }
}

/// A program on a host.
fn on(host: usize, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("peer{host}"), program]);
    command
}

/// The command on every host; what the first has said.
fn unisono(line: &str) -> String {
    let start = |rank: usize| {
        let mut command = on(rank, env!("CARGO_BIN_EXE_unisono"));
        command.args(line.split_whitespace());
        command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", HOSTS.to_string());
        command.env("UNISONO_MASTER", "10.99.0.1:29613").env("UNISONO_JOB", "lossy");
        command.env("UNISONO_SECRET", "a secret that only tests know");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a rank starts")
    };
    let children: Vec<Child> = (0..HOSTS).map(start).collect();
    let ended: Vec<_> =
        children.into_iter().map(|c| c.wait_with_output().expect("its output")).collect();
    for output in &ended {
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&ended[0].stdout).into_owned()
}

/// The shipped gradients, and small calls in a row, whose elements are all compared.
fn right_bits(links: &str, protocol: &str, losses: &[u32]) {
    let _alone = alone();
    for &loss in losses {
        let hosts = Hosts::make();
        hosts.lose(protocol, loss);
        let folder = tempfile::tempdir().expect("a folder");
        let files: Vec<String> = (0..HOSTS)
            .map(|rank| format!("{PACKAGE}/data/digits-mlp/rank{rank}.safetensors"))
            .collect();
        let output = folder.path().join("sum.safetensors");
        let line = format!("reduce --links {links} {} -o {}", files.join(" "), output.display());
        let said = unisono(&line);
        assert!(said.contains(SUM), "{loss} of 1000 lost: {said}");
        let said = unisono(&format!("bench --links {links} -b 64 -e 64K -f 32 -n 10"));
        assert!(said.contains("Out of bounds values : 0 OK"), "{loss} of 1000 lost: {said}");
        assert!(Hosts::lost(0) > 0, "nothing got lost");
    }
}

#[test]
fn tcp_gives_the_same_bits_with_1_and_10_percent_lost() {
    right_bits("tcp", "tcp", &[10, 100]);
}

#[test]
fn udp_gives_the_same_bits_with_1_10_and_30_percent_lost() {
    right_bits("udp", "udp", &[10, 100, 300]);
}

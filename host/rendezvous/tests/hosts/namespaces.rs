//! Two hosts, as far as the network is concerned.

use crate::SECRET;
use crate::ranks::{Running, rank, start};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Two namespaces with a cable between them; gone with this object.
pub struct Cable([String; 2]);

impl Cable {
    /// Lays it, which takes root and `ip`.
    pub fn lay(number: u8) -> Self {
        let name = |end: u8| format!("uni{}n{number}e{end}", std::process::id() % 100_000);
        let names = [name(0), name(1)];
        assert!(ip(&format!("netns add {}", names[0])), "network namespaces take root and `ip`");
        let cable = Self(names);
        let [a, b] = &cable.0;
        assert!(ip(&format!("netns add {b}")));
        assert!(ip(&format!("-n {a} link add wire type veth peer name wire netns {b}")));
        for (end, name) in cable.0.iter().enumerate() {
            assert!(ip(&format!("-n {name} link set lo up")));
            assert!(ip(&format!("-n {name} addr add 10.99.0.{}/24 dev wire", end + 1)));
            assert!(ip(&format!("-n {name} addr add fd99::{}/64 dev wire nodad", end + 1)));
            // The same on both hosts, as container engines have it.
            assert!(ip(&format!("-n {name} link add docker0 type veth peer name docker1")));
            assert!(ip(&format!("-n {name} addr add 172.17.0.1/16 dev docker0")));
            assert!(ip(&format!("-n {name} link set docker0 up")));
            assert!(ip(&format!("-n {name} link set docker1 up")));
            // A VPN's: looks like any other, and leads back to oneself.
            assert!(ip(&format!("-n {name} link add vpn type veth peer name vpn1")));
            assert!(ip(&format!("-n {name} addr add 10.98.0.1/24 dev vpn")));
            assert!(ip(&format!("-n {name} link set vpn up")));
            assert!(ip(&format!("-n {name} link set vpn1 up")));
            assert!(ip(&format!("-n {name} link set wire up")));
        }
        while !cable.is_up() {
            thread::sleep(Duration::from_millis(20));
        }
        cable
    }

    /// Of both ends.
    pub fn names(&self) -> &[String; 2] {
        &self.0
    }

    fn is_up(&self) -> bool {
        let state = Command::new("ip").args(["-n", &self.0[0], "link", "show", "wire"]).output();
        String::from_utf8_lossy(&state.expect("ip runs").stdout).contains("state UP")
    }

    /// Runs ranks, the even ones on one side.
    fn run(&self, size: usize, master: &str, change: impl Fn(&mut Command)) -> Vec<Running> {
        let make = |r: usize| {
            let plain = rank(r, size, master, "wire");
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.0[r % 2]]).arg(plain.get_program());
            command.args(["--seconds", "20"]);
            for (name, value) in plain.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command.env("UNISONO_SECRET", SECRET);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            change(&mut command);
            start(&mut command)
        };
        (0..size).map(make).collect()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(args: &str) -> bool {
    let ip = Command::new("ip").args(args.split(' ')).stderr(Stdio::null()).status();
    ip.is_ok_and(|status| status.success())
}

#[test]
fn ranks_of_two_hosts_find_the_wire_between_them() {
    let cable = Cable::lay(1);
    for (master, theirs) in [
        ("10.99.0.1:29611", ["10.99.0.1", "10.99.0.2"]),
        ("[fd99::1]:29611", ["fd99::1", "fd99::2"]),
    ] {
        let ended: Vec<_> = cable.run(4, master, |_| {}).into_iter().map(Running::end).collect();
        for (me, ended) in ended.iter().enumerate() {
            let there = format!("far*1@{}", theirs[1 - me % 2]);
            let mut routes: Vec<&str> =
                (0..4).map(|p| if p % 2 == me % 2 { "near" } else { there.as_str() }).collect();
            routes[me] = "self";
            assert_eq!(ended.said(), format!("rank {me} of 4 by unisono: {}", routes.join(" ")));
        }
    }
}

#[test]
fn an_interface_may_be_chosen_and_a_useless_one_is_said_by_all() {
    let cable = Cable::lay(2);
    let with = |interface: &'static str| {
        let running = cable.run(2, "10.99.0.1:29611", move |c| {
            c.env("UNISONO_INTERFACE", interface);
        });
        running.into_iter().map(Running::end).collect::<Vec<_>>()
    };
    let ended = with("fd99::/64");
    assert!(ended[0].said().ends_with("self far*1@fd99::2"), "{ended:?}");
    assert!(ended[1].said().ends_with("far*1@fd99::1 self"), "{ended:?}");
    // Both are 10.98.0.1 there: each reaches itself only.
    for ended in with("vpn") {
        let error = ended.error();
        assert!(error.starts_with("rank 1 cannot reach rank 0: 10.98.0.1:"), "{error}");
    }
    let ended = with("eth7");
    assert!(ended[0].error().contains("interface=eth7: no address of this host"), "{ended:?}");
}

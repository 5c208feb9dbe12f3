//! What is known of a group's links and devices, as a file that people can read and write.
//!
//! ```json
//! {
//!   "unisono": "topology",
//!   "version": 1,
//!   "members": [
//!     {"host":"a","device":"cpu","numa":0,"data":true,"fold":1e10,"send":2e10,"receive":2e10},
//!     {"host":"a","device":"cpu","numa":0,"data":true,"fold":1e10,"send":2e10,"receive":2e10}
//!   ],
//!   "links": [
//!     {"from":0,"to":1,"kind":"thread","alpha":4e-7,"rate":1e10},
//!     {"from":1,"to":0,"kind":"thread","alpha":4e-7,"rate":1e10}
//!   ]
//! }
//! ```
//!
//! Members may say `both`, links `message` (see [`Member::both`], [`Link::message`]), and there may
//! be `timings` of whole calls ([`Timing`]).
//!
//! Times are in seconds, rates in bytes per second. Ranks come first, in order, then members
//! without data; there is one link for each member to each other one.

mod system;
mod timing;

pub use system::{Numa, numa_nodes, numa_of_pci};
pub(crate) use timing::Factors;
pub use timing::{Timing, label};

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use unisono_core::schedule::MEMBERS_MAX;

/// The version of the format that this library writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// Longest file that is read: what the largest group needs, and as much again.
pub const FILE_MAX: usize = 8 << 20;

/// A time that no link needs, and a rate that none has.
const ALPHA_MAX: f64 = 3600.0;
const RATE_MAX: f64 = 1e18;

/// Characters of a name that are kept.
const NAME_MAX: usize = 200;

/// A group's links and devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// `topology`: what this file is.
    #[serde(rename = "unisono")]
    what: What,
    /// [`VERSION`].
    version: u32,
    /// Ranks in order, then aggregators.
    pub members: Vec<Member>,
    /// Every ordered pair.
    pub links: Vec<Link>,
    /// All-reduces by whole schedules, if they were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timings: Vec<Timing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Topology,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Name of its host.
    pub host: String,
    /// Name of its device.
    pub device: String,
    /// The NUMA node that it is on, if that is known.
    pub numa: Option<u16>,
    /// Has it data, or does it fold for others only?
    pub data: bool,
    /// Bytes per second of received data that it folds.
    pub fold: f64,
    /// Bytes per second to all others together.
    pub send: f64,
    /// Bytes per second from all others together.
    pub receive: f64,
    /// Bytes per second that it sends and receives at the same time, both counted; `None`: what it
    /// sends and what it receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<f64>,
}

impl Member {
    /// One of which nothing has been measured yet: its rates are the least that there are.
    #[must_use]
    pub fn named(host: &str, device: &str, numa: Option<u16>, data: bool) -> Self {
        let (host, device) = (host.to_owned(), device.to_owned());
        Self { host, device, numa, data, fold: 1.0, send: 1.0, receive: 1.0, both: None }
    }
}

/// The way from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Sender.
    pub from: u16,
    /// Receiver.
    pub to: u16,
    /// What it is.
    pub kind: LinkKind,
    /// Seconds until an empty message has arrived.
    pub alpha: f64,
    /// Bytes per second of one message after the other.
    pub rate: f64,
    /// Seconds that each message, however short, takes of its sender's and its receiver's time;
    /// `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<f64>,
}

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Memory of one process.
    Thread,
    /// Memory that processes share.
    SharedMemory,
    /// TCP.
    Tcp,
    /// UDP, made reliable.
    Udp,
    /// A card's memory, as over PCIe.
    Window,
    /// A serial line.
    Serial,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Thread, Self::SharedMemory, Self::Tcp, Self::Udp, Self::Window, Self::Serial];

    /// Does the receiver read the sender's memory in place?
    #[must_use]
    pub const fn lends(self) -> bool {
        matches!(self, Self::Thread | Self::SharedMemory)
    }

    /// A few letters, for a matrix.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Thread => "THR",
            Self::SharedMemory => "SHM",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Window => "WIN",
            Self::Serial => "SER",
        }
    }

    /// What the letters mean.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Thread => "memory of one process",
            Self::SharedMemory => "memory shared by processes of a host",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Window => "a card's memory (PCIe BAR)",
            Self::Serial => "a serial line",
        }
    }
}

/// Why a topology is refused: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TopologyError(String);

fn refuse<T>(text: impl Into<String>) -> Result<T, TopologyError> {
    Err(TopologyError(text.into()))
}

impl Topology {
    /// Checks what was measured or read.
    ///
    /// # Errors
    /// [`TopologyError`] names the first entry that makes no sense.
    pub fn new(members: Vec<Member>, links: Vec<Link>) -> Result<Self, TopologyError> {
        let (what, timings) = (What::Topology, Vec::new());
        Self { what, version: VERSION, members, links, timings }.checked()
    }

    /// The same with these timings of whole calls.
    ///
    /// # Errors
    /// [`TopologyError`] names the first timing that makes no sense.
    pub fn with_timings(self, timings: Vec<Timing>) -> Result<Self, TopologyError> {
        Self { timings, ..self }.checked()
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// [`TopologyError`], with line and column if it is not JSON of this form.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        if text.len() > FILE_MAX {
            let (long, most) = (text.len(), FILE_MAX);
            return refuse(format!("a topology of {long} bytes; the longest has {most}"));
        }
        // The version first: of another one nothing else is known.
        #[derive(Deserialize)]
        struct Head {
            unisono: Option<String>,
            version: Option<u64>,
        }
        let bad = |error: serde_json::Error| TopologyError(format!("no topology: {error}"));
        let head: Head = serde_json::from_str(text).map_err(bad)?;
        match (head.unisono.as_deref(), head.version) {
            (Some("topology"), Some(version)) if version == u64::from(VERSION) => {}
            (Some("topology"), Some(version)) => {
                return refuse(format!(
                    "topology of version {version}; this program reads version {VERSION}: measure \
                     again with `unisono probe`"
                ));
            }
            _ => return refuse("no topology: it must say \"unisono\": \"topology\", \"version\""),
        }
        serde_json::from_str::<Self>(text).map_err(bad)?.checked()
    }

    /// The text of a file, one member, link or timing a line.
    #[must_use]
    pub fn text(&self) -> String {
        fn lines<T: Serialize>(all: &[T]) -> String {
            let line = |value| serde_json::to_string(value).unwrap_or_default();
            all.iter().map(line).collect::<Vec<_>>().join(",\n    ")
        }
        let (members, links) = (lines(&self.members), lines(&self.links));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{{\n  \"unisono\": \"topology\",\n  \"version\": {VERSION},\n  \"members\": [\n    \
             {members}\n  ],\n  \"links\": [\n    {links}\n  ]"
        );
        if !self.timings.is_empty() {
            let _ = write!(text, ",\n  \"timings\": [\n    {}\n  ]", lines(&self.timings));
        }
        text += "\n}\n";
        text
    }

    /// 64 bits that two topologies share only if they are the same (FNV-1a of the text).
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let text = self.text();
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Members with data.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.members.iter().filter(|m| m.data).count() as u16
    }

    /// Members without.
    #[must_use]
    pub fn aggregators(&self) -> u16 {
        self.members.len() as u16 - self.ranks()
    }

    /// The hosts' names, in the order of their first members.
    #[must_use]
    pub fn hosts(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for member in &self.members {
            if !names.contains(&member.host.as_str()) {
                names.push(&member.host);
            }
        }
        names
    }

    /// The way between two members.
    #[must_use]
    pub fn link(&self, from: u16, to: u16) -> Option<&Link> {
        self.links.iter().find(|link| link.from == from && link.to == to)
    }

    fn checked(mut self) -> Result<Self, TopologyError> {
        let count = self.members.len();
        if count == 0 || count > MEMBERS_MAX {
            return refuse(format!("{count} members; a group has 1 to {MEMBERS_MAX}"));
        }
        for (at, member) in self.members.iter_mut().enumerate() {
            let rates = [("fold", member.fold), ("send", member.send), ("receive", member.receive)];
            for (name, value) in rates.into_iter().chain(member.both.map(|both| ("both", both))) {
                rate(value).or_else(|why| refuse(format!("member {at}: {name} {why}")))?;
            }
            for name in [&mut member.host, &mut member.device] {
                if name.chars().any(char::is_control) || name.chars().count() > NAME_MAX {
                    return refuse(format!(
                        "member {at}: a name with control characters or too long"
                    ));
                }
            }
        }
        if !self.members.iter().map(|m| m.data).is_sorted_by(|a, b| a >= b) || self.ranks() == 0 {
            return refuse("members with data come first, and there is at least one");
        }
        let mut seen = vec![false; count * count];
        for link in &self.links {
            let Link { from, to, .. } = *link;
            let (a, b) = (usize::from(from), usize::from(to));
            if a >= count || b >= count || a == b {
                return refuse(format!("a link from {from} to {to}, with {count} members"));
            }
            if std::mem::replace(&mut seen[a * count + b], true) {
                return refuse(format!("two links from {from} to {to}"));
            }
            let times = [("alpha", link.alpha), ("message", link.message.unwrap_or(0.0))];
            let wrong = |time: &&(_, f64)| !(0.0..=ALPHA_MAX).contains(&time.1);
            if let Some((name, _)) = times.iter().find(wrong) {
                return refuse(format!("link {from} to {to}: {name} must be 0 to {ALPHA_MAX} s"));
            }
            rate(link.rate).or_else(|why| refuse(format!("link {from} to {to}: rate {why}")))?;
        }
        let missing = (0..count * count).find(|at| at / count != at % count && !seen[*at]);
        if let Some(at) = missing {
            return refuse(format!("no link from {} to {}", at / count, at % count));
        }
        self.links.sort_by_key(|link| (link.from, link.to));
        timing::check(&mut self.timings)?;
        Ok(self)
    }
}

/// Is it a rate?
fn rate(value: f64) -> Result<(), String> {
    if (1.0..=RATE_MAX).contains(&value) {
        return Ok(());
    }
    Err(format!("must be 1 to {RATE_MAX:e} bytes per second"))
}

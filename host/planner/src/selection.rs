//! Schedules that somebody chooses by hand: `all-reduce:-8K=one-shot;8K-1M=ring;1M-=direct`.
//!
//! ```text
//! selection  = collective { " " collective }
//! collective = name ":" rule { ";" rule }        name: all-reduce, broadcast, …
//! rule       = [ size ] "-" [ size ] "=" pick    from the first size on, below the second one
//! pick       = "auto" | schedule [ ":" number ] [ "/" size ]      the last size: of a chunk
//! size       = digits [ "K" | "M" | "G" ]
//! ```
//!
//! Rules are in the order of their sizes and do not overlap; what none covers is left to the
//! planner.

use crate::size;
use std::str::FromStr;
use unisono_core::schedule::{Aggregators, Nodes, Owners};
use unisono_core::{Kind, Schedule};

/// A schedule before the number of ranks is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which; `None`: the planner's choice.
    name: Option<&'static str>,
    /// Aggregators or nodes.
    number: Option<u16>,
    /// Bytes of a chunk.
    pub chunk: Option<u64>,
}

/// Schedules, and whether a number may follow.
const NAMES: [(&str, bool); 9] = [
    ("ring", false),
    ("direct", false),
    ("one-shot", false),
    ("binomial", false),
    ("double-tree", false),
    ("halving-doubling", false),
    ("star", true),
    ("hierarchical", true),
    ("hub", true),
];

/// For sizes in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Of which collective.
    pub kind: Kind,
    /// The smallest size in bytes, ...
    pub from: u64,
    /// ... and the one that is too large.
    pub until: u64,
    /// The schedule.
    pub pick: Pick,
}

/// Schedules by collective and size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    rules: Vec<Rule>,
}

/// What is wrong with a selection, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {at}, at {near:?}: {what}")]
pub struct SelectionError {
    /// Which character, counted from 1.
    pub at: usize,
    /// The piece that it is in.
    pub near: String,
    /// What is wrong with it.
    pub what: String,
}

impl FromStr for Pick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, chunk) = match text.split_once('/') {
            Some((name, chunk)) => (name, Some(size::bytes(chunk)?)),
            None => (text, None),
        };
        if chunk == Some(0) {
            return Err("a chunk of 0 bytes".into());
        }
        let (name, number) = match name.split_once(':') {
            Some((name, number)) => {
                let number = number.parse::<u16>().ok().filter(|&n| n > 0);
                (name, Some(number.ok_or_else(|| format!("{text}: no number after the colon"))?))
            }
            None => (name, None),
        };
        if name == "auto" && number.is_none() && chunk.is_none() {
            return Ok(Self { name: None, number, chunk });
        }
        match NAMES.iter().find(|(known, _)| *known == name) {
            Some((name, numbered)) if *numbered || number.is_none() => {
                Ok(Self { name: Some(name), number, chunk })
            }
            Some(_) => Err(format!("{name} takes no number")),
            None => Err(format!("no such schedule; there are {}", Self::names())),
        }
    }
}

impl Pick {
    /// The planner's choice.
    pub const AUTO: Self = Self { name: None, number: None, chunk: None };

    /// All names, for messages.
    #[must_use]
    pub fn names() -> String {
        let name = |(name, numbered): &(&str, bool)| match (*name, numbered) {
            ("star", _) => "star[:AGGREGATORS]".to_owned(),
            (name, true) => format!("{name}[:NODES]"),
            (name, false) => name.to_owned(),
        };
        let all: Vec<_> = NAMES.iter().map(name).collect();
        format!("auto, {}", all.join(", "))
    }

    /// The schedule for so many ranks; `None`: the planner chooses.
    ///
    /// # Errors
    /// Why there is none.
    pub fn schedule(self, ranks: u16) -> Result<Option<Schedule>, String> {
        let Some(name) = self.name else { return Ok(None) };
        let number = |default: u16| self.number.unwrap_or(default);
        let (schedule, what) = match name {
            "ring" => (Some(Schedule::Ring), String::new()),
            "one-shot" => (Some(Schedule::OneShot), String::new()),
            "binomial" => (Some(Schedule::Binomial), String::new()),
            "double-tree" => (Some(Schedule::DoubleTree), String::new()),
            "halving-doubling" => (Some(Schedule::HalvingDoubling), String::new()),
            "star" => {
                let count = number(1);
                let what = format!("a star with {count} aggregators");
                (Aggregators::new(count).map(Schedule::Star), what)
            }
            "hierarchical" | "hub" => {
                let (count, article) = (number(2), if name == "hub" { "hub" } else { "hierarchy" });
                let wrap = if name == "hub" { Schedule::Hub } else { Schedule::Hierarchical };
                (nodes_of(ranks, count).map(wrap), format!("a {article} of {count} nodes"))
            }
            _ => (Owners::equal(ranks).map(Schedule::Direct), name.to_owned()),
        };
        let refused = || format!("{what} over {ranks} ranks is not possible");
        schedule.map(Some).ok_or_else(refused)
    }
}

/// Exactly so many nodes of consecutive ranks, as equal as can be.
#[must_use]
pub fn nodes_of(ranks: u16, nodes: u16) -> Option<Nodes> {
    if nodes == 0 || nodes > ranks {
        return None;
    }
    let node = |rank: u16| (u32::from(rank) * u32::from(nodes) / u32::from(ranks)) as u16;
    Nodes::new(&(0..ranks).map(node).collect::<Vec<_>>())
}

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let mut rules: Vec<Rule> = Vec::new();
        for part in text.split_ascii_whitespace() {
            let (name, list) = part.split_once(':').ok_or_else(|| {
                wrong(text, part, "a collective and a colon come first, as in all-reduce:".into())
            })?;
            let kind = kind(name).ok_or_else(|| wrong(text, name, no_collective()))?;
            if rules.iter().any(|rule| rule.kind == kind) {
                return Err(wrong(text, name, "it is there twice".into()));
            }
            let mut least = 0;
            for piece in list.split(';') {
                let rule = rule(text, piece, kind, least)?;
                least = rule.until;
                rules.push(rule);
            }
        }
        if rules.is_empty() {
            return Err(wrong(text, text, "it is empty".into()));
        }
        Ok(Self { rules })
    }
}

/// `8K-1M=ring`, from a size on that is not below `least`.
fn rule(text: &str, piece: &str, kind: Kind, least: u64) -> Result<Rule, SelectionError> {
    let form = || wrong(text, piece, "a rule looks like 8K-1M=ring".into());
    let (range, pick) = piece.split_once('=').ok_or_else(form)?;
    let (from, until) = range.split_once('-').ok_or_else(form)?;
    let size = |part: &str, missing: u64| match part {
        "" => Ok(missing),
        part => size::bytes(part).map_err(|what| wrong(text, part, what)),
    };
    let (start, end) = (size(from, 0)?, size(until, u64::MAX)?);
    if start >= end {
        return Err(wrong(text, range, "no size is in this range".into()));
    }
    if start < least {
        return Err(wrong(text, range, "it begins before the rule before it has ended".into()));
    }
    let pick: Pick = pick.parse().map_err(|what| wrong(text, pick, what))?;
    Ok(Rule { kind, from: start, until: end, pick })
}

/// `part` is a piece of `text`.
fn wrong(text: &str, part: &str, what: String) -> SelectionError {
    // Where it begins: both are one string.
    let offset = part.as_ptr() as usize - text.as_ptr() as usize;
    let at = text[..offset].chars().count() + 1;
    let near = part.chars().take(40).collect();
    SelectionError { at, near, what }
}

/// `all-reduce`, `allreduce` and `all_reduce` are the same.
fn kind(name: &str) -> Option<Kind> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Barrier);
    kinds.into_iter().find(|kind| plain(kind.name()) == plain(name))
}

fn no_collective() -> String {
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Barrier);
    let names: Vec<_> = kinds.map(Kind::name).collect();
    format!("no such collective; there are {}", names.join(", "))
}

impl Selection {
    /// The environment variable that has one.
    pub const VARIABLE: &str = "UNISONO_PLAN";

    /// The pick for a call; `None`: nothing was said.
    #[must_use]
    pub fn find(&self, kind: Kind, bytes: u64) -> Option<Pick> {
        let fits = |rule: &&Rule| rule.kind == kind && (rule.from..rule.until).contains(&bytes);
        self.rules.iter().find(fits).map(|rule| rule.pick)
    }

    /// All rules.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut last = None;
        for Rule { kind, from, until, pick } in &self.rules {
            let lead = match last.replace(*kind) {
                None => format!("{kind}:"),
                Some(before) if before == *kind => ";".to_owned(),
                Some(_) => format!(" {kind}:"),
            };
            let end = |size: u64, none: u64| match size {
                size if size == none => String::new(),
                size => size::shown(size),
            };
            write!(f, "{lead}{}-{}={pick}", end(*from, 0), end(*until, u64::MAX))?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Pick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name.unwrap_or("auto"))?;
        self.number.map_or(Ok(()), |number| write!(f, ":{number}"))?;
        self.chunk.map_or(Ok(()), |chunk| write!(f, "/{}", size::shown(chunk)))
    }
}

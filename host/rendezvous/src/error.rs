//! What can go wrong, each with where and what to do.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a process has no group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable of the environment has a value that makes no sense.
    #[error("{name}={value}: {why}")]
    Variable {
        /// Its name.
        name: String,
        /// Its value, or `(not set)`.
        value: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The launcher does not say where rank 0 can be met.
    #[error(
        "{launcher} does not say where rank 0 can be met: set UNISONO_MASTER=HOST:PORT on all ranks"
    )]
    NoMaster {
        /// Who started us.
        launcher: &'static str,
    },
    /// No secret, or none that could protect anything.
    #[error("{0}")]
    Secret(String),
    /// Rank 0 was not to be met in time.
    #[error("rank 0 has not come: nobody answers at {at} within {} s ({last})", .waited.as_secs())]
    NoHub {
        /// Where it was looked for.
        at: String,
        /// For how long.
        waited: Duration,
        /// What the last try said.
        last: String,
    },
    /// Rank 0 does not want this process.
    #[error("rank 0 at {at} refuses rank {rank}: {why}")]
    Refused {
        /// Where it was met.
        at: String,
        /// Which rank we are.
        rank: usize,
        /// Its reason.
        why: String,
    },
    /// etcd, by which ranks meet, gives this process no place, or no more.
    #[error("{at}: {why}")]
    Etcd {
        /// Where it is.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// The group has failed; all its ranks get the same.
    #[error("{0}")]
    Group(Failure),
    /// Somebody has asked this process to stop.
    #[error("interrupted while waiting for the group")]
    Interrupted,
    /// More than what may be sent around.
    #[error("a blob of {bytes} B, at most {max} are allowed")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// Limit.
        max: usize,
    },
    /// The operating system refuses.
    #[error("{doing}: {source}")]
    Io {
        /// What was to be done.
        doing: String,
        /// What the system says.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Why a group has failed; every rank that has come gets the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// Ranks that have not come in time.
    Missing {
        /// Which.
        ranks: Vec<u32>,
        /// Ranks of the group.
        size: u32,
        /// For how long they were waited for, in milliseconds.
        waited_ms: u64,
        /// Where rank 0 waits.
        at: String,
        /// Who was refused there meanwhile, and why.
        refused: Vec<String>,
    },
    /// Ranks that have come, but not to this round.
    Late {
        /// Which.
        ranks: Vec<u32>,
        /// The round, counted from 0.
        round: u32,
        /// For how long they were waited for, in milliseconds.
        waited_ms: u64,
    },
    /// A rank has ended, or its connection has.
    Gone {
        /// Which.
        rank: u32,
    },
    /// Ranks do not mean the same group.
    Disagree {
        /// What they say.
        what: String,
    },
    /// A rank has died before the group was complete, or does not hear of etcd any more.
    Lapsed {
        /// Which.
        rank: u32,
        /// Who was refused at rank 0 meanwhile, and why.
        refused: Vec<String>,
    },
    /// Ranks that have lost their places begin nothing new.
    Fenced {
        /// Which.
        ranks: Vec<u32>,
        /// What the first of them says.
        why: String,
    },
    /// Ranks cannot reach each other.
    Unreachable {
        /// For each such pair: who, whom, and what was tried.
        pairs: Vec<String>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { ranks, size, waited_ms, at, refused } => {
                let (who, have) = named(ranks);
                write!(f, "{who} of {size} {have} not come within {}", seconds(*waited_ms))?;
                write!(f, "; rank 0 waits at {at}")?;
                and_refused(f, refused)
            }
            Self::Lapsed { rank, refused } => {
                write!(f, "rank {rank} has gone before all had come: its lease at etcd has ended")?;
                and_refused(f, refused)
            }
            Self::Fenced { ranks, why } => {
                let (who, have) = named(ranks);
                write!(f, "{who} {have} no lease any more, so nothing new can begin: {why}")
            }
            Self::Late { ranks, round, waited_ms } => {
                let (who, have) = named(ranks);
                write!(f, "{who} {have} not come to round {round} of the rendezvous")?;
                write!(f, " within {}", seconds(*waited_ms))
            }
            Self::Gone { rank } => {
                write!(f, "rank {rank} has gone: its process has ended, or its connection has")
            }
            Self::Disagree { what } => f.write_str(what),
            Self::Unreachable { pairs } => f.write_str(&pairs.join("; ")),
        }
    }
}

fn and_refused(f: &mut fmt::Formatter<'_>, refused: &[String]) -> fmt::Result {
    match refused {
        [] => Ok(()),
        refused => write!(f, "; refused there: {}", refused.join("; ")),
    }
}

/// `ranks 2, 3` and `have`; of many only the first ones.
fn named(ranks: &[u32]) -> (String, &'static str) {
    const SHOWN: usize = 16;
    let list: Vec<_> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let list = list.join(", ");
    match ranks.len() {
        1 => (format!("rank {list}"), "has"),
        n if n > SHOWN => (format!("ranks {list} and {} more", n - SHOWN), "have"),
        _ => (format!("ranks {list}"), "have"),
    }
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}

/// A word from somebody else, fit for a line of text.
pub(crate) fn tame(text: &str) -> String {
    text.chars().take(400).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_named() {
        let missing = |ranks: &[u32], refused: &[&str]| {
            Failure::Missing {
                ranks: ranks.to_vec(),
                size: 4,
                waited_ms: 30_000,
                at: "10.0.0.1:29611".into(),
                refused: refused.iter().map(|&r| r.into()).collect(),
            }
            .to_string()
        };
        assert_eq!(
            missing(&[2, 3], &[]),
            "ranks 2, 3 of 4 have not come within 30 s; rank 0 waits at 10.0.0.1:29611"
        );
        assert_eq!(
            missing(&[1], &["x: no"]),
            "rank 1 of 4 has not come within 30 s; rank 0 waits at 10.0.0.1:29611; \
             refused there: x: no"
        );
        let many: Vec<u32> = (0..20).collect();
        assert!(named(&many).0.ends_with("14, 15 and 4 more"));
    }

    #[test]
    fn words_of_strangers_are_tamed() {
        assert_eq!(tame("a\n\u{1b}[31mb"), "a\u{fffd}\u{fffd}[31mb");
        assert_eq!(tame(&"x".repeat(1000)).len(), 400);
    }
}

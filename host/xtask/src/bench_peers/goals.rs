//! How fast unisono has to be, as ratios within one run.

use super::rows::{Medians, Transport};
use super::table::{number, size};
use std::fmt::Write as _;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What unisono is held against.
#[derive(Clone, Copy, Debug)]
enum Rival {
    Best(Transport),
    Limit,
}

/// At every size in a range, the rival's time over ours is at least a ratio.
#[derive(Debug)]
struct Goal {
    ours: &'static str,
    rival: Rival,
    /// `None`: at any number.
    ranks: Option<u16>,
    from: u64,
    ratio: f64,
}

const fn goal(ours: &'static str, rival: Rival, ranks: Option<u16>, from: u64, ratio: f64) -> Goal {
    Goal { ours, rival, ranks, from, ratio }
}

const SHM: Rival = Rival::Best(Transport::Shm);
const TCP: Rival = Rival::Best(Transport::Tcp);
const GOALS: [Goal; 8] = [
    goal("unisono-shm", SHM, None, 0, 1.0),
    goal("unisono-shm", SHM, Some(2), 32 * KIB, 2.0),
    goal("unisono-shm", SHM, Some(4), 32 * KIB, 1.5),
    goal("unisono-shm", SHM, Some(2), 64 * MIB, 2.4),
    goal("unisono-shm", SHM, Some(4), 64 * MIB, 5.0),
    goal("unisono-shm", Rival::Limit, None, 256 * KIB, 0.85),
    goal("unisono-vec", SHM, None, 0, 1.0),
    goal("unisono-tcp", TCP, None, 0, 1.0),
];

/// One goal at one number of ranks.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// Which sizes reach it and which do not, with the ratio and the rival.
    Measured { reached: Vec<String>, missed: Vec<String> },
    /// Ours or every rival is missing.
    Unknown,
}

impl Goal {
    fn about(&self, ranks: u16) -> String {
        let rival = match self.rival {
            Rival::Best(Transport::Shm) => "the best peer over shared memory",
            Rival::Best(Transport::Tcp) => "the best peer over TCP",
            Rival::Limit => "limit-fold",
        };
        let from = match self.from {
            0 => "at every size".to_owned(),
            from => format!("from {}", size(from)),
        };
        format!("N = {ranks}, {}: {} x {rival} {from}", self.ours, self.ratio)
    }

    fn verdict(&self, medians: &Medians, ranks: u16) -> Verdict {
        let (mut reached, mut missed) = (Vec::new(), Vec::new());
        for bytes in medians.sizes(ranks).into_iter().filter(|&bytes| bytes >= self.from) {
            let rival = match self.rival {
                Rival::Best(transport) => medians.best(transport, ranks, bytes),
                Rival::Limit => medians.us("limit-fold", ranks, bytes).map(|us| ("", us)),
            };
            let Some((name, theirs)) = rival else { continue };
            let Some(ours) = medians.us(self.ours, ranks, bytes) else { continue };
            let ratio = theirs / ours;
            let figure = format!("{} {} {name}", size(bytes), number(ratio));
            let list = if ratio >= self.ratio { &mut reached } else { &mut missed };
            list.push(figure.trim_end().to_owned());
        }
        if reached.is_empty() && missed.is_empty() {
            return Verdict::Unknown;
        }
        Verdict::Measured { reached, missed }
    }
}

/// All goals at all numbers of ranks, as Markdown.
pub fn list(medians: &Medians) -> String {
    let mut text = "\nGoals; ratios are the other's time over unisono's:\n\n".to_owned();
    for ranks in medians.ranks() {
        for goal in GOALS.iter().filter(|goal| goal.ranks.is_none_or(|only| only == ranks)) {
            let about = goal.about(ranks);
            let _ = match goal.verdict(medians, ranks) {
                Verdict::Unknown => writeln!(text, "- not measured: {about}"),
                Verdict::Measured { reached, missed } if missed.is_empty() => {
                    writeln!(text, "- **held**: {about} ({})", reached.join(", "))
                }
                Verdict::Measured { missed, .. } => {
                    writeln!(text, "- **NOT held**: {about} (missed: {})", missed.join(", "))
                }
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::row;
    use super::*;

    #[test]
    fn goals_are_held_missed_or_not_measured() {
        let rows = [
            row(1, "limit-fold", 2, 32 * KIB, 1.0),
            row(1, "limit-fold", 2, MIB, 17.0),
            row(1, "unisono-shm", 2, 32 * KIB, 3.0),
            row(1, "unisono-shm", 2, MIB, 20.0),
            row(1, "a-shm", 2, 32 * KIB, 6.0),
            row(1, "a-shm", 2, MIB, 39.0),
            row(1, "b-shm", 2, MIB, 50.0),
        ];
        let text = list(&Medians::of(&rows));
        let line = |start: &str| text.lines().find(|l| l.contains(start)).unwrap_or("none");
        assert_eq!(
            line("shm: 1 x the best"),
            "- **held**: N = 2, unisono-shm: 1 x the best peer over shared memory at every size \
             (32 KiB 2.00 a-shm, 1 MiB 1.95 a-shm)"
        );
        assert_eq!(
            line("shm: 2 x the best"),
            "- **NOT held**: N = 2, unisono-shm: 2 x the best peer over shared memory from 32 KiB \
             (missed: 1 MiB 1.95 a-shm)"
        );
        // 0.33 at 32 KiB does not count: the limit counts from 256 KiB on.
        assert!(line("limit-fold").starts_with("- **held**"), "{text}");
        assert!(line("2.4 x").starts_with("- not measured"), "{text}");
        assert!(line("unisono-tcp").starts_with("- not measured"), "{text}");
        assert_eq!(line("1.5 x"), "none");
    }

    #[test]
    fn every_goal_names_a_program_that_runs() {
        let script = include_str!("../../../peers/run.sh");
        for goal in &GOALS {
            assert!(script.contains(&format!("each {} ", goal.ours)), "{goal:?}");
        }
    }
}

//! Rows of CSV, and medians over the rounds.

use anyhow::{Context, Error, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// First line of a file.
const HEADER: &str = "round,busy_percent,peer,ranks,bytes,median_us,min_us,algbw_GBps,busbw_GBps";

/// One size of one program in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// From 1.
    pub round: usize,
    /// What others used of the CPUs just before.
    pub busy: u32,
    /// Name of the program and its way to send.
    pub peer: String,
    /// Processes.
    pub ranks: u16,
    /// Size of a tensor.
    pub bytes: u64,
    /// Median, in the slowest process.
    pub us: f64,
    /// The rest of the row, as it came.
    rest: String,
}

impl FromStr for Row {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.trim().splitn(7, ',').collect();
        let [round, busy, peer, ranks, bytes, us, rest] = fields[..] else {
            anyhow::bail!("`{line}` has not the columns {HEADER}");
        };
        let number = |what: &str, text: &str| -> Result<u64> {
            text.parse().with_context(|| format!("`{line}`: {what} is no number"))
        };
        let us: f64 = us.parse().with_context(|| format!("`{line}`: no time"))?;
        ensure!(us.is_finite() && us >= 0.0, "`{line}`: no time");
        Ok(Self {
            round: number("round", round)? as usize,
            busy: u32::try_from(number("busy", busy)?)?,
            peer: peer.to_owned(),
            ranks: u16::try_from(number("ranks", ranks)?)?,
            bytes: number("bytes", bytes)?,
            us,
            rest: rest.to_owned(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, busy, peer, ranks, bytes, us, rest } = self;
        write!(f, "{round},{busy},{peer},{ranks},{bytes},{us:.2},{rest}")
    }
}

/// A file of them.
pub fn csv(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| format!("{row}\n"));
    std::iter::once(format!("{HEADER}\n")).chain(lines).collect()
}

/// How a program sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over memory that processes share.
    Shm,
    /// Over TCP on the loopback interface.
    Tcp,
}

impl Transport {
    /// Of another library's row; `None` for ours and for the limit.
    pub fn of_peer(name: &str) -> Option<Self> {
        match name.rsplit_once('-')? {
            ("unisono", _) => None,
            (_, "shm") => Some(Self::Shm),
            (_, "tcp") => Some(Self::Tcp),
            _ => None,
        }
    }
}

/// Medians over the rounds.
pub struct Medians {
    us: BTreeMap<(u16, u64, String), f64>,
    /// In the order of running.
    names: Vec<String>,
}

impl Medians {
    /// Of these rows.
    pub fn of(rows: &[Row]) -> Self {
        let mut times: BTreeMap<(u16, u64, String), Vec<f64>> = BTreeMap::new();
        let mut names: Vec<String> = Vec::new();
        for row in rows {
            times.entry((row.ranks, row.bytes, row.peer.clone())).or_default().push(row.us);
            if !names.contains(&row.peer) {
                names.push(row.peer.clone());
            }
        }
        let us = times.into_iter().map(|(key, times)| (key, median(times))).collect();
        Self { us, names }
    }

    /// Numbers of ranks, ascending.
    pub fn ranks(&self) -> Vec<u16> {
        self.us.keys().map(|k| k.0).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Sizes at this number of ranks, ascending.
    pub fn sizes(&self, ranks: u16) -> Vec<u64> {
        let sizes = self.us.keys().filter(|k| k.0 == ranks).map(|k| k.1);
        sizes.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Programs that have a row at this number of ranks.
    pub fn names(&self, ranks: u16) -> Vec<&str> {
        let has = |name: &&String| self.us.keys().any(|k| k.0 == ranks && k.2 == **name);
        self.names.iter().filter(has).map(String::as_str).collect()
    }

    /// Microseconds of a call.
    pub fn us(&self, name: &str, ranks: u16, bytes: u64) -> Option<f64> {
        self.us.get(&(ranks, bytes, name.to_owned())).copied()
    }

    /// The fastest other library that sends in this way.
    pub fn best(&self, transport: Transport, ranks: u16, bytes: u64) -> Option<(&str, f64)> {
        let peers = self.names.iter().filter(|n| Transport::of_peer(n) == Some(transport));
        let times = peers.filter_map(|n| Some((n.as_str(), self.us(n, ranks, bytes)?)));
        times.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    if times.len() % 2 == 1 {
        times[middle]
    } else {
        f64::midpoint(times[middle - 1], times[middle])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn row(round: usize, peer: &str, ranks: u16, bytes: u64, us: f64) -> Row {
        format!("{round},3,{peer},{ranks},{bytes},{us},0.10,1.000,1.000").parse().unwrap()
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let line = "2,17,mpich-shm,4,1024,0.64,0.60,1.600,2.400";
        let row: Row = line.parse().unwrap();
        assert_eq!((row.round, row.busy, row.ranks, row.bytes, row.us), (2, 17, 4, 1024, 0.64));
        assert_eq!(csv(&[row]), format!("{HEADER}\n{line}\n"));
    }

    #[test]
    fn broken_rows_are_named() {
        for (line, why) in [
            ("1,2,x,2", "has not the columns"),
            ("1,2,x,two,8,0.1,0.1,1,1", "ranks is no number"),
            ("1,2,x,2,8,fast,0.1,1,1", "no time"),
            ("1,2,x,2,8,NaN,0.1,1,1", "no time"),
        ] {
            let error = format!("{:#}", line.parse::<Row>().unwrap_err());
            assert!(error.contains(why) && error.contains(line), "{error}");
        }
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        let times = [9.0, 1.0, 2.0];
        let mut rows: Vec<Row> =
            times.iter().zip(1..).map(|(&us, round)| row(round, "a-shm", 2, 8, us)).collect();
        assert_eq!(Medians::of(&rows).us("a-shm", 2, 8), Some(2.0));
        rows.push(row(4, "a-shm", 2, 8, 3.0));
        let medians = Medians::of(&rows);
        assert_eq!(medians.us("a-shm", 2, 8), Some(2.5));
        assert_eq!(medians.us("a-shm", 4, 8), None);
        assert_eq!((medians.ranks(), medians.sizes(2)), (vec![2], vec![8]));
    }

    #[test]
    fn the_best_peer_is_of_the_same_transport_and_not_us() {
        let rows = [
            row(1, "limit-fold", 2, 8, 0.1),
            row(1, "unisono-shm", 2, 8, 0.2),
            row(1, "slow-shm", 2, 8, 9.0),
            row(1, "fast-shm", 2, 8, 0.4),
            row(1, "fast-tcp", 2, 8, 0.3),
        ];
        let medians = Medians::of(&rows);
        assert_eq!(medians.best(Transport::Shm, 2, 8), Some(("fast-shm", 0.4)));
        assert_eq!(medians.best(Transport::Tcp, 2, 8), Some(("fast-tcp", 0.3)));
        assert_eq!(medians.best(Transport::Tcp, 2, 1024), None);
    }
}

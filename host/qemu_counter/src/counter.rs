//! The rounds of each core.

use crate::counts::{CORES, Counts, Way};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A core's round that is not over: instructions by bucket, and which buckets have any.
#[derive(Debug)]
struct Round {
    pending: Vec<u64>,
    touched: Vec<usize>,
}

/// Counts for all cores.
#[derive(Debug)]
pub struct Counter {
    counts: Counts,
    /// Buckets of the two ends of a round.
    worked: usize,
    rested: usize,
    rounds: Vec<Mutex<Round>>,
}

impl Counter {
    /// A counter by the plugin's arguments.
    ///
    /// # Errors
    /// Says what is missing, or why the file cannot be made.
    pub fn new(args: &[(&str, &str)]) -> Result<Self, String> {
        let text = |key| {
            let found = args.iter().find(|(k, _)| *k == key);
            found.map(|(_, value)| *value).ok_or_else(|| format!("no {key}= is given"))
        };
        let number = |key| text(key)?.parse().map_err(|_| format!("{key}= is no number"));
        let out = text("out")?;
        let counts = Counts::create(Path::new(out), number("begin")?, number("end")?);
        let counts = counts.map_err(|error| format!("{out}: {error}"))?;
        let (worked, rested) = (counts.bucket(number("worked")?), counts.bucket(number("rested")?));
        let buckets = counts.buckets();
        let round = |_| {
            let (pending, touched) = (vec![0; buckets], Vec::with_capacity(buckets));
            Mutex::new(Round { pending, touched })
        };
        Ok(Self { counts, worked, rested, rounds: (0..CORES).map(round).collect() })
    }

    /// The bucket of a block.
    pub fn bucket(&self, address: u64) -> usize {
        self.counts.bucket(address)
    }

    /// A core executes a block.
    pub fn executed(&self, core: usize, bucket: usize, instructions: u64) {
        let Some(round) = self.rounds.get(core) else { return };
        let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
        let Round { pending, touched } = &mut *round;
        self.counts.add(core, Way::All, bucket, instructions);
        if pending[bucket] == 0 {
            touched.push(bucket);
        }
        pending[bucket] += instructions;
        let worked = bucket == self.worked;
        if !worked && bucket != self.rested {
            return;
        }
        for bucket in touched.drain(..) {
            let count = std::mem::take(&mut pending[bucket]);
            if worked {
                self.counts.add(core, Way::Worked, bucket, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounds_with_work_count_as_such() {
        let path = std::env::temp_dir().join(format!("unisono-counter-{}", std::process::id()));
        let out = path.to_str().unwrap();
        let args =
            [("out", out), ("begin", "64"), ("end", "72"), ("worked", "68"), ("rested", "70")];
        let counter = Counter::new(&args).unwrap();
        let run = |core, address, instructions| {
            counter.executed(core, counter.bucket(address), instructions);
        };
        run(0, 64, 5);
        run(0, 70, 1);
        run(0, 64, 3);
        run(1, 66, 9);
        run(0, 64, 3);
        run(0, 4000, 4);
        run(0, 68, 1);
        run(0, 66, 2);
        let bytes = std::fs::read(&path).unwrap();
        let numbers: Vec<u64> =
            bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
        let planes: Vec<&[u64]> = numbers.chunks_exact(5).collect();
        assert_eq!(planes[..2], [[11, 2, 1, 1, 4], [6, 0, 1, 0, 4]]);
        assert_eq!(planes[2..], [[0, 9, 0, 0, 0], [0; 5]]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |args: &[_]| Counter::new(args).unwrap_err();
        assert_eq!(error(&[]), "no out= is given");
        assert_eq!(error(&[("out", "/"), ("begin", "x")]), "begin= is no number");
        let all = [("out", "/nowhere/x"), ("begin", "8"), ("end", "16")];
        assert!(error(&all).starts_with("/nowhere/x: "));
    }
}

//! How tensors in ordinary memory reach other processes of the machine: copied to shared memory by
//! their own process, or fetched by the others (cross-memory attach).
//!
//! Which is faster depends on the size, on how many processes there are, on the pages and on the
//! machine, so the first calls of each size try both, and the others go the way that was faster.
//! Each member decides for itself: peers see by each frame where its payload is. Members make the
//! same calls, so they try the same way at the same time.

use std::time::Duration;

/// Below this many bytes a call of the system for each chunk costs more than the copy that it
/// saves, on every machine that we know.
const LEAST: u64 = 512 << 10;

/// Calls in a row that try the same way. The first one finds other memory in the caches, or pages
/// that nobody has touched yet, and does not count.
const RUN: u8 = 4;

/// Runs for each size, of both ways in turn.
const RUNS: u8 = 4;

/// Two runs are enough if copying takes less than this fraction of the other way's time.
const CLEARLY: f64 = 0.85;

/// Fetching has to take less than this fraction: less is noise, where ranks share cores.
const GAIN: f64 = 0.93;

/// The way of one call's ordinary memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through slots in shared memory.
    Bounce,
    /// The peers fetch it.
    Attach,
}

/// What has been tried of one size.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    /// Calls so far.
    calls: u8,
    /// The shortest time each way.
    best: [Option<Duration>; 2],
}

/// What a member knows about the ways of its ordinary memory.
#[derive(Debug)]
pub(super) struct Ways {
    /// By the size's power of two; nothing where no peer can fetch.
    sizes: Option<Box<[Tried; 64]>>,
}

impl Ways {
    /// `attached`: the other processes of this machine may fetch from this one's memory.
    pub fn new(attached: bool) -> Self {
        Self { sizes: attached.then(|| Box::new([Tried::default(); 64])) }
    }

    /// The way of a call with tensors of so many bytes, and whether it is still being tried.
    pub fn way(&self, bytes: u64) -> (Way, bool) {
        let Some(sizes) = self.sizes.as_ref().filter(|_| bytes >= LEAST) else {
            return (Way::Bounce, false);
        };
        let tried = &sizes[class(bytes)];
        let faster = |a: Way, b: Way, by| {
            let [a, b] = [a, b].map(|way| tried.best[way as usize]);
            a.zip(b).is_some_and(|(a, b): (Duration, Duration)| a < b.mul_f64(by))
        };
        let [attach, bounce] = [Way::Attach, Way::Bounce];
        let clear = faster(bounce, attach, CLEARLY);
        if tried.calls < if clear { 2 * RUN } else { RUNS * RUN } {
            return (if (tried.calls / RUN).is_multiple_of(2) { attach } else { bounce }, true);
        }
        (if faster(attach, bounce, GAIN) { attach } else { bounce }, false)
    }

    /// Notes how long a call took that was still tried.
    pub fn took(&mut self, bytes: u64, way: Way, time: Duration) {
        let Some(sizes) = &mut self.sizes else { return };
        let tried = &mut sizes[class(bytes)];
        let best = &mut tried.best[way as usize];
        if !tried.calls.is_multiple_of(RUN) {
            *best = Some(best.map_or(time, |best| best.min(time)));
        }
        tried.calls = tried.calls.saturating_add(1);
    }
}

/// The size's power of two.
const fn class(bytes: u64) -> usize {
    63 - (bytes | 1).leading_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries a size until it is known; `attach` and `bounce` are the times, by try.
    fn tried(ways: &mut Ways, bytes: u64, [bounce, attach]: [&[u64]; 2]) -> Way {
        let mut tries = [0; 2];
        while let (way, true) = ways.way(bytes) {
            let times = if way == Way::Bounce { bounce } else { attach };
            let time = times[tries[way as usize] % times.len()];
            tries[way as usize] += 1;
            ways.took(bytes, way, Duration::from_micros(time));
        }
        let runs = tries.map(|calls| calls / usize::from(RUN));
        assert!(runs == [1; 2] || runs == [2; 2], "both are tried: {tries:?}");
        ways.way(bytes).0
    }

    #[test]
    fn the_faster_way_is_kept_for_each_size() {
        let mut ways = Ways::new(true);
        // Some slow calls of either say nothing.
        assert_eq!(tried(&mut ways, 1 << 20, [&[900, 100, 100], &[900, 800, 80]]), Way::Attach);
        assert_eq!(tried(&mut ways, 8 << 20, [&[900, 800, 800], &[9000, 950, 950]]), Way::Bounce);
        // The first call of a run does not count.
        let first = [&[7000, 700, 700, 700][..], &[10, 750, 750, 750]];
        assert_eq!(tried(&mut ways, 4 << 20, first), Way::Bounce);
        assert_eq!(tried(&mut ways, 64 << 20, [&[1000], &[990]]), Way::Bounce, "no gain");
        // A size nearby goes the same way, untried.
        assert_eq!(ways.way((1 << 20) + 4096), (Way::Attach, false));
    }

    #[test]
    fn small_tensors_and_memory_out_of_reach_are_copied() {
        assert_eq!(Ways::new(true).way(LEAST - 1), (Way::Bounce, false));
        assert_eq!(Ways::new(false).way(1 << 30), (Way::Bounce, false));
        assert_eq!(Ways::new(true).way(LEAST), (Way::Attach, true));
        assert_eq!((class(0), class(1), class(u64::MAX)), (0, 0, 63));
    }
}

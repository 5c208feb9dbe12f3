//! What whole calls took: what a model of links and folds leaves out.

use super::{TopologyError, refuse};
use serde::{Deserialize, Serialize};
use unisono_core::Schedule;
use unisono_core::schedule::Owners;

/// Most of them in a file.
const MOST: usize = 4096;

/// The longest time, and the shortest.
const TIMES: std::ops::RangeInclusive<f64> = 1e-9..=86_400.0;

/// One schedule's all-reduce of one size, as it was forecast and as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// What the schedule is called ([`label`]).
    pub schedule: String,
    /// Bytes of the tensor.
    pub bytes: u64,
    /// Seconds by the links and folds alone.
    pub forecast: f64,
    /// Seconds that it took.
    pub time: f64,
}

/// What a schedule is called among those that are compared: direct ones with shares of their own
/// are another one than the one with equal shares.
#[must_use]
pub fn label(schedule: &Schedule) -> &'static str {
    match schedule {
        Schedule::Direct(owners) if Some(owners) != Owners::equal(owners.ranks()).as_ref() => {
            "direct, best shares"
        }
        _ => schedule.name(),
    }
}

/// Refuses what makes no sense, and puts the rest in order.
pub(super) fn check(timings: &mut [Timing]) -> Result<(), TopologyError> {
    if timings.len() > MOST {
        return refuse(format!("{} timings; at most {MOST} are read", timings.len()));
    }
    for (at, Timing { schedule, forecast, time, .. }) in timings.iter().enumerate() {
        if schedule.chars().any(char::is_control) || schedule.len() > super::NAME_MAX {
            return refuse(format!("timing {at}: a name with control characters or too long"));
        }
        if !TIMES.contains(forecast) || !TIMES.contains(time) {
            let (least, most) = (TIMES.start(), TIMES.end());
            return refuse(format!("timing {at}: times must be {least:e} to {most} s"));
        }
    }
    timings.sort_by(|a, b| (&a.schedule, a.bytes).cmp(&(&b.schedule, b.bytes)));
    let same =
        |pair: &&[Timing]| (&pair[0].schedule, pair[0].bytes) == (&pair[1].schedule, pair[1].bytes);
    if let Some([twice, _]) = timings.windows(2).find(same) {
        return refuse(format!("two timings of {} at {} bytes", twice.schedule, twice.bytes));
    }
    Ok(())
}

/// How much longer calls take than by links and folds alone, by schedule and size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Factors(Vec<Timing>);

impl Factors {
    /// What follows from timings in order.
    pub fn new(timings: &[Timing]) -> Self {
        Self(timings.to_vec())
    }

    /// Of a size: in proportion between two that were measured, of the nearest one outside of
    /// them, and 1 for a schedule that was not.
    pub fn of(&self, schedule: &Schedule, bytes: u64) -> f64 {
        let name = label(schedule);
        let mut below: Option<&Timing> = None;
        for above in self.0.iter().filter(|timing| timing.schedule == name) {
            let factor = |timing: &Timing| timing.time / timing.forecast;
            match below {
                _ if above.bytes < bytes => {}
                None => return factor(above),
                Some(below) => {
                    let part = (bytes - below.bytes) as f64 / (above.bytes - below.bytes) as f64;
                    return factor(below) + (factor(above) - factor(below)) * part;
                }
            }
            below = Some(above);
        }
        below.map_or(1.0, |last| last.time / last.forecast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(schedule: &str, bytes: u64, factor: f64) -> Timing {
        Timing { schedule: schedule.into(), bytes, forecast: 0.5, time: 0.5 * factor }
    }

    #[test]
    fn factors_go_from_size_to_size() {
        let mut timings =
            [timing("ring", 1000, 3.0), timing("ring", 200, 1.0), timing("binomial", 8, 0.25)];
        check(&mut timings).expect("in order");
        let factors = Factors::new(&timings);
        let of = |bytes| factors.of(&Schedule::Ring, bytes);
        assert_eq!([of(0), of(200), of(600), of(1000), of(1 << 40)], [1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(factors.of(&Schedule::Binomial, 4096), 0.25);
        assert_eq!(factors.of(&Schedule::OneShot, 4096), 1.0);
    }

    #[test]
    fn shares_of_their_own_have_a_name_of_their_own() {
        let equal = Owners::equal(3).map(Schedule::Direct).expect("three ranks");
        let best = Owners::fractions(3, &[3.0, 1.0, 1.0]).map(Schedule::Direct).expect("shares");
        assert_eq!([label(&equal), label(&best)], ["direct", "direct, best shares"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let text = |mut timings: Vec<Timing>| check(&mut timings).map_err(|e| e.to_string()).err();
        assert_eq!(text(vec![timing("ring", 8, 2.0)]), None);
        let twice = vec![timing("ring", 8, 2.0), timing("ring", 8, 1.0)];
        assert_eq!(text(twice).as_deref(), Some("two timings of ring at 8 bytes"));
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let text = text(vec![timing("ring", 8, factor)]).expect("refused");
            assert!(text.starts_with("timing 0: times must be"), "{text}");
        }
        assert!(text(vec![timing("ri\nng", 8, 1.0)]).is_some());
        assert!(text((0..5000).map(|n| timing("ring", n, 1.0)).collect()).is_some());
    }
}

//! Forecasts beside measurements.

use super::{CHOICE, SCHEDULES};
use std::collections::BTreeMap;
use std::fmt;

/// What was forecast and measured of one set-up.
#[derive(Default)]
pub struct Table {
    /// Seconds by schedule and bytes.
    forecasts: BTreeMap<(String, u64), f64>,
    times: BTreeMap<(String, u64), Vec<f64>>,
}

impl Table {
    /// Notes what a schedule should take.
    pub fn forecast(&mut self, name: &str, bytes: u64, seconds: f64) {
        self.forecasts.insert((name.to_owned(), bytes), seconds);
    }

    /// Notes what it took.
    pub fn measured(&mut self, name: &str, bytes: u64, seconds: f64) {
        self.times.entry((name.to_owned(), bytes)).or_default().push(seconds);
    }

    /// What a call should take, more or less.
    pub fn about(&self, name: &str, bytes: u64) -> f64 {
        let known = |bytes: u64| self.forecasts.get(&(name.to_owned(), bytes)).copied();
        let near = || self.forecasts.iter().filter(|((_, size), _)| *size >= bytes);
        let least = || near().map(|(_, seconds)| *seconds).reduce(f64::min);
        known(bytes).or_else(least).unwrap_or(1.0)
    }

    fn time(&self, name: &str, bytes: u64) -> Option<f64> {
        self.times.get(&(name.to_owned(), bytes)).map(|times| middle(times))
    }

    /// Sizes of which every schedule was measured.
    fn sizes(&self) -> Vec<u64> {
        let direct = self.times.keys().filter(|(name, _)| name == SCHEDULES[0]);
        direct.map(|(_, bytes)| *bytes).collect()
    }

    /// Forecast over measured time, of all schedules and sizes.
    fn ratios(&self) -> Vec<f64> {
        let ratio = |((name, bytes), forecast): (&(String, u64), &f64)| {
            self.time(name, *bytes).map(|time| forecast / time)
        };
        self.forecasts.iter().filter_map(ratio).collect()
    }

    /// The choice's time over that of the fastest schedule.
    fn choice(&self, bytes: u64) -> Option<f64> {
        let all = SCHEDULES.iter().filter_map(|name| self.time(name, bytes));
        Some(self.time(CHOICE, bytes)? / all.reduce(f64::min)?)
    }

    /// How much more a byte of a tensor twice as large takes, and how much less a larger tensor
    /// takes than a smaller one: the worst of each, and at which size.
    fn cliffs(&self) -> [(f64, u64); 2] {
        let choices = self.times.keys().filter(|(name, _)| name == CHOICE);
        let points: Vec<_> =
            choices.filter_map(|(_, bytes)| Some((*bytes, self.time(CHOICE, *bytes)?))).collect();
        let worst = |of: &dyn Fn(f64, f64) -> f64| {
            let pair = |pair: &[(u64, f64)]| {
                let [(from, before), (to, after)] = *pair else { return (0.0, 0) };
                (of(before, after * 2.0 * from as f64 / to as f64), to)
            };
            points.windows(2).map(pair).fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a })
        };
        [worst(&|before, after| after / before / 2.0), worst(&|before, after| before / after)]
    }
}

/// The middle one.
fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A size in few letters.
fn short(bytes: u64) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.sizes();
        let line =
            |f: &mut fmt::Formatter<'_>, name: &str, cell: &dyn Fn(u64) -> Option<String>| {
                write!(f, "| {name} |")?;
                for &bytes in &sizes {
                    write!(f, " {} |", cell(bytes).unwrap_or_else(|| "-".into()))?;
                }
                writeln!(f)
            };
        line(f, "forecast / measured", &|bytes| Some(short(bytes)))?;
        writeln!(f, "|---|{}", "---:|".repeat(sizes.len()))?;
        for name in SCHEDULES {
            line(f, name, &|bytes| {
                let forecast = self.forecasts.get(&(name.to_owned(), bytes))?;
                Some(format!("{:.2}", forecast / self.time(name, bytes)?))
            })?;
        }
        line(f, "the choice: us", &|bytes| {
            Some(format!("{:.4}", Shown(self.time(CHOICE, bytes)?)))
        })?;
        line(f, "over the best's", &|bytes| Some(format!("{:.2}", self.choice(bytes)?)))?;
        let errors: Vec<f64> = self.ratios().iter().map(|ratio| (ratio - 1.0).abs()).collect();
        let worst = sizes.iter().filter_map(|&bytes| self.choice(bytes)).fold(0.0, f64::max);
        let [(steep, at), (less, below)] = self.cliffs();
        writeln!(
            f,
            "\nMedian error of {} forecasts: {:.1} %. The choice takes at most {worst:.2} of the \
             fastest schedule's time. From one size to twice that, a byte takes at most {steep:.2} \
             as long (to {}), and a call at least {:.2} of the smaller one's time (to {}).",
            errors.len(),
            100.0 * middle(&errors),
            short(at),
            1.0 / less,
            short(below)
        )
    }
}

/// Microseconds, with three digits or all.
struct Shown(f64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0 * 1e6;
        let digits = if us < 10.0 { 2 } else { usize::from(us < 100.0) };
        write!(f, "{us:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_choices_and_cliffs_are_counted() {
        let mut table = Table::default();
        for (name, bytes, forecast, times) in [
            ("direct", 8, 1e-6, vec![1e-6]),
            ("ring", 8, 2e-6, vec![4e-6, 2e-6, 9e-6]),
            ("direct", 64, 3e-6, vec![2e-6]),
        ] {
            table.forecast(name, bytes, forecast);
            times.into_iter().for_each(|time| table.measured(name, bytes, time));
        }
        for (bytes, time) in [(8, 1.1e-6), (16, 1e-6), (32, 5e-6), (64, 2e-6)] {
            table.measured(CHOICE, bytes, time);
        }
        assert_eq!(table.sizes(), [8, 64]);
        assert_eq!(table.ratios(), [1.0, 1.5, 0.5]);
        assert_eq!(table.choice(8).map(|ratio| (ratio * 100.0).round()), Some(110.0));
        let [steep, less] = table.cliffs();
        assert_eq!(((steep.0 * 10.0).round(), steep.1), (25.0, 32));
        assert_eq!(((less.0 * 10.0).round(), less.1), (25.0, 64));
        assert_eq!(table.about("ring", 8), 2e-6);
        assert_eq!(table.about(CHOICE, 32), 3e-6);
        let text = table.to_string();
        assert!(text.contains("Median error of 3 forecasts: 50.0 %"), "{text}");
        assert!(text.contains("| ring | 0.50 | - |"), "{text}");
    }
}

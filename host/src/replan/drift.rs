//! Whether calls still take as long as when they were planned.
//!
//! Each call that is planned from a topology has a forecast. How far that is off says little by
//! itself (links are measured one by one, and ranks may share cores), so it is the first calls
//! after planning that later ones are held against, each among calls of its kind and size.

use crate::call::Call;
use std::time::{Duration, Instant};
use unisono_core::Kind;

/// Calls whose median counts: one that waits for a rank that is late does not.
const WINDOW: usize = 9;

/// The first calls after planning, which find caches and connections cold.
const COLD: usize = 3;

/// Calls that should be over sooner, or are, say more of who woke up when than of links, and a look
/// at the clock would be felt.
const LEAST_NS: f64 = 1e5;

/// A call that is measured: since when, and what is expected of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    begun: Instant,
    expected: Expected,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Calls of this kind, of so many bytes as a power of two, are alike.
    alike: (Kind, u32),
    ns: f64,
}

/// Calls that are alike: measured time over forecast.
#[derive(Debug)]
struct Class {
    alike: (Kind, u32),
    /// The forecast of the last one.
    ns: f64,
    cold: usize,
    /// The median of the first ones.
    base: Option<f64>,
    /// The last ones, at most [`WINDOW`], and which comes next.
    recent: Vec<f64>,
    next: usize,
}

/// How one member's calls have gone since they were planned.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Training makes the same calls over and over.
    last: Option<(Call, Option<Expected>)>,
    classes: Vec<Class>,
}

impl Gauge {
    /// Begins to measure a call; `None` if it has no forecast, or one that is too short.
    pub fn watch(&mut self, call: &Call, forecast: impl FnOnce() -> Option<f64>) -> Option<Watch> {
        let expected = match &self.last {
            Some((last, expected)) if last == call => *expected,
            _ => {
                let bytes = call.count.saturating_mul(call.dtype.size() as u64);
                let alike = (call.kind, bytes.checked_ilog2().unwrap_or(0));
                let ns = forecast().filter(|ns| *ns >= LEAST_NS);
                let expected = ns.map(|ns| Expected { alike, ns });
                self.last = Some((*call, expected));
                expected
            }
        };
        expected.map(|expected| Watch { begun: Instant::now(), expected })
    }

    /// The call is over.
    pub fn seen(&mut self, Watch { begun, expected }: Watch) {
        self.took(expected, begun.elapsed());
    }

    fn took(&mut self, Expected { alike, ns }: Expected, time: Duration) {
        let class = match self.classes.iter().position(|class| class.alike == alike) {
            Some(at) => &mut self.classes[at],
            None => {
                let recent = Vec::with_capacity(WINDOW);
                let class = Class { alike, ns, cold: COLD, base: None, recent, next: 0 };
                self.classes.push(class);
                // It has just been put there.
                let last = self.classes.len() - 1;
                &mut self.classes[last]
            }
        };
        class.ns = ns;
        class.add(time.as_secs_f64() * 1e9 / ns);
    }

    /// The factor by which the calls that have changed most take longer, or shorter, than at
    /// first; 1 while too few have been made.
    pub fn drift(&self) -> f64 {
        self.classes.iter().filter_map(Class::drift).fold(1.0, f64::max)
    }

    /// Begins anew, after planning.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Class {
    fn add(&mut self, ratio: f64) {
        if self.cold > 0 {
            self.cold -= 1;
            return;
        }
        match self.recent.get_mut(self.next) {
            Some(oldest) => *oldest = ratio,
            None => self.recent.push(ratio),
        }
        self.next = (self.next + 1) % WINDOW;
        if self.base.is_none() && self.recent.len() == WINDOW {
            self.base = Some(median(&self.recent));
            self.recent.clear();
            self.next = 0;
        }
    }

    fn drift(&self) -> Option<f64> {
        let base = self.base.filter(|base| *base > 0.0 && self.recent.len() == WINDOW)?;
        let now = median(&self.recent);
        let long = now.max(base) * self.ns >= LEAST_NS;
        (long && now > 0.0).then(|| (now / base).max(base / now))
    }
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::DType;

    const LARGE: Expected = Expected { alike: (Kind::AllReduce, 20), ns: 1e6 };

    /// So many calls that take so many times as long as expected.
    fn make(gauge: &mut Gauge, expected: Expected, calls: usize, factor: f64) {
        for _ in 0..calls {
            gauge.took(expected, Duration::from_secs_f64(expected.ns * factor / 1e9));
        }
    }

    fn settled(factor: f64) -> Gauge {
        let mut gauge = Gauge::default();
        make(&mut gauge, LARGE, COLD, 50.0);
        make(&mut gauge, LARGE, WINDOW, factor);
        gauge
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-6
    }

    #[test]
    fn a_forecast_that_is_off_is_no_drift() {
        for off in [0.3, 1.0, 4.0] {
            let mut gauge = settled(off);
            make(&mut gauge, LARGE, 3 * WINDOW, off * 1.05);
            assert!(near(gauge.drift(), 1.05), "{off}: {}", gauge.drift());
        }
    }

    #[test]
    fn slower_and_faster_calls_are_drift() {
        for factor in [3.0, 1.0 / 3.0] {
            let mut gauge = settled(1.4);
            make(&mut gauge, LARGE, WINDOW, 1.4 * factor);
            assert!(near(gauge.drift(), 3.0), "{factor}: {}", gauge.drift());
            // They come back.
            make(&mut gauge, LARGE, WINDOW, 1.4);
            assert!(near(gauge.drift(), 1.0));
        }
    }

    #[test]
    fn few_calls_and_few_late_ones_say_nothing() {
        let mut gauge = Gauge::default();
        make(&mut gauge, LARGE, COLD + WINDOW - 1, 1.0);
        make(&mut gauge, LARGE, 1, 9.0);
        make(&mut gauge, LARGE, WINDOW - 1, 9.0);
        assert!(near(gauge.drift(), 1.0), "not enough after the first ones");
        let mut gauge = settled(1.0);
        make(&mut gauge, LARGE, WINDOW / 2, 20.0);
        make(&mut gauge, LARGE, WINDOW.div_ceil(2), 1.0);
        assert!(near(gauge.drift(), 1.0), "a minority is late");
        make(&mut gauge, LARGE, WINDOW, 2.0);
        gauge.reset();
        assert!(near(gauge.drift(), 1.0), "planned anew");
    }

    #[test]
    fn calls_that_are_over_soon_say_nothing_until_they_take_long() {
        let mut gauge = settled(0.01);
        make(&mut gauge, LARGE, WINDOW, 0.05);
        assert!(near(gauge.drift(), 1.0), "50 us are not long");
        make(&mut gauge, LARGE, WINDOW, 0.2);
        assert!(near(gauge.drift(), 20.0), "{}", gauge.drift());
    }

    /// One collective may slow down alone, and other sizes have baselines of their own.
    #[test]
    fn the_calls_that_changed_most_count() {
        let mut gauge = settled(1.0);
        let other = Expected { alike: (Kind::Broadcast, 22), ns: 4e6 };
        make(&mut gauge, other, COLD + WINDOW, 2.0);
        make(&mut gauge, LARGE, WINDOW, 1.0);
        assert!(near(gauge.drift(), 1.0));
        make(&mut gauge, other, WINDOW, 5.0);
        assert!(near(gauge.drift(), 2.5));
    }

    #[test]
    fn only_long_calls_with_a_forecast_are_measured() {
        let call = |count| Call::new(Kind::AllReduce, DType::F32, count);
        let mut gauge = Gauge::default();
        assert!(gauge.watch(&call(1), || None).is_none());
        assert!(gauge.watch(&call(2), || Some(LEAST_NS / 2.0)).is_none());
        let watch = gauge.watch(&call(1 << 20), || Some(1e6)).expect("a long one");
        gauge.seen(watch);
        // The forecast of the same call is not made twice.
        assert!(gauge.watch(&call(1 << 20), || unreachable!()).is_some());
    }
}

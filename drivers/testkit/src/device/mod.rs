//! One suite for every [`Device`].
//!
//! A driver's test implements [`DeviceHarness`] and calls [`run`]. Each fold is compared, bit by
//! bit, with [`unisono_core::numeric::fold`]; the memory around the spans is compared as well.

mod bits;
mod rig;
mod shape;
mod suite;

use std::time::{Duration, Instant};
use unisono_driver::{Device, Token};

pub use bits::Bits;

/// What the suite needs of a device and of the memory it works on.
pub trait DeviceHarness {
    /// The device under test.
    type Device: Device;

    /// The device.
    fn device(&mut self) -> &mut Self::Device;

    /// Memory that the device can reach, alive as long as the harness, aligned to 64 bytes.
    fn alloc(&mut self, bytes: usize) -> Mem<Self>;

    /// The memory `bytes` bytes further on in an allocation.
    fn offset(&self, mem: Mem<Self>, bytes: usize) -> Mem<Self>;

    /// Copies into the device's memory.
    fn write(&mut self, mem: Mem<Self>, bytes: &[u8]);

    /// Copies out of the device's memory.
    fn read(&mut self, mem: Mem<Self>, bytes: &mut [u8]);

    /// Waits for a completion; by default polls for at most ten seconds.
    fn wait(&mut self) -> (Token, Result<(), <Self::Device as Device>::Error>) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(done) = self.device().poll_done() {
                return (done.token, done.result);
            }
            assert!(Instant::now() < deadline, "no completion for ten seconds");
            std::thread::yield_now();
        }
    }
}

/// The device's reference to memory.
pub type Mem<H> = <<H as DeviceHarness>::Device as Device>::Mem;

/// How much is tested.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Elements with random bit patterns for each type, operator and number of sources, which is
    /// 1, 2, 3, 7 or 16.
    pub patterns: usize,
    /// Every length from 0 to this one is tested.
    pub lengths: usize,
    /// Spans may start at multiples of so many bytes: 1 if at any address.
    pub align: usize,
    /// Every program that the suite can think of; otherwise one for each type, operator and number
    /// of sources, which the seed chooses: for devices that compile a kernel for each.
    pub every_shape: bool,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for Plan {
    /// A million patterns for each type and operator, lengths to 300, any address, every program.
    fn default() -> Self {
        Self { patterns: 200_000, lengths: 300, align: 1, every_shape: true, seed: 1 }
    }
}

/// Runs the whole suite. What tells most comes first, and each part says when it begins and when it
/// has passed, with the time it took: a run that is stopped early has told something, too.
///
/// # Panics
/// If the device does anything wrong.
pub fn run(harness: &mut impl DeviceHarness, plan: &Plan) {
    let started = Instant::now();
    let mut last = started;
    let mut passed = |part: &str| {
        let now = Instant::now();
        eprintln!("suite: {part}: passed in {:.1} s", (now - last).as_secs_f64());
        last = now;
    };
    let begin = |part: &'static str| {
        eprintln!("suite: {part}: begun");
        part
    };
    let mut shapes = suite::shapes(harness, plan);
    let part = begin("rules");
    suite::rules(harness);
    passed(part);
    let part = begin("copies");
    suite::copies(harness, plan, &shapes);
    passed(part);
    let part = begin("all programs");
    suite::programs(harness, plan, &mut shapes, &mut passed);
    passed(part);
    let part = begin("every value of small types");
    suite::every_value(harness, plan, &mut shapes);
    passed(part);
    let part = begin("every rounding");
    suite::every_rounding(harness, plan);
    passed(part);
    let part = begin("lengths");
    suite::lengths(harness, plan, &mut shapes);
    passed(part);
    let part = begin("starts");
    suite::starts(harness, plan, &mut shapes);
    passed(part);
    let part = begin("patterns");
    suite::patterns(harness, plan, &mut shapes);
    passed(part);
    eprintln!("suite: all passed in {:.1} s", started.elapsed().as_secs_f64());
}

//! How a member waits: first spin, then let others run, then sleep; and looks at the time.

use super::local::Local;
use super::seat::Seat;
use crate::error::Error;
use crate::stuck::OnStuck;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unisono_core::wire::frame::Abort;

/// How patient each stage is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Rounds of spinning: worth it while every member has a core of its own.
    spins: u32,
    /// Rounds of yielding after that.
    yields: u32,
    /// Looks for a peer's frame, and rounds of yielding after that, before a call of one step gets
    /// a machine.
    quick: [u32; 2],
}

impl Patience {
    /// For a group with this many members on this machine; `busy`: a device or a board is emulated
    /// on its cores.
    pub fn new(members: usize, busy: bool) -> Self {
        if busy {
            return Self { spins: EAGER, yields: 30, quick: [300, 0] };
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if members <= cores {
            return Self { spins: 400, yields: 2000, quick: [300, 0] };
        }
        // A scheduler that owes this thread some time lets it run on, however often it yields.
        Self { spins: 2, yields: 400, quick: [20, 100] }
    }

    /// After a look in vain in a call without a machine: waits a little; false if that was the last
    /// one. `folds`: the peers may be at folds that take a while.
    pub fn look(
        &self,
        looks: &mut u32,
        folds: bool,
        seat: Option<&mut Seat>,
        yields: &mut Yields,
    ) -> bool {
        *looks += 1;
        let [looking, yielding] = if folds { [self.spins, self.yields] } else { self.quick };
        if *looks <= looking {
            return true;
        }
        if *looks == looking + 1
            && let Some(seat) = seat
        {
            seat.settle();
        }
        *looks <= looking + yielding && yields.give_way()
    }
}

/// Counts yields in a call after which a member had better sleep.
///
/// A thread that yields on a core which other programs want gives a whole slice away, milliseconds,
/// however soon it is wanted again; one that sleeps is woken when it is wanted. Between members it
/// is the other way round: to be woken takes longer.
#[derive(Debug, Default)]
pub(crate) struct Yields {
    long: u32,
}

/// A yield that takes so long has let somebody else's program run, or a member that computes
/// between its calls: members look after each other, or fold a few chunks.
const LONG: Duration = Duration::from_millis(1);

/// So many of them are no chance.
const LONG_MOST: u32 = 3;

impl Yields {
    /// Yields; false if that is not wise.
    fn give_way(&mut self) -> bool {
        if self.long >= LONG_MOST {
            return false;
        }
        let before = Instant::now();
        std::thread::yield_now();
        self.long += u32::from(before.elapsed() >= LONG);
        true
    }
}

/// One member's waiting.
pub(crate) struct Waiter {
    patience: Patience,
    started: Instant,
    idle: u32,
    busy: u32,
    yields: Yields,
}

/// Rounds before the first pause.
const EAGER: u32 = 20;

/// Reading the clock costs as much as a small message: it is read once in so many idle rounds.
const CLOCK_EVERY: u32 = 64;

/// Busy rounds between two looks at the clock; a round is up to 64 chunks.
const BUSY_ROUNDS: u32 = 16;

impl Waiter {
    pub const fn new(patience: Patience, started: Instant) -> Self {
        Self { patience, started, idle: 0, busy: 0, yields: Yields { long: 0 } }
    }

    /// Something happened. Returns the time now and then: a call in which there is always something
    /// to do has to look at its deadline and at the caller's wish to stop as well.
    pub fn busy(&mut self) -> Option<unisono_core::Instant> {
        self.idle = 0;
        self.busy = self.busy.wrapping_add(1);
        self.busy.is_multiple_of(BUSY_ROUNDS).then(|| self.now())
    }

    /// Nothing happened: waits a little. Returns the time if it is worth looking at deadlines.
    pub fn idle(&mut self, member: &mut Local) -> Option<unisono_core::Instant> {
        self.idle = self.idle.saturating_add(1);
        let Patience { spins, yields, .. } = self.patience;
        let asleep = self.idle > spins + yields;
        if self.idle <= EAGER.min(spins) {
            // A pause is as long as half a small message.
        } else if self.idle <= spins {
            std::hint::spin_loop();
        } else if !asleep {
            if self.idle == spins + 1
                && let Some(seat) = &mut member.seat
            {
                seat.settle();
            }
            if !self.yields.give_way() {
                member.sleep();
            }
        } else {
            member.sleep();
        }
        (asleep || self.idle.is_multiple_of(CLOCK_EVERY)).then(|| self.now())
    }

    pub fn now(&self) -> unisono_core::Instant {
        unisono_core::Instant::from_nanos(self.started.elapsed().as_nanos() as u64)
    }
}

impl Local {
    /// Waits for a call.
    pub fn finish(&mut self, op_id: u64) -> Result<(), Error> {
        // A stream of short calls may never wait long enough to look at the time.
        if self.is_interrupted() {
            self.engine.cancel(op_id);
        }
        let mut waiter = Waiter::new(self.patience, self.shared.started);
        loop {
            let time = if self.work() { waiter.busy() } else { waiter.idle(self) };
            if let Some(now) = time {
                self.pass_time(op_id, now);
            }
            if let Some(result) = self.engine.result(op_id) {
                return self.verdict(op_id, result);
            }
        }
    }

    /// Does what can be done now; the call's result if it is over.
    pub fn poll(&mut self, op_id: u64) -> Option<Result<(), Error>> {
        if !self.work() {
            self.pass_time(op_id, self.now());
        }
        self.engine.result(op_id).map(|result| self.verdict(op_id, result))
    }

    /// Does what can be done now.
    pub fn progress(&mut self) {
        self.work();
    }

    fn work(&mut self) -> bool {
        let worked = self.engine.poll();
        self.worked |= worked;
        worked
    }

    /// Gives a call up on all members.
    pub fn cancel(&mut self, op_id: u64) {
        self.engine.cancel(op_id);
    }

    /// The time limit of a call counts from the first time that somebody waits for it, and again
    /// after every progress.
    fn pass_time(&mut self, op_id: u64, now: unisono_core::Instant) {
        if std::mem::take(&mut self.worked) || self.armed != Some(op_id) {
            self.engine.arm(op_id, now.saturating_add(self.shared.timeout));
            self.armed = Some(op_id);
            if self.shared.boards.any() {
                self.shared.boards.stirs.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.engine.handle_time(now);
        self.tell_stuck(op_id, now);
        if self.is_interrupted() {
            self.engine.cancel(op_id);
        }
    }

    /// Says once that somebody does not let go of the memory of a call that has been given up.
    fn tell_stuck(&mut self, op_id: u64, now: unisono_core::Instant) {
        let Some((since, holder)) = self.engine.holder(op_id) else { return };
        let after = OnStuck::patience(self.shared.timeout);
        if now < since.saturating_add(after) || self.stuck.replace(op_id) == Some(op_id) {
            return;
        }
        let device = self.device().map_or("cpu", |device| device.card().name.as_str());
        self.shared.on_stuck.tell(self.rank, device, holder, after);
    }

    /// Does the caller want all calls to end?
    pub fn is_interrupted(&self) -> bool {
        self.shared.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn verdict(&self, op_id: u64, result: Result<(), Abort>) -> Result<(), Error> {
        result.map_err(|why| {
            let text = match why {
                Abort::DeviceFailed { rank } if rank == self.rank => {
                    let text = self.engine.device_error().map(ToString::to_string);
                    self.shared.failures.say(op_id, rank, text.unwrap_or_default())
                }
                Abort::DeviceFailed { rank } => self.shared.failures.hear(op_id, rank),
                _ => String::new(),
            };
            self.shared.error(why, text)
        })
    }

    fn now(&self) -> unisono_core::Instant {
        unisono_core::Instant::from_nanos(self.shared.started.elapsed().as_nanos() as u64)
    }
}

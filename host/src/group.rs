//! Groups of ranks in one process.

use crate::element::{Element, Reduction};
use crate::error::Error;
use crate::member::{CALLS_MAX, Call, MEMBERS_MAX, Member};
use crate::planner::{Choice, PlanOptions, WINDOW_MAX};
use crate::seat::Seat;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use unisono_core::{Kind, Order, Schedule};
use unisono_link_span::fabric;

/// Sets up a [`Group`].
#[derive(Clone, Debug)]
pub struct GroupBuilder {
    ranks: usize,
    choice: Choice,
    order: Order,
    chunk: Option<u64>,
    window: Option<u16>,
    timeout: Duration,
    interrupt: Option<Arc<AtomicBool>>,
}

/// A group whose ranks are CPU threads of this process.
pub struct Group {
    members: Vec<Member>,
}

impl Group {
    /// A builder with one CPU rank, the canonical order and a time limit of 30 seconds a call.
    #[must_use]
    pub const fn builder() -> GroupBuilder {
        GroupBuilder {
            ranks: 1,
            choice: Choice::Auto,
            order: Order::Canonical,
            chunk: None,
            window: None,
            timeout: Duration::from_secs(30),
            interrupt: None,
        }
    }

    /// Ranks with data.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.members.first().map_or(0, Member::ranks)
    }

    /// The members, one for each rank (aggregators last), to be moved to their threads.
    #[must_use]
    pub fn into_members(mut self) -> Vec<Member> {
        // After a `run` every member has left.
        self.rejoin();
        self.members
    }

    /// Brings all members back to the same next call.
    fn rejoin(&mut self) {
        let next = self.members.iter().map(Member::next_op).max().unwrap_or(0);
        self.members.iter_mut().for_each(|m| m.rejoin(next));
    }

    /// Runs `work` on every member, each on a thread of its own, and returns the results by rank.
    ///
    /// A member whose `work` ends while others still wait for it is reported to them as lost at
    /// once, so an early return or a panic on one rank hangs nobody; the group can be used again.
    ///
    /// # Errors
    /// The first error by rank that says what happened rather than that somebody else was lost.
    pub fn run<R: Send, E: Into<Error> + Send>(
        &mut self,
        work: impl Fn(&mut Member) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Error> {
        self.rejoin();
        let one = |member: &mut Member| {
            let result = catch_unwind(AssertUnwindSafe(|| work(member)));
            member.leave();
            match result {
                Ok(result) => result.map_err(Into::into),
                Err(panic) => {
                    Err(Error::Panicked { rank: member.rank(), text: panic_text(&*panic) })
                }
            }
        };
        let results: Vec<Result<R, Error>> = std::thread::scope(|scope| {
            let mut members = self.members.iter_mut();
            // The caller's thread is rank 0: one thread fewer, and a group of one has none.
            let first = members.next();
            let threads: Vec<_> = members.map(|m| scope.spawn(|| one(m))).collect();
            let first = first.map(one);
            let rest = threads.into_iter().map(|t| {
                t.join().unwrap_or_else(|p| Err(Error::Panicked { rank: 0, text: panic_text(&*p) }))
            });
            first.into_iter().chain(rest).collect()
        });
        // What happened on a rank says more than what the others heard of it.
        let heard = |e: &&Error| match e {
            Error::PeerLost(_) => 2,
            Error::Refused(_) | Error::Cancelled(_) => 1,
            _ => 0,
        };
        let errors = results.iter().filter_map(|r| r.as_ref().err());
        if let Some(error) = errors.min_by_key(heard) {
            return Err(error.clone());
        }
        Ok(results.into_iter().filter_map(Result::ok).collect())
    }

    /// All-reduce of one tensor a rank, in place, driven from here.
    ///
    /// # Errors
    /// [`Error`]; the tensors' content is undefined then.
    pub fn all_reduce<T: Element>(
        &mut self,
        tensors: &mut [&mut [T]],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let op = op.into();
        if tensors.len() != usize::from(self.ranks()) {
            return Err(Error::Tensors { tensors: tensors.len(), ranks: self.ranks() });
        }
        let kind = Kind::AllReduce;
        let count = tensors.first().map_or(0, |t| t.len() as u64);
        let slots: Vec<_> = tensors.iter_mut().map(|t| std::sync::Mutex::new(&mut **t)).collect();
        self.run(|member| {
            let Some(slot) = slots.get(usize::from(member.rank())) else {
                // An aggregator takes part in the same call without a tensor.
                let weight = op.scalar(T::DTYPE).ok_or(Error::Weight(T::DTYPE))?;
                let call = Call { op: Some(op.op), weight, ..Call::new(kind, T::DTYPE, count) };
                return member.run_in_place(&call, &mut []);
            };
            let mut tensor = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            member.all_reduce(&mut tensor, op)
        })?;
        Ok(())
    }
}

impl GroupBuilder {
    /// This many CPU ranks.
    #[must_use]
    pub const fn cpus(mut self, ranks: usize) -> Self {
        self.ranks = ranks;
        self
    }

    /// Always this schedule, instead of the planner's choice.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.choice = Choice::Fixed(schedule);
        self
    }

    /// Which orders of the fold are allowed; [`Order::Canonical`] by default.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Elements of a chunk, instead of the planner's choice.
    #[must_use]
    pub const fn chunk(mut self, elements: u64) -> Self {
        self.chunk = Some(elements);
        self
    }

    /// Chunks in flight, instead of the planner's choice.
    #[must_use]
    pub const fn window(mut self, chunks: u16) -> Self {
        self.window = Some(chunks);
        self
    }

    /// How long a call may take before it is given up on all ranks.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A flag that gives calls up: once it is true, whoever waits in a call cancels it on all ranks
    /// ([`Error::Cancelled`]). For signal handlers and cancel buttons.
    #[must_use]
    pub fn interrupt(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupt = Some(flag);
        self
    }

    /// Builds the group.
    ///
    /// # Errors
    /// [`Error::Build`] if the group is empty or too large, or an option makes no sense.
    pub fn build(self) -> Result<Group, Error> {
        let ranks = u16::try_from(self.ranks).unwrap_or(u16::MAX);
        let members = match &self.choice {
            Choice::Fixed(schedule) => schedule.members(ranks),
            Choice::Auto => ranks,
        };
        let refuse = |text: String| Err(Error::Build(text));
        if ranks == 0 {
            return refuse("it has no rank; give at least one".into());
        }
        if usize::from(members) > MEMBERS_MAX {
            return refuse(format!("{members} members; at most {MEMBERS_MAX} threads fit"));
        }
        if self.chunk == Some(0) {
            return refuse("a chunk of 0 elements".into());
        }
        if self.window.is_some_and(|w| w == 0 || usize::from(w) > WINDOW_MAX) {
            return refuse(format!("a window must be 1 to {WINDOW_MAX} chunks"));
        }
        let Self { choice, order, chunk, window, .. } = self;
        let options = PlanOptions { ranks, choice, order, chunk, window };
        let started = Instant::now();
        let ends = fabric(usize::from(members), CALLS_MAX, WINDOW_MAX);
        let mut seats = Seat::row(usize::from(members)).into_iter().flatten();
        let member = |(rank, (links, bell))| {
            let mut member = Member::new(
                rank as u16,
                options.clone(),
                self.timeout,
                links,
                bell,
                seats.next(),
                started,
            );
            member.interrupt = self.interrupt.clone();
            member
        };
        Ok(Group { members: ends.into_iter().enumerate().map(member).collect() })
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

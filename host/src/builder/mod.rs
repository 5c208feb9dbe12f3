//! Setting a group up.

mod links;
mod members;
mod places;
mod plans;
mod survey;
mod team;

use crate::device::rates::{self, Rate};
use crate::device::{Catalog, DeviceSpec, Dpu, DpuRole, Opened};
use crate::error::Error;
use crate::group::Group;
use crate::member::MEMBERS_MAX;
use crate::planner::{Choice, WINDOW_MAX};
use crate::stuck::OnStuck;
use crate::world::World;
use places::Places;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use team::{Part, Team};
use unisono_core::schedule::Owners;
use unisono_core::{Order, Schedule};
use unisono_planner::{Selection, Topology};

/// Stack of the thread that makes members: an engine has a megabyte, which not every compiler
/// builds in its place.
const ROOM: usize = 8 << 20;

/// Runs `work` with much stack, however little the caller has.
fn roomy<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(ROOM).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| Error::Thread(error.to_string()))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Where a member is.
#[derive(Clone, Debug)]
enum On {
    Named(DeviceSpec),
    Open(Opened),
    Board(Dpu),
}

/// Sets up a [`Group`].
#[derive(Clone, Debug)]
pub struct GroupBuilder {
    /// `None`: nothing was said.
    ranks: Option<Vec<On>>,
    /// Members that have no data.
    aggregators: Vec<On>,
    /// A list of devices that makes no sense.
    wrong: Option<String>,
    choice: Choice,
    order: Order,
    chunk: Option<u64>,
    window: Option<u16>,
    rates: Option<Vec<f64>>,
    timeout: Duration,
    interrupt: Option<Arc<AtomicBool>>,
    on_stuck: OnStuck,
    world: Option<World>,
    topology: Option<Topology>,
    selection: Option<Selection>,
}

impl GroupBuilder {
    pub(crate) fn new() -> Self {
        Self {
            ranks: None,
            aggregators: Vec::new(),
            wrong: None,
            choice: Choice::Auto,
            order: Order::Canonical,
            chunk: None,
            window: None,
            rates: None,
            timeout: Duration::from_secs(30),
            interrupt: None,
            on_stuck: OnStuck::default(),
            world: None,
            topology: None,
            selection: None,
        }
    }

    /// This many CPU ranks, instead of all that was named before.
    #[must_use]
    pub fn cpus(mut self, ranks: usize) -> Self {
        self.ranks = Some(vec![On::Named(DeviceSpec::Cpu); ranks]);
        self
    }

    /// One more rank, on this device. Several ranks may be on the same one. A board without data
    /// ([`DpuRole::Aggregator`]) is no rank; calls that reduce go through it.
    #[must_use]
    pub fn device(mut self, device: DeviceSpec) -> Self {
        let ranks = self.ranks.get_or_insert_default();
        let to = if device.has_data() { ranks } else { &mut self.aggregators };
        to.push(On::Named(device));
        self
    }

    /// A board that has been started, in the part that it was started for.
    #[must_use]
    pub fn board(mut self, board: Dpu) -> Self {
        let ranks = self.ranks.get_or_insert_default();
        let aggregates = board.spec().role == DpuRole::Aggregator;
        let to = if aggregates { &mut self.aggregators } else { ranks };
        to.push(On::Board(board));
        self
    }

    /// One more rank, on a device that is open already.
    #[must_use]
    pub fn open(mut self, device: Opened) -> Self {
        self.ranks.get_or_insert_default().push(On::Open(device));
        self
    }

    /// One rank for each of these devices, for example `cpu,cpu,vulkan:0,opencl:0`; see
    /// [`DeviceSpec::list`]. What is wrong with the list is said by [`GroupBuilder::build`].
    #[must_use]
    pub fn on(mut self, devices: &str) -> Self {
        match DeviceSpec::list(devices) {
            Ok(list) => list.into_iter().fold(self, Self::device),
            Err(text) => {
                self.wrong = Some(text);
                self
            }
        }
    }

    /// How fast each rank's device folds, in bytes per second, instead of a measurement: the shares
    /// of an all-reduce follow from it. The result does not depend on it.
    #[must_use]
    pub fn rates(mut self, bytes_per_second: Vec<f64>) -> Self {
        self.rates = Some(bytes_per_second);
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

    /// How long a call may go without any progress before it is given up on all ranks, and how long
    /// each answer of a board may take, also while it is started or attached to.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A flag that gives calls up: once it is true, whoever waits in a call cancels it on all ranks
    /// ([`Error::Cancelled`]), and boards that are starting are not waited for. For signal handlers
    /// and cancel buttons.
    #[must_use]
    pub fn interrupt(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupt = Some(flag);
        self
    }

    /// What is called, on a member's thread, when a device or a peer still uses a call's memory
    /// long after it was given up (10 s, or the time limit if that is longer): the call cannot
    /// return before they let go, and a driver that hangs, or a process that was stopped, never
    /// does. By default an error is logged; a program that must not hang ends its process here.
    #[must_use]
    pub fn on_stuck(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stuck = OnStuck::new(tell);
        self
    }

    /// A group of all processes of a job. What was named is this process's part: its ranks follow
    /// those of the processes before it. All processes build it at the same time and say the same
    /// about schedules, chunks and order.
    #[must_use]
    pub fn world(mut self, world: &World) -> Self {
        self.world = Some(world.clone());
        self
    }

    /// What was measured of this group's links and devices (`unisono probe`), from which the
    /// planner then chooses, until [`Member::replan`](crate::Member::replan) finds otherwise. Of
    /// several processes the first one's counts. The result does not depend on it.
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Schedules for calls of certain sizes, instead of the planner's choice; without it, those
    /// that the environment variable `UNISONO_PLAN` names.
    #[must_use]
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = Some(selection);
        self
    }

    /// Builds the group: opens the devices, starts the boards, and if they differ, measures how
    /// fast they fold.
    ///
    /// # Errors
    /// [`Error::Build`] if the group is empty or too large, or an option makes no sense;
    /// [`Error::Gpu`] in the words of a loader or driver; [`Error::Board`]; [`Error::World`] if the
    /// processes do not come together.
    pub fn build(mut self) -> Result<Group, Error> {
        let named = self.named();
        let part = named.as_ref().map(|named| self.part(named)).map_err(Error::clone);
        let mut team = Team::meet(self.world.as_ref(), part)?;
        let named = named?;
        self = self.agreed(&team)?;
        let members = self.members(&team.all);
        self.refuse(&team.all, members)?;
        self.fits(team.ranks)?;
        team.fill(members);
        let places = self.places(named, members);
        let opened = team.opened(places.as_ref().map_err(Error::clone));
        let mut places = places?;
        let (even, about) = opened?;
        let owners = match (&self.choice, &self.rates) {
            (Choice::Fixed(_), _) => None,
            (Choice::Auto, Some(rates)) => Some(self.given(rates, team.ranks)?),
            (Choice::Auto, None) if even => None,
            (Choice::Auto, None) => team.owners(&mut places)?,
        };
        roomy(move || self.join(places, &team, about, owners))?
    }

    /// How fast the devices of this process fold in such a group, in bytes per second: its ranks,
    /// then boards without data.
    ///
    /// # Errors
    /// As for [`GroupBuilder::build`].
    pub fn fold_rates(&self) -> Result<Vec<f64>, Error> {
        let mut places = self.places(self.named()?, 0)?;
        let mut rates: Vec<f64> = places.rates()?.iter().map(|rate| rate.fold).collect();
        rates.extend(places.aggregator_rates()?);
        Ok(rates)
    }

    /// Opens the devices of this process and starts its boards, for a group of so many members.
    fn places(&self, named: Vec<On>, members: u16) -> Result<Places, Error> {
        let stop = self.interrupt.clone().unwrap_or_default();
        let places = Places::open(named, &self.aggregators, members, self.timeout, &stop)?;
        places.check(members)?;
        Ok(places)
    }

    /// What this process brings.
    fn part(&self, named: &[On]) -> Part {
        let schedule = match &self.choice {
            Choice::Auto => ("the planner's".to_owned(), 0),
            Choice::Fixed(schedule) => (schedule.name().to_owned(), schedule.fingerprint()),
        };
        let order = (format!("{:?}", self.order).to_lowercase(), self.order as u64);
        let chunk = self.chunk.map_or_else(
            || ("the planner's".to_owned(), 0),
            |chunk| (format!("{chunk} elements"), chunk),
        );
        let same = [("schedule", schedule), ("order", order), ("chunk", chunk)];
        let same = same.map(|(what, (said, hash))| (what.to_owned(), said, hash)).into();
        Part { ranks: named.len(), aggregators: self.aggregators.len(), same }
    }

    /// Members of a group of this.
    fn members(&self, all: &Part) -> u16 {
        let ranks = u16::try_from(all.ranks).unwrap_or(u16::MAX);
        match &self.choice {
            Choice::Fixed(schedule) => schedule.members(ranks),
            Choice::Auto => ranks.saturating_add(self.aggregators(ranks, all.aggregators)),
        }
    }

    /// Refuses what [`GroupBuilder::build`] would refuse before it opens a device or starts a
    /// board; returns how many members the group would have: ranks, and aggregators without data.
    /// What other processes bring is not known here.
    ///
    /// # Errors
    /// [`Error::Build`].
    pub fn check(&self) -> Result<u16, Error> {
        let part = self.part(&self.named()?);
        let members = self.members(&part);
        self.refuse(&part, members)?;
        Ok(members)
    }

    /// The ranks' devices, `auto` written out.
    fn named(&self) -> Result<Vec<On>, Error> {
        if let Some(text) = &self.wrong {
            return Err(Error::Build(text.clone()));
        }
        let Some(ranks) = &self.ranks else { return Ok(vec![On::Named(DeviceSpec::Cpu)]) };
        let mut named = Vec::new();
        for rank in ranks {
            match rank {
                On::Named(DeviceSpec::Auto) => {
                    named.extend(Catalog::find().real().map(On::Named));
                    named.push(On::Named(DeviceSpec::Cpu));
                }
                rank => named.push(rank.clone()),
            }
        }
        Ok(named)
    }

    fn refuse(&self, all: &Part, members: u16) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Build(text));
        if all.ranks == 0 {
            return refuse("it has no rank; give at least one".into());
        }
        if usize::from(members) > MEMBERS_MAX {
            return refuse(format!("{members} members; at most {MEMBERS_MAX} threads fit"));
        }
        if let Choice::Fixed(schedule) = &self.choice
            && usize::from(members) < all.ranks + all.aggregators
        {
            let (name, boards) = (schedule.name(), all.aggregators);
            return refuse(format!(
                "{name} has no place for {boards} {}without data; star:{boards} has, and is what \
                 is chosen by default",
                if boards == 1 { "member " } else { "members " }
            ));
        }
        if self.chunk == Some(0) {
            return refuse("a chunk of 0 elements".into());
        }
        if self.window.is_some_and(|w| w == 0 || usize::from(w) > WINDOW_MAX) {
            return refuse(format!("a window must be 1 to {WINDOW_MAX} chunks"));
        }
        Ok(())
    }

    /// Shares by rates that the caller gives.
    fn given(&self, rates: &[f64], ranks: u16) -> Result<Owners, Error> {
        let rate = |&fold: &f64| Rate { fold, send: f64::INFINITY };
        let all: Vec<_> = rates.iter().map(rate).collect();
        let fits = all.len() == usize::from(ranks);
        fits.then(|| rates::owners(ranks, &all)).flatten().ok_or_else(|| {
            let count = rates.len();
            Error::Build(format!("{count} rates for {ranks} ranks; each must be above 0"))
        })
    }
}

//! Setting a group up.

use crate::device::any::AnyDevice;
use crate::device::rates::{self, Rate};
use crate::device::{Catalog, DeviceSpec, Opened};
use crate::error::Error;
use crate::failures::Failures;
use crate::group::Group;
use crate::member::seat::Seat;
use crate::member::{CALLS_MAX, MEMBERS_MAX, Member, Shared};
use crate::planner::{Choice, PlanOptions, WINDOW_MAX};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use unisono_core::schedule::Owners;
use unisono_core::{Order, Schedule};
use unisono_device_cpu::CpuDevice;
use unisono_link_span::fabric;

/// Where a rank is.
#[derive(Clone, Debug)]
enum On {
    Named(DeviceSpec),
    Open(Opened),
}

/// Sets up a [`Group`].
#[derive(Clone, Debug)]
pub struct GroupBuilder {
    /// `None`: nothing was said.
    ranks: Option<Vec<On>>,
    /// A list of devices that makes no sense.
    wrong: Option<String>,
    choice: Choice,
    order: Order,
    chunk: Option<u64>,
    window: Option<u16>,
    rates: Option<Vec<f64>>,
    timeout: Duration,
    interrupt: Option<Arc<AtomicBool>>,
}

impl GroupBuilder {
    pub(crate) const fn new() -> Self {
        Self {
            ranks: None,
            wrong: None,
            choice: Choice::Auto,
            order: Order::Canonical,
            chunk: None,
            window: None,
            rates: None,
            timeout: Duration::from_secs(30),
            interrupt: None,
        }
    }

    /// This many CPU ranks, instead of all that was named before.
    #[must_use]
    pub fn cpus(mut self, ranks: usize) -> Self {
        self.ranks = Some(vec![On::Named(DeviceSpec::Cpu); ranks]);
        self
    }

    /// One more rank, on this device. Several ranks may be on the same one.
    #[must_use]
    pub fn device(mut self, device: DeviceSpec) -> Self {
        self.ranks.get_or_insert_default().push(On::Named(device));
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

    /// How long a call may go without any progress before it is given up on all ranks.
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

    /// Builds the group: opens the devices and, if they differ, measures how fast they fold.
    ///
    /// # Errors
    /// [`Error::Build`] if the group is empty or too large, or an option makes no sense;
    /// [`Error::Gpu`] in the words of a loader or driver.
    pub fn build(self) -> Result<Group, Error> {
        let named = self.named()?;
        let ranks = u16::try_from(named.len()).unwrap_or(u16::MAX);
        let members = match &self.choice {
            Choice::Fixed(schedule) => schedule.members(ranks),
            Choice::Auto => ranks,
        };
        self.check(ranks, members)?;
        let mut devices = Devices::open(named)?;
        let owners = match (&self.choice, &self.rates) {
            (Choice::Fixed(_), _) => None,
            (Choice::Auto, Some(rates)) => Some(self.given(rates, ranks)?),
            (Choice::Auto, None) => devices.owners()?,
        };
        Ok(self.join(devices, members, owners))
    }

    /// A group of these devices.
    fn join(self, devices: Devices, members: u16, owners: Option<Owners>) -> Group {
        let ranks = devices.members.len() as u16;
        let Self { choice, order, chunk, window, timeout, interrupt, .. } = self;
        let options = PlanOptions { ranks, choice, order, chunk, window, owners };
        let Devices { members: mut on, open } = devices;
        // Aggregators are on the CPU.
        on.resize_with(usize::from(members), || (AnyDevice::Cpu(CpuDevice::new()), None));
        let (started, failures) = (Instant::now(), Failures::default());
        let shared = Shared { options, timeout, started, devices: open, failures, interrupt };
        let shared = Arc::new(shared);
        let ends = fabric(usize::from(members), CALLS_MAX, WINDOW_MAX);
        let mut seats = Seat::row(usize::from(members)).into_iter().flatten();
        let members = on.into_iter().zip(ends).zip(0..);
        let member =
            |((device, ends), rank)| Member::new(rank, shared.clone(), device, ends, seats.next());
        Group { members: members.map(member).collect() }
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

    fn check(&self, ranks: u16, members: u16) -> Result<(), Error> {
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

/// The devices of a group that is being built.
struct Devices {
    /// Each rank's, and which of the open ones it is.
    members: Vec<(AnyDevice, Option<Opened>)>,
    /// GPUs, each once.
    open: Vec<Opened>,
}

impl Devices {
    fn open(named: Vec<On>) -> Result<Self, Error> {
        let (mut members, mut open): (Vec<_>, Vec<Opened>) = (Vec::new(), Vec::new());
        for on in named {
            let opened = match on {
                On::Open(opened) => Some(opened),
                On::Named(spec) => Opened::open(&spec)?,
            };
            let device = match &opened {
                Some(opened) => opened.0.device()?,
                None => AnyDevice::Cpu(CpuDevice::new()),
            };
            if let Some(opened) = &opened
                && !open.iter().any(|other| other.is(opened))
            {
                open.push(opened.clone());
            }
            members.push((device, opened));
        }
        Ok(Self { members, open })
    }

    /// Shares by measured rates; `None` if all ranks are on the CPU: equal ones.
    fn owners(&mut self) -> Result<Option<Owners>, Error> {
        let ranks = self.members.len();
        if self.open.is_empty() || ranks == 1 {
            return Ok(None);
        }
        let is = |a: &Option<Opened>, b: &Option<Opened>| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => a.is(b),
            _ => false,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut measured: Vec<(Option<Opened>, Rate)> = Vec::new();
        for (device, on) in &mut self.members {
            if !measured.iter().any(|(known, _)| is(known, on)) {
                let rate = rates::measure(device, on.as_ref(), &self.open, ranks)?;
                measured.push((on.clone(), rate));
            }
        }
        let users =
            |on: &Option<Opened>| self.members.iter().filter(|(_, other)| is(other, on)).count();
        let busy = users(&None).min(cores);
        let share = |on: &Option<Opened>| {
            let part = match on {
                // Ranks on the CPU share its cores, ranks on one GPU share that.
                None => busy as f64 / users(on) as f64,
                // Software has the cores that ranks on the CPU leave: they fold faster there.
                Some(device) if device.is_software() => {
                    (cores - busy) as f64 / (cores * users(on)) as f64
                }
                Some(_) => 1.0 / users(on) as f64,
            };
            let rate = measured.iter().find(|(known, _)| is(known, on)).map(|(_, rate)| *rate);
            rate.map(|Rate { fold, send }| Rate { fold: (fold * part).max(1.0), send })
        };
        let all: Vec<_> = self.members.iter().filter_map(|(_, on)| share(on)).collect();
        for ((_, on), rate) in self.members.iter().zip(&all) {
            let name = on.as_ref().map_or("cpu", |on| on.card().name.as_str());
            tracing::info!("{name} folds {:.2} GB/s here", rate.fold / 1e9);
        }
        Ok(rates::owners(ranks as u16, &all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sum;
    use crate::device::any::Broken;

    /// A device that fails is an error on all ranks, in the driver's words.
    #[test]
    fn all_ranks_hear_what_a_device_says() {
        let cpu = || (AnyDevice::Cpu(CpuDevice::new()), None);
        let broken = (AnyDevice::Broken(Broken::default()), None);
        let devices = Devices { members: vec![cpu(), broken, cpu()], open: Vec::new() };
        let mut group = GroupBuilder::new().join(devices, 3, None);
        let heard = std::sync::Mutex::new(Vec::new());
        let done = group.run(|member| {
            let result = member.all_reduce(&mut vec![1f32; 100_000], Sum);
            heard.lock().expect("no panic").push(result.clone());
            result
        });
        let text = "a card is lost: fell off the bus".to_owned();
        let want = Err(Error::Device { rank: 1, text });
        assert_eq!(done.map(|_| ()), want);
        assert_eq!(heard.into_inner().expect("no panic"), [want.clone(), want.clone(), want]);
    }
}

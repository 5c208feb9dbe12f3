//! Where the members of a group are: devices that are open, boards that are running.

use super::On;
use super::team::Team;
use crate::device::any::AnyDevice;
use crate::device::catalog::card_of;
use crate::device::dpu::{Taken, calls_of};
use crate::device::rates::{self, Rate};
use crate::device::{DeviceSpec, Dpu, Opened};
use crate::error::Error;
use crate::planner::Limits;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use unisono_device_cpu::CpuDevice;

/// A rank's place.
pub(super) enum Place {
    /// A device of this process, and which of the open ones it is.
    Device(AnyDevice, Option<Opened>),
    /// A board.
    Board(Taken),
}

impl Place {
    /// The board that it is.
    const fn board(&self) -> Option<&Taken> {
        match self {
            Self::Board(taken) => Some(taken),
            Self::Device(..) => None,
        }
    }
}

/// The places of a group that is being built.
pub(super) struct Places {
    /// Each rank's.
    pub ranks: Vec<Place>,
    /// Members without data: boards, and CPUs.
    pub aggregators: Vec<Place>,
    /// GPUs, each once.
    pub open: Vec<Opened>,
}

/// What all processes have to know of the boards of a group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct About {
    /// What they can do.
    pub limits: Limits,
    /// Calls in flight that all of them have room for, if there is a board.
    pub calls: Option<usize>,
    /// Epoch of the group.
    pub epoch: u32,
    /// Which members they are, and what they are called.
    pub names: Vec<(u16, String)>,
}

impl About {
    /// Of more boards.
    pub fn and(self, other: Self) -> Result<Self, Error> {
        let names = [self.names, other.names].concat();
        let calls = self.calls.or(other.calls);
        if other.calls.is_some_and(|other| calls != Some(other)) {
            // Each finds a call's channel from how many it has itself.
            let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
            let names = names.join(" and ");
            let text = "have room for different numbers of calls, so no group has both yet";
            return Err(Error::Build(format!("{names} {text}")));
        }
        let (limits, epoch) = (self.limits.and(&other.limits), self.epoch.max(other.epoch));
        Ok(Self { limits, calls, epoch, names })
    }
}

impl Places {
    /// Opens devices and starts boards, for a group of so many members.
    pub fn open(
        named: Vec<On>,
        aggregators: &[On],
        members: u16,
        timeout: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let (mut ranks, mut open): (Vec<_>, Vec<Opened>) = (Vec::new(), Vec::new());
        // All have to be there before the first one is opened: its kernels may take long.
        let card = |on: &On| match on {
            On::Named(spec) => card_of(spec),
            On::Open(_) | On::Board(_) => Ok(None),
        };
        let cards = named.iter().map(card).collect::<Result<Vec<_>, _>>()?;
        for (on, card) in named.into_iter().zip(cards) {
            let opened = match on {
                On::Board(dpu) => {
                    ranks.push(Place::Board(dpu.take()?));
                    continue;
                }
                On::Named(DeviceSpec::Dpu(spec)) => {
                    let dpu = Dpu::start_unless(stop, &spec, members, timeout)?;
                    ranks.push(Place::Board(dpu.take()?));
                    continue;
                }
                On::Open(opened) => Some(opened),
                On::Named(_) => card.as_ref().map(Opened::of).transpose()?,
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
            ranks.push(Place::Device(device, opened));
        }
        let place = |on: &On| match on {
            On::Board(dpu) => dpu.take().map(Place::Board),
            On::Named(DeviceSpec::Dpu(spec)) => {
                Dpu::start_unless(stop, spec, members, timeout)?.take().map(Place::Board)
            }
            // The builder puts nothing else there.
            On::Named(_) | On::Open(_) => Ok(Place::Device(AnyDevice::Cpu(CpuDevice::new()), None)),
        };
        let aggregators = aggregators.iter().map(place).collect::<Result<_, _>>()?;
        Ok(Self { ranks, aggregators, open })
    }

    /// The ranks' devices, open as they are.
    pub fn on(&self) -> Vec<On> {
        let one = |place: &Place| match place {
            Place::Device(_, Some(opened)) => On::Open(opened.clone()),
            Place::Device(_, None) | Place::Board(_) => On::Named(DeviceSpec::Cpu),
        };
        self.ranks.iter().map(one).collect()
    }

    /// Refuses a group that is too large for a board.
    pub fn check(&self, members: u16) -> Result<(), Error> {
        for board in self.ranks.iter().chain(&self.aggregators).filter_map(Place::board) {
            let most = board.identity().members;
            if members > most {
                let name = board.home.spec();
                let text = format!("{name} takes part in groups of up to {most} members");
                return Err(Error::Build(format!("{text}, and this one has {members}")));
            }
        }
        Ok(())
    }

    /// What there is to know of each board, and of other members without data.
    pub fn boards(&self, team: &Team) -> Vec<About> {
        let ranks = self.ranks.iter().map(|place| (place.board(), true));
        let aggregators = self.aggregators.iter().map(|place| (place.board(), false));
        let of = |(member, (board, data)): (u16, (Option<&Taken>, bool))| {
            let (aggregators, ranks) = (u16::from(!data), data);
            match board {
                None if data => None,
                None => Some(About { limits: Limits::none(aggregators), ..About::default() }),
                Some(board) => {
                    let identity = board.identity();
                    let limits = Limits {
                        aggregators,
                        ranks,
                        payload: identity.payload.into(),
                        scratch: identity.scratch.into(),
                        dtypes: identity.dtypes,
                        ops: identity.ops,
                    };
                    let names = vec![(member, board.home.spec().to_string())];
                    let calls = Some(calls_of(identity.calls));
                    Some(About { limits, calls, epoch: board.group, names })
                }
            }
        };
        team.own_members().zip(ranks.chain(aggregators)).filter_map(of).collect()
    }

    /// Are all ranks on the CPU?
    pub fn is_even(&self) -> bool {
        self.ranks.iter().all(|place| matches!(place, Place::Device(_, None)))
    }

    /// How fast members without data fold, in bytes per second.
    pub fn aggregator_rates(&mut self) -> Result<Vec<f64>, Error> {
        let rate = |place: &mut Place| match place {
            Place::Board(board) => Ok(rates::of_board(board.identity().rate)),
            Place::Device(device, on) => Ok(rates::measure(device, on.as_ref(), &[], 1)?.fold),
        };
        self.aggregators.iter_mut().map(rate).collect()
    }

    /// How fast each rank folds here.
    pub fn rates(&mut self) -> Result<Vec<Rate>, Error> {
        let is = |a: &Option<Opened>, b: &Option<Opened>| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => a.is(b),
            _ => false,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ranks = self.ranks.len();
        let mut measured: Vec<(Option<Opened>, Rate)> = Vec::new();
        for place in &mut self.ranks {
            let Place::Device(device, on) = place else { continue };
            if !measured.iter().any(|(known, _)| is(known, on)) {
                let rate = rates::measure(device, on.as_ref(), &self.open, ranks)?;
                measured.push((on.clone(), rate));
            }
        }
        let users = |on: &Option<Opened>| {
            let here = |place: &&Place| matches!(place, Place::Device(_, other) if is(other, on));
            self.ranks.iter().filter(here).count()
        };
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
        let one = |place: &Place| match place {
            Place::Device(_, on) => share(on),
            Place::Board(board) => {
                let fold = rates::of_board(board.identity().rate);
                Some(Rate { fold, send: fold })
            }
        };
        let all: Vec<_> = self.ranks.iter().filter_map(one).collect();
        for (place, rate) in self.ranks.iter().zip(&all) {
            let name = match place {
                Place::Device(_, None) => "cpu".to_owned(),
                Place::Device(_, Some(on)) => on.card().name.clone(),
                Place::Board(board) => board.home.spec().to_string(),
            };
            tracing::info!("{name} folds {:.2} GB/s here", rate.fold / 1e9);
        }
        Ok(all)
    }
}

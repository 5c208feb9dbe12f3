//! The processes that run a command together, if a launcher has started several.

use super::args::{GroupArgs, Links, ranks};
use super::error::{Usage, is_usage, one_line};
use super::interrupt::Interrupt;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use unisono::world::Seat;
use unisono::{DeviceSpec, Error, World};

/// All ranks of a command, and which of them are in this process.
#[derive(Clone, Debug)]
pub struct Job {
    world: Option<World>,
    /// What all processes name, in their order, and which of it this one does.
    devices: Vec<DeviceSpec>,
    own: Range<usize>,
    /// The ranks of this process.
    here: Range<usize>,
}

impl Job {
    /// One process.
    pub fn alone(devices: Vec<DeviceSpec>) -> Self {
        let (own, here) = (0..devices.len(), 0..ranks(&devices));
        Self { world: None, devices, own, here }
    }

    /// All processes say which devices they have, or why they cannot go on.
    pub fn meet(world: Option<World>, own: Result<Vec<DeviceSpec>>) -> Result<Self> {
        let Some(world) = world else { return own.map(Self::alone) };
        let said = own.map(|own| own.iter().map(ToString::to_string).collect::<Vec<_>>());
        let all = agree(&world, said)?;
        let (mut devices, mut places) = (Vec::new(), (0..0, 0..0));
        for (process, names) in all.iter().enumerate() {
            let named = DeviceSpec::list(&names.join(",")).map_err(Usage)?;
            let first = ranks(&devices);
            let place = (devices.len()..devices.len() + named.len(), first..first + ranks(&named));
            if place.1.is_empty() && process == 0 {
                return Err(Usage(
                    "process 0 names no rank, and the first one needs one: --on cpu,...".into(),
                )
                .into());
            }
            if process == world.rank() {
                places = place;
            }
            devices.extend(named);
        }
        let (own, here) = places;
        Ok(Self { world: Some(world), devices, own, here })
    }

    /// The job that a launcher has started this process for; `None` without one.
    pub fn find(args: &GroupArgs, interrupt: &Interrupt) -> Result<Option<World>> {
        let seat = match &args.rendezvous {
            Some(etcd) => Seat::from_env_at(etcd.clone()),
            None => Seat::from_env(),
        };
        let Some(seat) = seat.map_err(Error::from)? else { return Ok(None) };
        let builder = World::builder().seat(seat).secret_from_env()?.interrupt(interrupt.flag());
        let near = matches!(args.links, Links::Auto | Links::AutoUdp);
        let datagrams = matches!(args.links, Links::Udp | Links::AutoUdp);
        let world = builder.near(near).datagrams(datagrams).build()?;
        let Some(world) = Some(world).filter(|world| world.size() > 1) else { return Ok(None) };
        Ok(Some(match &args.interface {
            Some(interface) => world.interface(interface.clone()),
            None => world,
        }))
    }

    /// The processes, if there are several.
    pub const fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    /// Does this process speak for all of them?
    pub const fn leads(&self) -> bool {
        self.here.start == 0
    }

    /// Devices of all processes, boards without data among them.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.devices
    }

    /// Those of this process.
    pub fn own(&self) -> &[DeviceSpec] {
        self.devices.get(self.own.clone()).unwrap_or_default()
    }

    /// Ranks of all processes.
    pub fn ranks(&self) -> usize {
        ranks(&self.devices)
    }

    /// The ranks of this process.
    pub const fn here(&self) -> Range<usize> {
        self.here.start..self.here.end
    }

    /// The member of this process that speaks for it: its first rank, or else its first member
    /// without data.
    pub fn speaker(&self) -> usize {
        if self.here.is_empty() { self.first_without_data() } else { self.here.start }
    }

    /// The first member without data that this process has, if it has one.
    pub fn first_without_data(&self) -> usize {
        let before = &self.devices[..self.own.start];
        self.ranks() + before.len() - ranks(before)
    }

    /// What every process has to say, in the order of their ranks; an error of one is one of all.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, own: Result<T>) -> Result<Vec<T>> {
        match &self.world {
            None => Ok(vec![own?]),
            Some(world) => agree(world, own),
        }
    }
}

/// What the processes have to say. Who is to blame for an error is told, too: then all end with the
/// same exit code.
fn agree<T: Serialize + DeserializeOwned>(world: &World, own: Result<T>) -> Result<Vec<T>> {
    let (said, own) = match own {
        Ok(own) => (Ok(own), Ok(())),
        Err(error) => (Err((is_usage(&error), one_line(&error))), Err(error)),
    };
    let all: Result<Vec<Result<T, (bool, String)>>, _> = world.agree(Ok(said));
    // The own error is more than its words.
    own?;
    let heard = |(process, said): (usize, Result<T, (bool, String)>)| {
        said.map_err(|(usage, text)| {
            let text = format!("process {process}: {text}");
            if usage { Usage(text).into() } else { Error::World(text).into() }
        })
    };
    all?.into_iter().enumerate().map(heard).collect()
}

/// The words of an error, to be told; the error itself, which may say more to this process, has to
/// be looked at before what others have told.
pub fn copy(error: &anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    if is_usage(error) { Usage(text).into() } else { anyhow::anyhow!(text) }
}

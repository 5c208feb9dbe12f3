//! The processes that run a command together, if a launcher has started several.

use super::args::{GroupArgs, Links};
use super::interrupt::Interrupt;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use unisono::world::Seat;
use unisono::{Error, World};

/// All ranks of a command, and which of them are in this process.
#[derive(Clone, Debug)]
pub struct Job {
    world: Option<World>,
    /// The first rank of this process, and how many it has.
    first: usize,
    own: usize,
    /// Ranks of all processes.
    ranks: usize,
}

impl Job {
    /// One process.
    pub const fn alone(ranks: usize) -> Self {
        Self { world: None, first: 0, own: ranks, ranks }
    }

    /// All processes say how many ranks they have, or why they cannot go on.
    pub fn meet(world: Option<World>, own: Result<usize>) -> Result<Self> {
        let Some(world) = world else { return own.map(Self::alone) };
        let said = own.as_ref().map(|own| *own).map_err(words);
        let all = world.agree(said);
        // The own error is more than its words.
        let own = own?;
        let all = all?;
        let first = all.iter().take(world.rank()).sum();
        Ok(Self { first, own, ranks: all.iter().sum(), world: Some(world) })
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
        self.first == 0
    }

    /// Ranks of all processes.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// The ranks of this process.
    pub const fn here(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.own
    }

    /// What every process has to say, in the order of their ranks; an error of one is one of all.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, own: Result<T>) -> Result<Vec<T>> {
        let Some(world) = &self.world else { return Ok(vec![own?]) };
        match own {
            Ok(own) => Ok(world.agree(Ok(own))?),
            Err(error) => {
                // The others have to hear of it; what they say does not matter any more.
                let _ = world.agree::<T>(Err(words(&error)));
                Err(error)
            }
        }
    }
}

/// The words of an error, to be told; the error itself, which may say more to this process, has to
/// be looked at before what others have told.
pub fn copy(error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}

fn words(error: &anyhow::Error) -> Error {
    Error::World(super::error::one_line(error))
}

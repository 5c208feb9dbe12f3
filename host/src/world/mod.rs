//! The processes of a job, which make groups together.

mod builder;

use crate::error::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use unisono_rendezvous::{Options, Rendezvous, Route, connect};

pub use builder::WorldBuilder;
pub use unisono_rendezvous::{Etcd, Interface, Launcher, Local, Meet, Seat};

/// All processes of one job. A launcher has started them (`unisono launch`, `mpirun`, `mpiexec`,
/// `srun`, `torchrun`), or the program itself knows its place ([`World::builder`]). Clones are the
/// same job.
///
/// What is done with it, making groups above all, all processes do in the same order.
///
/// ```no_run
/// use unisono::{Group, Sum, World};
///
/// # fn main() -> Result<(), unisono::Error> {
/// let world = World::from_env()?.expect("started by a launcher");
/// let mut group = Group::builder().world(&world).build()?;
/// group.run(|member| {
///     let mut gradient = member.tensor::<f32>(1_000_000)?;
///     member.all_reduce(&mut gradient, Sum)
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct World {
    rendezvous: Arc<Mutex<Rendezvous>>,
    seat: Arc<Seat>,
    near: bool,
    datagrams: bool,
    interface: Option<Interface>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seat", &self.seat).finish_non_exhaustive()
    }
}

impl World {
    /// The job that this process belongs to, by the environment variables of its launcher, once
    /// all its processes are there; `None` without a launcher.
    ///
    /// # Errors
    /// [`Error::World`]: variables that make no sense, ranks that do not come, strangers.
    pub fn from_env() -> Result<Option<Self>, Error> {
        Self::from_env_unless(Arc::default())
    }

    /// The same, but this and everything else that processes do together is given up soon after
    /// `stop` has become true: for programs that catch signals.
    ///
    /// # Errors
    /// As for [`World::from_env`].
    pub fn from_env_unless(stop: Arc<AtomicBool>) -> Result<Option<Self>, Error> {
        let Some(seat) = Seat::from_env()? else { return Ok(None) };
        let builder = Self::builder().seat(seat).secret_from_env()?;
        builder.interrupt(stop).build().map(Some)
    }

    /// A place that does not come from the environment.
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }

    /// Number of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.seat.rank
    }

    /// Processes of the job.
    #[must_use]
    pub fn size(&self) -> usize {
        self.seat.size
    }

    /// May processes of one host share memory? Otherwise they use TCP or UDP. All
    /// must say the same.
    #[must_use]
    pub const fn near(mut self, near: bool) -> Self {
        self.near = near;
        self
    }

    /// Do processes that share no memory use UDP instead of TCP? All must say the same.
    #[must_use]
    pub const fn datagrams(mut self, datagrams: bool) -> Self {
        self.datagrams = datagrams;
        self
    }

    pub(crate) const fn has_datagrams(&self) -> bool {
        self.datagrams
    }

    /// Links between hosts go through this interface only.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interface = Some(interface);
        self
    }

    fn rendezvous(&self) -> MutexGuard<'_, Rendezvous> {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every process has to say, by number. If it is an error anywhere, it is one everywhere.
    ///
    /// # Errors
    /// This process's own error, otherwise [`Error::World`].
    pub fn agree<T: Serialize + DeserializeOwned>(
        &self,
        own: Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let words = own.as_ref().map_err(|error| match error {
            // It is one there, too.
            Error::Build(text) => (true, text.clone()),
            error => (false, error.to_string()),
        });
        let words = serde_json::to_vec(&words).map_err(|e| Error::World(e.to_string()))?;
        let all = self.rendezvous().all_gather(&words)?;
        own?;
        let one = |(process, words): (usize, &Vec<u8>)| {
            let said: Result<Result<T, (bool, String)>, _> = serde_json::from_slice(words);
            let said = said.map_err(|error| (false, error.to_string())).flatten();
            said.map_err(|(build, text)| {
                let text = format!("process {process}: {text}");
                if build { Error::Build(text) } else { Error::World(text) }
            })
        };
        all.iter().enumerate().map(one).collect()
    }

    /// How many rounds are over: the same number in all processes that do the same.
    pub(crate) fn rounds(&self) -> u32 {
        self.rendezvous().rounds()
    }

    /// Tells all processes something, whatever they do; nobody waits for it, and it may be lost.
    pub(crate) fn note(&self, text: &[u8], patience: Duration) {
        if let Some(mut rendezvous) = self.idle() {
            rendezvous.note(text, patience);
        }
    }

    /// The first of the notes for which `find` finds something. Waits so long for one more; the
    /// flag says whether there is any use in asking again.
    pub(crate) fn heard<T>(
        &self,
        patience: Duration,
        find: impl FnMut(&[u8]) -> Option<T>,
    ) -> (Option<T>, bool) {
        let Some(mut rendezvous) = self.idle() else {
            std::thread::sleep(patience);
            return (None, true);
        };
        let more = rendezvous.listen_for_note(patience);
        (rendezvous.notes().map(|(_, text)| text).find_map(find), more)
    }

    /// The rendezvous, unless another thread is in a round.
    fn idle(&self) -> Option<MutexGuard<'_, Rendezvous>> {
        match self.rendezvous.try_lock() {
            Ok(rendezvous) => Some(rendezvous),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ways to all other processes, with so many streams to those that are not near.
    pub(crate) fn routes(&self, streams: usize) -> Result<Vec<Option<Route>>, Error> {
        let interface = match &self.interface {
            Some(interface) => Some(interface.clone()),
            None => Interface::from_env()?,
        };
        let (near, datagrams) = (self.near, self.datagrams);
        let options = Options { streams, near, datagrams, interface };
        Ok(connect(&mut self.rendezvous(), &options)?)
    }
}

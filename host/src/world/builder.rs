//! A place in a job that the program itself knows, from its arguments or a service of its own.

use super::World;
use crate::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use unisono_rendezvous::{Interface, Meet, Rendezvous, Seat, Secret};

/// How long the processes of a job wait for each other to come, if nobody says it.
const PATIENCE: Duration = Duration::from_secs(60);
/// A job at an address of its own needs no name.
const UNNAMED: &str = "unnamed";

/// Makes a [`World`] without a launcher: every process says which one it is.
///
/// ```
/// use unisono::{Group, Sum, World};
///
/// # fn main() -> Result<(), unisono::Error> {
/// # let (rank, size) = (0, 1);
/// # let root = "127.0.0.1:29641";
/// let world = World::builder().rank(rank).size(size).root(root).build()?;
/// let mut group = Group::builder().world(&world).build()?;
/// group.run(|member| member.all_reduce(&mut [1.0_f32; 8], Sum))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct WorldBuilder {
    seat: Option<Seat>,
    rank: Option<usize>,
    size: Option<usize>,
    root: String,
    job: Option<String>,
    /// Too short ones are refused at the end.
    secret: Option<Vec<u8>>,
    timeout: Duration,
    interrupt: Arc<AtomicBool>,
    near: bool,
    datagrams: bool,
    interface: Option<Interface>,
}

impl std::fmt::Debug for WorldBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        let (rank, size) = (self.rank, self.size);
        let mut shown = f.debug_struct("WorldBuilder");
        shown.field("seat", &self.seat).field("rank", &rank).field("size", &size);
        shown.field("root", &self.root).field("job", &self.job).finish_non_exhaustive()
    }
}

impl Default for WorldBuilder {
    fn default() -> Self {
        Self {
            seat: None,
            rank: None,
            size: None,
            root: "local".to_owned(),
            job: None,
            secret: None,
            timeout: PATIENCE,
            interrupt: Arc::default(),
            near: true,
            datagrams: false,
            interface: None,
        }
    }
}

impl WorldBuilder {
    /// Number of this process, from 0.
    pub const fn rank(mut self, rank: usize) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Processes of the job.
    pub const fn size(mut self, size: usize) -> Self {
        self.size = Some(size);
        self
    }

    /// Where process 0 is met: `HOST:PORT` or `[IPV6]:PORT`, an address of its host; `local`, if
    /// all are on this host (that is the default); or `etcd://HOST:PORT/PREFIX`, where it says by
    /// itself how it is reached (feature `etcd`).
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.root = root.into();
        self
    }

    /// A name that no other job has in the same place. Needed unless the root is an address.
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = Some(job.into());
        self
    }

    /// What all processes know and nobody else, 16 bytes at least. Needed beyond this host.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// The secret in UNISONO_SECRET or UNISONO_SECRET_FILE, if there is one.
    ///
    /// # Errors
    /// [`Error::World`]: one that is too short, or a file that cannot be read.
    pub fn secret_from_env(mut self) -> Result<Self, Error> {
        self.secret = Secret::from_env()?.map(|secret| secret.expose().to_vec());
        Ok(self)
    }

    /// How long to wait for the others, now and at every later step \[60 s\].
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Everything that processes do together is given up soon after this has become true.
    pub fn interrupt(mut self, flag: Arc<AtomicBool>) -> Self {
        self.interrupt = flag;
        self
    }

    /// As [`World::datagrams`].
    pub const fn datagrams(mut self, datagrams: bool) -> Self {
        self.datagrams = datagrams;
        self
    }

    /// As [`World::near`].
    pub const fn near(mut self, near: bool) -> Self {
        self.near = near;
        self
    }

    /// As [`World::interface`].
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interface = Some(interface);
        self
    }

    /// A place that something else has found, in place of rank, size, root and job.
    pub fn seat(mut self, seat: Seat) -> Self {
        self.seat = Some(seat);
        self
    }

    /// Waits until all processes have come.
    ///
    /// # Errors
    /// [`Error::World`]: a place that makes no sense, ranks that do not come, strangers.
    pub fn build(self) -> Result<World, Error> {
        let seat = match &self.seat {
            Some(seat) => seat.clone(),
            None => self.own_seat()?,
        };
        let secret = self.secret.as_deref().map(Secret::new).transpose()?;
        let joined = Rendezvous::join_unless(&seat, secret.as_ref(), self.timeout, self.interrupt)?;
        let rendezvous = Arc::new(Mutex::new(joined));
        let (near, datagrams, interface) = (self.near, self.datagrams, self.interface);
        Ok(World { rendezvous, seat: Arc::new(seat), near, datagrams, interface })
    }

    fn own_seat(&self) -> Result<Seat, Error> {
        let missing = |what: &str| Error::World(format!("World::builder: {what} is not set"));
        let rank = self.rank.ok_or_else(|| missing("rank"))?;
        let size = self.size.ok_or_else(|| missing("size"))?;
        let wrong = |why| Error::World(format!("World::builder: root {}: {why}", self.root));
        let meet: Meet = self.root.parse().map_err(wrong)?;
        let job = match (&self.job, &meet) {
            (Some(job), _) => job,
            (None, Meet::Tcp { .. }) => UNNAMED,
            (None, _) => return Err(missing("job, which tells jobs at the same root apart,")),
        };
        Ok(Seat::new(rank, size, job, meet)?)
    }
}

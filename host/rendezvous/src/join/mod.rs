//! A rank's side of the rendezvous.

mod notes;
mod way;

use crate::error::{Error, Failure, tame};
use crate::etcd::Lease;
use crate::handshake::Identity;
use crate::hub::Hub;
use crate::seat::Seat;
use crate::secret::{Key, Secret};
use crate::socket::Socket;
use crate::wire::{self, BLOB_MAX, DOWN_MAX, Down, Up};
use notes::Notes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use way::{Entry, is_on_one_host};

/// Longer than the hub's own deadline, so that what it says comes first.
const GRACE: Duration = Duration::from_secs(3);

/// A group of processes that have all come, and can send blobs around.
///
/// At rank 0 it holds the hub; keep it until the others need it no more, which they do not once
/// rank 0's last call has returned.
pub struct Rendezvous {
    pub(crate) me: Identity,
    pub(crate) timeout: Duration,
    /// Is the whole group on this host, by where it has met?
    pub(crate) on_one_host: bool,
    /// Of the way to rank 0: the address of this end and of the other one.
    pub(crate) ends: Option<(IpAddr, IpAddr)>,
    pub(crate) session: Key,
    socket: Socket,
    at: String,
    round: u32,
    notes: Notes,
    pub(crate) stop: Arc<AtomicBool>,
    // After the socket: the hub hears of this rank's end first.
    _hub: Option<Hub>,
    /// Its place at etcd, if ranks meet there; given back last.
    lease: Option<Lease>,
}

impl Rendezvous {
    /// Takes this process's seat, and waits until all have been taken. `deadline` is for this and
    /// for every later step.
    ///
    /// # Errors
    /// If a rank does not come in time (all that have come hear which), comes twice, means another
    /// group, or does not know the secret; and if the group would meet on a network without one.
    pub fn join(seat: &Seat, secret: Option<&Secret>, deadline: Duration) -> Result<Self, Error> {
        Self::join_unless(seat, secret, deadline, Arc::default())
    }

    /// As [`Self::join`], but this and every later step give up soon after `stop` has become true:
    /// for programs that catch signals.
    ///
    /// # Errors
    /// As [`Self::join`], and [`Error::Interrupted`].
    pub fn join_unless(
        seat: &Seat,
        secret: Option<&Secret>,
        deadline: Duration,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let until = Instant::now() + deadline;
        let on_one_host = is_on_one_host(&seat.meet);
        if !on_one_host && secret.is_none() {
            return Err(Error::Secret(format!(
                "rank 0 is met at {}, which others can reach: give all ranks the same \
                 UNISONO_SECRET or UNISONO_SECRET_FILE (`unisono launch` does)",
                seat.meet
            )));
        }
        let me = Identity {
            key: Key::new(secret),
            secret: secret.is_some(),
            job: seat.job.clone(),
            rank: seat.rank as u32,
            size: seat.size as u32,
        };
        let Entry { socket, at, hub, lease } = way::enter(seat, &me, (deadline, until), &stop)?;
        let ends = socket.ends();
        let mut new = Self {
            session: me.key.clone(),
            me,
            timeout: deadline,
            on_one_host,
            ends,
            socket,
            at,
            round: 0,
            notes: Notes::default(),
            stop,
            _hub: hub,
            lease,
        };
        let bytes = new.listen(until, Lease::awaits_root)?;
        match wire::decode(&bytes) {
            Ok(Down::Complete { nonce }) => new.session = new.me.key.session(&nonce),
            Ok(Down::Failed(failure)) => return Err(Error::Group(failure)),
            _ => return Err(Error::io("waiting for the group")(wire::bad("no such answer"))),
        }
        if let Some(lease) = &new.lease {
            lease.check()?;
            lease.complete();
        }
        Ok(new)
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        self.me.rank as usize
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.me.size as usize
    }

    /// Gives a blob of at most [`BLOB_MAX`] bytes to everybody; returns those of all ranks, in
    /// their order. All ranks must call it the same number of times.
    ///
    /// # Errors
    /// If the blob is too long, or a rank is gone or does not call in time.
    pub fn all_gather(&mut self, blob: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if blob.len() > BLOB_MAX {
            return Err(Error::TooLarge { bytes: blob.len(), max: BLOB_MAX });
        }
        let up = Up::Blob { round: self.round, blob };
        // If it is closed, a reason may still be there to read.
        let sent = wire::send(&mut self.socket, &up);
        // What has begun goes on without a lease.
        let bytes = self.listen(Instant::now() + self.timeout, |_| Ok(()))?;
        let answer = wire::decode(&bytes);
        if let Ok(Down::Failed(failure)) = answer {
            return Err(Error::Group(failure));
        }
        sent.map_err(Error::io(format!("sending to rank 0 at {}", self.at)))?;
        let blobs = match answer {
            Ok(Down::Gathered(blobs)) if blobs.len() == self.size() => blobs,
            _ => return Err(Error::io("gathering blobs")(wire::bad("no such answer"))),
        };
        self.round += 1;
        Ok(blobs.into_iter().map(<[u8]>::to_vec).collect())
    }

    /// Returns once all ranks have called it.
    ///
    /// # Errors
    /// As [`Self::all_gather`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.all_gather(&[]).map(drop)
    }

    /// All ranks call it before they begin something new: a rank that has lost its lease may have
    /// been replaced.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let why = lease.check().err().map_or_else(String::new, |error| error.to_string());
        let said = self.all_gather(why.as_bytes())?;
        let ranks: Vec<u32> =
            (0..).zip(&said).filter(|(_, s)| !s.is_empty()).map(|s| s.0).collect();
        let Some(first) = ranks.first() else { return Ok(()) };
        let why = tame(&String::from_utf8_lossy(&said[*first as usize]));
        Err(Error::Group(Failure::Fenced { ranks, why }))
    }

    /// The next message that is no note.
    fn listen(
        &mut self,
        until: Instant,
        lease: impl Fn(&Lease) -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        loop {
            let bytes = match self.notes.take_early() {
                Some(early) => early,
                None => {
                    self.wait(until + GRACE, &lease)?;
                    self.receive(until + GRACE)?
                }
            };
            if !self.notes.keep(&bytes) {
                return Ok(bytes);
            }
        }
    }

    fn receive(&mut self, until: Instant) -> Result<Vec<u8>, Error> {
        let bytes = wire::receive(&mut self.socket, DOWN_MAX, Some(until));
        bytes.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Error::Group(Failure::Gone { rank: 0 }),
            _ => Error::io(format!("waiting for rank 0 at {}", self.at))(error),
        })
    }
}

impl Rendezvous {
    /// Until there is something to read, or nothing more to wait for.
    fn wait(
        &self,
        until: Instant,
        lease: impl Fn(&Lease) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let step = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while Instant::now() < until {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            self.lease.as_ref().map_or(Ok(()), &lease)?;
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // A signal may cut it short: then the flag is looked at again.
            if poll(&mut fds, Some(&step)).is_ok_and(|ready| ready > 0) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seat::Meet;
    use std::thread;

    #[test]
    fn a_stop_ends_every_wait() {
        let job = format!("stop-{}", std::process::id());
        for rank in [0, 1] {
            // Rank 0 waits for the other one, rank 1 for rank 0.
            let seat = Seat::new(rank, 2, &job, Meet::Local).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let flag = stop.clone();
            let long = Duration::from_secs(600);
            let waits =
                thread::spawn(move || Rendezvous::join_unless(&seat, None, long, flag).err());
            thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
            assert!(matches!(waits.join().unwrap(), Some(Error::Interrupted)), "rank {rank}");
        }
    }

    #[test]
    fn only_loopback_and_sockets_are_on_one_host() {
        let on_one =
            |host: &str| is_on_one_host(&Meet::Tcp { host: host.into(), port: 1, ports: 1 });
        assert!(["localhost", "127.0.0.1", "127.0.1.1", "::1"].into_iter().all(on_one));
        assert!(!["10.0.0.1", "0.0.0.0", "::", "node1", "localhost.evil"].into_iter().any(on_one));
        assert!(is_on_one_host(&Meet::Local));
    }
}

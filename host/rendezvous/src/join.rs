//! A rank's side of the rendezvous.

use crate::error::{Error, Failure};
use crate::handshake::{self, Identity, Turned};
use crate::hub::Hub;
use crate::place;
use crate::seat::{Meet, Seat};
use crate::secret::{Key, Secret, hex};
use crate::socket::{Listener, Socket, connect_abstract};
use crate::wire::{self, BLOB_MAX, DOWN_MAX, Down, Purpose, Up};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sha2::{Digest, Sha256};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than the hub's own deadline, so that what it says comes first.
const GRACE: Duration = Duration::from_secs(3);
/// One try to connect. A host that does not answer must leave time for the next address.
const TRY: Duration = Duration::from_secs(2);
/// One greeting: a port may belong to something that never says a word.
const GREETING: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

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
    pub(crate) stop: Arc<AtomicBool>,
    // Last: the hub hears of this rank's end first.
    _hub: Option<Hub>,
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
        let mut at = seat.meet.to_string();
        let mut way = Way::To(seat.meet.clone(), socket_name(&seat.job));
        let mut hub = None;
        if seat.rank == 0 {
            let (listener, own) = listen(seat)?;
            at = match &own {
                Way::Own(here) if here.ip().is_loopback() && on_one_host => here.to_string(),
                Way::Own(here) => match &seat.meet {
                    Meet::Tcp { host, .. } => {
                        let meet = Meet::Tcp { host: host.clone(), port: here.port(), ports: 1 };
                        format!("{meet} (host {})", place::host_name())
                    }
                    Meet::Local => at,
                },
                Way::To(..) => at,
            };
            hub = Some(Hub::start(listener, Arc::new(me.clone()), at.clone(), deadline)?);
            way = own;
        }
        let socket = reach(&way, &me, &at, deadline, until, &stop)?;
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
            stop,
            _hub: hub,
        };
        let bytes = new.listen(until)?;
        match wire::decode(&bytes) {
            Ok(Down::Complete { nonce }) => new.session = new.me.key.session(&nonce),
            Ok(Down::Failed(failure)) => return Err(Error::Group(failure)),
            _ => return Err(Error::io("waiting for the group")(wire::bad("no such answer"))),
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
        let up = Up { round: self.round, blob };
        // If it is closed, a reason may still be there to read.
        let sent = wire::send(&mut self.socket, &up);
        let bytes = self.listen(Instant::now() + self.timeout)?;
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

    fn listen(&mut self, until: Instant) -> Result<Vec<u8>, Error> {
        self.wait(until + GRACE)?;
        let bytes = wire::receive(&mut self.socket, DOWN_MAX, Some(until + GRACE));
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
    fn wait(&self, until: Instant) -> Result<(), Error> {
        let step = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while Instant::now() < until {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // A signal may cut it short: then the flag is looked at again.
            if poll(&mut fds, Some(&step)).is_ok_and(|ready| ready > 0) {
                break;
            }
        }
        Ok(())
    }
}

/// How to get to the hub.
enum Way {
    /// By what the seat says, and the name for a Unix socket.
    To(Meet, String),
    /// It is this process's own.
    Own(SocketAddr),
}

fn is_on_one_host(meet: &Meet) -> bool {
    match meet {
        Meet::Local => true,
        Meet::Tcp { host, .. } => {
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
    }
}

/// The job's name may be too long for an address, and hold anything.
fn socket_name(job: &str) -> String {
    let user = rustix::process::geteuid().as_raw();
    format!("unisono-{user}-{}", &hex(&Sha256::digest(job.as_bytes()))[..32])
}

/// Rank 0's socket, and how rank 0 itself gets to it.
fn listen(seat: &Seat) -> Result<(Listener, Way), Error> {
    let Meet::Tcp { host, port, ports } = &seat.meet else {
        let name = socket_name(&seat.job);
        let listener = Listener::abstract_socket(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::Refused {
                at: seat.meet.to_string(),
                rank: 0,
                why: format!("there is a rank 0 of job {} already", seat.job),
            },
            _ => Error::io("meeting on a Unix socket")(error),
        })?;
        return Ok((listener, Way::To(Meet::Local, name)));
    };
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in (*port..=u16::MAX).take(usize::from(*ports)) {
        for ip in own_ips(host) {
            match TcpListener::bind((ip, port)).and_then(|l| Ok((l.local_addr()?, l))) {
                Ok((mut here, listener)) => {
                    match here.ip() {
                        IpAddr::V4(ip) if ip.is_unspecified() => {
                            here.set_ip(Ipv4Addr::LOCALHOST.into());
                        }
                        IpAddr::V6(ip) if ip.is_unspecified() => {
                            here.set_ip(Ipv4Addr::LOCALHOST.into());
                        }
                        _ => {}
                    }
                    return Ok((Listener::Tcp(listener), Way::Own(here)));
                }
                // Another address would be another place: the port is what must be free.
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                    last = e;
                    break;
                }
                Err(e) => last = e,
            }
        }
    }
    Err(Error::io(format!("waiting for ranks at {}", seat.meet))(last))
}

/// What to listen on. A name may lead to an address that only this host understands (Debian gives
/// a host's own name 127.0.1.1), and an address may belong to a router in front: then on all.
fn own_ips(host: &str) -> Vec<IpAddr> {
    let everywhere = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => vec![ip],
        Ok(ip) => [ip].into_iter().chain(everywhere).collect(),
        Err(_) if host == "localhost" => vec![Ipv4Addr::LOCALHOST.into()],
        Err(_) => everywhere.to_vec(),
    }
}

/// Connects to the hub, which may start later than this process.
fn reach(
    way: &Way,
    me: &Identity,
    at: &str,
    waited: Duration,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Socket, Error> {
    let mut last = "it says nothing".to_owned();
    while Instant::now() < until {
        for open in openers(way, &mut last) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            let error = match open(left.min(TRY)).map_err(Turned::Io).and_then(|mut socket| {
                let greeting = Instant::now() + left.min(GREETING);
                handshake::connect(&mut socket, me, Purpose::Join, left, greeting)?;
                Ok(socket)
            }) {
                Ok(socket) => return Ok(socket),
                Err(error) => error,
            };
            match error {
                Turned::Refused { .. } | Turned::Secret => {
                    let (at, rank) = (at.to_owned(), me.rank as usize);
                    return Err(Error::Refused { at, rank, why: error.to_string() });
                }
                // The end of our own time says less than what was wrong before.
                Turned::Io(e) if e.kind() == io::ErrorKind::TimedOut && left < TRY => {}
                error => last = error.to_string(),
            }
        }
        thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
    }
    Err(Error::NoHub { at: at.to_owned(), waited, last })
}

type Opener = Box<dyn FnOnce(Duration) -> io::Result<Socket>>;

/// What to try, in this order. Names are looked up each time: they may appear with their hosts.
fn openers(way: &Way, last: &mut String) -> Vec<Opener> {
    let tcp = |to: SocketAddr| -> Opener {
        Box::new(move |time| {
            let time = time.max(Duration::from_millis(1));
            Socket::Tcp(TcpStream::connect_timeout(&to, time)?).prepare()
        })
    };
    match way {
        Way::Own(here) => vec![tcp(*here)],
        Way::To(Meet::Local, name) => {
            let name = name.clone();
            vec![Box::new(move |time| connect_abstract(&name, Instant::now() + time))]
        }
        Way::To(Meet::Tcp { host, port, ports }, _) => {
            let mut all = Vec::new();
            for port in (*port..=u16::MAX).take(usize::from(*ports)) {
                match (host.as_str(), port).to_socket_addrs() {
                    Ok(found) => all.extend(found.map(tcp)),
                    Err(e) => *last = format!("{host} is not found: {e}"),
                }
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! The way to rank 0's hub: where it listens, and how the others get there.

use crate::error::Error;
use crate::etcd::Lease;
use crate::handshake::{self, Identity, Turned};
use crate::hub::Hub;
use crate::place;
use crate::seat::{Meet, Seat};
use crate::secret::hex;
use crate::socket::{Listener, Socket, connect_abstract};
use crate::wire::Purpose;
use sha2::{Digest, Sha256};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One try to connect. A host that does not answer must leave time for the next address.
const TRY: Duration = Duration::from_secs(2);
/// One greeting: a port may belong to something that never says a word.
const GREETING: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// A rank that rank 0 has taken in.
pub struct Entry {
    pub socket: Socket,
    /// Where rank 0 is met, for messages.
    pub at: String,
    /// At rank 0.
    pub hub: Option<Hub>,
    /// If ranks meet by way of etcd.
    pub lease: Option<Lease>,
}

/// Opens the hub at rank 0, and gets to it. `times`: how long this rank waits in all, and until
/// when.
pub fn enter(
    seat: &Seat,
    me: &Identity,
    times: (Duration, Instant),
    stop: &AtomicBool,
) -> Result<Entry, Error> {
    let mut at = seat.meet.to_string();
    let mut way = Way::To(seat.meet.clone(), socket_name(&seat.job));
    let mut hub = None;
    if seat.rank == 0 {
        let (listener, own) = listen(seat)?;
        at = shown(seat, &own);
        hub = Some(Hub::start(listener, Arc::new(me.clone()), at.clone(), times.0)?);
        way = own;
    }
    let mut lease = None;
    if let Meet::Etcd(etcd) = &seat.meet {
        let published = match (&way, &hub) {
            (Way::Own(here), Some(hub)) => Some((here.port(), hub.lapsed())),
            _ => None,
        };
        lease = Some(Lease::take(etcd, me, published, times, stop)?);
    }
    let socket = reach(&way, lease.as_ref(), me, &at, times, stop)?;
    Ok(Entry { socket, at, hub, lease })
}

/// Where rank 0 waits, for messages.
fn shown(seat: &Seat, own: &Way) -> String {
    match (own, &seat.meet) {
        (Way::Own(here), Meet::Tcp { host, .. }) => {
            if here.ip().is_loopback() && is_on_one_host(&seat.meet) {
                return here.to_string();
            }
            let meet = Meet::Tcp { host: host.clone(), port: here.port(), ports: 1 };
            format!("{meet} (host {})", place::host_name())
        }
        (_, meet) => meet.to_string(),
    }
}

/// How to get to the hub.
enum Way {
    /// By what the seat says, and the name for a Unix socket.
    To(Meet, String),
    /// It is this process's own.
    Own(SocketAddr),
}

/// Does the address of rank 0 lead to this host only?
pub fn is_on_one_host(meet: &Meet) -> bool {
    match meet {
        Meet::Local => true,
        Meet::Etcd(_) => false,
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
    match &seat.meet {
        Meet::Local => {
            let name = socket_name(&seat.job);
            let listener =
                Listener::abstract_socket(&name).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => Error::Refused {
                        at: seat.meet.to_string(),
                        rank: 0,
                        why: format!("there is a rank 0 of job {} already", seat.job),
                    },
                    _ => Error::io("meeting on a Unix socket")(error),
                })?;
            Ok((listener, Way::To(Meet::Local, name)))
        }
        Meet::Tcp { host, port, ports } => {
            let ports = (*port..=u16::MAX).take(usize::from(*ports));
            listen_on(&own_ips(host), ports).map_err(Error::io(waiting(&seat.meet)))
        }
        // The others are told the port.
        Meet::Etcd(_) => {
            listen_on(&EVERYWHERE, std::iter::once(0)).map_err(Error::io(waiting(&seat.meet)))
        }
    }
}

fn waiting(meet: &Meet) -> String {
    format!("waiting for ranks at {meet}")
}

/// The first port that is free on the first address that works.
fn listen_on(ips: &[IpAddr], ports: impl Iterator<Item = u16>) -> io::Result<(Listener, Way)> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in ports {
        for ip in ips {
            match TcpListener::bind((*ip, port)).and_then(|l| Ok((l.local_addr()?, l))) {
                Ok((mut here, listener)) => {
                    if here.ip().is_unspecified() {
                        here.set_ip(Ipv4Addr::LOCALHOST.into());
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
    Err(last)
}

/// With IPv6, IPv4 comes to the same socket.
const EVERYWHERE: [IpAddr; 2] =
    [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];

/// What to listen on. A name may lead to an address that only this host understands (Debian gives
/// a host's own name 127.0.1.1), and an address may belong to a router in front: then on all.
fn own_ips(host: &str) -> Vec<IpAddr> {
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => vec![ip],
        Ok(ip) => [ip].into_iter().chain(EVERYWHERE).collect(),
        Err(_) if host == "localhost" => vec![Ipv4Addr::LOCALHOST.into()],
        Err(_) => EVERYWHERE.to_vec(),
    }
}

/// Connects to the hub, which may start later than this process.
fn reach(
    way: &Way,
    lease: Option<&Lease>,
    me: &Identity,
    at: &str,
    (waited, until): (Duration, Instant),
    stop: &AtomicBool,
) -> Result<Socket, Error> {
    let mut last = "it says nothing".to_owned();
    while Instant::now() < until {
        if let Some(lease) = lease {
            lease.check()?;
        }
        for open in openers(way, lease, &mut last) {
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
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
    }
    Err(Error::NoHub { at: at.to_owned(), waited, last })
}

/// Tries one way within a time.
type Opener = Box<dyn FnOnce(Duration) -> io::Result<Socket>>;

/// What to try, in this order. Names are looked up each time: they may appear with their hosts.
fn openers(way: &Way, lease: Option<&Lease>, last: &mut String) -> Vec<Opener> {
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
        // Looked up each time, too: rank 0 may come, or come again.
        Way::To(Meet::Etcd(_), _) => match lease.map(Lease::root) {
            Some(Ok(found)) => found.into_iter().map(tcp).collect(),
            Some(Err(why)) => {
                *last = why;
                Vec::new()
            }
            None => Vec::new(),
        },
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

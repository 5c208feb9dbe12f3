//! Connecting to lower ranks.

use super::{Card, Route};
use crate::handshake::{self, Identity, Turned};
use crate::join::Rendezvous;
use crate::place::Address;
use crate::socket::{Socket, connect_abstract};
use crate::wire::{Purpose, bad};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// One address has so long.
const TRY: Duration = Duration::from_secs(2);
/// So often, in all, if packets get lost: one that opens a connection is sent again after a second,
/// and the next one after two more.
const PASSES: usize = 3;
/// More streams to an address that has given one: each is tried so often.
const AGAIN: usize = 5;
/// Peers at once: one that cannot be reached does not keep the others waiting.
const AT_ONCE: usize = 32;
/// Longest text of a failure: those of all peers must fit into one blob.
const WHY_MAX: usize = 300;
/// Failures that are told in full.
const WHYS_MAX: usize = 32;

/// One result for each rank below this one.
pub fn lower_ranks(
    group: &Rendezvous,
    me: &Identity,
    cards: &[Card],
    own: &[Address],
) -> Vec<Result<Route, String>> {
    // The others wait in the next round, whose time begins with the first of them.
    let until = Instant::now() + group.timeout.mul_f32(0.75);
    let rank = me.rank as usize;
    let mut all = Vec::new();
    let dial = |peer: usize| {
        let order = order(group, peer, &cards[rank], &cards[peer], own);
        if group.stop.load(Ordering::Relaxed) {
            return Err("it was interrupted".to_owned());
        }
        one(me, peer as u32, &cards[rank], &cards[peer], &order, until)
    };
    for first in (0..rank).step_by(AT_ONCE) {
        thread::scope(|scope| {
            let peers = first..rank.min(first + AT_ONCE);
            let tries: Vec<_> = peers.map(|peer| scope.spawn(move || dial(peer))).collect();
            let ended = |t: thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|_| Err("the thread for it has panicked".to_owned()))
            };
            all.extend(tries.into_iter().map(ended));
        });
    }
    let failures = all.iter_mut().filter_map(|r| r.as_mut().err());
    for (n, why) in failures.enumerate() {
        let most = if n < WHYS_MAX { WHY_MAX } else { 0 };
        *why = why.chars().take(most).collect();
    }
    all
}

/// The peer's addresses in the order to try: the way that rank 0 is known by, those in a network of
/// this host, the others. Loopback is only tried on the same host.
fn order(
    group: &Rendezvous,
    peer: usize,
    mine: &Card,
    card: &Card,
    own: &[Address],
) -> Vec<IpAddr> {
    let known = group.ends.map(|(_, there)| there);
    let same_host = mine.host == card.host;
    let mut all: Vec<IpAddr> =
        card.addresses.iter().copied().filter(|ip| same_host || !ip.is_loopback()).collect();
    let distance = |ip: &IpAddr| match ip {
        _ if ip.is_loopback() => 3,
        ip if peer == 0 && known == Some(*ip) => 0,
        ip if own.iter().any(|a| a.is_beside(*ip)) => 1,
        _ => 2,
    };
    all.sort_by_key(distance);
    all
}

fn one(
    me: &Identity,
    peer: u32,
    mine: &Card,
    card: &Card,
    order: &[IpAddr],
    until: Instant,
) -> Result<Route, String> {
    let link = |near, stream| Purpose::Link { to: peer, card: card.nonce, near, stream };
    let greet = |mut socket: Socket, purpose| -> io::Result<Socket> {
        let until = until.min(Instant::now() + TRY);
        handshake::connect(&mut socket, me, purpose, TRY, until).map_err(|why| match why {
            Turned::Io(error) => error,
            why => io::Error::other(why),
        })?;
        Ok(socket)
    };
    if mine.near && !mine.host.is_empty() && mine.host == card.host {
        let socket = connect_abstract(&card.socket_name(), until.min(Instant::now() + TRY));
        match socket.and_then(|s| greet(s, link(true, 0))).and_then(|s| route(vec![s], 1)) {
            Ok(route) => return Ok(route),
            // Another network namespace, or another user.
            Err(e) => tracing::debug!("rank {peer} is on this host, but not near: {e}"),
        }
    }
    let mut tried = Vec::new();
    for pass in 0..PASSES {
        tried.clear();
        let mut late = false;
        for ip in order {
            let to = SocketAddr::new(*ip, card.port);
            match streams(to, until, usize::from(card.streams), |s, n| greet(s, link(false, n))) {
                Ok(route) => return Ok(route),
                Err(e) => {
                    late |= e.kind() == io::ErrorKind::TimedOut;
                    tried.push(format!("{to}: {e}"));
                }
            }
        }
        if !late || Instant::now() >= until {
            break;
        }
        tracing::debug!("rank {peer} is not reached in pass {pass}: {}", tried.join(", "));
    }
    match tried.is_empty() {
        true => Err("it has no address that could be tried".to_owned()),
        false => Err(tried.join(", ")),
    }
}

/// So many streams to one address.
fn streams(
    to: SocketAddr,
    until: Instant,
    count: usize,
    greet: impl Fn(Socket, u16) -> io::Result<Socket>,
) -> io::Result<Route> {
    let open = |stream| {
        let left = until.saturating_duration_since(Instant::now()).min(TRY);
        if left.is_zero() {
            return Err(io::Error::other("no time left"));
        }
        greet(Socket::Tcp(TcpStream::connect_timeout(&to, left)?).prepare()?, stream)
    };
    let mut all = Vec::new();
    for stream in 0..count as u16 {
        let mut tries = if stream == 0 { 1 } else { AGAIN };
        all.push(loop {
            tries -= 1;
            match open(stream) {
                Err(e) if tries > 0 && e.kind() == io::ErrorKind::TimedOut => {}
                done => break done?,
            }
        });
    }
    route(all, count)
}

/// So many sockets as a route.
pub fn route(sockets: Vec<Socket>, wanted: usize) -> io::Result<Route> {
    if sockets.len() != wanted {
        return Err(bad(&format!("{} of {wanted} connections", sockets.len())));
    }
    let mut streams = Vec::new();
    for socket in sockets {
        match socket.release()? {
            Socket::Unix(stream) => return Ok(Route::Near(stream)),
            Socket::Tcp(stream) => streams.push(stream),
        }
    }
    let address = streams.first().ok_or_else(|| bad("no connection"))?.peer_addr()?;
    Ok(Route::Far { streams, address })
}

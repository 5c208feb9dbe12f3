//! UDP sockets between ranks that are connected by TCP already.
//!
//! ```text
//! over the stream     Greeting { port, nonce }   both ways: where each listens
//! over UDP            a proof of both nonces     again and again, until
//! over the stream     Heard                      the other side says that it has come
//! ```
//!
//! So a pair has datagrams only if they really pass, both ways: a firewall may let streams through
//! and nothing else. The stream stays with the socket, as its *lifeline*: it ends when the other
//! process does, however that happens.

use super::{Datagrams, Route};
use crate::error::{Error, Failure};
use crate::join::Rendezvous;
use crate::secret::{TAG, random};
use crate::socket::Socket;
use crate::wire::{self, STRANGER_MAX, bad};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// All pairs of a rank together have so long to hear each other.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries: even with half of the packets lost, hundreds come through.
const PAUSE: Duration = Duration::from_millis(10);

/// Where a rank listens.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Greeting {
    port: u16,
    nonce: [u8; TAG],
}

/// The other side's datagrams come through.
#[derive(Serialize, Deserialize)]
struct Heard;

/// A pair on its way.
struct Pair {
    peer: usize,
    stream: Socket,
    udp: UdpSocket,
    own: Greeting,
    /// What this side sends, and what it waits for.
    hellos: [[u8; TAG]; 2],
    token: [u8; TAG],
    heard: bool,
    /// The other side has said that it hears this one.
    told: bool,
}

/// Turns the streams of these routes into datagrams; every rank must call it.
///
/// # Errors
/// On all ranks the same, if any pair does not hear each other.
pub fn open(group: &mut Rendezvous, routes: &mut [Option<Route>]) -> Result<(), Error> {
    let until = Instant::now() + PATIENCE.min(group.timeout.mul_f32(0.75));
    let opened = all(group, routes, until);
    let failed: Vec<String> = match &opened {
        Ok(_) => Vec::new(),
        Err((peer, error)) => vec![format!(
            "rank {} and rank {peer} have no datagrams between them: {error}",
            group.rank()
        )],
    };
    let pairs: Vec<String> = super::gather(group, &failed)?.into_iter().flatten().collect();
    if !pairs.is_empty() {
        return Err(Error::Group(Failure::Unreachable { pairs }));
    }
    for pair in opened.into_iter().flatten() {
        if let Some(Some(Route::Datagrams(all))) = routes.get_mut(pair.peer) {
            all.push(pair.done().map_err(Error::io("setting up datagrams"))?);
        }
    }
    Ok(())
}

type Failed = (usize, io::Error);

fn all(
    group: &Rendezvous,
    routes: &mut [Option<Route>],
    until: Instant,
) -> Result<Vec<Pair>, Failed> {
    let mut pairs = Vec::new();
    for (peer, route) in routes.iter_mut().enumerate() {
        let Some(Route::Far { streams, .. }) = route else { continue };
        for stream in std::mem::take(streams) {
            pairs.push(Pair::begin(peer, stream).map_err(|e| (peer, e))?);
        }
        *route = Some(Route::Datagrams(Vec::new()));
    }
    // What all have said already is not waited for in any order.
    for pair in &mut pairs {
        pair.meet(group, until).map_err(|e| (pair.peer, e))?;
    }
    loop {
        let mut waiting = None;
        for pair in &mut pairs {
            if !pair.turn(until).map_err(|e| (pair.peer, e))? {
                waiting = Some((pair.peer, pair.heard));
            }
        }
        let Some((peer, heard)) = waiting else { return Ok(pairs) };
        if group.stop.load(Ordering::Relaxed) {
            return Err((peer, io::Error::other("interrupted")));
        }
        if Instant::now() >= until {
            let way = if heard { "to" } else { "from" };
            let text = format!("none comes through {way} it; is there a firewall?");
            return Err((peer, io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        thread::sleep(PAUSE);
    }
}

impl Pair {
    /// Opens a socket at the address that the stream has here, and says where it is.
    fn begin(peer: usize, stream: TcpStream) -> io::Result<Self> {
        let udp = UdpSocket::bind(at(stream.local_addr()?, 0))?;
        udp.set_nonblocking(true)?;
        let nonce = random().map_err(io::Error::other)?;
        let own = Greeting { port: udp.local_addr()?.port(), nonce };
        let mut stream = Socket::Tcp(stream).prepare()?;
        wire::send(&mut stream, &own)?;
        let (hellos, token) = ([[0; TAG]; 2], [0; TAG]);
        Ok(Self { peer, stream, udp, own, hellos, token, heard: false, told: false })
    }

    /// Hears where the peer is.
    fn meet(&mut self, group: &Rendezvous, until: Instant) -> io::Result<()> {
        let theirs: Greeting = wire::receive_as(&mut self.stream, STRANGER_MAX, until)?;
        let Socket::Tcp(stream) = &self.stream else { return Err(bad("is no stream")) };
        self.udp.connect(at(stream.peer_addr()?, theirs.port))?;
        let (mine, other) = (&self.own.nonce, &theirs.nonce);
        let proof = |what: &[u8], a: &[u8], b: &[u8]| group.session.proof(&[what, a, b]);
        self.hellos = [proof(b"hello", mine, other), proof(b"hello", other, mine)];
        let (low, high) = if group.rank() < self.peer { (mine, other) } else { (other, mine) };
        self.token = proof(b"datagrams", low, high);
        Ok(())
    }

    /// One more try; true once both sides hear each other.
    fn turn(&mut self, until: Instant) -> io::Result<bool> {
        if !self.told {
            // Not there yet, no room, no way for now: the next one may do.
            let _ = self.udp.send(&self.hellos[0]);
        }
        let mut room = [0; TAG + 1];
        while !self.heard
            && let Ok(len) = self.udp.recv(&mut room)
        {
            self.heard = room.get(..len) == Some(&self.hellos[1][..]);
            if self.heard {
                wire::send(&mut self.stream, &Heard)?;
            }
        }
        if !self.told {
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                let Heard = wire::receive_as(&mut self.stream, STRANGER_MAX, until)?;
                self.told = true;
            }
        }
        Ok(self.heard && self.told)
    }

    fn done(self) -> io::Result<Datagrams> {
        let word = |at: usize| {
            let bytes = self.token.get(at..).and_then(<[u8]>::first_chunk);
            bytes.copied().map_or(0, u32::from_le_bytes)
        };
        let (session, first) = (word(0), word(4));
        let Socket::Tcp(lifeline) = self.stream.release()? else { return Err(bad("is no stream")) };
        Ok(Datagrams { socket: self.udp, lifeline, session, first })
    }
}

/// The same address with another port: IPv4 as such, and with its interface if it has one.
fn at(mut address: SocketAddr, port: u16) -> SocketAddr {
    let ip = address.ip().to_canonical();
    if ip != address.ip() {
        address = SocketAddr::new(ip, port);
    }
    address.set_port(port);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_what_they_are() {
        let shown = |text: &str| at(text.parse().unwrap(), 7).to_string();
        assert_eq!(shown("[::ffff:10.0.0.1]:99"), "10.0.0.1:7");
        assert_eq!(shown("10.0.0.1:99"), "10.0.0.1:7");
        assert_eq!(shown("[fe80::1%3]:99"), "[fe80::1%3]:7");
    }
}

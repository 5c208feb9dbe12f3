//! One route for each pair of ranks, over what really works between them.
//!
//! Every rank publishes a card: its host, a nonce, a port and its addresses. Of each pair the
//! higher rank connects: to a Unix socket if both share a host, else to one address after the
//! other. Each connection proves job, rank and session, and names the card that it is meant for:
//! one that leads elsewhere (the same bridge on every host, a VPN, this very process) is noticed.
//! Then all tell all how that went, so that every rank has the same routes or the same error.

mod datagrams;
mod dial;
mod guests;
mod interface;

pub use interface::Interface;

use crate::door::Door;
use crate::error::{Error, Failure};
use crate::handshake::Identity;
use crate::join::Rendezvous;
use crate::place::{self, Address};
use crate::secret::{TAG, hex, random};
use crate::socket::Listener;
use crate::wire;
use guests::Guests;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// How ranks are to be connected; must be the same on all, but for the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// May ranks on one host use a Unix socket (and with it, shared memory)? Else TCP there too.
    pub near: bool,
    /// TCP connections for each pair, 1 to 4096.
    pub streams: usize,
    /// Is every TCP connection to get a UDP socket beside it?
    pub datagrams: bool,
    /// The network to use, if not whatever works.
    pub interface: Option<Interface>,
}

impl Default for Options {
    fn default() -> Self {
        Self { near: true, streams: 1, datagrams: false, interface: None }
    }
}

impl Options {
    /// As by default, with the interface that UNISONO_INTERFACE names.
    ///
    /// # Errors
    /// If it is set to what is neither an interface nor a network.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self { interface: Interface::from_env()?, ..Self::default() })
    }
}

/// A way to a peer, connected, checked, blocking and without timeouts.
#[derive(Debug)]
pub enum Route {
    /// The peer is on this host, and belongs to the same user.
    Near(UnixStream),
    /// The peer is reached over TCP, with `TCP_NODELAY` set.
    Far {
        /// As many as asked for; the n-th here is the n-th there.
        streams: Vec<TcpStream>,
        /// The peer's end of the first.
        address: SocketAddr,
    },
    /// The peer is reached by UDP, as many times as there were to be streams.
    Datagrams(Vec<Datagrams>),
}

/// A UDP socket through which datagrams have passed, both ways.
#[derive(Debug)]
pub struct Datagrams {
    /// Connected to the peer's; does not block.
    pub socket: UdpSocket,
    /// A stream to the same process, on which nothing is sent any more: it ends with that process.
    pub lifeline: TcpStream,
    /// Chosen for this socket, the same at both ends: what strangers send does not have it.
    pub session: u32,
    /// A second such number.
    pub first: u32,
}

/// Most connections of a pair: one for each call in flight of each pair of their members.
const STREAMS_MAX: usize = 4096;
/// Most addresses of a host that are published.
const ADDRESSES_MAX: usize = 32;

/// What a rank says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Card {
    host: String,
    nonce: [u8; TAG],
    port: u16,
    addresses: Vec<IpAddr>,
    near: bool,
    streams: u16,
    datagrams: bool,
}

impl Card {
    /// Of its Unix socket.
    fn socket_name(&self) -> String {
        format!("unisono-link-{}", hex(&self.nonce))
    }
}

/// How a lower rank was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Told {
    Near,
    Far,
    Failed(String),
}

/// Connects every rank with every other; the routes are in the order of ranks, `None` is this one.
/// All ranks must call it, between the same calls of [`Rendezvous::all_gather`].
///
/// # Errors
/// On all ranks the same: which pairs cannot reach each other and what was tried, that options
/// differ, that a rank is gone, or that one has lost its place at etcd.
pub fn connect(group: &mut Rendezvous, options: &Options) -> Result<Vec<Option<Route>>, Error> {
    if options.streams == 0 || options.streams > STREAMS_MAX {
        return Err(Error::Group(Failure::Disagree {
            what: format!("{} streams for each pair; 1 to {STREAMS_MAX} work", options.streams),
        }));
    }
    group.begin()?;
    let own = place::addresses().map_err(Error::io("listing this host's addresses"))?;
    let listener = listen(group.on_one_host && options.interface.is_none())?;
    let port = listener.local_addr().map_err(Error::io("listening for peers"))?.port();
    let card = Card {
        host: place::boot_id(),
        nonce: random()?,
        port,
        addresses: published(group, options, &own)?,
        near: options.near,
        streams: options.streams as u16,
        datagrams: options.datagrams,
    };
    let me = Arc::new(Identity { key: group.session.clone(), secret: true, ..group.me.clone() });
    let guests = Arc::new(Guests::new(&me, &card));
    let near = options.near.then(|| Listener::abstract_socket(&card.socket_name()));
    // Where there is no such socket, TCP does.
    let near = near.and_then(Result::ok);
    let doors: Vec<Door> = [Some(Listener::Tcp(listener)), near]
        .into_iter()
        .flatten()
        .map(|listener| Door::open(listener, me.clone(), guests.clone().guest()))
        .collect::<Result<_, _>>()?;
    let cards = exchange(group, &card)?;
    let dialled = dial::lower_ranks(group, &me, &cards, &own);
    let told: Vec<Told> = dialled.iter().map(told).collect();
    let told = spread(group, &told)?;
    drop(doors);
    let rank = group.rank();
    let mut routes: Vec<Option<Route>> = dialled.into_iter().map(Result::ok).collect();
    routes.push(None);
    for (peer, said) in told.iter().enumerate().skip(rank + 1) {
        routes.push(Some(guests.route(peer, &said[rank])?));
    }
    if options.datagrams {
        datagrams::open(group, &mut routes)?;
    }
    Ok(routes)
}

fn told(dialled: &Result<Route, String>) -> Told {
    match dialled {
        Ok(Route::Near(_)) => Told::Near,
        Ok(Route::Far { .. } | Route::Datagrams(_)) => Told::Far,
        Err(why) => Told::Failed(why.clone()),
    }
}

/// A port for peers; only for this host if nobody else is to come.
fn listen(on_one_host: bool) -> Result<TcpListener, Error> {
    let listener = if on_one_host {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
    } else {
        // Takes IPv4 too; a system without IPv6 has the second.
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
    };
    listener.map_err(Error::io("listening for peers"))
}

/// The addresses to try, in this order: first the one that rank 0 is reached from, loopback last.
fn published(group: &Rendezvous, options: &Options, own: &[Address]) -> Result<Vec<IpAddr>, Error> {
    if let Some(interface) = &options.interface {
        return interface.choose(own);
    }
    if group.on_one_host {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let towards = group.ends.map(|(here, _)| here);
    let mut addresses: Vec<IpAddr> = towards.into_iter().filter(|ip| !ip.is_loopback()).collect();
    let open = own.iter().filter(|a| !a.is_of_this_host_only());
    let loopback = own.iter().filter(|a| a.ip.is_loopback());
    for address in open.chain(loopback) {
        if !addresses.contains(&address.ip) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address.ip);
        }
    }
    Ok(addresses)
}

/// Everybody's card, if all want the same.
fn exchange(group: &mut Rendezvous, card: &Card) -> Result<Vec<Card>, Error> {
    let cards: Vec<Card> = gather(group, card)?;
    let wants = |c: &Card| (c.near, c.streams, c.datagrams);
    match cards.iter().position(|c| wants(c) != wants(&cards[0])) {
        None => Ok(cards),
        Some(rank) => {
            let shown = |c: &Card| {
                let Card { near, streams, datagrams, .. } = c;
                format!("near = {near}, streams = {streams}, datagrams = {datagrams}")
            };
            Err(Error::Group(Failure::Disagree {
                what: format!(
                    "ranks want to be connected differently: rank 0 {}, rank {rank} {}",
                    shown(&cards[0]),
                    shown(&cards[rank])
                ),
            }))
        }
    }
}

/// How everybody reached the ranks below; an error if anybody did not.
fn spread(group: &mut Rendezvous, told: &[Told]) -> Result<Vec<Vec<Told>>, Error> {
    let all: Vec<Vec<Told>> = gather(group, &told.to_vec())?;
    let mut pairs = Vec::new();
    for (rank, told) in all.iter().enumerate() {
        if told.len() != rank {
            let what = format!("rank {rank} tells of {} peers instead of {rank}", told.len());
            return Err(Error::Group(Failure::Disagree { what }));
        }
        for (peer, told) in told.iter().enumerate() {
            if let Told::Failed(why) = told {
                pairs.push(format!("rank {rank} cannot reach rank {peer}: {why}"));
            }
        }
    }
    if pairs.is_empty() { Ok(all) } else { Err(Error::Group(Failure::Unreachable { pairs })) }
}

fn gather<T: Serialize + for<'a> Deserialize<'a>>(
    group: &mut Rendezvous,
    own: &T,
) -> Result<Vec<T>, Error> {
    let doing = || Error::io("agreeing on how ranks reach each other");
    let blob = postcard::to_stdvec(own).map_err(io::Error::other).map_err(doing())?;
    let blobs = group.all_gather(&blob)?;
    blobs.iter().map(|blob| wire::decode(blob)).collect::<io::Result<_>>().map_err(doing())
}

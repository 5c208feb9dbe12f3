//! Connections of higher ranks, as they come.

use super::{Card, Route, Told};
use crate::door::Guest;
use crate::error::{Error, Failure};
use crate::handshake::{self, Identity};
use crate::secret::TAG;
use crate::socket::Socket;
use crate::wire::{Hello, Purpose};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Peer, near or not, which stream.
type Place = (u32, bool, u16);

/// Those that have come so far.
pub struct Guests {
    rank: u32,
    size: u32,
    card: [u8; TAG],
    streams: u16,
    came: Mutex<HashMap<Place, Socket>>,
}

impl Guests {
    pub fn new(me: &Identity, card: &Card) -> Self {
        let (rank, size) = (me.rank, me.size);
        Self { rank, size, card: card.nonce, streams: card.streams, came: Mutex::default() }
    }

    /// What a door calls.
    pub fn guest(self: Arc<Self>) -> Arc<Guest> {
        Arc::new(move |result: Result<(Hello, Socket), String>| match result {
            Ok((hello, socket)) => self.take_in(&hello, socket),
            Err(why) => tracing::debug!("a connection was turned away: {why}"),
        })
    }

    fn take_in(&self, hello: &Hello, mut socket: Socket) {
        let place = match self.check(hello, &socket) {
            Ok(place) => place,
            Err(why) => {
                tracing::debug!("{} was refused: {why}", socket.peer());
                // Whoever it is finds the connection closed in any case.
                let _ = handshake::refuse(&mut socket, &why);
                return;
            }
        };
        let Ok(mut answer) = socket.try_clone() else { return };
        // Before the welcome: once the peer counts on it, it is there.
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.insert(place, socket);
        if handshake::welcome(&mut answer).is_err() {
            came.remove(&place);
        }
    }

    fn check(&self, hello: &Hello, socket: &Socket) -> Result<Place, String> {
        let rank = self.rank;
        match hello.purpose {
            Purpose::Link { to, card, .. } if to != rank || card != self.card => {
                Err(format!("this is rank {rank}, not rank {to}"))
            }
            _ if hello.size != self.size || hello.rank <= rank || hello.rank >= self.size => {
                Err(format!("rank {} does not connect to rank {rank}", hello.rank))
            }
            Purpose::Link { near, stream, .. }
                if stream < self.streams && near == matches!(socket, Socket::Unix(_)) =>
            {
                Ok((hello.rank, near, stream))
            }
            _ => Err("this is an address for links".to_owned()),
        }
    }

    /// The route to a higher rank, which has told how it came.
    pub fn route(&self, peer: usize, told: &Told) -> Result<Route, Error> {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        let near = *told == Told::Near;
        let streams = if near { 1 } else { self.streams };
        let sockets = (0..streams).filter_map(|s| came.remove(&(peer as u32, near, s)));
        super::dial::route(sockets.collect(), usize::from(streams)).map_err(|error: io::Error| {
            let what = format!("rank {peer} says that it is connected, but is not: {error}");
            Error::Group(Failure::Disagree { what })
        })
    }
}

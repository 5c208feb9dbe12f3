//! How the processes of a group find each other, prove who they are, and get connected.
//!
//! ```text
//! Seat::from_env()        which rank am I, of how many, where is rank 0 met   (launchers)
//!   Rendezvous::join()    all have come, and are who they say they are        (hub at rank 0)
//!     all_gather()        small blobs from everybody to everybody
//!       connect()         one route for each peer: near (Unix) or far (TCP, or UDP beside it)
//! ```
//!
//! No service has to run: rank 0 keeps the hub in threads of its own. With the feature `etcd`, an
//! [`Etcd`] may say where that is and which ranks live. Between hosts all must know a
//! [`Secret`]; on one host a Unix socket is enough, which only the same user may use. What a
//! stranger sends costs a bounded number of bytes and seconds, and delays nobody else.
//!
//! ```no_run
//! use std::time::Duration;
//! use unisono_rendezvous::{Options, Rendezvous, Route, Seat, Secret, connect};
//!
//! # fn main() -> Result<(), unisono_rendezvous::Error> {
//! let Some(seat) = Seat::from_env()? else { return Ok(()) }; // no launcher: a single process
//! let secret = Secret::from_env()?;
//! let mut group = Rendezvous::join(&seat, secret.as_ref(), Duration::from_secs(30))?;
//! let names = group.all_gather(b"a blob from each rank")?;
//! for (peer, route) in connect(&mut group, &Options::default())?.into_iter().enumerate() {
//!     match route {
//!         None => assert_eq!(peer, seat.rank),
//!         Some(Route::Near(stream)) => drop(stream),
//!         Some(Route::Far { streams, address }) => println!("{address}: {}", streams.len()),
//!         Some(Route::Datagrams(pairs)) => println!("UDP: {}", pairs.len()), // if asked for
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![cfg(target_os = "linux")]

mod connect;
mod door;
mod error;
mod etcd;
mod handshake;
mod hub;
mod join;
mod place;
mod seat;
mod secret;
mod socket;
mod wire;

pub use connect::{Datagrams, Interface, Options, Route, connect};
pub use error::{Error, Failure};
pub use etcd::Etcd;
pub use join::Rendezvous;
pub use place::boot_id;
pub use seat::{Launcher, Local, Meet, Seat};
pub use secret::Secret;
pub use wire::{BLOB_MAX, NOTE_MAX, RANKS_MAX};

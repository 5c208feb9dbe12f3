//! A build without etcd: no place in one can be named, so nobody has a lease.

use super::Etcd;
use crate::error::Error;
use crate::handshake::Identity;
use crate::hub::Lapsed;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Nobody has one.
pub(crate) enum Lease {}

impl Lease {
    /// Refuses.
    pub fn take(
        etcd: &Etcd,
        _: &Identity,
        _: Option<(u16, Lapsed)>,
        _: (Duration, Instant),
        _: &AtomicBool,
    ) -> Result<Self, Error> {
        Err(Error::Etcd { at: etcd.to_string(), why: "this build is without it".into() })
    }

    pub fn check(&self) -> Result<(), Error> {
        match *self {}
    }

    pub fn awaits_root(&self) -> Result<(), Error> {
        match *self {}
    }

    pub fn root(&self) -> Result<Vec<SocketAddr>, String> {
        match *self {}
    }

    pub fn complete(&self) {
        match *self {}
    }
}

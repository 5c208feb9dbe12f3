//! For links over packets: a cable, what goes wrong on it, and time that tests let pass.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use unisono_core::Instant;
use unisono_driver::{Clock, LinkError, PacketLink};

/// A clock that stands still until a test moves it; its copies show the same time.
#[derive(Clone, Debug, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Relaxed))
    }
}

/// A small generator (xorshift64): a fault mix has to come again with its seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`, which is not 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % n
    }

    /// True so many times in a thousand.
    pub const fn happens(&mut self, permille: u16) -> bool {
        self.below(1000) < permille as u64
    }
}

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a cable in memory that loses nothing. See [`cable`].
#[derive(Debug)]
pub struct Cable {
    mtu: usize,
    out: Queue,
    inc: Queue,
}

/// Datagrams that a cable holds.
const CABLE: usize = 64;

/// Both ends of a cable.
#[must_use]
pub fn cable(mtu: usize) -> (Cable, Cable) {
    let (out, inc) = (Queue::default(), Queue::default());
    let other = Cable { mtu, out: inc.clone(), inc: out.clone() };
    (Cable { mtu, out, inc }, other)
}

impl Cable {
    /// Is nobody at the other end?
    fn is_loose(&self) -> bool {
        Rc::strong_count(&self.out) == 1
    }
}

impl PacketLink for Cable {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn has_room(&mut self) -> bool {
        self.out.borrow().len() < CABLE || self.is_loose()
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        assert!(datagram.len() <= self.mtu, "longer than the MTU");
        assert!(self.has_room(), "sent without room");
        if !self.is_loose() {
            self.out.borrow_mut().push_back(datagram.to_vec());
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        Ok(self.inc.borrow_mut().pop_front().map(|datagram| copy(&datagram, into)))
    }
}

fn copy(datagram: &[u8], into: &mut [u8]) -> usize {
    into[..datagram.len()].copy_from_slice(datagram);
    datagram.len()
}

/// What goes wrong with datagrams, in so many of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost.
    pub loss: u16,
    /// Arrived twice.
    pub twice: u16,
    /// Held back, so that others overtake them.
    pub late: u16,
    /// Arrived with a bit changed.
    pub damage: u16,
}

/// Wraps a port and does [`Faults`] to what comes in through it.
#[derive(Debug)]
pub struct Faulty<P> {
    port: P,
    faults: Faults,
    chance: Chance,
    /// Datagrams to be delivered, and after how many more calls.
    held: Vec<(u64, Vec<u8>)>,
    /// Datagrams that something was done to.
    done: u64,
}

impl<P: PacketLink> Faulty<P> {
    /// Faults from this seed.
    #[must_use]
    pub const fn new(port: P, faults: Faults, seed: u64) -> Self {
        Self { port, faults, chance: Chance::new(seed), held: Vec::new(), done: 0 }
    }

    /// How many datagrams something was done to.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// Takes in one more datagram; false if none has come.
    fn take_in(&mut self, room: usize) -> Result<bool, LinkError> {
        let mut datagram = vec![0; room];
        let Some(len) = self.port.receive(&mut datagram)? else { return Ok(false) };
        datagram.truncate(len);
        let Faults { loss, twice, late, damage } = self.faults;
        if self.chance.happens(loss) {
            self.done += 1;
            return Ok(true);
        }
        if len > 0 && self.chance.happens(damage) {
            let bit = self.chance.below(8 * len as u64) as usize;
            datagram[bit / 8] ^= 1 << (bit % 8);
            self.done += 1;
        }
        if self.chance.happens(twice) {
            let after = self.chance.below(20);
            self.held.push((after, datagram.clone()));
            self.done += 1;
        }
        let after = if self.chance.happens(late) { 1 + self.chance.below(20) } else { 0 };
        self.done += u64::from(after > 0);
        self.held.push((after, datagram));
        Ok(true)
    }
}

impl<P: PacketLink> PacketLink for Faulty<P> {
    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn has_room(&mut self) -> bool {
        self.port.has_room()
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        self.port.send(datagram)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        while self.take_in(into.len())? {}
        for (after, _) in &mut self.held {
            *after = after.saturating_sub(1);
        }
        let ready = self.held.iter().position(|(after, _)| *after == 0);
        Ok(ready.map(|at| copy(&self.held.remove(at).1, into)))
    }
}

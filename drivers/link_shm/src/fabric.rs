//! All links of a process to members of other processes.

use crate::ShmError;
use crate::arena::Arena;
use crate::greet::{Greeted, greet};
use crate::layout::Layout;
use crate::peer::Peer;
use crate::watch::{Watch, Watched};
use crate::word::Word;
use memmap2::MmapRaw;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unisono_driver::HostPtr;
use unisono_link_span::{Bell, Ring, SpanLink, depth};

/// One end of a link between members of two processes.
pub type ShmLink = SpanLink<HostPtr, Peer>;

/// One member's links, indexed by rank, none to members of its own process or of processes that
/// are not near, and its bell.
pub type Ends = (Vec<Option<ShmLink>>, Arc<Bell>);

/// What a process has of its group's shared memory.
pub struct Fabric {
    /// The process's own memory, for tensors and slots.
    pub arena: Arc<Arena>,
    /// Ends of its members, in the order of their ranks.
    pub ends: Vec<Ends>,
    /// A word of each member that is near, by rank.
    pub words: Vec<Option<Word>>,
    /// All processes that are near reach this one's memory outside the arena.
    pub attached: bool,
    /// Keep this as long as the links: it notices when a process dies.
    pub watch: Guard,
}

/// Watches over the processes of a [`Fabric`].
pub struct Guard(#[expect(dead_code, reason = "it is there to be dropped")] Watch);

impl Fabric {
    /// Joins this process (`own`) with those at the other ends of `sockets`, which are indexed by
    /// process; `None` for itself and for those that are not near. All processes do this at once.
    ///
    /// # Errors
    /// [`ShmError`].
    pub fn join(
        layout: &Layout,
        own: u16,
        sockets: Vec<Option<UnixStream>>,
    ) -> Result<Self, ShmError> {
        let arena = Arena::new(Arena::reserve(sockets.len()), layout.head(own))?;
        let (mut peers, mut watched) = (Vec::new(), Vec::new());
        for (process, socket) in (0..).zip(sockets) {
            peers.push(match socket {
                None => None,
                Some(socket) => {
                    let greeted = greet(&socket, layout, own, process, &arena)?;
                    let Greeted { arena: theirs, attach, attached } = greeted;
                    let dead = Arc::new(AtomicBool::new(false));
                    watched.push(Watched { socket, dead: dead.clone() });
                    let (own, theirs) = (arena.clone(), Arc::new(theirs));
                    Some(Peer { own, theirs, dead, attach, attached })
                }
            });
        }
        let bell = |member| own_bell(layout, member, &arena);
        let members: Vec<usize> = layout.members_of(own).collect();
        let ends = members.iter().map(|&member| (links(layout, member, &peers), bell(member)));
        let ends: Vec<Ends> = ends.collect();
        let bells = ends.iter().map(|(_, bell)| bell.clone()).collect();
        let words = words(layout, own, &arena, &peers);
        let attached = peers.iter().flatten().all(|peer| peer.attached);
        Ok(Self { arena, ends, words, attached, watch: Guard(Watch::begin(watched, bells)?) })
    }
}

/// Address of something in an arena, whose size has been checked against the layout.
fn place(start: *mut u8, offset: usize) -> NonNull<u8> {
    // SAFETY: a mapping does not start at 0, and the offset is within it.
    unsafe { NonNull::new_unchecked(start.add(offset)) }
}

fn own_bell(layout: &Layout, member: usize, arena: &Arc<Arena>) -> Arc<Bell> {
    let at = place(arena.start(), layout.bell(member));
    // SAFETY: in the head of an arena that everybody uses by the same layout.
    Arc::new(unsafe { Bell::at(at, arena.clone()) })
}

fn words(
    layout: &Layout,
    own: u16,
    arena: &Arc<Arena>,
    peers: &[Option<Peer>],
) -> Vec<Option<Word>> {
    let word = |(member, home): (usize, &u16)| {
        let at = layout.word(member);
        // SAFETY: in the heads of arenas that everybody uses by the same layout.
        Some(unsafe {
            if *home == own {
                Word::at(place(arena.start(), at), arena.clone())
            } else {
                let theirs = &peers.get(usize::from(*home))?.as_ref()?.theirs;
                Word::at(place(theirs.as_mut_ptr(), at), theirs.clone())
            }
        })
    };
    layout.homes.iter().enumerate().map(word).collect()
}

/// A member's links to all members of processes that are near.
fn links(layout: &Layout, member: usize, peers: &[Option<Peer>]) -> Vec<Option<ShmLink>> {
    let link = |(to, home): (usize, &u16)| {
        let peer = peers.get(usize::from(*home))?.as_ref()?;
        let theirs: &Arc<MmapRaw> = &peer.theirs;
        let depth = depth(layout.window);
        let pair = |channel| {
            let out = place(peer.own.start(), layout.ring(member, to, channel));
            let inc = place(theirs.as_mut_ptr(), layout.ring(to, member, channel));
            // SAFETY: in the heads of arenas that everybody uses by the same layout.
            unsafe {
                (Ring::at(out, depth, peer.own.clone()), Ring::at(inc, depth, theirs.clone()))
            }
        };
        let at = place(theirs.as_mut_ptr(), layout.bell(to));
        // SAFETY: as above.
        let bell = Arc::new(unsafe { Bell::at(at, theirs.clone()) });
        Some(SpanLink::new((0..layout.channels).map(pair).collect(), bell, peer.clone()))
    };
    layout.homes.iter().enumerate().map(link).collect()
}

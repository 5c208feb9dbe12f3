//! Two processes exchange the descriptors of their arenas.

use crate::arena::{Arena, SEALS, map};
use crate::attach::{Attach, Probe, try_attach};
use crate::layout::Layout;
use crate::{ShmError, Tried};
use memmap2::MmapRaw;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use unisono_link_span::{Bell, INLINE, Ring};

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Grows with every change of what lies in arenas.
const VERSION: u32 = 2;

/// What a process says of itself. All but `from`, `arena` and `probe` has to be the same on both
/// sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    magic: [u8; 8],
    version: u32,
    /// Sizes of what lies in arenas.
    sizes: [u32; 3],
    channels: u32,
    window: u32,
    members: u32,
    /// Hash of who is where.
    homes: u64,
    from: u16,
    arena: u64,
    /// Where the peer may try whether it reaches this process's memory, and what is there.
    probe: [u64; 2],
}

impl Hello {
    fn of(layout: &Layout, from: u16, arena: &Arena, probe: &Probe) -> Self {
        // FNV-1a: what differs by mistake differs here.
        let mix = |hash: u64, home: &u16| (hash ^ u64::from(*home)).wrapping_mul(0x100_0000_01b3);
        Self {
            magic: *b"uni-shm\n",
            version: VERSION,
            sizes: [Bell::BYTES as u32, Ring::bytes(1) as u32, INLINE as u32],
            channels: layout.channels as u32,
            window: layout.window as u32,
            members: layout.homes.len() as u32,
            homes: layout.homes.iter().fold(0xcbf2_9ce4_8422_2325, mix),
            from,
            arena: arena.bytes() as u64,
            probe: probe.said(),
        }
    }

    /// Is this what the process `peer` should say?
    fn check(&self, theirs: &Self, peer: u16) -> Result<(), String> {
        if theirs.magic != self.magic {
            return Err("it does not speak this protocol".into());
        }
        if (theirs.version, theirs.sizes) != (self.version, self.sizes) {
            return Err("it is another version of unisono; use the same on all ranks".into());
        }
        let Self { arena, probe, .. } = *theirs;
        let want = Self { from: peer, arena, probe, ..self.clone() };
        if *theirs != want {
            return Err("it belongs to another group, or has other members or windows".into());
        }
        Ok(())
    }
}

/// What a process has learnt of another one.
pub(crate) struct Greeted {
    /// Its arena.
    pub arena: MmapRaw,
    /// Its other memory, if that can be reached.
    pub attach: Option<Attach>,
    /// It reaches this process's memory.
    pub attached: bool,
}

/// Greets the process at the other end of a socket.
pub(crate) fn greet(
    socket: &UnixStream,
    layout: &Layout,
    own: u16,
    peer: u16,
    arena: &Arena,
) -> Result<Greeted, ShmError> {
    let stranger = |why: String| ShmError::Stranger { process: peer.into(), why };
    socket.set_read_timeout(Some(PATIENCE)).tried("set a time limit")?;
    let probe = Probe::new();
    let hello = Hello::of(layout, own, arena, &probe);
    say(socket, &hello, arena)?;
    let (theirs, file) = hear(socket).map_err(|error| stranger(error.to_string()))?;
    let Some(theirs) = theirs else { return Err(stranger("it said nothing sensible".into())) };
    hello.check(&theirs, peer).map_err(stranger)?;
    let Some(file) = file else { return Err(stranger("it sent no memory".into())) };
    let seals = rustix::fs::fcntl_get_seals(&file).tried("look at the peer's memory")?;
    let bytes = file.metadata().tried("look at the peer's memory")?.len();
    let enough = bytes == theirs.arena && bytes >= layout.head(peer) as u64;
    let arena = match usize::try_from(bytes) {
        Ok(bytes) if enough && seals.contains(SEALS) => map(&file, bytes)?,
        _ => return Err(stranger("its memory is not what it says".into())),
    };
    let attach = try_attach(pid_of(socket), theirs.probe);
    let attached = swap(socket, attach.is_some()).map_err(|error| stranger(error.to_string()))?;
    Ok(Greeted { arena, attach, attached })
}

/// The process at the other end; `None` if it is in another name space.
fn pid_of(socket: &UnixStream) -> Option<i32> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

/// Tells the peer whether its memory can be reached from here, and hears the same from it.
fn swap(mut socket: &UnixStream, reached: bool) -> std::io::Result<bool> {
    socket.write_all(&[reached.into()])?;
    let mut heard = [0];
    socket.read_exact(&mut heard)?;
    Ok(heard == [1])
}

/// Most bytes of a greeting.
const MOST: usize = 128;

fn say(socket: &UnixStream, hello: &Hello, arena: &Arena) -> Result<(), ShmError> {
    let mut bytes = [0; MOST];
    let bytes = postcard::to_slice(hello, &mut bytes).map_err(std::io::Error::other);
    let bytes = bytes.tried("write a greeting")?;
    let fds = [arena.file().as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&fds));
    let length = [bytes.len() as u8];
    let slices = [IoSlice::new(&length), IoSlice::new(bytes)];
    sendmsg(socket, &slices, &mut beside, SendFlags::NOSIGNAL).tried("greet a process")?;
    Ok(())
}

/// A greeting and the descriptor that came with it.
fn hear(socket: &UnixStream) -> std::io::Result<(Option<Hello>, Option<File>)> {
    let (mut bytes, mut have, mut file) = ([0; MOST], 0, None::<OwnedFd>);
    // The length, and once that is there, so many bytes.
    loop {
        let want = if have == 0 { 1 } else { 1 + usize::from(bytes[0]) };
        if have > 0 && have >= want.min(MOST) {
            break;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let end = want.min(MOST);
        let mut slices = [IoSliceMut::new(&mut bytes[have..end])];
        let got = recvmsg(socket, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                // Those too many are closed.
                file = fds.into_iter().next().or(file);
            }
        }
        if got.bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        have += got.bytes;
    }
    let hello = postcard::from_bytes(&bytes[1..have]).ok();
    Ok((hello, file.map(File::from)))
}

//! The link itself.

use crate::inbox::Inbox;
use crate::options::{self, Options, TcpError};
use crate::outbox::{INLINE, Outbox};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::ioctl::{Getter, Opcode, ioctl};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};
use unisono_core::wire::frame::Header;
use unisono_driver::{HostMemory, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// A stream, and what goes out and comes in over it: not of the same channel, see the crate's head.
#[derive(Debug)]
struct Stream<M> {
    stream: TcpStream,
    out: Outbox<M>,
    inc: Inbox,
}

/// Which end of a link this is: each pair has one of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// One end,
    First,
    /// and the other one.
    Second,
}

/// A descriptor to sleep on. See [`TcpLink::waits`].
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Wake when it can be read, or is closed.
    pub readable: bool,
    /// Wake when it takes more bytes.
    pub writable: bool,
}

/// One end of a link to one peer, over a stream for each channel. See the crate's head.
#[derive(Debug)]
pub struct TcpLink<M: HostMemory> {
    streams: Box<[Stream<M>]>,
    /// How many streams further than a channel's number its frames go out, and come in.
    shifts: [usize; 2],
    /// The peer has ended one of the streams, so it is done with all of them.
    closed: bool,
    linger: Duration,
}

impl<M: HostMemory> TcpLink<M> {
    /// A link over connected streams, one for each channel, in the same order at both ends.
    ///
    /// # Errors
    /// If there is no stream, or one is not connected or cannot be set up.
    pub fn new(streams: Vec<TcpStream>, end: End, options: Options) -> Result<Self, TcpError> {
        if streams.is_empty() {
            return Err(TcpError::NoStream);
        }
        let across = streams.len() / 2;
        let shifts = if end == End::First { [0, across] } else { [across, 0] };
        let streams = streams.into_iter().enumerate().map(|(number, stream)| {
            options::prepare(&stream, options.silence)
                .map_err(|(what, source)| TcpError::Stream { number, what, source })?;
            Ok(Stream { stream, out: Outbox::new(), inc: Inbox::new() })
        });
        let streams = streams.collect::<Result<_, TcpError>>()?;
        Ok(Self { streams, shifts, closed: false, linger: options.linger })
    }

    /// The numbers of the streams over which a channel's frames go out and come in.
    fn streams_of(&self, channel: usize) -> [usize; 2] {
        let all = self.streams.len();
        // Of a channel that there is not, there is no stream.
        self.shifts.map(|shift| if channel < all { (channel + shift) % all } else { all })
    }

    fn out(&mut self, channel: usize) -> Option<&mut Stream<M>> {
        let [number, _] = self.streams_of(channel);
        self.streams.get_mut(number)
    }

    /// What to sleep on after a round (it begins with [`Link::poll`]) in which nothing could be
    /// done: streams that were asked in vain in that round, and those that did not take everything.
    ///
    /// A stream with frames that nobody wants yet, because their call has not begun here, is not
    /// among them: it would wake its caller at once and for nothing. Nothing is missed between the
    /// round and the sleep if the system's `poll` or a level-triggered `epoll` does the waiting.
    pub fn waits(&self) -> impl Iterator<Item = Wait<'_>> {
        self.streams.iter().filter_map(|c| {
            let (readable, writable) = (c.inc.is_wanted() && !c.inc.is_over(), !c.out.is_empty());
            (readable || writable).then(|| Wait { fd: c.stream.as_fd(), readable, writable })
        })
    }

    /// The peer is gone: nothing is sent any more, and all memory is free. What it has sent can
    /// still be read.
    fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            for stream in &mut self.streams {
                stream.out.free_all();
                // The peer may wait for the ends of the others. If it is gone, there is no stream.
                let _ = stream.stream.shutdown(Shutdown::Write);
            }
        }
    }

    /// Notes what an error says about the link, after the streams have been used.
    fn judged<T>(&mut self, number: usize, result: Result<T, LinkError>) -> Result<T, LinkError> {
        match &result {
            Err(LinkError::Closed) => self.close(),
            Err(LinkError::Garbage) => {
                if let Some(c) = self.streams.get_mut(number) {
                    c.out.free_all();
                    // That tells the peer; if it is gone, it need not be told.
                    let _ = c.stream.shutdown(Shutdown::Both);
                }
            }
            Ok(_) | Err(LinkError::Unreachable) => {}
        }
        result
    }

    /// Moves out what waits for a stream.
    fn flush(&mut self, number: usize) {
        let flush = |c: &mut Stream<M>| c.out.flush(&c.stream);
        let flushed = self.streams.get_mut(number).map_or(Ok(()), flush);
        // An error has been noted; the next call says so.
        let _ = self.judged(number, flushed);
    }
}

impl<M: HostMemory> Link for TcpLink<M> {
    type Mem = M;

    fn caps(&self) -> LinkCaps {
        let channels = self.streams.len();
        LinkCaps { spans: false, puts: false, inline_max: INLINE, channels }
    }

    fn poll(&mut self) {
        for number in 0..self.streams.len() {
            let Some(stream) = self.streams.get_mut(number) else { return };
            stream.inc.begin_round();
            if !stream.out.is_empty() {
                self.flush(number);
            }
        }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        // On a link that is closed, sending says so.
        let room = |c: &mut Stream<M>| c.out.has_room() || c.inc.is_over();
        self.closed || self.out(channel).is_none_or(room)
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<M>,
        token: u32,
    ) -> Result<(), LinkError> {
        let closed = self.closed;
        let c = self.out(channel).ok_or(LinkError::Closed)?;
        if closed || c.inc.is_over() {
            return Err(LinkError::Closed);
        }
        // SAFETY: the caller's promise.
        let sent = unsafe { c.out.send(&c.stream, header, payload, token) };
        if sent == Err(LinkError::Closed) {
            self.close();
        }
        sent
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        self.out(channel)?.out.poll_sent()
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<M>>, LinkError> {
        let [_, number] = self.streams_of(channel);
        let c = self.streams.get_mut(number).ok_or(LinkError::Closed)?;
        let frame = c.inc.poll_frame(&c.stream);
        self.judged(number, frame)
    }

    fn take(&mut self, channel: usize) {
        let [_, number] = self.streams_of(channel);
        if let Some(stream) = self.streams.get_mut(number) {
            stream.inc.take();
        }
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<M>) -> Result<bool, LinkError> {
        let [_, number] = self.streams_of(channel);
        let c = self.streams.get_mut(number).ok_or(LinkError::Closed)?;
        // SAFETY: the caller's promise.
        let received = unsafe { c.inc.receive(&c.stream, into) };
        self.judged(number, received)
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        false
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {}

    fn release(&mut self, _: usize, _: u32) {}

    fn withdraw(&mut self, channel: usize) -> bool {
        if let Some(stream) = self.out(channel) {
            stream.out.withdraw();
        }
        true
    }
}

impl<M: HostMemory> Stream<M> {
    /// Sends what is left and then the end; returns the bytes that the peer still has to get.
    fn finish(&mut self) -> u64 {
        if self.out.flush(&self.stream).is_err() || self.is_dead() {
            // It wants none of them.
            return 0;
        }
        if self.out.is_empty() {
            // A peer that sees the end answers with its own, which acknowledges everything; an
            // acknowledgement alone may take 40 ms. Without a connection there is nothing to end.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        // SAFETY: this request stores an int and nothing else.
        let unsent = unsafe { ioctl(&self.stream, UnsentRequest::new()) };
        // The end counts as a byte, and need not have arrived.
        let unsent = unsent.map_or(0, |bytes| bytes.unsigned_abs().saturating_sub(1));
        self.out.left() + u64::from(unsent)
    }

    /// Has the peer ended the connection after this side's end, or broken it?
    fn is_dead(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        // Ends and errors are told without being asked for. If the system cannot say, nobody waits.
        rustix::event::poll(&mut fds, Some(&Timespec::default())) != Ok(0)
    }
}

/// Do the packets of a stream get lost on their way, or their acknowledgements? A peer that is
/// there and takes nothing acknowledges what it is asked.
fn is_lossy(stream: &TcpStream) -> bool {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let (level, name, at) = (libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast());
    // SAFETY: the system writes at most `len` bytes.
    let done = unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, at, &raw mut len) };
    // SAFETY: plain numbers, which were zero before.
    done == 0 && unsafe { info.assume_init() }.tcpi_retransmits > 0
}

/// Bytes that the peer's system has not acknowledged.
type UnsentRequest = Getter<{ libc::TIOCOUTQ as Opcode }, c_int>;

/// A socket that is closed with something unread, or that gets something when it is closed, resets
/// its connection, and what the peer has not got by then is lost: perhaps the end of a call that
/// has succeeded here. So a link ends when everything has arrived, or is not wanted.
impl<M: HostMemory> Drop for TcpLink<M> {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        self.streams.iter_mut().for_each(|stream| stream.out.withdraw());
        let (mut left, mut since, mut pause) = (u64::MAX, Instant::now(), PAUSE_MIN);
        loop {
            let now = self.streams.iter_mut().map(Stream::finish).sum();
            if now < left {
                (left, since) = (now, Instant::now());
            }
            let patience = |c: &Stream<M>| {
                if is_lossy(&c.stream) { self.linger.max(LOSSY) } else { self.linger }
            };
            let waited = since.elapsed();
            if left == 0 || self.streams.iter().all(|c| waited >= patience(c)) {
                return;
            }
            sleep(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}

/// Least time that a link lingers whose packets get lost: enough for five more attempts at one of
/// them, each of which waits twice as long as the one before.
const LOSSY: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

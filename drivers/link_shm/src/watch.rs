//! A thread that sleeps until a process dies.

use crate::{ShmError, Tried};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use unisono_link_span::Bell;

/// A process to watch.
pub(crate) struct Watched {
    pub socket: UnixStream,
    pub dead: Arc<AtomicBool>,
}

impl Watched {
    /// What tells of its death: its socket, and the process itself, since a child that it has
    /// forked may have the socket, too.
    fn signs(&self) -> Vec<OwnedFd> {
        let socket = self.socket.try_clone().map(OwnedFd::from);
        // Unknown if the process is in another name space: then there is the socket.
        let peer = rustix::net::sockopt::socket_peercred(&self.socket).ok();
        let process = peer.and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()).ok());
        socket.ok().into_iter().chain(process).collect()
    }
}

/// Watches as long as it exists.
pub(crate) struct Watch {
    /// Closing it ends the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Marks each of these processes when it dies and then rings these bells.
    pub fn begin(watched: Vec<Watched>, bells: Vec<Arc<Bell>>) -> Result<Self, ShmError> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (ended, stop) = rustix::pipe::pipe_with(flags).tried("make a pipe")?;
        let thread = std::thread::Builder::new().name("unisono-watch".into());
        let thread = thread.spawn(move || run(&watched, &bells, &ended));
        let thread = thread.tried("start a thread that watches processes")?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

fn run(watched: &[Watched], bells: &[Arc<Bell>], ended: &OwnedFd) {
    let mut signs: Vec<(usize, OwnedFd)> = Vec::new();
    for (index, one) in watched.iter().enumerate() {
        signs.extend(one.signs().into_iter().map(|sign| (index, sign)));
    }
    loop {
        let hangs = PollFlags::RDHUP;
        let mut fds = vec![PollFd::new(ended, PollFlags::empty())];
        // A process is readable once it has ended; a socket hangs up.
        fds.extend(signs.iter().map(|(_, sign)| {
            let socket = rustix::net::sockopt::socket_type(sign).is_ok();
            PollFd::from_borrowed_fd(sign.as_fd(), if socket { hangs } else { PollFlags::IN })
        }));
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        let gone: Vec<usize> = (signs.iter().zip(&fds[1..]))
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((index, _), _)| *index)
            .collect();
        drop(fds);
        for &index in &gone {
            // Everything that it wrote before is seen before this.
            watched[index].dead.store(true, Ordering::Release);
        }
        signs.retain(|(index, _)| !gone.contains(index));
        bells.iter().for_each(|bell| bell.ring());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing that could fail.
            let _ = thread.join();
        }
    }
}

//! A thread that lets connections in, and one for each until it has proved who it is.

use crate::error::Error;
use crate::handshake::{self, Identity};
use crate::socket::{Listener, Socket};
use crate::wire::Hello;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A stranger has so long to prove itself.
const GREETING: Duration = Duration::from_secs(5);
/// Strangers at once; more are sent away and may come again.
const STRANGERS: usize = 256;

/// Called in a thread of its own for each connection: with a rank that has proved itself, or with
/// who was turned away and why.
pub type Guest = dyn Fn(Result<(Hello, Socket), String>) + Send + Sync;

/// Lets nobody in any more once it is dropped.
pub struct Door {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Opens one.
    pub fn open(listener: Listener, me: Arc<Identity>, guest: Arc<Guest>) -> Result<Self, Error> {
        let failed = || Error::io("opening a socket that ranks come to");
        listener.set_nonblocking().map_err(failed())?;
        let (stop, stopped) = UnixStream::pair().map_err(failed())?;
        let thread = thread::Builder::new()
            .name("unisono door".into())
            .spawn(move || keep(&listener, &stopped, &me, &guest))
            .map_err(failed())?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The other end becomes readable.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, the process has said so.
            let _ = thread.join();
        }
    }
}

fn keep(listener: &Listener, stopped: &UnixStream, me: &Arc<Identity>, guest: &Arc<Guest>) {
    let strangers = Arc::new(AtomicUsize::new(0));
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok(socket) => greet(socket, me, guest, &strangers),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Another user: no reason to keep this one's ranks waiting.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                tracing::debug!("a connection was refused: {e}");
            }
            Err(e) => {
                tracing::debug!("a connection was not accepted: {e}");
                // Without descriptors the next try would fail at once, and again.
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn greet(mut socket: Socket, me: &Arc<Identity>, guest: &Arc<Guest>, strangers: &Arc<AtomicUsize>) {
    if strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS {
        strangers.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (me, guest, count) = (me.clone(), guest.clone(), strangers.clone());
    let spawned = thread::Builder::new().name("unisono guest".into()).spawn(move || {
        let result = handshake::accept(&mut socket, &me, Instant::now() + GREETING);
        count.fetch_sub(1, Ordering::Relaxed);
        guest(match result {
            Ok(hello) => Ok((hello, socket)),
            Err(why) => Err(format!("{}: {why}", socket.peer())),
        });
    });
    if let Err(e) = spawned {
        strangers.fetch_sub(1, Ordering::Relaxed);
        tracing::debug!("no thread for a connection: {e}");
    }
}

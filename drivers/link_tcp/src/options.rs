//! What may be chosen, and how a stream is made ready.

use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Probes that have to go unanswered before an idle peer counts as gone.
const PROBES: u32 = 4;

/// What may be chosen about a [`TcpLink`](crate::TcpLink).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A peer whose host has not answered for so long is gone, whether something is on its way to
    /// it or not. At least 5 seconds, in whole seconds.
    ///
    /// A process that is stopped still has a host that answers. But one that has bytes on its way
    /// to it, takes none of them for so long and has no room for more counts as gone, too.
    pub silence: Duration,
    /// How long the end of a link waits for a peer that takes nothing of what is on its way to it;
    /// at least 10 seconds if what gets lost are packets.
    pub linger: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { silence: Duration::from_secs(30), linger: Duration::from_secs(1) }
    }
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// A link has at least one channel.
    #[error("a TCP link needs one connected stream for each channel, and was given none")]
    NoStream,
    /// A stream is not connected, or the system refuses to set it up.
    #[error("stream {number} cannot be used: {what} failed: {source}")]
    Stream {
        /// Which of the streams.
        number: usize,
        /// What was asked of the system.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// Makes a connected stream ready. Buffers are left to the system, which adapts them.
pub(crate) fn prepare(stream: &TcpStream, silence: Duration) -> Result<(), Refusal> {
    let silence = Duration::from_secs(silence.as_secs().max(5));
    let interval = Duration::from_secs((silence.as_secs() / u64::from(2 * PROBES)).max(1));
    let idle = silence - interval * PROBES;
    let timeout = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    asked("finding its peer", stream.peer_addr().map(drop))?;
    asked("making it non-blocking", stream.set_nonblocking(true))?;
    asked("TCP_NODELAY", stream.set_nodelay(true))?;
    asked("SO_KEEPALIVE", sockopt::set_socket_keepalive(stream, true))?;
    asked("TCP_KEEPIDLE", sockopt::set_tcp_keepidle(stream, idle))?;
    asked("TCP_KEEPINTVL", sockopt::set_tcp_keepintvl(stream, interval))?;
    asked("TCP_KEEPCNT", sockopt::set_tcp_keepcnt(stream, PROBES))?;
    asked("TCP_USER_TIMEOUT", sockopt::set_tcp_user_timeout(stream, timeout))
}

/// What the system was asked for, and what it said.
pub(crate) type Refusal = (&'static str, io::Error);

fn asked<E: Into<io::Error>>(what: &'static str, result: Result<(), E>) -> Result<(), Refusal> {
    result.map_err(|error| (what, error.into()))
}

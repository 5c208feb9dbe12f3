//! Links over UDP between processes: a socket, the reliable machine on it, and a lifeline.
//!
//! What the system does for a TCP connection, somebody here has to do for a socket: packets of a
//! call that is over on this side may get lost, and the peer waits for them however long this side
//! computes. So a member shares its links with a *keeper*, a thread that looks after those that
//! nobody has polled for a while.
//!
//! A process that ends, or whose host is gone, is told by its lifeline: a TCP connection on which
//! nothing is sent, with keep-alive. A link ends it when the peer has everything, so an orderly end
//! takes nothing away. Silence on the socket alone ends nothing: a process that is stopped and goes
//! on is as good as before, and the time limit of calls is another matter.

mod keeper;
mod link;
mod port;
#[cfg(test)]
mod tests;

pub(crate) use keeper::Keeper;
pub(crate) use link::UdpLink;

//! TCP and Unix sockets under one roof.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Nobody may stop reading for longer than this.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub enum Socket {
    /// Across hosts, or over loopback.
    Tcp(TcpStream),
    /// On one host.
    Unix(UnixStream),
}

impl Socket {
    /// Bounds writes, and sends small messages at once.
    pub fn prepare(self) -> io::Result<Self> {
        match &self {
            Self::Tcp(s) => {
                s.set_nonblocking(false)?;
                s.set_nodelay(true)?;
                s.set_write_timeout(Some(WRITE_PATIENCE))?;
            }
            Self::Unix(s) => {
                s.set_nonblocking(false)?;
                s.set_write_timeout(Some(WRITE_PATIENCE))?;
            }
        }
        Ok(self)
    }

    /// As sockets are when they are new.
    pub fn release(self) -> io::Result<Self> {
        match &self {
            Self::Tcp(s) => s.set_read_timeout(None).and(s.set_write_timeout(None))?,
            Self::Unix(s) => s.set_read_timeout(None).and(s.set_write_timeout(None))?,
        }
        Ok(self)
    }

    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_read_timeout(time),
            Self::Unix(s) => s.set_read_timeout(time),
        }
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(s) => Self::Tcp(s.try_clone()?),
            Self::Unix(s) => Self::Unix(s.try_clone()?),
        })
    }

    /// Ends it for whoever else reads from it; what has been sent still arrives.
    pub fn shutdown(&self) {
        // It may have ended by itself.
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
            Self::Unix(s) => s.shutdown(Shutdown::Both),
        };
    }

    /// Who is at the other end, for messages.
    pub fn peer(&self) -> String {
        match self {
            // Without its port: whoever comes again has another one.
            Self::Tcp(s) => s
                .peer_addr()
                .map_or_else(|_| "nobody".into(), |a| a.ip().to_canonical().to_string()),
            Self::Unix(s) => rustix::net::sockopt::socket_peercred(s)
                .map_or_else(|_| "nobody".into(), |c| format!("process {}", c.pid)),
        }
    }

    /// The address of this end and of the other one.
    pub fn ends(&self) -> Option<(IpAddr, IpAddr)> {
        match self {
            Self::Tcp(s) => Some((
                s.local_addr().ok()?.ip().to_canonical(),
                s.peer_addr().ok()?.ip().to_canonical(),
            )),
            Self::Unix(_) => None,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(bytes),
            Self::Unix(s) => s.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(bytes),
            Self::Unix(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What connections come in by.
#[derive(Debug)]
pub enum Listener {
    /// Across hosts, or over loopback.
    Tcp(TcpListener),
    /// On one host.
    Unix(UnixListener),
}

impl Listener {
    /// On an abstract Unix socket, which ends with its process and needs no file.
    pub fn abstract_socket(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?)?;
        Ok(Self::Unix(listener))
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(l) => l.set_nonblocking(true),
            Self::Unix(l) => l.set_nonblocking(true),
        }
    }

    /// The next connection. Over a Unix socket only this user gets in.
    pub fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(l) => Socket::Tcp(l.accept()?.0).prepare(),
            Self::Unix(l) => {
                let stream = l.accept()?.0;
                same_user(&stream)?;
                Socket::Unix(stream).prepare()
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(l) => l.as_fd(),
            Self::Unix(l) => l.as_fd(),
        }
    }
}

/// Connects to an abstract Unix socket of this user.
pub fn connect_abstract(name: &str, until: Instant) -> io::Result<Socket> {
    let to = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) => break UnixStream::from(socket),
            // The other side's queue is full. A blocking socket would wait for ever.
            Err(Errno::AGAIN) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(errno) => return Err(errno.into()),
        }
    };
    // Anybody may have taken the name first.
    same_user(&stream)?;
    Socket::Unix(stream).prepare()
}

fn same_user(stream: &UnixStream) -> io::Result<()> {
    let theirs = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if theirs == rustix::process::geteuid() {
        return Ok(());
    }
    let text = format!("the other end belongs to user {}", theirs.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

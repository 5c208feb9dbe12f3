//! A real UDP proxy between members and board that loses, doubles and reorders datagrams.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use unisono_driver::PacketLink;
use unisono_link_udp::{ETHERNET, UdpPort};
use unisono_offload_dpu::udp::Way;
use unisono_testkit::packet::{Faults, Faulty};

/// One member's way through the proxy: its faults happen to what comes from either side.
pub struct Pair {
    member: Faulty<UdpPort>,
    board: Faulty<UdpPort>,
}

/// A way to the board for a member, and the proxy's part of it.
pub fn pair(board: SocketAddrV4, faults: Faults, seed: u64) -> io::Result<(Pair, Way)> {
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(near.local_addr()?)?;
    near.connect(socket.local_addr()?)?;
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    far.connect(board)?;
    let port = far.local_addr()?.port();
    let member = Faulty::new(UdpPort::new(near, ETHERNET)?, faults, 2 * seed);
    let board = Faulty::new(UdpPort::new(far, ETHERNET)?, faults, 2 * seed + 1);
    Ok((Pair { member, board }, Way { socket, port }))
}

/// A proxy that runs; it stops when dropped.
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Counts>>,
}

/// What a proxy has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Datagrams that have left it.
    pub carried: u64,
    /// Datagrams that something was done to.
    pub spoilt: u64,
}

impl Relay {
    pub fn start(mut pairs: Vec<Pair>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut carried = 0;
            while !stopped.load(Relaxed) {
                let moved: u64 = pairs.iter_mut().map(Pair::turn).sum();
                carried += moved;
                if moved == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            Counts { carried, spoilt: pairs.iter().map(|p| p.member.done() + p.board.done()).sum() }
        });
        Self { stop, thread: Some(thread) }
    }

    /// Stops it.
    pub fn stop(mut self) -> Counts {
        self.stop.store(true, Relaxed);
        let thread = self.thread.take().expect("it is stopped once");
        thread.join().expect("no panic")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

impl Pair {
    /// Carries what is there; how many datagrams.
    fn turn(&mut self) -> u64 {
        carry(&mut self.member, &mut self.board) + carry(&mut self.board, &mut self.member)
    }
}

fn carry(from: &mut Faulty<UdpPort>, to: &mut Faulty<UdpPort>) -> u64 {
    let mut datagram = [0; ETHERNET];
    let mut carried = 0;
    while let Some(len) = from.receive(&mut datagram).expect("a socket of this machine") {
        to.send(&datagram[..len]).expect("a socket of this machine");
        carried += 1;
    }
    carried
}

//! The board "QEMU `virt`, riscv64" with a network card: commands, log and tensors go through the
//! window, the data of calls over UDP.
//!
//! All but the card is as on the board without one (`qemu_virt_riscv64`).
//!
//! | memory | what |
//! |---|---|
//! | `0x1000_1000` | virtio devices; one of them is the network card |
//!
//! The address is that which QEMU's own network gives its first guest, 10.0.2.15; peers are told by
//! the host.
//!
//! Exit codes are those of [`unisono_core::wire::exit`].
#![no_std]
#![cfg(target_arch = "riscv64")]

use qemu_virt_riscv64_board::cpu::SinceOn;
use qemu_virt_riscv64_board::{CALLS, MEMBERS, MOVES, Platform, WINDOW, drive, exit, line, start};
use smoltcp::wire::{IpAddress, IpCidr};
use static_cell::{ConstStaticCell, StaticCell};
use unisono_core::wire::exit::NO_NETWORK;
use unisono_firmware::Member;
use unisono_firmware::udp::{Memory, Network, SharedStack, UdpBoard};
use unisono_firmware::virtio::{Card, FRAMES, Frames, Slots};
use virtio_drivers::transport::mmio::MmioTransport;

/// A link to each other member.
const LINKS: usize = MEMBERS - 1;

/// Where the machine has its virtio devices.
const VIRTIO: Slots = Slots { base: 0x1000_1000, stride: 0x1000, count: 8 };
/// The board's address and the length of its network's prefix.
const ADDRESS: (IpAddress, u8) = (IpAddress::v4(10, 0, 2, 15), 24);

type Nic = Card<MmioTransport<'static>>;
type Here = UdpBoard<Platform, Nic, SinceOn, CALLS, LINKS>;

static FRAMES_OF_CARD: ConstStaticCell<Frames> =
    ConstStaticCell::new([const { [[0; _]; FRAMES] }; 2]);
static MEMORY: Memory<CALLS, LINKS> = Memory::new();
static STACK: StaticCell<SharedStack<Nic, SinceOn>> = StaticCell::new();
static MEMBER: StaticCell<Member<'static, Here, CALLS, WINDOW, MOVES, MEMBERS>> = StaticCell::new();

/// Runs for ever.
pub fn run() -> ! {
    let board = start();
    let Some(network) = network() else { exit(NO_NETWORK) };
    drive(MEMBER.init(Member::new(UdpBoard::new(board, network), line())))
}

fn network() -> Option<Network<Nic, SinceOn, CALLS, LINKS>> {
    // SAFETY: the machine's map, and this is the only call.
    let registers = unsafe { VIRTIO.find_card() }?;
    let card = Card::start(registers, FRAMES_OF_CARD.try_take()?)?;
    let addresses = (card.address().into(), IpCidr::new(ADDRESS.0, ADDRESS.1));
    Network::start(card, SinceOn, addresses, &STACK, &MEMORY)
}

//! The firmware of the board: see the crate's library.
#![no_std]
#![no_main]

use core::cell::RefCell;
use core::panic::PanicInfo;
use cortex_m_rt::{entry, exception};
use embedded_io::Write;
use qemu_mps2_cortex_m_board::clock::{SysTick, handle_tick};
use qemu_mps2_cortex_m_board::uart::{UART0, UART1, UART2, Uart};
use qemu_mps2_cortex_m_board::{Blocks, BoardMember, LinkLine, Memory, Mps2, Parts, blocks};
use static_cell::{ConstStaticCell, StaticCell};
use unisono_firmware::{Line, Member, Room, build_id, log};
use unisono_link_serial::Line as SerialLine;

static MEMORY: ConstStaticCell<Memory> = ConstStaticCell::new(Memory::new());
static BLOCKS: StaticCell<Blocks> = StaticCell::new();
static ROOM: ConstStaticCell<Room> = ConstStaticCell::new(Line::room());
static LINKS: StaticCell<LinkLine> = StaticCell::new();
static MEMBER: StaticCell<BoardMember> = StaticCell::new();

/// Exit code after a panic, as a Rust program on a host has it.
const PANICKED: i32 = 101;

#[entry]
fn main() -> ! {
    let Some(core) = cortex_m::Peripherals::take() else { exit(1) };
    // SAFETY: each UART is taken once, here.
    let uart = |base| unsafe { Uart::new(base) };
    let parts = Parts {
        clock: SysTick::start(core.SYST),
        control: uart(UART0),
        links: LINKS.init_with(|| RefCell::new(SerialLine::new(uart(UART1)))),
        log: uart(UART2),
        memory: MEMORY.take(),
        blocks: BLOCKS.init_with(blocks),
        build: build_id(note()),
    };
    let member = MEMBER.init_with(|| Member::new(Mps2::new(parts), Line::new(ROOM.take())));
    defmt::info!("started");
    loop {
        member.step();
    }
}

/// The note with the build id, which the linker puts at the start of what it names.
fn note() -> &'static [u8] {
    unsafe extern "C" {
        static __note_start: [u8; 36];
    }
    // SAFETY: the linker script defines it, and 36 bytes are three words, `GNU` and a SHA-1.
    unsafe { &*(&raw const __note_start) }
}

#[exception]
fn SysTick() {
    handle_tick();
}

fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // SAFETY: whatever used the UART before never runs again.
    let mut uart = unsafe { Uart::new(UART2) };
    log::panicked(info, |bytes| uart.write(bytes).unwrap_or(0));
    exit(PANICKED)
}

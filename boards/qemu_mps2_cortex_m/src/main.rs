//! The firmware of the board: see the crate's library.
#![no_std]
#![no_main]

use core::cell::RefCell;
use core::panic::PanicInfo;
use cortex_m::interrupt::InterruptNumber;
use cortex_m::peripheral::NVIC;
use cortex_m_rt::{entry, exception};
use embedded_io::Write;
use qemu_mps2_cortex_m_board::clock::{SysTick, handle_tick, micros};
use qemu_mps2_cortex_m_board::led::Led;
use qemu_mps2_cortex_m_board::uart::{self, Uart};
use qemu_mps2_cortex_m_board::{Blocks, BoardMember, LinkLine, Memory, Mps2, Parts, blocks};
use static_cell::{ConstStaticCell, StaticCell};
use unisono_core::wire::exit::PANICKED;
use unisono_firmware::{Line, Member, Room, Signals, build_id, log};
use unisono_link_serial::Line as SerialLine;

unisono_firmware::image_for!("qemu_mps2_cortex_m");
defmt::timestamp!("{=u64:us}", micros());

static MEMORY: ConstStaticCell<Memory> = ConstStaticCell::new(Memory::new());
static BLOCKS: StaticCell<Blocks> = StaticCell::new();
static ROOM: ConstStaticCell<Room> = ConstStaticCell::new(Line::room());
static LINKS: StaticCell<LinkLine> = StaticCell::new();
static MEMBER: StaticCell<BoardMember> = StaticCell::new();

/// Which UART is for what; see the library.
const CONTROL: usize = 0;
const LINKS_UART: usize = 1;
const LOG: usize = 2;

#[entry]
fn main() -> ! {
    let Some(core) = cortex_m::Peripherals::take() else { exit(1) };
    // SAFETY: each UART is taken once, here.
    let uart = |index| unsafe { Uart::new(index) };
    for index in [CONTROL, LINKS_UART] {
        // SAFETY: nothing here is protected by masked interrupts yet.
        unsafe { NVIC::unmask(Irq(uart::input_interrupt(index) as u16)) };
    }
    let parts = Parts {
        clock: SysTick::start(core.SYST),
        control: uart(CONTROL),
        links: LINKS.init_with(|| RefCell::new(SerialLine::new(uart(LINKS_UART)))),
        log: uart(LOG),
        memory: MEMORY.take(),
        blocks: BLOCKS.init_with(blocks),
        build: build_id(note()),
    };
    let member = MEMBER.init_with(|| Member::new(Mps2::new(parts), Line::new(ROOM.take())));
    // SAFETY: interrupts leave the LEDs alone.
    let mut signals = unsafe { Signals::new(Led::new(0), Led::new(1)) };
    defmt::info!("started");
    loop {
        signals.show(member.is_member(), |is_high| member.has_news(is_high));
        if !member.step() {
            uart::wait();
        }
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

/// An interrupt of the board, by its number.
#[derive(Clone, Copy)]
struct Irq(u16);

// SAFETY: the numbers are the board's own.
unsafe impl InterruptNumber for Irq {
    fn number(self) -> u16 {
        self.0
    }
}

#[exception]
fn SysTick() {
    handle_tick();
}

#[exception]
unsafe fn DefaultHandler(number: i16) {
    uart::handle_interrupt(number);
}

fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // SAFETY: whatever used the UART before never runs again.
    let mut uart = unsafe { Uart::new(LOG) };
    log::panicked(info, |bytes| uart.write(bytes).unwrap_or(0));
    exit(PANICKED)
}

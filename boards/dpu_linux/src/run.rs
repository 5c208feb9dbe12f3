//! What the program does: maps its window, and is a member for ever.

use crate::Platform;
use crate::platform::Outer;
use crate::sys::{self, Errno, Sleep, exit};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt::Write as _;
use core::panic::PanicInfo;
use heapless::String;
use spin::Once;
use static_cell::StaticCell;
use unisono_core::wire::exit::{NO_WINDOW, PANICKED, WINDOW_ABI};
use unisono_device_cpu::CpuDevice;
use unisono_driver::HostPtr;
use unisono_firmware::window::{WindowBoard, log_pipe};
use unisono_firmware::{Backoff, Line, Member, Rates, Room, build_id, panicked};
use unisono_link_window::{Region, RegionError};

/// Calls in flight, chunks in flight, moves of a route, members.
const CALLS: usize = 2;
const WINDOW: usize = 16;
const MOVES: usize = 40;
const MEMBERS: usize = 16;

/// Bytes of slots for each call.
const SLOTS: usize = 1 << 20;

#[repr(align(64))]
struct Slots(UnsafeCell<[[u8; SLOTS]; CALLS]>);

// SAFETY: only the address is shared; the engine says which call uses what.
unsafe impl Sync for Slots {}

static SCRATCH: Slots = Slots(UnsafeCell::new([[0; SLOTS]; CALLS]));
static REGION: Once<Region> = Once::new();
static ROOM: StaticCell<Room> = StaticCell::new();
static MEMBER: StaticCell<Member<'static, WindowBoard<Platform>, CALLS, WINDOW, MOVES, MEMBERS>> =
    StaticCell::new();

/// Runs for ever, with the window in the file of this name; `round` is called once a round.
pub fn run(path: Option<&CStr>, mut round: impl FnMut()) -> ! {
    let mut backoff = Backoff::new(Sleep);
    let Some(path) = path else { no_window("it is started as `dpu_linux WINDOW`, a file", None) };
    let window = match sys::map(path) {
        Ok(window) => window,
        Err(error) => no_window(path.to_str().unwrap_or_default(), Some(error)),
    };
    let region = loop {
        match Region::open(window.clone()) {
            Ok(region) => break region,
            // A host of another version sees this program's; the next host may be of the right one.
            Err(RegionError::NoRegion | RegionError::Abi { .. }) => backoff.wait(),
            Err(_) => exit(WINDOW_ABI),
        }
    };
    REGION.call_once(|| region.clone());
    let rates = Rates::measure(&mut CpuDevice::new(), sys::now);
    let platform = Platform::new(build_id(note()), rates);
    let scratch = (HostPtr::new(SCRATCH.0.get().cast()), SLOTS as u32);
    // SAFETY: the scratch is a static, used here only, with room for `CALLS` calls.
    let board = match unsafe { WindowBoard::new(platform, region, scratch) } {
        Ok(board) => board,
        Err(_) => exit(WINDOW_ABI),
    };
    let member = MEMBER.init(Member::new(board, Line::new(ROOM.init(Line::room()))));
    defmt::info!("started: {=u32} f32 elements/ms", rates.adds);
    loop {
        round();
        if member.step() {
            backoff.reset();
        } else {
            backoff.wait();
        }
    }
}

/// Says why there is no window: the log lies in one.
fn no_window(what: &str, error: Option<Errno>) -> ! {
    let mut text: String<512> = String::new();
    // What does not fit is left out.
    let _ = match error {
        Some(Errno(number)) => writeln!(text, "cannot map {what}: error {number} of Linux"),
        None => writeln!(text, "no window: {what}"),
    };
    sys::complain(text.as_bytes());
    exit(NO_WINDOW)
}

/// The note that the linker has put the build id into.
fn note() -> &'static [u8] {
    unsafe extern "C" {
        static build_id_begin: u8;
        static build_id_end: u8;
    }
    let (begin, end) = (&raw const build_id_begin, &raw const build_id_end);
    // SAFETY: `link.ld` puts the symbols around the note.
    unsafe { core::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

defmt::timestamp!("{=u64:us}", sys::now().as_nanos() / 1000);

/// The last words, over the window if there is one.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    if let Some(mut pipe) = REGION.get().and_then(|region| log_pipe::<Outer>(region).ok()) {
        panicked(info, |bytes| pipe.put(bytes).unwrap_or(0));
    }
    exit(PANICKED)
}

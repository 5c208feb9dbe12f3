//! What the image does: finds the window, starts the second core, and is a member for ever.

use crate::cpu::{self, Sleep};
use crate::platform::Ringing;
use crate::{Platform, exit, pins};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use spin::Once;
use static_cell::StaticCell;
use unisono_core::wire::exit::{NO_SECOND_CORE, NO_WINDOW, PANICKED, WINDOW_ABI};
use unisono_device_cpu::{CpuDevice, CpuError};
use unisono_driver::HostPtr;
use unisono_firmware::duo::{Back, Ends, Queues};
use unisono_firmware::ivshmem::Map;
use unisono_firmware::window::{WindowBoard, log_pipe};
use unisono_firmware::{
    Backoff, Board, Doorbell, Line, Member, Rates, Room, Signals, build_id, panicked,
};
use unisono_link_window::{Region, RegionError};

/// Calls in flight.
pub const CALLS: usize = 2;
/// Chunks of a call in flight.
pub const WINDOW: usize = 8;
/// Moves of a route.
pub const MOVES: usize = 20;
/// Members of a group.
pub const MEMBERS: usize = 9;

/// The PCI bus: its memory space ends at `0x3eff_0000`.
const MAP: Map = Map {
    config: 0x40_1000_0000,
    registers: 0x1000_0000,
    window: 0x2000_0000,
    bytes_max: 0x1000_0000,
    seen_at: cpu::NORMAL_ALIAS + 0x2000_0000,
};

/// Bytes of slots for each call.
const SLOTS: usize = 64 << 10;

#[repr(align(64))]
struct Slots(UnsafeCell<[[u8; SLOTS]; CALLS]>);

// SAFETY: only the address is shared; the engine says which call uses what.
unsafe impl Sync for Slots {}

static SCRATCH: Slots = Slots(UnsafeCell::new([[0; SLOTS]; CALLS]));
static REGION: Once<Region> = Once::new();
static QUEUES: StaticCell<Queues<CpuError>> = StaticCell::new();
static ENDS: StaticCell<Ends<'static, CpuError>> = StaticCell::new();
static ROOM: StaticCell<Room> = StaticCell::new();
static MEMBER: StaticCell<Member<'static, WindowBoard<Platform>, CALLS, WINDOW, MOVES, MEMBERS>> =
    StaticCell::new();

/// Runs for ever; `round` is called once a round.
pub fn run(round: impl FnMut()) -> ! {
    drive(MEMBER.init(Member::new(start(), line())), round)
}

/// Finds the window and starts the second core: the board with links in its window.
pub fn start() -> WindowBoard<Platform> {
    pins::set_up();
    let mut backoff = Backoff::new(Sleep::new());
    // SAFETY: the machine's map, and this is the only call.
    let Some(window) = (unsafe { MAP.find_window() }) else { exit(NO_WINDOW) };
    let region = loop {
        match Region::open(window.clone()) {
            Ok(region) => break region,
            Err(RegionError::NoRegion) => backoff.wait(),
            Err(_) => exit(WINDOW_ABI),
        }
    };
    REGION.call_once(|| region.clone());
    let rates = Rates::measure(&mut CpuDevice::new(), cpu::now);
    let (ends, back) = QUEUES.init(Queues::new()).split();
    if !cpu::start_second(move || fold(back)) {
        exit(NO_SECOND_CORE);
    }
    let platform = Platform::new(ENDS.init(ends), build_id(note()), rates);
    let scratch = (HostPtr::new(SCRATCH.0.get().cast()), SLOTS as u32);
    // SAFETY: the scratch is a static, used here only, with room for `CALLS` calls.
    match unsafe { WindowBoard::new(platform, region, scratch) } {
        Ok(board) => board,
        Err(_) => exit(WINDOW_ABI),
    }
}

/// The line to the host.
pub fn line() -> Line<'static> {
    Line::new(ROOM.init(Line::room()))
}

/// Lets a member work for ever; `round` is called once a round.
pub fn drive<B: Board>(
    member: &mut Member<'_, B, CALLS, WINDOW, MOVES, MEMBERS>,
    mut round: impl FnMut(),
) -> ! {
    let mut backoff = Backoff::new(Sleep::until_rung());
    let mut signals = Signals::new(pins::Status::default(), pins::Attention::default());
    let mut doorbell = Doorbell::new(pins::Key);
    defmt::info!("started: {=u32} f32 elements/ms", member.descr().rates.adds);
    loop {
        round();
        signals.show(member.is_member(), |is_high| member.has_news(is_high));
        if member.step() {
            backoff.reset();
        } else {
            backoff.wait();
            if backoff.is_long() && doorbell.is_rung() {
                defmt::info!("the doorbell was rung");
                backoff.rung();
            }
        }
    }
}

/// What the second core does.
fn fold(mut back: Back<'static, CpuError>) {
    let mut device = CpuDevice::new();
    let mut backoff = Backoff::new(Sleep::new());
    loop {
        if back.turn(&mut device) {
            backoff.reset();
        } else {
            backoff.wait();
        }
    }
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

defmt::timestamp!("{=u64:us}", cpu::now().as_nanos() / 1000);

/// The last words, over the window if there is one.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    if let Some(mut pipe) = REGION.get().and_then(|region| log_pipe::<Ringing>(region).ok()) {
        panicked(info, |bytes| pipe.put(bytes).unwrap_or(0));
    }
    exit(PANICKED)
}

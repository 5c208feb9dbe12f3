//! A program that speaks another version of the messages, to see what the host makes of it.
#![no_std]
#![no_main]

use dpu_linux_board::sys;
use embedded_hal::delay::DelayNs;
use unisono_core::wire::board::{ABI, FromBoard, ToBoard};
use unisono_core::wire::exit::NO_WINDOW;
use unisono_firmware::Line;
use unisono_link_window::{Area, Coherent, PipeReader, PipeWriter, Pipes, Region};

dpu_linux_board::start_with!(|path| {
    let Some(window) = path.and_then(|path| sys::map(path).ok()) else { sys::exit(NO_WINDOW) };
    let region = loop {
        match Region::open(window.clone()) {
            Ok(region) => break region,
            Err(_) => sys::Sleep.delay_us(200),
        }
    };
    let from = PipeReader::new(&region, |a| matches!(a, Area::ToBoard(_)), Coherent);
    let to = PipeWriter::new(&region, |a| matches!(a, Area::ToHost(_)), Coherent);
    let (Ok(from), Ok(to)) = (from, to) else { sys::exit(NO_WINDOW) };
    let (mut pipes, mut room) = (Pipes { from, to }, Line::room());
    let mut line = Line::new(&mut room);
    loop {
        region.beat();
        line.push(&mut pipes);
        if let (true, Some(Ok((ToBoard::Greet { session, .. }, _)))) =
            (line.is_free(), line.pull(&mut pipes))
        {
            line.send(&FromBoard::Hello { session, abi: ABI + 1, build: 0 }, &[]);
        }
        sys::Sleep.delay_us(200);
    }
});

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    dpu_linux_board::panic(info)
}

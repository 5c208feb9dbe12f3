//! The system calls that the member needs, and where it begins.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int};
use core::ptr::NonNull;
use embedded_hal::delay::DelayNs;
use linux_raw_sys::general::{
    __NR_clock_gettime, __NR_clock_nanosleep, __NR_exit_group, __NR_lseek, __NR_mmap, __NR_openat,
    __NR_write, __kernel_timespec, AT_FDCWD, CLOCK_MONOTONIC, MAP_SHARED, O_CLOEXEC, O_RDWR,
    PROT_READ, PROT_WRITE, SEEK_END,
};
use spin::Once;
use unisono_core::time::Instant;
use unisono_link_window::Window;

/// Makes the program's entry: `run` with the closure that `$round` is.
#[macro_export]
macro_rules! start {
    ($round:expr) => {
        $crate::start_with!(|path| $crate::run(path, $round));
    };
}

/// Makes the program's entry: what `$run` does with the program's first argument, for ever.
#[macro_export]
macro_rules! start_with {
    (|$path:ident| $run:expr) => {
        unisono_firmware::image_for!("dpu_linux");

        core::arch::global_asm!(
            ".global _start",
            "_start:",
            // No caller; the kernel has put the arguments on the stack.
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, sp",
            "b {main}",
            main = sym main,
        );

        extern "C" fn main(stack: *const usize) -> ! {
            // Time begins.
            $crate::sys::now();
            // SAFETY: the entry's stack pointer, as the kernel has set it.
            let $path = unsafe { $crate::sys::first_argument(stack) };
            $run
        }
    };
}

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u16);

/// # Safety
/// As the call's manual page says.
unsafe fn call(number: u32, args: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = args;
    let result: isize;
    // SAFETY: the caller's promise; the kernel changes no other register.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    // Errors are the last page of numbers.
    match result {
        -4095..0 => Err(Errno(result.unsigned_abs() as u16)),
        _ => Ok(result as usize),
    }
}

/// The first argument of the program.
///
/// # Safety
/// `stack` is what the stack pointer was at the program's entry.
#[must_use]
pub unsafe fn first_argument(stack: *const usize) -> Option<&'static CStr> {
    // SAFETY: there lies the number of arguments, then a pointer to each, the program's name first;
    // they stay.
    unsafe { (*stack > 1).then(|| CStr::from_ptr(stack.add(2).cast::<*const c_char>().read())) }
}

/// Maps a whole file, to be shared with whoever else maps it.
///
/// # Errors
/// If it cannot be opened for reading and writing, or cannot be mapped.
pub fn map(path: &CStr) -> Result<Window, Errno> {
    let flags = O_RDWR | O_CLOEXEC;
    let open = [AT_FDCWD as usize, path.as_ptr().addr(), flags as usize, 0, 0, 0];
    // SAFETY: a string that ends with 0.
    let file = unsafe { call(__NR_openat, open)? };
    // SAFETY: touches no memory. The length of a sysfs resource file is that of the BAR.
    let bytes = unsafe { call(__NR_lseek, [file, 0, SEEK_END as usize, 0, 0, 0])? };
    let rights = PROT_READ | PROT_WRITE;
    // SAFETY: a new mapping, where there is room. The file stays open for good.
    let at = unsafe { call(__NR_mmap, [0, bytes, rights as usize, MAP_SHARED as usize, file, 0])? };
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(at)).ok_or(Errno(0))?;
    // SAFETY: mapped for as long as the program lives, and used through this window only.
    Ok(unsafe { Window::new(base, bytes) })
}

/// What the clock said when this was first called, which is when the program began.
static BEGUN: Once<u64> = Once::new();

/// Time since the program began.
pub fn now() -> Instant {
    let nanos = clock();
    Instant::from_nanos(nanos.wrapping_sub(*BEGUN.call_once(|| nanos)))
}

/// Nanoseconds since the machine was switched on.
fn clock() -> u64 {
    let mut time = __kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    let place = (&raw mut time).expose_provenance();
    // SAFETY: `time` lives on. The clock is always there.
    let _ = unsafe { call(__NR_clock_gettime, [CLOCK_MONOTONIC as usize, place, 0, 0, 0, 0]) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Sleep of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleep;

impl DelayNs for Sleep {
    fn delay_ns(&mut self, ns: u32) {
        let (tv_sec, tv_nsec) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let time = __kernel_timespec { tv_sec: tv_sec.into(), tv_nsec: tv_nsec.into() };
        let place = (&raw const time).expose_provenance();
        // SAFETY: `time` lives on. A signal may end the sleep early; whoever waits looks again.
        let _ =
            unsafe { call(__NR_clock_nanosleep, [CLOCK_MONOTONIC as usize, 0, place, 0, 0, 0]) };
    }
}

/// Writes to the standard error output.
pub fn complain(text: &[u8]) {
    const STDERR: usize = 2;
    // SAFETY: within the slice. If nobody can be told, the exit code still tells.
    let _ = unsafe {
        call(__NR_write, [STDERR, text.as_ptr().expose_provenance(), text.len(), 0, 0, 0])
    };
}

/// Ends the program with this code.
pub fn exit(code: c_int) -> ! {
    loop {
        // SAFETY: does not come back.
        let _ = unsafe { call(__NR_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    }
}

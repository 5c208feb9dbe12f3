//! Ctrl-C and its like: a flag that everything looks at, so that whoever stops can clean up.

use super::error::Interrupted;
#[cfg(unix)]
use signal_hook::consts::{SIGALRM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
#[cfg(unix)]
use signal_hook::low_level;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};

/// Has somebody asked this process to stop?
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Catches the signals from now on, but for those that are ignored: whoever started this
    /// process (nohup, or a shell with a job in the background) wants it to outlive them. The
    /// second one ends the process on the spot, whatever it does, unless it is `careful`: then
    /// there are processes or a device that must not be left as they are.
    pub fn install(careful: bool) -> io::Result<Self> {
        let new = Self { flag: Arc::default(), signal: Arc::default() };
        #[cfg(unix)]
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU];
        #[cfg(not(unix))]
        let signals = [SIGINT, SIGTERM];
        for signal in signals {
            if is_ignored(signal) {
                continue;
            }
            if !careful {
                // Before the flag is set by the same signal.
                let code = 128 + signal;
                flag::register_conditional_shutdown(signal, code, new.flag.clone())?;
            }
            // The number first: whoever sees the flag finds the number.
            flag::register_usize(signal, new.signal.clone(), signal as usize)?;
            flag::register(signal, new.flag.clone())?;
            #[cfg(unix)]
            if !careful {
                // SAFETY: `alarm` may be called in a handler.
                unsafe { low_level::register(signal, start_alarm)? };
            }
        }
        #[cfg(unix)]
        if !careful {
            end_at_alarm(new.signal.clone())?;
        }
        // Where files must not grow further, this signal would end the process before it can clean
        // up. Once it is caught, the write itself fails, and nobody needs to look at a flag.
        #[cfg(unix)]
        flag::register(SIGXFSZ, Arc::default())?;
        #[cfg(unix)]
        remember(&[&signals[..], &[SIGALRM, SIGXFSZ]].concat());
        Ok(new)
    }

    /// The flag itself, for [`unisono::GroupBuilder::interrupt`].
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// An error once a signal has come.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.flag.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }

    /// 128 + n if signal n has come, as shells report it.
    pub fn exit_code(&self) -> Option<u8> {
        self.check().is_err().then(|| 128 + self.signal.load(Ordering::SeqCst) as u8)
    }
}

/// Ends the process without asking any library, as a driver that hangs may hang again.
pub fn end_now(code: i32) -> ! {
    #[cfg(unix)]
    // SAFETY: it does not return, and nothing is left to be done.
    unsafe {
        libc::_exit(code)
    }
    #[cfg(not(unix))]
    std::process::exit(code)
}

/// Seconds that a process may take to end after a signal. It waits for its devices, as they write
/// into its memory, and a driver that is broken may never be done.
#[cfg(unix)]
const LONGEST: u32 = 10;

#[cfg(unix)]
fn start_alarm() {
    // SAFETY: it only sets a timer; there was none before.
    unsafe { libc::alarm(LONGEST) };
}

/// Ends the process when its alarm goes off.
#[cfg(unix)]
fn end_at_alarm(first: Arc<AtomicUsize>) -> io::Result<()> {
    const TEXT: &[u8] =
        b"error: interrupted, but something, perhaps a device, did not end for 10 s\n";
    let end = move || {
        // SAFETY: both may be called in a handler, and the text is there.
        unsafe {
            libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
            libc::_exit(128 + first.load(Ordering::SeqCst) as i32);
        }
    };
    // SAFETY: it only does what may be done in a handler.
    unsafe { low_level::register(SIGALRM, end) }.map(drop)
}

/// What each signal does since [`Interrupt::install`].
#[cfg(unix)]
static ACTIONS: Mutex<Vec<(i32, libc::sigaction)>> = Mutex::new(Vec::new());

#[cfg(unix)]
fn remember(signals: &[i32]) {
    let known = signals.iter().filter_map(|signal| Some((*signal, action(*signal)?)));
    *ACTIONS.lock().unwrap_or_else(PoisonError::into_inner) = known.collect();
}

/// Catches the signals again. To be called when drivers have been loaded and have compiled
/// something: LLVM, which is in some of them, then takes signals for itself, and a SIGQUIT that it
/// catches does nothing at all.
pub fn catch_again() {
    #[cfg(unix)]
    for (signal, action) in ACTIONS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        // SAFETY: the action was there before, and what it calls still is.
        unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
    }
}

/// What a signal does now.
#[cfg(unix)]
fn action(signal: i32) -> Option<libc::sigaction> {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action nothing changes, and there is room for the present one.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: plain data, of which every bit may be zero.
    (asked == 0).then(|| unsafe { now.assume_init() })
}

/// Does this process ignore the signal?
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    action(signal).is_some_and(|now| now.sa_sigaction == libc::SIG_IGN)
}

/// Elsewhere no parent can ask for it.
#[cfg(not(unix))]
const fn is_ignored(_: i32) -> bool {
    false
}

//! Memory of another process, copied by the system (`process_vm_readv`, `process_vm_writev`).
//!
//! Whether a process may do so is up to the system: it has to be allowed to trace the other one,
//! which some containers and some settings (Yama's `ptrace_scope`) forbid. So both try when they
//! meet ([`Probe`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A process whose memory this one may read and write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attach {
    pid: libc::pid_t,
}

/// A call of the system that copies between this and another process.
type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

impl Attach {
    /// Copies from `from` there to `into` here; false if the system refuses.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes` bytes.
    pub unsafe fn fetch(self, from: u64, into: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.all(libc::process_vm_readv, into, from, bytes) }
    }

    /// Copies from `from` here to `to` there; false if the system refuses.
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes` bytes.
    pub unsafe fn store(self, from: *const u8, to: u64, bytes: usize) -> bool {
        // SAFETY: the caller's promise; nothing is written here.
        unsafe { self.all(libc::process_vm_writev, from.cast_mut(), to, bytes) }
    }

    /// # Safety
    /// `here` must be valid for what `transfer` does to `bytes` bytes of it.
    unsafe fn all(self, transfer: Transfer, here: *mut u8, there: u64, bytes: usize) -> bool {
        let mut done = 0;
        while done < bytes {
            let at = there.wrapping_add(done as u64) as usize;
            let there = std::ptr::without_provenance_mut(at);
            let iov_len = bytes - done;
            let near = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len };
            let far = libc::iovec { iov_base: there, iov_len };
            // SAFETY: the caller's promise; what is at the other end is that process's memory, and
            // an address that it does not have is an error.
            match unsafe { transfer(self.pid, &raw const near, 1, &raw const far, 1, 0) } {
                moved @ 1.. => done += moved.unsigned_abs(),
                _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
        true
    }
}

/// Something in this process's memory that a peer tries to read and to write.
pub(crate) struct Probe(Box<AtomicU64>);

impl Probe {
    pub fn new() -> Self {
        // Another process that happens to have the same identifier has not the same number there.
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = time as u64 ^ u64::from(std::process::id()).rotate_left(32);
        Self(Box::new(AtomicU64::new(number)))
    }

    /// Where it is, and what it says.
    pub fn said(&self) -> [u64; 2] {
        [self.0.as_ptr().expose_provenance() as u64, self.0.load(Ordering::Relaxed)]
    }
}

/// Tries to reach the memory of the process `pid`, which has said where its [`Probe`] is.
pub(crate) fn try_attach(pid: Option<i32>, [at, says]: [u64; 2]) -> Option<Attach> {
    let attach = Attach { pid: pid.filter(|pid| *pid > 0)? };
    let mut heard = 0u64;
    // SAFETY: both are as long as said.
    let there = unsafe { attach.fetch(at, (&raw mut heard).cast(), size_of::<u64>()) };
    // SAFETY: as above; what is written is what is there.
    let both = there && heard == says && unsafe { attach.store((&raw const says).cast(), at, 8) };
    both.then_some(attach)
}

//! Pages of this process: addresses for memory that the host cannot reach, and host memory that
//! devices import.

use std::ptr::NonNull;

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: a query without arguments in memory.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Pages that are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only the right to give the pages back.
unsafe impl Send for Pages {}
// SAFETY: nothing can be done through a shared reference but ask where they are.
unsafe impl Sync for Pages {}

impl Pages {
    /// Addresses that nothing else will get, with no memory behind them: an access faults.
    pub fn reserve(bytes: usize) -> std::io::Result<Self> {
        Self::map(bytes, libc::PROT_NONE, libc::MAP_NORESERVE)
    }

    /// Zeroed memory.
    pub fn zeroed(bytes: usize) -> std::io::Result<Self> {
        Self::map(bytes, libc::PROT_READ | libc::PROT_WRITE, 0)
    }

    fn map(bytes: usize, access: libc::c_int, flags: libc::c_int) -> std::io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// The first byte.
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; whoever holds addresses in it has promised not
        // to outlive it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

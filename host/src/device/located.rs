//! A device of a group whose members are several processes.

use super::any::{AnyDevice, DeviceError};
use std::cell::Cell;
use std::sync::Arc;
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostMemory, HostPtr, Token};
use unisono_link_shm::Arena;

/// A device, and the memory that other processes see, if there are any: nothing else can be shared
/// with them, whatever the device reaches.
#[derive(Debug)]
pub(crate) struct Located {
    pub device: AnyDevice,
    pub arena: Option<Arc<Arena>>,
    /// The tensors of the call that begins next are reached outside of it, too.
    pub attach: Cell<bool>,
}

impl Located {
    /// Do all peers see this memory where it is?
    pub fn is_seen(&self, mem: HostPtr) -> bool {
        let seen = |arena: &Arc<Arena>| arena.offset_of(mem.as_ptr(), 0).is_some();
        self.arena.as_ref().is_none_or(seen)
    }
}

impl Device for Located {
    type Mem = HostPtr;
    type Error = DeviceError;

    fn caps(&self) -> DeviceCaps {
        self.device.caps()
    }

    fn has_room(&self) -> bool {
        self.device.has_room()
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.device.fold(work, token) }
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.device.copy(work, token) }
    }

    fn flush(&mut self) {
        self.device.flush();
    }

    fn is_shared(&self, mem: HostPtr) -> bool {
        self.device.is_shared(mem) && (self.attach.get() || self.is_seen(mem))
    }

    fn poll_done(&mut self) -> Option<Done<DeviceError>> {
        self.device.poll_done()
    }
}

//! Devices: reduce and copy on spans of memory.

use unisono_core::{DType, Finish, ReduceOp, Source};

/// Names one submitted piece of work; comes back in its completion.
pub type Token = u32;

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Most sources of one fold, at least 2.
    pub sources_max: usize,
    /// Most destinations of one fold, at least 1.
    pub dests_max: usize,
}

/// One n-ary fold (see [`unisono_core::fold`] for the program it runs per element).
///
/// A destination either starts exactly where one of the sources starts (in place) or overlaps no
/// source; destinations do not overlap each other. Every destination gets the same bytes.
#[derive(Debug)]
pub struct Fold<'a, M> {
    /// Element type of the tensor.
    pub dtype: DType,
    /// `None` copies the single source (collectives that do not reduce).
    pub op: Option<ReduceOp>,
    /// Elements.
    pub count: usize,
    /// Sources in canonical order.
    pub sources: &'a [Source<M>],
    /// Where the result goes.
    pub dests: &'a [M],
    /// Partial or final result.
    pub finish: Finish,
}

/// Moves `bytes` bytes; the two spans do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct Copy<M> {
    /// From here.
    pub from: M,
    /// To here.
    pub to: M,
    /// How many bytes.
    pub bytes: usize,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub struct Done<E> {
    /// The token of the submission.
    pub token: Token,
    /// What became of it.
    pub result: Result<(), E>,
}

/// A reference to memory: cheap to copy, never dereferenced by the engine.
pub trait Memory: core::marker::Copy + core::fmt::Debug {
    /// The place `bytes` bytes further on in the same buffer.
    #[must_use]
    fn offset(self, bytes: u64) -> Self;
}

/// A [`Memory`] that can name any address of this process, so that links between its threads and
/// processes can pass it on. It says where bytes are, not that they may be touched: that is what
/// the contracts of [`crate::Link`] and [`Device`] are about.
pub trait HostMemory: Memory + Send {
    /// A reference to this address.
    fn from_ptr(ptr: *mut u8) -> Self;
    /// The address.
    fn as_ptr(self) -> *mut u8;
}

/// An address in this process, any alignment. Memory of a device that the host cannot reach has
/// addresses too: a range that is reserved for it, where nothing else can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPtr(*mut u8);

// SAFETY: only an address; who may use the memory behind it is the business of the unsafe calls
// that do so.
unsafe impl Send for HostPtr {}

impl HostPtr {
    /// The memory at `start`.
    #[must_use]
    pub const fn new(start: *mut u8) -> Self {
        Self(start)
    }
}

impl Memory for HostPtr {
    fn offset(self, bytes: u64) -> Self {
        // An address of this process fits `usize`, and so does every offset within a buffer.
        Self(self.0.wrapping_add(bytes as usize))
    }
}

impl HostMemory for HostPtr {
    fn from_ptr(ptr: *mut u8) -> Self {
        Self(ptr)
    }

    fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

/// A device that computes: CPU, GPU, NIC core.
pub trait Device {
    /// A reference to memory that this device can reach.
    type Mem: Memory;
    /// What can go wrong.
    type Error: core::error::Error;

    /// Fixed properties.
    fn caps(&self) -> DeviceCaps;

    /// Is there room for one more piece of work now?
    fn has_room(&self) -> bool;

    /// Starts a fold. Call only after [`Device::has_room`].
    ///
    /// # Safety
    /// All spans must be valid for reads (sources) and writes (destinations) of the fold's size
    /// until the completion, written by nobody else, and kept as [`Fold`] demands.
    ///
    /// # Errors
    /// If the work can not be started; then no completion follows.
    unsafe fn fold(&mut self, work: &Fold<'_, Self::Mem>, token: Token) -> Result<(), Self::Error>;

    /// Starts a copy. Call only after [`Device::has_room`].
    ///
    /// # Safety
    /// As for [`Device::fold`].
    ///
    /// # Errors
    /// If the work can not be started; then no completion follows.
    unsafe fn copy(&mut self, work: &Copy<Self::Mem>, token: Token) -> Result<(), Self::Error>;

    /// Starts what was submitted and has not started: a GPU gathers work until then, because a
    /// submission costs it more than a small kernel. The engine calls this when it has nothing
    /// more to submit for now.
    fn flush(&mut self) {}

    /// Can peers read and write this memory where it is? What they cannot reach is copied to
    /// scratch memory, which they can, before it is sent, and no window into it is offered.
    fn is_shared(&self, mem: Self::Mem) -> bool {
        let _ = mem;
        true
    }

    /// The next completion, if any. A device that is lost completes all its work with an error: a
    /// call cannot end before its jobs have.
    fn poll_done(&mut self) -> Option<Done<Self::Error>>;
}

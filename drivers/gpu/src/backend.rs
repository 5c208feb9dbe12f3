//! What an API has to offer. Everything else about a device is in this crate, once.

use crate::card::Card;
use crate::error::GpuError;
use crate::kernel::{Arithmetic, Params, Variant};
use std::ptr::NonNull;
use std::sync::Arc;

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the device's own memory. Where the host can reach that as well, coherently and cached
    /// (software devices, integrated GPUs), it is mapped for as long as the buffer lives.
    Device,
    /// In memory of the host that the device reads and writes over its bus: always mapped.
    Pinned,
}

/// What a device cannot exceed. Whatever is larger is split by [`crate::Gpu`].
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Largest buffer, in bytes.
    pub buffer_max: u64,
    /// Largest span that one kernel argument can name, in bytes.
    pub span_max: u64,
    /// A span given to a kernel starts at a multiple of this many bytes of its buffer; at least 4,
    /// a power of two. The rest of an address is a start in [`Params`].
    pub span_align: u64,
    /// Imported memory starts at, and is, a multiple of this many bytes; `None`: no import.
    pub import_align: Option<u64>,
    /// A kernel reads memory that was just imported at least as fast as it would a copy: the
    /// device's memory IS the host's. Otherwise imports are only worth it for memory that is
    /// registered for longer.
    pub unified: bool,
    /// Kernels may be given spans of [`Place::Pinned`] memory; otherwise only copies may. (OpenCL
    /// without fine-grained shared memory: a kernel must not touch what is mapped.)
    pub pinned_kernels: bool,
    /// Most spans (sources and destinations together) of one kernel.
    pub spans_max: usize,
    /// Work items of a work group.
    pub group_size: u32,
    /// Most work groups in one dimension; a dispatch uses two.
    pub groups_max: u32,
    /// Arithmetic and types that the device has, or claims to have: kernels that use them compile.
    /// The self-test decides which of them give the right bits, and are used.
    pub offers: Arithmetic,
}

/// A span of a buffer.
#[derive(Debug)]
pub struct Span<'a, B> {
    /// The buffer.
    pub buffer: &'a Arc<B>,
    /// Bytes from its start.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// One device, opened through one API: makes buffers and queues. Shared by whoever allocates.
pub trait Context: Send + Sync + 'static {
    /// A buffer; freed when it is dropped.
    type Buffer: Send + Sync + 'static;
    /// Where work goes.
    type Queue: Queue<Buffer = Self::Buffer> + 'static;

    /// What the device is.
    fn card(&self) -> &Card;

    /// What it cannot exceed.
    fn limits(&self) -> &Limits;

    /// A buffer of `bytes` bytes, aligned to at least 256.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], or what the driver says.
    fn alloc(&self, bytes: u64, place: Place) -> Result<Self::Buffer, GpuError>;

    /// Makes memory of this process reachable for the device, in place.
    ///
    /// # Safety
    /// The pages must stay mapped until the buffer is dropped.
    ///
    /// # Errors
    /// If start or length are not aligned as [`Limits::import_align`] says, or what the driver
    /// says.
    unsafe fn import(&self, start: NonNull<u8>, bytes: u64) -> Result<Self::Buffer, GpuError>;

    /// The address of a buffer that the host can reach, coherently, while work is not under way.
    fn mapped(&self, buffer: &Self::Buffer) -> Option<NonNull<u8>>;

    /// Bytes of a buffer.
    fn bytes(&self, buffer: &Self::Buffer) -> u64;

    /// A queue of its own for one member of a group.
    ///
    /// # Errors
    /// What the driver says.
    fn queue(self: Arc<Self>) -> Result<Self::Queue, GpuError>;
}

/// Records work into a batch and starts batches in order. Nothing blocks but [`Queue::wait`] and
/// [`Queue::compile`], and dropping a queue, which waits for its batches first.
///
/// Jobs of one batch are independent of each other. A job sees what earlier batches have written,
/// and what the host had written when the job was added: an API may start it then, before
/// [`Queue::submit`]. The host sees what a batch has written once it is complete.
pub trait Queue: Send {
    /// The context's buffer.
    type Buffer;
    /// A compiled variant.
    type Kernel: Clone + Send;

    /// Compiles the kernel for a variant; the caller keeps it.
    ///
    /// # Errors
    /// [`GpuError::Build`] with the compiler's own text.
    fn compile(&mut self, variant: &Variant) -> Result<Self::Kernel, GpuError>;

    /// Adds a kernel to the batch: `groups` is x and y of the dispatch; `params` is copied. Sources
    /// and destinations may be the same span (in place).
    ///
    /// # Safety
    /// The spans must stay valid, and what [`unisono_driver::Fold`] demands must hold, until the
    /// batch is complete; the kernel was compiled for as many sources and destinations.
    ///
    /// # Errors
    /// If it cannot be recorded; then it is not part of the batch.
    unsafe fn dispatch(
        &mut self,
        kernel: &Self::Kernel,
        params: &Params,
        spans: &[Span<'_, Self::Buffer>],
        groups: [u32; 2],
    ) -> Result<(), GpuError>;

    /// Adds a copy of bytes to the batch, any alignment; spans are equally long and do not overlap.
    ///
    /// # Safety
    /// As for [`Queue::dispatch`].
    ///
    /// # Errors
    /// As for [`Queue::dispatch`].
    unsafe fn copy(
        &mut self,
        from: Span<'_, Self::Buffer>,
        to: Span<'_, Self::Buffer>,
    ) -> Result<(), GpuError>;

    /// Is there room for one more batch, and for `jobs` more jobs (kernels and copies) in the one
    /// that is recorded? An empty batch has room for at least 32.
    fn has_room(&self, jobs: usize) -> bool;

    /// Starts the recorded batch, if there is anything in it, and returns the number of the last
    /// batch that was started: 1, 2, 3 and so on, 0 if there was none.
    ///
    /// # Errors
    /// [`GpuError::Lost`], or what the driver says; the batch is dropped then.
    fn submit(&mut self) -> Result<u64, GpuError>;

    /// Number of the last batch that is complete, as all before it are. Never blocks.
    ///
    /// # Errors
    /// [`GpuError::Lost`]: no batch will complete, and no memory is in use any more.
    fn poll(&mut self) -> Result<u64, GpuError>;

    /// Blocks until a batch is complete.
    ///
    /// # Errors
    /// As for [`Queue::poll`].
    fn wait(&mut self, batch: u64) -> Result<(), GpuError>;
}

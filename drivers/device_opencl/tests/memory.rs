//! Memory of all kinds, and copies between all of them.

use opencl3::device::Device as ClDevice;
use opencl3::memory::{Buffer as ClBuffer, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use unisono_core::{DType, ReduceOp};
use unisono_device_opencl::{Buffer, OpenCl, OpenClQueue, Options};
use unisono_gpu::{Arithmetic, Context, GpuError, Place, Queue, Span, Variant};

const BYTES: usize = 3 * 4096;

/// Pages of the process.
struct Pages(NonNull<u8>);

impl Pages {
    const LAYOUT: Layout = match Layout::from_size_align(BYTES, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a page is a power of two"),
    };

    fn new() -> Self {
        // SAFETY: the size is not zero.
        Self(NonNull::new(unsafe { alloc_zeroed(Self::LAYOUT) }).unwrap())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), Self::LAYOUT) };
    }
}

/// Every kind of memory that the device has.
fn kinds(cl: &Arc<OpenCl>, pages: &Pages) -> Vec<(&'static str, Arc<Buffer>)> {
    let alloc = |place| Arc::new(cl.alloc(BYTES as u64, place).unwrap());
    let theirs = cl.context().unwrap();
    // SAFETY: no pointer is given.
    let theirs =
        unsafe { ClBuffer::<u32>::create(&theirs, CL_MEM_READ_WRITE, BYTES / 4, null_mut()) };
    let mut kinds = vec![
        ("device", alloc(Place::Device)),
        ("pinned", alloc(Place::Pinned)),
        ("adopted", Arc::new(cl.adopt(&theirs.unwrap()).unwrap())),
    ];
    if cl.limits().import_align.is_some() {
        // SAFETY: the pages outlive the buffers.
        let imported = unsafe { cl.import(pages.0, BYTES as u64) }.unwrap();
        assert_eq!(cl.mapped(&imported), Some(pages.0));
        kinds.push(("imported", Arc::new(imported)));
    }
    kinds
}

fn copy(
    queue: &mut OpenClQueue,
    from: (&Arc<Buffer>, usize),
    to: (&Arc<Buffer>, usize),
    bytes: usize,
) {
    let span =
        |(buffer, offset): (_, usize)| Span { buffer, offset: offset as u64, bytes: bytes as u64 };
    // SAFETY: nobody else uses the buffers.
    unsafe { queue.copy(span(from), span(to)) }.unwrap();
    let batch = queue.submit().unwrap();
    queue.wait(batch).unwrap();
    assert_eq!(queue.poll().unwrap(), batch);
}

/// Puts bytes into a buffer, whichever kind it is, through pinned memory.
fn write(
    cl: &OpenCl,
    queue: &mut OpenClQueue,
    pinned: &Arc<Buffer>,
    to: &Arc<Buffer>,
    image: &[u8],
) {
    let start = cl.mapped(pinned).unwrap();
    // SAFETY: as long as the image, and nobody else uses it.
    unsafe { start.as_ptr().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
    copy(queue, (pinned, 0), (to, 0), image.len());
}

/// Reads all bytes of a buffer.
fn read(cl: &OpenCl, queue: &mut OpenClQueue, pinned: &Arc<Buffer>, from: &Arc<Buffer>) -> Vec<u8> {
    copy(queue, (from, 0), (pinned, 0), BYTES);
    // SAFETY: as long as that, and nobody writes it.
    unsafe { std::slice::from_raw_parts(cl.mapped(pinned).unwrap().as_ptr(), BYTES) }.to_vec()
}

/// Copies between every two kinds, at odd addresses and lengths.
fn copies(options: &Options) {
    let cl = OpenCl::open(0, options).unwrap();
    let (one, two) = (Pages::new(), Pages::new());
    let (from, to) = (kinds(&cl, &one), kinds(&cl, &two));
    let pinned = Arc::new(cl.alloc(BYTES as u64, Place::Pinned).unwrap());
    let mut queue = cl.clone().queue().unwrap();
    let image: Vec<u8> = (0..BYTES).map(|i| (i * 7 + i / 256) as u8).collect();
    let background = vec![0xa5; BYTES];
    for (from_name, from) in &from {
        for (to_name, to) in &to {
            for (at, to_at, bytes) in [(0, 0, BYTES), (1, 3, 4097), (4095, 0, 1), (5, 6, 8000)] {
                write(&cl, &mut queue, &pinned, from, &image);
                write(&cl, &mut queue, &pinned, to, &background);
                copy(&mut queue, (from, at), (to, to_at), bytes);
                let mut want = background.clone();
                want[to_at..][..bytes].copy_from_slice(&image[at..][..bytes]);
                let got = read(&cl, &mut queue, &pinned, to);
                assert!(got == want, "{from_name} to {to_name}, {bytes} bytes, {options:?}");
            }
        }
    }
}

#[test]
fn copies_of_all_kinds() {
    copies(&Options::default());
}

#[test]
fn copies_without_shared_memory() {
    copies(&Options { shared: false, import: false, ..Options::default() });
}

#[test]
fn copies_in_order() {
    copies(&Options { out_of_order: false, ..Options::default() });
}

/// Shared memory is seen by the host where it lies, without a copy.
#[test]
fn shared_memory_is_mapped() {
    let cl = OpenCl::open(0, &Options::default()).unwrap();
    let buffer = cl.alloc(1000, Place::Device).unwrap();
    let start = cl.mapped(&buffer).unwrap();
    assert_eq!(start.as_ptr().addr() % 256, 0);
    assert_eq!(buffer.shared(), Some(start));
    assert_eq!(cl.bytes(&buffer), 1000);
    let bare = OpenCl::open(0, &Options { shared: false, ..Options::default() }).unwrap();
    let buffer = bare.alloc(1000, Place::Device).unwrap();
    assert_eq!(bare.mapped(&buffer), None);
    assert!(buffer.mem().is_some() && buffer.shared().is_none());
}

/// What is not page-aligned, too large, or of another context is refused, and says why.
#[test]
fn refusals_say_why() {
    let cl = OpenCl::open(0, &Options { buffer_max: 1 << 20, ..Options::default() }).unwrap();
    let pages = Pages::new();
    // SAFETY: the pages outlive what could be made of them.
    let import = |at: usize, bytes| unsafe { cl.import(pages.0.add(at), bytes) }.unwrap_err();
    for error in [import(64, 4096), import(0, 100), import(0, 0)] {
        assert!(error.to_string().contains("a page"), "{error}");
    }
    let error = cl.alloc((1 << 20) + 1, Place::Device).unwrap_err();
    assert!(matches!(error, GpuError::OutOfMemory { bytes: 1_048_577, .. }), "{error}");
    let bare = OpenCl::open(0, &Options { import: false, ..Options::default() }).unwrap();
    // SAFETY: as above.
    let error = unsafe { bare.import(pages.0, 4096) }.unwrap_err();
    assert!(error.to_string().contains("does not import"), "{error}");

    let other = OpenCl::open(0, &Options::default()).unwrap().context().unwrap();
    // SAFETY: no pointer is given.
    let make_as =
        |flags, bytes| unsafe { ClBuffer::<u8>::create(&other, flags, bytes, null_mut()).unwrap() };
    let make = |bytes| make_as(CL_MEM_READ_WRITE, bytes);
    let error = cl.adopt(&make(64)).unwrap_err();
    assert!(error.to_string().contains("another OpenCL context"), "{error}");
    let theirs = OpenCl::from_context(&other, &device(&other), &Options::default()).unwrap();
    assert_eq!(theirs.bytes(&theirs.adopt(&make(63)).unwrap()), 63);
    for flags in [CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY] {
        let error = theirs.adopt(&make_as(flags, 64)).unwrap_err();
        assert!(error.to_string().contains("must be CL_MEM_READ_WRITE"), "{error}");
    }

    let error = OpenCl::open(999, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("no OpenCL device 999; there are: 0: "), "{error}");
}

fn device(context: &opencl3::context::Context) -> ClDevice {
    ClDevice::new(context.default_device())
}

/// A span beyond its buffer is an error, and nothing is enqueued.
#[test]
fn spans_stay_in_their_buffers() {
    let cl = OpenCl::open(0, &Options::default()).unwrap();
    let buffer = Arc::new(cl.alloc(64, Place::Device).unwrap());
    let mut queue = cl.queue().unwrap();
    let span = |offset| Span { buffer: &buffer, offset, bytes: 32 };
    for offset in [33, u64::MAX - 8] {
        // SAFETY: it is refused.
        let error = unsafe { queue.copy(span(offset), span(0)) }.unwrap_err();
        assert!(error.to_string().contains("ends after its buffer"), "{error}");
    }
    assert_eq!(queue.submit().unwrap(), 0);
    assert!(queue.wait(1).unwrap_err().to_string().contains("never started"));
}

fn variant(cl: &OpenCl) -> Variant {
    Variant {
        dtype: DType::I32,
        op: Some(ReduceOp::Sum),
        partial: false,
        sources: 2,
        dests: 1,
        partials: 0,
        merges: 1 << 4,
        arithmetic: Arithmetic::default(),
        group_size: cl.limits().group_size,
    }
}

/// Buffers, queues, programs and contexts go away for good.
#[test]
fn nothing_leaks() {
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    let round = |i: usize| {
        let options = Options { shared: i.is_multiple_of(2), ..Options::default() };
        let cl = OpenCl::open(0, &options).unwrap();
        let alloc = |place| Arc::new(cl.alloc(1 << 20, place).unwrap());
        let (device, pinned) = (alloc(Place::Device), alloc(Place::Pinned));
        let start = cl.mapped(&pinned).unwrap();
        // SAFETY: as long as that, and nobody else uses it.
        unsafe { start.as_ptr().write_bytes(1, 1 << 20) };
        let mut queue = cl.clone().queue().unwrap();
        queue.compile(&variant(&cl)).unwrap();
        copy(&mut queue, (&pinned, 0), (&device, 0), 1 << 20);
    };
    (0..20).for_each(round);
    let before = resident();
    (0..200).for_each(round);
    let grown = resident().saturating_sub(before);
    // 200 rounds hold 400 MiB; other tests run meanwhile.
    assert!(grown < 64 << 10, "{grown} KiB more after 200 rounds");
}

//! Does imported memory stay where it is? The standard asks for a map and an unmap around each
//! access of the host, and lets a driver work on a copy in between. Where host and device share
//! memory and caches there is no copy, and nothing to be done; this finds out.

use crate::owned::{ClBuffer, ClEvent, Owned};
use opencl3::command_queue::{enqueue_copy_buffer, enqueue_fill_buffer};
use opencl3::event::wait_for_events;
use opencl3::memory::{CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, create_buffer};
use opencl3::types::{cl_command_queue, cl_context, cl_event};
use std::ptr::null;

const PAGE: usize = 4096;

/// Two pages, as an import is aligned.
#[repr(C, align(4096))]
struct Pages([[u8; PAGE]; 2]);

/// Does the host see what the device writes, and the other way round, without a map?
pub(crate) fn works(context: cl_context, queue: cl_command_queue) -> bool {
    let mut pages = Box::new(Pages([[1; PAGE], [2; PAGE]]));
    // Only this pointer is used until the end: the device works behind the compiler's back.
    let start = (&raw mut *pages).cast::<u8>();
    let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
    // SAFETY: the pages outlive the buffer.
    let Ok(mem) = (unsafe { create_buffer(context, flags, 2 * PAGE, start.cast()) }) else {
        return false;
    };
    // SAFETY: the call gave the reference away.
    let mem = unsafe { Owned::<ClBuffer>::new(mem) };
    let (pattern, raw) = ([3u8; 4], mem.get());
    let fill = || {
        let pattern = pattern.as_ptr().cast();
        // SAFETY: the first page of the buffer; the call copies the pattern.
        unsafe { enqueue_fill_buffer(queue, raw, pattern, 4, 0, PAGE, 0, null()) }
    };
    // SAFETY: both pages lie in the buffer.
    let copy = || unsafe { enqueue_copy_buffer(queue, raw, raw, 0, PAGE, PAGE, 0, null()) };
    if !wait(fill()) {
        return false;
    }
    // SAFETY: within the pages; the device is done.
    let seen = unsafe { start.read_volatile() == 3 && start.add(PAGE - 1).read_volatile() == 3 };
    // SAFETY: as above.
    unsafe {
        start.write_volatile(4);
        start.add(PAGE - 1).write_volatile(5);
    }
    if !wait(copy()) {
        return false;
    }
    // SAFETY: as above.
    let copied = unsafe { [start.add(PAGE), start.add(2 * PAGE - 1)].map(|at| at.read_volatile()) };
    seen && copied == [4, 5]
}

fn wait(event: Result<cl_event, i32>) -> bool {
    event.is_ok_and(|event| {
        // SAFETY: the call gave the reference away.
        let event = unsafe { Owned::<ClEvent>::new(event) };
        wait_for_events(&[event.get()]).is_ok()
    })
}

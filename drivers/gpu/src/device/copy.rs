//! Steps of copies: by the host where it reaches both ends, by the device where it does, and
//! through a slot where neither reaches both.

use super::flow::{Flow, Made};
use super::job::{Job, Work};
use super::step::{HostMove, Move, Spot};
use crate::backend::Context;
use crate::error::GpuError;
use crate::kernel::DESTS_MAX;
use crate::memory::Found;
use heapless::Vec;
use unisono_driver::{HostMemory, HostPtr, Memory as _};

/// Up to here the host copies even what the device could: it takes less time than to tell the
/// device (some 20 us at 5 GB/s).
const HOST_COPY_MAX: usize = 64 << 10;

/// One end of a copy.
struct End<B> {
    at: HostPtr,
    found: Option<Found<B>>,
}

impl<B> End<B> {
    fn host_reaches(&self) -> bool {
        self.found.as_ref().is_none_or(|found| found.mapped)
    }
}

impl<C: Context> Flow<C> {
    fn end(&self, start: HostPtr, issued: usize, left: usize) -> End<C::Buffer> {
        let at = start.offset(issued as u64);
        End { at, found: self.memory.find(at.as_ptr().addr(), left) }
    }

    /// Makes the next step of a copy.
    pub(super) fn make_copy_step(&mut self, index: usize) -> Result<Made, GpuError> {
        let Some(Job { work: Work::Copy { from, to }, issued, count, .. }) = &self.jobs[index]
        else {
            return Ok(Made::Nothing);
        };
        let (issued, mut bytes) = (*issued, count - issued);
        let from = self.end(*from, issued, bytes);
        let mut ends: Vec<End<C::Buffer>, DESTS_MAX> = Vec::new();
        for to in to {
            // As many as there are destinations, which is what fits.
            let _ = ends.push(self.end(*to, issued, bytes));
        }
        for found in ends.iter().chain([&from]).filter_map(|end| end.found.as_ref()) {
            bytes = bytes.min(found.bytes);
        }
        let by_host = |end: &End<C::Buffer>| {
            let known = from.found.is_some() && end.found.is_some();
            let reaches = from.host_reaches() && end.host_reaches();
            reaches && (!known || bytes <= HOST_COPY_MAX)
        };
        if ends.iter().all(by_host) {
            for end in &ends {
                // SAFETY: the caller's spans, which the host reaches.
                unsafe { HostMove { from: from.at, to: end.at, bytes }.run() };
            }
            self.count_issued(index, bytes, 0);
            return Ok(Made::Nothing);
        }
        self.make_device_copy(index, &from, &ends, bytes)
    }

    /// A step that needs the device: straight between buffers, or through a slot.
    fn make_device_copy(
        &mut self,
        index: usize,
        from: &End<C::Buffer>,
        ends: &[End<C::Buffer>],
        mut bytes: usize,
    ) -> Result<Made, GpuError> {
        let staged = ends.iter().any(|end| from.found.is_none() || end.found.is_none());
        let Some(step) = self.free_step(index, staged)? else { return Ok(Made::NoRoom) };
        let place = &mut self.steps[step];
        let slot = match place.slot {
            Some(slot) => {
                bytes = bytes.min(self.slots.bytes);
                let slot = self.slots.get(slot);
                Some((slot.start, Spot { held: place.hold(slot.pinned.clone()), offset: 0 }))
            }
            None => None,
        };
        let source = from
            .found
            .as_ref()
            .map(|found| Spot { held: place.hold(found.buffer.clone()), offset: found.offset });
        // The host brings the bytes, or the device does where the host has to take them on.
        let source = match (source, slot) {
            (None, Some((start, spot))) => {
                // SAFETY: the caller's bytes, and a slot of this step.
                unsafe { HostMove { from: from.at, to: start, bytes }.run() };
                spot
            }
            (Some(source), _) => source,
            (None, None) => return Ok(Made::Nothing),
        };
        for end in ends {
            match (&end.found, slot) {
                (Some(found), _) => {
                    let to = Spot { held: place.hold(found.buffer.clone()), offset: found.offset };
                    place.ins.push(Move { from: source, to, bytes });
                }
                (None, Some((start, _))) if from.found.is_none() => {
                    // SAFETY: the caller's bytes; the source is in the slot already.
                    unsafe { HostMove { from: start, to: end.at, bytes }.run() };
                }
                (None, Some((start, spot))) => {
                    if place.after.is_empty() {
                        place.ins.push(Move { from: source, to: spot, bytes });
                    }
                    place.after.push(HostMove { from: start, to: end.at, bytes });
                }
                (None, None) => {}
            }
        }
        self.start_step(step);
        self.count_issued(index, bytes, 1);
        Ok(Made::Step(step))
    }
}

//! Steps of folds: as many elements as one dispatch can make of spans that it can name, with the
//! spans that it cannot name in a slot.

use super::flow::{Flow, Made};
use super::job::{self, Job, Operand, Work};
use super::step::{Arg, HostMove, Move, Spot};
use crate::backend::Context;
use crate::error::GpuError;
use crate::kernel::{DESTS_MAX, SOURCES_MAX, SPAN_MAX};
use crate::memory::{Found, Import, page_size};
use heapless::Vec;
use unisono_driver::{HostMemory, HostPtr, Memory as _};

/// Steps but the last one are a multiple of so many elements, where they are that long, so that
/// the next one starts at an address as good as this one's.
const ROUND: usize = 256;

/// How a kernel gets at an operand.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In a buffer, whose whole words end here.
    Direct { spot: Spot, whole: u64 },
    /// In host memory that is to be imported.
    Import,
    /// In the slot.
    Staged,
}

type Ways = Vec<Way, { SOURCES_MAX + DESTS_MAX }>;
type Operands = Vec<Operand, { SOURCES_MAX + DESTS_MAX }>;

impl<C: Context> Flow<C> {
    /// Makes the next step of a fold.
    pub(super) fn make_fold_step(&mut self, index: usize) -> Result<Made, GpuError> {
        let Some(step) = self.free_step(index, false)? else { return Ok(Made::NoRoom) };
        let made = self.fill_fold_step(index, step);
        if !matches!(made, Ok(Made::Step(_))) {
            self.release(step);
        }
        made
    }

    fn fill_fold_step(&mut self, index: usize, step: usize) -> Result<Made, GpuError> {
        let Some(Job { work: Work::Fold { operands, variant, params, .. }, issued, count, .. }) =
            &self.jobs[index]
        else {
            return Ok(Made::Nothing);
        };
        let (operands, issued, left) = (operands.clone(), *issued, count - issued);
        let (variant, mut params) = (*variant, *params);
        let limits = self.memory.context().limits();
        let groups_max = limits.groups_max;
        let mut elements = left.min(job::elements_max(&variant, limits));
        let mut ways = self.find_ways(step, &operands, issued, left, &mut elements);
        let is_staged = |way: &Way| matches!(way, Way::Staged);
        // Before anything is imported, so that no import is made in vain.
        if ways.iter().any(is_staged) && !self.slots.has_free() {
            return Ok(Made::NoRoom);
        }
        self.import_all(index, step, &operands, issued, &mut elements, &mut ways);
        if ways.iter().any(is_staged) {
            let Some(slot) = self.slots.take()? else { return Ok(Made::NoRoom) };
            self.steps[step].slot = Some(slot);
            elements = elements.min(self.elements_in_slot(&operands, &ways));
        }
        if elements < left && elements > ROUND {
            elements -= elements % ROUND;
        }
        params.count = elements as u32;
        let sources = usize::from(variant.sources);
        let mut room = 0;
        for (i, (operand, way)) in operands.iter().zip(&ways).enumerate() {
            let bytes = elements * operand.size;
            let (arg, start) = match *way {
                Way::Direct { spot, whole } => self.direct(spot, bytes, whole),
                _ => {
                    let arg = self.stage(step, operand.at(issued), bytes, room, i < sources)?;
                    room += bytes.next_multiple_of(self.slots.align);
                    (arg, 0)
                }
            };
            match i.checked_sub(sources) {
                None => params.sources[i] = start,
                Some(dest) => params.dests[dest] = start,
            }
            self.steps[step].args.push(arg);
        }
        self.steps[step].params = params;
        self.steps[step].groups = variant.groups(params.count, groups_max);
        self.start_step(step);
        self.count_issued(index, elements, 1);
        Ok(Made::Step(step))
    }

    /// How the kernel gets at each operand, and how many elements that allows.
    fn find_ways(
        &mut self,
        step: usize,
        operands: &Operands,
        issued: usize,
        left: usize,
        elements: &mut usize,
    ) -> Ways {
        let mut ways = Ways::new();
        for operand in operands {
            let at = operand.at(issued);
            let address = at.as_ptr().addr();
            let way = match self.memory.find(address, left * operand.size) {
                _ if operand.staged => Way::Staged,
                Some(found) => self.way_into(step, operand, found, elements),
                None => self.way_to_host(operand, address, left, elements),
            };
            // One for each operand, which is what fits.
            let _ = ways.push(way);
        }
        ways
    }

    /// Most bytes of a span from its start on, wherever in the buffer that is.
    fn span_max(&self) -> u64 {
        let limits = self.memory.context().limits();
        (limits.span_max.min(SPAN_MAX) & !3) - limits.span_align
    }

    /// Memory that the device knows.
    fn way_into(
        &mut self,
        step: usize,
        operand: &Operand,
        found: Found<C::Buffer>,
        elements: &mut usize,
    ) -> Way {
        let fit = (found.words as u64).min(self.span_max()) as usize / operand.size;
        if fit == 0 || !found.kernels || !found.offset.is_multiple_of(operand.align()) {
            return Way::Staged;
        }
        *elements = fit.min(*elements);
        let held = self.steps[step].hold(found.buffer);
        Way::Direct { spot: Spot { held, offset: found.offset }, whole: found.whole }
    }

    /// Memory of the host that the device does not know.
    fn way_to_host(
        &self,
        operand: &Operand,
        address: usize,
        left: usize,
        elements: &mut usize,
    ) -> Way {
        let limits = self.memory.context().limits();
        let worth = limits.unified && left * operand.size >= self.import_min;
        let aligned = (address as u64).is_multiple_of(operand.align());
        let piece = self.memory.largest_piece().saturating_sub(address % page_size());
        let fit = (piece as u64).min(self.span_max()) as usize / operand.size;
        if !worth || !aligned || fit == 0 || limits.import_align.is_none() {
            return Way::Staged;
        }
        *elements = fit.min(*elements);
        Way::Import
    }

    /// Imports what is to be imported. What cannot be is staged, now and for the rest of the job.
    fn import_all(
        &mut self,
        index: usize,
        step: usize,
        operands: &Operands,
        issued: usize,
        elements: &mut usize,
        ways: &mut Ways,
    ) {
        let mut made: Vec<(Import<C::Buffer>, Spot), { SOURCES_MAX + DESTS_MAX }> = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            if !matches!(ways[i], Way::Import) {
                continue;
            }
            let (at, bytes) = (operand.at(issued), *elements * operand.size);
            let address = at.as_ptr().addr();
            // In place, or spans side by side: the same pages are imported only once.
            let known = made.iter().find(|(import, _)| import.holds(address, bytes));
            if let Some((import, spot)) = known {
                let (held, offset) = (spot.held, import.offset_of(address));
                let whole = import.bytes as u64;
                ways[i] = Way::Direct { spot: Spot { held, offset }, whole };
                continue;
            }
            // SAFETY: the span stays allocated until the completion, which comes after the step
            // has let go of the buffer.
            ways[i] = match unsafe { self.memory.import(at.as_ptr(), bytes) } {
                Ok(import) => {
                    let held = self.steps[step].hold(import.buffer.clone());
                    let (offset, whole) = (import.offset_of(address), import.bytes as u64);
                    let spot = Spot { held, offset };
                    let _ = made.push((import, spot));
                    Way::Direct { spot, whole }
                }
                Err(error) => {
                    tracing::debug!(%error, "host memory is staged");
                    self.stage_from_now_on(index, i);
                    Way::Staged
                }
            };
        }
    }

    fn stage_from_now_on(&mut self, index: usize, operand: usize) {
        if let Some(Job { work: Work::Fold { operands, .. }, .. }) = &mut self.jobs[index] {
            operands[operand].staged = true;
        }
    }

    /// How many elements of all staged operands fit a slot.
    fn elements_in_slot(&self, operands: &Operands, ways: &Ways) -> usize {
        let staged = operands.iter().zip(ways).filter(|(_, way)| matches!(way, Way::Staged));
        let (spans, size, largest) =
            staged.fold((0, 0, 1), |(spans, size, largest), (operand, _)| {
                (spans + 1, size + operand.size, operand.size.max(largest))
            });
        // A span may end just after a multiple of the alignment.
        let room = self.slots.bytes - spans * self.slots.align;
        (room / size.max(1)).min(self.span_max() as usize / largest)
    }

    /// The argument for a span in a buffer, and where in it the elements start.
    fn direct(&self, spot: Spot, bytes: usize, whole: u64) -> (Arg, u32) {
        let align = self.memory.context().limits().span_align;
        let start = spot.offset % align;
        let offset = spot.offset - start;
        let bytes = (start + bytes as u64).next_multiple_of(4).min(whole - offset);
        // Less than the alignment, or the limits of the device make no sense.
        (Arg { spot: Spot { held: spot.held, offset }, bytes }, start as u32)
    }

    /// Puts a source into the step's slot, or plans to take a destination out of it.
    fn stage(
        &mut self,
        step: usize,
        at: HostPtr,
        bytes: usize,
        room: usize,
        is_source: bool,
    ) -> Result<Arg, GpuError> {
        let place = &mut self.steps[step];
        let Some(slot) = place.slot.map(|slot| self.slots.get(slot)) else {
            return Err(GpuError::Busy);
        };
        let held = place.hold(slot.kernels.clone());
        let pinned = place.hold(slot.pinned.clone());
        let mut done = 0;
        while done < bytes {
            let (at, left) = (at.offset(done as u64), bytes - done);
            let offset = (room + done) as u64;
            let in_slot = slot.start.offset(offset);
            let (spot, copy) = (Spot { held, offset }, Spot { held: pinned, offset });
            done += match self.memory.find(at.as_ptr().addr(), left) {
                Some(found) if !found.mapped || !found.kernels => {
                    let bytes = left.min(found.bytes);
                    let other = Spot { held: place.hold(found.buffer), offset: found.offset };
                    if is_source {
                        place.ins.push(Move { from: other, to: spot, bytes });
                    } else {
                        place.outs.push(Move { from: spot, to: other, bytes });
                    }
                    bytes
                }
                found => {
                    let bytes = found.map_or(left, |found| left.min(found.bytes));
                    if is_source {
                        // SAFETY: the caller's bytes, and a part of the slot for them.
                        unsafe { HostMove { from: at, to: in_slot, bytes }.run() };
                    } else {
                        place.after.push(HostMove { from: in_slot, to: at, bytes });
                    }
                    if held != pinned && is_source {
                        place.ins.push(Move { from: copy, to: spot, bytes });
                    } else if held != pinned {
                        place.outs.push(Move { from: spot, to: copy, bytes });
                    }
                    bytes
                }
            };
        }
        let bytes = (bytes as u64).next_multiple_of(4);
        Ok(Arg { spot: Spot { held, offset: room as u64 }, bytes })
    }
}

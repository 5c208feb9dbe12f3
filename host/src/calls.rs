//! The collectives on typed slices, and on bytes with a type beside them.

use crate::element::{Element, Reduction};
use crate::error::Error;
use crate::member::{Call, Member, Memory};
use unisono_core::{DType, Kind};

/// Where a call's result goes.
pub(crate) enum Output<'a> {
    /// Over the input.
    InPlace(&'a mut [u8]),
    /// Elsewhere.
    Apart(&'a [u8], &'a mut [u8]),
}

impl Member {
    /// All-reduce in place: afterwards every rank has the reduction over all ranks' `tensor`s.
    ///
    /// # Errors
    /// [`Error`]; the content of `tensor` is undefined after an error of the group.
    pub fn all_reduce<T: Element>(
        &mut self,
        tensor: &mut [T],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let count = tensor.len() as u64;
        let call = self.reducing::<T>(Kind::AllReduce, count, op.into())?;
        self.run_in_place(&call, bytes_mut(tensor))
    }

    /// All-reduce out of place: `input` is left as it is.
    ///
    /// # Errors
    /// [`Error`]; the content of `output` is undefined after an error of the group.
    pub fn all_reduce_into<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let call = self.reducing::<T>(Kind::AllReduce, input.len() as u64, op.into())?;
        self.run_apart(&call, bytes(input), bytes_mut(output))
    }

    /// Reduce-scatter: `input` has one block of `output.len()` elements for each rank; rank r gets
    /// the reduction of all ranks' blocks r.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let call = self.reducing::<T>(Kind::ReduceScatter, output.len() as u64, op.into())?;
        self.run_apart(&call, bytes(input), bytes_mut(output))
    }

    /// All-gather: block r of every rank's `output` becomes rank r's `input`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let call = Call::new(Kind::AllGather, T::DTYPE, input.len() as u64);
        self.run_apart(&call, bytes(input), bytes_mut(output))
    }

    /// Reduce in place at the root; the other ranks' `tensor`s are left as they are.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reduce<T: Element>(
        &mut self,
        tensor: &mut [T],
        op: impl Into<Reduction>,
        root: u16,
    ) -> Result<(), Error> {
        let count = tensor.len() as u64;
        let call = Call { root, ..self.reducing::<T>(Kind::Reduce, count, op.into())? };
        self.run_in_place(&call, bytes_mut(tensor))
    }

    /// Broadcast: every rank's `tensor` becomes the root's.
    ///
    /// # Errors
    /// [`Error`].
    pub fn broadcast<T: Element>(&mut self, tensor: &mut [T], root: u16) -> Result<(), Error> {
        let call = Call { root, ..Call::new(Kind::Broadcast, T::DTYPE, tensor.len() as u64) };
        self.run_in_place(&call, bytes_mut(tensor))
    }

    /// All-to-all: block d of rank s's `input` becomes block s of rank d's `output`.
    ///
    /// # Errors
    /// [`Error`]; also if the lengths are not a multiple of the number of ranks.
    pub fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let count = input.len() as u64 / u64::from(self.ranks());
        let call = Call::new(Kind::AllToAll, T::DTYPE, count);
        self.run_apart(&call, bytes(input), bytes_mut(output))
    }

    /// Nobody leaves before everybody came.
    ///
    /// # Errors
    /// [`Error`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.run_in_place(&Call::new(Kind::Barrier, DType::U8, 0), &mut [])
    }

    /// Any call, on bytes, in place. The buffer holds the longer one of input and output; of an
    /// all-gather the input is this rank's block, of a reduce-scatter the output is this rank's.
    ///
    /// # Errors
    /// [`Error`].
    pub fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<(), Error> {
        let memory = self.memory(call, Output::InPlace(buffer));
        let memory = self.counted(memory)?;
        // SAFETY: `memory` has checked the lengths, and the borrow lasts until the call is over.
        unsafe { self.run(call, memory) }
    }

    /// Any call, on bytes, out of place.
    ///
    /// # Errors
    /// [`Error`].
    pub fn run_apart(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<(), Error> {
        let memory = self.memory(call, Output::Apart(input, output));
        let memory = self.counted(memory)?;
        // SAFETY: `memory` has checked the lengths, and the borrows last until the call is over.
        unsafe { self.run(call, memory) }
    }

    /// Checks the buffers of a call.
    pub(crate) fn memory(&self, call: &Call, output: Output<'_>) -> Result<Memory, Error> {
        let size = call.dtype.size() as u64;
        let (want_in, want_out) = call.lengths(self.rank(), self.ranks());
        let check = |what, want: u64, bytes: usize| {
            let (kind, count, ranks) = (call.kind, call.count, self.ranks());
            let (want, got) = (want.saturating_mul(size), bytes as u64);
            // No buffer has u64::MAX bytes, so what saturates never fits.
            if want == got {
                Ok(())
            } else {
                Err(Error::Length { kind, count, ranks, what, want, got })
            }
        };
        match output {
            Output::InPlace(buffer) => {
                // Reduce and broadcast leave ranks without input or output; their buffer is as
                // long as everybody's. Aggregators have none.
                let rooted = call.kind.is_rooted() && self.rank() < self.ranks();
                let rooted = if rooted { call.count } else { 0 };
                check("buffer", want_in.max(want_out).max(rooted), buffer.len())?;
                let start = buffer.as_mut_ptr();
                // Within the buffer, whose length has just been checked.
                let block = u64::from(self.rank()).wrapping_mul(call.count).wrapping_mul(size);
                let own = start.wrapping_add(block as usize);
                let (input, output) = match call.kind {
                    Kind::AllGather => (own, start),
                    Kind::ReduceScatter => (start, own),
                    _ => (start, start),
                };
                Ok(Memory { input, output, in_place: true })
            }
            Output::Apart(input, output) => {
                check("input", want_in, input.len())?;
                check("output", want_out, output.len())?;
                let (input, output) = (input.as_ptr().cast_mut(), output.as_mut_ptr());
                Ok(Memory { input, output, in_place: false })
            }
        }
    }

    fn reducing<T: Element>(
        &mut self,
        kind: Kind,
        count: u64,
        op: Reduction,
    ) -> Result<Call, Error> {
        let weight = op.scalar(T::DTYPE).ok_or(Error::Weight(T::DTYPE));
        let weight = self.counted(weight)?;
        Ok(Call { op: Some(op.op), weight, ..Call::new(kind, T::DTYPE, count) })
    }
}

/// A tensor's bytes.
pub(crate) fn bytes<T: Element>(tensor: &[T]) -> &[u8] {
    // SAFETY: elements have no padding.
    unsafe { std::slice::from_raw_parts(tensor.as_ptr().cast(), size_of_val(tensor)) }
}

/// A tensor's bytes, to be written.
pub(crate) fn bytes_mut<T: Element>(tensor: &mut [T]) -> &mut [u8] {
    // SAFETY: elements have no padding and every bit pattern is valid.
    unsafe { std::slice::from_raw_parts_mut(tensor.as_mut_ptr().cast(), size_of_val(tensor)) }
}

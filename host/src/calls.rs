//! The collectives on slices and tensors, and on bytes with a type beside them.

use crate::call::Call;
use crate::element::{Element, Reduction};
use crate::error::Error;
use crate::member::{Member, Memory};
use crate::tensor::{Buffer, BufferMut, Span};
use unisono_core::{DType, Kind};

/// Where a call's result goes.
pub(crate) enum Output {
    /// Over the input.
    InPlace(Span),
    /// Elsewhere.
    Apart(Span, Span),
}

impl Member {
    /// All-reduce in place: afterwards every rank has the reduction over all ranks' `tensor`s.
    ///
    /// # Errors
    /// [`Error`]; the content of `tensor` is undefined after an error of the group.
    pub fn all_reduce<B: BufferMut + ?Sized>(
        &mut self,
        tensor: &mut B,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let call = self.reducing::<B::Element>(Kind::AllReduce, tensor.elements(), op.into())?;
        self.in_place(&call, tensor)
    }

    /// All-reduce out of place: `input` is left as it is.
    ///
    /// # Errors
    /// [`Error`]; the content of `output` is undefined after an error of the group.
    pub fn all_reduce_into<A: Buffer + ?Sized, B: BufferMut<Element = A::Element> + ?Sized>(
        &mut self,
        input: &A,
        output: &mut B,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let call = self.reducing::<A::Element>(Kind::AllReduce, input.elements(), op.into())?;
        self.apart(&call, input, output)
    }

    /// Reduce-scatter: `input` has one block of `output.len()` elements for each rank; rank r gets
    /// the reduction of all ranks' blocks r.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reduce_scatter<A: Buffer + ?Sized, B: BufferMut<Element = A::Element> + ?Sized>(
        &mut self,
        input: &A,
        output: &mut B,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let call =
            self.reducing::<A::Element>(Kind::ReduceScatter, output.elements(), op.into())?;
        self.apart(&call, input, output)
    }

    /// All-gather: block r of every rank's `output` becomes rank r's `input`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn all_gather<A: Buffer + ?Sized, B: BufferMut<Element = A::Element> + ?Sized>(
        &mut self,
        input: &A,
        output: &mut B,
    ) -> Result<(), Error> {
        let call = Call::new(Kind::AllGather, A::Element::DTYPE, input.elements());
        self.apart(&call, input, output)
    }

    /// Reduce in place at the root; the other ranks' `tensor`s are left as they are.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reduce<B: BufferMut + ?Sized>(
        &mut self,
        tensor: &mut B,
        op: impl Into<Reduction>,
        root: u16,
    ) -> Result<(), Error> {
        let call = self.reducing::<B::Element>(Kind::Reduce, tensor.elements(), op.into())?;
        self.in_place(&Call { root, ..call }, tensor)
    }

    /// Broadcast: every rank's `tensor` becomes the root's.
    ///
    /// # Errors
    /// [`Error`].
    pub fn broadcast<B: BufferMut + ?Sized>(
        &mut self,
        tensor: &mut B,
        root: u16,
    ) -> Result<(), Error> {
        let call = Call::new(Kind::Broadcast, B::Element::DTYPE, tensor.elements());
        self.in_place(&Call { root, ..call }, tensor)
    }

    /// All-to-all: block d of rank s's `input` becomes block s of rank d's `output`.
    ///
    /// # Errors
    /// [`Error`]; also if the lengths are not a multiple of the number of ranks.
    pub fn all_to_all<A: Buffer + ?Sized, B: BufferMut<Element = A::Element> + ?Sized>(
        &mut self,
        input: &A,
        output: &mut B,
    ) -> Result<(), Error> {
        let count = input.elements() / u64::from(self.ranks());
        let call = Call::new(Kind::AllToAll, A::Element::DTYPE, count);
        self.apart(&call, input, output)
    }

    /// Nobody leaves before everybody came.
    ///
    /// # Errors
    /// [`Error`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.run_in_place(&Call::new(Kind::Barrier, DType::U8, 0), &mut [])
    }

    /// Any call, in place; bytes (`u8`) stand for elements of any type. The buffer holds the longer
    /// one of input and output; of an all-gather the input is this rank's block, of a
    /// reduce-scatter the output is this rank's.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Type`] if the tensor is of another type than the call.
    pub fn in_place<B: BufferMut + ?Sized>(
        &mut self,
        call: &Call,
        tensor: &mut B,
    ) -> Result<(), Error> {
        self.same_type::<B::Element>(call)?;
        let memory = self.memory(call, Output::InPlace(tensor.span_mut()));
        let memory = self.counted(memory)?;
        // SAFETY: `memory` has checked the lengths, and the borrow lasts until the call is over.
        unsafe { self.run(call, memory) }
    }

    /// Any call, out of place.
    ///
    /// # Errors
    /// As for [`Member::in_place`].
    pub fn apart<A: Buffer + ?Sized, B: BufferMut<Element = A::Element> + ?Sized>(
        &mut self,
        call: &Call,
        input: &A,
        output: &mut B,
    ) -> Result<(), Error> {
        self.same_type::<A::Element>(call)?;
        let memory = self.memory(call, Output::Apart(input.span(), output.span_mut()));
        let memory = self.counted(memory)?;
        // SAFETY: `memory` has checked the lengths, and the borrows last until the call is over.
        unsafe { self.run(call, memory) }
    }

    /// As [`Member::in_place`], on the bytes of elements of any type.
    ///
    /// # Errors
    /// [`Error`].
    pub fn run_in_place(&mut self, call: &Call, buffer: &mut [u8]) -> Result<(), Error> {
        let memory = self.memory(call, Output::InPlace(Span::of_mut(buffer)));
        let memory = self.counted(memory)?;
        // SAFETY: `memory` has checked the lengths, and the borrow lasts until the call is over.
        unsafe { self.run(call, memory) }
    }

    /// As [`Member::apart`], on the bytes of elements of any type.
    ///
    /// # Errors
    /// [`Error`].
    pub fn run_apart(&mut self, call: &Call, input: &[u8], output: &mut [u8]) -> Result<(), Error> {
        let memory = self.memory(call, Output::Apart(Span::of(input), Span::of_mut(output)));
        let memory = self.counted(memory)?;
        // SAFETY: `memory` has checked the lengths, and the borrows last until the call is over.
        unsafe { self.run(call, memory) }
    }

    pub(crate) fn same_type<T: Element>(&mut self, call: &Call) -> Result<(), Error> {
        if call.dtype == T::DTYPE || T::DTYPE == DType::U8 {
            return Ok(());
        }
        let (call, tensor) = (call.dtype, T::DTYPE);
        self.counted(Err(Error::Type { call, tensor }))
    }

    /// Checks the buffers of a call.
    pub(crate) fn memory(&self, call: &Call, output: Output) -> Result<Memory, Error> {
        let size = call.dtype.size() as u64;
        let (want_in, want_out) = call.lengths(self.rank(), self.ranks());
        let check = |what, want: u64, span: &Span| {
            let (kind, count, ranks) = (call.kind, call.count, self.ranks());
            let (want, got) = (want.saturating_mul(size), span.bytes as u64);
            // No buffer has u64::MAX bytes, so what saturates never fits.
            if want != got {
                return Err(Error::Length { kind, count, ranks, what, want, got });
            }
            match &span.only {
                Some(device) if !self.is_on(device) => {
                    Err(Error::Elsewhere(device.card().name.clone(), self.rank()))
                }
                _ => Ok(()),
            }
        };
        match output {
            Output::InPlace(buffer) => {
                // Reduce and broadcast leave ranks without input or output; their buffer is as
                // long as everybody's. Aggregators have none.
                let rooted = call.kind.is_rooted() && self.rank() < self.ranks();
                let rooted = if rooted { call.count } else { 0 };
                check("buffer", want_in.max(want_out).max(rooted), &buffer)?;
                let start = buffer.start;
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
                check("input", want_in, &input)?;
                check("output", want_out, &output)?;
                Ok(Memory { input: input.start, output: output.start, in_place: false })
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

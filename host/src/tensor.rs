//! What calls work on: slices of the host, and tensors in memory of a rank's device.

use crate::calls::{bytes, bytes_mut};
use crate::device::Opened;
use crate::element::Element;
use crate::error::Error;
use crate::memory::Block;
use std::marker::PhantomData;
use unisono_driver::Memory;

/// A private tensor is cleared in pieces of this many bytes.
const CLEAR: usize = 16 << 20;

/// A tensor in memory of a rank's device ([`Group::tensor`](crate::Group::tensor)), or in a buffer
/// that the caller had already. Calls of that rank read and write it where it is.
pub struct Tensor<T> {
    block: Block,
    /// The device whose memory it is; `None` for the CPU.
    device: Option<Opened>,
    len: usize,
    elements: PhantomData<T>,
}

// SAFETY: plain elements in memory that the tensor owns; the address is only followed by calls
// that borrow the tensor.
unsafe impl<T: Element> Send for Tensor<T> {}
// SAFETY: as above; whoever shares a tensor only reads.
unsafe impl<T: Element> Sync for Tensor<T> {}

impl<T> std::fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensor").field("len", &self.len).field("device", &self.device).finish()
    }
}

impl<T: Element> Tensor<T> {
    pub(crate) fn new(block: Block, device: Option<Opened>, len: usize) -> Self {
        Self { block, device, len, elements: PhantomData }
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Has it no elements?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, where the host can reach them: always on the CPU, and on GPUs that share the
    /// host's memory.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[T]> {
        // SAFETY: so many elements are there, any bits are elements, and nobody writes them while
        // the tensor is borrowed.
        let slice = || unsafe { std::slice::from_raw_parts(self.start().cast(), self.len) };
        self.block.shared.then(slice)
    }

    /// The elements to be written, where the host can reach them.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let (start, len) = (self.start().cast(), self.len);
        // SAFETY: as in `as_slice`, and the tensor is borrowed by nobody else.
        self.block.shared.then(|| unsafe { std::slice::from_raw_parts_mut(start, len) })
    }

    /// Copies the elements out.
    ///
    /// # Errors
    /// [`Error::Tensor`] if `to` has another length, [`Error::Gpu`].
    pub fn read(&self, to: &mut [T]) -> Result<(), Error> {
        self.check(to.len())?;
        match (self.as_slice(), &self.device) {
            (Some(from), _) => to.copy_from_slice(from),
            // SAFETY: the tensor is as long, and nobody writes it while it is borrowed.
            (None, Some(device)) => unsafe { device.0.read(self.block.start, bytes_mut(to)) }?,
            // Memory of the CPU is the host's.
            (None, None) => {}
        }
        Ok(())
    }

    /// Copies elements in.
    ///
    /// # Errors
    /// As for [`Tensor::read`].
    pub fn write(&mut self, from: &[T]) -> Result<(), Error> {
        self.check(from.len())?;
        let start = self.block.start;
        if let Some(to) = self.as_mut_slice() {
            to.copy_from_slice(from);
        } else if let Some(device) = &self.device {
            // SAFETY: the tensor is as long, and nobody else has it while it is borrowed.
            unsafe { device.0.write(start, bytes(from)) }?;
        }
        Ok(())
    }

    /// Makes all elements zero.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        let start = self.block.start;
        if self.block.shared {
            let bytes = self.len * size_of::<T>();
            // SAFETY: so many bytes are there, and nobody else has them; zero is an element.
            unsafe { self.start().write_bytes(0, bytes) };
        } else if let Some(device) = &self.device {
            let zeros = vec![0; (self.len * size_of::<T>()).min(CLEAR)];
            let mut done = 0;
            while done < self.len * size_of::<T>() {
                let part = zeros.len().min(self.len * size_of::<T>() - done);
                let at = start.offset(done as u64);
                // SAFETY: within the tensor, which is borrowed.
                unsafe { device.0.write(at, &zeros[..part]) }?;
                done += part;
            }
        }
        Ok(())
    }

    /// All elements.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut all = vec![T::default(); self.len];
        self.read(&mut all)?;
        Ok(all)
    }

    fn check(&self, len: usize) -> Result<(), Error> {
        if len == self.len { Ok(()) } else { Err(Error::Tensor { has: self.len, given: len }) }
    }

    fn start(&self) -> *mut u8 {
        unisono_driver::HostMemory::as_ptr(self.block.start)
    }
}

/// Where a buffer of a call is.
#[derive(Clone, Debug)]
pub struct Span {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
    /// The device that alone can reach it.
    pub(crate) only: Option<Opened>,
}

impl Span {
    /// Bytes of the host that are only read.
    pub(crate) const fn of(slice: &[u8]) -> Self {
        Self { start: slice.as_ptr().cast_mut(), bytes: slice.len(), only: None }
    }

    /// Bytes of the host.
    pub(crate) const fn of_mut(slice: &mut [u8]) -> Self {
        Self { start: slice.as_mut_ptr(), bytes: slice.len(), only: None }
    }
}

/// What a call can read: slices, arrays and vectors of elements, and [`Tensor`]s.
///
/// # Safety
/// Only for this crate to implement: the spans are used while the value is borrowed.
pub unsafe trait Buffer {
    /// Type of the elements.
    type Element: Element;

    /// Where it is.
    #[doc(hidden)]
    fn span(&self) -> Span;

    /// Elements.
    #[doc(hidden)]
    fn elements(&self) -> u64 {
        (self.span().bytes / size_of::<Self::Element>()) as u64
    }
}

/// What a call can write.
///
/// # Safety
/// As for [`Buffer`].
pub unsafe trait BufferMut: Buffer {
    /// Where it is.
    #[doc(hidden)]
    fn span_mut(&mut self) -> Span;
}

macro_rules! slices {
    ($([$($generics:tt)*] $t:ty),* $(,)?) => {
        $(
            // SAFETY: the borrow of the value is that of its elements.
            unsafe impl<$($generics)*> Buffer for $t {
                type Element = T;

                fn span(&self) -> Span {
                    Span::of(bytes(&self[..]))
                }
            }

            // SAFETY: as above, and the elements are borrowed to be written.
            unsafe impl<$($generics)*> BufferMut for $t {
                fn span_mut(&mut self) -> Span {
                    Span::of_mut(bytes_mut(&mut self[..]))
                }
            }
        )*
    };
}

slices! {
    [T: Element] [T],
    [T: Element, const N: usize] [T; N],
    [T: Element] Vec<T>,
    [T: Element] Box<[T]>,
    [T: Element] &mut [T],
}

// SAFETY: a tensor owns its memory.
unsafe impl<T: Element> Buffer for Tensor<T> {
    type Element = T;

    fn span(&self) -> Span {
        let only = self.device.clone().filter(|_| !self.block.shared);
        Span { start: self.start(), bytes: self.len * size_of::<T>(), only }
    }
}

// SAFETY: as above.
unsafe impl<T: Element> BufferMut for Tensor<T> {
    fn span_mut(&mut self) -> Span {
        self.span()
    }
}

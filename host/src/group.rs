//! Groups: the members that are in this process.

use crate::builder::GroupBuilder;
use crate::call::Call;
use crate::element::{Element, Reduction};
use crate::error::Error;
use crate::member::Member;
use crate::memory::Block;
use crate::tensor::{BufferMut, Tensor};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use unisono_core::Kind;
use unisono_gpu::Place;
use unisono_planner::LinkKind;

/// A group whose ranks are threads of this process, each on its device; with
/// [`GroupBuilder::world`] other processes have ranks of it, too, and what is said here of members
/// is about this process's own. Then all processes make the same calls in the same order.
///
/// A child that the process forks has no use of it where a rank is on a GPU: drivers do not survive
/// that, so there every call is [`Error::Gpu`], and the group must be built after the fork (with
/// OpenCL: by a process that has not used OpenCL before). Starting other programs is no problem.
pub struct Group {
    /// Those of this process.
    pub(crate) members: Vec<Member>,
    pub(crate) ranks: u16,
    /// What links the members of this process to all others.
    pub(crate) links: Vec<(u16, u16, LinkKind)>,
}

impl Group {
    /// A builder with one CPU rank, the canonical order and a time limit of 30 seconds a call.
    #[must_use]
    pub fn builder() -> GroupBuilder {
        GroupBuilder::new()
    }

    /// Ranks with data.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.ranks
    }

    /// What carries data from each member of this process to each other member: from, to, and the
    /// kind of link.
    #[must_use]
    pub fn links(&self) -> &[(u16, u16, LinkKind)] {
        &self.links
    }

    /// The members, one for each rank (aggregators last), to be moved to their threads.
    ///
    /// If a board is reached by packets (UDP, serial lines), a member that is dropped right after
    /// its last call may leave the board waiting for an answer until it gives the link up;
    /// [`Group::run`] and [`Worker`](crate::Worker)s look after the links until all are done.
    #[must_use]
    pub fn into_members(mut self) -> Vec<Member> {
        // After a `run` every member has left.
        self.rejoin();
        self.members
    }

    /// Brings all members back to the same next call.
    fn rejoin(&mut self) {
        let next = self.members.iter().map(Member::next_op).max().unwrap_or(0);
        self.members.iter_mut().for_each(|m| m.rejoin(next));
    }

    /// Runs `work` on every member, each on a thread of its own, and returns the results by rank.
    ///
    /// A member whose `work` ends while others still wait for it is reported to them as lost at
    /// once, so an early return or a panic on one rank hangs nobody; the group can be used again.
    ///
    /// # Errors
    /// The first error by rank that says what happened rather than that somebody else was lost.
    pub fn run<R: Send, E: Into<Error> + Send>(
        &mut self,
        work: impl Fn(&mut Member) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Error> {
        self.rejoin();
        let one = |member: &mut Member| {
            member.settle();
            let result = catch_unwind(AssertUnwindSafe(|| work(member)));
            member.leave();
            match result {
                Ok(result) => result.map_err(Into::into),
                Err(panic) => {
                    Err(Error::Panicked { rank: member.rank(), text: panic_text(&*panic) })
                }
            }
        };
        // Nobody begins before all threads are there: a call that lacks a member ends only when its
        // time is over.
        let gate = Mutex::new(None);
        let opened = |member| {
            let go = *gate.lock().unwrap_or_else(PoisonError::into_inner);
            if go == Some(true) { one(member) } else { Err(Error::Cancelled(member.rank())) }
        };
        let results: Vec<Result<R, Error>> = std::thread::scope(|scope| {
            let mut shut = gate.lock().unwrap_or_else(PoisonError::into_inner);
            let mut members = self.members.iter_mut();
            // The caller's thread is rank 0: one thread fewer, and a group of one has none.
            let first = members.next();
            let start = |m| std::thread::Builder::new().spawn_scoped(scope, || opened(m));
            let threads = members.map(start).collect::<Result<Vec<_>, _>>();
            *shut = Some(threads.is_ok());
            drop(shut);
            let threads = match threads {
                Ok(threads) => threads,
                Err(error) => return vec![Err(Error::Thread(error.to_string()))],
            };
            let first = first.map(one);
            let rest = threads.into_iter().map(|t| {
                t.join().unwrap_or_else(|p| Err(Error::Panicked { rank: 0, text: panic_text(&*p) }))
            });
            first.into_iter().chain(rest).collect()
        });
        if let [Err(Error::Thread(_))] = results[..] {
            self.members.iter_mut().for_each(Member::leave);
        }
        // What happened on a rank says more than what the others heard of it.
        let heard = |e: &&Error| match e {
            Error::PeerLost(_) => 2,
            Error::Refused(_) | Error::Cancelled(_) => 1,
            _ => 0,
        };
        let errors = results.iter().filter_map(|r| r.as_ref().err());
        if let Some(error) = errors.min_by_key(heard) {
            return Err(error.clone());
        }
        Ok(results.into_iter().filter_map(Result::ok).collect())
    }

    /// All-reduce of one tensor for each rank of this process, in place, driven from here.
    ///
    /// # Errors
    /// [`Error`]; the tensors' content is undefined then.
    pub fn all_reduce<B: BufferMut + Send + ?Sized>(
        &mut self,
        tensors: &mut [&mut B],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let op = op.into();
        // The ranks that are here.
        let here = self.members.iter().map(Member::rank).filter(|rank| *rank < self.ranks);
        let here: Vec<u16> = here.collect();
        if tensors.len() != here.len() {
            let (tensors, ranks) = (tensors.len(), here.len() as u16);
            return Err(Error::Tensors { tensors, ranks });
        }
        let kind = Kind::AllReduce;
        let count = tensors.first().map_or(0, |t| t.elements());
        let slots: Vec<_> = tensors.iter_mut().map(|t| Mutex::new(&mut **t)).collect();
        self.run(|member| {
            let index = here.iter().position(|rank| *rank == member.rank());
            let Some(slot) = index.and_then(|index| slots.get(index)) else {
                // An aggregator takes part in the same call without a tensor.
                let dtype = B::Element::DTYPE;
                let weight = op.scalar(dtype).ok_or(Error::Weight(dtype))?;
                let call = Call { op: Some(op.op), weight, ..Call::new(kind, dtype, count) };
                return member.run_in_place(&call, &mut []);
            };
            let mut tensor = slot.lock().unwrap_or_else(PoisonError::into_inner);
            member.all_reduce(&mut **tensor, op)
        })?;
        Ok(())
    }

    /// A tensor of `len` elements in memory of a rank's device, all zero: the fastest place for
    /// what that rank brings to calls. It may outlive the group.
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Memory`], or [`Error::Build`] if there is no such rank.
    pub fn tensor<T: Element>(&self, rank: u16, len: usize) -> Result<Tensor<T>, Error> {
        self.member(rank)?.tensor(len)
    }

    /// A buffer of the caller's as tensor of a rank, whose device has been given by
    /// [`GroupBuilder::open`] with the same Vulkan device. What was written to it before must be
    /// complete.
    ///
    /// # Safety
    /// While a call has the tensor, or a slice of it is in use, nothing else uses the buffer:
    /// neither vulkano nor another tensor that was made of it.
    ///
    /// # Errors
    /// [`Error::Gpu`] if it is a buffer of another device or of the wrong kind, [`Error::Build`] if
    /// the rank is not on a Vulkan device.
    #[cfg(feature = "vulkan")]
    pub unsafe fn adopt_vulkan<T: Element>(
        &self,
        rank: u16,
        buffer: crate::vulkan::vulkano::buffer::Subbuffer<[u8]>,
    ) -> Result<Tensor<T>, Error> {
        let member = self.member(rank)?;
        member.adopt(|memory: &VulkanMemory| {
            let buffer = memory.context().adopt(buffer)?;
            memory.adopt(std::sync::Arc::new(buffer))
        })
    }

    /// The same for a buffer of the caller's OpenCL context, which must be `CL_MEM_READ_WRITE`.
    ///
    /// # Safety
    /// As for [`Group::adopt_vulkan`].
    ///
    /// # Errors
    /// As for [`Group::adopt_vulkan`].
    #[cfg(feature = "opencl")]
    pub unsafe fn adopt_opencl<T: Element>(
        &self,
        rank: u16,
        buffer: &crate::opencl::opencl3::memory::Buffer<T>,
    ) -> Result<Tensor<T>, Error> {
        let member = self.member(rank)?;
        member.adopt(|memory: &OpenClMemory| {
            let buffer = memory.context().adopt(buffer)?;
            memory.adopt(std::sync::Arc::new(buffer))
        })
    }

    fn member(&self, rank: u16) -> Result<&Member, Error> {
        let member = self.members.iter().find(|member| member.rank() == rank);
        member.ok_or_else(|| Error::Build(format!("there is no rank {rank} in this process")))
    }
}

#[cfg(feature = "vulkan")]
type VulkanMemory = std::sync::Arc<unisono_gpu::Memory<crate::vulkan::VulkanContext>>;
#[cfg(feature = "opencl")]
type OpenClMemory = std::sync::Arc<unisono_gpu::Memory<crate::opencl::OpenCl>>;

impl Member {
    /// A tensor of `len` elements in memory of this rank's device; see [`Group::tensor`].
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Memory`].
    pub fn tensor<T: Element>(&self, len: usize) -> Result<Tensor<T>, Error> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::Memory(usize::MAX))?;
        let block = match self.device() {
            Some(device) => self.pool().on(device, bytes, Place::Device)?,
            None => self.pool().block(bytes).map_err(|_| Error::Memory(bytes))?,
        };
        let mut tensor = Tensor::new(block, self.device().cloned(), len);
        tensor.clear()?;
        Ok(tensor)
    }

    /// A tensor in a buffer that the caller has.
    #[cfg(any(feature = "vulkan", feature = "opencl"))]
    fn adopt<T: Element, C: unisono_gpu::Context>(
        &self,
        take: impl FnOnce(
            &std::sync::Arc<unisono_gpu::Memory<C>>,
        ) -> Result<unisono_gpu::Allocation<C>, unisono_gpu::GpuError>,
    ) -> Result<Tensor<T>, Error> {
        let memory = self.device().and_then(|device| device.0.as_any().downcast_ref());
        let Some(memory) = memory else {
            let text = format!("rank {} is not on a device of that kind", self.rank());
            return Err(Error::Build(text));
        };
        let buffer = take(memory)?;
        let len = buffer.bytes() / size_of::<T>();
        let block = Block::adopted(buffer.mem(), buffer.is_shared(), Box::new(buffer));
        Ok(Tensor::new(block, self.device().cloned(), len))
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

//! The run: every rank reads its file, reduces bucket by bucket, and hashes its result.

use super::super::args::Ranks;
use super::super::interrupt::Interrupt;
use super::super::job::Job;
use super::super::memory::Pages;
use super::super::progress::Progress;
use super::ReduceArgs;
use super::buckets::{Bucket, Buckets};
use super::input::Input;
use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono::{Call, DType, Error, Kind, Member, Plan};

/// Reading, hashing and writing look for Ctrl-C after so many bytes.
pub const BLOCK: usize = 8 << 20;

/// What all parts of a run need.
pub struct Work<'a> {
    /// The command line.
    pub args: &'a ReduceArgs,
    /// All ranks, and which are here.
    pub job: &'a Job,
    /// One file for each rank that is here.
    pub inputs: &'a [Input],
    /// Where those ranks are.
    pub ranks: &'a Ranks,
    /// What the calls are.
    pub buckets: &'a Buckets,
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
    /// The bar.
    pub progress: Progress,
}

/// How the buckets of one type were reduced.
pub struct Section {
    /// The type.
    pub dtype: DType,
    /// Calls.
    pub buckets: usize,
    /// Elements of all of them.
    pub elements: u64,
    /// Plan of the largest one.
    pub plan: Plan,
}

/// A finished run, its result the same on all ranks.
pub struct Done {
    memory: Pages,
    /// By type.
    pub sections: Vec<Section>,
    /// The calls' time on the slowest rank.
    pub time: Duration,
    /// Of the result's bytes.
    pub hash: String,
}

impl Done {
    /// The result, laid out as the buckets say.
    pub fn result(&self) -> &[u8] {
        &self.memory
    }
}

/// Reads, reduces, compares the ranks' results.
pub fn reduce(work: &Work<'_>) -> Result<Done> {
    work.progress.stage("reading");
    let ranks: Vec<_> = (0..work.inputs.len()).collect();
    let mut memory = on_threads(&ranks, |&rank| read(work, rank))?;
    work.progress.stage("reducing");
    let mut sections = Vec::new();
    let mut time = Duration::ZERO;
    for dtype in work.buckets.dtypes() {
        let (section, took) = reduce_section(work, dtype, &mut memory)?;
        sections.push(section);
        time += took;
    }
    work.progress.stage("hashing");
    let hashes = on_threads(&memory, |memory| hash(work, memory))?;
    let Some(hash) = hashes.first().cloned() else { bail!("a group without ranks") };
    let all = work.job.agree(Ok(hashes))?.concat();
    if let Some(rank) = all.iter().position(|h| *h != hash) {
        bail!("rank {rank} has another result than rank 0: a bug in unisono; please report it");
    }
    let memory = memory.into_iter().next().ok_or_else(|| anyhow!("a group without ranks"))?;
    Ok(Done { memory, sections, time, hash })
}

/// One thread an item; the first error by item.
fn on_threads<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |item| std::thread::Builder::new().spawn_scoped(scope, move || work(item));
        let threads: Vec<_> = items.iter().map(start).collect();
        let joined = threads.into_iter().map(|thread| {
            let thread = thread.context("cannot start a thread (a limit of processes?)")?;
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        // All threads are waited for, also behind an error.
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

/// A rank's tensors, each at its place.
fn read(work: &Work<'_>, rank: usize) -> Result<Pages> {
    let input = &work.inputs[rank];
    tracing::info!("rank {} reads {}", work.job.here().start + rank, input.path.display());
    let mut memory = Pages::new(work.buckets.bytes, false)
        .with_context(|| format!("{} bytes of memory for rank {rank}", work.buckets.bytes))?;
    for (name, tensor) in &input.tensors {
        let Some(place) = work.buckets.places.get(name) else { continue };
        let mut offset = tensor.start;
        for block in memory[place.clone()].chunks_mut(BLOCK) {
            work.interrupt.check()?;
            input.read_at(offset, block)?;
            offset += block.len() as u64;
            if rank == 0 {
                work.progress.add(block.len() as u64);
            }
        }
    }
    Ok(memory)
}

/// All buckets of one type; returns the slowest rank's time.
fn reduce_section(
    work: &Work<'_>,
    dtype: DType,
    memory: &mut [Pages],
) -> Result<(Section, Duration)> {
    let of_dtype = work.buckets.buckets.iter().filter(|b| b.dtype == dtype);
    let buckets: Vec<&Bucket> = of_dtype.collect();
    let mut group = work.args.group.group(work.job, work.ranks, dtype, work.interrupt)?;
    // Each lock is taken by one thread only: it is how `run` hands every rank its own memory.
    let memory: Vec<_> = memory.iter_mut().map(Mutex::new).collect();
    let times = group.run(|member| {
        let rank = usize::from(member.rank()).checked_sub(work.job.here().start);
        match rank.and_then(|rank| memory.get(rank)) {
            Some(own) => {
                let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
                reduce_rank(work, &buckets, member, &mut own)
            }
            // An aggregator has no data, but takes part in every call.
            None => reduce_rank(work, &buckets, member, &mut []),
        }
    });
    let times = match times {
        Err(_) if work.interrupt.check().is_err() => bail!("interrupted"),
        times => times?,
    };
    let largest = buckets.iter().map(|b| b.count()).max().unwrap_or(0);
    let call = Call { op: Some(work.args.op), ..Call::new(Kind::AllReduce, dtype, largest) };
    let members = group.into_members();
    let member = members.first().ok_or_else(|| anyhow!("a group without ranks"))?;
    let elements = buckets.iter().map(|b| b.count()).sum();
    let section = Section { dtype, buckets: buckets.len(), elements, plan: member.plan(&call)? };
    Ok((section, times.into_iter().max().unwrap_or_default()))
}

/// One rank's calls, in place.
fn reduce_rank(
    work: &Work<'_>,
    buckets: &[&Bucket],
    member: &mut Member,
    memory: &mut [u8],
) -> Result<Duration, Error> {
    let rank = member.rank();
    member.barrier()?;
    let started = Instant::now();
    for bucket in buckets {
        if work.interrupt.check().is_err() {
            return Err(Error::Cancelled(rank));
        }
        let dtype = bucket.dtype;
        let weight = work.args.scalar(usize::from(rank), dtype)?;
        let call = Call {
            op: Some(work.args.op),
            weight,
            ..Call::new(Kind::AllReduce, dtype, bucket.count())
        };
        let span = if memory.is_empty() { 0..0 } else { bucket.span.clone() };
        member.run_in_place(&call, &mut memory[span])?;
        if usize::from(rank) == work.job.here().start {
            work.progress.add(bucket.span.len() as u64);
        }
    }
    Ok(started.elapsed())
}

/// SHA-256 of the tensors' bytes in the order of their names.
fn hash(work: &Work<'_>, memory: &[u8]) -> Result<String> {
    let mut hasher = Sha256::new();
    for place in work.buckets.places.values() {
        for block in memory[place.clone()].chunks(BLOCK) {
            work.interrupt.check()?;
            hasher.update(block);
            work.progress.add(block.len() as u64 / work.inputs.len() as u64);
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

//! The sweep over sizes: rank threads stay, buffers stay, only the calls are timed.

use super::super::args::Ranks;
use super::super::error::Usage;
use super::super::interrupt::Interrupt;
use super::super::job::{Job, copy};
use super::super::memory::Pages;
use super::super::staged::Staged;
use super::args::{CollectiveArgs, Where};
use super::check;
use super::data::Tables;
use super::device::OnDevice;
use super::results::{Results, Sampled, seats};
use anyhow::Result;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use unisono::{Call, DType, DeviceSpec, Error, Kind, Member, ReduceOp};

/// Runs the benchmark.
pub fn run(args: &CollectiveArgs, interrupt: &Interrupt) -> Result<()> {
    let sizes = args.sizes()?;
    let world = args.group.world(interrupt)?;
    let devices = args.devices(world.as_ref());
    let job = Job::meet(world, devices.map_err(Into::into))?;
    let ranks = job.ranks();
    check_args(args, ranks, &sizes, interrupt)?;
    let places = Ranks::open(&job, &args.group, &interrupt.flag());
    let told = job.agree(places.as_ref().map(drop).map_err(copy));
    let (places, _) = (places?, told?);
    let json = args.json.as_deref().filter(|_| job.leads());
    let json = json.map(Staged::create_or_open).transpose();
    let own = json.as_ref().map(|_| seats(&places, job.here().start)).map_err(copy);
    let all = job.agree(own);
    let (json, all) = (json?, all?.concat());
    let mut results = Results::new(args, ranks);
    say(&job, &results.preamble(args, &all, &places))?;
    for dtype in args.datatype.dtypes() {
        let mut group = args.group.group(&job, &places, dtype, interrupt)?;
        let tables = Tables::all(dtype, &ops(args, dtype), ranks)?;
        let sweep = Sweep {
            args,
            interrupt,
            job: &job,
            on_device: (places.any_gpu() || job.world().is_some()) && args.memory == Where::Device,
            dtype,
            sizes: &sizes,
            tables: &tables,
            slots: (0..ranks).map(|_| Mutex::default()).collect(),
            results: Mutex::new(&mut results),
            failure: Mutex::new(None),
        };
        let ran = group.run(|member| sweep.rank(member));
        if let Some(error) = lock(&sweep.failure).take() {
            return Err(error);
        }
        ran?;
    }
    say(&job, &results.footer(args))?;
    if let Some(file) = json {
        results.write_json(file)?;
    }
    if job.leads() { results.demand() } else { Ok(()) }
}

/// Refuses before the first line what would be refused in the middle.
fn check_args(
    args: &CollectiveArgs,
    ranks: usize,
    sizes: &[u64],
    interrupt: &Interrupt,
) -> Result<()> {
    let kind = args.collective.kind();
    if kind.is_rooted() && usize::from(args.root) >= ranks {
        return Err(Usage(format!("root {} of {ranks} ranks", args.root)).into());
    }
    for dtype in args.datatype.dtypes() {
        // Plans do not depend on where the ranks are, as far as they can be refused.
        let (job, places) = (Job::alone(vec![DeviceSpec::Cpu; ranks]), Ranks::cpus(ranks));
        let group = args.group.group(&job, &places, dtype, interrupt)?;
        for op in ops(args, dtype) {
            if let Some(op) = op.filter(|op| !op.supports(dtype)) {
                return Err(Usage(format!("{op} works on integers only, not on {dtype}")).into());
            }
        }
        let members = group.into_members();
        for (&bytes, op) in sizes.iter().zip(ops(args, dtype).into_iter().cycle()) {
            let count = args.collective.count(bytes, dtype, ranks).0;
            if let Some(member) = members.first() {
                member.plan(&Call { op, ..Call::new(kind, dtype, count) })?;
            }
        }
    }
    Ok(())
}

/// Operators to run; one `None` if the collective does not reduce.
fn ops(args: &CollectiveArgs, dtype: DType) -> Vec<Option<ReduceOp>> {
    if args.collective.kind().reduces() {
        args.op.ops(dtype).into_iter().map(Some).collect()
    } else {
        vec![None]
    }
}

/// Writes what is said once for all processes.
pub fn say(job: &Job, text: &str) -> io::Result<()> {
    if !job.leads() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One row.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The call on this rank.
    pub call: Call,
    /// Bytes that algbw counts.
    pub size: u64,
    /// Data and what comes out.
    pub tables: &'a Tables,
}

/// One rank's buffers, used for every row.
pub struct Memory {
    /// Out of place only.
    pub input: Pages,
    /// Out of place the output, in place both.
    pub output: Pages,
    /// Calls that were made, and after how many plans are looked at.
    pub calls: u64,
    pub due: u64,
}

/// An error once a signal has come.
pub type GoOn<'a> = dyn Fn() -> Result<(), Error> + 'a;

/// Bytes that are filled between two looks for signals; whole elements of every type.
const PIECE: usize = 64 << 20;

/// What one rank has measured, out of place and in place: seconds, and wrong elements.
type Slot = [(Vec<f64>, u64); 2];

pub struct Sweep<'a> {
    pub args: &'a CollectiveArgs,
    interrupt: &'a Interrupt,
    pub job: &'a Job,
    /// Tensors are in the ranks' devices, or where all processes see them.
    on_device: bool,
    dtype: DType,
    sizes: &'a [u64],
    tables: &'a [Tables],
    slots: Vec<Mutex<Slot>>,
    pub results: Mutex<&'a mut Results>,
    /// What ended the calls, where it is none of the library's errors.
    pub failure: Mutex<Option<anyhow::Error>>,
}

impl Sweep<'_> {
    /// All rows of one type, on one rank's thread.
    fn rank(&self, member: &mut Member) -> Result<(), Error> {
        let size = self.dtype.size() as u64;
        let largest = self.sizes.iter().max().copied().unwrap_or(0).next_multiple_of(size);
        let pages = || {
            // Nothing is touched until this thread fills it.
            let pages = Pages::new(largest as usize, self.args.huge);
            pages.map_err(|error| self.fail(member, error, format!("{largest} bytes of memory")))
        };
        let (calls, due) = (0, self.args.replan.map_or(u64::MAX, u64::from));
        let mut memory = Memory { input: pages()?, output: pages()?, calls, due };
        self.can_replan(member)?;
        for tables in self.tables {
            for &bytes in self.sizes {
                let case = self.case(member, tables, bytes);
                self.row(member, &case, &mut memory)?;
            }
        }
        Ok(())
    }

    fn case<'t>(&self, member: &Member, tables: &'t Tables, bytes: u64) -> Case<'t> {
        let kind = self.args.collective.kind();
        let (count, size) = self.args.collective.count(bytes, self.dtype, self.job.ranks());
        let mut call = Call { op: tables.op, ..Call::new(kind, self.dtype, count) };
        if let Some(&weight) = tables.weights.get(usize::from(member.rank())) {
            call.weight = weight;
        }
        call.root = if kind.is_rooted() { self.args.root } else { 0 };
        Case { call, size, tables }
    }

    /// Both halves of a row; rank 0 prints it.
    fn row(&self, member: &mut Member, case: &Case<'_>, memory: &mut Memory) -> Result<(), Error> {
        let mut slot = Slot::default();
        for (in_place, half) in [false, true].into_iter().zip(&mut slot) {
            // Blocks that are read after they were written: there is no all-to-all in place.
            if !(in_place && case.call.kind == Kind::AllToAll) {
                *half = self.measure(member, case, memory, in_place)?;
            }
        }
        if let Some(own) = self.slots.get(usize::from(member.rank())) {
            *lock(own) = slot;
        }
        // Now every slot is filled, and none is filled again before rank 0 makes its next call.
        member.barrier()?;
        if usize::from(member.rank()) != self.job.speaker() {
            return Ok(());
        }
        self.gather(self.job.here())?;
        if !self.job.leads() {
            return Ok(());
        }
        let halves = [0, 1].map(|half| {
            let of = |slot: &Mutex<Slot>| lock(slot)[half].clone();
            let (times, wrong): (Vec<_>, Vec<_>) = self.slots.iter().map(of).unzip();
            Sampled::new(self.args, &times, wrong.iter().sum())
        });
        let line = lock(&self.results).add(self.args, case, halves);
        say(self.job, &line).map_err(|error| self.fail(member, error, "writing the results".into()))
    }

    /// Fills the slots of other processes' ranks.
    fn gather(&self, here: Range<usize>) -> Result<(), Error> {
        let Some(world) = self.job.world() else { return Ok(()) };
        let own: Vec<Slot> = self.slots[here].iter().map(|slot| lock(slot).clone()).collect();
        for (slot, theirs) in self.slots.iter().zip(world.agree(Ok(own))?.into_iter().flatten()) {
            *lock(slot) = theirs;
        }
        Ok(())
    }

    /// Notes why this rank gives up; the others end with it.
    pub fn fail(&self, member: &Member, error: io::Error, what: String) -> Error {
        lock(&self.failure).get_or_insert(anyhow::Error::new(error).context(what));
        Error::Cancelled(member.rank())
    }

    /// Seconds a call for every sample, and the wrong elements.
    fn measure(
        &self,
        member: &mut Member,
        case: &Case<'_>,
        memory: &mut Memory,
        in_place: bool,
    ) -> Result<(Vec<f64>, u64), Error> {
        let args = self.args;
        // A group waits in calls and notices a signal there; one rank alone never waits, and large
        // tensors take long to fill.
        let rank = member.rank();
        let go_on = || self.interrupt.check().map_err(|_| Error::Cancelled(rank));
        let device = || OnDevice::new(member, case, in_place, &go_on);
        let mut device = self.on_device.then(device).transpose()?;
        let fill = |member: &Member, memory: &mut Memory, device: &mut Option<OnDevice>| {
            fill(member, case, memory, in_place, &go_on)?;
            device.as_mut().map_or(Ok(()), |device| device.write(memory, &go_on))
        };
        let calls = |member: &mut Member, memory: &mut Memory, device: &mut _, times| match device {
            Some(device) => OnDevice::calls(device, member, case, times),
            None => calls(member, case, memory, in_place, times),
        };
        fill(member, memory, &mut device)?;
        calls(member, memory, &mut device, args.warmup_iters)?;
        let mut times = Vec::with_capacity(args.samples as usize);
        for _ in 0..args.samples {
            go_on()?;
            // Sums in place grow from call to call: every sample begins with the same data.
            fill(member, memory, &mut device)?;
            member.barrier()?;
            let started = Instant::now();
            calls(member, memory, &mut device, args.iters)?;
            times.push(started.elapsed().as_secs_f64() / f64::from(args.iters));
            memory.calls += u64::from(args.iters);
            self.replan(member, case, memory)?;
        }
        if args.check == 0 {
            return Ok((times, 0));
        }
        fill(member, memory, &mut device)?;
        go_on()?;
        calls(member, memory, &mut device, 1)?;
        if let Some(device) = &device {
            device.read(memory)?;
        }
        go_on()?;
        let wrong = check::wrong(member, case, memory, in_place)?;
        Ok((times, wrong))
    }
}

/// Bytes of a rank's input and output, and of its buffer in place.
pub fn lengths(member: &Member, call: &Call) -> (usize, usize, usize) {
    let (input, output) = call.lengths(member.rank(), member.ranks());
    // Ranks without input or output have a buffer nevertheless; aggregators have none.
    let rooted = call.kind.is_rooted() && member.rank() < member.ranks();
    let rooted = if rooted { call.count } else { 0 };
    let bytes = |elements: u64| elements as usize * call.dtype.size();
    (bytes(input), bytes(output), bytes(input.max(output).max(rooted)))
}

/// This rank's data into its input, and garbage into its output.
fn fill(
    member: &Member,
    case: &Case<'_>,
    memory: &mut Memory,
    in_place: bool,
    go_on: &GoOn<'_>,
) -> Result<(), Error> {
    let Case { call, tables, .. } = *case;
    let (rank, ranks) = (member.rank(), member.ranks());
    let (input, output, both) = lengths(member, &call);
    let to = if in_place { both } else { output };
    for piece in memory.output[..to].chunks_mut(PIECE) {
        go_on()?;
        piece.fill(0xa5);
    }
    if rank >= ranks {
        return Ok(());
    }
    let first = if call.kind == Kind::AllGather { u64::from(rank) * call.count } else { 0 };
    let start = if in_place { first as usize * call.dtype.size() } else { 0 };
    let to = if in_place { &mut memory.output } else { &mut memory.input };
    let firsts = (first..).step_by(PIECE / call.dtype.size());
    for (piece, first) in to[start..start + input].chunks_mut(PIECE).zip(firsts) {
        go_on()?;
        tables.fill(usize::from(rank), first, piece);
    }
    Ok(())
}

/// Nothing but the calls.
fn calls(
    member: &mut Member,
    case: &Case<'_>,
    memory: &mut Memory,
    in_place: bool,
    times: u32,
) -> Result<(), Error> {
    let call = &case.call;
    let (input, output, both) = lengths(member, call);
    if in_place {
        let buffer = &mut memory.output[..both];
        for _ in 0..times {
            member.run_in_place(call, buffer)?;
        }
    } else {
        let (input, output) = (&memory.input[..input], &mut memory.output[..output]);
        for _ in 0..times {
            member.run_apart(call, input, output)?;
        }
    }
    Ok(())
}

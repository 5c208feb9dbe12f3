//! All-reduce in a loop, f32 sum in place, measured, checked and printed as `host/peers/bench.h`
//! does it for other libraries: per size the median over samples of batches of back-to-back calls,
//! each sample the slowest rank's time.
//!
//! ```text
//! all_reduce_loop 2                                ranks are threads
//! unisono launch -n 2 -- all_reduce_loop           ranks are processes
//! unisono launch -n 2 -- all_reduce_loop --vec     in memory that the library has not allocated
//! unisono launch -n 2 -- all_reduce_loop --tcp     connected by TCP
//! unisono launch -n 2 -- all_reduce_loop --udp     connected by UDP
//! ```
//!
//! `BENCH_BUDGET_S`: seconds for each size; `BENCH_MAX_BYTES`: leaves larger tensors out;
//! `--name NAME`; `--only BYTES`; `--shares 3:3:3:1`, who owns how much; `--tail`: many single
//! calls, and a line with their 99th percentile; `--aggregators N`: the last N processes have no
//! data and fold for the others, in so many runs of each size as `--runs` says. `CHUNK` and
//! `WINDOW`: elements of a chunk, chunks in flight, instead of the planner's.

use std::time::Instant;
use unisono::schedule::Owners;
use unisono::{
    Call, DType, DeviceSpec, Element, Error, Group, Kind, Max, Member, ReduceOp, Schedule, Sum,
    Tensor, World,
};

const SIZES: [usize; 7] = [8, 1 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20];

/// The command line.
struct Args {
    threads: usize,
    vec: bool,
    tcp: bool,
    udp: bool,
    tail: bool,
    shares: Vec<u32>,
    aggregators: usize,
    runs: Option<usize>,
    name: String,
    only: Option<usize>,
    largest: usize,
    budget: f64,
}

impl Args {
    fn parse() -> Result<Self, String> {
        let budget = std::env::var("BENCH_BUDGET_S").ok().and_then(|v| v.parse().ok());
        let largest = std::env::var("BENCH_MAX_BYTES").ok().and_then(|v| v.parse().ok());
        let mut args = Self {
            threads: 2,
            vec: false,
            tcp: false,
            udp: false,
            tail: false,
            shares: Vec::new(),
            aggregators: 0,
            runs: None,
            name: "unisono".into(),
            only: None,
            largest: largest.unwrap_or(usize::MAX),
            budget: budget.unwrap_or(0.7),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let wrong = || format!("{word}: see the top of all_reduce_loop.rs");
            match word.as_str() {
                "--vec" => args.vec = true,
                "--tcp" => args.tcp = true,
                "--udp" => args.udp = true,
                "--tail" => args.tail = true,
                "--shares" => {
                    let list = words.next().ok_or_else(wrong)?;
                    let all: Result<_, _> = list.split(':').map(str::parse).collect();
                    args.shares = all.map_err(|_| wrong())?;
                }
                "--name" => args.name = words.next().ok_or_else(wrong)?,
                "--aggregators" | "--runs" => {
                    let number = words.next().and_then(|w| w.parse().ok()).ok_or_else(wrong)?;
                    match word.as_str() {
                        "--runs" => args.runs = Some(number),
                        _ => args.aggregators = number,
                    }
                }
                "--only" => args.only = words.next().and_then(|w| w.parse().ok()),
                word => args.threads = word.parse().map_err(|_| wrong())?,
            }
        }
        Ok(args)
    }
}

/// A rank's tensor.
enum Memory {
    /// So many elements that an aggregator does not have.
    Nothing(usize),
    Vec(Vec<f32>),
    Tensor(Tensor<f32>),
}

impl Memory {
    fn new(member: &Member, vec: bool, count: usize) -> Result<Self, Error> {
        match () {
            () if member.rank() >= member.ranks() => Ok(Self::Nothing(count)),
            () if vec => Ok(Self::Vec(vec![0.0; count])),
            () => member.tensor(count).map(Self::Tensor),
        }
    }

    fn all_reduce(&mut self, member: &mut Member) -> Result<(), Error> {
        match self {
            Self::Nothing(count) => take_part(member, DType::F32, *count, Sum),
            Self::Vec(vec) => member.all_reduce(vec, Sum),
            Self::Tensor(tensor) => member.all_reduce(tensor, Sum),
        }
    }

    fn slice(&mut self) -> &mut [f32] {
        match self {
            Self::Nothing(_) => &mut [],
            Self::Vec(vec) => vec,
            Self::Tensor(tensor) => tensor.as_mut_slice().expect("the host reaches it"),
        }
    }
}

/// An aggregator's part in an all-reduce of so many elements.
fn take_part(member: &mut Member, dtype: DType, count: usize, op: ReduceOp) -> Result<(), Error> {
    let call = Call { op: Some(op), ..Call::new(Kind::AllReduce, dtype, count as u64) };
    member.run_in_place(&call, &mut [])
}

/// Small integers that differ by rank and by place: the first sums are exact.
fn value(place: usize, rank: u16) -> f32 {
    ((place + 3 * usize::from(rank)) % 7) as f32 + 1.0
}

/// Elements that are not (sum over ranks) * ranks^(k-1) after k calls.
fn wrong(all: &[f32], ranks: u16, k: i32) -> usize {
    let factor = f64::from(ranks).powi(k - 1);
    let sum = |j| (0..ranks).map(|rank| f64::from(value(j, rank))).sum::<f64>() * factor;
    let want: Vec<f32> = (0..7).map(|j| sum(j) as f32).collect();
    let bad = |(i, x): &(usize, &f32)| {
        let want = want[i % 7];
        (*x - want).abs() > 1e-5 * want || !x.is_finite() && want.is_finite()
    };
    all.iter().enumerate().filter(bad).count()
}

/// Seconds a call in one batch.
fn sample(member: &mut Member, memory: &mut Memory, batch: i32) -> Result<(f64, usize), Error> {
    for (place, x) in memory.slice().iter_mut().enumerate() {
        *x = value(place, member.rank());
    }
    member.barrier()?;
    let started = Instant::now();
    for _ in 0..batch {
        memory.all_reduce(member)?;
    }
    let time = started.elapsed().as_secs_f64() / f64::from(batch);
    // On shared cores a rank that checks would take time from one that is not through.
    member.barrier()?;
    Ok((time, wrong(memory.slice(), member.ranks(), batch)))
}

/// The largest of all ranks, element by element.
fn max<T: Element>(member: &mut Member, all: &mut [T]) -> Result<(), Error> {
    if member.rank() >= member.ranks() {
        return take_part(member, T::DTYPE, all.len(), Max);
    }
    member.all_reduce(all, Max)
}

/// One size on one rank; rank 0 prints it.
fn measure(member: &mut Member, args: &Args, bytes: usize) -> Result<usize, Error> {
    let batch = match bytes {
        _ if args.tail => 1,
        0..=1024 => 50,
        1025..=262_144 => 20,
        262_145..=1_048_576 => 5,
        _ => 1,
    };
    let mut memory = Memory::new(member, args.vec, bytes / 4)?;
    let (mut pilot, mut bad) = ([0.0], [0u64]);
    for _ in 0..3 {
        let (time, wrong) = sample(member, &mut memory, batch)?;
        pilot = [time];
        bad[0] += wrong as u64;
    }
    max(member, &mut pilot)?;
    // A hundredth of them has to be more than one.
    let (least, most) = if args.tail { (200, 2000) } else { (7, 200) };
    let runs = ((args.budget / (pilot[0] * f64::from(batch))) as usize).clamp(least, most);
    // An aggregator does not learn how long the pilot took.
    let runs = args.runs.unwrap_or(runs);
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let (time, wrong) = sample(member, &mut memory, batch)?;
        times.push(time);
        bad[0] += wrong as u64;
    }
    max(member, &mut times)?;
    max(member, &mut bad)?;
    if member.rank() == 0 {
        times.sort_by(f64::total_cmp);
        let (n, m) = (f64::from(member.ranks()), runs / 2);
        let median = if runs % 2 == 1 { times[m] } else { (times[m - 1] + times[m]) / 2.0 };
        let alg = bytes as f64 / median / 1e9;
        let (us, least, bus) = (median * 1e6, times[0] * 1e6, alg * 2.0 * (n - 1.0) / n);
        println!("{},{n},{bytes},{us:.2},{least:.2},{alg:.3},{bus:.3}", args.name);
        if args.tail {
            println!("p99_us,{:.2}", times[runs * 99 / 100] * 1e6);
        }
    }
    Ok(bad[0] as usize)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse()?;
    let mut builder = Group::builder();
    builder = match World::from_env()? {
        Some(world) => {
            if world.rank() + args.aggregators >= world.size() {
                builder = builder.device(DeviceSpec::Aggregator);
            }
            builder.world(&world.near(!args.tcp && !args.udp).datagrams(args.udp))
        }
        None => builder.cpus(args.threads),
    };
    if let Some(chunk) = std::env::var("CHUNK").ok().and_then(|v| v.parse().ok()) {
        builder = builder.chunk(chunk);
    }
    if let Some(window) = std::env::var("WINDOW").ok().and_then(|v| v.parse().ok()) {
        builder = builder.window(window);
    }
    if !args.shares.is_empty() {
        let ranks = args.shares.len().saturating_sub(args.aggregators);
        let owners = Owners::weighted(ranks as u16, &args.shares);
        builder = builder.schedule(Schedule::Direct(owners.ok_or("no such shares")?));
    }
    let mut group = builder.build()?;
    let wanted =
        |&bytes: &usize| args.only.is_none_or(|only| only == bytes) && bytes <= args.largest;
    let sizes: Vec<usize> = SIZES.into_iter().filter(wanted).collect();
    let bad = group.run(|member| {
        let mut bad = 0;
        for &bytes in &sizes {
            bad += measure(member, &args, bytes)?;
        }
        Ok::<_, Error>(bad)
    })?;
    match bad.first() {
        Some(0) => Ok(()),
        bad => Err(format!("{bad:?} wrong elements").into()),
    }
}

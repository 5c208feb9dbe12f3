//! What boards execute for a call, counted by a QEMU plugin, and how fast a window is against a
//! plain copy. `cargo xtask boards --count` builds all that this needs and runs it.
//!
//! A call sums the f32 of two host ranks through the board, an aggregator. The board takes in two
//! frames with payload for each chunk and sends two. Calls of two sizes that differ in one thing
//! only tell what that thing costs.

mod image;
#[path = "../../tests/world/mod.rs"]
mod world;

use image::Code;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unisono_core::Kind;
use unisono_offload_dpu::serial::{self, SerialBoard};
use unisono_offload_dpu::udp::UdpBoard;
use unisono_offload_dpu::{AnyBoard, Board, Machine};
use world::data::{call, check, inputs, job};
use world::{PATIENCE, World};

/// Ranks that send their tensors to the board.
const RANKS: u16 = 2;
/// Frames with payload that the board takes in and sends for a chunk.
const FRAMES: f64 = 2.0 * RANKS as f64;
/// Calls of each size; the median counts.
const TIMES: usize = 5;
/// Functions that are listed.
const TOP: usize = 16;

type Failure = Box<dyn std::error::Error>;

/// Which instructions count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// All between begin and end of the call: a core that sleeps while it waits.
    All,
    /// Those of rounds with work: a core that looks for work while it waits.
    Worked,
}

/// Chunks of a call, and elements of each.
type Size = (u64, u64);

/// What a board executes, by the sizes of calls.
struct Costs {
    elem: f64,
    frame: f64,
    call: f64,
}

fn main() -> Result<(), Failure> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|c| c == name);
    let mut rows = Vec::new();
    for machine in Machine::ALL.into_iter().filter(|m| is_chosen(m.name)) {
        let costs = costs(machine)?;
        let ratio = if machine.has_window_links() { ratio(machine)? } else { String::new() };
        rows.push(format!("{} {ratio} |", row(machine.name, &costs)));
    }
    println!("| board | per f32 | per frame | per call | of a copy |");
    println!("|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// What this machine executes, in chunks that its slots have room for.
fn costs(machine: &'static Machine) -> Result<Costs, Failure> {
    let code = Code::read(&world::image(machine))?;
    let args = code.plugin(&plugin()?);
    let mut options = world::options(machine, RANKS);
    options.args.clone_from(&args);
    if machine.has_window_links() {
        let mut world: World<_, 2> = World::new(Board::start(&options)?, RANKS, RANKS, 0);
        count(&mut world, &code, Way::Worked, [64, 1024], 5)
    } else if machine.has_window() {
        let mut world: World<_, 2> = World::new(UdpBoard::start(&options)?, RANKS, RANKS, 0);
        count(&mut world, &code, Way::Worked, [64, 1024], 5)
    } else {
        let mut options = serial::Options::new(machine, &world::image(machine));
        (options.args, options.patience) = (args, PATIENCE);
        let mut world: World<_, 1> = World::new(SerialBoard::start(&options)?, RANKS, RANKS, 0);
        count(&mut world, &code, Way::All, [16, 256], 2)
    }
}

fn plugin() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("UNISONO_COUNTER").ok_or("UNISONO_COUNTER names no plugin")?;
    Ok(path.into())
}

fn row(name: &str, costs: &Costs) -> String {
    format!("| `{name}` | {:.2} | {:.0} | {:.0} |", costs.elem, costs.frame, costs.call)
}

/// Counts calls with small and with large chunks, and of one chunk.
fn count<B: AnyBoard, const C: usize>(
    world: &mut World<B, C>,
    code: &Code,
    way: Way,
    [small, large]: [u64; 2],
    window: u16,
) -> Result<Costs, Failure> {
    let chunks = 64;
    let mut median = |size: Size| -> Result<f64, Failure> {
        let mut counts = Vec::new();
        for _ in 0..TIMES {
            counts.push(run(world, code, way, size, window)?.iter().sum::<u64>());
        }
        counts.sort_unstable();
        println!("{} chunks of {}: {counts:?} instructions", size.0, size.1);
        Ok(counts[TIMES / 2] as f64)
    };
    // The first call after joining is not like the others.
    median((1, small))?;
    let [one, few, many] =
        [median((1, small))?, median((chunks, small))?, median((chunks, large))?];
    let elem = (many - few) / (chunks * (large - small)) as f64;
    let chunk = (few - one) / (chunks - 1) as f64 - elem * small as f64;
    let call = one - chunk - elem * small as f64;
    for size in [(chunks, small), (chunks, large)] {
        println!("{} chunks of {} f32, by function:", size.0, size.1);
        let counts = run(world, code, way, size, window)?;
        for (count, name) in code.by_function(&counts).into_iter().take(TOP) {
            println!("{count:>10}  {name}");
        }
    }
    Ok(Costs { elem, frame: chunk / FRAMES, call })
}

/// One call; what was executed, by bucket of the code.
fn run<B: AnyBoard, const C: usize>(
    world: &mut World<B, C>,
    code: &Code,
    way: Way,
    (chunks, chunk): Size,
    window: u16,
) -> Result<Vec<u64>, Failure> {
    let mut call = call(Kind::AllReduce, RANKS, chunks * chunk);
    (call.chunk, call.window) = (chunk, window);
    let job = job(call, true);
    let inputs = inputs(&job.call);
    let before = code.counts(way == Way::Worked)?;
    let outputs = world.succeed(&job, &inputs);
    let after = code.counts(way == Way::Worked)?;
    check(&job, &outputs, &inputs);
    Ok(after.iter().zip(before).map(|(after, before)| after - before).collect())
}

/// Bytes of payload that go through the window in a second, in and out, over the bytes that the
/// board copies in a second; without a plugin.
fn ratio(machine: &'static Machine) -> Result<String, Failure> {
    let board = Board::start(&world::options(machine, RANKS))?;
    let copies = f64::from(board.identity().copies) * 1e3;
    let mut world: World<Board, 2> = World::new(board, RANKS, RANKS, 0);
    let mut time = |count: u64| -> Duration {
        let mut call = call(Kind::AllReduce, RANKS, count);
        (call.chunk, call.window) = (1024, 5);
        let job = job(call, true);
        let inputs = inputs(&job.call);
        let begun = Instant::now();
        world.succeed(&job, &inputs);
        begun.elapsed()
    };
    let [few, many] = [1 << 16, 1 << 21];
    let mut ratios: Vec<f64> = (0..TIMES)
        .map(|_| {
            let seconds = time(many).saturating_sub(time(few)).as_secs_f64();
            (many - few) as f64 * 4.0 * FRAMES / seconds / copies
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("{}: a copy of {:.0} MB/s; ratios {ratios:.3?}", machine.name, copies / 1e6);
    Ok(format!("{:.2}", ratios[TIMES / 2]))
}

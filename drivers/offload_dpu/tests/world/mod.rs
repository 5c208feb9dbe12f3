//! A group of host threads and one board.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod all;
pub mod data;

use data::Tensor;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use unisono_core::Scalar;
use unisono_core::wire::board::{Call, Join, Role};
use unisono_core::wire::frame::Abort;
use unisono_device_cpu::CpuDevice;
use unisono_driver::{Either, HostPtr};
use unisono_link_span::{SpanLink, fabric};
use unisono_offload_dpu::serial::SerialBoard;
use unisono_offload_dpu::{AnyBoard, Board, BoardError, BoardLink, Machine, Options};
use unisono_runtime::{Buffers, Engine};

type HostEngine<const C: usize> =
    Engine<CpuDevice, Either<SpanLink<HostPtr>, BoardLink>, C, 16, 40, 16>;

/// A hang guard, nothing more: no call takes a thousandth of it on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The image of this machine.
pub fn image(machine: &Machine) -> PathBuf {
    let folder = std::env::var_os("UNISONO_BOARDS");
    let folder = folder.expect("UNISONO_BOARDS names a folder of images: run `cargo xtask boards`");
    PathBuf::from(folder).join(machine.image)
}

/// How to start the image of this machine in the folder that `cargo xtask boards` has filled.
pub fn options(machine: &'static Machine, peers: u16) -> Options {
    let mut options = Options::new(machine, &image(machine), peers);
    options.patience = PATIENCE;
    options.silence = PATIENCE;
    options
}

/// The same call on all members.
#[derive(Clone, Debug)]
pub struct Job {
    /// All but its number, its role and its weight.
    pub call: Call,
    /// `PreMulSum` weight of each rank.
    pub weights: Vec<Scalar>,
    pub in_place: bool,
}

/// What became of a call: on the hosts by rank, and on the board.
pub struct Outcome {
    pub hosts: Vec<(u16, Result<(), Abort>)>,
    pub board: Result<Result<(), Abort>, BoardError>,
    /// The ranks' outputs, in order.
    pub outputs: Vec<Vec<u8>>,
}

/// A member of the group in this process.
struct Host<const C: usize> {
    rank: u16,
    engine: Box<HostEngine<C>>,
}

/// A group with one board in it. Members have `C` calls in flight, as many as the board's links
/// have channels.
pub struct World<B: AnyBoard, const C: usize> {
    pub board: B,
    hosts: Vec<Host<C>>,
    ranks: u16,
    board_rank: u16,
    epoch: u32,
    pub next_op: u64,
    /// Deadline of calls.
    pub patience: Duration,
}

/// With a board behind a window.
pub type WindowWorld = World<Board, 2>;
/// With a board behind serial lines.
pub type SerialWorld = World<SerialBoard, 1>;

impl<B: AnyBoard, const C: usize> World<B, C> {
    /// A group of `ranks` ranks. The board is an aggregator (`board_rank == ranks`) or one of them.
    pub fn new(mut board: B, ranks: u16, board_rank: u16, epoch: u32) -> Self {
        let members = ranks.max(board_rank + 1);
        let peers: Vec<u16> = (0..members).filter(|&r| r != board_rank).collect();
        let join = Join { epoch, rank: board_rank, members, next_op: 0 };
        let mut windows = board.join(join, &peers).expect("the board joins").into_iter();
        let mut hosts = Vec::new();
        for (rank, (spans, _)) in (0..).zip(fabric(members.into(), C, 16)) {
            if rank == board_rank {
                continue;
            }
            let mut window = windows.next();
            let links = (0..).zip(spans).map(|(peer, span)| {
                if peer == board_rank { window.take().map(Either::B) } else { span.map(Either::A) }
            });
            let engine = Engine::new(rank, epoch, CpuDevice::new(), links.collect());
            hosts.push(Host { rank, engine: Box::new(engine) });
        }
        Self { board, hosts, ranks, board_rank, epoch, next_op: 0, patience: PATIENCE }
    }

    /// Runs a call to its end on all members. `meanwhile` is called once it has begun.
    pub fn run(&mut self, job: &Job, inputs: &[Vec<u8>], meanwhile: impl FnOnce(&B)) -> Outcome {
        let mut job = job.clone();
        job.call.op_id = self.next_op;
        self.next_op += 1;
        let tensor = |rank| Tensor::new(&job, rank, &inputs[usize::from(rank)]);
        let call = &mut job.call.clone();
        call.timeout_ms = self.patience.as_millis() as u32;
        if self.board_rank < self.ranks {
            let tensor = tensor(self.board_rank);
            self.board.write(0, &tensor.bytes).expect("it fits the board's memory");
            let (input, output) = (tensor.input as u32, tensor.output as u32);
            call.role = Role::Rank { input, output, in_place: job.in_place };
            call.weight = job.weights[usize::from(self.board_rank)];
        }
        let begun = self.board.begin(call);
        let (epoch, patience, job) = (self.epoch, self.patience, &job);
        // Whoever is done goes on looking after its links: peers may still wait for an answer.
        let running = &AtomicUsize::new(self.hosts.len() + 1);
        let (mut done, board) = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .hosts
                .iter_mut()
                .map(|Host { rank, engine }| {
                    let mut tensor = tensor(*rank);
                    scope.spawn(move || {
                        let result = run_here(engine, *rank, epoch, job, &mut tensor, patience);
                        running.fetch_sub(1, Relaxed);
                        while running.load(Relaxed) > 0 {
                            engine.poll();
                            std::thread::sleep(Duration::from_micros(100));
                        }
                        (*rank, result, tensor.output().to_vec())
                    })
                })
                .collect();
            meanwhile(&self.board);
            let board = begun.and_then(|()| self.board.finish(job.call.op_id, patience));
            running.fetch_sub(1, Relaxed);
            let done = threads.into_iter().map(|t| t.join().expect("no panic"));
            (done.collect::<Vec<(u16, Result<(), Abort>, Vec<u8>)>>(), board)
        });
        if self.board_rank < self.ranks {
            let tensor = tensor(self.board_rank);
            let mut output = vec![0; tensor.out_len];
            self.board.read(tensor.output as u32, &mut output).expect("as written");
            done.insert(self.board_rank.into(), (self.board_rank, Ok(()), output));
        }
        let hosts = done.iter().map(|(rank, result, _)| (*rank, *result)).collect();
        Outcome { hosts, board, outputs: done.into_iter().map(|(.., output)| output).collect() }
    }

    /// Runs a call that has to succeed; its outputs.
    pub fn succeed(&mut self, job: &Job, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let outcome = self.run(job, inputs, |_| ());
        let what = format!("{:?}", job.call);
        outcome.board.expect(&what).expect(&what);
        for (rank, result) in outcome.hosts {
            assert_eq!(result, Ok(()), "rank {rank}: {what}");
        }
        outcome.outputs
    }
}

/// One rank's part of a call.
fn run_here<const C: usize>(
    engine: &mut HostEngine<C>,
    rank: u16,
    epoch: u32,
    job: &Job,
    tensor: &mut Tensor,
    patience: Duration,
) -> Result<(), Abort> {
    let start = Instant::now();
    let now = || unisono_core::Instant::from_nanos(start.elapsed().as_nanos() as u64);
    let mut config = job.call.config(epoch, rank, now());
    config.weight = job.weights[usize::from(rank)];
    config.in_place = job.in_place;
    // The board's window is bounded by its slots, the hosts' by their engines.
    config.window = 16;
    config.slots = 0;
    config.deadline = Some(unisono_core::Instant::ZERO + patience);
    engine.fit(&mut config).expect("a call that can run");
    let lanes = config.layout.chunks().min(config.window.into());
    let scratch = config.slot_bytes() * u64::from(config.slots) * lanes;
    let mut scratch = vec![0u64; scratch as usize / 8 + 1];
    let start = tensor.bytes.as_mut_ptr();
    let buffers = Buffers {
        input: HostPtr::new(start.wrapping_add(tensor.input)),
        output: HostPtr::new(start.wrapping_add(tensor.output)),
        scratch: HostPtr::new(scratch.as_mut_ptr().cast()),
    };
    let mut call = unisono_runtime::Call { config, buffers, source_ready: u64::MAX };
    // SAFETY: tensor and scratch live until the result is there, and nobody else uses them.
    let op_id =
        unsafe { engine.begin(&mut call) }.expect("it was checked, and nothing is in flight");
    assert_eq!(op_id, job.call.op_id);
    let mut idle = 0;
    loop {
        if engine.poll() {
            idle = 0;
        } else {
            engine.handle_time(now());
            idle += 1;
            // The machine's cores run the board, too.
            if idle > 20 {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
        if let Some(result) = engine.result(op_id) {
            return result;
        }
    }
}

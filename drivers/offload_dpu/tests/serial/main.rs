//! Boots the board with serial lines under QEMU and holds every collective against the scalar
//! reference, bit for bit; then lets it die and fall silent.

#[path = "../world/mod.rs"]
mod world;

use std::process::Command;
use std::time::{Duration, Instant};
use unisono_core::schedule::{Nodes, Owners};
use unisono_core::wire::frame::Abort;
use unisono_core::{Kind, Schedule};
use unisono_offload_dpu::serial::{Options, SerialBoard};
use unisono_offload_dpu::{Machine, Problem};
use world::all::{Sizes, all_of};
use world::data::{call, check, inputs, job};
use world::log::Lines;
use world::{Job, PATIENCE, SerialWorld};

/// Elements: none, fewer than ranks, a few chunks with a rest.
const SIZES: Sizes = Sizes { counts: [0, 1, 150], chunk: 64, window: 2, step: 1 };

fn options() -> Options {
    let machine = &Machine::QEMU_CORTEX_M;
    let mut options = Options::new(machine, &world::image(machine));
    options.patience = PATIENCE;
    options.silence = PATIENCE;
    options
}

fn start() -> SerialBoard {
    SerialBoard::start(&options()).expect("a board")
}

/// A call of many seconds, for a board that does not live to its end.
fn long_job() -> (Job, Vec<Vec<u8>>) {
    let mut call = call(Kind::AllReduce, 2, 500_000);
    (call.chunk, call.window) = (256, 2);
    let job = job(call, true);
    let inputs = inputs(&job.call);
    (job, inputs)
}

#[test]
fn it_aggregates() {
    let mut board = start();
    for (epoch, ranks) in (0..).zip([2, 3]) {
        let mut world = SerialWorld::new(board, ranks, ranks, epoch);
        let star = call(Kind::AllReduce, ranks, 0).schedule;
        let calls = all_of(&mut world, ranks, &star, &SIZES);
        let hub = Schedule::Hub(Nodes::even(ranks, 2).expect("nodes"));
        let hub = all_of(&mut world, ranks, &hub, &SIZES);
        println!("aggregator for {ranks} ranks: {calls}+{hub} calls");
        board = world.board;
    }
}

#[test]
fn it_is_a_rank() {
    let mut board = start();
    let ranks = 3;
    let schedules = [
        Owners::equal(ranks).map(Schedule::Direct),
        Some(Schedule::OneShot),
        Some(Schedule::HalvingDoubling),
        Some(Schedule::Ring),
    ];
    for (epoch, schedule) in (0..).zip(schedules.iter().flatten()) {
        let rank = epoch as u16 % ranks;
        let mut world = SerialWorld::new(board, ranks, rank, epoch);
        let calls = all_of(&mut world, ranks, schedule, &SIZES);
        println!("rank {rank} of {ranks}, {}: {calls} calls", schedule.name());
        board = world.board;
    }
}

/// As a host's own lines do, a board's say who speaks and when.
#[test]
fn its_log_has_its_name_and_time() {
    let lines = Lines::collect();
    let _board = start();
    let begun = Instant::now();
    let line = loop {
        let started = |line: &String| line.contains("started");
        if let Some(line) = lines.take().into_iter().find(started) {
            break line;
        }
        assert!(begun.elapsed() < PATIENCE, "it says nothing");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(line.contains("board=\"qemu-cortex-m\""), "{line}");
    let time = line.split_once("time=\"").and_then(|(_, rest)| rest.split_once('"'));
    let seconds = time.and_then(|(time, _)| time.parse::<f64>().ok()).unwrap_or_default();
    // It is started with the clock, and says so at once.
    assert!(seconds > 0.0 && seconds < PATIENCE.as_secs_f64(), "{line}");
}

/// More than fits the board's memory many times over.
#[test]
fn a_large_tensor_streams_through_its_slots() {
    let mut world = SerialWorld::new(start(), 2, 2, 0);
    let mut call = call(Kind::AllReduce, 2, 50_000);
    (call.chunk, call.window) = (256, 2);
    let job = job(call, true);
    let inputs = inputs(&job.call);
    let outputs = world.succeed(&job, &inputs);
    check(&job, &outputs, &inputs);
}

#[test]
fn a_board_that_never_speaks_is_named_in_time() {
    let mut options = options();
    options.patience = Duration::from_secs(2);
    // Its core is stopped before the first instruction.
    options.args = vec!["-S".to_owned()];
    let begun = Instant::now();
    let error = SerialBoard::start(&options).err().expect("nobody is there");
    assert!(matches!(error.problem, Problem::Mute { .. }), "{error}");
    assert!(error.to_string().starts_with("board qemu-cortex-m: no answer to a greeting"));
    assert!(begun.elapsed() < Duration::from_secs(60), "a guard");
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name} {pid}");
}

#[test]
fn a_line_that_falls_silent_ends_calls_by_their_deadline() {
    let mut world = SerialWorld::new(start(), 2, 2, 0);
    world.patience = Duration::from_secs(3);
    let (job, inputs) = long_job();
    let outcome = world.run(&job, &inputs, |board| {
        std::thread::sleep(Duration::from_millis(500));
        signal("-STOP", board.pid().expect("started"));
    });
    for (rank, result) in outcome.hosts {
        let Err(Abort::Deadline { waiting_for, .. }) = result else {
            panic!("rank {rank}: {result:?}");
        };
        assert!(waiting_for == 2 || rank != 0, "the board's rank is 2, not {waiting_for}");
    }
    let error = outcome.board.expect_err("it says nothing");
    assert!(error.to_string().starts_with("board qemu-cortex-m: no answer to a call"), "{error}");
}

/// It is asked for signs of life while somebody waits for it, and its ranks are told if there are
/// none.
#[test]
fn a_board_that_stands_still_is_lost_before_the_deadline() {
    let mut options = options();
    options.silence = Duration::from_secs(2);
    let board = SerialBoard::start(&options).expect("a board");
    let mut world = SerialWorld::new(board, 2, 2, 0);
    let (job, inputs) = long_job();
    let outcome = world.run(&job, &inputs, |board| {
        std::thread::sleep(Duration::from_millis(500));
        signal("-STOP", board.pid().expect("started"));
    });
    for (rank, result) in outcome.hosts {
        assert_eq!(result, Err(Abort::PeerLost { rank: 2 }), "rank {rank}");
    }
    let error = outcome.board.expect_err("it is gone").to_string();
    assert_eq!(error, "board qemu-cortex-m: it is gone: no sign of life for 2s");
}

/// Signs of life are asked for between its other answers, and none is taken for another.
#[test]
fn a_board_that_is_asked_often_works_on() {
    let mut options = options();
    options.silence = Duration::from_secs(4);
    let board = SerialBoard::start(&options).expect("a board");
    let mut world = SerialWorld::new(board, 2, 1, 0);
    let mut call = call(Kind::AllReduce, 2, 1000);
    (call.chunk, call.window, call.schedule) = (64, 2, Schedule::Ring);
    let job = job(call, true);
    let inputs = inputs(&job.call);
    let begun = Instant::now();
    // Longer than it may be silent, with reads, writes and status between the calls.
    while begun.elapsed() < Duration::from_secs(6) {
        check(&job, &world.succeed(&job, &inputs), &inputs);
        assert_eq!(world.board.status().expect("it lives").next_op, world.next_op);
    }
}

#[test]
fn a_board_that_dies_is_named_and_its_ranks_are_told() {
    let mut world = SerialWorld::new(start(), 2, 2, 0);
    let (job, inputs) = long_job();
    let outcome = world.run(&job, &inputs, |board| {
        std::thread::sleep(Duration::from_millis(500));
        signal("-KILL", board.pid().expect("started"));
    });
    for (rank, result) in outcome.hosts {
        assert_eq!(result, Err(Abort::PeerLost { rank: 2 }), "rank {rank}");
    }
    let error = outcome.board.expect_err("it is gone");
    assert!(matches!(error.problem, Problem::Gone(_)), "{error}");
    assert!(error.to_string().starts_with("board qemu-cortex-m: it is gone"), "{error}");
}

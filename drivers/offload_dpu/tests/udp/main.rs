//! Boots the board with a network card under QEMU and holds the collectives against the scalar
//! reference, bit for bit, over UDP that loses, doubles and reorders datagrams.

mod relay;
#[path = "../world/mod.rs"]
mod world;

use relay::{Counts, Relay, pair};
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;
use unisono_core::schedule::Owners;
use unisono_core::wire::board::{Call, Identity, Join, Refusal};
use unisono_core::wire::frame::Abort;
use unisono_core::{Kind, Schedule};
use unisono_driver::{Either, HostPtr};
use unisono_offload_dpu::udp::{UdpBoard, Way};
use unisono_offload_dpu::{AnyBoard, BoardError, BoardLink, Machine, Problem};
use unisono_testkit::packet::{Chance, Faults};
use world::all::{Sizes, all_of};
use world::data::{call, check, inputs, job};
use world::{World, options};

const MACHINE: &Machine = &Machine::QEMU_AARCH64_UDP;
const MEMORY: u32 = 1 << 18;
const PEERS: u16 = 4;

/// A board whose members reach it through a proxy.
struct Relayed {
    board: UdpBoard,
    faults: Faults,
    relay: Option<Relay>,
    counts: Counts,
}

type UdpWorld = World<Relayed, 2>;

impl Relayed {
    fn start(machine: &'static Machine, faults: Faults) -> Self {
        let mut options = options(machine, PEERS);
        options.memory = MEMORY;
        let board = UdpBoard::start(&options).expect("a board");
        Self { board, faults, relay: None, counts: Counts::default() }
    }

    /// Ends the proxy; what it and those before it have done.
    fn stop(&mut self) -> Counts {
        if let Some(relay) = self.relay.take() {
            let Counts { carried, spoilt } = relay.stop();
            self.counts.carried += carried;
            self.counts.spoilt += spoilt;
        }
        self.counts
    }
}

impl AnyBoard for Relayed {
    fn identity(&self) -> &Identity {
        self.board.identity()
    }

    fn pid(&self) -> u32 {
        self.board.pid()
    }

    fn has_packets(&self) -> bool {
        true
    }

    fn join(&mut self, join: Join, peers: &[u16]) -> Result<Vec<BoardLink>, BoardError> {
        self.stop();
        let (faults, mut pairs) = (self.faults, Vec::new());
        let links = self.board.join_by(join, peers, |rank, board| {
            let (pair, way) = pair(board, faults, u64::from(rank) + 100 * u64::from(join.epoch))?;
            pairs.push(pair);
            Ok(way)
        });
        self.relay = Some(Relay::start(pairs));
        Ok(links?.into_iter().map(|link| Either::B(Either::B(link))).collect())
    }

    fn begin(&mut self, call: &Call) -> Result<(), BoardError> {
        AnyBoard::begin(&mut self.board, call)
    }

    fn cancel(&mut self, op_id: u64) -> Result<(), BoardError> {
        AnyBoard::cancel(&mut self.board, op_id)
    }

    fn poll(&mut self, op_id: u64) -> Result<Option<Result<(), Abort>>, BoardError> {
        AnyBoard::poll(&mut self.board, op_id)
    }

    fn finish(&mut self, op_id: u64, patience: Duration) -> Result<Result<(), Abort>, BoardError> {
        AnyBoard::finish(&mut self.board, op_id, patience)
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), BoardError> {
        AnyBoard::write(&mut self.board, at, bytes)
    }

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), BoardError> {
        AnyBoard::read(&mut self.board, at, bytes)
    }
}

/// All kinds of calls, with the board as an aggregator and as a rank; what the proxy has done.
fn conformance(machine: &'static Machine, faults: Faults, sizes: &Sizes) -> Counts {
    let name = machine.name;
    let mut board = Relayed::start(machine, faults);
    let mut epoch = 0;
    for ranks in [2, 4] {
        let mut world = UdpWorld::new(board, ranks, ranks, epoch);
        let star = call(Kind::AllReduce, ranks, 0).schedule;
        let calls = all_of(&mut world, ranks, &star, sizes);
        println!("{name}: aggregator for {ranks} ranks: {calls} calls");
        board = world.board;
        epoch += 1;
    }
    let ranks = 3;
    let schedules = [
        Owners::equal(ranks).map(Schedule::Direct),
        Some(Schedule::OneShot),
        Some(Schedule::HalvingDoubling),
        Some(Schedule::Ring),
    ];
    for schedule in schedules.iter().flatten() {
        let rank = epoch as u16 % ranks;
        let mut world = UdpWorld::new(board, ranks, rank, epoch);
        let calls = all_of(&mut world, ranks, schedule, sizes);
        println!("{name}: rank {rank} of {ranks}, {schedule}: {calls} calls");
        board = world.board;
        epoch += 1;
    }
    let counts = board.stop();
    println!("{name}, {faults:?}: {counts:?}");
    counts
}

#[test]
fn all_bits_are_right_where_nothing_gets_lost() {
    let sizes = Sizes { counts: [0, 1, 1500], chunk: 256, window: 3, step: 1 };
    let counts = conformance(MACHINE, Faults::default(), &sizes);
    assert_eq!(counts.spoilt, 0);
    assert!(counts.carried > 0);
}

#[test]
fn all_bits_are_right_with_1_percent_lost() {
    let faults = Faults { loss: 10, twice: 10, late: 20, damage: 0 };
    let sizes = Sizes { counts: [1, 0, 1500], chunk: 256, window: 3, step: 2 };
    assert!(conformance(MACHINE, faults, &sizes).spoilt > 0);
}

#[test]
fn all_bits_are_right_with_10_percent_lost() {
    let faults = Faults { loss: 100, twice: 50, late: 100, damage: 10 };
    let sizes = Sizes { counts: [1500, 0, 1], chunk: 256, window: 3, step: 5 };
    assert!(conformance(MACHINE, faults, &sizes).spoilt > 0);
}

#[test]
fn all_bits_are_right_with_50_percent_lost() {
    let faults = Faults { loss: 500, twice: 100, late: 200, damage: 0 };
    let sizes = Sizes { counts: [600, 1, 70], chunk: 128, window: 3, step: 13 };
    assert!(conformance(MACHINE, faults, &sizes).spoilt > 0);
}

#[test]
fn riscv64_has_all_bits_right_with_10_percent_lost() {
    let faults = Faults { loss: 100, twice: 50, late: 100, damage: 10 };
    let sizes = Sizes { counts: [1500, 0, 1], chunk: 256, window: 3, step: 5 };
    assert!(conformance(&Machine::QEMU_RISCV64_UDP, faults, &sizes).spoilt > 0);
}

/// More than fits the board's slots many times over.
#[test]
fn a_large_tensor_streams_through_its_slots() {
    let faults = Faults { loss: 10, twice: 10, late: 20, damage: 0 };
    let mut world = UdpWorld::new(Relayed::start(MACHINE, faults), 2, 2, 0);
    let mut call = call(Kind::AllReduce, 2, 1 << 20);
    (call.chunk, call.window) = (1024, 5);
    let job = job(call, true);
    let inputs = inputs(&job.call);
    let outputs = world.succeed(&job, &inputs);
    check(&job, &outputs, &inputs);
    assert!(world.board.stop().spoilt > 0);
}

#[test]
fn a_board_that_is_killed_is_lost_on_every_rank() {
    let mut world = UdpWorld::new(Relayed::start(MACHINE, Faults::default()), 2, 2, 0);
    let mut long = call(Kind::AllReduce, 2, 16 << 20);
    (long.chunk, long.window) = (1024, 5);
    let long = job(long, true);
    let inputs = inputs(&long.call);
    let pid = world.board.board.board().pid();
    let outcome = world.run(&long, &inputs, |_| {
        std::thread::sleep(Duration::from_millis(200));
        let sent = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{pid}");
    });
    for (rank, result) in outcome.hosts {
        assert_eq!(result, Err(Abort::PeerLost { rank: 2 }), "on rank {rank}");
    }
    let error = outcome.board.expect_err("it is gone").to_string();
    assert!(error.contains("qemu-aarch64-udp") && error.contains("signal: 9"), "{error}");
}

/// Datagrams of strangers, and of any content and length, change nothing.
#[test]
fn strangers_are_not_heard() {
    let mut options = options(MACHINE, 2);
    options.memory = MEMORY;
    let mut board = UdpBoard::start(&options).expect("a board");
    let mut doors = Vec::new();
    let join = Join { epoch: 0, rank: 2, members: 3, next_op: 0 };
    let straight = |_, board| {
        doors.push(board);
        Way::straight(board)
    };
    board.join_by::<HostPtr>(join, &[0, 1], straight).expect("it joins");
    let strangers = doors.iter().map(|door| Way::straight(*door).expect("a socket").socket);
    let strangers: Vec<UdpSocket> = strangers.collect();
    let relayed =
        Relayed { board, faults: Faults::default(), relay: None, counts: Counts::default() };
    let mut world = UdpWorld::new(relayed, 2, 2, 1);
    let job = job(call(Kind::AllReduce, 2, 50_000), false);
    let inputs = inputs(&job.call);
    let mut chance = Chance::new(3);
    let outcome = world.run(&job, &inputs, |_| {
        for i in 0..2000 {
            let noise: Vec<u8> = (0..chance.below(4000)).map(|_| chance.below(256) as u8).collect();
            // The system may have no room for it.
            let _ = strangers[i % 2].send(&noise);
        }
    });
    outcome.board.expect("it is there").expect("a result");
    check(&job, &outcome.outputs, &inputs);
}

#[test]
fn members_whose_address_is_not_known_are_refused() {
    let mut board = UdpBoard::start(&options(MACHINE, 2)).expect("a board");
    let join = Join { epoch: 0, rank: 2, members: 4, next_op: 0 };
    let problem = board.join::<HostPtr>(join, &[0, 1]).expect_err("no links").problem;
    assert!(matches!(problem, Problem::Refused(Refusal::NoLink(3))), "{problem}");
    // With all of them it joins, straight and without a proxy.
    let join = Join { members: 3, ..join };
    assert_eq!(board.join::<HostPtr>(join, &[0, 1]).expect("it joins").len(), 2);
}

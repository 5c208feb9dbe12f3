//! What goes wrong with a board is an error within the time limit that names it.

mod world;

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use unisono_core::Kind;
use unisono_core::wire::board::{Join, Refusal};
use unisono_core::wire::frame::Abort;
use unisono_driver::HostPtr;
use unisono_offload_dpu::{Board, BoardError, Image, Machine, Options, Problem};
use world::data::{call, check, inputs, job};
use world::{PATIENCE, WindowWorld, options};

const MACHINE: &Machine = &Machine::QEMU_AARCH64;

fn refused(options: &Options) -> BoardError {
    let error = Board::start(options).err().expect("no board");
    let text = error.to_string();
    assert!(text.contains(options.machine.name), "{text} does not name the board");
    error
}

/// Sends a signal to the machine.
fn signal(board: &Board, name: &str) {
    let status = Command::new("kill").args([name, &board.pid().to_string()]).status();
    assert!(status.expect("there is a kill").success());
}

#[test]
fn a_board_that_is_killed_is_lost_on_every_rank() {
    let mut world = WindowWorld::new(Board::start(&options(MACHINE, 2)).expect("a board"), 2, 2, 0);
    let mut long = call(Kind::AllReduce, 2, 16 << 20);
    (long.chunk, long.window) = (1024, 5);
    let long = job(long, true);
    let inputs = inputs(&long.call);
    let outcome = world.run(&long, &inputs, |board| {
        std::thread::sleep(Duration::from_millis(200));
        signal(board, "-KILL");
    });
    for (rank, result) in outcome.hosts {
        assert_eq!(result, Err(Abort::PeerLost { rank: 2 }), "on rank {rank}");
    }
    let error = outcome.board.expect_err("it is gone").to_string();
    assert!(error.contains("qemu-aarch64") && error.contains("signal: 9"), "{error}");
}

#[test]
fn a_board_that_stands_still_is_lost_too() {
    let mut options = options(MACHINE, 2);
    options.silence = Duration::from_secs(3);
    let mut board = Board::start(&options).expect("a board");
    board.status().expect("it lives");
    signal(&board, "-STOP");
    let join = Join { epoch: 0, rank: 2, members: 3, next_op: 0 };
    let error = board.join::<HostPtr>(join, &[0, 1]).expect_err("nobody answers").to_string();
    assert!(error.contains("qemu-aarch64") && error.contains("no sign of life"), "{error}");
}

#[test]
fn an_image_that_is_none_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    let with = |content: &[u8]| {
        std::fs::write(&path, content).expect("written");
        refused(&Options::new(MACHINE, &path, 1)).to_string()
    };
    assert!(with(b"no image").contains("not an ELF file"));
    let host = std::fs::read("/proc/self/exe").expect("this program");
    assert!(with(&host).contains("built for ELF machine 62, not 183"));
    let missing = refused(&Options::new(MACHINE, Path::new("/nowhere"), 1));
    assert!(matches!(missing.problem, Problem::Image { .. }), "{missing}");
}

/// An image that is sound by its headers, but whose code does nothing: its entry is an endless
/// loop.
#[test]
fn a_mute_image_is_an_error_in_time() {
    let image = options(MACHINE, 1).image;
    let mut bytes = std::fs::read(&image).expect("the image");
    // `b .`, where the entry point lies in the file: the start of the first loaded segment.
    let header: [u8; 8] = bytes[32..40].try_into().expect("8 bytes");
    let program = u64::from_le_bytes(header) as usize;
    let offset: [u8; 8] = bytes[program + 8..program + 16].try_into().expect("8 bytes");
    let entry = u64::from_le_bytes(offset) as usize;
    bytes[entry..entry + 4].copy_from_slice(&0x1400_0000_u32.to_le_bytes());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    std::fs::write(&path, bytes).expect("written");
    let mut options = Options::new(MACHINE, &path, 1);
    options.patience = Duration::from_secs(2);
    let error = refused(&options);
    assert!(matches!(error.problem, Problem::Mute { .. }), "{error}");
}

#[test]
fn a_board_says_why_it_refuses_a_call_and_the_ranks_learn_it() {
    let mut world = WindowWorld::new(Board::start(&options(MACHINE, 2)).expect("a board"), 2, 2, 0);
    let good = job(call(Kind::AllReduce, 2, 5000), false);
    let inputs = inputs(&good.call);
    let mut wide = good.clone();
    (wide.call.chunk, wide.call.slots) = (4096, 8);
    let outcome = world.run(&wide, &inputs, |_| ());
    let problem = outcome.board.expect_err("too much scratch").problem;
    assert!(matches!(problem, Problem::Refused(Refusal::Scratch(_))), "{problem}");
    for (rank, result) in outcome.hosts {
        assert_eq!(result, Err(Abort::Refused { rank: 2 }), "on rank {rank}");
    }
    let mut long = good.clone();
    long.call.chunk = 5000;
    long.call.window = 1;
    let problem = world.run(&long, &inputs, |_| ()).board.expect_err("a large chunk").problem;
    assert!(matches!(problem, Problem::Refused(Refusal::Chunk(20_000))), "{problem}");
    // The group goes on.
    check(&good, &world.succeed(&good, &inputs), &inputs);
}

#[test]
fn calls_without_a_group_and_groups_without_links_are_refused() {
    let mut board = Board::start(&options(MACHINE, 2)).expect("a board");
    board.begin(&call(Kind::AllReduce, 2, 1)).expect("it is there");
    let problem = board.finish(0, PATIENCE).expect_err("no group").problem;
    assert!(matches!(problem, Problem::Refused(Refusal::NotJoined)), "{problem}");
    let join = Join { epoch: 0, rank: 2, members: 9, next_op: 0 };
    let problem = board.join::<HostPtr>(join, &[0, 1]).expect_err("no links").problem;
    assert!(matches!(problem, Problem::Refused(Refusal::NoLink(3))), "{problem}");
}

/// Collects the lines of this program's log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().expect("no panic").push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The board's log is in this program's, with its name and time; a panic ends it with its place in
/// the source and its exit code.
#[test]
fn logs_and_panics_arrive() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
    let mut options = options(MACHINE, 1);
    options.image.set_file_name("qemu_virt_aarch64_panics");
    let build = Image::read(MACHINE, &options.image).expect("an image").build();
    assert_ne!(build, 0);
    let mut board = Board::start(&options).expect("it panics later");
    assert_eq!(board.identity().name, "qemu-virt-aarch64");
    let error = loop {
        match board.status() {
            Ok(_) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("exit status: 101"), "{error}");
    assert!(error.contains("panicked at") && error.contains("panics.rs:"), "{error}");
    let lines = lines.0.lock().expect("no panic");
    let started = lines.iter().find(|l| l.contains("f32 elements/ms")).expect("logged");
    assert!(started.starts_with("INFO") && started.contains("board=\"qemu-aarch64\""), "{started}");
    assert!(started.contains("time="), "{started}");
    assert!(lines.iter().any(|l| l.starts_with("ERROR") && l.contains("panics.rs:")), "{lines:?}");
}

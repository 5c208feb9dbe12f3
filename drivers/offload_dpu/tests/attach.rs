//! Boards that run already. The card's memory is a file, as sysfs shows it, and the card a program
//! that has mapped it.

mod world;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use unisono_core::wire::board::Join;
use unisono_core::wire::frame::Abort;
use unisono_core::{Kind, Schedule};
use unisono_driver::HostPtr;
use unisono_link_window::{Coherent, WindowLink};
use unisono_offload_dpu::{Attach, Board, Machine, Place, Problem};
use world::data::{call, check, inputs, job};
use world::log::Lines;
use world::{PATIENCE, WindowWorld, image};

const MACHINE: &Machine = &Machine::LINUX_AARCH64;
const ADDRESS: &str = "0000:03:00.0";
const NAME: &str = "pci:0000:03:00.0";
/// Tells another process of this program where the card is.
const SYSFS: &str = "UNISONO_TEST_SYSFS";

struct Card {
    sysfs: TempDir,
    programs: Vec<Child>,
}

impl Card {
    /// A card with so much memory, of which nobody knows what is in it.
    fn new(bytes: usize) -> Self {
        let card = Self { sysfs: tempfile::tempdir().expect("a folder"), programs: Vec::new() };
        fs::create_dir_all(card.file("")).expect("a folder");
        fs::write(card.file("enable"), "1\n").expect("written");
        fs::write(card.file("resource2"), vec![0xa5; bytes]).expect("written");
        card
    }

    fn file(&self, name: &str) -> PathBuf {
        self.sysfs.path().join("bus/pci/devices").join(ADDRESS).join(name)
    }

    /// Starts the card's program.
    fn boot(&mut self, image: PathBuf) {
        let mut command = Command::new(MACHINE.program());
        command.arg(image).arg(self.file("resource2")).stdin(Stdio::null());
        self.programs.push(command.spawn().expect("qemu-aarch64 is installed"));
    }

    fn kill(&mut self) {
        for mut program in self.programs.drain(..) {
            program.kill().and_then(|()| program.wait()).expect("it runs");
        }
    }

    fn options(&self, peers: u16, memory: u32) -> Attach {
        options(self.sysfs.path().into(), peers, memory)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.kill();
    }
}

fn options(sysfs: PathBuf, peers: u16, memory: u32) -> Attach {
    Attach {
        name: NAME.into(),
        place: Place::Pci { sysfs, address: ADDRESS.into() },
        peers,
        memory,
        patience: PATIENCE,
        silence: PATIENCE,
        stop: Arc::default(),
        images: image(MACHINE).parent().map(Into::into).into_iter().collect(),
    }
}

fn running(bytes: usize) -> Card {
    let mut card = Card::new(bytes);
    card.boot(image(MACHINE));
    card
}

fn attach(options: &Attach) -> Board {
    Board::attach(options).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(options: &Attach) -> String {
    let error = Board::attach(options).err().expect("no board").to_string();
    assert!(error.starts_with("board pci:0000:03:00.0: "), "{error}");
    error
}

/// A call on a board that is an aggregator or a rank.
fn run(board: Board, ranks: u16, board_rank: u16, epoch: u32) {
    let mut world = WindowWorld::new(board, ranks, board_rank, epoch);
    for count in [5, 20_000] {
        let mut call = call(Kind::AllReduce, ranks, count);
        (call.chunk, call.window) = (512, 5);
        if board_rank < ranks {
            call.schedule = Schedule::OneShot;
        }
        let job = job(call, true);
        let inputs = inputs(&job.call);
        check(&job, &world.succeed(&job, &inputs), &inputs);
    }
}

/// One host after the other, with windows that are laid out differently; one at a time.
#[test]
fn a_card_serves_many_hosts() {
    let lines = Lines::collect();
    let card = running(2 << 20);
    let board = attach(&card.options(2, 0));
    assert_eq!((board.identity().name.as_str(), board.pid()), ("linux-aarch64", None));
    let other = refused(&card.options(2, 0));
    assert!(other.contains("another host has it"), "{other}");
    run(board, 2, 2, 0);
    let board = attach(&card.options(3, 64 << 20));
    assert!((64 << 10..2 << 20).contains(&board.identity().memory), "what is left");
    run(board, 3, 1, 0);
    let told = lines.take();
    let has = |text: &str| told.iter().any(|line| line.contains(text) && line.contains(NAME));
    assert!(has("attached to linux-aarch64, image ") && has("f32 elements/ms"), "{told:?}");
    // Without its image it is understood as well, but for the log.
    let mut options = card.options(2, 0);
    options.images.clear();
    run(attach(&options), 2, 2, 0);
    let told = lines.take();
    assert!(told.iter().any(|line| line.contains("its log cannot be read")), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("greeted by")), "{told:?}");
}

/// A call that the board waits in for ever: its ranks do nothing.
fn stuck(board: &mut Board) -> Vec<WindowLink<HostPtr, Coherent>> {
    let join = Join { epoch: 0, rank: 2, members: 3, next_op: 0 };
    let ends = board.join::<HostPtr>(join, &[0, 1]).expect("it joins");
    board.begin(&call(Kind::AllReduce, 2, 1000)).expect("it is there");
    board.status().expect("it has begun");
    ends
}

/// The host that dies is this test again, in a process of its own that knows where the card is.
#[test]
fn a_host_that_dies_in_a_call_is_followed_by_the_next() {
    const NAME: &str = "a_host_that_dies_in_a_call_is_followed_by_the_next";
    if let Some(sysfs) = std::env::var_os(SYSFS) {
        let mut board = attach(&options(sysfs.into(), 2, 0));
        let _ends = stuck(&mut board);
        std::process::abort();
    }
    let card = running(4 << 20);
    for epoch in 0..2 {
        let mut host = Command::new(std::env::current_exe().expect("this program"));
        host.args(["--exact", NAME]).env(SYSFS, card.sysfs.path());
        let output = host.output().expect("it starts");
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(6), "{}", String::from_utf8_lossy(&output.stdout));
        run(attach(&card.options(2, 0)), 2, 2, epoch);
    }
    // Nor does one that only gives up.
    let mut board = attach(&card.options(2, 0));
    let ends = stuck(&mut board);
    drop(board);
    // They use the window, which is locked as long as it is mapped.
    assert!(refused(&card.options(2, 0)).contains("another host has it"));
    drop(ends);
    run(attach(&card.options(2, 0)), 2, 2, 0);
}

#[test]
fn a_card_that_dies_in_a_call_is_named() {
    let mut card = running(4 << 20);
    let mut options = card.options(2, 0);
    options.silence = Duration::from_secs(3);
    let mut world = WindowWorld::new(attach(&options), 2, 2, 0);
    let mut long = call(Kind::AllReduce, 2, 16 << 20);
    (long.chunk, long.window) = (512, 5);
    let long = job(long, true);
    let inputs = inputs(&long.call);
    let outcome = world.run(&long, &inputs, |_| {
        std::thread::sleep(Duration::from_millis(200));
        card.kill();
    });
    for (rank, result) in outcome.hosts {
        assert_eq!(result, Err(Abort::PeerLost { rank: 2 }), "on rank {rank}");
    }
    let error = outcome.board.expect_err("it is gone").to_string();
    assert!(error.contains(NAME) && error.contains("no sign of life for 3s"), "{error}");
    drop(world);
    // Nobody is there, then somebody is.
    options.patience = Duration::from_secs(1);
    let error = refused(&options);
    assert!(error.contains("no answer to a new window within 1s"), "{error}");
    card.boot(image(MACHINE));
    options.patience = PATIENCE;
    run(attach(&options), 2, 2, 0);
}

/// A board that comes back is not the member that it was.
#[test]
fn a_card_that_is_started_anew_is_noticed() {
    let mut card = running(4 << 20);
    let mut board = attach(&card.options(2, 0));
    card.kill();
    card.boot(image(MACHINE));
    let end = Instant::now() + PATIENCE;
    let error = loop {
        match board.status() {
            Ok(_) => assert!(Instant::now() < end, "nobody notices"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains(NAME) && error.contains("been started anew"), "{error}");
    drop(board);
    run(attach(&card.options(2, 0)), 2, 2, 0);
}

#[test]
fn cards_of_other_versions_are_refused() {
    for (program, said) in [
        ("dpu_linux_other_window", "window ABI"),
        ("dpu_linux_other_messages", "it speaks message ABI"),
    ] {
        let mut card = Card::new(1 << 20);
        card.boot(image(MACHINE).with_file_name(program));
        let error = refused(&card.options(1, 0));
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn what_is_no_window_is_refused() {
    let card = Card::new(64 << 10);
    let options = card.options(2, 0);
    let says = |options: &Attach, what: &str| {
        let error = Board::attach(options).err().expect("no board");
        assert!(matches!(error.problem, Problem::Attach { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    says(&options, "it has 65536 bytes, and links to 2 members take ");
    fs::write(card.file("enable"), "0\n").expect("written");
    says(&options, "the device is off");
    fs::write(card.file("enable"), "1\n").expect("written");
    fs::write(card.file("resource2"), "").expect("written");
    says(&options, "it is empty");
    fs::remove_file(card.file("resource2")).expect("it was there");
    says(&options, "neither resource2 nor resource0");
    fs::write(card.file("resource0"), "").expect("written");
    says(&options, "it is empty");
    let place = |place| Attach { place, ..options.clone() };
    let sysfs = card.sysfs.path().into();
    says(&place(Place::Pci { sysfs, address: "0000:04:00.0".into() }), "no such PCI device");
    says(&place(Place::File("/nowhere/window".into())), "there is no such file");
    says(&place(Place::File("/proc/version".into())), "cannot attach to /proc/version");
}

//! What goes wrong with a board is an error within the time limit that names it.

mod world;

use object::{Object, ObjectSection};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use unisono_core::Kind;
use unisono_core::wire::board::{ABI, Join, Refusal};
use unisono_core::wire::frame::Abort;
use unisono_driver::HostPtr;
use unisono_link_window::{ABI as WINDOW_ABI, RegionError};
use unisono_offload_dpu::{Board, BoardError, Image, Machine, Options, Problem};
use world::data::{call, check, inputs, job};
use world::log::Lines;
use world::{PATIENCE, WindowWorld, options};

const MACHINE: &Machine = &Machine::QEMU_AARCH64;
/// A machine of its own, and a program of Linux.
const BOTH: [&Machine; 2] = [MACHINE, &Machine::LINUX_AARCH64];

fn refused(options: &Options) -> BoardError {
    let error = Board::start(options).err().expect("no board");
    let text = error.to_string();
    assert!(text.contains(options.machine.name), "{text} does not name the board");
    error
}

/// Sends a signal to the machine.
fn signal(board: &Board, name: &str) {
    let pid = board.pid().expect("it was started").to_string();
    let status = Command::new("kill").args([name, &pid]).status();
    assert!(status.expect("there is a kill").success());
}

#[test]
fn a_board_that_is_killed_is_lost_on_every_rank() {
    let mut long = call(Kind::AllReduce, 2, 16 << 20);
    (long.chunk, long.window) = (1024, 5);
    let long = job(long, true);
    let inputs = inputs(&long.call);
    for machine in BOTH {
        let board = Board::start(&options(machine, 2)).expect("a board");
        let mut world = WindowWorld::new(board, 2, 2, 0);
        let outcome = world.run(&long, &inputs, |board| {
            std::thread::sleep(Duration::from_millis(200));
            signal(board, "-KILL");
        });
        for (rank, result) in outcome.hosts {
            assert_eq!(result, Err(Abort::PeerLost { rank: 2 }), "on rank {rank}");
        }
        let error = outcome.board.expect_err("it is gone").to_string();
        assert!(error.contains(machine.name) && error.contains("signal: 9"), "{error}");
    }
}

/// A file that was copied or downloaded is often not executable; QEMU would end without a word.
#[test]
fn a_program_that_is_not_executable_runs_all_the_same() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(&Machine::LINUX_AARCH64, 1);
    let copy = folder.path().join("copy");
    std::fs::copy(&options.image, &copy).expect("a copy");
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o644)).expect("its mode");
    options.image = copy;
    Board::start(&options).expect("a board");
}

#[test]
fn a_board_that_stands_still_is_lost_too() {
    for machine in BOTH {
        let mut options = options(machine, 2);
        options.silence = Duration::from_secs(3);
        let mut board = Board::start(&options).expect("a board");
        board.status().expect("it lives");
        signal(&board, "-STOP");
        let join = Join { epoch: 0, rank: 2, members: 3, next_op: 0 };
        let error = board.join::<HostPtr>(join, &[0, 1]).expect_err("nobody answers").to_string();
        assert!(error.contains(machine.name) && error.contains("no sign of life"), "{error}");
    }
}

#[test]
fn an_image_that_is_none_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    let with = |machine, content: &[u8]| {
        std::fs::write(&path, content).expect("written");
        refused(&Options::new(machine, &path, 1)).to_string()
    };
    let host = std::fs::read("/proc/self/exe").expect("this program");
    let other = std::fs::read(options(&Machine::QEMU_RISCV64, 1).image).expect("an image");
    for machine in BOTH {
        assert!(with(machine, b"no image").contains("not an ELF file"));
        assert!(with(machine, &host).contains("built for ELF machine 62, not 183"));
        assert!(with(machine, &other).contains("built for ELF machine 243, not 183"));
        let missing = refused(&Options::new(machine, Path::new("/nowhere"), 1));
        assert!(matches!(missing.problem, Problem::Image { .. }), "{missing}");
    }
}

/// Of two boards with the same CPU, too: the code would run and find nothing that it knows.
#[test]
fn an_image_for_another_board_is_refused() {
    let window = options(&Machine::QEMU_AARCH64, 1);
    let udp = options(&Machine::QEMU_AARCH64_UDP, 1);
    let linux = options(&Machine::LINUX_AARCH64, 1);
    for (own, other) in [(&window, &udp), (&udp, &window), (&window, &linux), (&linux, &window)] {
        let mut wrong = own.clone();
        wrong.image.clone_from(&other.image);
        let error = refused(&wrong).to_string();
        let said =
            format!("it is for board {}, not {}", other.machine.board(), own.machine.board());
        assert!(error.ends_with(&said), "{error}");
    }
}

/// An image with the version of its messages changed in the section that names it.
fn of_abi(machine: &'static Machine, abi: u16, folder: &Path) -> Options {
    let mut options = options(machine, 1);
    let mut bytes = std::fs::read(&options.image).expect("the image");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = file.section_by_name(Image::ABI_SECTION).expect("every image has it");
    assert_eq!(section.data().expect("in the file"), ABI.to_le_bytes());
    let (at, len) = section.file_range().expect("in the file");
    bytes[at as usize..][..len as usize].copy_from_slice(&abi.to_le_bytes());
    options.image = folder.join(machine.image);
    std::fs::write(&options.image, bytes).expect("written");
    options
}

/// Before it is started: what such an image would do with its machine is not known.
#[test]
fn an_image_of_another_message_abi_is_refused_unstarted() {
    let folder = tempfile::tempdir().expect("a folder");
    for machine in Machine::ALL {
        let error = refused(&of_abi(machine, ABI + 1, folder.path()));
        let said = format!("it speaks message ABI {}, this host {ABI}: ", ABI + 1);
        assert!(matches!(error.problem, Problem::Image { .. }), "{error}");
        assert!(error.to_string().contains(&said), "{error}");
    }
    // The change alone breaks nothing.
    Board::start(&of_abi(MACHINE, ABI, folder.path())).expect("a board");
}

/// What firmware ends its machine with is said in words.
#[test]
fn a_board_without_its_network_card_says_so() {
    // Only `UdpBoard` gives it one.
    let error = refused(&options(&Machine::QEMU_AARCH64_UDP, 1)).to_string();
    assert!(error.contains("exit status: 5 (the firmware has found no network card"), "{error}");
}

/// Where in the file the code is that runs first.
fn entry(image: &[u8]) -> usize {
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"));
    let (entry, headers) = (number(24), number(32) as usize);
    let count = u16::from_le_bytes([image[56], image[57]]);
    let mut segments = (0..usize::from(count)).map(|i| headers + 56 * i);
    let holds = |at: &usize| (number(at + 16)..number(at + 16) + number(at + 32)).contains(&entry);
    let at = segments.find(holds).expect("a segment with the entry");
    (entry - number(at + 16) + number(at + 8)) as usize
}

/// An image that is sound by its headers, but whose code does nothing: its entry is an endless
/// loop.
#[test]
fn a_mute_image_is_an_error_in_time() {
    for machine in BOTH {
        let mut bytes = std::fs::read(options(machine, 1).image).expect("the image");
        let entry = entry(&bytes);
        // `b .`
        bytes[entry..entry + 4].copy_from_slice(&0x1400_0000_u32.to_le_bytes());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        std::fs::write(&path, bytes).expect("written");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("own file");
        let mut options = Options::new(machine, &path, 1);
        options.patience = Duration::from_secs(2);
        let error = refused(&options);
        assert!(matches!(error.problem, Problem::Mute { .. }), "{error}");
    }
}

/// Images of other versions of what host and board have to agree on.
#[test]
fn another_version_is_refused() {
    let with = |image: &str| {
        let mut options = options(&Machine::LINUX_AARCH64, 1);
        options.image.set_file_name(image);
        refused(&options)
    };
    let window = with("dpu_linux_other_window");
    let want = |theirs| matches!(theirs, RegionError::Abi { theirs } if theirs == WINDOW_ABI + 1);
    assert!(matches!(window.problem, Problem::Region(error) if want(error)), "{window}");
    let messages = with("dpu_linux_other_messages");
    let right = |theirs, ours| (theirs, ours) == (ABI + 1, ABI);
    let Problem::Abi { theirs, ours } = messages.problem else { panic!("{messages}") };
    assert!(right(theirs, ours), "{theirs} {ours}");
}

/// The program for Linux says why it does not start: it has no log without a window.
#[test]
fn a_program_without_a_window_says_so() {
    let image = options(&Machine::LINUX_AARCH64, 1).image;
    for (args, said) in [(&[][..], "started as"), (&["/nowhere"][..], "map /nowhere: error 2 ")] {
        let run = Command::new("qemu-aarch64").arg(&image).args(args).output().expect("it runs");
        assert_eq!(run.status.code(), Some(2));
        let text = String::from_utf8_lossy(&run.stderr);
        assert!(text.contains(said), "{text}");
    }
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

/// The board's log is in this program's, with its name and time; a panic ends it with its place in
/// the source and its exit code.
#[test]
fn logs_and_panics_arrive() {
    let lines = Lines::collect();
    for (machine, name) in BOTH.into_iter().zip(["qemu-virt-aarch64", "linux-aarch64"]) {
        let mut options = options(machine, 1);
        options.image.set_file_name(format!("{}_panics", machine.image));
        let build = Image::read(machine, &options.image).expect("an image").build();
        assert_ne!(build, 0);
        let started = Instant::now();
        let mut board = Board::start(&options).expect("it panics later");
        assert_eq!(board.identity().name, name);
        let error = loop {
            match board.status() {
                Ok(_) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("exit status: 101 (the firmware has panicked)"), "{error}");
        assert!(error.contains("panicked at") && error.contains("panics.rs:"), "{error}");
        let lines = lines.take();
        // Boards of other tests are heard, too.
        let board = format!("board=\"{}\"", machine.name);
        let its = |l: &&String| l.contains("f32 elements/ms") && l.contains(&board);
        let logged = lines.iter().find(its).expect("logged");
        assert!(logged.starts_with("INFO"), "{logged}");
        // Of the board's own clock, which begins when it does.
        let (_, time) = logged.split_once("time=\"").expect("a time");
        let (seconds, _) = time.split_once('"').expect("its end");
        let seconds: f64 = seconds.parse().expect("a number");
        assert!(seconds < started.elapsed().as_secs_f64(), "{logged}");
        let panicked = |l: &String| l.starts_with("ERROR") && l.contains("panics.rs:");
        assert!(lines.iter().any(panicked), "{lines:?}");
    }
}

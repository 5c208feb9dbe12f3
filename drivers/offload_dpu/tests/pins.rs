//! A board's pins, as somebody sees them who looks at the machine from outside.
#![cfg(unix)]

#[path = "world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use unisono_core::Kind;
use unisono_core::wire::board::{Join, Refusal};
use unisono_driver::HostPtr;
use unisono_offload_dpu::{Board, Machine, Problem};
use world::data::call;
use world::log::Lines;
use world::{PATIENCE, options};

/// QEMU's monitor.
struct Monitor {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Monitor {
    fn open(path: &Path) -> Self {
        let to = UnixStream::connect(path).expect("QEMU has made it");
        let from = BufReader::new(to.try_clone().expect("the same"));
        let mut monitor = Self { to, from };
        assert!(monitor.line().contains("QMP"));
        assert!(monitor.ask(r#"{"execute":"qmp_capabilities"}"#).contains("return"));
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("text");
        line
    }

    fn ask(&mut self, question: &str) -> String {
        self.to.write_all(question.as_bytes()).expect("QEMU listens");
        loop {
            let line = self.line();
            // Events come whenever they like.
            if line.contains("\"return\"") || line.contains("\"error\"") {
                return line;
            }
        }
    }

    /// The levels of all eight pins: the data register, by the address that leaves none out.
    fn pins(&mut self) -> u8 {
        let look = concat!(
            r#"{"execute":"human-monitor-command","arguments":"#,
            r#"{"command-line":"xp /1wx 0x090303fc"}}"#
        );
        let answer = self.ask(look);
        let value = answer.rsplit("0x").next().expect("a number");
        let digits: String = value.chars().take_while(char::is_ascii_hexdigit).collect();
        u32::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("{answer}")) as u8
    }
}

/// Status is pin 4, attention pin 5.
const STATUS: u8 = 1 << 4;
const ATTENTION: u8 = 1 << 5;

/// A board with this many peers, and its machine's monitor.
fn start(folder: &Path, peers: u16) -> (Board, Monitor) {
    let path = folder.join("monitor");
    let mut options = options(&Machine::QEMU_AARCH64, peers);
    options.args = vec!["-qmp".into(), format!("unix:{},server=on,wait=off", path.display())];
    let board = Board::start(&options).expect("a board");
    (board, Monitor::open(&path))
}

/// Waits until the pins are so.
#[track_caller]
fn until(monitor: &mut Monitor, is_it: impl Fn(u8) -> bool) {
    let started = Instant::now();
    while !is_it(monitor.pins()) {
        assert!(started.elapsed() < PATIENCE, "pins {:08b}", monitor.pins());
    }
}

/// The board has posted an answer that its host does not take: attention is high until it does.
#[test]
fn attention_is_high_while_the_host_has_something_to_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut board, mut monitor) = start(folder.path(), 1);
    until(&mut monitor, |pins| pins & ATTENTION == 0);
    // It is in no group, and so refuses.
    board.begin(&call(Kind::AllReduce, 2, 1)).expect("it is there");
    until(&mut monitor, |pins| pins & ATTENTION != 0);
    std::thread::sleep(Duration::from_millis(200));
    assert_ne!(monitor.pins() & ATTENTION, 0);
    let problem = board.finish(0, PATIENCE).expect_err("no group").problem;
    assert!(matches!(problem, Problem::Refused(Refusal::NotJoined)), "{problem}");
    until(&mut monitor, |pins| pins & ATTENTION == 0);
}

/// The machine's power key is the doorbell: whoever rings is heard, once each time, and the board
/// is the same as before.
#[test]
fn the_doorbell_is_heard() {
    let lines = Lines::collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut board, mut monitor) = start(folder.path(), 1);
    for _ in 0..3 {
        lines.take();
        let answer = monitor.ask(r#"{"execute":"system_powerdown"}"#);
        assert!(answer.contains("return"), "{answer}");
        let started = Instant::now();
        let rung = |lines: Vec<String>| lines.iter().any(|l| l.contains("the doorbell was rung"));
        while !rung(lines.take()) {
            assert!(started.elapsed() < PATIENCE, "it is not heard");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The key is down for a tenth of a second.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!rung(lines.take()), "it counts more than once");
        board.status().expect("it lives");
    }
}

#[test]
fn status_is_high_while_the_board_is_in_a_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut board, mut monitor) = start(folder.path(), 2);
    assert_eq!(monitor.pins() & STATUS, 0);
    let join = Join { epoch: 0, rank: 2, members: 3, next_op: 0 };
    let links = board.join::<HostPtr>(join, &[0, 1]).expect("it joins");
    // The round after the one that has joined shows it, and answers this.
    board.status().expect("it lives");
    assert_eq!(monitor.pins() & STATUS, STATUS);
    drop(links);
    // A group that it cannot be in: it has left the old one.
    let join = Join { members: 9, ..join };
    board.join::<HostPtr>(join, &[0, 1]).map(drop).expect_err("no links");
    board.status().expect("it lives");
    assert_eq!(monitor.pins() & STATUS, 0);
}

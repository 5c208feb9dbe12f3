//! A board's pins, as somebody sees them who looks at the machine from outside.
#![cfg(unix)]

#[path = "world/mod.rs"]
mod world;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use unisono_core::wire::board::Join;
use unisono_driver::HostPtr;
use unisono_offload_dpu::{Board, Machine};
use world::options;

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
#[test]
fn status_is_high_while_the_board_is_in_a_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("monitor");
    let mut options = options(&Machine::QEMU_AARCH64, 2);
    options.args = vec!["-qmp".into(), format!("unix:{},server=on,wait=off", path.display())];
    let mut board = Board::start(&options).expect("a board");
    let mut monitor = Monitor::open(&path);
    assert_eq!(monitor.pins() & 1 << 4, 0);
    let join = Join { epoch: 0, rank: 2, members: 3, next_op: 0 };
    let links = board.join::<HostPtr>(join, &[0, 1]).expect("it joins");
    // The round after the one that has joined shows it, and answers this.
    board.status().expect("it lives");
    assert_eq!(monitor.pins() & 1 << 4, 1 << 4);
    drop(links);
    // A group that it cannot be in: it has left the old one.
    let join = Join { members: 9, ..join };
    board.join::<HostPtr>(join, &[0, 1]).map(drop).expect_err("no links");
    board.status().expect("it lives");
    assert_eq!(monitor.pins() & 1 << 4, 0);
}

//! Goodput over loss and window, as a table to review. Rewritten when `UNISONO_BLESS` is 1.

use super::pair::{Faults, Pair};
use std::fmt::Write;
use std::time::Duration;
use unisono_core::reliable::{Config, Side};

const MESSAGES: u64 = 2_000;
const MTU: usize = 1_472;
const MESSAGE: u64 = 1_024;

/// Tenths of Mbit of messages a second; the line gives 819 for one packet each 10 us.
fn goodput<const W: usize>(loss_percent: u64) -> u64 {
    let faults = Faults { loss: loss_percent * 10, delay: 100, pace: 10, ..Faults::default() };
    let config = Config { silence: Duration::from_secs(300), ..Config::new(1, Side::Low) };
    let mut pair = Pair::<W, MTU>::new(config, faults, 1);
    let start = pair.now;
    pair.ends[0].to_send.extend((0..MESSAGES).map(|i| vec![i as u8; MESSAGE as usize]));
    assert!(pair.run(Duration::from_secs(10_000)), "loss {loss_percent} %, window {W}");
    assert_eq!(pair.ends[1].got.len() as u64, MESSAGES);
    MESSAGES * MESSAGE * 80 / (pair.now - start).as_micros() as u64
}

#[test]
fn goodput_table() {
    let mut table = String::from(
        "Goodput in Mbit/s of 2000 messages of 1024 bytes, one way.\n\
         Line: a packet each 10 us (819 Mbit/s of messages), 100 us delay each way, random loss\n\
         both ways. Columns: WINDOW.\n\n\
         loss         1      4     16     64\n",
    );
    for loss in [0, 1, 2, 5, 10, 20, 30, 50] {
        let row =
            [goodput::<1>(loss), goodput::<4>(loss), goodput::<16>(loss), goodput::<64>(loss)];
        write!(table, "{loss:>3} %  ").expect("writes to a string");
        for tenths in row {
            write!(table, "{:>5}.{}", tenths / 10, tenths % 10).expect("writes to a string");
        }
        table.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/goodput.txt");
    if std::env::var_os("UNISONO_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(path, &table).expect("golden file can be written");
    }
    let golden = std::fs::read_to_string(path).expect("golden file exists");
    assert!(table == golden, "goodput differs; UNISONO_BLESS=1 accepts:\n{table}");
}

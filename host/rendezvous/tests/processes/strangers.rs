//! What a stranger sends must not disturb the ranks.

use crate::ranks::{Running, all, free_port, rank, start};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Says these bytes to rank 0 once it listens, and reads what it answers until it hangs up.
fn say(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    };
    // It may have hung up already.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

const PREFIX: &[u8] = b"unisono\n\x02\x00";

fn with_prefix(rest: &[u8]) -> Vec<u8> {
    [PREFIX, rest].concat()
}

#[test]
fn garbage_is_dropped_and_silence_blocks_nobody() {
    let port = free_port();
    let master = format!("127.0.0.1:{port}");
    let zero = start(&mut rank(0, 3, &master, "strangers"));
    // These say nothing, some of them half a greeting, and stay.
    let silent: Vec<TcpStream> = (0..40)
        .map(|n| {
            let mut stream = loop {
                if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                    break stream;
                }
                thread::sleep(Duration::from_millis(10));
            };
            stream.write_all(&with_prefix(&[255, 0, 0])[..n % 14]).expect("can be sent");
            stream
        })
        .collect();
    let mut noise: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 4096],
        vec![255; 4096],
        with_prefix(&u32::MAX.to_le_bytes()),
        with_prefix(&[1, 4, 0, 0]),
        with_prefix(&[0, 0, 0, 0]),
        // A frame of the greeting's kind with lengths that lie.
        with_prefix(&[10, 0, 0, 0, 0, 255, 255, 255, 255, 15, 1, 2, 3, 4]),
    ];
    let mut seed = 1u32;
    noise.extend((0..50).map(|n| {
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let rest: Vec<u8> = (0..n * 7).map(|_| next()).collect();
        with_prefix(&[&(rest.len() as u32).to_le_bytes()[..], &rest].concat())
    }));
    for bytes in &noise {
        let answer = say(port, bytes);
        assert!(answer.is_empty() || answer == PREFIX, "{bytes:?}: {answer:?}");
    }
    let others: Vec<Running> =
        (1..3).map(|r| start(&mut rank(r, 3, &master, "strangers"))).collect();
    for rank in others.into_iter().chain([zero]) {
        assert!(rank.end().said().contains(" near"));
    }
    drop(silent);
}

#[test]
fn another_version_is_named_on_rank_0() {
    let port = free_port();
    let master = format!("127.0.0.1:{port}");
    let mut command = rank(0, 2, &master, "version");
    let zero = start(command.args(["--seconds", "1"]));
    assert_eq!(say(port, b"unisono\n\x07\x00"), PREFIX);
    let ended = zero.end();
    let error = ended.error();
    assert!(error.contains("it speaks version 7 of the protocol, this process 2"), "{error}");
}

#[test]
fn a_rank_meets_a_stranger_where_it_expects_rank_0() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    let cases: [(&[u8], &str); 3] = [
        (b"unisono\n\x09\x00", "it speaks version 9 of the protocol, this process 2"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak this protocol"),
        (b"unisono\n\x02\x00\xff\xff\xff\xff", "a message of 4294967295 B, at most 1024"),
    ];
    for (bytes, wanted) in cases {
        let mut command = rank(1, 2, &format!("127.0.0.1:{port}"), "meets");
        let mut one = start(command.args(["--seconds", "1"]));
        listener.set_nonblocking(true).expect("can be asked");
        // It comes again and again, until its time is over.
        let mut kept = Vec::new();
        while one.runs() {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.write_all(bytes).expect("can be sent");
                    kept.push(stream);
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
        let ended = one.end();
        assert!(ended.error().contains(wanted), "{ended:?}");
        assert!(!kept.is_empty());
    }
}

#[test]
fn one_port_may_be_taken_where_several_are_tried() {
    // As under torchrun of two nodes: its own store has the port, and somebody the one behind.
    let port = free_port();
    let taken = [port, port + 1].map(|port| TcpListener::bind(("127.0.0.1", port)));
    let make = |r: usize| {
        let mut command = crate::ranks::bare();
        command.env("RANK", r.to_string()).env("WORLD_SIZE", "2");
        command.env("GROUP_RANK", r.to_string()).env("LOCAL_RANK", "0");
        command.env("LOCAL_WORLD_SIZE", "1").env("TORCHELASTIC_RUN_ID", "run");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command
    };
    for ended in all(2, make) {
        assert!(ended.said().contains(" local 0 by torchrun:"), "{ended:?}");
    }
    drop(taken);
}

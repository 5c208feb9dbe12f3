//! COBS framing: any split of the stream gives the same messages, and damage stays local.

use proptest::prelude::*;
use unisono_core::wire::EncodeError;
use unisono_core::wire::cobs::{CobsReader, cobs_encode, cobs_max};

const LONGEST: usize = 600;

fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Zeros are frequent, and lengths cross the 254-byte blocks of the encoding.
    let byte = prop_oneof![Just(0u8), any::<u8>()];
    prop::collection::vec(prop::collection::vec(byte, 0..LONGEST), 1..6)
}

fn stream(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        let mut buf = vec![0; cobs_max(message.len())];
        let len = cobs_encode(message, &mut buf).expect("fits by cobs_max");
        assert!(!buf[..len - 1].contains(&0));
        out.extend(&buf[..len]);
    }
    out
}

fn read(bytes: &[u8], piece: usize, room: usize) -> (Vec<Vec<u8>>, u64) {
    let mut buf = vec![0; room];
    let mut reader = CobsReader::new(&mut buf);
    let mut got = Vec::new();
    for mut input in bytes.chunks(piece) {
        while let Some(message) = reader.next(&mut input) {
            got.push(message.to_vec());
        }
        assert!(input.is_empty());
    }
    (got, reader.skipped())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_messages(messages in messages(), piece in 1usize..700) {
        let (got, skipped) = read(&stream(&messages), piece, cobs_max(LONGEST));
        prop_assert_eq!(got, messages);
        prop_assert_eq!(skipped, 0);
    }

    #[test]
    fn damage_costs_only_what_it_hits(
        messages in messages(), noise in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        // Noise runs into nothing but itself: a 0 ends it, and all that follows is read.
        let mut bytes = noise.clone();
        bytes.push(0);
        bytes.extend(stream(&messages));
        let (got, skipped) = read(&bytes, 64, cobs_max(LONGEST));
        prop_assert!(got.ends_with(&messages));
        let runs = noise.split(|&b| b == 0).filter(|run| !run.is_empty()).count();
        prop_assert_eq!(got.len() - messages.len() + skipped as usize, runs);
    }

    #[test]
    fn long_messages_are_skipped(message in prop::collection::vec(1u8.., 40..200)) {
        let mut bytes = stream(std::slice::from_ref(&message));
        bytes.extend(stream(&[vec![5, 0, 6]]));
        let (got, skipped) = read(&bytes, 7, 40);
        prop_assert_eq!(got, [vec![5, 0, 6]]);
        prop_assert_eq!(skipped, 1);
        prop_assert_eq!(read(&bytes, 7, 0), (vec![], 2));
    }
}

#[test]
fn room_is_checked_first() {
    for len in [0, 1, 253, 254, 255, 508] {
        let message = vec![1; len];
        let mut out = vec![0xee; cobs_max(len)];
        let short = out.len() - 1;
        assert_eq!(cobs_encode(&message, &mut out[..short]), Err(EncodeError::Room));
        assert!(out.iter().all(|&b| b == 0xee), "nothing is written");
        assert!(cobs_encode(&message, &mut out).is_ok());
    }
}

#[test]
fn an_empty_message_is_a_message() {
    assert_eq!(stream(&[vec![]]), [1, 0]);
    assert_eq!(read(&[0, 1, 0, 0], 1, 8), (vec![vec![]], 0));
}

#[test]
fn an_idle_line_of_zeros_is_silent() {
    assert_eq!(read(&[0; 50], 50, 8), (vec![], 0));
}

//! What the channel refuses, and how it fails.

use super::pair::{Faults, Pair, Rng};
use std::time::Duration;
use unisono_core::Instant;
use unisono_core::reliable::packet::{Fragment, OVERHEAD, Packet, decode, encode};
use unisono_core::reliable::{Config, Fault, RecvError, Reliable, SendError, Side};
use unisono_core::wire::DecodeError;

const MTU: usize = 64;
type Channel = Reliable<4, MTU>;

fn config(side: Side) -> Config {
    Config::new(42, side)
}

fn millis(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

/// A packet of the low side that carries one fragment.
fn packet(seq: u32, last: bool, bytes: &[u8]) -> Packet<'_> {
    Packet {
        session: 42,
        side: Side::Low,
        credit: 4,
        ack: 0,
        sack: 0,
        stamp: 0,
        echo: None,
        ping: false,
        data: Some(Fragment { seq, last, bytes }),
    }
}

fn give(channel: &mut Channel, packet: &Packet<'_>) {
    let mut out = [0; 2 * MTU];
    let len = encode(packet, &mut out).expect("fits");
    channel.handle_packet(millis(1), &out[..len]);
}

#[test]
fn nothing_is_taken_of_a_message_without_room() {
    let mut channel = Channel::new(config(Side::Low));
    let most = Channel::MESSAGE_MAX;
    assert_eq!((most, channel.send_room()), (4 * (MTU - OVERHEAD), most));
    assert_eq!(channel.send(&vec![0; most + 1]), Err(SendError::TooLong));
    assert_eq!(channel.send(&[1; 30]), Ok(()));
    assert_eq!(channel.send_room(), 2 * Channel::FRAGMENT);
    assert_eq!(channel.send(&[1; 60]), Err(SendError::Full));
    assert_eq!(channel.send_room(), 2 * Channel::FRAGMENT);
    assert_eq!(channel.send(&[]), Ok(()));
    assert_eq!(channel.send(&[1; Channel::FRAGMENT]), Ok(()));
    assert_eq!((channel.send_room(), channel.send(&[])), (0, Err(SendError::Full)));
}

#[test]
fn a_short_buffer_leaves_the_message() {
    let mut channel = Channel::new(config(Side::High));
    assert_eq!(channel.recv(&mut [0; 9]), Err(RecvError::Empty));
    give(&mut channel, &packet(1, true, b"end"));
    assert_eq!(channel.message_len(), None);
    give(&mut channel, &packet(0, false, b"the "));
    assert_eq!(channel.message_len(), Some(7));
    assert_eq!(channel.recv(&mut [0; 6]), Err(RecvError::Room { len: 7 }));
    let mut out = [0; 9];
    assert_eq!(channel.recv(&mut out), Ok(7));
    assert_eq!(&out, b"the end\0\0");
    assert_eq!(channel.recv(&mut out), Err(RecvError::Empty));
}

#[test]
fn stale_and_reflected_packets_change_nothing() {
    let mut channel = Channel::new(config(Side::High));
    let good = packet(0, true, b"good");
    for foreign in [Packet { session: 41, ..good }, Packet { side: Side::High, ..good }] {
        give(&mut channel, &foreign);
    }
    // Not even one that would break the rules if it were of this session.
    give(&mut channel, &Packet { session: 41, ack: 9, ..good });
    assert_eq!((channel.stats().foreign, channel.stats().received), (3, 0));
    assert_eq!(channel.poll_transmit(millis(2), &mut [0; MTU]), None, "no answer");
    give(&mut channel, &good);
    give(&mut channel, &packet(0, true, b"evil"));
    let mut out = [0; 4];
    assert_eq!(channel.recv(&mut out), Ok(4));
    assert_eq!(&out, b"good", "the first copy counts");
    give(&mut channel, &packet(0, true, b"late"));
    assert_eq!(channel.message_len(), None);
    assert_eq!(channel.stats().duplicates, 2);
}

#[test]
fn a_peer_that_breaks_the_rules_is_told_from_a_silent_one() {
    let fails = |packets: &[Packet<'_>]| {
        let mut channel = Channel::new(config(Side::High));
        packets.iter().for_each(|p| give(&mut channel, p));
        channel.fault()
    };
    assert_eq!(fails(&[packet(0, true, &[0; Channel::FRAGMENT])]), None);
    let long = [0; Channel::FRAGMENT + 1];
    assert_eq!(fails(&[packet(0, true, &long)]), Some(Fault::Protocol), "larger packets");
    let early = Packet { ack: 1, ..packet(0, true, b"") };
    assert_eq!(fails(&[early]), Some(Fault::Protocol), "acknowledges what was never sent");
    let endless = [0, 1, 2, 3].map(|seq| packet(seq, false, b"x"));
    assert_eq!(fails(&endless[..3]), None);
    assert_eq!(fails(&endless), Some(Fault::Protocol), "a message longer than the window");
    assert_eq!(fails(&[packet(4, true, b"x")]), None, "outside of the window is only ignored");
}

#[test]
fn a_silent_peer_is_given_up_in_time() {
    let dead = Faults { loss: 1000, ..Faults::default() };
    let mut pair = Pair::<4, MTU>::new(config(Side::Low), Faults::default(), 0);
    let want = pair.load(&mut Rng::new(4), 3, 20);
    assert!(pair.run(Duration::from_secs(1)));
    pair.set_faults(dead);
    pair.now = pair.now + Duration::from_secs(100);
    let start = pair.now;
    pair.ends[0].to_send.push_back(vec![1]);
    assert!(!pair.run(Duration::from_secs(100)));
    let channel = &mut pair.ends[0].channel;
    assert_eq!(channel.fault(), Some(Fault::PeerSilent));
    let took = (pair.now - start).as_millis();
    assert!((5_000..6_100).contains(&took), "silence, and at most one time-out more: {took} ms");
    assert_eq!(channel.send(b"x"), Err(SendError::Failed(Fault::PeerSilent)));
    assert_eq!((channel.send_room(), channel.poll_timeout()), (0, None));
    assert_eq!(channel.poll_transmit(pair.now, &mut [0; MTU]), None);
    assert_eq!(pair.ends[0].got, want[0]);
    assert_eq!(pair.ends[1].channel.fault(), None, "it waits for nothing");
}

#[test]
fn messages_before_the_fault_can_be_taken() {
    let mut channel = Channel::new(config(Side::High));
    give(&mut channel, &packet(0, true, b"whole"));
    give(&mut channel, &Packet { ack: 1, ..packet(1, true, b"wrong") });
    assert_eq!(channel.fault(), Some(Fault::Protocol));
    assert_eq!(channel.recv(&mut [0; 9]), Ok(5));
    assert_eq!(channel.recv(&mut [0; 9]), Err(RecvError::Empty));
}

#[test]
fn a_pause_of_this_side_is_no_silence() {
    let mut channel = Channel::new(config(Side::Low));
    channel.send(b"x").expect("room");
    assert!(channel.poll_transmit(millis(0), &mut [0; MTU]).is_some());
    // The process was stopped for an hour; the answer may be waiting in the socket.
    channel.handle_timeout(millis(3_600_000));
    assert_eq!(channel.fault(), None);
    // A link of our own without room is no silence either.
    for _ in 0..100 {
        let at = channel.poll_timeout().expect("it waits");
        channel.handle_timeout(at);
    }
    assert_eq!((channel.fault(), channel.stats().timeouts), (None, 1));
}

#[test]
fn keep_alive_finds_a_dead_idle_peer() {
    let keep_alive = Some(Duration::from_secs(2));
    let config = Config { keep_alive, ..config(Side::Low) };
    let mut pair = Pair::<4, MTU>::new(config, Faults { delay: 100, ..Faults::default() }, 0);
    let end = pair.now + Duration::from_secs(60);
    while pair.now < end {
        pair.now = pair.step().expect("keep-alive");
    }
    let sent = pair.ends[0].channel.stats().sent;
    assert!((28..62).contains(&sent), "a question or an answer each two seconds: {sent}");
    assert_eq!(pair.ends[0].channel.fault(), None);
    pair.set_faults(Faults { loss: 1000, ..Faults::default() });
    let start = pair.now;
    while let Some(next) = pair.step() {
        pair.now = next;
    }
    for end in &pair.ends {
        assert_eq!(end.channel.fault(), Some(Fault::PeerSilent));
    }
    assert!((pair.now - start) < Duration::from_secs(9));
}

#[test]
fn damaged_packets_are_refused() {
    let whole = Packet { sack: u64::MAX - 1, echo: Some(7), ..packet(3, true, b"payload") };
    let mut out = [0; MTU];
    let len = encode(&whole, &mut out).expect("fits");
    assert_eq!(len, OVERHEAD + 7);
    assert_eq!(decode(&out[..len]), Ok(whole));
    for bit in 0..len * 8 {
        out[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&out[..len]).is_err(), "bit {bit}");
        out[bit / 8] ^= 1 << (bit % 8);
    }
    for cut in 0..len {
        assert!(decode(&out[..cut]).is_err(), "cut to {cut}");
        assert!(encode(&whole, &mut [0; MTU][..cut]).is_err(), "room of {cut}");
    }
    // The end of a message that is not there, under a checksum that matches.
    let odd = Packet { data: None, ..whole };
    let len = encode(&odd, &mut out).expect("fits") - 4;
    out[2] |= 2;
    let crc = unisono_core::wire::crc32c(&out[..len]).to_le_bytes();
    out[len..len + 4].copy_from_slice(&crc);
    assert_eq!(decode(&out[..len + 4]), Err(DecodeError::Malformed));
}

/// Packets that an end has to send now.
fn drain(channel: &mut Channel) -> Vec<Vec<u8>> {
    let mut out = [0; MTU];
    let mut packets = Vec::new();
    while let Some(len) = channel.poll_transmit(millis(1), &mut out) {
        packets.push(out[..len].to_vec());
    }
    packets
}

fn tells(channel: &mut Channel) -> (u32, u8) {
    let packets = drain(channel);
    assert_eq!(packets.len(), 1);
    let packet = decode(&packets[0]).expect("own packet");
    (packet.ack, packet.credit)
}

#[test]
fn nothing_is_sent_beyond_the_credit() {
    let mut channel = Channel::new(config(Side::High));
    (0..4).for_each(|i| channel.send(&[i]).expect("room"));
    assert_eq!(drain(&mut channel).len(), 4);
    let tell = |ack, credit| Packet { ack, credit, data: None, ..packet(0, false, b"") };
    give(&mut channel, &tell(4, 1));
    (4..8).for_each(|i| channel.send(&[i]).expect("room"));
    assert_eq!(drain(&mut channel).len(), 1);
    // Packets that were overtaken take nothing back, and give nothing.
    give(&mut channel, &tell(4, 3));
    give(&mut channel, &tell(4, 1));
    give(&mut channel, &tell(2, 4));
    assert_eq!(drain(&mut channel).len(), 2);
    give(&mut channel, &tell(5, 3));
    assert_eq!(drain(&mut channel).len(), 1);
    assert_eq!(channel.fault(), None);
}

#[test]
fn a_reader_tells_when_it_has_room_again() {
    let mut channel = Channel::new(config(Side::High));
    (0..4).for_each(|seq| give(&mut channel, &packet(seq, true, b"")));
    assert_eq!(tells(&mut channel), (4, 0));
    channel.recv(&mut []).expect("message");
    assert_eq!(tells(&mut channel), (4, 1), "the peer was told to stop");
    channel.recv(&mut []).expect("message");
    assert_eq!(drain(&mut channel).len(), 0, "one more is no news");
    channel.recv(&mut []).expect("message");
    assert_eq!(tells(&mut channel), (4, 3), "half of the window is");
}

#[test]
fn a_pause_is_no_silence_even_on_a_bad_link() {
    let mut channel = Channel::new(config(Side::High));
    channel.send(b"x").expect("room");
    for _ in 0..20 {
        assert!(channel.poll_transmit(millis(1), &mut [0; MTU]).is_some());
        let at = channel.poll_timeout().expect("it waits");
        channel.handle_timeout(at);
        give(&mut channel, &Packet { data: None, ..packet(0, false, b"") });
    }
    assert_eq!(channel.stats().timeouts, 20);
    assert!(channel.poll_transmit(millis(1), &mut [0; MTU]).is_some());
    channel.handle_timeout(millis(3_600_000));
    assert_eq!(channel.fault(), None, "the time-outs before a sign of life do not count");
}

#[test]
fn a_peer_that_is_heard_is_not_asked() {
    let keep_alive = Some(Duration::from_secs(2));
    let mut channel = Channel::new(Config { keep_alive, ..config(Side::High) });
    let mut out = [0; MTU];
    for seq in 0..20 {
        let now = millis(1_500 * u64::from(seq));
        let len = encode(&packet(seq, true, b""), &mut out).expect("fits");
        channel.handle_packet(now, &out[..len]);
        assert_eq!(channel.recv(&mut []), Ok(0));
        let len = channel.poll_transmit(now, &mut out).expect("an answer");
        assert!(!decode(&out[..len]).expect("own packet").ping);
        assert_eq!(channel.poll_timeout(), Some(now + Duration::from_secs(2)));
    }
}

#[test]
fn a_talkative_peer_does_not_put_off_the_time_out() {
    let mut channel = Channel::new(config(Side::High));
    channel.send(b"lost").expect("room");
    let mut out = [0; MTU];
    channel.poll_transmit(millis(0), &mut out).expect("the fragment");
    for now in (0..200).step_by(10).map(millis) {
        let len = encode(&packet(0, true, b""), &mut out).expect("fits");
        channel.handle_packet(now, &out[..len]);
        channel.handle_timeout(now);
        channel.poll_transmit(now, &mut out).expect("an answer");
    }
    assert_eq!((channel.stats().timeouts, channel.stats().resent), (1, 1));
}

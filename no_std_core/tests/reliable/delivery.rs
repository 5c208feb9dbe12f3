//! Exactly once, in order, whatever the link does.

use super::pair::{Faults, Pair, Rng};
use std::time::Duration;
use unisono_core::reliable::{Config, Reliable, Side};

fn patient() -> Config {
    Config { silence: Duration::from_secs(300), tries: 50, ..Config::new(7, Side::Low) }
}

fn run_seed<const W: usize, const M: usize>(seed: u64) {
    let mut rng = Rng::new(seed);
    let faults = Faults::swarm(&mut rng);
    // Half of the runs cross the place where numbers wrap.
    let first_seq = if seed.is_multiple_of(2) { u32::MAX - 20 } else { rng.next() as u32 };
    let mut pair = Pair::<W, M>::new(Config { first_seq, ..patient() }, faults, seed);
    if rng.below(3) == 0 {
        pair.ends[1].read_every = Duration::from_millis(rng.below(50));
    }
    let want = pair.load(&mut rng, 30, Reliable::<W, M>::MESSAGE_MAX.min(2_000));
    let done = pair.run(Duration::from_secs(3_000));
    assert!(done, "seed {seed}, window {W}: {faults:?}, stats {:?}", pair.ends[0].channel.stats());
    for (end, want) in pair.ends.iter().zip(want) {
        assert!(end.got == want, "seed {seed}, window {W}: {faults:?}");
    }
}

#[test]
fn every_message_arrives_once_and_in_order() {
    for seed in 0..150 {
        run_seed::<1, 100>(seed);
        run_seed::<2, 64>(seed);
        run_seed::<8, 200>(seed);
        run_seed::<64, 200>(seed);
    }
}

#[test]
fn a_perfect_link_needs_nothing_twice() {
    let faults = Faults { delay: 500, pace: 10, ..Faults::default() };
    let mut pair = Pair::<16, 136>::new(patient(), faults, 1);
    let messages = vec![vec![9; 100]; 200];
    pair.ends[0].to_send.extend(messages.iter().cloned());
    assert!(pair.run(Duration::from_secs(10)));
    assert_eq!(pair.ends[1].got, messages);
    let (a, b) = (pair.ends[0].channel.stats(), pair.ends[1].channel.stats());
    assert_eq!((a.sent, a.resent, a.timeouts, a.damaged), (200, 0, 0, 0));
    assert_eq!((b.received, b.duplicates), (200, 0));
    assert!(b.sent <= 200, "one answer a packet: {b:?}");
    let rtt = pair.ends[0].channel.rtt().expect("measured");
    assert!((900..1200).contains(&rtt.as_micros()), "{rtt:?}");
}

#[test]
fn one_lost_packet_costs_no_time_out() {
    for lost in 0..6 {
        let mut pair = Pair::<16, 136>::new(patient(), Faults::default(), 1);
        pair.ends[0].to_send.extend((0..20).map(|i| vec![i; 100]));
        let mut packet = [0; 136];
        // The first flight is carried by hand.
        let (now, [a, b]) = (pair.now, &mut pair.ends);
        while a.channel.send_room() > 0 {
            let message = a.to_send.pop_front().expect("more messages than room");
            a.channel.send(&message).expect("there is room");
        }
        let mut n = 0;
        while let Some(len) = a.channel.poll_transmit(now, &mut packet) {
            if n != lost {
                b.channel.handle_packet(now, &packet[..len]);
            }
            n += 1;
        }
        assert_eq!(n, 10, "the initial window");
        assert!(pair.run(Duration::from_secs(1)));
        assert_eq!(pair.ends[1].got, (0..20).map(|i| vec![i; 100]).collect::<Vec<_>>());
        let stats = pair.ends[0].channel.stats();
        assert_eq!((stats.resent, stats.timeouts), (1, 0), "packet {lost}");
    }
}

#[test]
fn numbers_wrap_at_every_offset() {
    for before in 0..40 {
        let config = Config { first_seq: u32::MAX - before, ..patient() };
        let faults = Faults { loss: 200, duplicate: 100, jitter: 300, ..Faults::default() };
        let mut pair = Pair::<4, 64>::new(config, faults, u64::from(before));
        let want = pair.load(&mut Rng::new(3), 30, 60);
        assert!(pair.run(Duration::from_secs(100)), "{before} before the wrap");
        assert!(pair.ends[0].got == want[0] && pair.ends[1].got == want[1]);
    }
}

#[test]
fn a_slow_reader_is_waited_for() {
    // The window closes all the time, and half of the packets that open it again get lost.
    let faults = Faults { loss: 500, delay: 100, ..Faults::default() };
    let mut pair = Pair::<8, 64>::new(patient(), faults, 5);
    pair.ends[1].read_every = Duration::from_secs(2);
    let want = pair.load(&mut Rng::new(9), 60, 100);
    assert!(pair.run(Duration::from_secs(3_000)));
    assert!(pair.ends[0].got == want[0] && pair.ends[1].got == want[1]);
}

#[test]
fn an_outage_heals() {
    let mut pair = Pair::<8, 100>::new(patient(), Faults { delay: 50, ..Faults::default() }, 2);
    let want = pair.load(&mut Rng::new(1), 50, 300);
    (0..3).for_each(|_| pair.now = pair.step().expect("packets are under way"));
    pair.set_faults(Faults { loss: 1000, ..Faults::default() });
    assert!(!pair.run(Duration::from_secs(30)));
    pair.set_faults(Faults { delay: 50, ..Faults::default() });
    assert!(pair.run(Duration::from_secs(5)));
    assert!(pair.ends[0].got == want[0] && pair.ends[1].got == want[1]);
}

//! Peers that send anything at any time, from a seed.

use crate::{Any, Lone, config, header, leaf, result};
use std::collections::HashSet;
use unisono_core::fold::check_merges;
use unisono_core::machine::{Action, Config, Payload, Place, Refused, Status};
use unisono_core::wire::frame::{Abort, Body, Data, Phase};
use unisono_core::{Form, Kind, Scalar, Source};

/// Numbers from a seed (xorshift, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn body(&mut self) -> Body {
        let phase = if self.below(2) == 0 { Phase::Contribution } else { Phase::Result };
        let form = [Form::Leaf, Form::Partial, Form::Final][self.below(3) as usize];
        let chunk = self.below(5);
        let bytes = [2, 2, 2, 4, 4, 0, 7][self.below(7) as usize];
        let data = Data { chunk, phase, form, weight: Scalar(0), limit: self.below(9), bytes };
        match self.below(20) {
            0 => Body::Agree { round: self.below(3) as u8 },
            1 => Body::Credit { limit: [0, 3, u64::MAX][self.below(3) as usize] },
            2 => Body::Data(Data { chunk: u64::MAX - self.below(3), limit: u64::MAX, ..data }),
            3..=10 => Body::Data(if phase == Phase::Result { result(chunk) } else { leaf(chunk) }),
            _ => Body::Data(data),
        }
    }
}

/// What a machine has been promised a completion for.
#[derive(Default)]
struct Owed {
    sends: Vec<u32>,
    jobs: Vec<u16>,
    kept: HashSet<u32>,
    /// Peers that have let it send everything.
    leave: HashSet<u16>,
    frames: u32,
}

impl Owed {
    fn take(&mut self, machine: &Lone, config: &Config, action: Action<u32>) {
        let most = u32::from(config.slots) * u32::from(config.window);
        let inside = |place: &Place<u32>| match *place {
            Place::Slot(slot) => slot < most,
            Place::Input(at) => at < 2 * config.layout.input_len(config.rank),
            Place::Output(at) => at < 2 * config.layout.output_len(config.rank),
            Place::Peer(_) => true,
        };
        match action {
            Action::Control { .. } => {}
            Action::Send { payload, window, token, .. } => {
                assert!(payload.iter().chain(&window).all(inside));
                self.sends.push(token);
            }
            Action::Copy { lane, from, to, .. } => {
                assert!(inside(&from) && inside(&to));
                self.busy(lane);
            }
            Action::Fold { lane } => {
                let mut sources: heapless::Vec<Source<Place<u32>>, 16> = heapless::Vec::new();
                let mut dests: heapless::Vec<Place<u32>, 16> = heapless::Vec::new();
                machine.fold_job(lane, |p| p, &mut sources, &mut dests).expect("a fold");
                assert!(check_merges(sources.iter().map(|s| s.merges)));
                assert!(sources.len() <= usize::from(config.sources_max));
                assert!(dests.len() <= usize::from(config.dests_max));
                assert!(sources.iter().all(|s| inside(&s.mem)) && dests.iter().all(inside));
                assert!(machine.holds(lane).all(|r| self.kept.contains(&r.handle)));
                self.busy(lane);
            }
        }
    }

    fn busy(&mut self, lane: u16) {
        assert!(!self.jobs.contains(&lane), "two jobs on lane {lane}");
        self.jobs.push(lane);
    }

    fn finish(&mut self, machine: &mut Lone, dice: &mut Dice) {
        if !self.jobs.is_empty() && dice.below(2) == 0 {
            let lane = self.jobs.swap_remove(dice.below(self.jobs.len() as u64) as usize);
            let kept = &mut self.kept;
            machine.handle_done(lane, |r| assert!(kept.remove(&r.handle), "released twice"));
        } else if !self.sends.is_empty() {
            let k = dice.below(self.sends.len() as u64) as usize;
            machine.handle_sent(self.sends.swap_remove(k));
        }
    }
}

/// A frame comes, as a link would hand it over.
fn arrive(machine: &mut Lone, config: &Config, dice: &mut Dice, owed: &mut Owed) {
    let mut from = dice.below(5) as u16;
    let mut body = dice.body();
    if dice.below(40) > 0 {
        // Most of the time what the machine is waiting for.
        let idle = owed.sends.is_empty() && owed.jobs.is_empty();
        let Some((rank, chunk, phase)) = machine.waiting_for().filter(|_| idle) else { return };
        from = rank;
        body = match phase {
            _ if !owed.leave.contains(&rank) => Body::Credit { limit: 9 },
            Phase::Contribution => Body::Data(leaf(chunk)),
            Phase::Result => Body::Data(result(chunk)),
        };
        owed.leave.insert(rank);
    }
    let mut header = header(machine, from, body);
    if dice.below(30) == 0 {
        header.epoch += 1;
    }
    let bytes = config.by_bytes >> from & 1 != 0;
    let mut place = None;
    let payload = match (header.body, bytes, dice.below(120)) {
        (Body::Data(_), _, 0) => Some(Payload::Put),
        (Body::Data(_), _, 1) => None,
        (Body::Data(_), true, _) => match machine.placement(&header) {
            Ok(at) => {
                place = Some(at);
                Some(Payload::Placed)
            }
            Err(Refused::Later | Refused::Discard) => return,
        },
        (Body::Data(_), false, k) => {
            owed.frames += 1;
            let window = (k > 80).then_some(0);
            Some(Payload::At { mem: owed.frames, window, handle: owed.frames })
        }
        _ => None,
    };
    if machine.handle_frame(&header, payload, place) {
        assert!(matches!(payload, Some(Payload::At { .. })));
        owed.kept.insert(owed.frames);
    }
}

#[test]
fn nothing_that_a_peer_sends_breaks_a_machine() {
    let (mut done, mut failed) = (0, 0);
    let mut machine = Lone::new();
    for seed in 1..40_000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.below(2);
        let kinds = [Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::Broadcast];
        let kind = kinds[dice.below(4) as usize];
        let ranks = 2 + dice.below(3) as u16;
        let mut config = config(kind, ranks, dice.below(u64::from(ranks)) as u16);
        config.layout.count = 1 + dice.below(3);
        config.by_bytes = [0, 0b1_1111, 0b0_1010][dice.below(3) as usize];
        config.puts = [0, 0b1_1111][dice.below(2) as usize];
        config.in_place = dice.below(2) == 0;
        config.slots = config.slots_min();
        machine.start(&config, u64::MAX).unwrap();
        let mut owed = Owed::default();
        for _ in 0..100 {
            while let Some(action) = machine.poll_action(&mut Any { frames: dice.below(9) > 0 }) {
                owed.take(&machine, &config, action);
            }
            match dice.below(4) {
                0 | 1 => arrive(&mut machine, &config, &mut dice, &mut owed),
                _ => owed.finish(&mut machine, &mut dice),
            }
        }
        machine.cancel();
        while machine.poll_action(&mut Any { frames: true }).is_some() {}
        match machine.status() {
            Status::Done => done += 1,
            Status::Failed(Abort::Protocol { rank }) => {
                assert!(rank < ranks && rank != config.rank);
                failed += 1;
            }
            Status::Failed(Abort::Cancelled { rank }) => assert_eq!(rank, config.rank),
            other => panic!("{other:?}"),
        }
    }
    println!("{done} done, {failed} failed");
    assert!(done > 1000 && failed > 10_000, "{done} done, {failed} failed");
}

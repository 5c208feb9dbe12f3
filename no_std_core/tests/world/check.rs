//! What has to be true in the end, and of the progress on the way.

use super::links::Link;
use super::memory::{POISON, Value};
use super::{Rank, World};
use unisono_core::machine::Status;
use unisono_core::{Form, Kind, Layout};

/// Which tree a result has to be.
#[derive(Clone, Copy)]
enum Want {
    Exactly(u32),
    /// Each of the first ranks once.
    AllOf(u32),
}

impl World {
    /// A member's progress has only grown, and what it covers is final.
    pub fn note_progress(&mut self, rank: Rank) {
        let member = self.member(rank);
        if member.op == 0 {
            // Its machine still shows the call of another world.
            return;
        }
        let (before, now) = (member.progress, member.machine.progress());
        assert!(now >= before, "progress falls from {before} to {now}");
        if now == before {
            return;
        }
        member.progress = now;
        let layout = member.config.as_ref().expect("a call").layout;
        for at in before..now {
            self.check_output(rank, &layout, at);
        }
    }

    fn want(&mut self, layout: &Layout, rank: Rank, at: u64) -> (Want, u32) {
        let n = u32::from(layout.ranks);
        let (block, within) = (at / layout.count, at % layout.count);
        match layout.kind {
            Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => {
                let canonical = self.case.schedule.is_canonical(layout.kind, layout.ranks);
                let tree = self.shapes.canonical(0, n);
                let want = if canonical { Want::Exactly(tree) } else { Want::AllOf(tree) };
                let base = if layout.kind == Kind::ReduceScatter {
                    u64::from(rank) * layout.count
                } else {
                    0
                };
                (want, (base + at) as u32)
            }
            Kind::Broadcast => (Want::Exactly(u32::from(layout.root)), at as u32),
            Kind::AllGather => (Want::Exactly(block as u32), within as u32),
            Kind::AllToAll => {
                let elem = u64::from(rank) * layout.count + within;
                (Want::Exactly(block as u32), elem as u32)
            }
            Kind::Barrier => unreachable!("a barrier has no output"),
        }
    }

    fn check_output(&mut self, rank: Rank, layout: &Layout, at: u64) {
        let (want, elem) = self.want(layout, rank, at);
        let memory = &self.member(rank).memory;
        let got = memory.get(memory.output + at as u32);
        let place = format!("rank {rank}, element {at}");
        assert_eq!(got.form, Some(Form::Final), "{place} is not final");
        assert_eq!(got.elem, elem, "{place} is of another element");
        match want {
            Want::Exactly(shape) => assert_eq!(got.shape, shape, "{place}: another tree"),
            Want::AllOf(shape) => {
                let (got, all) = (self.shapes.mask(got.shape), self.shapes.mask(shape));
                assert_eq!(got, all, "{place}: other ranks");
            }
        }
    }

    /// Everybody is done, everything is where it belongs and nothing else has been touched.
    pub fn check_done(&mut self) {
        let layout = self.case.layout;
        for rank in 0..self.members.len() as Rank {
            let status = self.status(rank);
            if status != Status::Done {
                let all: Vec<_> = self
                    .members
                    .iter()
                    .map(|m| (m.machine.status(), m.machine.waiting_for()))
                    .collect();
                panic!("rank {rank} is {status:?} and nothing can be done: {all:?}");
            }
            self.check_memory(rank, &layout);
            self.check_account(rank, &layout);
        }
        assert!(self.sends.iter().all(Option::is_none), "a payload is still under way");
        let empty = |l: &Link| l.queue.is_empty() && l.placing.is_none();
        assert!(self.links.iter().all(empty), "a frame is still under way");
        let steps = self.case.schedule.steps(&layout);
        assert_eq!(u32::from(self.deepest), steps, "steps on the longest path");
    }

    fn check_memory(&mut self, rank: Rank, layout: &Layout) {
        let length = layout.output_len(rank);
        assert_eq!(self.member(rank).machine.progress(), length);
        for at in 0..length {
            self.check_output(rank, layout, at);
        }
        let inputs = layout.input_len(rank) as u32;
        let form = if layout.kind.reduces() { Form::Leaf } else { Form::Final };
        let memory = &self.member(rank).memory;
        let outputs = memory.output..memory.output + length as u32;
        for (at, cell) in (0..memory.slots).zip(&memory.cells) {
            assert_eq!((cell.readers, cell.writers), (0, 0), "cell {at} is still in use");
            if outputs.contains(&at) {
                continue;
            }
            let elem = at.wrapping_sub(memory.input);
            let shape = u32::from(rank);
            let want = if elem < inputs {
                Value { shape, elem, depth: 0, form: Some(form) }
            } else {
                POISON
            };
            assert_eq!(cell.value, want, "rank {rank} has touched cell {at}");
        }
        assert!(memory.cells.iter().all(|c| c.readers == 0 && c.writers == 0), "slot in use");
    }

    /// Bytes and frames are those that the schedule states.
    fn check_account(&mut self, rank: Rank, layout: &Layout) {
        let schedule = self.case.schedule.clone();
        let traffic = schedule.traffic(layout, self.case.dtype, rank);
        let mut frames = 0;
        for chunk in 0..layout.chunks() {
            let sent = schedule.flow(layout, chunk, rank).sent;
            frames += u64::from(sent.leaf + sent.partial + sent.last);
        }
        let member = self.member(rank);
        let got = (member.sent, member.received, member.frames);
        assert_eq!(got, (traffic.sent, traffic.received, frames), "account of rank {rank}");
    }
}

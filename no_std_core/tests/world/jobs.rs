//! Devices: folds and copies that take their time and really run the fold program.

use super::memory::{POISON, Ref, Value};
use super::{Case, Event, Rank, World};
use heapless::Vec as Fixed;
use unisono_core::fold::check_merges;
use unisono_core::machine::Place;
use unisono_core::{Finish, Form, Source};

/// What a device is doing for a lane.
pub struct Running {
    op: u64,
    sources: Vec<Source<Place<Ref>>>,
    dests: Vec<Ref>,
    elems: u64,
    /// `None`: a copy.
    finish: Option<Finish>,
    /// Frames that it reads or writes.
    holds: Vec<u32>,
}

impl World {
    pub fn begin_fold(&mut self, rank: Rank, lane: u16) {
        let mut sources: Fixed<Source<Place<Ref>>, 48> = Fixed::new();
        let mut dests: Fixed<Place<Ref>, 48> = Fixed::new();
        let member = self.member(rank);
        let job = member.machine.fold_job(lane, |p| p, &mut sources, &mut dests).expect("a fold");
        let config = member.config.as_ref().expect("a call");
        assert!(sources.len() <= usize::from(config.sources_max), "{} sources", sources.len());
        assert!(dests.len() <= usize::from(config.dests_max), "{} destinations", dests.len());
        assert!(check_merges(sources.iter().map(|s| s.merges)), "{sources:?}");
        let slots = u32::from(config.slots);
        for place in sources.iter().map(|s| &s.mem).chain(&dests) {
            if let Place::Slot(slot) = place {
                assert_eq!(slot / slots, u32::from(lane), "a slot of another lane");
            }
        }
        let dests = dests.iter().map(|&place| self.at(rank, place)).collect();
        let (sources, elems) = (sources.to_vec(), job.elems);
        self.occupy(rank, lane, sources, dests, elems, Some(job.finish));
    }

    pub fn begin_copy(
        &mut self,
        rank: Rank,
        lane: u16,
        from: Place<Ref>,
        to: Place<Ref>,
        bytes: u64,
    ) {
        let size = self.case.dtype.size() as u64;
        // A leaf on its way out of private memory stays what it is.
        let at = self.at(rank, from);
        let value = self.members[usize::from(at.rank)].memory.get(at.at);
        let form = value.form.unwrap_or(Form::Final);
        let weight = Case::weight(value.shape as u16);
        let source = Source { mem: from, form, weight, merges: 0 };
        let dests = vec![self.at(rank, to)];
        self.occupy(rank, lane, vec![source], dests, bytes / size, None);
    }

    fn occupy(
        &mut self,
        rank: Rank,
        lane: u16,
        sources: Vec<Source<Place<Ref>>>,
        dests: Vec<Ref>,
        elems: u64,
        finish: Option<Finish>,
    ) {
        let member = self.member(rank);
        assert!(member.jobs[usize::from(lane)].is_none(), "two jobs on one lane");
        let op = member.op;
        let holds: Vec<u32> = member.machine.holds(lane).map(|r| r.handle).collect();
        if holds.iter().any(|&id| !self.is_there(id)) {
            // A peer has taken its memory back.
            self.member(rank).machine.handle_refused(lane);
            return;
        }
        holds.iter().for_each(|&id| self.sending(id).entered += 1);
        for source in &sources {
            let at = self.at(rank, source.mem);
            self.members[usize::from(at.rank)].memory.lock_read(at.at, elems, source.form);
            if at.rank != rank {
                let held = |&id: &u32| self.sends[id as usize].is_some_and(|s| s.at == Some(at));
                assert!(holds.iter().any(held), "reads a peer's memory without its frame");
            }
        }
        for &dest in &dests {
            let same = sources.iter().filter(|s| self.at(rank, s.mem) == dest).count() as u16;
            let frames = holds.iter().filter_map(|&id| self.sends[id as usize]);
            let windows: Vec<_> = frames.filter(|s| s.window == Some(dest)).collect();
            assert_eq!(dest.rank != rank, !windows.is_empty(), "writes without a window");
            let own = same + windows.iter().filter(|s| s.at == Some(dest)).count() as u16;
            self.members[usize::from(dest.rank)].memory.lock_write(dest.at, elems, own);
        }
        let member = self.member(rank);
        member.jobs[usize::from(lane)] = Some(Running { op, sources, dests, elems, finish, holds });
        member.busy += 1;
        self.push(Event::Job(rank, lane));
    }

    pub fn finish_job(&mut self, rank: Rank, lane: u16) {
        let member = self.member(rank);
        let job = member.jobs[usize::from(lane)].take().expect("a job");
        member.busy -= 1;
        assert_eq!(job.op, member.op, "a member goes on while its device still works");
        for i in 0..job.elems as u32 {
            let value = self.value(rank, &job, i);
            self.deepest = self.deepest.max(value.depth);
            for dest in &job.dests {
                self.members[usize::from(dest.rank)].memory.set(dest.at + i, value);
            }
        }
        for source in &job.sources {
            let at = self.at(rank, source.mem);
            let memory = &mut self.members[usize::from(at.rank)].memory;
            memory.unlock_read(at.at, job.elems);
            let gone = at.rank == rank && memory.is_slot(at.at) && job.finish.is_some();
            // A copy of the own input is folded before it has gone out to everybody.
            let own = job.elems > 0 && memory.get(at.at).shape == u32::from(rank);
            if gone && !own && !job.dests.contains(&at) {
                // Nobody needs a folded slot any more.
                (0..job.elems as u32).for_each(|i| memory.set(at.at + i, POISON));
            }
        }
        for dest in &job.dests {
            self.members[usize::from(dest.rank)].memory.unlock_write(dest.at, job.elems);
        }
        job.holds.iter().for_each(|&id| self.sending(id).entered -= 1);
        let mut released = Vec::new();
        self.member(rank).machine.handle_done(lane, |r| released.push(r));
        for r in released {
            if self.sends[r.handle as usize].is_some_and(|s| s.from == r.from) {
                self.release(rank, r.handle);
            } else {
                assert!(self.lost.contains(&r.handle), "releases a frame of somebody else");
            }
        }
        self.completion(rank);
    }

    /// Runs the fold program for one element.
    fn value(&mut self, rank: Rank, job: &Running, i: u32) -> Value {
        let mut stack: Fixed<Value, 48> = Fixed::new();
        for source in &job.sources {
            let at = self.at(rank, source.mem);
            let mut value = self.members[usize::from(at.rank)].memory.get(at.at + i);
            assert_eq!(value.form, Some(source.form), "the source has changed");
            if source.form == Form::Leaf {
                let weight = Case::weight(value.shape as u16);
                assert_eq!(source.weight, weight, "a leaf with a wrong weight");
            }
            value.depth += u16::from(at.rank != rank);
            for _ in 0..source.merges {
                let left = stack.pop().expect("the program was checked");
                assert_eq!(left.elem, value.elem, "two elements are mixed up");
                value.shape = self.shapes.node(left.shape, value.shape);
                value.depth = value.depth.max(left.depth);
            }
            stack.push(value).expect("fewer sources");
        }
        let mut value = stack.pop().expect("the program was checked");
        value.form = Some(match job.finish {
            Some(Finish::Partial) => Form::Partial,
            None => return value,
            Some(Finish::Final { ranks }) => {
                assert_eq!(ranks, u32::from(self.case.layout.ranks), "divides by something else");
                Form::Final
            }
        });
        value
    }
}

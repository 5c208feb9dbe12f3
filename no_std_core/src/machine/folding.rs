//! Which sources of a lane are folded together, and in which order.
//!
//! The sources of a fold are the moves of its segment; a partial fold that was already made stands
//! for its moves as one source with a higher level. Levels define the tree: a source merges with
//! the one before it while that one's level is not higher (a binary counter), and what is left at
//! the end merges from the right. So the tree does not depend on how many passes it took.

use super::action::Place;
use super::config::Config;
use super::lane::{Acc, Job, Lane, Segment};
use crate::dtype::Scalar;
use crate::fold::{Form, Source};
use crate::route::{Move, Rank};
use heapless::Vec;

/// Deepest stack of a fold: one entry a level.
const DEPTH: usize = 16;

/// One source of the current segment, before its memory is looked up.
#[derive(Clone, Copy)]
struct Item {
    lo: u16,
    hi: u16,
    level: u8,
    here: bool,
}

/// A subtree of the fold that can be folded now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub lo: u16,
    pub hi: u16,
    pub level: u8,
    pub whole: bool,
}

/// A node of the tree while it is being found.
#[derive(Clone, Copy)]
struct Node {
    lo: u16,
    hi: u16,
    items: u16,
    level: u8,
    here: bool,
    /// One contribution that takes a slot.
    raw: bool,
}

impl<M: Copy, const R: usize> Lane<M, R> {
    fn items(&self) -> impl Iterator<Item = Item> {
        let (mut i, end) = (self.fold_lo, self.fold_hi);
        core::iter::from_fn(move || {
            if i >= end {
                return None;
            }
            if let Some(acc) = self.accs.iter().find(|a| a.lo == i) {
                i = acc.hi;
                return Some(Item { lo: acc.lo, hi: acc.hi, level: acc.level, here: true });
            }
            let (level, here) = match self.move_at(usize::from(i))? {
                Move::Recv { level, .. } => (level, self.arrival(usize::from(i)).is_some()),
                Move::Own { level } => (level, true),
                _ => (0, false),
            };
            i += 1;
            Some(Item { lo: i - 1, hi: i, level, here })
        })
    }

    /// All sources if they fit one pass of `most`, else the leftmost of the largest subtrees that
    /// do, once all its sources are here. In a `hurry` whatever can be folded is, from the left, so
    /// that slots become free.
    ///
    /// Never anything to the right of what is still to be folded: the results that wait are then
    /// entries of the binary counter's stack, one a level.
    pub fn group(&self, most: u16, hurry: bool) -> Option<Group> {
        let (lo, hi) = (self.fold_lo, self.fold_hi);
        let items = if self.accs.is_empty() { usize::from(hi - lo) } else { self.items().count() };
        if items <= usize::from(most) && lo == self.pc && self.waiting == 0 {
            return Some(Group { lo, hi, level: 0, whole: true });
        }
        if items <= usize::from(most) && !hurry {
            return None;
        }
        let mut best: Option<Node> = None;
        self.walk(hurry, |n| {
            let grows = best.is_none_or(|b| n.lo <= b.lo && n.hi >= b.hi);
            // All of it at once only where it makes the new value.
            let part = (n.lo, n.hi) != (lo, hi);
            if part && n.items >= 2 && n.items <= most && grows {
                best = Some(n);
            }
        })?;
        let n = best.filter(|n| n.here)?;
        Some(Group { lo: n.lo, hi: n.hi, level: n.level, whole: false })
    }

    /// Contributions in slots that are here, wait for others before they can be folded, and have
    /// nothing to their left that is still to be folded: entries of the stack in their own right.
    pub fn settled(&self) -> u16 {
        let stack = self.walk(true, |_| ()).unwrap_or_default();
        stack.iter().take_while(|n| n.items == 1).filter(|n| n.raw).count() as u16
    }

    /// Builds the tree of the segment, calls `each` with every inner node, children first and from
    /// the left, and returns the nodes that are left without a partner. With `prefix`, goes only
    /// as far as sources are here without a gap.
    fn walk(&self, prefix: bool, mut each: impl FnMut(Node)) -> Option<Vec<Node, DEPTH>> {
        let mut stack: Vec<Node, DEPTH> = Vec::new();
        let mut join = |a: Node, b: Node, level: u8| {
            let (here, items) = (a.here && b.here, a.items + b.items);
            let node = Node { lo: a.lo, hi: b.hi, items, level, here, raw: false };
            each(node);
            node
        };
        for item in self.items() {
            let Item { lo, hi, level, here } = item;
            if prefix && !here {
                return Some(stack);
            }
            let raw = matches!(self.arrival(usize::from(lo)), Some(a) if a.takes_slot());
            let mut node = Node { lo, hi, items: 1, level, here, raw };
            while let Some(&top) = stack.last()
                && top.level <= node.level
            {
                stack.pop();
                node = join(top, node, node.level + 1);
            }
            stack.push(node).ok()?;
        }
        while stack.len() > 1 {
            let (b, a) = (stack.pop()?, stack.pop()?);
            // A node of the right edge keeps the level of its left part, so that what is pushed
            // in its place later merges in the same order.
            stack.push(join(a, b, a.level)).ok()?;
        }
        Some(stack)
    }

    /// Calls `each` with the sources of the running fold in canonical order.
    pub fn sources(&self, cfg: &Config, mut each: impl FnMut(Source<Place<M>>)) {
        let Job::Fold { lo, hi, .. } = self.job else { return };
        let inside = |item: &Item| item.lo >= lo && item.hi <= hi;
        let mut levels: Vec<u8, DEPTH> = Vec::new();
        let mut left = self.items().filter(inside).count();
        for item in self.items().filter(inside) {
            left -= 1;
            let mut level = item.level;
            let mut merges = 0u8;
            while levels.last().is_some_and(|top| *top <= level) {
                level = level.max(levels.pop().unwrap_or(0)) + 1;
                merges += 1;
            }
            if left == 0 {
                merges += levels.len() as u8;
            }
            // DEPTH levels hold more leaves than a group has members.
            let _ = levels.push(level);
            let (place, form, weight) = self.source(cfg, item);
            each(Source { mem: place, form, weight, merges });
        }
    }

    fn source(&self, cfg: &Config, item: Item) -> (Place<M>, Form, Scalar) {
        if let Some(acc) = self.accs.iter().find(|a| a.lo == item.lo && a.hi == item.hi) {
            return (Place::Slot(self.slot_base + u32::from(acc.slot)), Form::Partial, cfg.weight);
        }
        if let Some(a) = self.arrival(usize::from(item.lo)) {
            return (a.place, a.form, a.weight);
        }
        let (place, form) = self.value.unwrap_or((Place::Input(0), Form::Leaf));
        (place, form, cfg.weight)
    }

    /// Marks the sources of the finished job as used, puts an accumulator in their place and calls
    /// `release` for every frame whose memory is no longer needed.
    pub fn close_fold(&mut self, mut release: impl FnMut(Rank, u32)) {
        let Job::Fold { lo, hi, level, whole, to } = self.job else { return };
        let first = if whole { self.pc } else { lo };
        for i in first..hi {
            let Some(a) = self.arrival_mut(usize::from(i)) else { continue };
            let was = core::mem::replace(&mut a.spent, true);
            // A window is written by the segment's last pass, so its frame is held until then.
            if let Some(handle) = a.handle
                && (whole || a.window.is_none())
            {
                a.handle = None;
                release(a.from, handle);
            }
            if let Place::Slot(s) = a.place
                && !was
            {
                self.free_global(s);
                self.spent += 1;
            }
        }
        let slots = &mut self.slots;
        self.accs.retain(|acc| {
            let inside = acc.lo >= lo && acc.hi <= hi;
            if inside {
                *slots &= !(1 << acc.slot);
            }
            !inside
        });
        if let (false, Place::Slot(s)) = (whole, to) {
            let slot = self.local(s);
            self.slots |= 1 << slot;
            // One accumulator a level is alive at most; ACCS_MAX levels cover MEMBERS_MAX.
            let _ = self.accs.push(Acc { lo, hi, slot, level });
        }
    }

    fn free_global(&mut self, slot: u32) {
        let k = self.local(slot);
        self.free_slot(k);
    }

    /// Slot number within the lane; the lane's slots start at a multiple of `per_lane`.
    fn local(&self, slot: u32) -> u8 {
        (slot - self.slot_base) as u8
    }

    /// Is this lane at a fold, and is it the one that finishes the chunk?
    pub fn at_last_fold(&self) -> bool {
        self.segment() == Segment::Fold { last: true }
    }
}

//! A rank's memory: one cell an element, each with a symbolic value and who is using it.

use unisono_core::{Form, Kind, Layout};

/// What lies in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Number of the expression, see [`super::shapes::Shapes`].
    pub shape: u32,
    /// Index of the element in the input buffers that it was made of.
    pub elem: u32,
    /// Transfers on the longest path to here.
    pub depth: u16,
    /// `None`: nothing that may be read.
    pub form: Option<Form>,
}

pub const POISON: Value = Value { shape: u32::MAX, elem: u32::MAX, depth: 0, form: None };

#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub value: Value,
    /// Jobs that read it and frames that let a peer read it.
    pub readers: u16,
    /// Jobs and arriving frames that write it.
    pub writers: u16,
}

/// Where a peer's memory is: the core hands it on and never looks into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref {
    pub rank: u16,
    pub at: u32,
}

/// Cells of one rank: input, output (perhaps the same cells), then the slots.
#[derive(Default)]
pub struct Memory {
    pub cells: Vec<Cell>,
    pub input: u32,
    pub output: u32,
    pub slots: u32,
    /// Cells of one slot.
    pub slot: u32,
}

impl Memory {
    /// Lays the buffers of a call out, everything poisoned.
    pub fn lay_out(&mut self, layout: &Layout, rank: u16, in_place: bool, slots: u32) {
        let (n, count) = (u64::from(layout.ranks), layout.count);
        let wide = match layout.kind {
            Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll => n * count,
            _ => count,
        } as u32;
        let mine = (u64::from(rank.min(layout.ranks - 1)) * count) as u32;
        // In place the narrow buffer is the rank's block of the wide one.
        (self.input, self.output) = match (in_place, layout.kind) {
            (true, Kind::ReduceScatter) => (0, mine),
            (true, Kind::AllGather) => (mine, 0),
            (true, _) => (0, 0),
            (false, _) => (0, wide + 1),
        };
        self.slots = if in_place { wide + 1 } else { 2 * wide + 2 };
        self.slot = layout.chunk.min(count) as u32;
        let cells = self.slots + slots * self.slot;
        self.cells.clear();
        self.cells.resize(cells as usize, Cell { value: POISON, readers: 0, writers: 0 });
    }

    fn span(&mut self, at: u32, len: u64) -> &mut [Cell] {
        &mut self.cells[at as usize..at as usize + len as usize]
    }

    /// Starts to read: nobody may be writing.
    pub fn lock_read(&mut self, at: u32, len: u64, form: Form) {
        for cell in self.span(at, len) {
            assert_eq!(cell.writers, 0, "reads a cell that is being written");
            assert_eq!(cell.value.form, Some(form), "reads a cell of another form");
            cell.readers += 1;
        }
    }

    pub fn unlock_read(&mut self, at: u32, len: u64) {
        for cell in self.span(at, len) {
            cell.readers = cell.readers.checked_sub(1).expect("a lock was held");
        }
    }

    /// Starts to write: nobody else may be reading or writing. `own` readers are the writer's.
    pub fn lock_write(&mut self, at: u32, len: u64, own: u16) {
        for cell in self.span(at, len) {
            assert_eq!(cell.writers, 0, "writes a cell that is being written");
            assert_eq!(cell.readers, own, "writes a cell that is being read");
            cell.writers += 1;
        }
    }

    pub fn unlock_write(&mut self, at: u32, len: u64) {
        for cell in self.span(at, len) {
            cell.writers = cell.writers.checked_sub(1).expect("a lock was held");
        }
    }

    pub fn get(&self, at: u32) -> Value {
        self.cells[at as usize].value
    }

    pub fn set(&mut self, at: u32, value: Value) {
        self.cells[at as usize].value = value;
    }

    pub fn is_slot(&self, at: u32) -> bool {
        at >= self.slots
    }
}

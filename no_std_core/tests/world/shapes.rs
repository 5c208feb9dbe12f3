//! Hash-consed expressions: which ranks a value is the sum of, and in which tree.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Most ranks with data.
pub const LEAVES: u32 = 32;

/// Trees over ranks, children unordered: equal trees have equal numbers. Number `r` is leaf `r`.
pub struct Shapes {
    nodes: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    /// The ranks below each tree.
    masks: Vec<u32>,
}

impl Shapes {
    pub fn new() -> Self {
        Self { nodes: HashMap::default(), masks: (0..LEAVES).map(|r| 1 << r).collect() }
    }

    /// The sum of two values. A rank may contribute to one of them only.
    pub fn node(&mut self, a: u32, b: u32) -> u32 {
        let key = u64::from(a.min(b)) << 32 | u64::from(a.max(b));
        if let Some(&known) = self.nodes.get(&key) {
            return known;
        }
        let (left, right) = (self.masks[a as usize], self.masks[b as usize]);
        assert_eq!(left & right, 0, "a contribution is added twice: {left:b} + {right:b}");
        let id = self.masks.len() as u32;
        self.masks.push(left | right);
        self.nodes.insert(key, id);
        id
    }

    /// The ranks that a value is the sum of.
    pub fn mask(&self, shape: u32) -> u32 {
        self.masks[shape as usize]
    }

    /// The balanced tree over `lo..hi`, split at the largest power of two below its size.
    pub fn canonical(&mut self, lo: u32, hi: u32) -> u32 {
        let size = hi - lo;
        if size == 1 {
            return lo;
        }
        let split = lo + (1 << (size - 1).ilog2());
        let (a, b) = (self.canonical(lo, split), self.canonical(split, hi));
        self.node(a, b)
    }
}

/// A fast hash for small keys.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        let x = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ x >> 32;
    }
}

/// Seeded pseudo-random numbers (splitmix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

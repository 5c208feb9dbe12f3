//! The one source of chance: xoshiro256**, seeded by SplitMix64 (Blackman, Vigna 2018).

/// A generator of pseudo-random numbers; equal seeds give equal numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(core::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next 64 bits.
    pub const fn word(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..n`, 0 if `n` is 0. (The bias of the multiplication is below 2^-32 here.)
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.word() as u128 * n as u128) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub const fn within(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high && high < u64::MAX);
        low + self.below(high - low + 1)
    }

    /// True `percent` times in a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True `ppm` times in a million.
    pub const fn rarely(&mut self, ppm: u64) -> bool {
        self.below(1_000_000) < ppm
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A generator of its own for some part, so that what one part draws does not change another.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.word())
    }

    /// Random bytes.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.word().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn numbers_stay_in_their_range_and_differ_by_seed() {
        let (mut a, mut b) = (Rng::new(1), Rng::new(2));
        assert_ne!(a.word(), b.word());
        let mut seen = [0u32; 5];
        for _ in 0..10_000 {
            seen[a.within(3, 7) as usize - 3] += 1;
            assert_eq!(a.below(0), 0);
        }
        assert!(seen.iter().all(|&n| (1_700..2_300).contains(&n)), "{seen:?}");
        assert_eq!((0..1000).filter(|_| b.chance(100)).count(), 1000);
        assert_eq!((0..1000).filter(|_| b.chance(0)).count(), 0);
    }
}

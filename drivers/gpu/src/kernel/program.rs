//! The fold program as a kernel runs it.

use super::SOURCES_MAX;

/// The merges of a fold as one list: which two values, by the first source that is in them.
///
/// A kernel first loads every source into a value of its own and then merges values: so many
/// loads are under way at a time, and each merge stands in the code once, whatever the program.
/// The result ends up in value 0. A program that pops an empty stack gives `None`.
pub(super) fn merge_pairs(sources: u8, merges: u64) -> Option<[(u8, u8); SOURCES_MAX - 1]> {
    let mut pairs = [(0, 0); SOURCES_MAX - 1];
    let mut free = pairs.iter_mut();
    let mut stack = [0; SOURCES_MAX];
    let mut depth = 0;
    for source in 0..sources {
        *stack.get_mut(depth)? = source;
        for _ in 0..merges >> (4 * source) & 15 {
            let left = *stack.get(depth.checked_sub(1)?)?;
            *free.next()? = (left, *stack.get(depth)?);
            depth -= 1;
        }
        depth += 1;
    }
    (depth == 1).then_some(pairs)
}

/// The same as the four words that a kernel takes: a byte for each pair, the left value in its
/// low half.
pub(super) fn merge_words(sources: u8, merges: u64) -> Option<[u32; 4]> {
    let mut words = [0; 4];
    for (i, (left, right)) in merge_pairs(sources, merges)?.into_iter().enumerate() {
        words[i / 4] |= u32::from(left | right << 4) << (8 * (i % 4));
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program's merges, 4 bits each.
    fn pack(merges: &[u64]) -> u64 {
        merges.iter().rev().fold(0, |word, merges| word << 4 | merges)
    }

    #[test]
    fn pairs_follow_the_stack() {
        let of = |merges: &[u64]| merge_pairs(merges.len() as u8, pack(merges));
        assert_eq!(of(&[0]).unwrap(), [(0, 0); 15]);
        assert_eq!(of(&[0, 1, 0, 2]).unwrap()[..4], [(0, 1), (2, 3), (0, 2), (0, 0)]);
        assert_eq!(of(&[0, 0, 0, 3]).unwrap()[..3], [(2, 3), (1, 2), (0, 1)]);
        let deepest = of(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15]).unwrap();
        assert_eq!(deepest[14], (0, 1));
        assert_eq!(deepest[0], (14, 15));
        for bad in [&[][..], &[1], &[0, 0], &[0, 2], &[0, 1, 0]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(merge_pairs(17, 0), None);
    }

    #[test]
    fn words_hold_four_pairs_each() {
        let words = merge_words(6, pack(&[0, 1, 0, 2, 0, 2])).unwrap();
        assert_eq!(words, [0x5420_3210, 0x40, 0, 0]);
    }
}

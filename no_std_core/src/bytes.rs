//! Copies and splits without checks that could panic.

/// Copies `from` to the start of `to`, as much as there is room for.
pub fn copy(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// The last `N` bytes and what is before them, if there are so many.
pub fn split_last<const N: usize>(bytes: &[u8]) -> Option<(&[u8], &[u8; N])> {
    let (before, last) = bytes.split_at_checked(bytes.len().checked_sub(N)?)?;
    Some((before, last.first_chunk()?))
}

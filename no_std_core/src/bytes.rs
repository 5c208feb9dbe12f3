//! Copies without checks that could panic.

/// Copies `from` to the start of `to`, as much as there is room for.
pub fn copy(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

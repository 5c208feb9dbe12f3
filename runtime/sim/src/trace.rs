//! What happened, as one number and, if somebody wants to read it, as lines.

/// Running hash over everything that has happened; two runs of a seed have equal ones.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

/// Longest readable trace; a seed that needs more has run away.
const LINES_MAX: usize = 200_000;

impl Trace {
    /// An empty trace; `readable` keeps lines as well.
    #[must_use]
    pub fn new(readable: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: readable.then(Vec::new) }
    }

    /// Notes something: `words` go into the hash, `text` into the lines.
    pub fn note(&mut self, now: u64, words: &[u64], text: impl FnOnce() -> String) {
        for word in core::iter::once(now).chain(words.iter().copied()) {
            let z = self.hash ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 32)).wrapping_mul(0x9fb2_1c65_1e98_df25);
            self.hash = z ^ (z >> 29);
        }
        if let Some(lines) = &mut self.lines
            && lines.len() < LINES_MAX
        {
            lines.push(format!("{:>14.3} us  {}", now as f64 / 1e3, text()));
        }
    }

    /// Notes bytes.
    pub fn bytes(&mut self, now: u64, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let tail = rest.iter().fold(rest.len() as u64, |tail, &b| tail << 8 | u64::from(b));
        let hash = words.iter().fold(tail, |hash, word| {
            (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(23)
        });
        let len = bytes.len();
        self.note(now, &[hash], || format!("    output of {len} bytes, hash {hash:016x}"));
    }

    /// The hash so far.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The readable lines, if any were kept.
    #[must_use]
    pub fn lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

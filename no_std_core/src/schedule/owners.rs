//! Who owns which chunk of a direct all-reduce: shares of any size, as a short periodic table.

use super::MEMBERS_MAX;
use crate::route::Rank;
use heapless::Vec;

/// A table of owners: chunk `c` belongs to `table[c % len]`.
///
/// Owners at `ranks` and above are aggregators without data. The table is filled by smooth weighted
/// round robin (nginx's: every turn each owner earns its weight, and the richest one pays the sum
/// and owns the chunk), so that any window of consecutive chunks is spread as evenly as can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    ranks: u8,
    aggregators: u8,
    table: Vec<u8, MEMBERS_MAX, u8>,
}

impl Owners {
    /// Equal shares: the table is `0..ranks`. `None` for 0 or more than [`MEMBERS_MAX`] ranks.
    #[must_use]
    pub fn equal(ranks: u16) -> Option<Self> {
        Self::weighted(ranks, [1; MEMBERS_MAX].get(..usize::from(ranks))?)
    }

    /// Shares in proportion to integer weights, one per rank, then one per aggregator.
    ///
    /// Exact if the weights, divided by their greatest common divisor, add up to at most
    /// [`MEMBERS_MAX`]. Otherwise the table has the length whose most overloaded owner exceeds its
    /// share least. `None` if there are fewer weights than ranks, no rank, more than
    /// [`MEMBERS_MAX`] weights, or only zeros.
    #[must_use]
    pub fn weighted(ranks: u16, weights: &[u32]) -> Option<Self> {
        let n = usize::from(ranks);
        if n == 0 || weights.len() < n || weights.len() > MEMBERS_MAX {
            return None;
        }
        let slots = slots(weights)?;
        let mut owners =
            Self { ranks: ranks as u8, aggregators: (weights.len() - n) as u8, table: Vec::new() };
        let length = slots.iter().map(|&s| i32::from(s)).sum::<i32>();
        let mut credit = [0i32; MEMBERS_MAX];
        for _ in 0..length {
            for (credit, &s) in credit.iter_mut().zip(&slots) {
                *credit += i32::from(s);
            }
            let richest = largest(credit.iter().take(slots.len()))?;
            *credit.get_mut(richest)? -= length;
            owners.table.push(richest as u8).ok()?;
        }
        Some(owners)
    }

    /// Shares as fractions (of any sum), one per rank, then one per aggregator; see
    /// [`weighted`](Self::weighted). `None` also if one is negative or not finite.
    #[must_use]
    pub fn fractions(ranks: u16, shares: &[f64]) -> Option<Self> {
        const SCALE: f64 = (1u32 << 24) as f64;
        let most = shares.iter().copied().fold(0.0, f64::max);
        if !most.is_normal() {
            return None;
        }
        let mut weights: Vec<u32, MEMBERS_MAX> = Vec::new();
        for &share in shares {
            if !(share >= 0.0 && share.is_finite()) {
                return None;
            }
            weights.push((share / most * SCALE + 0.5) as u32).ok()?;
        }
        Self::weighted(ranks, &weights)
    }

    /// A table that was made elsewhere; `None` if it is empty or too long, if it names somebody
    /// outside the group, or if there is no rank.
    #[must_use]
    pub fn from_table(ranks: u8, aggregators: u8, table: &[u8]) -> Option<Self> {
        let members = ranks.checked_add(aggregators)?;
        let sound = ranks > 0
            && usize::from(members) <= MEMBERS_MAX
            && !table.is_empty()
            && table.iter().all(|&owner| owner < members);
        let table = Vec::from_slice(table).ok().filter(|_| sound)?;
        Some(Self { ranks, aggregators, table })
    }

    /// Data ranks that the table was made for.
    #[must_use]
    pub const fn ranks(&self) -> u16 {
        self.ranks as u16
    }

    /// Aggregators without data that the table may name.
    #[must_use]
    pub const fn aggregators(&self) -> u16 {
        self.aggregators as u16
    }

    /// The owners of one period of chunks.
    #[must_use]
    pub fn table(&self) -> &[u8] {
        &self.table
    }

    /// The owner of a chunk of an all-reduce.
    #[must_use]
    pub fn owner(&self, chunk: u64) -> Rank {
        let at = chunk % (self.table.len() as u64).max(1);
        self.table.get(at as usize).map_or(0, |&r| Rank::from(r))
    }
}

type Slots = Vec<u8, MEMBERS_MAX>;

/// Slots of each owner; `None` if all weights are 0.
fn slots(weights: &[u32]) -> Option<Slots> {
    let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
    let divisor = weights.iter().fold(0, |d, &w| gcd(d, u64::from(w)));
    if divisor == 0 {
        return None;
    }
    if sum / divisor <= MEMBERS_MAX as u64 {
        return Some(apportion(weights, sum, sum / divisor));
    }
    let mut best = apportion(weights, sum, 1);
    let mut least = overload(weights, sum, 1, &best);
    for length in 2..=MEMBERS_MAX as u64 {
        let next = apportion(weights, sum, length);
        let over = overload(weights, sum, length, &next);
        if over.0 * least.1 < least.0 * over.1 {
            (best, least) = (next, over);
        }
    }
    Some(best)
}

/// Shares `length` slots out by the method of largest remainders (ties: the lower index).
fn apportion(weights: &[u32], sum: u64, length: u64) -> Slots {
    let mut slots = Slots::new();
    let mut rest: Vec<u64, MEMBERS_MAX> = Vec::new();
    let mut left = length;
    for &weight in weights {
        let quota = u64::from(weight) * length;
        let whole = quota / sum.max(1);
        left -= whole;
        // As many weights as members: both fit.
        let _ = slots.push(whole as u8);
        let _ = rest.push(quota - whole * sum);
    }
    for _ in 0..left {
        let Some(most) = largest(rest.iter()) else { break };
        if let (Some(slot), Some(rest)) = (slots.get_mut(most), rest.get_mut(most)) {
            *slot += 1;
            *rest = 0;
        }
    }
    slots
}

/// Index of the largest number; of equal ones the first.
fn largest<'a, T: Ord + 'a>(numbers: impl Iterator<Item = &'a T>) -> Option<usize> {
    let best = numbers.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(i, _)| i)
}

/// Greatest ratio of what an owner gets to what it should get, as a fraction.
fn overload(weights: &[u32], sum: u64, length: u64, slots: &[u8]) -> (u128, u128) {
    let mut worst = (0, 1);
    for (&weight, &slots) in weights.iter().zip(slots) {
        let over =
            (u128::from(slots) * u128::from(sum), u128::from(weight.max(1)) * u128::from(length));
        if over.0 * worst.1 > worst.0 * over.1 {
            worst = over;
        }
    }
    worst
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(owners: &Owners) -> std::vec::Vec<usize> {
        let members = usize::from(owners.ranks() + owners.aggregators());
        let of = |i: usize| owners.table().iter().filter(|&&o| usize::from(o) == i).count();
        (0..members).map(of).collect()
    }

    #[test]
    fn equal_shares_are_the_identity() {
        for n in 1..=128u16 {
            let owners = Owners::equal(n).unwrap();
            assert!(owners.table().iter().copied().map(u16::from).eq(0..n), "{n}");
        }
        assert_eq!(Owners::equal(0), None);
        assert_eq!(Owners::equal(129), None);
    }

    #[test]
    fn small_weights_are_exact_and_interleaved() {
        let owners = Owners::weighted(3, &[5, 1, 1]).unwrap();
        assert_eq!(owners.table(), [0, 0, 1, 0, 2, 0, 0]);
        let owners = Owners::weighted(2, &[10, 20, 30]).unwrap();
        assert_eq!(shares(&owners), [1, 2, 3]);
        assert_eq!((owners.ranks(), owners.aggregators()), (2, 1));
        assert_eq!(Owners::weighted(1, &[u32::MAX; 1]).unwrap().table(), [0]);
    }

    #[test]
    fn large_weights_never_overload_much() {
        let weights = [1_000_003, 2_000_003, 3_999_999, 17, 0];
        let owners = Owners::weighted(5, &weights).unwrap();
        let (sum, length) = (7_000_022.0, owners.table().len() as f64);
        for (got, want) in shares(&owners).into_iter().zip(weights) {
            assert!(got as f64 / length <= f64::from(want) / sum * 1.001, "{got} {want}");
        }
        assert_eq!(shares(&owners)[4], 0, "no share, no chunk");
    }

    #[test]
    fn a_table_from_elsewhere_is_checked() {
        let owners = Owners::weighted(2, &[10, 20, 30]).unwrap();
        assert_eq!(Owners::from_table(2, 1, owners.table()), Some(owners));
        assert_eq!(Owners::from_table(2, 1, &[0, 3]), None);
        assert_eq!(Owners::from_table(0, 2, &[0]), None);
        assert_eq!(Owners::from_table(2, 0, &[]), None);
        assert_eq!(Owners::from_table(128, 1, &[0]), None);
        assert_eq!(Owners::from_table(2, 0, &[1; 129]), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Owners::weighted(0, &[1]), None);
        assert_eq!(Owners::weighted(2, &[1]), None);
        assert_eq!(Owners::weighted(2, &[0, 0]), None);
        assert_eq!(Owners::weighted(2, &[1; 129]), None);
        for bad in [[1.0, f64::NAN], [1.0, -0.5], [f64::INFINITY, 1.0], [0.0, 0.0]] {
            assert_eq!(Owners::fractions(2, &bad), None, "{bad:?}");
        }
        let third = Owners::fractions(4, &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]).unwrap();
        assert_eq!(third.table(), [0, 1, 2]);
    }
}

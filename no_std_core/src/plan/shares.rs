//! Which share of an all-reduce each owner should have when members are not equally fast.

use super::LinkModel;
use crate::schedule::{MEMBERS_MAX, Owners};
use heapless::Vec;

/// The best shares of a direct all-reduce.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Nanoseconds per byte of the tensor, without `alpha`: the smallest possible.
    pub ns_per_byte: f64,
    /// Fraction of the chunks of each member, ranks first; they add up to 1.
    pub fractions: Vec<f64, MEMBERS_MAX>,
    ranks: u16,
}

impl Shares {
    /// The table that gives every member its fraction, as near as a short table can.
    #[must_use]
    pub fn owners(&self) -> Option<Owners> {
        Owners::fractions(self.ranks, &self.fractions)
    }
}

/// Solves for the shares of a direct all-reduce over `ranks` data ranks; the rest of `model` are
/// aggregators without data.
///
/// Rank `i` with bandwidth `B_i` and share `s_i` of M bytes moves `M (1 + (N-2) s_i)` each way and
/// folds `(N-1) s_i M` received bytes at rate `R_i`; aggregator `a` moves and folds `N t_a M`. So
/// within time T a rank can own at most `min((T B_i / M - 1) / (N-2), T R_i / ((N-1) M))`, an
/// aggregator `T min(A_a, R_a) / (N M)`; the smallest T for which these add up to 1, and which is
/// not below `M / min B_i`, is found by bisection to the last bit. Where the slowest rank's own
/// data decides T, there is room to spare, and the shares are scaled down to add up to 1.
///
/// Without aggregators and fold limits, `T = max(M / min B, 2(N-1) M / sum B)`: the lower bound of
/// any algorithm.
///
/// `None` for no rank, fewer entries than ranks, more than [`MEMBERS_MAX`], or an entry that is not
/// [valid](LinkModel::is_valid). Time: about a hundred sums over the members.
#[must_use]
pub fn shares(ranks: u16, model: &[LinkModel]) -> Option<Shares> {
    let n = usize::from(ranks);
    if n == 0 || model.len() < n || model.len() > MEMBERS_MAX {
        return None;
    }
    if !model.iter().all(LinkModel::is_valid) {
        return None;
    }
    let sum = |t: f64| model.iter().enumerate().map(|(i, link)| most(n, i, link, t)).sum::<f64>();
    let mut low = 0.0;
    // Everybody's own data has to go out and the result to come in, even if it owns nothing.
    let mut high = match n {
        1 => 0.0,
        _ => model.get(..n)?.iter().map(|link| link.ns_per_byte).fold(0.0, f64::max),
    };
    if sum(high) < 1.0 {
        while sum(high) < 1.0 {
            low = high;
            high *= 2.0;
            if !high.is_finite() {
                return None;
            }
        }
        loop {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            if sum(middle) < 1.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
    }
    let total = sum(high);
    let mut fractions = Vec::new();
    for (i, link) in model.iter().enumerate() {
        fractions.push(most(n, i, link, high) / total).ok()?;
    }
    Some(Shares { ns_per_byte: high, fractions, ranks })
}

/// The largest share of member `i` that keeps it within `t` nanoseconds per byte.
fn most(n: usize, i: usize, link: &LinkModel, t: f64) -> f64 {
    let n = n as f64;
    if i as f64 >= n {
        // One rank alone has nobody to ask.
        let slowest = link.ns_per_byte.max(link.fold_ns_per_byte);
        return if n > 1.0 { (t / (slowest * n)).min(1.0) } else { 0.0 };
    }
    let moved = match n {
        _ if n > 2.0 => ((t / link.ns_per_byte - 1.0) / (n - 2.0)).max(0.0),
        // Two ranks exchange everything, whoever owns it.
        _ => 1.0,
    };
    let folds = n - 1.0;
    let folded =
        if folds * link.fold_ns_per_byte > 0.0 { t / (folds * link.fold_ns_per_byte) } else { 1.0 };
    moved.min(folded).min(1.0)
}

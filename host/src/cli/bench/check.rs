//! `#wrong`: how many elements of a result are not what they must be.

use super::data::Tables;
use super::run::{Case, Memory};
use std::ops::Range;
use unisono::{Call, DType, Error, Kind, Member, Order, ReduceOp};

/// Where a rank's result lies in its output buffer, in bytes; empty if it has none.
pub fn result(call: &Call, rank: u16, ranks: u16, in_place: bool) -> Range<usize> {
    if rank >= ranks {
        return 0..0;
    }
    let size = call.dtype.size() as u64;
    let (_, length) = call.lengths(rank, ranks);
    let first = match call.kind {
        Kind::ReduceScatter if in_place => u64::from(rank) * call.count,
        _ => 0,
    };
    (first * size) as usize..((first + length) * size) as usize
}

/// Compares this rank's result; every member has to call this.
pub fn wrong(
    member: &mut Member,
    case: &Case<'_>,
    memory: &Memory,
    in_place: bool,
) -> Result<u64, Error> {
    let Case { call, tables, .. } = *case;
    let (rank, ranks) = (member.rank(), member.ranks());
    let got = &memory.output[result(&call, rank, ranks, in_place)];
    let schedule = member.plan(&call)?.schedule;
    match call.op {
        Some(op) if !Order::Canonical.permits(&schedule, call.kind, ranks, op, call.dtype) => {
            let first = tables.expected(call.kind, usize::from(rank), 0, call.count).1;
            let mut wrong = tables.far(op, first, got);
            if call.kind == Kind::AllReduce {
                wrong += unlike_rank_0(member, got, &call)?;
            }
            Ok(wrong)
        }
        _ => Ok(exactly(&call, tables, rank, ranks, got)),
    }
}

/// Elements with other bits than the reference.
fn exactly(call: &Call, tables: &Tables, rank: u16, ranks: u16, got: &[u8]) -> u64 {
    let differ = |block: usize, got: &[u8]| {
        let (table, first) = tables.expected(call.kind, usize::from(rank), block, call.count);
        tables.differ(table, first, got)
    };
    match call.kind {
        Kind::AllGather | Kind::AllToAll => {
            let bytes = call.count as usize * call.dtype.size();
            let blocks = (0..usize::from(ranks)).filter(|_| !got.is_empty());
            blocks.map(|b| differ(b, &got[b * bytes..(b + 1) * bytes])).sum()
        }
        Kind::Broadcast => differ(usize::from(call.root), got),
        _ => differ(0, got),
    }
}

/// Elements that rank 0 has other bits for. Every schedule that has an order of its own can do an
/// all-reduce, so that is how rank 0's bits come here: all others have zeros.
fn unlike_rank_0(member: &mut Member, got: &[u8], of: &Call) -> Result<u64, Error> {
    let mut first = if member.rank() == 0 { got.to_vec() } else { vec![0; got.len()] };
    let op = Some(ReduceOp::BitOr);
    let size = of.dtype.size();
    let call = Call { op, ..Call::new(of.kind, DType::U8, of.count * size as u64) };
    member.run_in_place(&call, &mut first)?;
    let both = got.chunks_exact(size).zip(first.chunks_exact(size));
    Ok(both.filter(|(a, b)| a != b).count() as u64)
}

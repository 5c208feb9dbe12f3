//! Every collective, called on typed slices and on bytes, against the scalar reference in canonical
//! order: exact bits, and nothing touched that is not an output.

use unisono::schedule::{Nodes, Owners};
use unisono::{Avg, BitXor, Max, Min, Prod, Sum, bf16, f16};
use unisono::{Call, Element, Error, F8E4M3, F8E5M2, Group, Kind, Member, Order};
use unisono::{ReduceOp, Reduction, Scalar, Schedule, Weight};
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Source, numeric};

const RANKS: [u16; 4] = [1, 2, 3, 5];
const COUNTS: [usize; 5] = [0, 1, 3, 1000, 70_001];

fn bytes<T: Element>(tensor: &[T]) -> &[u8] {
    // SAFETY: elements have no padding.
    unsafe { std::slice::from_raw_parts(tensor.as_ptr().cast(), size_of_val(tensor)) }
}

fn bytes_mut<T: Element>(tensor: &mut [T]) -> &mut [u8] {
    // SAFETY: elements have no padding and every bit pattern is valid.
    unsafe { std::slice::from_raw_parts_mut(tensor.as_mut_ptr().cast(), size_of_val(tensor)) }
}

/// Numbers whose sums have to be rounded, and now and then any bits at all (NaNs, infinities).
fn numbers<T: Element>(seed: u64, count: usize) -> Vec<T> {
    let mut tensor = vec![T::default(); count];
    let size = T::DTYPE.size();
    for (i, out) in bytes_mut(&mut tensor).chunks_exact_mut(size).enumerate() {
        let mut x = (i as u64 ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 32;
        let value = f64::from(x as u32) / 4e8 - 5.0;
        if !T::DTYPE.is_float() || i % 17 == 3 {
            out.copy_from_slice(&x.to_le_bytes()[..size]);
        } else {
            numeric::write_f64(T::DTYPE, out, 0, value).expect("a float of this size");
        }
    }
    tensor
}

/// What the ranks bring (a block for every rank), and the reduction of it.
struct Data<T> {
    op: ReduceOp,
    count: usize,
    inputs: Vec<Vec<T>>,
    reduced: Vec<T>,
}

impl<T: Element> Data<T> {
    fn new(op: ReduceOp, ranks: u16, count: usize) -> Self {
        let all = count * usize::from(ranks);
        let inputs: Vec<Vec<T>> = (0..ranks).map(|r| numbers(u64::from(r), all)).collect();
        let mut reduced = vec![T::default(); all];
        let ranked = (0..).zip(&inputs).zip(leaf_merges(u32::from(ranks)));
        let sources = ranked.map(|((rank, input), merges)| {
            let weight = weight(rank).scalar(T::DTYPE).expect("a whole number");
            Source { mem: bytes::<T>(input), form: Form::Leaf, weight, merges }
        });
        let sources: Vec<_> = sources.collect();
        let finish = Finish::Final { ranks: ranks.into() };
        numeric::fold(T::DTYPE, Some(op), finish, &sources, bytes_mut(&mut reduced))
            .expect("a program in canonical order");
        Self { op, count, inputs, reduced }
    }

    fn block(&self, rank: u16, block: u16) -> &[T] {
        &self.inputs[usize::from(rank)][usize::from(block) * self.count..][..self.count]
    }

    fn reduction(&self, rank: u16) -> Reduction {
        if self.op == ReduceOp::PreMulSum { weight(rank) } else { self.op.into() }
    }

    fn call(&self, kind: Kind, rank: u16, root: u16) -> Call {
        let base = Call { root, ..Call::new(kind, T::DTYPE, self.count as u64) };
        if !kind.reduces() {
            return base;
        }
        let weight: Option<Scalar> = self.reduction(rank).scalar(T::DTYPE);
        Call { op: Some(self.op), weight: weight.expect("a whole number"), ..base }
    }

    /// Block 0 of every rank, in the order of the ranks.
    fn gathered(&self) -> Vec<T> {
        (0..self.inputs.len() as u16).flat_map(|r| self.block(r, 0).to_vec()).collect()
    }

    /// The block for `rank` of every rank, in the order of the ranks.
    fn transposed(&self, rank: u16) -> Vec<T> {
        (0..self.inputs.len() as u16).flat_map(|r| self.block(r, rank).to_vec()).collect()
    }
}

fn weight(rank: u16) -> Reduction {
    Reduction { op: ReduceOp::PreMulSum, weight: Some(Weight::Int(3 - 2 * i128::from(rank))) }
}

/// A tensor between margins, which nobody may touch.
struct Tensor<T>(Vec<T>);

const MARGIN: usize = 5;

impl<T: Element> Tensor<T> {
    fn of(content: &[T]) -> Self {
        let margin = numbers(77, MARGIN);
        Self([&margin, content, &margin].concat())
    }

    /// What an output holds before the call: no result.
    fn blank(count: usize) -> Self {
        Self::of(&vec![numbers(99, 1)[0]; count])
    }

    fn get(&self) -> &[T] {
        &self.0[MARGIN..self.0.len() - MARGIN]
    }

    fn get_mut(&mut self) -> &mut [T] {
        let end = self.0.len() - MARGIN;
        &mut self.0[MARGIN..end]
    }

    fn must_be(&self, want: &[T], what: &str) {
        let size = T::DTYPE.size();
        let (got, want) = (bytes(self.get()), bytes(want));
        assert_eq!(got.len(), want.len(), "{what}");
        if got != want {
            let mut pairs = got.chunks(size).zip(want.chunks(size));
            let i = pairs.position(|(got, want)| got != want).expect("they differ");
            let (got, want) = (&got[i * size..][..size], &want[i * size..][..size]);
            panic!("{what}: element {i} of {} is {got:02x?}, not {want:02x?}", T::DTYPE);
        }
        let margin: Vec<T> = numbers(77, MARGIN);
        let (before, rest) = self.0.split_at(MARGIN);
        let after = &rest[rest.len() - MARGIN..];
        assert_eq!(bytes(before), bytes(&margin), "{what}: in front of the tensor");
        assert_eq!(bytes(after), bytes(&margin), "{what}: behind the tensor");
    }
}

fn all_reduce<T: Element>(m: &mut Member, d: &Data<T>) -> Result<(), Error> {
    let (mine, want) = (d.block(m.rank(), 0), &d.reduced[..d.count]);
    let op = d.reduction(m.rank());
    let mut tensor = Tensor::of(mine);
    m.all_reduce(tensor.get_mut(), op)?;
    tensor.must_be(want, "all_reduce");
    let (input, mut output) = (Tensor::of(mine), Tensor::blank(d.count));
    m.all_reduce_into(input.get(), output.get_mut(), op)?;
    output.must_be(want, "all_reduce_into");
    input.must_be(mine, "the input of all_reduce_into");
    let call = d.call(Kind::AllReduce, m.rank(), 0);
    let mut tensor = Tensor::of(mine);
    m.run_in_place(&call, bytes_mut(tensor.get_mut()))?;
    tensor.must_be(want, "all-reduce by run_in_place");
    apart(m, &call, mine, want)
}

fn reduce_scatter<T: Element>(m: &mut Member, d: &Data<T>) -> Result<(), Error> {
    let rank = usize::from(m.rank());
    let (all, op) = (&d.inputs[rank], d.reduction(m.rank()));
    let want = &d.reduced[rank * d.count..][..d.count];
    let (input, mut output) = (Tensor::of(all), Tensor::blank(d.count));
    m.reduce_scatter(input.get(), output.get_mut(), op)?;
    output.must_be(want, "reduce_scatter");
    input.must_be(all, "the input of reduce_scatter");
    let call = d.call(Kind::ReduceScatter, m.rank(), 0);
    let mut tensor = Tensor::of(all);
    m.run_in_place(&call, bytes_mut(tensor.get_mut()))?;
    let mut after = all.clone();
    after[rank * d.count..][..d.count].copy_from_slice(want);
    tensor.must_be(&after, "reduce-scatter in place");
    apart(m, &call, all, want)
}

fn all_gather<T: Element>(m: &mut Member, d: &Data<T>) -> Result<(), Error> {
    let rank = usize::from(m.rank());
    let (mine, want) = (d.block(m.rank(), 0), d.gathered());
    let (input, mut output) = (Tensor::of(mine), Tensor::blank(want.len()));
    m.all_gather(input.get(), output.get_mut())?;
    output.must_be(&want, "all_gather");
    input.must_be(mine, "the input of all_gather");
    let call = d.call(Kind::AllGather, m.rank(), 0);
    let mut tensor = Tensor::blank(want.len());
    tensor.get_mut()[rank * d.count..][..d.count].copy_from_slice(mine);
    m.run_in_place(&call, bytes_mut(tensor.get_mut()))?;
    tensor.must_be(&want, "all-gather in place");
    apart(m, &call, mine, &want)
}

fn reduce<T: Element>(m: &mut Member, d: &Data<T>) -> Result<(), Error> {
    let (mine, reduced) = (d.block(m.rank(), 0), &d.reduced[..d.count]);
    for root in 0..m.ranks() {
        let is_root = m.rank() == root;
        let mut tensor = Tensor::of(mine);
        m.reduce(tensor.get_mut(), d.reduction(m.rank()), root)?;
        tensor.must_be(if is_root { reduced } else { mine }, "reduce");
        let call = d.call(Kind::Reduce, m.rank(), root);
        apart(m, &call, mine, if is_root { reduced } else { &[] })?;
    }
    Ok(())
}

fn broadcast<T: Element>(m: &mut Member, d: &Data<T>) -> Result<(), Error> {
    let mine = d.block(m.rank(), 0);
    for root in 0..m.ranks() {
        let want = d.block(root, 0);
        let mut tensor = Tensor::of(mine);
        m.broadcast(tensor.get_mut(), root)?;
        tensor.must_be(want, "broadcast");
        let call = d.call(Kind::Broadcast, m.rank(), root);
        apart(m, &call, if m.rank() == root { mine } else { &[] }, want)?;
    }
    Ok(())
}

fn all_to_all<T: Element>(m: &mut Member, d: &Data<T>) -> Result<(), Error> {
    let (all, want) = (&d.inputs[usize::from(m.rank())], d.transposed(m.rank()));
    let (input, mut output) = (Tensor::of(all), Tensor::blank(all.len()));
    m.all_to_all(input.get(), output.get_mut())?;
    output.must_be(&want, "all_to_all");
    input.must_be(all, "the input of all_to_all");
    apart(m, &d.call(Kind::AllToAll, m.rank(), 0), all, &want)
}

/// A call by `run_apart`.
fn apart<T: Element>(m: &mut Member, call: &Call, input: &[T], want: &[T]) -> Result<(), Error> {
    let (from, mut to) = (Tensor::of(input), Tensor::blank(want.len()));
    m.run_apart(call, bytes(from.get()), bytes_mut(to.get_mut()))?;
    to.must_be(want, call.kind.name());
    from.must_be(input, "the input of run_apart");
    Ok(())
}

/// How a group is to work; `None` is the planner's choice.
fn schedules(ranks: u16) -> Vec<Option<Schedule>> {
    let direct = Owners::equal(ranks).map(Schedule::Direct);
    let nodes = Nodes::even(ranks, 2).map(Schedule::Hierarchical);
    let others = [direct, Some(Schedule::HalvingDoubling), Some(Schedule::Binomial), nodes];
    [None].into_iter().chain(others.into_iter().flatten().map(Some)).collect()
}

/// Can the schedule do this in canonical order?
fn can<T: Element>(schedule: Option<&Schedule>, kind: Kind, ranks: u16, op: ReduceOp) -> bool {
    schedule.is_none_or(|s| {
        s.supports(kind, ranks) && Order::Canonical.permits(s, kind, ranks, op, T::DTYPE)
    })
}

/// All collectives on one type, for all groups, counts and schedules.
fn check<T: Element>(op: ReduceOp) -> Result<(), Error> {
    for ranks in RANKS {
        for count in COUNTS {
            let data = Data::<T>::new(op, ranks, count);
            for schedule in schedules(ranks) {
                let mut builder = Group::builder().cpus(ranks.into());
                if let Some(schedule) = schedule.clone() {
                    builder = builder.schedule(schedule).chunk(999).window(3);
                }
                let can = |kind| can::<T>(schedule.as_ref(), kind, ranks, op);
                builder.build()?.run(|m| {
                    for kind in Kind::ALL.into_iter().filter(|&k| can(k)) {
                        match kind {
                            Kind::AllReduce => all_reduce(m, &data)?,
                            Kind::ReduceScatter => reduce_scatter(m, &data)?,
                            Kind::AllGather => all_gather(m, &data)?,
                            Kind::Reduce => reduce(m, &data)?,
                            Kind::Broadcast => broadcast(m, &data)?,
                            Kind::AllToAll => all_to_all(m, &data)?,
                            Kind::Barrier => m.barrier()?,
                        }
                    }
                    Ok::<_, Error>(())
                })?;
            }
        }
    }
    Ok(())
}

#[test]
fn sums_and_averages_of_floats() -> Result<(), Error> {
    check::<f32>(Sum)?;
    check::<f16>(Avg)
}

#[test]
fn weighted_sums_and_products_of_floats() -> Result<(), Error> {
    check::<bf16>(ReduceOp::PreMulSum)?;
    check::<f32>(Prod)
}

#[test]
fn small_floats() -> Result<(), Error> {
    check::<F8E4M3>(Sum)?;
    check::<F8E5M2>(Max)
}

#[test]
fn integers() -> Result<(), Error> {
    check::<i16>(Sum)?;
    check::<i16>(ReduceOp::PreMulSum)?;
    check::<u64>(Min)?;
    check::<u64>(BitXor)
}

/// [`check`] leaves out what a schedule cannot do; this is what it must not leave out.
#[test]
fn the_schedules_can_do_what_is_tested() {
    use Kind::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Reduce, ReduceScatter};
    let all = [AllReduce, ReduceScatter, AllGather, Reduce, Broadcast, AllToAll, Barrier];
    for ranks in RANKS {
        let names: Vec<_> = schedules(ranks).iter().flatten().map(Schedule::name).collect();
        assert_eq!(names, ["direct", "halving-doubling", "binomial", "hierarchical"]);
        for schedule in schedules(ranks) {
            let kinds = match schedule.as_ref().map(Schedule::name) {
                None | Some("direct") => &all[..],
                Some("binomial") => &[AllReduce, Reduce, Broadcast, Barrier],
                _ => &[AllReduce, ReduceScatter, AllGather, Reduce, Broadcast, Barrier],
            };
            for kind in kinds {
                let can = can::<f32>(schedule.as_ref(), *kind, ranks, Sum);
                assert!(can, "{schedule:?} cannot do {kind} over {ranks} ranks");
            }
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_came() -> Result<(), Error> {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    for ranks in RANKS {
        let came = AtomicU32::new(0);
        Group::builder().cpus(ranks.into()).build()?.run(|m| {
            for round in 1..=200 {
                if round % u32::from(ranks) == u32::from(m.rank()) {
                    std::thread::yield_now();
                }
                came.fetch_add(1, Relaxed);
                m.barrier()?;
                let now = came.load(Relaxed);
                let all = u32::from(ranks) * round;
                assert!(now >= all, "only {now} of {all} came");
                m.barrier()?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

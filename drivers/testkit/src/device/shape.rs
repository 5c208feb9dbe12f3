//! What a fold can look like, apart from its elements: a device may compile a kernel for each.

use super::bits::Bits;
use super::rig::{Case, Input, Output};
use std::collections::HashMap;
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, numeric};

/// Kinds of shapes that [`Shape::of_kind`] knows.
pub const KINDS: usize = 6;

/// A fold without its elements.
#[derive(Clone, Debug)]
pub struct Shape {
    pub partial: bool,
    pub forms: Vec<Form>,
    pub merges: Vec<u8>,
    pub outputs: Vec<Output>,
}

impl Shape {
    /// `k` leaves in canonical order, a final result in memory of its own.
    pub fn leaves(k: usize) -> Self {
        Self {
            partial: false,
            forms: vec![Form::Leaf; k],
            merges: leaf_merges(k as u32).collect(),
            outputs: vec![Output::Own],
        }
    }

    /// One of the kinds: leaves, partial values and both; canonical and random programs; one
    /// destination, several, in place.
    pub fn of_kind(bits: &mut Bits, dtype: DType, k: usize, kind: usize, dests_max: usize) -> Self {
        let mut shape = Self::leaves(k);
        shape.partial = kind % 2 == 1;
        for form in &mut shape.forms {
            if kind == 3 || (kind >= 4 && bits.next() & 1 == 0) {
                *form = Form::Partial;
            }
        }
        if kind >= 4 {
            shape.random_program(bits);
        }
        if kind > 0 {
            shape.random_outputs(bits, dtype, kind == 2, dests_max);
        }
        shape
    }

    /// Merges in any order that leaves one value.
    fn random_program(&mut self, bits: &mut Bits) {
        let (mut depth, last) = (0, self.merges.len() - 1);
        for (i, merges) in self.merges.iter_mut().enumerate() {
            depth += 1;
            let popped = if i == last { depth - 1 } else { bits.below(depth) };
            *merges = popped as u8;
            depth -= popped;
        }
    }

    /// Destinations: several, on top of sources (of all, if `all`) where sizes allow it.
    pub fn random_outputs(&mut self, bits: &mut Bits, dtype: DType, all: bool, most: usize) {
        let size = if self.partial { dtype.acc().size() } else { dtype.size() };
        self.outputs.clear();
        for (i, &form) in self.forms.iter().enumerate() {
            let fits = numeric::form_size(dtype, form) == size;
            if fits && (all || bits.next() & 1 == 0) {
                self.outputs.push(Output::InPlace(i));
            }
        }
        if self.outputs.is_empty() || bits.next() & 1 == 0 {
            self.outputs.extend(vec![Output::Own; 1 + bits.below(4)]);
        }
        self.outputs.truncate(most);
    }

    /// A fold of this shape with random elements, weights and, for an average, ranks.
    pub fn case(&self, bits: &mut Bits, dtype: DType, op: ReduceOp, count: usize) -> Case {
        let k = self.forms.len() as u32;
        let ranks = match op {
            ReduceOp::Avg => bits.pick(&[k, k, 1, 2, 3, 5, 127, 200, 1000, 65535]),
            _ => k,
        };
        let each = self.forms.iter().zip(&self.merges);
        let inputs = each.map(|(&form, &merges)| input(bits, dtype, form, count, merges)).collect();
        Case {
            dtype,
            op: Some(op),
            finish: if self.partial { Finish::Partial } else { Finish::Final { ranks } },
            count,
            inputs,
            outputs: self.outputs.clone(),
            start: 0,
            step: 0,
        }
    }
}

/// Types that get the same shapes: is it a float, and its bytes. A device may well have one kernel
/// for the sums of signed and unsigned integers.
type Class = (bool, usize);

/// The shapes that are tested: any, or only one for each type, operator and number of sources.
#[derive(Debug)]
pub struct Shapes {
    kept: Option<HashMap<(Class, ReduceOp, usize), Shape>>,
    sources_max: usize,
    dests_max: usize,
}

impl Shapes {
    /// For a device with these limits.
    pub fn new(every: bool, (sources_max, dests_max): (usize, usize)) -> Self {
        Self { kept: (!every).then(HashMap::new), sources_max, dests_max }
    }

    /// Are all shapes tested?
    pub const fn every(&self) -> bool {
        self.kept.is_none()
    }

    /// Most destinations.
    pub const fn dests_max(&self) -> usize {
        self.dests_max
    }

    /// Numbers of sources, of those given, that the device takes; fewer if shapes are few.
    pub fn sources(&self, wanted: &[usize]) -> Vec<usize> {
        let few = |k: &usize| self.every() || [1, 2, 3, 7, 16].contains(k);
        wanted.iter().copied().filter(|k| *k <= self.sources_max && few(k)).collect()
    }

    /// The shape that `make` gives, or the one that is kept for this number of sources.
    pub fn pick(
        &mut self,
        bits: &mut Bits,
        (dtype, op): (DType, ReduceOp),
        k: usize,
        make: impl FnOnce(&mut Bits, Shape) -> Shape,
    ) -> Shape {
        let Some(kept) = &mut self.kept else { return make(bits, Shape::leaves(k)) };
        let dests_max = self.dests_max;
        let new = || {
            // The common ones for few sources: plain, and in place.
            let kind = [0, 0, 2].get(k).copied().unwrap_or_else(|| bits.below(KINDS));
            Shape::of_kind(bits, dtype, k, kind, dests_max)
        };
        kept.entry(((dtype.is_float(), dtype.size()), op, k)).or_insert_with(new).clone()
    }
}

/// A weight that is not the neutral one.
fn weight(bits: &mut Bits, dtype: DType) -> Scalar {
    if dtype.is_float() {
        let plain = bits.next() as i32 as f64 / 1e9;
        let tiny = f64::from(f32::MIN_POSITIVE) / 3.0;
        Scalar::from_f64(bits.pick(&[plain, plain, plain, 0.1, -0.0, 1e300, tiny, f64::NAN]))
    } else {
        Scalar::from_i64(bits.next().cast_signed() >> bits.below(64))
    }
}

/// A source of random elements.
pub fn input(bits: &mut Bits, dtype: DType, form: Form, count: usize, merges: u8) -> Input {
    let bytes = match form {
        Form::Partial => bits.partials(dtype, count),
        _ => bits.elements(dtype, count),
    };
    Input { bytes, form, weight: weight(bits, dtype), merges }
}

//! The merges, as types that the kernels are compiled for.

use super::vector::{Bits, Vector};

/// A reduction operator on vectors of type `V`.
pub trait Op<V: Vector> {
    /// Are leaves multiplied by their weights?
    const WEIGHTED: bool = false;

    /// One merge.
    fn merge(a: V, b: V) -> V;
}

macro_rules! op {
    ($($(#[$doc:meta])* $name:ident: $bound:ident $method:ident $(, $weighted:literal)?;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl<V: $bound> Op<V> for $name {
            $(const WEIGHTED: bool = $weighted;)?

            #[inline(always)]
            fn merge(a: V, b: V) -> V {
                a.$method(b)
            }
        }
    )*};
}

op! {
    /// Sum and average.
    Sum: Vector add;
    /// Sum of weighted leaves.
    WeightedSum: Vector add, true;
    /// Product.
    Prod: Vector mul;
    /// Minimum.
    Min: Vector min;
    /// Maximum.
    Max: Vector max;
    /// Bitwise and.
    And: Bits and;
    /// Bitwise or.
    Or: Bits or;
    /// Bitwise exclusive or.
    Xor: Bits xor;
}

//! The merges, as types that the loops are compiled for.

use super::number::{Bits, Number};

/// A reduction operator on accumulators of type `A`.
pub trait Op<A> {
    /// One merge.
    fn merge(a: A, b: A) -> A;
}

macro_rules! op {
    ($($(#[$doc:meta])* $name:ident: $bound:ident $method:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl<A: $bound> Op<A> for $name {
            #[inline(always)]
            fn merge(a: A, b: A) -> A {
                a.$method(b)
            }
        }
    )*};
}

op! {
    /// Sum, average, and sum of weighted leaves.
    Sum: Number add;
    /// Product.
    Prod: Number mul;
    /// Minimum.
    Min: Number min;
    /// Maximum.
    Max: Number max;
    /// Bitwise and.
    And: Bits and;
    /// Bitwise or.
    Or: Bits or;
    /// Bitwise exclusive or.
    Xor: Bits xor;
}

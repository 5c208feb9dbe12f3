//! How an element of each type is loaded into its accumulation type and stored from it.

use super::acc::Acc;
use super::small::{BF16, F8E4M3, F8E5M2, F16 as HALF};

/// An element type of a tensor.
pub trait Element {
    /// What sums of it are kept in.
    type Acc: Acc;
    /// Bytes of one element.
    const BYTES: usize;

    /// Reads and widens the first element of `bytes`; exact.
    fn load(bytes: &[u8]) -> Self::Acc;

    /// Rounds `value` once, makes a NaN canonical, and writes it to the start of `bytes`.
    fn store(value: Self::Acc, bytes: &mut [u8]);
}

/// Types that are their own accumulation type.
impl<A: Acc> Element for A {
    type Acc = A;
    const BYTES: usize = A::SIZE;

    fn load(bytes: &[u8]) -> A {
        A::read(bytes)
    }

    fn store(value: A, bytes: &mut [u8]) {
        value.canonical().write(bytes);
    }
}

macro_rules! small {
    ($($(#[$doc:meta])* $name:ident: $format:ident in $code:ident;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl Element for $name {
            type Acc = f32;
            const BYTES: usize = size_of::<$code>();

            fn load(bytes: &[u8]) -> f32 {
                $format.decode(u16::from(<$code as Acc>::read(bytes)))
            }

            fn store(value: f32, bytes: &mut [u8]) {
                ($format.encode(f64::from(value)) as $code).write(bytes);
            }
        }
    )*};
}

small! {
    /// IEEE 754 binary16.
    F16: HALF in u16;
    /// bfloat16.
    Bf16: BF16 in u16;
    /// OCP FP8 E4M3.
    F8e4m3: F8E4M3 in u8;
    /// OCP FP8 E5M2.
    F8e5m2: F8E5M2 in u8;
}

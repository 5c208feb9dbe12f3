//! Lists of operations on two ends of a reliable channel; afterwards everything has to arrive.
#![no_main]

#[path = "../../tests/reliable/world.rs"]
mod world;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use world::{Channel, Operation, World};

#[derive(Debug)]
struct List(Vec<Operation>);

impl<'a> Arbitrary<'a> for List {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut list = Vec::new();
        while !u.is_empty() && list.len() < 500 {
            list.push(operation(u)?);
        }
        Ok(Self(list))
    }
}

fn operation(u: &mut Unstructured<'_>) -> Result<Operation> {
    let end = u.arbitrary()?;
    let which = usize::from(u.arbitrary::<u8>()?);
    Ok(match u.int_in_range(0..=7)? {
        0 => Operation::Send { end, len: u.int_in_range(0..=Channel::MESSAGE_MAX)? },
        1 => Operation::Transmit { end, most: u.int_in_range(0..=6)? },
        2 => Operation::Deliver { end, which, keep: u.arbitrary()? },
        3 => Operation::Damage { end, which, bit: u.arbitrary::<u16>()?.into() },
        4 => Operation::Noise { end, bytes: u.arbitrary()? },
        5 => Operation::Lose { end, which },
        6 => Operation::Recv { end },
        _ => Operation::Wait { micros: u.int_in_range(0..=300_000)? },
    })
}

fuzz_target!(|input: (u32, List)| {
    let (first_seq, List(list)) = input;
    let mut world = World::new(first_seq);
    list.into_iter().for_each(|operation| world.apply(operation));
    world.heal();
});

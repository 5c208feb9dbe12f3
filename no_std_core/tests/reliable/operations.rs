//! Random lists of operations, then a network that works: everything has to arrive.

use super::world::{Channel, Operation, World};
use proptest::prelude::*;

fn operations() -> impl Strategy<Value = Operation> {
    let end = any::<bool>;
    let which = any::<usize>;
    prop_oneof![
        3 => (end(), 0..=Channel::MESSAGE_MAX).prop_map(|(end, len)| Operation::Send { end, len }),
        4 => (end(), 0u8..6).prop_map(|(end, most)| Operation::Transmit { end, most }),
        4 => (end(), which(), end())
            .prop_map(|(end, which, keep)| Operation::Deliver { end, which, keep }),
        1 => (end(), which(), which())
            .prop_map(|(end, which, bit)| Operation::Damage { end, which, bit }),
        1 => (end(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(end, bytes)| Operation::Noise { end, bytes }),
        1 => (end(), which()).prop_map(|(end, which)| Operation::Lose { end, which }),
        2 => end().prop_map(|end| Operation::Recv { end }),
        2 => (0u64..300_000).prop_map(|micros| Operation::Wait { micros }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn whatever_happens_all_arrives_once(
        list in prop::collection::vec(operations(), 0..120),
        first_seq in prop_oneof![Just(u32::MAX - 3), any::<u32>()],
    ) {
        let mut world = World::new(first_seq);
        list.into_iter().for_each(|operation| world.apply(operation));
        world.heal();
    }
}

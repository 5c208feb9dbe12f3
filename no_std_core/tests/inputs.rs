//! Whatever comes in: no panic, and a bounded answer.

use proptest::prelude::*;
use unisono_core::plan::{Call, LinkModel, choose, predict, shares};
use unisono_core::schedule::{Aggregators, Nodes, Order, Owners, ROUTE_MAX, Schedule};
use unisono_core::{DType, Kind, Layout, Move, ReduceOp, Route};

fn schedule() -> impl Strategy<Value = Schedule> {
    let simple = prop::sample::select(vec![
        Schedule::Ring,
        Schedule::OneShot,
        Schedule::Binomial,
        Schedule::DoubleTree,
        Schedule::HalvingDoubling,
    ]);
    let weights = prop::collection::vec(any::<u32>(), 1..=128);
    let direct = (any::<prop::sample::Index>(), weights).prop_filter_map("zeros", |(n, w)| {
        Owners::weighted(n.index(w.len()) as u16 + 1, &w).map(Schedule::Direct)
    });
    let star = (1..128u16).prop_map(|a| Schedule::Star(Aggregators::new(a).unwrap()));
    let nodes = prop::collection::vec(0..9u16, 1..=128).prop_map(|n| Nodes::new(&n).unwrap());
    let hierarchical = nodes.clone().prop_map(Schedule::Hierarchical);
    let hub = nodes.prop_map(Schedule::Hub);
    prop_oneof![simple, direct, star, hierarchical, hub]
}

/// Mostly the number of ranks that the schedule was made for, or a number near the limit.
fn ranks(schedule: &Schedule, dice: u16) -> u16 {
    match (schedule, dice % 4) {
        (_, 0) => dice,
        (Schedule::Direct(owners), _) => owners.ranks(),
        (Schedule::Hierarchical(nodes) | Schedule::Hub(nodes), _) => nodes.ranks(),
        _ => dice % 130,
    }
}

fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, any::<u64>(), Just(u64::MAX), Just(1 << 32)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn routes_and_costs_never_panic(
        schedule in schedule(),
        kind in prop::sample::select(Kind::ALL.to_vec()),
        dtype in prop::sample::select(DType::ALL.to_vec()),
        dice: u16,
        (count, chunk_len, chunk) in (any_u64(), any_u64(), any_u64()),
        rank in prop_oneof![0..140u16, any::<u16>()],
        root in prop_oneof![0..4u16, any::<u16>()],
    ) {
        let ranks = ranks(&schedule, dice);
        let layout = Layout { kind, ranks, count, chunk: chunk_len, root };
        let mut moves = heapless::Vec::<Move, ROUTE_MAX>::new();
        let mut route = Route::new(&mut moves);
        schedule.route(&layout, chunk, rank, &mut route);
        prop_assert!(!route.overflowed());
        prop_assert!(route.moves().len() <= usize::from(schedule.route_len(ranks)));
        prop_assert!(rank < schedule.members(ranks) || route.moves().is_empty());
        prop_assert!(schedule.window_hint(ranks) > 0 && schedule.fan_in(kind, ranks) > 0);

        let flow = schedule.flow(&layout, chunk, rank);
        let sends = route.moves().iter().filter(|m| matches!(m, Move::Send { .. })).count();
        let flows = flow.sent.leaf + flow.sent.partial + flow.sent.last;
        prop_assert_eq!(sends as u32, flows);

        let cost = schedule.cost(&layout, dtype);
        prop_assert!(cost.sent_max <= cost.sent_total);
        prop_assert!(cost.folded_max <= cost.received_max);
        let model = [LinkModel { alpha_ns: 1.0, ns_per_byte: 1.0, fold_ns_per_byte: 1.0 }; 128];
        if let Some(p) = predict(&schedule, &layout, dtype, &model) {
            prop_assert!(p.ns.is_finite() && p.ns >= 0.0 && p.fraction().is_finite());
        }
        let call = Call { layout, dtype, op: ReduceOp::Sum, order: Order::Canonical };
        let chosen = choose(std::slice::from_ref(&schedule), &call, &model);
        prop_assert!(chosen.is_none() || schedule.supports(kind, ranks));
    }

    #[test]
    fn shares_of_any_model_add_up(
        ranks in 0..130u16,
        rates in prop::collection::vec((any::<f64>(), 1e-6..1e6f64, any::<f64>()), 0..130),
        wild: bool,
    ) {
        let model: Vec<LinkModel> = rates
            .iter()
            .map(|&(alpha_ns, rate, odd)| LinkModel {
                alpha_ns: if wild { alpha_ns } else { 0.0 },
                ns_per_byte: if wild { odd } else { rate },
                fold_ns_per_byte: if wild { alpha_ns } else { rate / 2.0 },
            })
            .collect();
        let fits = ranks > 0 && usize::from(ranks) <= model.len() && model.len() <= 128;
        match shares(ranks, &model) {
            Some(found) => {
                prop_assert!(fits && found.ns_per_byte >= 0.0);
                let sum: f64 = found.fractions.iter().sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
                prop_assert!(found.owners().is_some());
            }
            None => prop_assert!(wild || !fits),
        }
    }
}

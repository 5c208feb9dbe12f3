//! The planner on groups whose best plan can be worked out by hand.

use unisono_core::plan::{Call, LinkModel, candidates, choose, predict, shares};
use unisono_core::schedule::{Aggregators, Nodes, Order, Owners, Schedule};
use unisono_core::{DType, Kind, Layout, ReduceOp};

/// 240 MB of bytes in chunks of a thousandth of it.
const M: u64 = 240_000_000;

fn link(bandwidth: f64) -> LinkModel {
    LinkModel { alpha_ns: 0.0, ns_per_byte: 1.0 / bandwidth, fold_ns_per_byte: 0.0 }
}

fn links<const K: usize>(bandwidths: [f64; K]) -> [LinkModel; K] {
    bandwidths.map(link)
}

fn layout(kind: Kind, ranks: u16, count: u64, chunk: u64) -> Layout {
    Layout { kind, ranks, count, chunk, root: 0 }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Predicted time of a large all-reduce in units of M.
fn time(schedule: &Schedule, model: &[LinkModel]) -> f64 {
    let layout = layout(Kind::AllReduce, 4, M, M / 2400);
    predict(schedule, &layout, DType::U8, model).unwrap().ns / M as f64
}

#[test]
fn a_slow_rank_should_own_nothing() {
    let model = links([100.0, 100.0, 100.0, 25.0]);
    let best = shares(4, &model).unwrap();
    assert!(near(best.ns_per_byte, 0.040), "{best:?}");
    assert_eq!(best.fractions[3], 0.0);
    assert!(near(best.fractions.iter().sum(), 1.0));
    let owners = best.owners().unwrap();
    assert_eq!(owners.table(), [0, 1, 2]);

    assert!(near(time(&Schedule::Ring, &model), 0.060));
    assert!(near(time(&Schedule::Direct(Owners::equal(4).unwrap()), &model), 0.060));
    // Shares in proportion to the bandwidth are wrong too.
    let proportional = Owners::weighted(4, &[4, 4, 4, 1]).unwrap();
    assert!(time(&Schedule::Direct(proportional), &model) > 0.0461);
    let prediction = time(&Schedule::Direct(owners), &model);
    assert!(near(prediction, 0.040), "{prediction}");
}

#[test]
fn shares_reach_the_closed_form() {
    let mut state = 9u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        10.0 + (state >> 33) as f64 % 90.0
    };
    for n in 2..=40u16 {
        let rates: Vec<f64> = (0..n).map(|_| next()).collect();
        let model: Vec<LinkModel> = rates.iter().map(|&b| link(b)).collect();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let closed = (1.0 / least).max(2.0 * f64::from(n - 1) / rates.iter().sum::<f64>());
        let found = shares(n, &model).unwrap();
        assert!(near(found.ns_per_byte, closed), "N={n}: {} {closed}", found.ns_per_byte);
        // The shares keep everybody within that time.
        for (share, rate) in found.fractions.iter().zip(&rates) {
            let moved = 1.0 + f64::from(n - 2) * share;
            assert!(moved / rate <= closed * (1.0 + 1e-9), "N={n}");
        }
        assert!(near(found.fractions.iter().sum(), 1.0));
    }
}

#[test]
fn aggregators_and_fold_rates_count() {
    // Four equal ranks, one aggregator of eight times their bandwidth: it takes everything it can.
    // 4 (T 100 - 1) / 2 + T 800 / 4 >= 1 and T >= 1/100: at 1/100 the aggregator owns 2 > 1.
    let model = links([100.0, 100.0, 100.0, 100.0, 800.0]);
    let best = shares(4, &model).unwrap();
    assert!(near(best.ns_per_byte, 0.010));
    assert!(near(best.fractions[4], 1.0));
    // An aggregator as fast as a rank: 4 (100 T - 1) / 2 + 25 T = 1, T = 3/225.
    let model = links([100.0; 5]);
    let best = shares(4, &model).unwrap();
    assert!(near(best.ns_per_byte, 3.0 / 225.0));
    assert!(near(best.fractions[4], 75.0 / 225.0));
    let owners = best.owners().unwrap();
    assert!(time(&Schedule::Direct(owners), &model) < 1.02 * best.ns_per_byte);

    // A rank that folds at a tenth of its bandwidth is capped by that: s <= T 10 / 3.
    let mut model = links([100.0; 4]);
    model[0].fold_ns_per_byte = 0.1;
    let best = shares(4, &model).unwrap();
    assert!(near(best.fractions[0], best.ns_per_byte * 10.0 / 3.0));
    assert!(best.fractions[0] < 0.1 && best.fractions[1] > 0.3);
    // All fold slowly: T = 3 M / sum R.
    let model = links([100.0; 4]).map(|l| LinkModel { fold_ns_per_byte: 0.1, ..l });
    assert!(near(shares(4, &model).unwrap().ns_per_byte, 3.0 / 40.0));
}

#[test]
fn shares_of_odd_groups() {
    let alone = shares(1, &links([5.0])).unwrap();
    assert_eq!((alone.ns_per_byte, &alone.fractions[..]), (0.0, &[1.0][..]));
    let alone = shares(1, &links([5.0, 5.0])).unwrap();
    assert_eq!(&alone.fractions[..], [1.0, 0.0]);
    let two = shares(2, &links([10.0, 40.0])).unwrap();
    assert!(near(two.ns_per_byte, 0.1));
    assert!(near(two.fractions.iter().sum(), 1.0));
    assert!(two.owners().is_some());
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(shares(2, &links([10.0, bad])), None, "{bad}");
    }
    assert_eq!(shares(0, &links([1.0])), None);
    assert_eq!(shares(2, &links([1.0])), None);
    assert_eq!(shares(2, &[link(1.0); 129]), None);
}

fn eight() -> Vec<Schedule> {
    vec![
        Schedule::Ring,
        Schedule::Direct(Owners::equal(8).unwrap()),
        Schedule::OneShot,
        Schedule::Binomial,
        Schedule::DoubleTree,
        Schedule::HalvingDoubling,
        Schedule::Star(Aggregators::new(1).unwrap()),
        Schedule::Hierarchical(Nodes::even(8, 4).unwrap()),
    ]
}

fn call(kind: Kind, count: u64, chunk: u64, order: Order) -> Call {
    Call { layout: layout(kind, 8, count, chunk), dtype: DType::F32, op: ReduceOp::Sum, order }
}

#[test]
fn small_messages_want_few_steps_and_large_ones_few_bytes() {
    let model = [LinkModel { alpha_ns: 5_000.0, ns_per_byte: 0.1, fold_ns_per_byte: 0.05 }; 8];
    let all = eight();
    let name = |choice: unisono_core::plan::Choice| all[choice.best.index].name();
    let small = choose(&all, &call(Kind::AllReduce, 64, 4096, Order::Any), &model).unwrap();
    assert_eq!(name(small), "one-shot");
    let large = choose(&all, &call(Kind::AllReduce, 1 << 26, 1 << 16, Order::Any), &model).unwrap();
    assert_eq!(name(large), "direct");
    assert!(large.best.prediction.fraction() > 0.999, "{large:?}");
    // The star is out (no aggregator in the model); of those with as few bytes, 4 steps are next.
    let second = large.runner_up.unwrap();
    assert_eq!(all[second.index].name(), "hierarchical");
    assert!(second.prediction.ns >= large.best.prediction.ns);
}

/// The stated formulas with numbers: steps, busiest place, longest path, and the bound of folding.
#[test]
fn predictions_are_the_stated_formulas() {
    let mut model = [LinkModel { alpha_ns: 7.0, ns_per_byte: 0.5, fold_ns_per_byte: 0.0 }; 8];
    model[2].alpha_ns = 11.0;
    let ns = |s: &Schedule, kind, model: &[LinkModel]| {
        predict(s, &layout(kind, 8, 1000, 1000), DType::F32, model).unwrap()
    };
    // One chunk of 4000 bytes down a chain of seven: the path, not the 4000 bytes of a rank.
    let chain = ns(&Schedule::Ring, Kind::Broadcast, &model);
    assert!(near(chain.ns, 7.0 * 11.0 + 7.0 * 4000.0 * 0.5), "{chain:?}");
    assert!(near(chain.lower_bound_ns, 7.0 + 4000.0 * 0.5), "{chain:?}");
    // One step, but seven values through every rank.
    let shot = ns(&Schedule::OneShot, Kind::AllReduce, &model);
    assert!(near(shot.ns, 11.0 + 7.0 * 4000.0 * 0.5), "{shot:?}");
    // All-reduce: 2 * 7 * 4000 bytes over the bandwidth of eight.
    assert!(near(shot.lower_bound_ns, 7.0 + 2.0 * 7.0 * 4000.0 * 0.5 / 8.0), "{shot:?}");
    // Folding at 10 ns a byte outweighs the wires: 7 values, spread over eight ranks at best.
    let slow = model.map(|l| LinkModel { fold_ns_per_byte: 10.0, ..l });
    let shot = ns(&Schedule::OneShot, Kind::AllReduce, &slow);
    assert!(near(shot.ns, 11.0 + 7.0 * 4000.0 * 10.0), "{shot:?}");
    assert!(near(shot.lower_bound_ns, 7.0 + 7.0 * 4000.0 * 10.0 / 8.0), "{shot:?}");
}

#[test]
fn the_canonical_order_restricts_the_choice() {
    let model = [LinkModel { alpha_ns: 1.0, ns_per_byte: 0.1, fold_ns_per_byte: 0.0 }; 8];
    let all = [Schedule::Ring, Schedule::Binomial, Schedule::DoubleTree];
    let mut call = call(Kind::AllReduce, 1 << 24, 1 << 12, Order::Any);
    let best = |call: &Call| all[choose(&all, call, &model).unwrap().best.index].name();
    assert_eq!(best(&call), "ring");
    call.order = Order::Canonical;
    assert_eq!(best(&call), "binomial");
    assert_eq!(choose(&all, &call, &model).unwrap().runner_up, None);
    call.op = ReduceOp::Max;
    assert_eq!(best(&call), "ring", "exact operators accept every order");
    assert_eq!(choose(&all[..1], &Call { op: ReduceOp::Sum, ..call }, &model), None);
}

#[test]
fn candidates_are_complete_and_the_best_shares_win() {
    let nodes = Nodes::even(4, 2).unwrap();
    let names = |model: &[LinkModel], nodes| {
        let all = candidates(4, model, nodes);
        all.iter().map(Schedule::name).collect::<Vec<_>>()
    };
    let plain = ["direct", "one-shot", "halving-doubling", "binomial", "ring", "double-tree"];
    assert_eq!(names(&links([1.0; 4]), None), plain);
    assert_eq!(names(&links([1.0, 1.0, 1.0, 0.1, 1.0]), Some(&nodes)).len(), 10);
    assert_eq!(names(&links([1.0; 3]), None), [""; 0]);
    assert_eq!(candidates(4, &links([1.0; 4]), Some(&Nodes::even(5, 1).unwrap())).len(), 6);

    let model = links([100.0, 100.0, 100.0, 25.0]);
    let all = candidates(4, &model, None);
    let mut call = call(Kind::AllReduce, M, M / 2400, Order::Canonical);
    call.layout.ranks = 4;
    let choice = choose(&all, &call, &model).unwrap();
    assert!(near(choice.best.prediction.ns, choice.best.prediction.lower_bound_ns));
    assert_eq!(
        all[choice.best.index],
        Schedule::Direct(Owners::weighted(4, &[1, 1, 1, 0]).unwrap())
    );
}

/// No prediction is below the bound, whatever the group; the bound is one number per group.
#[test]
fn nothing_beats_the_lower_bound() {
    let mut reached = 0;
    for kind in Kind::ALL {
        for slow in [1.0, 0.25, 0.01] {
            let mut model =
                [LinkModel { alpha_ns: 10.0, ns_per_byte: 0.1, fold_ns_per_byte: 0.3 }; 9];
            model[3].ns_per_byte /= slow;
            model[5].fold_ns_per_byte *= 4.0;
            for count in [0, 1, 1000, 1 << 30] {
                let mut bound = None;
                for schedule in eight() {
                    let layout = layout(kind, 8, count, 1024);
                    let Some(p) = predict(&schedule, &layout, DType::BF16, &model) else {
                        assert!(!schedule.supports(kind, 8));
                        continue;
                    };
                    assert!(p.ns >= p.lower_bound_ns * (1.0 - 1e-12), "{schedule} {kind} {p:?}");
                    assert_eq!(*bound.get_or_insert(p.lower_bound_ns), p.lower_bound_ns);
                    reached += u32::from(p.fraction() > 0.95);
                }
            }
        }
    }
    assert!(reached > 20, "some schedules come near the bound: {reached}");
}

#[test]
fn what_cannot_run_is_not_predicted() {
    let model = links([1.0; 4]);
    let fine = layout(Kind::AllReduce, 4, 100, 10);
    let predicts =
        |s: &Schedule, l: &Layout, m: &[LinkModel]| predict(s, l, DType::F32, m).is_some();
    assert!(predicts(&Schedule::Ring, &fine, &model));
    assert!(!predicts(&Schedule::Ring, &fine, &model[..3]));
    assert!(!predicts(&Schedule::Star(Aggregators::new(1).unwrap()), &fine, &model));
    assert!(!predicts(&Schedule::Ring, &fine, &links([1.0, 1.0, f64::NAN, 1.0])));
    assert!(!predicts(&Schedule::Ring, &Layout { chunk: 0, ..fine }, &model));
    assert!(!predicts(&Schedule::Ring, &Layout { kind: Kind::AllToAll, ..fine }, &model));
    let rooted = Layout { kind: Kind::Reduce, root: 4, ..fine };
    assert!(!predicts(&Schedule::Ring, &rooted, &model));
    assert_eq!(choose(&[], &call(Kind::AllReduce, 1, 1, Order::Any), &model), None);
}

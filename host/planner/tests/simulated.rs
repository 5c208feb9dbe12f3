//! Predictions against the simulator, which runs the real machines and engines in virtual time.

use unisono_core::plan::LinkModel;
use unisono_core::schedule::{Aggregators, Nodes, Owners};
use unisono_core::{DType, Kind, Layout, Schedule};
use unisono_planner::{Model, Question, replay};
use unisono_sim::net::Nic;
use unisono_sim::scenario::ideal;
use unisono_sim::world::World;

const WINDOW: u16 = 16;

fn schedules(n: u16) -> Vec<Schedule> {
    use Schedule::{Binomial, DoubleTree, HalvingDoubling, OneShot, Ring};
    let mut all = vec![Ring, OneShot, Binomial, DoubleTree, HalvingDoubling];
    all.extend(Owners::equal(n).map(Schedule::Direct));
    all.extend(Aggregators::new(1).map(Schedule::Star));
    all.extend(Aggregators::new(2).map(Schedule::Star));
    all.extend(Nodes::even(n, 2).map(Schedule::Hierarchical));
    all.extend(Nodes::even(n, 2).map(Schedule::Hub));
    all
}

/// Simulated over predicted.
fn quotient(schedule: &Schedule, layout: Layout, nics: &[Nic]) -> f64 {
    let members = usize::from(schedule.members(layout.ranks));
    let nic = |member: usize| nics[member % nics.len()];
    let link = |member: usize| LinkModel {
        alpha_ns: nic(member).alpha_ns as f64,
        ns_per_byte: nic(member).ps_per_byte as f64 / 1e3,
        fold_ns_per_byte: 0.0,
    };
    let model = Model::ports(layout.ranks, &(0..members).map(link).collect::<Vec<_>>());
    let question = Question { schedule, layout, dtype: DType::F32, window: WINDOW, eager: 0 };
    let predicted = replay(&model, &question).expect("it is supported");
    let mut scenario = ideal(schedule.clone(), layout, WINDOW, nics[0]);
    for (member, of) in scenario.members.iter_mut().enumerate() {
        of.nic = nic(member);
    }
    let report = World::new(scenario, false).run(0);
    assert!(report.is_good(), "{schedule}: {:?}", report.complaints);
    report.virtual_ns as f64 / predicted
}

#[test]
fn predictions_are_within_15_percent_of_simulated_times() {
    let nic = |alpha_ns, ps_per_byte| Nic { alpha_ns, ps_per_byte };
    let groups: [&[Nic]; 4] = [
        &[nic(10_000, 1_000)],
        &[nic(1_000, 100)],
        &[nic(50_000, 8_000)],
        &[nic(10_000, 1_000), nic(10_000, 1_000), nic(10_000, 1_000), nic(10_000, 4_000)],
    ];
    let mut off = Vec::new();
    let mut all = Vec::new();
    for n in [2u16, 3, 4, 7, 8] {
        for schedule in schedules(n) {
            for (group, nics) in groups.iter().enumerate() {
                for (count, chunk) in
                    [(16u64, 16u64), (1 << 12, 1 << 8), (1 << 16, 1 << 10)]
                {
                    let kind = Kind::AllReduce;
                    let layout = Layout { kind, ranks: n, count, chunk, root: 0 };
                    let q = quotient(&schedule, layout, nics);
                    all.push((q - 1.0).abs());
                    if !(0.87..=1.15).contains(&q) {
                        off.push(format!("{schedule} N={n} group {group} count {count}/{chunk}: {q:.2}"));
                    }
                }
            }
        }
    }
    all.sort_by(f64::total_cmp);
    println!("median {:.3} p90 {:.3} of {}", all[all.len() / 2], all[all.len() * 9 / 10], all.len());
    assert!(off.is_empty(), "{}: {:#?}", off.len(), off);
}

//! The planner's model against the simulator: a golden table of both, and how far they may differ.

use std::fmt::Write as _;
use unisono_core::plan::{LinkModel, predict};
use unisono_core::schedule::{Aggregators, Nodes, Owners};
use unisono_core::{DType, Kind, Layout, Schedule};
use unisono_sim::net::Nic;
use unisono_sim::scenario::ideal;
use unisono_sim::world::World;

/// 10 us from member to member, 1 GB/s each way.
const NIC: Nic = Nic { alpha_ns: 10_000, ps_per_byte: 1_000 };
const MODEL: LinkModel = LinkModel { alpha_ns: 10_000.0, ns_per_byte: 1.0, fold_ns_per_byte: 0.0 };
/// Elements: 1 MiB.
const COUNT: u64 = 1 << 18;
const CHUNK: u64 = 1 << 12;
const WINDOW: u16 = 16;

/// What is simulated over what is predicted. The model is a lower bound but for its rounding; it
/// leaves out the headers of frames, and that a receiver takes in one message after the other.
const FACTOR_MIN: f64 = 0.99;
const FACTOR_MAX: f64 = 1.5;

fn schedules(n: u16) -> Vec<Schedule> {
    use Schedule::{Binomial, DoubleTree, HalvingDoubling, OneShot, Ring};
    let mut all = vec![Ring, OneShot, Binomial, DoubleTree, HalvingDoubling];
    all.extend(Owners::equal(n).map(Schedule::Direct));
    all.extend(Aggregators::new(2).map(Schedule::Star));
    all.extend(Nodes::even(n, 2).map(Schedule::Hierarchical));
    all.extend(Nodes::even(n, 2).map(Schedule::Hub));
    all
}

/// Simulated and predicted nanoseconds.
fn times(schedule: &Schedule, n: u16) -> (u64, f64) {
    let layout = Layout { kind: Kind::AllReduce, ranks: n, count: COUNT, chunk: CHUNK, root: 0 };
    let model = vec![MODEL; usize::from(schedule.members(n))];
    let predicted = predict(schedule, &layout, DType::F32, &model).expect("it is supported");
    let report = World::new(ideal(schedule.clone(), layout, WINDOW, NIC), false).run(0);
    assert!(report.is_good(), "{schedule} over {n}: {:?}", report.complaints);
    (report.virtual_ns, predicted.ns)
}

#[test]
fn the_model_predicts_the_simulated_times() {
    let mut table = String::from(
        "All-reduce of 262144 f32 (1 MiB) in chunks of 16 KiB, 16 in flight, 10 us and 1 GB/s.\n\
         Microseconds, simulated and predicted, and their quotient.\n\n\
         schedule          N    simulated    predicted  quotient\n",
    );
    for n in [2, 4, 8] {
        for schedule in schedules(n) {
            let (simulated, predicted) = times(&schedule, n);
            let (s, p) = (simulated as f64 / 1e3, predicted / 1e3);
            let name = schedule.name();
            let fits = (FACTOR_MIN..=FACTOR_MAX).contains(&(s / p));
            assert!(fits, "{name} over {n} takes {s:.1} us, the planner says {p:.1}");
            writeln!(table, "{name:<16} {n:>2} {s:>12.1} {p:>12.1} {:>9.2}", s / p)
                .expect("string");
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/times.txt");
    if std::env::var_os("UNISONO_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(path, &table).expect("golden file can be written");
    }
    let golden = std::fs::read_to_string(path).expect("golden file exists");
    assert!(table == golden, "times differ; UNISONO_BLESS=1 accepts:\n{table}");
}

//! Choices on groups whose best plan can be worked out by hand.

use unisono_core::plan::LinkModel;
use unisono_core::schedule::Owners;
use unisono_core::{DType, Kind, Schedule};
use unisono_planner::{
    Candidate, Cut, Link, LinkKind, Member, Model, Table, Timing, Topology, candidates, forecast,
    label,
};

const CUT: Cut = Cut { chunk: [1 << 10, 256 << 10], window: 16, eager: 256 << 10 };

/// Ports of these bytes per nanosecond, without any time on the way.
fn ports(ranks: u16, rates: &[f64]) -> Model {
    let link =
        |rate: &f64| LinkModel { alpha_ns: 0.0, ns_per_byte: 1.0 / rate, fold_ns_per_byte: 0.0 };
    Model::ports(ranks, &rates.iter().map(link).collect::<Vec<_>>())
}

fn best(model: &Model, bytes: u64) -> (Candidate, f64) {
    let all = candidates(model);
    let found = forecast(model, &all, &CUT, Kind::AllReduce, DType::F32, bytes);
    let best = found.candidates.into_iter().find(|c| c.canonical).expect("a schedule");
    (best, found.bound)
}

fn member(host: usize) -> Member {
    let (device, numa) = ("cpu".into(), None);
    let (fold, send, receive) = (1e11, 1e10, 1e10);
    Member {
        host: format!("host{host}"),
        device,
        numa,
        data: true,
        fold,
        send,
        receive,
        both: None,
    }
}

/// Two hosts with a wire of 1 GB/s between them and 10 GB/s inside.
fn two_hosts(kind: LinkKind, per_host: usize) -> Topology {
    let count = 2 * per_host;
    let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let link = |(a, b): (usize, usize)| {
        let near = a / per_host == b / per_host;
        let (from, to) = (a as u16, b as u16);
        let (kind, alpha, rate) =
            if near { (kind, 1e-6, 1e10) } else { (LinkKind::Tcp, 2e-5, 1e9) };
        Link { from, to, kind, alpha, rate, message: None }
    };
    let members = (0..count).map(|rank| member(rank / per_host)).collect();
    Topology::new(members, pairs.map(link).collect()).expect("it makes sense")
}

/// Time of a schedule in units of the tensor over 1 byte a nanosecond.
fn in_m(model: &Model, schedule: Schedule, bytes: u64) -> f64 {
    let found = forecast(model, &[schedule], &CUT, Kind::AllReduce, DType::F32, bytes);
    found.candidates[0].ns / bytes as f64
}

#[test]
fn a_slow_rank_owns_nothing_and_the_rest_is_shared() {
    // Rates of {100, 100, 100, 25}: optimal shares take 0.040 M, equal ones 0.060 M.
    let bytes = 240_000_000;
    let model = ports(4, &[100.0, 100.0, 100.0, 25.0]);
    let shares = Schedule::Direct(Owners::weighted(4, &[1, 1, 1, 0]).expect("owners"));
    assert!(candidates(&model).contains(&shares));
    let (best, bound) = best(&model, bytes);
    let near = |time: f64, want: f64| (time / want - 1.0).abs() < 0.02;
    assert!(near(bound / bytes as f64, 0.04), "{bound}");
    assert!(near(best.ns / bytes as f64, 0.04), "{}", best.ns);
    assert!(near(in_m(&model, shares, bytes), 0.04));
    let equal = Schedule::Direct(Owners::equal(4).expect("owners"));
    assert!(near(in_m(&model, equal, bytes), 0.06));
    assert!(near(in_m(&model, Schedule::Ring, bytes), 0.06));
    // In proportion to the rates is wrong, too: 0.0462 M at best.
    let rates = Schedule::Direct(Owners::weighted(4, &[4, 4, 4, 1]).expect("owners"));
    assert!(in_m(&model, rates, bytes) > 0.0455);
}

#[test]
fn an_aggregator_takes_what_spares_the_ranks() {
    // As fast as a rank: T = 3/225 M instead of 1.5/100 (see the shares' own tests).
    let bytes = 225_000_000;
    let (with, _) = best(&ports(4, &[0.1; 5]), bytes);
    let (without, _) = best(&ports(4, &[0.1; 4]), bytes);
    assert_eq!(with.schedule.members(4), 5);
    let want = 3.0 / 225.0 * bytes as f64 * 1e3;
    assert!((with.ns / want - 1.0).abs() < 0.03, "{} {want}", with.ns);
    assert!(without.ns > with.ns * 1.1);
}

#[test]
fn slow_wires_between_hosts_want_a_hierarchy() {
    for kind in [LinkKind::SharedMemory, LinkKind::Tcp] {
        let model = Model::new(&two_hosts(kind, 4));
        let nodes = model.nodes().expect("two hosts");
        assert_eq!((nodes.count(), nodes.ranks()), (2, 8));
        let found =
            forecast(&model, &candidates(&model), &CUT, Kind::AllReduce, DType::F32, 64 << 20);
        // Half of the nodes' sums go out of each host, and half of the results: once the tensor in
        // each direction. A binomial tree's last step does the same; what knows no hosts goes
        // over the wire several times.
        let wire = (64u64 << 20) as f64;
        let of = |name: &str| {
            let candidate = found.candidates.iter().find(|c| c.schedule.name() == name);
            candidate.expect(name).ns / wire
        };
        let best = found.candidates[0].ns / wire;
        assert!(best > 0.99 && best < 1.1, "{kind:?}: {best}");
        assert!(of("hierarchical") < best * 1.05, "{kind:?}: {}", of("hierarchical"));
        assert!(
            of("direct") > 1.8 && of("ring") > 1.5,
            "{kind:?}: {} {}",
            of("direct"),
            of("ring")
        );
    }
    // Ranks in turns on two hosts are no subtrees, so that hierarchy has another order.
    let mut topology = two_hosts(LinkKind::SharedMemory, 2);
    topology.members.swap(1, 2);
    let found = Model::new(&topology).nodes().expect("two hosts");
    assert!(!found.is_canonical());
}

#[test]
fn fast_links_divide_ranks_if_hosts_do_not() {
    let mut topology = two_hosts(LinkKind::Tcp, 2);
    topology.members.iter_mut().for_each(|member| member.host = "same".into());
    let nodes = Model::new(&topology).nodes().expect("two clusters");
    assert_eq!(nodes.node_of(), [0, 0, 1, 1]);
    topology.links.iter_mut().for_each(|link| link.rate = 1e9);
    assert_eq!(Model::new(&topology).nodes(), None);
}

#[test]
fn tables_hold_what_is_fastest_and_are_the_same_everywhere() {
    let model = Model::new(&two_hosts(LinkKind::SharedMemory, 2));
    let table = Table::new(&model, &CUT);
    assert_eq!(table, Table::new(&model, &CUT));
    assert_eq!(table.fingerprint(), Table::new(&model, &CUT).fingerprint());
    let all = candidates(&model);
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Barrier) {
        for any in [false, true] {
            let rows = table.rows(kind, any);
            assert!(rows.is_sorted_by(|a, b| a.from < b.from) && !rows.is_empty(), "{kind}");
            for row in rows {
                assert!(row.schedule.supports(kind, 4), "{kind}");
                assert!(any || row.schedule.is_canonical(kind, 4), "{kind} by {}", row.schedule);
                let found = forecast(&model, &all, &CUT, kind, DType::F32, row.from);
                let best = found.candidates.iter().find(|c| any || c.canonical);
                assert_eq!(best.map(|c| &c.schedule), Some(&row.schedule), "{kind} {}", row.from);
            }
        }
        // A size between two rows has the lower one's, and one below all the first.
        assert_eq!(table.find(kind, true, 0), table.rows(kind, true).first());
        assert_eq!(table.find(kind, true, u64::MAX), table.rows(kind, true).last());
    }
    assert_eq!(table.find(Kind::Barrier, true, 0), None);
    // Another wire, another table.
    let mut slower = two_hosts(LinkKind::SharedMemory, 2);
    slower.links.iter_mut().for_each(|link| link.alpha *= 1000.0);
    assert_ne!(Table::new(&Model::new(&slower), &CUT).fingerprint(), table.fingerprint());
}

#[test]
fn shares_stay_whole_between_two_rows() {
    let table = Table::new(&ports(4, &[1.0; 4]), &CUT);
    for bytes in (8..4_000_000u64).step_by(4099) {
        let row = table.find(Kind::AllReduce, false, bytes).expect("a row");
        let chunk = row.chunk_of(bytes);
        let pieces = |bytes: u64, chunk: u64| bytes.div_ceil(chunk);
        if bytes < 2 * row.from {
            assert_eq!(pieces(bytes, chunk), pieces(row.from, row.chunk), "{bytes}: {row:?}");
        } else {
            assert!(chunk == row.chunk && pieces(bytes, chunk) > 64, "{bytes}: {row:?}");
        }
    }
}

/// Tables are made when a group is built, so they have to be quick also for large ones.
#[test]
fn a_table_of_a_large_group_takes_seconds_at_most() {
    let started = std::time::Instant::now();
    let table = Table::new(&Model::new(&two_hosts(LinkKind::Tcp, 16)), &CUT);
    assert!(!table.rows(Kind::AllReduce, false).is_empty());
    // A hang guard.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    println!("{:?}", started.elapsed());
}

/// Whoever cannot send and receive at once takes twice as long; messages take their time.
#[test]
fn one_way_at_a_time_and_time_for_each_message() {
    let link = |(from, to)| {
        let (kind, alpha, rate) = (LinkKind::Tcp, 1e-6, 1e10);
        Link { from, to, kind, alpha, rate, message: None }
    };
    let links = [(0, 1), (1, 0)].map(link).to_vec();
    let plain = Topology::new(vec![member(0), member(0)], links).expect("it makes sense");
    let direct = || Schedule::Direct(Owners::equal(2).expect("ranks"));
    let mut slow = plain.clone();
    slow.members.iter_mut().for_each(|member| member.both = Some(member.send));
    let [one, other] = [&plain, &slow].map(|t| in_m(&Model::new(t), direct(), 64 << 20));
    assert!((1.8..2.1).contains(&(other / one)), "{one} {other}");

    let mut chatty = plain.clone();
    chatty.links.iter_mut().for_each(|link| link.message = Some(2e-5));
    let [one, other] =
        [&plain, &chatty].map(|t| (1 << 20) as f64 * in_m(&Model::new(t), direct(), 1 << 20));
    // Two chunks and two results each way, one after the other.
    assert!((6e4..2e5).contains(&(other - one)), "{one} {other}");
}

/// What a call took beyond what was played of it counts from then on, for choices too.
#[test]
fn measured_calls_correct_forecasts_and_choices() {
    let topology = two_hosts(LinkKind::Tcp, 2);
    let all = candidates(&Model::new(&topology));
    let of = |topology: &Topology, kind, bytes| {
        forecast(&Model::new(topology), &all, &CUT, kind, DType::F32, bytes)
    };
    let before = of(&topology, Kind::AllReduce, 1 << 20);
    let first = before.candidates[0].clone();
    // As fast as forecast up to 64 KiB, then slower and slower, up to 9 times as slow.
    let timing = |bytes: u64, factor: f64| {
        let schedule = label(&first.schedule).to_owned();
        Timing { schedule, bytes, forecast: 1e-3, time: 1e-3 * factor }
    };
    let timings = vec![timing(64 << 10, 1.0), timing((2 << 20) - (64 << 10), 9.0)];
    let timed = topology.clone().with_timings(timings).expect("they make sense");
    let after = of(&timed, Kind::AllReduce, 1 << 20);
    assert_ne!(after.candidates[0].schedule, first.schedule);
    let again =
        after.candidates.iter().find(|c| c.schedule == first.schedule).expect("still there");
    assert!((again.ns / first.ns - 5.0).abs() < 1e-9, "halfway between 1 and 9");
    // Others, other collectives and smaller sizes are what they were.
    for (kind, bytes) in [(Kind::ReduceScatter, 1 << 20), (Kind::AllReduce, 64 << 10)] {
        assert_eq!(of(&timed, kind, bytes), of(&topology, kind, bytes));
    }
    let rest = |forecast: &unisono_planner::Forecast| -> Vec<Candidate> {
        let rest = forecast.candidates.iter().filter(|c| c.schedule != first.schedule);
        rest.cloned().collect()
    };
    assert_eq!(rest(&after), rest(&before));
    // The table chooses alike.
    let row = |topology: &Topology| {
        let table = Table::new(&Model::new(topology), &CUT);
        table.find(Kind::AllReduce, true, 1 << 20).map(|row| row.schedule.clone())
    };
    assert_eq!(row(&topology), Some(first.schedule.clone()));
    assert_eq!(row(&timed), Some(after.candidates[0].schedule.clone()));
    // Faster than links and folds: the bound gives way.
    let fast = before.candidates.iter().map(|c| Timing {
        schedule: label(&c.schedule).to_owned(),
        bytes: 8,
        forecast: 1e-3,
        time: 1e-5,
    });
    let fast = topology.with_timings(fast.collect()).expect("they make sense");
    let found = of(&fast, Kind::AllReduce, 1 << 20);
    assert_eq!(found.bound, found.candidates[0].ns);
    assert_eq!(Topology::parse(&fast.text()), Ok(fast), "timings are in the file");
}

//! Groups with an emulated board in them. Needs QEMU and the boards' images (`UNISONO_BOARDS`);
//! `cargo xtask test --only boards` brings both.

#[path = "../processes/job.rs"]
#[allow(dead_code, reason = "the tests of processes without boards use all of it")]
mod job;
mod processes;
#[cfg(target_os = "linux")]
mod tool;

use std::process::{Child, Command};
use std::time::{Duration, Instant};
use unisono::device::{Dpu, DpuSpec};
use unisono::schedule::Nodes;
use unisono::{
    Avg, Call, DType, DeviceSpec, Error, Group, GroupBuilder, Kind, Member, Order, Schedule, Sum,
    bf16,
};

/// A hang guard: no call takes a thousandth of it on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(120);

fn spec(text: &str) -> DpuSpec {
    match text.parse() {
        Ok(DeviceSpec::Dpu(spec)) => spec,
        other => panic!("{text}: {other:?}"),
    }
}

fn start(text: &str, members: u16) -> Dpu {
    Dpu::start(&spec(text), members, TIMEOUT).expect("an image, and QEMU")
}

/// CPU ranks and this board.
fn group(cpus: usize, board: &Dpu) -> Group {
    let builder = Group::builder().cpus(cpus).board(board.clone()).timeout(TIMEOUT);
    builder.build().expect("it joins")
}

/// Deterministic values whose sums have to be rounded.
fn value(rank: u16, i: usize) -> f32 {
    let x = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(u32::from(rank) * 40_503);
    (x >> 8) as f32 / 65_536.0 - 100.0
}

fn tensor(rank: u16, count: usize) -> Vec<f32> {
    (0..count).map(|i| value(rank, i)).collect()
}

/// The sum of three ranks in canonical order.
fn sum_of_3(i: usize) -> u32 {
    ((value(0, i) + value(1, i)) + value(2, i)).to_bits()
}

fn bits(tensor: &[f32]) -> Vec<u32> {
    tensor.iter().map(|x| x.to_bits()).collect()
}

fn sums_of_3(count: usize) -> Vec<u32> {
    (0..count).map(sum_of_3).collect()
}

/// Calls that go through the board and calls that do not, one after the other, on the same group;
/// then another group with the same board.
#[test]
fn an_aggregator_has_a_part_in_what_reduces() {
    let board = start("dpu:qemu-aarch64", 4);
    for count in [1, 1000, 50_000] {
        let mut group = group(3, &board);
        let results = group.run(|member| {
            let through = |kind| {
                let op = Some(Sum);
                let plan = member.plan(&Call { op, ..Call::new(kind, DType::F32, 9) });
                plan.map(|plan| matches!(plan.schedule, Schedule::Star(_)))
            };
            assert_eq!(through(Kind::AllReduce), Ok(true));
            assert_eq!(through(Kind::AllToAll), Ok(false));
            if member.rank() >= 3 {
                let all = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, count) };
                member.run_in_place(&all, &mut [])?;
                member.run_apart(&Call::new(Kind::AllToAll, DType::F32, count), &[], &mut [])?;
                member.run_in_place(&all, &mut [])?;
                member.barrier()?;
                let scatter = Call { kind: Kind::ReduceScatter, ..all };
                member.run_apart(&scatter, &[], &mut [])?;
                return Ok(Vec::new());
            }
            let n = count as usize;
            let mut a = tensor(member.rank(), n);
            member.all_reduce(&mut a, Sum)?;
            let blocks = tensor(member.rank(), 3 * n);
            let mut exchanged = vec![0f32; 3 * n];
            member.all_to_all(&blocks, &mut exchanged)?;
            for (block, part) in (0u16..).zip(exchanged.chunks(n)) {
                let first = usize::from(member.rank()) * n;
                let want: Vec<_> = (first..first + n).map(|i| value(block, i)).collect();
                assert_eq!(bits(part), bits(&want));
            }
            let mut b = vec![0f32; n];
            member.all_reduce_into(&tensor(member.rank(), n), &mut b, Sum)?;
            member.barrier()?;
            let mut c = vec![0f32; n];
            member.reduce_scatter(&blocks, &mut c, Sum)?;
            let first = usize::from(member.rank()) * n;
            let want: Vec<u32> = (first..first + n).map(sum_of_3).collect();
            assert_eq!(bits(&c), want);
            assert_eq!(bits(&a), bits(&b));
            Ok::<_, Error>(a)
        });
        let results = results.expect("all calls");
        for result in &results[..3] {
            assert_eq!(bits(result), sums_of_3(count as usize));
        }
    }
}

/// A board that is a rank has the bits of a CPU rank, whatever the type and the schedule.
#[test]
fn a_board_can_be_a_rank() {
    let board = start("dpu:qemu-aarch64:rank", 3);
    let schedules = [None, Some(Schedule::Ring), Some(Schedule::HalvingDoubling)];
    for schedule in schedules {
        // The same chunks: in some schedules the order of a fold depends on the chunk.
        let build = |builder: GroupBuilder| {
            let builder = builder.timeout(TIMEOUT).order(Order::Any).chunk(1000);
            let builder = match schedule.clone() {
                Some(schedule) => builder.schedule(schedule),
                None => builder,
            };
            builder.build().expect("it joins")
        };
        let mut cpus = build(Group::builder().cpus(3));
        let mut mixed =
            build(Group::builder().cpus(1).board(board.clone()).device(DeviceSpec::Cpu));
        let work = |group: &mut Group| {
            group.run(|member| {
                let mut floats = tensor(member.rank(), 10_001);
                member.all_reduce(&mut floats, Sum)?;
                let mut halves: Vec<bf16> =
                    tensor(member.rank(), 777).into_iter().map(bf16::from_f32).collect();
                member.all_reduce(&mut halves, Avg)?;
                let mut all = vec![0f32; 3 * 500];
                member.all_gather(&tensor(member.rank(), 500), &mut all)?;
                member.broadcast(&mut floats, 1)?;
                let halves: Vec<u16> = halves.iter().map(|x| x.to_bits()).collect();
                Ok::<_, Error>((bits(&floats), halves, bits(&all)))
            })
        };
        let (mixed, cpus) = (work(&mut mixed).expect("mixed"), work(&mut cpus).expect("CPUs"));
        assert!(mixed == cpus, "{schedule:?}");
    }
}

/// Where nodes meet at a board, all ranks have the bits that they have with a CPU in its place; if
/// the nodes are subtrees of the canonical tree, those of the reference.
#[test]
fn nodes_meet_at_a_board() {
    const COUNT: usize = 10_001;
    let board = start("dpu:qemu-aarch64", 5);
    let want = |i: usize| (value(0, i) + value(1, i)) + (value(2, i) + value(3, i));
    let want: Vec<u32> = (0..COUNT).map(|i| want(i).to_bits()).collect();
    for nodes in [[0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]] {
        let hub = Schedule::Hub(Nodes::new(&nodes).expect("four ranks"));
        let canonical = hub.is_canonical(Kind::AllReduce, 4);
        let order = if canonical { Order::Canonical } else { Order::Any };
        let work = |builder: GroupBuilder| {
            let builder = builder.schedule(hub.clone()).order(order).timeout(TIMEOUT);
            let mut group = builder.build().expect("it joins");
            group.run(through_a_hub::<COUNT>).expect("all calls")
        };
        let board = work(Group::builder().cpus(4).board(board.clone()));
        assert!(board == work(Group::builder().cpus(4)), "{nodes:?}");
        let as_wanted = board[..4].iter().all(|(sums, ..)| *sums == want);
        assert!(as_wanted || !canonical, "{nodes:?}");
    }
}

/// What a member has after some calls.
type Results = (Vec<u32>, Vec<u16>, Vec<u32>);

/// Calls of a member of four ranks and a hub; the last has no data.
fn through_a_hub<const COUNT: usize>(member: &mut Member) -> Result<Results, Error> {
    let rank = member.rank();
    let mine = |count: usize| if rank < 4 { count } else { 0 };
    let of = |kind, dtype, count: usize| Call::new(kind, dtype, count as u64);
    let mut floats = tensor(rank, mine(COUNT));
    let sum = Call { op: Some(Sum), ..of(Kind::AllReduce, DType::F32, COUNT) };
    member.in_place(&sum, &mut floats)?;
    // Sums of nodes travel in twice as many bytes.
    let halves = tensor(rank, mine(COUNT));
    let mut halves: Vec<bf16> = halves.into_iter().map(bf16::from_f32).collect();
    let mean = Call { op: Some(Avg), ..of(Kind::AllReduce, DType::BF16, COUNT) };
    member.in_place(&mean, &mut halves)?;
    let mut part = vec![0f32; mine(777)];
    let scatter = Call { op: Some(Sum), ..of(Kind::ReduceScatter, DType::F32, 777) };
    member.apart(&scatter, &tensor(rank, mine(4 * 777)), &mut part)?;
    let mut all = vec![0f32; mine(4 * 777)];
    member.apart(&of(Kind::AllGather, DType::F32, 777), &part, &mut all)?;
    let root = Call { root: 2, ..of(Kind::Broadcast, DType::F32, 4 * 777) };
    // Only the root has what the root sends.
    all.rotate_left(mine(usize::from(rank)));
    member.in_place(&root, &mut all)?;
    member.in_place(&Call { kind: Kind::Reduce, op: Some(Sum), ..root }, &mut all)?;
    let halves = halves.iter().map(|x| x.to_bits()).collect();
    // After a reduce, only the root's output says something.
    Ok((bits(&floats), halves, if rank == 2 { bits(&all) } else { Vec::new() }))
}

/// A tensor that the board has no room for is an error at once on all ranks, that names the board;
/// the group goes on.
#[test]
fn a_tensor_that_does_not_fit_the_board_is_refused() {
    let board = start("dpu:qemu-aarch64:rank", 2);
    let mut group = group(1, &board);
    let started = Instant::now();
    let large = 40 << 20;
    let error = group.run(|member| member.all_reduce(&mut vec![0f32; large], Sum));
    let error = error.expect_err("too large").to_string();
    assert!(error.contains("board qemu-aarch64: its tensor memory has"), "{error}");
    assert!(started.elapsed() < TIMEOUT / 2, "{:?}", started.elapsed());
    let sums = group.run(|member| {
        let mut x = [f32::from(member.rank()); 9];
        member.all_reduce(&mut x[..], Sum).map(|()| x[8])
    });
    assert_eq!(sums.expect("the group goes on"), [1.0, 1.0]);
}

/// 64 MiB through an aggregator whose slots have 64 KiB.
#[test]
fn any_size_streams_through_the_slots() {
    let board = start("dpu:qemu-aarch64", 3);
    assert_eq!(board.identity().scratch, 64 << 10);
    let mut group = group(2, &board);
    let count = 16 << 20;
    let mut tensors: Vec<Vec<f32>> = (0..2).map(|rank| tensor(rank, count)).collect();
    group
        .all_reduce(&mut tensors.iter_mut().collect::<Vec<_>>(), Sum)
        .expect("64 MiB are many chunks and nothing else");
    for tensor in &tensors {
        let right = |(i, x): (usize, &f32)| x.to_bits() == (value(0, i) + value(1, i)).to_bits();
        assert_eq!(tensor.iter().enumerate().position(|at| !right(at)), None);
    }
}

/// A board that dies in a call is an error that names it, and every rank gets it in time.
#[test]
fn a_board_that_dies_is_named() {
    let board = start("dpu:qemu-aarch64", 3);
    let mut group = group(2, &board);
    let pid = board.pid().expect("it was started here").to_string();
    let error = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            Command::new("kill").args(["-KILL", &pid]).status().expect("there is a kill");
        });
        let mut tensors = vec![vec![1f32; 32 << 20]; 2];
        group.all_reduce(&mut tensors.iter_mut().collect::<Vec<_>>(), Sum)
    });
    let error = error.expect_err("it is dead").to_string();
    assert!(error.contains("board qemu-aarch64: it is gone"), "{error}");
    assert!(error.contains("signal: 9"), "{error}");
    // Nor does it come back.
    let mut tensors = vec![vec![1f32; 4]; 2];
    let again = group.all_reduce(&mut tensors.iter_mut().collect::<Vec<_>>(), Sum);
    assert!(again.is_err(), "{again:?}");
}

/// A board that runs before the group and after it, behind a file that both have mapped.
#[test]
fn a_board_that_runs_already_is_attached_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("window");
    std::fs::write(&file, vec![0; 8 << 20]).expect("written");
    let images = std::env::var_os("UNISONO_BOARDS").expect("a folder of images");
    let mut program = Command::new("qemu-aarch64");
    program.arg(std::path::Path::new(&images).join("dpu_linux")).arg(&file);
    let _card = Card(program.spawn().expect("qemu-aarch64 is installed"));
    for role in ["", ":rank"] {
        let board = start(&format!("dpu:file:{}{role}", file.display()), 3);
        assert_eq!(board.pid(), None);
        let mut group = group(2, &board);
        let sums = group.run(|member| {
            let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, 10_000) };
            let count = if role.is_empty() && member.rank() == 2 { 0 } else { 10_000 };
            let mut x = vec![f32::from(member.rank()) + 1.0; count];
            member.in_place(&call, &mut x).map(|()| x)
        });
        let sum = if role.is_empty() { 3.0 } else { 6.0 };
        for sums in &sums.expect("all of them")[..2] {
            assert_eq!(sums[..], [sum; 10_000]);
        }
    }
}

/// A program that ends with its test, whatever becomes of that.
struct Card(Child);

impl Drop for Card {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One board, one group at a time; and boards with room for as many calls.
#[test]
fn groups_that_cannot_be_are_refused() {
    let board = start("dpu:qemu-riscv64", 3);
    let first = group(2, &board);
    let build = |boards: &[&Dpu]| {
        let builder = Group::builder().cpus(2);
        let builder = boards.iter().fold(builder, |b, board| b.board((*board).clone()));
        builder.build().err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(build(&[&board]).contains("is in another group already"), "{}", build(&[&board]));
    drop(first);
    assert_eq!(build(&[&board]), "");
    let other = start("dpu:qemu-cortex-m", 4);
    let two = build(&[&board, &other]);
    assert!(two.contains("dpu:qemu-cortex-m have room for different numbers of calls"), "{two}");
    let ring = Group::builder().cpus(2).board(board.clone()).schedule(Schedule::Ring).build();
    let ring = ring.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(ring.contains("ring has no place for"), "{ring}");
    let many = Group::builder().cpus(20).board(board).build();
    let many = many.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(many.contains("takes part in groups of up to 9 members"), "{many}");
}

/// A board's room bounds how many calls are in flight, on every rank.
#[test]
fn calls_in_flight_are_as_many_as_the_board_has_room_for() {
    let board = start("dpu:qemu-aarch64", 3);
    let calls = usize::from(board.identity().calls);
    let mut group = group(2, &board);
    let done = group.run(|member| {
        let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, 5000) };
        // The board has no tensor.
        let count = if member.rank() < 2 { 5000 } else { 0 };
        let mut pending = Vec::new();
        for of in 0..calls {
            pending.push(member.start(&call, vec![of as f32; count])?);
        }
        let busy = member.start(&call, vec![0f32; count]).err();
        assert_eq!(busy, Some(Error::Busy(calls)));
        let results: Result<Vec<_>, _> = pending.into_iter().map(|p| member.wait(p)).collect();
        results
    });
    for results in &done.expect("all calls")[..2] {
        for (of, result) in results.iter().enumerate() {
            assert_eq!(result[..], vec![2.0 * of as f32; 5000]);
        }
    }
}

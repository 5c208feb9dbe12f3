//! Results of mixed groups, bit by bit against the scalar reference.

use crate::data::{bits, build, noise, orders, reference};
use unisono::schedule::{Aggregators, Nodes, Owners};
use unisono::{Avg, DeviceSpec, Element, Error, F8E4M3, F8E5M2, Group, Max, Min, Opened, Order};
use unisono::{Prod, ReduceOp, Schedule, Sum, bf16, f16, opencl, vulkan};

const MIXED: &str = "cpu,vulkan:0,opencl:0,cpu";

/// All-reduce of host slices, and of tensors in the devices' memory.
fn check<T: Element>(group: &mut Group, op: ReduceOp, len: usize) {
    let inputs: Vec<Vec<T>> =
        (0..u64::from(group.ranks())).map(|rank| noise(rank + 7, len)).collect();
    let want = reference(op, &inputs);
    let slices = group.run(|member| {
        let mut own = inputs[usize::from(member.rank())].clone();
        member.all_reduce(&mut own, op)?;
        Ok::<_, Error>(own)
    });
    for (rank, got) in slices.expect("slices").iter().enumerate() {
        assert!(bits(got) == want, "{op} of {len} {} in a slice of {rank}", T::DTYPE);
    }
    let tensors = group.run(|member| {
        let mut own = member.tensor(len)?;
        own.write(&inputs[usize::from(member.rank())])?;
        member.all_reduce(&mut own, op)?;
        own.to_vec()
    });
    for (rank, got) in tensors.expect("tensors").iter().enumerate() {
        assert!(bits(got) == want, "{op} of {len} {} in a tensor of {rank}", T::DTYPE);
    }
}

#[test]
fn sums_of_all_sizes() {
    // Shares for all: software devices would get none beside CPU ranks on every core.
    let mut group = build(Group::builder().on(MIXED).rates(vec![1e9; 4]));
    for len in [0, 1, 2, 3, 17, 1000, 1025, 70_001, 1 << 20] {
        check::<f32>(&mut group, Sum, len);
    }
}

#[test]
fn small_types() {
    let mut group = build(Group::builder().on(MIXED).rates(vec![1e9; 4]));
    check::<bf16>(&mut group, Avg, 100_003);
    check::<F8E4M3>(&mut group, Sum, 100_003);
    check::<f16>(&mut group, Max, 33);
    check::<i64>(&mut group, Sum, 5001);
    check::<u8>(&mut group, Avg, 5001);
    check::<F8E5M2>(&mut group, Prod, 5001);
    check::<f64>(&mut group, Min, 5001);
}

/// Every rank's result of one sum.
fn sums<T: Element>(
    on: &str,
    schedule: &Schedule,
    order: Order,
    inputs: &[Vec<T>],
) -> Result<Vec<Vec<u8>>, Error> {
    let builder = Group::builder().on(on).schedule(schedule.clone()).order(order).chunk(700);
    let mut group = build(builder);
    let tensor = |(rank, input): (u16, &Vec<T>)| {
        let mut tensor = group.tensor(rank, input.len())?;
        tensor.write(input).map(|()| tensor)
    };
    let mut tensors = (0..).zip(inputs).map(tensor).collect::<Result<Vec<_>, _>>()?;
    group.all_reduce(&mut tensors.iter_mut().collect::<Vec<_>>(), Sum)?;
    tensors.iter().map(|tensor| Ok(bits(&tensor.to_vec()?).to_vec())).collect()
}

/// Four CPU ranks and every order of CPU, Vulkan and OpenCL ranks, by every schedule.
fn everywhere<T: Element>() {
    let inputs: Vec<Vec<T>> = (0..4).map(|rank| noise(rank + 20, 2801)).collect();
    let canonical = reference(Sum, &inputs);
    let schedules = [
        Schedule::Direct(Owners::equal(4).expect("four")),
        Schedule::OneShot,
        Schedule::Binomial,
        Schedule::HalvingDoubling,
        Schedule::Star(Aggregators::new(1).expect("one")),
        Schedule::Hierarchical(Nodes::even(4, 2).expect("two nodes")),
        Schedule::Ring,
        Schedule::DoubleTree,
    ];
    for schedule in &schedules {
        let own = matches!(schedule, Schedule::Ring | Schedule::DoubleTree);
        let order = if own { Order::Any } else { Order::Canonical };
        // A schedule with an order of its own has its own bits, and has them everywhere.
        let on_cpus =
            || sums("cpu:4", schedule, order, &inputs).expect("sums on CPUs").swap_remove(0);
        let want = if own { on_cpus() } else { canonical.clone() };
        for on in orders() {
            let got = sums(&on, schedule, order, &inputs).expect("sums");
            for (rank, got) in got.iter().enumerate() {
                assert!(*got == want, "{} of {on} on {rank} by {}", T::DTYPE, schedule.name());
            }
        }
    }
}

/// NaN, infinities and subnormals, too.
#[test]
fn rare_values_in_every_order_by_every_schedule() {
    // Open all the time: opening tests a device.
    let open = ["vulkan:0", "opencl:0"].map(|on| Opened::open(&on.parse().expect("a name")));
    assert!(open.iter().all(Result::is_ok), "{open:?}");
    everywhere::<f32>();
    everywhere::<bf16>();
    everywhere::<F8E4M3>();
    everywhere::<F8E5M2>();
}

/// Who owns how much changes who folds, and nothing else.
#[test]
fn shares_do_not_change_the_result() {
    for rates in [[1e9; 4], [1e9, 3e10, 1.0, 1e9], [1.0, 1e9, 1e9, 1.0], [1.0, 1.0, 1.0, 1e9]] {
        let builder = Group::builder().on(MIXED).rates(rates.to_vec());
        check::<f32>(&mut build(builder), Sum, 200_000);
    }
}

/// Groups on the same devices do not disturb each other.
#[test]
fn two_groups_at_once() {
    let groups = || build(Group::builder().on(MIXED).rates(vec![1e9; 4]));
    std::thread::scope(|scope| {
        for mut group in [groups(), groups()] {
            scope.spawn(move || {
                for len in [1, 5000, 70_001, 3, 200_000] {
                    check::<f32>(&mut group, Sum, len);
                    check::<i32>(&mut group, Max, len);
                }
            });
        }
    });
}

/// Partial results travel in another type, and several ranks are on one device.
#[test]
fn every_schedule() {
    use Schedule::{Binomial, DoubleTree, HalvingDoubling, OneShot, Ring};
    for schedule in [Binomial, HalvingDoubling, OneShot] {
        let builder = Group::builder().on("vulkan:0,opencl:0,vulkan:0,cpu,opencl:0");
        check::<bf16>(&mut build(builder.schedule(schedule).chunk(3000)), Sum, 10_001);
    }
    for schedule in [Ring, DoubleTree] {
        let builder = Group::builder().on(MIXED).order(Order::Any);
        check::<i32>(&mut build(builder.schedule(schedule).chunk(3000)), Sum, 10_001);
    }
}

#[test]
fn the_other_collectives_on_tensors() {
    collectives(&mut build(Group::builder().on(MIXED)));
}

/// Over four ranks.
fn collectives(group: &mut Group) {
    let (n, len) = (4, 10_000);
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| noise(rank + 70, n * len)).collect();
    let sum = reference(Sum, &inputs);
    let done = group.run(|member| {
        let rank = usize::from(member.rank());
        let mut wide = member.tensor::<f32>(n * len)?;
        let mut narrow = member.tensor::<f32>(len)?;
        wide.write(&inputs[rank])?;
        member.reduce_scatter(&wide, &mut narrow, Sum)?;
        assert!(bits(&narrow.to_vec()?) == &sum[rank * len * 4..(rank + 1) * len * 4], "{rank}");
        member.all_gather(&narrow, &mut wide)?;
        assert!(bits(&wide.to_vec()?) == sum, "all-gather on {rank}");
        wide.write(&inputs[rank])?;
        member.broadcast(&mut wide, 2)?;
        assert!(bits(&wide.to_vec()?) == bits(&inputs[2]), "broadcast on {rank}");
        wide.write(&inputs[rank])?;
        member.reduce(&mut wide, Sum, 1)?;
        let want = if rank == 1 { &sum[..] } else { bits(&inputs[rank]) };
        assert!(bits(&wide.to_vec()?) == want, "reduce on {rank}");
        let mut blocks = member.tensor::<f32>(n * len)?;
        wide.write(&inputs[rank])?;
        member.all_to_all(&wide, &mut blocks)?;
        let want: Vec<f32> =
            inputs.iter().flat_map(|i| i[rank * len..(rank + 1) * len].to_vec()).collect();
        assert!(bits(&blocks.to_vec()?) == bits(&want), "all-to-all on {rank}");
        member.barrier()
    });
    done.expect("collectives");
}

/// From one side to the other: a slice in, a tensor out, on each device.
#[test]
fn slices_and_tensors_mix() {
    let mut group = build(Group::builder().on("opencl:0,vulkan:0,cpu"));
    let inputs: Vec<Vec<f64>> = (0..3).map(|rank| noise(rank + 90, 4097)).collect();
    let want = reference(Sum, &inputs);
    let done = group.run(|member| {
        let own = &inputs[usize::from(member.rank())];
        let mut tensor = member.tensor::<f64>(own.len())?;
        member.all_reduce_into(own, &mut tensor, Sum)?;
        assert!(bits(&tensor.to_vec()?) == want);
        let mut slice = vec![0.0; own.len()];
        tensor.write(own)?;
        member.all_reduce_into(&tensor, &mut slice, Sum)?;
        assert!(bits(&slice) == want);
        Ok::<_, Error>(())
    });
    done.expect("sums");
}

/// As on a GPU with memory of its own: what peers cannot reach goes through pinned memory.
#[test]
fn private_memory() {
    let vulkan_options = vulkan::Options { unified: false, ..vulkan::Options::default() };
    let opencl_options = opencl::Options { shared: false, ..opencl::Options::default() };
    let first = vulkan::VulkanContext::open(0, &vulkan_options).expect("Vulkan");
    let second = opencl::OpenCl::open(0, &opencl_options).expect("OpenCL");
    let (first, second) = (Opened::vulkan(first), Opened::opencl(second));
    let on = || {
        let cpu = Group::builder().device(DeviceSpec::Cpu);
        cpu.open(first.clone()).open(second.clone()).open(first.clone())
    };
    let mut group = build(on().rates(vec![1e9; 4]));
    for rank in [1, 2] {
        let mut tensor = group.tensor::<f32>(rank, 10).expect("a tensor");
        assert!(tensor.as_mut_slice().is_none(), "the memory of {rank} is private");
        assert_eq!(tensor.to_vec().expect("read"), [0.0; 10]);
    }
    for len in [1, 1000, 70_001] {
        check::<f32>(&mut group, Sum, len);
    }
    collectives(&mut group);
    use Schedule::{Binomial, HalvingDoubling, OneShot};
    for schedule in [Binomial, HalvingDoubling, OneShot] {
        let mut group = build(on().schedule(schedule).chunk(3000));
        check::<bf16>(&mut group, Sum, 10_001);
    }
    // Another rank's device, or the CPU, cannot follow such an address.
    let mut tensor = group.tensor::<f32>(1, 4).expect("a tensor");
    let members = group.into_members();
    let refused = members.into_iter().nth(2).map(|mut member| member.all_reduce(&mut tensor, Sum));
    assert!(matches!(refused, Some(Err(Error::Elsewhere(_, 2)))), "{refused:?}");
}

/// The group measures its devices when it is built; whatever it finds, the result is the same.
#[test]
fn measured_shares() {
    for on in [MIXED, "vulkan:0,opencl:0", "opencl:0,opencl:0,cpu"] {
        check::<f32>(&mut build(Group::builder().on(on)), Sum, 300_000);
    }
}

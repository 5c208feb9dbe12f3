//! A group on GPUs is measured while it is there, on the devices that it has open.

use unisono::topology::Member as Named;
use unisono::{Error, Group, Member, Replan, Sum};

/// A sum whose bits depend on the order of its terms.
fn sum(member: &mut Member) -> Result<Vec<f32>, Error> {
    let value = |at| 1.1_f32.powi(at % 40 + 5 * i32::from(member.rank()));
    let mut tensor = member.tensor::<f32>(50_000)?;
    tensor.write(&(0..50_000).map(value).collect::<Vec<_>>())?;
    member.all_reduce(&mut tensor, Sum)?;
    tensor.to_vec()
}

#[test]
fn a_group_on_gpus_plans_anew() {
    let builder = Group::builder().on("cpu,vulkan:0,opencl:0");
    let named = ["cpu", "vulkan", "opencl"].map(|device| Named::named("h", device, None, true));
    let topology = builder.measure(named.to_vec(), &|_| ()).expect("a topology");
    let mut group = builder.topology(topology).build().expect("a group");
    let all = group.run(|member| {
        let before = sum(member)?;
        let done = member.replan(Replan::Always)?;
        assert_eq!(before, sum(member)?);
        Ok::<_, Error>(done)
    });
    let all = all.expect("no error");
    let topology = all[0].measured.as_ref().expect("it was measured");
    assert!(all.iter().all(|done| *done == all[0]));
    let devices: Vec<_> = topology.members.iter().map(|member| member.device.as_str()).collect();
    assert_eq!(devices, ["cpu", "vulkan", "opencl"]);
    assert!(topology.members.iter().all(|member| member.fold > 1e6), "{topology:?}");
}

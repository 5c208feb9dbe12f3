//! A mixed group against what one would do without it: copy the GPUs' tensors to the host,
//! reduce over CPU ranks, copy the result back. Both in one process, turn by turn.
//!
//! ```sh
//! cargo run --release --example against_download -- cpu,cpu,vulkan:0,opencl:0 64
//! ```

use std::time::Instant;
use unisono::{DeviceSpec, Error, Group, Sum, Tensor};

const TURNS: usize = 9;

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let on = args.next().unwrap_or_else(|| "cpu,cpu,vulkan:0,opencl:0".into());
    let mib: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(64);
    let len = mib << 18;
    let devices = DeviceSpec::list(&on).map_err(Error::Build)?;
    let gpu: Vec<bool> = devices.iter().map(|device| *device != DeviceSpec::Cpu).collect();
    let mut group = Group::builder().on(&on).build()?;
    let ranks = group.ranks();
    let mut threads = Group::builder().cpus(ranks.into()).build()?;
    let mut tensors: Vec<Tensor<f32>> =
        (0..ranks).map(|rank| group.tensor(rank, len)).collect::<Result<_, _>>()?;
    // Page-aligned and touched, as the tensors are.
    let mut copies: Vec<Tensor<f32>> =
        (0..ranks).map(|rank| threads.tensor(rank, len)).collect::<Result<_, _>>()?;
    let fill = |tensors: &mut [Tensor<f32>]| {
        let ones = vec![1.0; len];
        tensors.iter_mut().try_for_each(|tensor| tensor.write(&ones))
    };
    let (mut mixed, mut downloaded) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        fill(&mut tensors)?;
        let started = Instant::now();
        group.all_reduce(&mut tensors.iter_mut().collect::<Vec<_>>(), Sum)?;
        let took = started.elapsed().as_secs_f64();
        let want = f32::from(ranks);
        assert!(tensors.iter().all(|t| t.to_vec().is_ok_and(|t| t.iter().all(|&x| x == want))));

        fill(&mut tensors)?;
        let started = Instant::now();
        // One thread a rank, as in the group; tensors of CPU ranks are where they must be.
        std::thread::scope(|scope| {
            for (rank, (tensor, copy)) in tensors.iter().zip(&mut copies).enumerate() {
                if gpu[rank] {
                    scope.spawn(move || copy.as_mut_slice().map(|to| tensor.read(to)));
                }
            }
        });
        let ranks = tensors.iter_mut().zip(&mut copies).zip(&gpu);
        let mut own: Vec<_> =
            ranks.map(|((tensor, copy), &gpu)| if gpu { copy } else { tensor }).collect();
        threads.all_reduce(&mut own, Sum)?;
        std::thread::scope(|scope| {
            for (rank, (tensor, copy)) in tensors.iter_mut().zip(&copies).enumerate() {
                if gpu[rank] {
                    scope.spawn(move || copy.as_slice().map(|from| tensor.write(from)));
                }
            }
        });
        let other = started.elapsed().as_secs_f64();
        // The first turn compiles kernels and touches memory.
        if turn > 0 {
            mixed.push(took);
            downloaded.push(other);
        }
    }
    let (mixed, downloaded) = (median(&mut mixed), median(&mut downloaded));
    println!("{mib} MiB of f32 over {on}: {:.2} ms", mixed * 1e3);
    println!("downloaded, reduced over CPU ranks, uploaded: {:.2} ms", downloaded * 1e3);
    println!("ratio {:.2}", downloaded / mixed);
    Ok(())
}

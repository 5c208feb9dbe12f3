//! All-reduce in a loop, f32 sum in place, as `limit_fold.c` of the peers measures it: per size the
//! median over samples of batches of back-to-back calls. Usage: `all_reduce_loop RANKS`.

use std::time::Instant;
use unisono::{Error, Group, Sum};

const SIZES: [usize; 7] = [8, 1 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20];

fn main() -> Result<(), Error> {
    let ranks = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2);
    let budget = std::env::var("BENCH_BUDGET_S").ok().and_then(|v| v.parse().ok()).unwrap_or(0.7);
    let only: Option<usize> = std::env::args().nth(2).and_then(|a| a.parse().ok());
    let mut builder = Group::builder().cpus(ranks);
    if let Some(chunk) = std::env::var("CHUNK").ok().and_then(|v| v.parse().ok()) {
        builder = builder.chunk(chunk);
    }
    let mut group = builder.build()?;
    for bytes in SIZES {
        if only.is_some_and(|o| o != bytes) {
            continue;
        }
        let count = bytes / 4;
        let batch = match bytes {
            0..=1024 => 50,
            1025..=262_144 => 20,
            262_145..=1_048_576 => 5,
            _ => 1,
        };
        let times = group.run(|m| {
            let mut t = vec![0f32; count];
            let mut samples = Vec::new();
            let mut runs = 7;
            let mut pilot = [0f64; 1];
            for i in 0.. {
                for (j, x) in t.iter_mut().enumerate() {
                    *x = ((j + 3 * usize::from(m.rank())) % 7) as f32 + 1.0;
                }
                m.barrier()?;
                let t0 = Instant::now();
                for _ in 0..batch {
                    m.all_reduce(&mut t, Sum)?;
                }
                let s = t0.elapsed().as_secs_f64() / f64::from(batch);
                if i < 3 {
                    pilot[0] = s;
                    m.all_reduce(&mut pilot, unisono::Max)?;
                    runs = ((budget / (pilot[0] * f64::from(batch))) as usize).clamp(7, 200);
                } else {
                    samples.push(s);
                }
                if i >= 3 + runs {
                    break;
                }
            }
            m.all_reduce(&mut samples, unisono::Max)?;
            Ok::<_, Error>(samples)
        })?;
        let mut samples = times[0].clone();
        samples.sort_by(f64::total_cmp);
        let med = samples[samples.len() / 2];
        println!("unisono,{ranks},{bytes},{:.2},{:.2}", med * 1e6, samples[0] * 1e6);
    }
    Ok(())
}

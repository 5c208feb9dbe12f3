//! stress
use unisono::{Error, Group, Max, Sum};
fn main() -> Result<(), Error> {
    let ranks: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(4);
    let mut group = Group::builder().cpus(ranks).build()?;
    for round in 0..200u64 {
        group.run(|m| {
            let r = u64::from(m.rank());
            for i in 0..500u64 {
                let v = |r: u64| ((round * 1000 + i) * 7 + r * 13) % 101;
                let mut x = [v(r) as f64];
                m.all_reduce(&mut x, Max)?;
                let want = (0..ranks as u64).map(v).max().unwrap() as f64;
                assert_eq!(x[0], want, "rank {r} round {round} i {i} max");
                let count = [1usize, 3, 20, 100, 1000, 5000, 300_000][(i % 7) as usize];
                let count = if count == 300_000 && i % 49 != 6 { 17 } else { count };
                let mut t: Vec<f32> = (0..count).map(|j| (v(r) + j as u64 % 5) as f32).collect();
                m.all_reduce(&mut t, Sum)?;
                let s: u64 = (0..ranks as u64).map(v).sum();
                for (j, x) in t.iter().enumerate() {
                    let want = (s + ranks as u64 * (j as u64 % 5)) as f32;
                    assert_eq!(*x, want, "rank {r} round {round} i {i} count {count} at {j}");
                }
            }
            Ok::<_, Error>(())
        })?;
    }
    println!("ok");
    Ok(())
}

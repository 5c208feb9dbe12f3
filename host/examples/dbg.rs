//! dbg
use unisono::{Error, Group, Sum};
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let mut group = Group::builder().cpus(a[0]).build().unwrap();
    let r = group.run(|m| {
        let mut t = vec![1f32; a[1]];
        for i in 0..a[2] {
            if let Err(e) = m.all_reduce(&mut t, Sum) {
                eprintln!("rank {} i {i} {e:?}", m.rank());
                return Err(e);
            }
        }
        Ok::<_, Error>(())
    });
    println!("{r:?}");
    let r = group.run(|m| {
        let mut t = vec![1f64; 50];
        for i in 0..a[2] {
            m.barrier().inspect_err(|e| eprintln!("barrier {} {i} {e:?}", m.rank()))?;
            let r = m.all_reduce(&mut t, Sum);
            if let Err(e) = r { eprintln!("rank {} i {i} {e:?}", m.rank()); return Err(e); }
        }
        Ok::<_, Error>(())
    });
    println!("{r:?}");
}

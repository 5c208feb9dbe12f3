//! two
fn main() {
    let mut g = unisono::Group::builder().cpus(2).build().unwrap();
    g.run(|m| {
        let mut t = [0f32, 0.0];
        for _ in 0..3_000_000 {
            m.all_reduce(&mut t, unisono::Sum)?;
        }
        Ok::<_, unisono::Error>(())
    })
    .unwrap();
}

//! Places that a program knows by itself.

use crate::again;
use std::net::TcpListener;
use std::time::Duration;
use unisono::world::WorldBuilder;
use unisono::{Error, Group, Sum, World};

const SECRET: &str = "a secret that only tests know";

#[test]
fn a_program_may_know_its_place() {
    let name = "world::a_program_may_know_its_place";
    let Some((rank, job)) = again::place() else {
        let port = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr();
        let port = port.expect("an address").port();
        for root in ["local".to_owned(), format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}")] {
            let ended = again::start(name, 3, &[("UNISONO_TEST_ROOT", &root)]);
            ended.into_iter().for_each(again::succeeded);
        }
        return;
    };
    let root = std::env::var("UNISONO_TEST_ROOT").expect("a root");
    let mut builder = World::builder().rank(rank).size(3).root(&root);
    builder = match root.as_str() {
        "local" => builder.job(job),
        // Others can reach this one.
        root if root.starts_with("0.0.0.0") => builder.job(job).secret(SECRET),
        _ => builder,
    };
    let world = builder.build().expect("a world");
    assert_eq!((world.rank(), world.size()), (rank, 3));
    let mut group = Group::builder().world(&world).build().expect("a group");
    let got = group.run(|member| {
        let mut tensor = [f32::from(member.rank()) + 0.5; 100];
        member.all_reduce(&mut tensor, Sum)?;
        Ok::<_, Error>(tensor)
    });
    assert_eq!(got.expect("a result"), [[4.5; 100]]);
}

#[test]
fn a_place_that_makes_no_sense_is_refused() {
    let two = || World::builder().rank(0).size(2);
    let said = |builder: WorldBuilder| match builder.build() {
        Err(Error::World(text)) => text,
        other => panic!("{other:?}"),
    };
    let job = format!("senseless-{}", std::process::id());
    let soon = Duration::from_millis(500);
    for (builder, wanted) in [
        (World::builder().size(2), "rank is not set"),
        (World::builder().rank(0), "size is not set"),
        (two(), "job, which tells jobs at the same root apart, is not set"),
        (two().root("host"), "root host: wanted is HOST:PORT"),
        (two().root("redis://h:1"), "root redis://h:1: wanted is etcd://"),
        (two().rank(2).job(&job), "of 2 ranks the last is 1"),
        (two().size(0).job(&job), "a group has 1 to 4096 ranks"),
        (two().job(&job).secret("short"), "has 5 B and could be guessed"),
        (two().root("0.0.0.0:1").job(&job), "give all ranks the same UNISONO_SECRET"),
        (two().job(&job).timeout(soon), "rank 1 of 2 has not come within 500 ms"),
    ] {
        let shown = format!("{builder:?}");
        let text = said(builder);
        assert!(text.contains(wanted), "{shown}: {text}");
    }
    assert!(!format!("{:?}", two().secret(SECRET)).contains(SECRET));
}

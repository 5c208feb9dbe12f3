//! Any bytes on a line: nothing panics, and the next frame after them is found.

use proptest::prelude::*;
use std::cell::RefCell;
use unisono_driver::PacketLink;
use unisono_link_serial::{Line, Port};
use unisono_testkit::line::{Noise, Wire, wire};

type TestLine = Line<Wire, 64, 2>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_frame_after_noise_arrives(
        noise in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(0)], 0..200),
        datagram in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        use embedded_io::Write;
        let (mut a, b) = wire(Noise::default(), 1);
        let line = RefCell::new(TestLine::new(b));
        let mut port = Port::open(&line, 3);
        let mut into = [0; 64];
        let mut rest = &noise[..];
        while !rest.is_empty() {
            let len = a.write(rest).expect("a wire");
            rest = &rest[len..];
            while port.receive(&mut into).expect("open").is_some() {}
        }
        a.write_all(&[0]).expect("room for an end");
        while port.receive(&mut into).expect("open").is_some() {}
        let sender = RefCell::new(TestLine::new(a));
        let mut from = Port::open(&sender, 3);
        prop_assert!(datagram.len() <= from.mtu());
        prop_assert!(from.has_room());
        from.send(&datagram).expect("open");
        let len = port.receive(&mut into).expect("open");
        prop_assert_eq!(len.map(|len| into[..len].to_vec()), Some(datagram));
    }
}

#[test]
fn datagrams_for_nobody_are_counted_and_dropped() {
    let (a, b) = wire(Noise::default(), 1);
    let (a, b) = (RefCell::new(TestLine::new(a)), RefCell::new(TestLine::new(b)));
    let (mut from, mut to) = (Port::open(&a, 5), Port::open(&b, 6));
    let mut into = [0; 64];
    from.send(&[1, 2, 3]).expect("open");
    assert_eq!(to.receive(&mut into), Ok(None));
    assert_eq!(b.borrow().lost(), 1);
    drop(to);
    let mut to = Port::open(&b, 5);
    from.send(&[4]).expect("open");
    assert_eq!(to.receive(&mut into), Ok(Some(1)));
}

#[test]
fn a_stream_that_ends_closes_its_ports() {
    let (_a, b) = wire(Noise::default(), 1);
    let line = RefCell::new(TestLine::new(b));
    let mut port = Port::open(&line, 1);
    assert_eq!(port.receive(&mut [0; 64]), Ok(None));
    line.borrow_mut().close();
    assert!(port.receive(&mut [0; 64]).is_err());
    assert!(port.has_room(), "sending says that it is closed");
}

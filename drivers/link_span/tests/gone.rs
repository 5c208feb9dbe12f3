//! What becomes of payloads when the peer is gone.
#![cfg(not(loom))]

use unisono_core::wire::frame::{Body, Fingerprint, Header};
use unisono_core::{DType, Kind};
use unisono_driver::{HostMemory, Link, LinkError, Memory, Outgoing};
use unisono_link_span::{SMALL, fabric};

#[derive(Clone, Copy, Debug)]
struct Mem(*mut u8);

// SAFETY: the test has one thread.
unsafe impl Send for Mem {}

impl Memory for Mem {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes as usize))
    }
}

impl HostMemory for Mem {
    fn from_ptr(ptr: *mut u8) -> Self {
        Self(ptr)
    }

    fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

const PRINT: Fingerprint =
    Fingerprint { kind: Kind::Barrier, dtype: DType::U8, op: None, root: 0, count: 0, plan: 0 };
const HEADER: Header =
    Header { epoch: 0, op: 0, from: 0, print: PRINT, body: Body::Credit { limit: 0 } };

#[test]
fn a_payload_that_nobody_will_read_is_complete() {
    let mut ends = fabric::<Mem>(2, 1, 4).into_iter();
    let (Some((mut mine, _)), Some((theirs, _))) = (ends.next(), ends.next()) else {
        panic!("two members")
    };
    let Some(link) = &mut mine[1] else { panic!("a link to the other") };
    let mut bytes = [7; 2 * SMALL];
    let payload = Outgoing::At { mem: Mem(bytes.as_mut_ptr()), bytes: bytes.len(), window: None };
    // SAFETY: `bytes` lives until the end of the test.
    assert_eq!(unsafe { link.send(0, &HEADER, payload, 5) }, Ok(()));
    assert_eq!(link.poll_sent(0), None);
    drop(theirs);
    assert_eq!(link.poll_sent(0), Some(5));
    assert_eq!(link.poll_sent(0), None);
    assert!(matches!(link.poll_frame(0), Err(LinkError::Closed)));
}

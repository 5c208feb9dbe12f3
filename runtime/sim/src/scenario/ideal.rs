//! A scenario in which nothing goes wrong and nothing but the network takes time: what the
//! planner's model describes.

use super::calls::{CallPlan, Contents, Start};
use super::{MemberModel, Scenario};
use crate::device::DeviceModel;
use crate::hub::Think;
use crate::link::LinkKind;
use crate::net::{Nic, Weather};
use crate::rng::Rng;
use unisono_core::{DType, Layout, ReduceOp, Scalar, Schedule};
use unisono_driver::DeviceCaps;

/// One call over streams of bytes, out of place, all members at once.
///
/// Members notice everything at once, and devices take no time.
#[must_use]
pub fn ideal(schedule: Schedule, layout: Layout, window: u16, nic: Nic) -> Scenario {
    let count = usize::from(schedule.members(layout.ranks));
    let caps = DeviceCaps { sources_max: 16, dests_max: 1 };
    let device = DeviceModel {
        caps,
        jobs_max: 64,
        start_ns: 0,
        ps_per_byte: 0,
        jitter_ns: 0,
        gathers: false,
        private: [false; 2],
        fails: None,
    };
    let think = Think { least: 0, most: 0 };
    let member = MemberModel { think, nic, device, ahead: 0 };
    let dtype = DType::F32;
    let plan = CallPlan {
        schedule,
        layout,
        dtype,
        op: layout.kind.reduces().then_some(ReduceOp::Sum),
        weights: vec![Scalar::one(dtype); usize::from(layout.ranks)],
        window,
        eager: 0,
        in_place: false,
        contents: Contents::Numbers,
        seed: 1,
        starts: vec![Start { after: 0, steps: 0, more_slots: 20, window }; count],
    };
    Scenario {
        ranks: layout.ranks,
        members: vec![member; count],
        links: vec![vec![LinkKind::Stream; count]; count],
        weather: Weather::CALM,
        partitions: Vec::new(),
        heals_at: 0,
        calls: vec![plan],
        faults: Vec::new(),
        rng: Rng::new(1),
    }
}

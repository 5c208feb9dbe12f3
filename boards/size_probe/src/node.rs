//! A whole member: engine, device and the link to one peer, as the main loop of a firmware has it.

use crate::{End, MEMBERS, MOVES, MTU, PacketLink, WINDOW};
use core::cell::RefCell;
use heapless::Vec;
use unisono_core::machine::Config;
use unisono_core::time::Instant;
use unisono_core::wire::frame::Abort;
use unisono_driver::{Device, HostPtr};
use unisono_runtime::{BeginError, Buffers, Call, Engine};

/// One member of a group of two, with one call at a time.
pub struct Node<'a, D: Device> {
    engine: Engine<D, PacketLink<'a>, 1, WINDOW, MOVES, MEMBERS>,
    end: &'a RefCell<End>,
    op_id: u64,
}

impl<'a, D: Device<Mem = HostPtr>> Node<'a, D> {
    /// The member `rank`, 0 or 1, whose link has this end.
    pub fn new(rank: u16, end: &'a RefCell<End>, device: D) -> Self {
        let link = |r| (r != rank).then_some(PacketLink::new(end));
        let links: Vec<_, MEMBERS> = (0..2).map(link).collect();
        Self { engine: Engine::new(rank, 0, device, links), end, op_id: 0 }
    }

    /// Begins a call with input, output and scratch.
    ///
    /// # Safety
    /// As for [`Engine::begin`].
    ///
    /// # Errors
    /// If another call is under way, or for a configuration that cannot run.
    pub unsafe fn begin(
        &mut self,
        mut config: Config,
        memory: [HostPtr; 3],
    ) -> Result<(), BeginError> {
        self.engine.fit(&mut config)?;
        let [input, output, scratch] = memory;
        let buffers = Buffers { input, output, scratch };
        let mut call = Call { config, buffers, source_ready: u64::MAX };
        // SAFETY: the caller's promise.
        self.op_id = unsafe { self.engine.begin(&mut call)? };
        Ok(())
    }

    /// A packet has come in.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        if let Ok(mut end) = self.end.try_borrow_mut() {
            end.handle_packet(now, packet);
        }
    }

    /// Does what can be done now; true if anything was.
    pub fn poll(&mut self, now: Instant) -> bool {
        self.engine.handle_time(now);
        self.engine.poll()
    }

    /// When [`Node::poll`] has to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let link = self.end.try_borrow().ok().and_then(|end| end.poll_timeout());
        [link, self.engine.poll_timeout()].into_iter().flatten().min()
    }

    /// Writes the next packet to send, if there is one; returns its length.
    pub fn poll_transmit(&mut self, now: Instant, packet: &mut [u8; MTU]) -> Option<usize> {
        self.end.try_borrow_mut().ok()?.poll_transmit(now, packet)
    }

    /// What has become of the call, once.
    pub fn result(&mut self) -> Option<Result<(), Abort>> {
        self.engine.result(self.op_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScalarDevice;
    use std::time::Duration;
    use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar, Schedule};
    use unisono_device_cpu::CpuDevice;

    const COUNT: usize = 1000;

    fn config(rank: u16) -> Config {
        let layout =
            Layout { kind: Kind::AllReduce, ranks: 2, count: COUNT as u64, chunk: 256, root: 0 };
        Config {
            epoch: 0,
            op_id: 0,
            rank,
            schedule: Schedule::OneShot,
            schedule_print: Schedule::OneShot.fingerprint(),
            layout,
            dtype: DType::F32,
            op: Some(ReduceOp::Sum),
            weight: Scalar::one(DType::F32),
            window: 2,
            eager: 0,
            slots: 0,
            by_bytes: 0,
            puts: 0,
            in_place: false,
            input_private: false,
            output_private: false,
            sources_max: 2,
            dests_max: 1,
            deadline: None,
        }
    }

    /// Two members over a cable that loses every seventh packet.
    fn reduce<D: Device<Mem = HostPtr>>(device: impl Fn() -> D) {
        let ends = [(0, 1), (1, 0)].map(|(me, peer)| RefCell::new(End::new(9, me, peer)));
        let mut nodes = [0, 1].map(|r| Node::new(r, &ends[usize::from(r)], device()));
        let mut input: [std::vec::Vec<f32>; 2] =
            [1, 10].map(|k| (0..COUNT).map(|i| (i * k) as f32).collect());
        let mut output = [(); 2].map(|()| vec![0f32; COUNT]);
        let mut scratch = [(); 2].map(|()| vec![0u64; 4096]);
        for (r, node) in nodes.iter_mut().enumerate() {
            let memory = [
                HostPtr::new(input[r].as_mut_ptr().cast()),
                HostPtr::new(output[r].as_mut_ptr().cast()),
                HostPtr::new(scratch[r].as_mut_ptr().cast()),
            ];
            // SAFETY: the buffers live until both calls are over, and nobody else uses them.
            unsafe { node.begin(config(r as u16), memory).unwrap() };
        }
        let (mut done, mut packets, mut now) = (0, 0, Instant::ZERO);
        let mut packet = [0; MTU];
        for _ in 0..100_000 {
            now = now.saturating_add(Duration::from_millis(1));
            for r in 0..2 {
                nodes[r].poll(now);
                while let Some(len) = nodes[r].poll_transmit(now, &mut packet) {
                    packets += 1;
                    if packets % 7 != 0 {
                        nodes[1 - r].handle_packet(now, &packet[..len]);
                    }
                }
                if let Some(result) = nodes[r].result() {
                    result.unwrap();
                    done += 1;
                }
            }
            if done == 2 {
                break;
            }
        }
        assert_eq!(done, 2, "{packets} packets");
        let sum: std::vec::Vec<f32> = (0..COUNT).map(|i| (i * 11) as f32).collect();
        assert!(output.iter().all(|o| *o == sum));
    }

    #[test]
    fn two_nodes_reduce_over_a_cable_that_loses_packets() {
        reduce(ScalarDevice::default);
        reduce(CpuDevice::new);
    }
}

//! Beginning a call.

use crate::board::Board;
use crate::member::Member;
use unisono_core::Form;
use unisono_core::machine::Config;
use unisono_core::wire::board::{Call, Refusal, Role};
use unisono_driver::HostPtr;
use unisono_runtime::{BeginError, Buffers};

impl<B: Board, const C: usize, const W: usize, const R: usize, const P: usize>
    Member<'_, B, C, W, R, P>
{
    /// Begins a call, or says why not; then the other members learn it too.
    pub(crate) fn call(&mut self, call: &Call) -> Result<(), Refusal> {
        let now = self.board.now();
        let group = self.group.as_mut().ok_or(Refusal::NotJoined)?;
        let next = group.engine.next_op();
        let idle = group.calls.is_empty();
        if call.op_id < next || (call.op_id > next && !idle) {
            return Err(Refusal::Number(next));
        }
        group.engine.skip_to(call.op_id);
        if !group.engine.has_channel() || group.calls.is_full() {
            return Err(Refusal::Busy);
        }
        let mut config = call.config(group.epoch, group.rank, now);
        let begun = self.buffers(call, &mut config).and_then(|buffers| {
            let group = self.group.as_mut().ok_or(Refusal::NotJoined)?;
            let mut call = unisono_runtime::Call { config, buffers, source_ready: u64::MAX };
            // SAFETY: the scratch belongs to this call's channel, the tensors lie in the board's
            // own memory, and both stay where they are.
            unsafe { group.engine.begin(&mut call) }.map_err(|error| match error {
                BeginError::Busy(_) => Refusal::Busy,
                BeginError::Config(error) => {
                    defmt::warn!("this call cannot run here: {}", error);
                    Refusal::Config
                }
            })
        });
        let group = self.group.as_mut().ok_or(Refusal::NotJoined)?;
        match begun {
            Ok(op_id) => {
                // There is room: not full.
                let _ = group.calls.push(op_id);
                Ok(())
            }
            Err(why) => {
                // `begin` has told the others if it was that which failed.
                if group.engine.next_op() == call.op_id {
                    group.engine.refuse();
                }
                Err(why)
            }
        }
    }

    /// Fits the configuration to this board and finds the memory for it.
    fn buffers(&self, call: &Call, config: &mut Config) -> Result<Buffers<HostPtr>, Refusal> {
        let group = self.group.as_ref().ok_or(Refusal::NotJoined)?;
        group.engine.fit(config).map_err(|error| {
            defmt::warn!("this call cannot run here: {}", error);
            Refusal::Config
        })?;
        let elems = config.layout.chunk.min(config.layout.count);
        let chunk = config.bytes(elems, widest(config));
        if chunk > u64::from(self.board.payload_max()) {
            return Err(Refusal::Chunk(chunk));
        }
        let (scratch, room) = self.board.scratch(group.engine.channel(call.op_id));
        // As many chunks in flight as there is room for: members may have different windows.
        let lane = config.slot_bytes() * u64::from(config.slots);
        let lanes = u64::from(room).checked_div(lane).unwrap_or(u64::MAX);
        if lanes == 0 {
            return Err(Refusal::Scratch(lane));
        }
        config.window = config.window.min(u16::try_from(lanes).unwrap_or(u16::MAX));
        let (input, output) = match call.role {
            // The machine never touches buffers of length 0.
            Role::Aggregator if config.rank >= config.layout.ranks => (scratch, scratch),
            Role::Rank { input, output, .. } if config.rank < config.layout.ranks => {
                let bytes = |elems| config.bytes(elems, Form::Leaf);
                let (in_bytes, out_bytes) = (
                    bytes(config.layout.input_len(config.rank)),
                    bytes(config.layout.output_len(config.rank)),
                );
                let (from, _) = self.memory(input, in_bytes)?;
                let (to, _) = self.memory(output, out_bytes)?;
                (HostPtr::new(from), HostPtr::new(to))
            }
            Role::Aggregator | Role::Rank { .. } => return Err(Refusal::Memory),
        };
        Ok(Buffers { input, output, scratch })
    }
}

/// The widest form in which chunks of the call travel.
fn widest(config: &Config) -> Form {
    use unisono_core::Schedule::{Direct, OneShot, Star};
    match config.schedule {
        // Leaves and results only.
        Direct(_) | OneShot | Star(_) => Form::Leaf,
        _ if config.op.is_none() => Form::Leaf,
        _ => Form::Partial,
    }
}

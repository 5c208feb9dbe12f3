//! A member of a group that does what its host says.

use crate::board::{Board, Descr};
use crate::line::Line;
use crate::{log, probe};
use heapless::{String, Vec};
use unisono_core::route::Rank;
use unisono_core::wire::board::{
    ABI, CONTENT_MAX, FromBoard, Identity, Join, Refusal, Status, ToBoard,
};
use unisono_core::{DType, ReduceOp};
use unisono_driver::{Device, HostMemory, Memory};
use unisono_runtime::Engine;

/// Rounds between two looks at the clock while there is work.
const CLOCK_ROUNDS: u32 = 32;

/// The engine of a group, and its calls that are not over.
pub(crate) struct Group<
    D: Device,
    L,
    const C: usize,
    const W: usize,
    const R: usize,
    const P: usize,
> {
    pub epoch: u32,
    pub rank: Rank,
    pub engine: Engine<D, L, C, W, R, P>,
    pub calls: Vec<u64, C>,
}

/// A board's member: `C` calls in flight, windows of `W` chunks, routes of `R` moves, groups of `P`
/// members.
pub struct Member<'a, B: Board, const C: usize, const W: usize, const R: usize, const P: usize> {
    pub(crate) board: B,
    line: Line<'a>,
    pub(crate) group: Option<Group<B::Device, B::Link, C, W, R, P>>,
    rounds: u32,
}

impl<'a, B: Board, const C: usize, const W: usize, const R: usize, const P: usize>
    Member<'a, B, C, W, R, P>
{
    /// A member of no group.
    #[must_use]
    pub const fn new(board: B, line: Line<'a>) -> Self {
        Self { board, line, group: None, rounds: 0 }
    }

    /// What the board is.
    pub fn descr(&self) -> Descr {
        self.board.descr()
    }

    /// Is it in a group?
    pub const fn is_member(&self) -> bool {
        self.group.is_some()
    }

    /// Has it something for its host: a message that has not left, or, if the host's attention
    /// `is_drawn` already, something that it has not taken?
    pub fn has_news(&mut self, is_drawn: bool) -> bool {
        let busy = self.group.as_ref().is_some_and(|group| !group.calls.is_empty());
        !self.line.is_free() || (is_drawn && self.board.has_posted(busy))
    }

    /// Does what can be done now; false if there was nothing.
    pub fn step(&mut self) -> bool {
        let worked = self.round();
        probe::round_is_over(worked);
        worked
    }

    fn round(&mut self) -> bool {
        if self.board.is_cut() && !self.renew() {
            return false;
        }
        let mut worked = self.board.turn();
        worked |= self.line.push(self.board.line());
        if self.line.is_free() {
            worked |= self.report() || self.listen();
        }
        let Some(group) = &mut self.group else { return worked };
        worked |= group.engine.poll();
        self.rounds += 1;
        if !worked || self.rounds >= CLOCK_ROUNDS {
            self.rounds = 0;
            group.engine.handle_time(self.board.now());
        }
        worked
    }

    /// Forgets a host that is gone; false while there is no other.
    fn renew(&mut self) -> bool {
        self.leave();
        self.line.reset();
        self.board.renew()
    }

    /// Tells the host of a call that is over.
    fn report(&mut self) -> bool {
        let Some(group) = &mut self.group else { return false };
        for at in 0..group.calls.len() {
            let Some(&op_id) = group.calls.get(at) else { return false };
            if let Some(result) = group.engine.result(op_id) {
                group.calls.swap_remove(at);
                match result {
                    Ok(()) => defmt::debug!("call {=u64} is done", op_id),
                    Err(why) => defmt::warn!("call {=u64} has failed: {}", op_id, why),
                }
                self.line.send(&FromBoard::Done { op_id, result }, &[]);
                return true;
            }
        }
        false
    }

    /// Takes the next message of the host in and answers it.
    fn listen(&mut self) -> bool {
        let Some(pulled) = self.line.pull(self.board.line()) else { return false };
        let mut content = Vec::new();
        let answer = match pulled {
            Ok((message, bytes)) => self.obey(message, &bytes, &mut content),
            Err(_) => Some(FromBoard::Refused { op_id: None, why: Refusal::Message }),
        };
        if let Some(answer) = answer {
            self.line.send(&answer, &content);
        }
        true
    }

    fn obey(
        &mut self,
        message: ToBoard,
        bytes: &[u8],
        content: &mut Vec<u8, CONTENT_MAX>,
    ) -> Option<FromBoard> {
        let refused = |op_id| move |why| FromBoard::Refused { op_id, why };
        Some(match message {
            ToBoard::Greet { session, abi } => {
                self.leave();
                defmt::info!("greeted by a host with ABI {=u16}", abi);
                FromBoard::Hello { session, abi: ABI, build: self.board.descr().build }
            }
            ToBoard::Describe => FromBoard::Identity(self.identity()),
            ToBoard::Join(join) => {
                self.leave();
                self.join(join).map_or_else(refused(None), |()| FromBoard::Member(Some(join.rank)))
            }
            ToBoard::Leave => {
                self.leave();
                FromBoard::Member(None)
            }
            ToBoard::Call(call) => {
                let op_id = call.op_id;
                // Its answer comes when it is over.
                return self.call(&call).err().map(refused(Some(op_id)));
            }
            ToBoard::Cancel { op_id } => {
                self.group.as_mut()?.engine.cancel(op_id);
                return None;
            }
            ToBoard::Peer { rank, at } => {
                self.board.peer(rank, at);
                return None;
            }
            ToBoard::Status => FromBoard::Status(self.status()),
            ToBoard::Write { at } => {
                let written = self.write(at, bytes);
                written.map_or_else(refused(None), |upto| FromBoard::Written { upto })
            }
            ToBoard::Read { at, bytes } => {
                let read = self.read(at, bytes, content);
                read.map_or_else(refused(None), |()| FromBoard::Content { at })
            }
        })
    }

    fn identity(&self) -> Identity {
        let Descr { name, fpu, rates, .. } = self.board.descr();
        let (_, scratch) = self.board.scratch(0);
        let (_, memory) = self.board.memory();
        Identity {
            name: String::try_from(name).unwrap_or_default(),
            dtypes: u16::MAX >> (16 - DType::ALL.len()),
            ops: u16::MAX >> (16 - ReduceOp::ALL.len()),
            fpu,
            calls: C as u8,
            window: W as u16,
            members: P as u16,
            moves: R as u16,
            scratch,
            payload: self.board.payload_max(),
            memory,
            sources: self.board.sources_max(),
            rate: rates.adds,
            copies: rates.copies,
        }
    }

    fn status(&self) -> Status {
        let group = self.group.as_ref();
        Status {
            calls: group.map_or(0, |g| g.calls.len()) as u8,
            next_op: group.map_or(0, |g| g.engine.next_op()),
            uptime_ms: self.board.now().as_nanos() / 1_000_000,
            log_lost: log::lost(),
        }
    }

    /// Apart from the loop, because it needs room on the stack for a whole engine.
    #[inline(never)]
    fn join(&mut self, join: Join) -> Result<(), Refusal> {
        let Join { epoch, rank, members, next_op } = join;
        let mut links: Vec<Option<B::Link>, P> = Vec::new();
        for peer in 0..members {
            let link = if peer == rank { None } else { self.board.link(&join, peer) };
            let missing = link.is_none() && peer != rank;
            if missing || links.push(link).is_err() {
                defmt::error!("no link to member {=u16} of {=u16}", peer, members);
                return Err(Refusal::NoLink(peer));
            }
        }
        let mut engine = Engine::new(rank, epoch, self.board.device(), links);
        engine.skip_to(next_op);
        defmt::info!("member {=u16} of {=u16}, epoch {=u32}", rank, members, epoch);
        self.group = Some(Group { epoch, rank, engine, calls: Vec::new() });
        Ok(())
    }

    /// Gives calls up and leaves the group. Peers are told, and every job ends first.
    fn leave(&mut self) {
        let Some(group) = &mut self.group else { return };
        for &op_id in &group.calls {
            group.engine.cancel(op_id);
        }
        while let Some(&op_id) = group.calls.last() {
            self.board.turn();
            group.engine.poll();
            group.engine.handle_time(self.board.now());
            if group.engine.result(op_id).is_some() {
                group.calls.pop();
            }
        }
        self.group = None;
    }

    fn write(&self, at: u32, bytes: &[u8]) -> Result<u32, Refusal> {
        let (mem, upto) = self.memory(at, bytes.len() as u64)?;
        // SAFETY: within the board's tensor memory, which only calls use otherwise; a host that
        // writes into a tensor in use spoils its own result.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), mem, bytes.len()) };
        Ok(upto)
    }

    fn read(&self, at: u32, bytes: u16, into: &mut Vec<u8, CONTENT_MAX>) -> Result<(), Refusal> {
        let (mem, _) = self.memory(at, bytes.into())?;
        into.resize_default(bytes.into()).map_err(|_| Refusal::Memory)?;
        // SAFETY: as for `write`.
        unsafe { core::ptr::copy_nonoverlapping(mem, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// A part of the tensor memory, and the offset of its end.
    pub(crate) fn memory(&self, at: u32, bytes: u64) -> Result<(*mut u8, u32), Refusal> {
        let (mem, size) = self.board.memory();
        let upto = u64::from(at).checked_add(bytes).filter(|&upto| upto <= size.into());
        let upto = upto.ok_or(Refusal::Memory)?;
        Ok((mem.offset(at.into()).as_ptr(), upto as u32))
    }
}

//! Specialises a SPIR-V module before the driver sees it.
//!
//! One module holds the kernels of many types and operators, and a driver that is told the
//! constants compiles all of it before it throws most of it away: on Mesa that takes some 50 times
//! as long. So the constants are written into the module here, branches whose condition is known
//! by then become jumps, and what cannot be reached is left out: blocks, then functions.
//!
//! Whatever is not understood stays as it is, so the result means what the module meant.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Words before the first instruction.
const HEADER: usize = 5;

// Opcodes, by the numbers of the SPIR-V specification.
const NAME: u32 = 5;
const ENTRY_POINT: u32 = 15;
const TYPES: Range<u32> = 19..40;
const CONSTANT_TRUE: u32 = 41;
const CONSTANT_FALSE: u32 = 42;
const CONSTANT: u32 = 43;
const CONSTANT_COMPOSITE: u32 = 44;
const SPEC_CONSTANT: u32 = 50;
const SPEC_CONSTANT_COMPOSITE: u32 = 51;
const SPEC_CONSTANT_OP: u32 = 52;
const FUNCTION: u32 = 54;
const FUNCTION_END: u32 = 56;
const FUNCTION_CALL: u32 = 57;
const DECORATE: u32 = 71;
const PHI: u32 = 245;
const LOOP_MERGE: u32 = 246;
const SELECTION_MERGE: u32 = 247;
const LABEL: u32 = 248;
const BRANCH: u32 = 249;
const BRANCH_CONDITIONAL: u32 = 250;
const SWITCH: u32 = 251;
const UNREACHABLE: u32 = 255;

/// The decoration of a constant that has a number.
const SPEC_ID: u32 = 1;

/// The words of one instruction.
type Instruction<'a> = &'a [u32];

const fn opcode(instruction: Instruction<'_>) -> u32 {
    instruction[0] & 0xffff
}

/// An instruction of its own making.
fn write(into: &mut Vec<u32>, opcode: u32, operands: &[u32]) {
    into.push((operands.len() as u32 + 1) << 16 | opcode);
    into.extend_from_slice(operands);
}

/// The module with these constants (number and value) written in.
pub(crate) fn specialise(module: &[u32], constants: &[(u32, u32)]) -> Vec<u32> {
    let instructions = split(module);
    let known = Known::find(&instructions, constants);
    let functions = functions(&instructions);
    let first = functions.first().map_or(instructions.len(), |range| range.start);
    let (before, bodies) = (&instructions[..first], functions.into_iter());
    let mut pruned = HashMap::new();
    for body in bodies.clone() {
        let body = &instructions[body];
        pruned.insert(body[0][2], prune(body, &known));
    }
    let called = called(before, &pruned);
    let gone: HashSet<u32> = bodies
        .clone()
        .map(|body| &instructions[body])
        .flat_map(|body| lost(body, called.get(&body[0][2]), &known.types))
        .collect();
    let mut out = module[..HEADER.min(module.len())].to_vec();
    for &instruction in before {
        known.rewrite(instruction, &gone, &mut out);
    }
    for body in bodies {
        if let Some(words) = called.get(&instructions[body.start][2]) {
            out.extend_from_slice(words);
        }
    }
    out
}

/// The instructions of a module; a cut one at its end is left out.
fn split(module: &[u32]) -> Vec<Instruction<'_>> {
    let mut rest = module.get(HEADER..).unwrap_or(&[]);
    let mut instructions = Vec::new();
    while let Some(&word) = rest.first() {
        let length = (word >> 16) as usize;
        if length == 0 || length > rest.len() {
            break;
        }
        let (instruction, after) = rest.split_at(length);
        instructions.push(instruction);
        rest = after;
    }
    instructions
}

/// Where the functions are.
fn functions(instructions: &[Instruction<'_>]) -> Vec<Range<usize>> {
    let find = |wanted| {
        let of = move |(i, instruction): (usize, &Instruction<'_>)| {
            (opcode(instruction) == wanted).then_some(i)
        };
        instructions.iter().enumerate().filter_map(of)
    };
    find(FUNCTION).zip(find(FUNCTION_END)).map(|(start, end)| start..end + 1).collect()
}

/// What is known of a module's constants and types.
struct Known {
    /// Values of constants; 0 and 1 for a bool.
    values: HashMap<u32, u32>,
    types: HashSet<u32>,
    /// Constants of these are true or false.
    bools: HashSet<u32>,
}

impl Known {
    fn find(instructions: &[Instruction<'_>], constants: &[(u32, u32)]) -> Self {
        let constants: HashMap<u32, u32> = constants.iter().copied().collect();
        let mut known =
            Self { values: HashMap::new(), types: HashSet::new(), bools: HashSet::new() };
        let mut given = HashMap::new();
        for instruction in instructions {
            let value = match (opcode(instruction), &instruction[1..]) {
                (20, &[id]) => {
                    known.types.insert(id);
                    known.bools.insert(id);
                    continue;
                }
                (op, &[id, ..]) if TYPES.contains(&op) => {
                    known.types.insert(id);
                    continue;
                }
                (DECORATE, &[id, SPEC_ID, number]) => {
                    given.extend(constants.get(&number).map(|&value| (id, value)));
                    continue;
                }
                (CONSTANT_TRUE, _) => Some(1),
                (CONSTANT_FALSE, _) => Some(0),
                (CONSTANT, &[_, _, value]) => Some(value),
                (SPEC_CONSTANT, &[_, id, _]) => given.get(&id).copied(),
                (SPEC_CONSTANT_OP, &[_, _, op, ref operands @ ..]) => known.evaluate(op, operands),
                _ => continue,
            };
            known.values.extend(value.map(|value| (instruction[2], value)));
        }
        known
    }

    /// The value of an operation on constants of 32 bits and bools.
    fn evaluate(&self, op: u32, operands: &[u32]) -> Option<u32> {
        let value = |i: usize| self.values.get(operands.get(i)?).copied();
        let a = value(0)?;
        if op == 200 {
            return Some(!a);
        }
        if op == 168 {
            return Some(u32::from(a == 0));
        }
        if op == 169 {
            return if a != 0 { value(1) } else { value(2) };
        }
        let b = value(1)?;
        match op {
            128 => Some(a.wrapping_add(b)),
            130 => Some(a.wrapping_sub(b)),
            132 => Some(a.wrapping_mul(b)),
            134 => a.checked_div(b),
            137 => a.checked_rem(b),
            164 | 170 => Some(u32::from(a == b)),
            165 | 171 => Some(u32::from(a != b)),
            166 | 197 => Some(a | b),
            167 | 199 => Some(a & b),
            172 => Some(u32::from(a > b)),
            174 => Some(u32::from(a >= b)),
            176 => Some(u32::from(a < b)),
            178 => Some(u32::from(a <= b)),
            194 => a.checked_shr(b),
            196 => a.checked_shl(b),
            198 => Some(a ^ b),
            _ => None,
        }
    }

    /// An instruction from before the functions.
    fn rewrite(&self, instruction: Instruction<'_>, gone: &HashSet<u32>, out: &mut Vec<u32>) {
        let value = |id| self.values.get(&id).copied();
        match (opcode(instruction), &instruction[1..]) {
            (NAME | DECORATE, &[id, ..]) if gone.contains(&id) => {}
            (DECORATE, &[id, SPEC_ID, _]) if value(id).is_some() => {}
            (SPEC_CONSTANT | SPEC_CONSTANT_OP, &[kind, id, ..]) => match value(id) {
                None => out.extend_from_slice(instruction),
                Some(0) if self.bools.contains(&kind) => write(out, CONSTANT_FALSE, &[kind, id]),
                Some(_) if self.bools.contains(&kind) => write(out, CONSTANT_TRUE, &[kind, id]),
                Some(value) => write(out, CONSTANT, &[kind, id, value]),
            },
            (SPEC_CONSTANT_COMPOSITE, operands)
                if operands[2..].iter().all(|id| self.values.contains_key(id)) =>
            {
                write(out, CONSTANT_COMPOSITE, operands);
            }
            _ => out.extend_from_slice(instruction),
        }
    }
}

/// A block: its label, the instructions up to its end, and how it ends.
struct Block<'a> {
    label: u32,
    body: &'a [Instruction<'a>],
    /// The merge of a header, unless its branch is known.
    merge: Option<Instruction<'a>>,
    /// The only block that follows, or what the module says.
    end: Result<u32, Instruction<'a>>,
}

impl<'a> Block<'a> {
    /// `instructions` is a label, a body and an end.
    fn new(instructions: &'a [Instruction<'a>], known: &Known) -> Option<Self> {
        let (&[_, label], [rest @ .., end]) = (*instructions.first()?, &instructions[1..]) else {
            return None;
        };
        let next = match (opcode(end), &end[1..]) {
            (BRANCH, &[next]) => Ok(next),
            (BRANCH_CONDITIONAL, &[condition, yes, no, ..]) => match known.values.get(&condition) {
                Some(0) => Ok(no),
                Some(_) => Ok(yes),
                None => Err(*end),
            },
            _ => Err(*end),
        };
        let (merge, body) = match rest.split_last() {
            Some((merge, body)) if matches!(opcode(merge), SELECTION_MERGE | LOOP_MERGE) => {
                // A jump selects nothing; a loop stays one.
                let stays = opcode(merge) == LOOP_MERGE || next.is_err();
                (stays.then_some(*merge), body)
            }
            _ => (None, rest),
        };
        Some(Self { label, body, merge, end: next })
    }

    /// The blocks that may follow.
    fn successors(&self) -> Vec<u32> {
        match self.end {
            Ok(next) => vec![next],
            Err(end) => match (opcode(end), &end[1..]) {
                (BRANCH_CONDITIONAL, &[_, yes, no, ..]) => vec![yes, no],
                // The cases are pairs of a number and a label.
                (SWITCH, &[_, default, ref cases @ ..]) => {
                    let labels = cases.iter().skip(1).step_by(2).copied();
                    std::iter::once(default).chain(labels).collect()
                }
                _ => Vec::new(),
            },
        }
    }
}

/// A function without the blocks that cannot be reached.
fn prune(function: &[Instruction<'_>], known: &Known) -> Vec<u32> {
    let whole = || function.concat();
    let is_label = |instruction: &Instruction<'_>| opcode(instruction) == LABEL;
    let Some(start) = function.iter().position(is_label) else { return whole() };
    let (head, rest) = function.split_at(start);
    let (code, tail) = rest.split_at(rest.len() - 1);
    let mut blocks = Vec::new();
    for part in code.chunk_by(|_, next| !is_label(next)) {
        let Some(block) = Block::new(part, known) else { return whole() };
        blocks.push(block);
    }
    let by_label: HashMap<u32, &Block<'_>> = blocks.iter().map(|b| (b.label, b)).collect();
    let mut live = HashSet::new();
    let mut edges = HashSet::new();
    let mut waiting = vec![blocks[0].label];
    while let Some(label) = waiting.pop() {
        let Some(block) = by_label.get(&label) else { return whole() };
        if live.insert(label) {
            let next = block.successors();
            edges.extend(next.iter().map(|&to| (label, to)));
            waiting.extend(next);
        }
    }
    let is_live = |block: &&Block<'_>| live.contains(&block.label);
    let merges = blocks.iter().filter(is_live).filter_map(|block| block.merge);
    // Blocks that a header names but nothing reaches.
    let mut named = HashSet::new();
    for merge in merges {
        let loops = opcode(merge) == LOOP_MERGE;
        if loops && !(live.contains(&merge[1]) && live.contains(&merge[2])) {
            // A loop that is none any more: too rare to take apart.
            return whole();
        }
        named.insert(merge[1]);
    }
    let mut out = head.concat();
    for block in &blocks {
        if live.contains(&block.label) {
            emit(block, &edges, &mut out);
        } else if named.contains(&block.label) {
            write(&mut out, LABEL, &[block.label]);
            write(&mut out, UNREACHABLE, &[]);
        }
    }
    out.extend(tail.concat());
    out
}

/// A block that is reached.
fn emit(block: &Block<'_>, edges: &HashSet<(u32, u32)>, out: &mut Vec<u32>) {
    write(out, LABEL, &[block.label]);
    for instruction in block.body {
        if let (PHI, &[kind, id, ref pairs @ ..]) = (opcode(instruction), &instruction[1..]) {
            let comes = |pair: &&[u32]| edges.contains(&(pair[1], block.label));
            let pairs = pairs.chunks_exact(2).filter(comes).flatten();
            let operands: Vec<u32> = [kind, id].iter().chain(pairs).copied().collect();
            write(out, PHI, &operands);
        } else {
            out.extend_from_slice(instruction);
        }
    }
    out.extend_from_slice(block.merge.unwrap_or(&[]));
    match block.end {
        Ok(next) => write(out, BRANCH, &[next]),
        Err(end) => out.extend_from_slice(end),
    }
}

/// The instructions in the words of a function.
fn code(words: &[u32]) -> impl Iterator<Item = Instruction<'_>> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let length = (*rest.first()? >> 16) as usize;
        let (instruction, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(instruction)
    })
}

/// The functions that entry points call, or what they call does.
fn called<'a>(
    before: &[Instruction<'_>],
    functions: &'a HashMap<u32, Vec<u32>>,
) -> HashMap<u32, &'a Vec<u32>> {
    let entries = before.iter().filter(|i| opcode(i) == ENTRY_POINT).map(|i| i[2]);
    let mut waiting: Vec<u32> = entries.collect();
    let mut called = HashMap::new();
    while let Some(id) = waiting.pop() {
        let Some(words) = functions.get(&id) else { continue };
        if called.insert(id, words).is_none() {
            let calls = code(words).filter(|i| opcode(i) == FUNCTION_CALL);
            waiting.extend(calls.map(|i| i[3]));
        }
    }
    called
}

/// What a function defines that is not in `left`, what is left of it.
fn lost(
    function: &[Instruction<'_>],
    left: Option<&&Vec<u32>>,
    types: &HashSet<u32>,
) -> HashSet<u32> {
    // Whatever makes a value says first of which type it is.
    let defines = |i: Instruction<'_>| match *i {
        [_, kind, id, ..] if types.contains(&kind) => Some(id),
        _ => None,
    };
    let stays: HashSet<u32> =
        left.map(|words| code(words).filter_map(defines).collect()).unwrap_or_default();
    function.iter().filter_map(|i| defines(i)).filter(|id| !stays.contains(id)).collect()
}

#[cfg(test)]
mod tests;

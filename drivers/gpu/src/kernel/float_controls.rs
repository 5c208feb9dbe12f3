//! Adds requests for a device's promises about floating-point numbers to a SPIR-V module.
//!
//! A module may only ask for what the device offers, so that each mix of offers would be a module
//! of its own; instead the few words are put in when it is loaded. Layout of a module: SPIR-V
//! specification, section 2.4; the modes: extension `SPV_KHR_float_controls`.

use super::spirv::{FloatControls, Widths};

/// Words before the first instruction.
const HEADER: usize = 5;
/// Opcodes, in the order of a module's sections.
const EXTENSION: u32 = 10;
const ENTRY_POINT: u32 = 15;
const EXECUTION_MODE: u32 = 16;
const CAPABILITY: u32 = 17;
/// A promise: its capability, and its execution mode.
const DENORM_PRESERVE: (u32, u32) = (4464, 4459);
const SIGNED_ZERO_INF_NAN_PRESERVE: (u32, u32) = (4466, 4461);
const ROUNDING_MODE_RTE: (u32, u32) = (4467, 4462);

/// `module` with requests for `controls`, as far as they are about `widths`.
pub(super) fn request(mut module: Vec<u32>, controls: FloatControls, widths: Widths) -> Vec<u32> {
    let promises = [
        (DENORM_PRESERVE, controls.denorm_preserve),
        (SIGNED_ZERO_INF_NAN_PRESERVE, controls.signed_zero_inf_nan_preserve),
        (ROUNDING_MODE_RTE, controls.rounding_mode_rte),
    ];
    let mut capabilities = Vec::new();
    let mut modes = Vec::new();
    let main = entry_point(&module);
    for ((capability, mode), offered) in promises {
        let asked = [(32, widths.w32 && offered.w32), (64, widths.w64 && offered.w64)];
        for (width, _) in asked.into_iter().filter(|&(_, asked)| asked) {
            modes.extend([4 << 16 | EXECUTION_MODE, main, mode, width]);
        }
        if asked.iter().any(|&(_, asked)| asked) {
            capabilities.extend([2 << 16 | CAPABILITY, capability]);
        }
    }
    if modes.is_empty() {
        return module;
    }
    // From the end on, so that places before stay what they are.
    let after_entry_point = end_of(&module, ENTRY_POINT);
    module.splice(after_entry_point..after_entry_point, modes);
    let after_capabilities = end_of(&module, CAPABILITY);
    module.splice(after_capabilities..after_capabilities, extension());
    module.splice(after_capabilities..after_capabilities, capabilities);
    module
}

/// The instruction that names the extension.
fn extension() -> Vec<u32> {
    // The name ends with a zero, and with the word that the zero is in.
    let name = b"SPV_KHR_float_controls\0\0";
    let words = name.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    let mut instruction = vec![(name.len() as u32 / 4 + 1) << 16 | EXTENSION];
    instruction.extend(words);
    instruction
}

/// Start and opcode of each instruction.
fn instructions(module: &[u32]) -> impl Iterator<Item = (usize, u32)> {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        let word = *module.get(at)?;
        let start = at;
        // No instruction is 0 words long.
        at += ((word >> 16) as usize).max(1);
        Some((start, word & 0xffff))
    })
}

/// Where the last instruction with this opcode ends.
fn end_of(module: &[u32], opcode: u32) -> usize {
    let last = instructions(module).filter(|&(_, found)| found == opcode).last();
    last.map_or(HEADER, |(start, _)| start + (module[start] >> 16) as usize)
}

/// The id of the one entry point.
fn entry_point(module: &[u32]) -> u32 {
    let start = instructions(module).find(|&(_, found)| found == ENTRY_POINT);
    start.and_then(|(start, _)| module.get(start + 2).copied()).unwrap_or(0)
}

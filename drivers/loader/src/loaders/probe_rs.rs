//! A microcontroller with a debug probe (SWD or JTAG): the program `probe-rs` writes the image into
//! its flash and resets it.
//!
//! Options used, of `probe-rs` (<https://probe.rs>, package `probe-rs-tools`): `download` writes a
//! file and, with `--verify`, reads it back; without `--chip` the chip is found out where that is
//! possible; `--non-interactive` fails instead of asking which of several probes is meant.

use super::{Kind, LoadError, Loader, Package, Plan, Way, World, needs, needs_cpu, not_for_qemu};
use crate::package::Elf;
use crate::plan::{Act, Arg, Device, Step};
use object::elf;

pub const WAY: Way = Way { name: "probe-rs", usage: "probe-rs[:CHIP]", open };

/// ELF numbers of CPUs of microcontrollers that `probe-rs` knows.
const CPUS: [u16; 3] = [elf::EM_ARM.0, elf::EM_RISCV.0, elf::EM_XTENSA.0];

struct ProbeRs {
    chip: Option<String>,
}

fn open(rest: Option<&str>) -> Result<Box<dyn Loader>, String> {
    let wrong = |chip: &&str| chip.is_empty() || chip.starts_with('-');
    if rest.as_ref().is_some_and(wrong) {
        return Err("what follows the colon is the name of a chip".to_owned());
    }
    Ok(Box::new(ProbeRs { chip: rest.map(str::to_owned) }))
}

impl ProbeRs {
    /// `probe-rs COMMAND` and what all commands take.
    fn args(&self, command: &str, more: &[&str]) -> Vec<Arg> {
        let chip = self.chip.iter().flat_map(|chip| ["--chip", chip]);
        [command, "--non-interactive"]
            .into_iter()
            .chain(chip)
            .chain(more.iter().copied())
            .map(Arg::from)
            .collect()
    }
}

impl Loader for ProbeRs {
    fn plan(&self, world: &World, package: &Package) -> Result<Plan, LoadError> {
        let to = match &self.chip {
            Some(chip) => format!("probe-rs:{chip}"),
            None => "probe-rs".to_owned(),
        };
        needs(
            &to,
            package,
            Kind::Elf,
            "only an ELF file says where in the flash its parts belong",
        )?;
        let is_micro = |elf: &Elf| elf.bits == 32 && CPUS.contains(&elf.machine);
        let takes = "microcontrollers are reached: 32-bit Arm, RISC-V and Xtensa";
        needs_cpu(&to, package, is_micro, takes)?;
        not_for_qemu(&to, package)?;
        let program = world.program("probe-rs");
        let device = match &program {
            Some(_) => Device::Unseen("probe-rs looks for a probe when it runs".to_owned()),
            None => Device::Missing {
                what: "there is no program probe-rs, so no debug probe was looked for".to_owned(),
                help: "cargo install probe-rs-tools --locked, or see https://probe.rs".to_owned(),
            },
        };
        let program = program.unwrap_or_else(|| "probe-rs".into());
        let run = |args| Act::Run { program: program.clone(), args, says: String::new() };
        let more = ["--disable-progressbars", "--verify", "--binary-format", "elf"];
        let mut download = self.args("download", &more);
        download.push(Arg::Image);
        let name = format!("{}.elf", package.board());
        let steps = vec![
            Step::new(Act::Unpack { name }, "probe-rs reads a file", "the chip is as before"),
            Step::new(
                run(download),
                "writes the flash and reads it back",
                "the chip's flash may be written in part: load again before it is reset",
            ),
            Step::new(
                run(self.args("reset", &[])),
                "starts the new image",
                "the chip has the new image, and starts it when it is reset",
            ),
        ];
        Ok(Plan { to, device, steps })
    }
}

//! The ways into a device, one file each.

mod probe_rs;
mod qemu;
mod remoteproc;
mod rshim;
mod ssh;

use crate::error::LoadError;
use crate::package::{Elf, Kind, Package};
use crate::plan::Plan;
use crate::world::World;
use unisono_offload_dpu::Machine;

pub(crate) use qemu::boot;

/// One way into a device.
pub trait Loader {
    /// What would be done to load this image. Reads the state of the device, changes nothing.
    ///
    /// # Errors
    /// If this image cannot be loaded that way, or the device is in a state that forbids it. What
    /// is missing is no error but [`Device::Missing`](crate::Device::Missing).
    fn plan(&self, world: &World, package: &Package) -> Result<Plan, LoadError>;
}

/// A kind of loader, for the list.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What stands before the colon in `--to`.
    pub name: &'static str,
    /// The whole of it, as the user may write it.
    pub usage: &'static str,
    /// Takes what stands after the colon.
    open: Open,
}

type Open = fn(Option<&str>) -> Result<Box<dyn Loader>, String>;

/// All of them; to add one, write its file and add its line.
pub const LOADERS: [Way; 5] = [qemu::WAY, probe_rs::WAY, rshim::WAY, remoteproc::WAY, ssh::WAY];

/// The loader for what `--to` says.
///
/// # Errors
/// If there is none; the error lists all.
pub fn loader(to: &str) -> Result<Box<dyn Loader>, LoadError> {
    let (name, rest) = match to.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (to, None),
    };
    let Some(way) = LOADERS.iter().find(|way| way.name == name) else {
        let all: Vec<&str> = LOADERS.iter().map(|way| way.usage).collect();
        return Err(LoadError::Way(format!("{to}: no such loader; there are {}", all.join(", "))));
    };
    let wrong = |why| LoadError::Way(format!("{to}: {why}; it is {}", way.usage));
    (way.open)(rest).map_err(wrong)
}

/// The number after the colon; 0 if there is none.
fn number(rest: Option<&str>) -> Result<u16, String> {
    let number = rest.map_or(Ok(0), str::parse);
    number.map_err(|_| "what follows the colon is the number of a device".to_owned())
}

/// Refuses what runs on no device: images of boards that exist under QEMU only.
fn not_for_qemu(to: &str, package: &Package) -> Result<(), LoadError> {
    let is_its = |machine: &&&Machine| machine.board() == package.board();
    let emulated = Machine::ALL.iter().filter(|machine| machine.name.starts_with("qemu-"));
    let Some(machine) = emulated.into_iter().find(is_its) else { return Ok(()) };
    let name = machine.name.replacen('-', ":", 1);
    let why =
        format!("it is for board {}, a machine of QEMU; load it with --to {name}", package.board());
    Err(LoadError::Unfit { to: to.to_owned(), why })
}

/// Refuses an ELF file whose CPU is none that is reached this way: `takes` says which are.
fn needs_cpu(
    to: &str,
    package: &Package,
    is_one: impl Fn(&Elf) -> bool,
    takes: &str,
) -> Result<(), LoadError> {
    match package.elf() {
        Some(elf) if !is_one(elf) => {
            let why = format!("it is {elf}, and {takes}");
            Err(LoadError::Unfit { to: to.to_owned(), why })
        }
        _ => Ok(()),
    }
}

/// Refuses what is not of this kind.
fn needs(to: &str, package: &Package, kind: Kind, help: &str) -> Result<(), LoadError> {
    if package.kind() == kind {
        return Ok(());
    }
    let why = format!("it is {}, and {help}", package.kind());
    Err(LoadError::Unfit { to: to.to_owned(), why })
}

//! BlueField's Arm cores, from the host, through rshim: `/dev/rshimN/misc` takes settings, a line
//! each, and `/dev/rshimN/boot` takes a boot stream.
//!
//! Facts used, of the driver and its manual (<https://github.com/Mellanox/rshim-user-space>,
//! `man/rshim.8`, `src/rshim.c`, `src/rshim_fuse.c`): `BOOT_MODE 0` lets the next reset boot from
//! rshim; `SW_RESET 1` resets the Arm cores; a write to `misc` is one command and must be at offset
//! 0, so each has the file opened anew. Opening `boot` also sets that mode and resets, unless
//! `BOOT_RESET_SKIP` was set; the two lines before make the outcome independent of it. Closing
//! `boot` sets the mode back to 1 (eMMC), whether all was written or not. Boot streams consist of
//! images with headers (`scripts/mlx-mkbfb`).

use super::{Kind, LoadError, Loader, Package, Plan, Way, World, needs, not_for_qemu, number};
use crate::plan::{Act, Device, Step};
use std::path::Path;

pub const WAY: Way = Way { name: "rshim", usage: "rshim[:N]", open };

struct Rshim(u16);

fn open(rest: Option<&str>) -> Result<Box<dyn Loader>, String> {
    Ok(Box::new(Rshim(number(rest)?)))
}

/// What the card says of itself, a line `KEY  VALUE` each.
fn info(misc: &Path) -> String {
    let text = std::fs::read_to_string(misc).unwrap_or_default();
    let values = ["DEV_INFO", "DEV_NAME", "BOOT_MODE"].into_iter().filter_map(|key| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?.trim();
        Some(format!("{key} {value}"))
    });
    match values.collect::<Vec<_>>().join(", ").as_str() {
        "" => format!("{}, which says nothing of itself", misc.display()),
        values => values.to_owned(),
    }
}

impl Loader for Rshim {
    fn plan(&self, world: &World, package: &Package) -> Result<Plan, LoadError> {
        let to = format!("rshim:{}", self.0);
        let help = "a BlueField boots boot streams (.bfb): wrap it with `mlx-mkbfb`, or copy a \
                    Linux program with --to ssh:HOST";
        needs(&to, package, Kind::BootStream, help)?;
        not_for_qemu(&to, package)?;
        let [misc, boot] =
            ["misc", "boot"].map(|f| world.path(&format!("dev/rshim{}/{f}", self.0)));
        let device = match [&misc, &boot].into_iter().find(|path| !path.exists()) {
            None => Device::Seen(info(&misc)),
            Some(path) => Device::Missing {
                what: format!("no BlueField was seen: there is no {}", path.display()),
                help: "run this on the host that the card is in, with the rshim driver started: \
                       systemctl start rshim"
                    .to_owned(),
            },
        };
        let line = |line: &str| Act::Write { path: misc.clone(), line: line.to_owned() };
        let steps = vec![
            Step::new(
                line("BOOT_MODE 0"),
                "the next reset of the Arm cores waits for a boot stream",
                "the Arm cores run as before",
            ),
            Step::new(
                line("SW_RESET 1"),
                "resets the Arm cores; what runs on them ends",
                format!(
                    "the Arm cores run as before, but their next reset would wait for a boot \
                     stream: write `BOOT_MODE 1` into {} to undo that",
                    misc.display()
                ),
            ),
            Step::new(
                Act::Stream { path: boot, bytes: package.payload().len() as u64 },
                "the Arm cores boot it; the driver sets BOOT_MODE back to 1 at the end",
                format!(
                    "the Arm cores have no system: load again, or write `SW_RESET 1` into {} to \
                     boot the old one from eMMC",
                    misc.display()
                ),
            ),
        ];
        Ok(Plan { to, device, steps })
    }
}

//! A companion core under Linux's remoteproc: the image lies in `/lib/firmware`, its name is
//! written into `firmware`, and `state` starts and stops the core.
//!
//! Facts used, of the kernel's `Documentation/ABI/testing/sysfs-class-remoteproc` and
//! `drivers/remoteproc/remoteproc_sysfs.c`: `firmware` can be written only while the core is
//! offline; `stop` is taken only in the states running and attached; it succeeds even if somebody
//! else still needs the core, which then goes on running. Images are ELF files.

use super::{
    Kind, LoadError, Loader, Package, Plan, Way, World, needs, needs_cpu, not_for_qemu, number,
};
use crate::package::Elf;
use crate::plan::{Act, Device, Step};
use object::elf;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const WAY: Way = Way { name: "remoteproc", usage: "remoteproc[:N]", open };

/// The state has changed when the kernel returns from `start` and `stop`; if it has not, somebody
/// else needs the core or it has crashed at once, and waiting longer would not help.
const PATIENCE: Duration = Duration::from_secs(10);

/// ELF numbers of CPUs that Linux itself runs on; RISC-V is not among them, as both have it.
const HOSTS: [u16; 3] = [elf::EM_386.0, elf::EM_X86_64.0, elf::EM_AARCH64.0];

struct RemoteProc(u16);

fn open(rest: Option<&str>) -> Result<Box<dyn Loader>, String> {
    Ok(Box::new(RemoteProc(number(rest)?)))
}

/// Files of a core.
struct Files {
    state: PathBuf,
    firmware: PathBuf,
    name: PathBuf,
    images: PathBuf,
}

impl RemoteProc {
    fn files(&self, world: &World) -> Files {
        let core = format!("sys/class/remoteproc/remoteproc{}", self.0);
        let file = |name: &str| world.path(&format!("{core}/{name}"));
        let images = world.path("lib/firmware");
        Files { state: file("state"), firmware: file("firmware"), name: file("name"), images }
    }
}

/// What a control file says.
fn read(path: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(path).map(|text| text.trim_end().to_owned())
}

fn missing(path: &Path, error: &std::io::Error) -> Device {
    Device::Missing {
        what: format!("no core was seen: {}: {error}", path.display()),
        help:
            "run this on the Linux beside the core, whose kernel needs remoteproc and the core's \
               driver"
                .to_owned(),
    }
}

impl Loader for RemoteProc {
    fn plan(&self, world: &World, package: &Package) -> Result<Plan, LoadError> {
        let to = format!("remoteproc:{}", self.0);
        needs(&to, package, Kind::Elf, "Linux loads ELF files into a core")?;
        // The kernel does not compare: it would start such a core into another one's code.
        let is_companion = |elf: &Elf| !HOSTS.contains(&elf.machine);
        let takes = "a companion core is a microcontroller or a DSP, not such a CPU";
        needs_cpu(&to, package, is_companion, takes)?;
        not_for_qemu(&to, package)?;
        let files = self.files(world);
        // Old kernels have no name.
        let core = read(&files.name).map_or_else(|_| to.clone(), |name| format!("core {name}"));
        let (state, device) = match read(&files.state) {
            Ok(state) => (state.clone(), Device::Seen(format!("{core}, {state}"))),
            Err(error) => ("offline".to_owned(), missing(&files.state, &error)),
        };
        let runs = match state.as_str() {
            "offline" => false,
            "running" | "attached" => true,
            other => {
                let why = format!(
                    "{} says `{other}`, and Linux stops a core only while it runs: let its driver \
                     recover it (`enabled` in the file `recovery` beside it), or restart this \
                     machine",
                    files.state.display()
                );
                return Err(LoadError::State { to, why });
            }
        };
        let image = format!("unisono-{}.elf", package.board());
        let mut steps = vec![Step::new(
            Act::Install { path: files.images.join(&image), bytes: package.payload().len() as u64 },
            "the kernel looks for images there",
            format!("{core} is {state}, as before"),
        )];
        let write = |path: &Path, line: &str| {
            let (path, line) = (path.to_owned(), line.to_owned());
            Act::Write { path, line }
        };
        let wait = |line: &str| {
            let (path, line) = (files.state.clone(), line.to_owned());
            Act::Await { path, line, patience: PATIENCE }
        };
        if runs {
            let left = format!("{core} runs its old image");
            let why = "a core gets an image only while it is stopped";
            steps.push(Step::new(write(&files.state, "stop"), why, &left));
            let left = format!("{left}, or is stopped: see {}", files.state.display());
            steps.push(Step::new(wait("offline"), "nobody else may need the core", left));
        }
        let left = format!("{core} is stopped and has its old image");
        steps.push(Step::new(write(&files.firmware, &image), "names the new image", left));
        let left = format!("{core} is stopped and has the new image; the kernel's log says more");
        steps.push(Step::new(write(&files.state, "start"), "starts the new image", &left));
        let left =
            format!("{core} was started; {} and the kernel's log say more", files.state.display());
        steps.push(Step::new(wait("running"), "the new image runs", left));
        Ok(Plan { to, device, steps })
    }
}

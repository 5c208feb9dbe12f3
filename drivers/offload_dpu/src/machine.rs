//! Machines that can be started here.

use crate::error::Problem;
use crate::process::lead;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of machine, and how it is started.
#[derive(Debug)]
pub struct Machine {
    /// Name, as in `--on dpu:NAME`.
    pub name: &'static str,
    /// File name of its image.
    pub image: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// How it is reached.
    pub(crate) line: Line,
    /// ELF machine number of its images.
    pub(crate) elf: u16,
    program: &'static str,
    /// Debian's package of that.
    pub package: &'static str,
    args: &'static [&'static str],
    load: Load,
}

/// How a machine gets its image.
#[derive(Debug)]
enum Load {
    /// It is a machine of its own, with an option that names the image: `{}` is its path.
    Option([&'static str; 2]),
    /// It runs programs of Linux: the image is one, and the window its argument.
    Program,
}

/// How a board is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A window of memory.
    Window,
    /// Serial lines.
    Serial,
    /// A window of memory, and a network card for the links.
    Udp,
}

/// What all of QEMU's machines get: no screen, no network, exit codes by semihosting.
const QEMU: &[&str] = &[
    "-display",
    "none",
    "-monitor",
    "none",
    "-nic",
    "none",
    "-semihosting-config",
    "enable=on,target=native",
];

impl Machine {
    /// QEMU's aarch64 `virt` machine with two Cortex-A72.
    pub const QEMU_AARCH64: Self = Self {
        name: "qemu-aarch64",
        image: "qemu_virt_aarch64",
        about: "two Cortex-A72 under QEMU, behind a memory window",
        line: Line::Window,
        elf: object::elf::EM_AARCH64.0,
        program: "qemu-system-aarch64",
        package: "qemu-system-arm",
        args: &["-M", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "128M"],
        load: Load::Option(["-kernel", "{}"]),
    };

    /// QEMU's riscv64 `virt` machine, whose image uses neither floating-point registers nor
    /// compressed floating-point instructions.
    pub const QEMU_RISCV64: Self = Self {
        name: "qemu-riscv64",
        image: "qemu_virt_riscv64",
        about: "one rv64imac hart under QEMU, no FPU, behind a memory window",
        line: Line::Window,
        elf: object::elf::EM_RISCV.0,
        program: "qemu-system-riscv64",
        package: "qemu-system-misc",
        args: &["-M", "virt", "-cpu", "rv64,f=off,d=off", "-bios", "none", "-m", "128M"],
        load: Load::Option(["-device", "loader,cpu-num=0,file={}"]),
    };

    /// The same with a network card, for links over UDP.
    pub const QEMU_AARCH64_UDP: Self = Self {
        name: "qemu-aarch64-udp",
        image: "qemu_virt_aarch64_udp",
        about: "two Cortex-A72 under QEMU, links over UDP",
        line: Line::Udp,
        ..Self::QEMU_AARCH64
    };

    /// The same with a network card, for links over UDP.
    pub const QEMU_RISCV64_UDP: Self = Self {
        name: "qemu-riscv64-udp",
        image: "qemu_virt_riscv64_udp",
        about: "one rv64imac hart under QEMU, no FPU, links over UDP",
        line: Line::Udp,
        ..Self::QEMU_RISCV64
    };

    /// QEMU's `mps2-an386`: a Cortex-M4 with serial lines and nothing else.
    pub const QEMU_CORTEX_M: Self = Self {
        name: "qemu-cortex-m",
        image: "qemu_mps2_cortex_m",
        about: "a Cortex-M4 under QEMU, behind serial lines",
        line: Line::Serial,
        elf: object::elf::EM_ARM.0,
        program: "qemu-system-arm",
        package: "qemu-system-arm",
        args: &["-M", "mps2-an386"],
        load: Load::Option(["-kernel", "{}"]),
    };

    /// A program for the Arm Linux of a DPU, on QEMU's Cortex-A72 without a machine around it.
    pub const LINUX_AARCH64: Self = Self {
        name: "linux-aarch64",
        image: "dpu_linux",
        about: "a program for a DPU's Arm Linux, under QEMU",
        line: Line::Window,
        elf: object::elf::EM_AARCH64.0,
        program: "qemu-aarch64",
        package: "qemu-user",
        args: &["-cpu", "cortex-a72"],
        load: Load::Program,
    };

    /// All of them.
    pub const ALL: [&'static Self; 6] = [
        &Self::QEMU_AARCH64,
        &Self::QEMU_AARCH64_UDP,
        &Self::QEMU_RISCV64,
        &Self::QEMU_RISCV64_UDP,
        &Self::QEMU_CORTEX_M,
        &Self::LINUX_AARCH64,
    ];

    /// The machine of this name; `_` in it is `-`, as in names of images.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = name.replace('_', "-");
        Self::ALL.into_iter().find(|machine| machine.name == name)
    }

    /// The board that its images are for, as it is written everywhere: files have `_` for `-`.
    #[must_use]
    pub fn board(&self) -> String {
        self.image.replace('_', "-")
    }

    /// Do calls and log go through a window of memory?
    #[must_use]
    pub const fn has_window(&self) -> bool {
        !matches!(self.line, Line::Serial)
    }

    /// Do the links to its peers go through that window too?
    #[must_use]
    pub const fn has_window_links(&self) -> bool {
        matches!(self.line, Line::Window)
    }

    /// The program that runs it.
    #[must_use]
    pub const fn program(&self) -> &'static str {
        self.program
    }

    /// Its program does not start.
    pub(crate) fn unstarted(&self, error: std::io::Error) -> Problem {
        let (program, package) = (self.program, self.package);
        Problem::Start { program, package, error }
    }

    /// Can it be started here? That is, does its program answer.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let mut command = Command::new(self.program);
        // Ctrl-C would make it a program that does not start.
        lead(&mut command);
        command.arg("--version").stdout(std::process::Stdio::null());
        match command.stderr(std::process::Stdio::null()).status() {
            Ok(status) => status.success(),
            // What cannot be started for lack of processes or memory is there.
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory),
        }
    }

    /// Where an image can be run from: QEMU runs a program of Linux only if its file is executable,
    /// which files that were copied or downloaded often are not. Such a one is copied to `folder`.
    #[cfg(unix)]
    pub(crate) fn runnable(&self, image: &Path, folder: &Path) -> Result<PathBuf, Problem> {
        use std::os::unix::fs::PermissionsExt;
        let wrong = |why: std::io::Error| Problem::Image {
            path: image.to_owned(),
            why: format!("it cannot be copied: {why}"),
        };
        let mode = fs::metadata(image).map_err(wrong)?.permissions().mode();
        if mode & 0o111 != 0 || !matches!(self.load, Load::Program) {
            return Ok(image.to_owned());
        }
        let copy = folder.join(self.image);
        fs::copy(image, &copy).map_err(wrong)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).map_err(wrong)?;
        Ok(copy)
    }

    /// Files have no such bit.
    #[cfg(not(unix))]
    pub(crate) fn runnable(&self, image: &Path, _: &Path) -> Result<PathBuf, Problem> {
        Ok(image.to_owned())
    }

    /// Runs an image with a window that is the file `window`, and with more arguments for the
    /// machine.
    pub(crate) fn command(
        &self,
        image: &Path,
        window: &Path,
        bytes: u64,
        more: &[String],
    ) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.args).args(more);
        if matches!(self.load, Load::Program) {
            command.arg(image).arg(window);
            return command;
        }
        command.args(QEMU);
        let path = window.display();
        command.args(["-serial", "none", "-object"]);
        command.arg(format!("memory-backend-file,id=window,size={bytes},mem-path={path},share=on"));
        command.args(["-device", "ivshmem-plain,memdev=window"]);
        self.load(&mut command, image);
        command
    }

    fn load(&self, command: &mut Command, image: &Path) {
        if let Load::Option([option, value]) = self.load {
            command.arg(option).arg(value.replace("{}", &image.display().to_string()));
        }
    }

    /// Runs an image whose UARTs are these sockets, in their order.
    pub(crate) fn serial_command(&self, image: &Path, sockets: &[PathBuf]) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.args).args(QEMU);
        for (i, socket) in sockets.iter().enumerate() {
            let path = socket.display();
            command.arg("-chardev").arg(format!("socket,id=uart{i},path={path}"));
            command.arg("-serial").arg(format!("chardev:uart{i}"));
        }
        self.load(&mut command, image);
        command
    }
}

//! The Linux of a DPU, over the network: `scp` copies a program into the home folder, `ssh` checks
//! it there and gives it its name. It is not started.

use super::{LoadError, Loader, Package, Plan, Way, World, not_for_qemu};
use crate::plan::{Act, Arg, Device, Step};

pub const WAY: Way = Way { name: "ssh", usage: "ssh:[USER@]HOST", open };

/// Nobody is there to be asked for a password, or to wait for a host that is switched off.
const OPTIONS: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];

struct Ssh {
    host: String,
}

fn open(rest: Option<&str>) -> Result<Box<dyn Loader>, String> {
    let host = rest.unwrap_or_default();
    // A `-` would make it an option of ssh, a `:` or `/` a path of scp.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if host.is_empty() || host.starts_with('-') || !host.chars().all(plain) {
        return Err(
            "what follows the colon is a host, for ports and the like use ~/.ssh/config".to_owned()
        );
    }
    Ok(Box::new(Ssh { host: host.to_owned() }))
}

impl Loader for Ssh {
    fn plan(&self, world: &World, package: &Package) -> Result<Plan, LoadError> {
        let host = &self.host;
        let to = format!("ssh:{host}");
        let Some(uname) = package.elf().and_then(|elf| elf.uname()) else {
            let is = package.elf().map_or_else(|| package.kind().to_string(), ToString::to_string);
            let why = format!("it is {is}, and a Linux runs ELF files of its own machine");
            return Err(LoadError::Unfit { to, why });
        };
        not_for_qemu(&to, package)?;
        if !package.elf().is_some_and(|elf| elf.program) {
            let why = "it is no program of Linux but an image for a bare machine: it names no \
                       interpreter, and does not load its own headers"
                .to_owned();
            return Err(LoadError::Unfit { to, why });
        }
        let [ssh, scp] = ["ssh", "scp"].map(|name| (name, world.program(name)));
        let device = match [&ssh, &scp].into_iter().find(|(_, path)| path.is_none()) {
            None => Device::Unseen(format!("{host} is asked when ssh runs")),
            Some((name, _)) => Device::Missing {
                what: format!("there is no program {name}, so {host} was not asked"),
                help: "install the OpenSSH client; Debian's package is openssh-client".to_owned(),
            },
        };
        let run = |(name, path): &(&str, Option<_>), args: Vec<Arg>, says: String| {
            let program = path.clone().unwrap_or_else(|| (*name).into());
            let args = OPTIONS.map(Arg::from).into_iter().chain(args).collect();
            Act::Run { program, args, says }
        };
        let remote = |command: &str, says: String| {
            run(&ssh, vec![host.as_str().into(), command.into()], says)
        };
        let name = format!("unisono-{}", package.board());
        let part = format!("{name}.part");
        let before = format!("{host} is as before");
        let copied =
            format!("{host} has a file {part} in the home folder, and otherwise is as before");
        let copy = vec![Arg::Image, Arg::Text(format!("{host}:{part}"))];
        let sum = package.sha256();
        let steps = vec![
            Step::new(Act::Unpack { name: name.clone() }, "scp reads a file", &before),
            Step::new(remote("uname -m", format!("{uname}\n")), "it must run there", &before),
            Step::new(run(&scp, copy, String::new()), "copies it", &copied),
            Step::new(remote(&format!("sha256sum {part}"), sum), "it arrived whole", &copied),
            Step::new(
                remote(&format!("chmod 755 {part} && mv -f {part} {name}"), String::new()),
                "it is complete or not there",
                &copied,
            ),
        ];
        Ok(Plan { to, device, steps })
    }
}

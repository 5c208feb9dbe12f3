//! The child process in which drivers are tried.

use super::heard::{Fault, Heard, Line, Listed};
use super::{Only, Open, Wanted};
use clap::ValueEnum;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use unisono::device::{Api, Card, Catalog, DeviceSpec, GpuError, Opened, Which};
use unisono::device::{driver_files, driver_library, try_library};

/// The tool's command that is the child. Not for users, so it has a name that none will have.
pub const COMMAND: &str = "drivers-here";
/// After this part of its patience the user is told what is waited for.
const SILENCE: u32 = 3;
/// How often is looked whether the child has ended.
const PERIOD: Duration = Duration::from_millis(2);

/// What the child is told.
#[derive(clap::Args, Debug)]
pub struct TrialArgs {
    api: Name,
    /// Open these
    #[arg(long, value_name = "DEVICE")]
    open: Vec<DeviceSpec>,
    /// Open all
    #[arg(long)]
    open_all: bool,
    /// But for the one at this place of the list
    #[arg(long, value_name = "INDEX")]
    without: Vec<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Vulkan,
    Opencl,
}

/// A child that loads drivers and opens devices, and what it says.
#[derive(Debug)]
pub struct Trial(std::io::Result<Running>);

#[derive(Debug)]
struct Running {
    api: Api,
    child: Child,
    /// Until this is closed it opens nothing.
    gate: Option<ChildStdin>,
    words: PipeReader,
    heard: Heard,
    /// The user has been told that it takes long.
    told: bool,
}

/// How far a child is.
enum Step {
    GoesOn,
    Ended(ExitStatus),
    Hangs,
}

impl Trial {
    /// Starts it.
    pub fn start(wanted: &Wanted, only: Option<&Only>, without: &[usize]) -> Self {
        let started = std::env::current_exe().and_then(|tool| {
            let (words, end) = std::io::pipe()?;
            // Elsewhere nobody notices that a driver hangs.
            #[cfg(unix)]
            rustix::io::ioctl_fionbio(&words, true)?;
            let mut command = Command::new(tool);
            command.arg(COMMAND).args(arguments(wanted, without));
            command.envs(only.into_iter().flat_map(Only::variables));
            // What a library says while it dies may be the reason.
            command.stdin(Stdio::piped()).stdout(end.try_clone()?).stderr(end);
            let mut child = command.spawn()?;
            let (gate, heard) = (child.stdin.take(), Heard::new());
            Ok(Running { api: wanted.api, child, gate, words, heard, told: false })
        });
        Self(started)
    }

    /// Waits until it has listed its API's devices, unless that fails. Is one that is wanted not
    /// among them?
    pub fn list(&mut self) -> bool {
        let Ok(running) = &mut self.0 else { return false };
        while running.heard.listed().is_none() && matches!(running.step(), Ok(Step::GoesOn)) {
            std::thread::sleep(PERIOD);
        }
        running.heard.listed() == Some(Listed::Incomplete)
    }

    /// Lets it open devices.
    pub fn go_on(&mut self) {
        if let Ok(Running { gate: gate @ Some(_), heard, .. }) = &mut self.0 {
            *gate = None;
            if heard.listed().is_some() {
                // It has waited for this.
                heard.restart();
            }
        }
    }

    /// Has it listed devices? All that is left is to open them.
    pub fn has_listed(&self) -> bool {
        self.0.as_ref().is_ok_and(|running| running.heard.listed().is_some())
    }

    /// Ends it: nobody wants to know more. Returns the files of drivers whose libraries do not
    /// load, and why.
    pub fn give_up(self) -> Vec<(PathBuf, String)> {
        let Ok(mut running) = self.0 else { return Vec::new() };
        running.kill();
        running.heard.useless()
    }

    /// Waits for its end. Returns the files of drivers whose libraries do not load, and why.
    ///
    /// # Errors
    /// What is wrong with the drivers or with a device.
    pub fn end(mut self) -> Result<Vec<(PathBuf, String)>, Fault> {
        self.go_on();
        let mut running = match self.0 {
            Ok(running) => running,
            // Drivers end a process that has no room for theirs.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Fault::NoChild(error.to_string()));
            }
            // The tool's own file is gone.
            Err(error) => {
                tracing::debug!("drivers are not tried first: {error}");
                return Ok(Vec::new());
            }
        };
        loop {
            match running.step() {
                Ok(Step::GoesOn) => std::thread::sleep(PERIOD),
                Ok(Step::Ended(status)) => return running.heard.end(Some(status)),
                Ok(Step::Hangs) => {
                    running.kill();
                    return running.heard.end(None);
                }
                Err(error) => {
                    tracing::debug!("drivers are not tried first: {error}");
                    return Ok(Vec::new());
                }
            }
        }
    }
}

impl Running {
    /// Hears what it says meanwhile.
    fn step(&mut self) -> std::io::Result<Step> {
        let ended = self.child.try_wait()?;
        self.drain();
        if let Some(status) = ended {
            return Ok(Step::Ended(status));
        }
        let (time, patience) = self.heard.times();
        if time > patience {
            return Ok(Step::Hangs);
        }
        if !self.told && time > patience / SILENCE {
            let (api, what) = (self.api.name(), self.heard.step());
            tracing::warn!("{api}: {what} takes long; it gets {patience:?}");
            self.told = true;
        }
        Ok(Step::GoesOn)
    }

    /// Hears what has been said. Programs that a library has started may keep the pipe open, so
    /// nothing is waited for.
    fn drain(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.words.read(&mut bytes) {
            self.heard.hear(&bytes[..count]);
        }
    }

    fn kill(&mut self) {
        // It may have ended by itself just now.
        let (_, _) = (self.child.kill(), self.child.wait());
    }
}

fn arguments(wanted: &Wanted, without: &[usize]) -> Vec<String> {
    let name = if wanted.api == Api::Vulkan { Name::Vulkan } else { Name::Opencl };
    let name = name.to_possible_value();
    let name = name.map(|name| name.get_name().to_owned());
    let open = match &wanted.open {
        Open::Nothing => Vec::new(),
        Open::All => vec!["--open-all".to_owned()],
        Open::These(specs) => specs.iter().map(|spec| format!("--open={spec}")).collect(),
    };
    let without = without.iter().map(|index| format!("--without={index}"));
    name.into_iter().chain(open).chain(without).collect()
}

/// Loads the drivers and opens the devices, as [`Trial`]'s child.
pub fn load(args: &TrialArgs) -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Err(error) = be_expendable() {
        tracing::debug!("{error}");
    }
    let api = match args.api {
        Name::Vulkan => Api::Vulkan,
        Name::Opencl => Api::OpenCl,
    };
    let catalog = Catalog::of(&[api]);
    for missing in catalog.missing {
        if let GpuError::Broken { what, .. } = missing.error {
            say(&Line::Broken(&what));
            return ExitCode::FAILURE;
        }
    }
    for file in driver_files(api) {
        let Some(library) = driver_library(api, &file) else { continue };
        // SAFETY: whatever it does, that is what this process is for.
        if let Err(why) = unsafe { try_library(&library) }
            && !wants_memory(&why)
        {
            say(&Line::Useless(&file, &why));
        }
    }
    let open = if args.open_all { Open::All } else { Open::These(args.open.clone()) };
    let cards = || catalog.devices.iter().flatten();
    let complete = open.is_in(cards());
    say(&Line::Listed(if complete { Listed::Complete } else { Listed::Incomplete }));
    // The parent closes this when all drivers have listed their devices, or is gone.
    let _ = std::io::stdin().read(&mut [0]);
    // Otherwise the command ends before it opens one.
    for card in cards().filter(|_| complete) {
        if open.takes(card) && !args.without.contains(&card.index) {
            say(&Line::Opening(card.index, &card.name));
            try_device(card);
            say(&Line::Opened);
        }
    }
    say(&Line::Done);
    ExitCode::SUCCESS
}

/// Does the system's loader say that there is no memory? Then nothing is wrong with the library.
fn wants_memory(why: &str) -> bool {
    ["failed to map segment", "Cannot allocate memory"].iter().any(|words| why.contains(words))
}

/// All that a driver may die of. An error is no death: the parent gets the same one.
fn try_device(card: &Card) {
    let which = Which::Index(card.index);
    let on = match card.api {
        Api::Vulkan => DeviceSpec::Vulkan(which),
        Api::OpenCl => DeviceSpec::OpenCl(which),
    };
    if let Err(error) = Opened::open(&on).and_then(|on| on.map(|on| on.tested()).transpose()) {
        tracing::debug!("{error}");
    }
}

fn say(line: &Line<'_>) {
    // Nobody is left to be told that stdout is closed.
    let _ = std::io::stdout().write_all(line.to_string().as_bytes());
    let _ = std::io::stdout().flush();
}

/// Leaves no core file behind, and does not outlive its parent.
#[cfg(target_os = "linux")]
fn be_expendable() -> rustix::io::Result<()> {
    use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

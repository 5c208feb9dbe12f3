//! The child process in which drivers are tried.

use super::Only;
use clap::ValueEnum;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use unisono::device::{Api, Catalog, GpuError};

/// A driver that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this the user is told what is waited for.
const SILENCE: Duration = Duration::from_secs(2);
/// What the child says last if all went well: a library may end a process with any status.
const DONE: &str = "unisono has listed the devices\n";
/// How often is looked whether the child has ended.
const PERIOD: Duration = Duration::from_millis(2);
/// Most bytes that a child can say without being read, on all systems.
const WORDS_MAX: usize = 4000;

/// What the child is told.
#[derive(clap::Args, Debug)]
pub struct TrialArgs {
    api: Name,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Vulkan,
    Opencl,
}

/// A child that loads drivers.
pub struct Trial(Option<Child>);

impl Trial {
    /// Starts it. If the system refuses, drivers are not tried.
    pub fn start(api: Api, only: Option<&Only>) -> Self {
        let name = if api == Api::Vulkan { Name::Vulkan } else { Name::Opencl };
        let name = name.to_possible_value();
        let child = std::env::current_exe().and_then(|tool| {
            let mut command = Command::new(tool);
            command.arg("try-drivers").args(name.as_ref().map(|name| name.get_name()));
            command.envs(only.into_iter().flat_map(Only::variables));
            // What a library says while it dies is not worth the reader's time.
            command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn()
        });
        Self(child.inspect_err(|e| tracing::debug!("drivers are not tried first: {e}")).ok())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What is wrong with the drivers.
    pub fn end(self) -> Result<(), String> {
        let Some(mut child) = self.0 else { return Ok(()) };
        let (started, mut told) = (Instant::now(), false);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if started.elapsed() < PATIENCE => {
                    if !told && started.elapsed() > SILENCE {
                        tracing::warn!("a GPU driver takes long to load; it gets {PATIENCE:?}");
                        told = true;
                    }
                    std::thread::sleep(PERIOD);
                }
                Ok(None) => {
                    // It may have ended by itself just now.
                    let (_, _) = (child.kill(), child.wait());
                    return Err(format!("a process that loads it hangs for {PATIENCE:?}"));
                }
                Err(error) => {
                    tracing::debug!("drivers are not tried first: {error}");
                    return Ok(());
                }
            }
        };
        let mut words = Vec::new();
        if let Some(mut out) = child.stdout.take() {
            // Without words there is the status.
            let _ = out.read_to_end(&mut words);
        }
        let mut words = String::from_utf8_lossy(&words).into_owned();
        if status.success() && words.ends_with(DONE) {
            return Ok(());
        }
        if status.code() != Some(1) {
            words.clear();
        }
        let died = || format!("a process that loads it ends with {status}");
        Err(if words.is_empty() { died() } else { words })
    }
}

/// Loads the drivers, as [`Trial`]'s child.
pub fn try_drivers(args: &TrialArgs) -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Err(error) = be_expendable() {
        tracing::debug!("{error}");
    }
    let api = match args.api {
        Name::Vulkan => Api::Vulkan,
        Name::Opencl => Api::OpenCl,
    };
    let missing = Catalog::of(&[api]).missing;
    let broken = missing.into_iter().find_map(|missing| match missing.error {
        GpuError::Broken { what, .. } => Some(what),
        _ => None,
    });
    let (words, code) = match broken {
        None => (DONE.to_owned(), ExitCode::SUCCESS),
        Some(words) => (words.chars().take(WORDS_MAX / 4).collect(), ExitCode::FAILURE),
    };
    // Nobody is left to be told that stdout is closed.
    let _ = std::io::stdout().write_all(words.as_bytes());
    code
}

/// Leaves no core file behind, and does not outlive its parent.
#[cfg(target_os = "linux")]
fn be_expendable() -> rustix::io::Result<()> {
    use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

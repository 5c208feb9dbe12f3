//! Carries plans out.

use crate::error::{Failure, LoadError};
use crate::loaders::boot;
use crate::package::Package;
use crate::plan::{Act, Arg, Device, Plan, Step};
use crate::program::{Output, run};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use unisono_offload_dpu::Folder;

/// Bytes that are written at a time.
const BLOCK: usize = 256 << 10;
/// Between two looks at a control file.
const NAP: Duration = Duration::from_millis(5);

/// Is told how it goes, and may stop it.
pub trait Watch {
    /// A step begins.
    fn begin(&mut self, number: usize, step: &Step);
    /// So many bytes more are written.
    fn wrote(&mut self, bytes: u64);
    /// Has somebody asked to stop?
    fn stopped(&self) -> bool;
}

/// Watches nothing and stops nothing.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Watch for Quiet {
    fn begin(&mut self, _: usize, _: &Step) {}

    fn wrote(&mut self, _: u64) {}

    fn stopped(&self) -> bool {
        false
    }
}

impl Plan {
    /// Does what the plan says and returns what the device said of itself, a line each.
    ///
    /// # Errors
    /// [`LoadError::Missing`] before anything is done, or [`LoadError::Step`].
    pub fn run(&self, package: &Package, watch: &mut dyn Watch) -> Result<Vec<String>, LoadError> {
        if let Device::Missing { what, help } = &self.device {
            let (to, what, help) = (self.to.clone(), what.clone(), help.clone());
            return Err(LoadError::Missing { to, what, help });
        }
        let mut hands = Hands { package, watch, image: None, said: Vec::new() };
        for (i, step) in self.steps.iter().enumerate() {
            hands.watch.begin(i + 1, step);
            hands.act(&step.act).map_err(|cause| self.failed(i, step, cause))?;
        }
        Ok(hands.said)
    }

    fn failed(&self, i: usize, step: &Step, cause: String) -> LoadError {
        let done: Vec<String> = self.steps[..i].iter().map(|step| step.act.to_string()).collect();
        LoadError::from(Box::new(Failure {
            to: self.to.clone(),
            number: i + 1,
            of: self.steps.len(),
            step: step.act.to_string(),
            cause,
            done: match done.as_slice() {
                [] => "nothing was done before".to_owned(),
                done => format!("done before: {}", done.join(", ")),
            },
            left: step.left.clone(),
        }))
    }
}

struct Hands<'a> {
    package: &'a Package,
    watch: &'a mut dyn Watch,
    /// The unpacked image and the folder that it is in.
    image: Option<(Folder, PathBuf)>,
    said: Vec<String>,
}

/// What the system says, and where.
fn at(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |error| {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let help = if denied { "; devices and firmware belong to root" } else { "" };
        format!("{}: {error}{help}", path.display())
    }
}

impl Hands<'_> {
    fn act(&mut self, act: &Act) -> Result<(), String> {
        if self.watch.stopped() {
            return Err("it was interrupted".to_owned());
        }
        match act {
            Act::Unpack { name } => self.unpack(name),
            Act::Write { path, line } => write_line(path, line).map_err(at(path)),
            Act::Stream { path, .. } => self.stream(path),
            Act::Install { path, .. } => self.install(path),
            Act::Await { path, line, patience } => self.wait(path, line, *patience),
            Act::Run { program, args, says } => self.run(program, args, says),
            Act::Boot { machine } => {
                let said = boot(machine, self.image()?, self.watch)?;
                self.said.extend(said);
                Ok(())
            }
        }
    }

    fn image(&self) -> Result<&Path, String> {
        let image = self.image.as_ref().map(|(_, path)| path.as_path());
        image.ok_or_else(|| "the image was not unpacked".to_owned())
    }

    fn unpack(&mut self, name: &str) -> Result<(), String> {
        let place = std::env::temp_dir();
        let folder = Folder::new_in(&place, "unisono-flash-").map_err(at(&place))?;
        let path = folder.path().join(name);
        let file = File::create_new(&path).map_err(at(&path))?;
        self.pour(file, &path)?;
        self.image = Some((folder, path));
        Ok(())
    }

    /// Writes the payload in blocks.
    fn pour(&mut self, mut to: File, path: &Path) -> Result<File, String> {
        let payload = self.package.payload();
        let mut written = 0;
        while written < payload.len() {
            if self.watch.stopped() {
                return Err(format!("it was interrupted after {written} bytes"));
            }
            let block = &payload[written..payload.len().min(written + BLOCK)];
            match to.write(block) {
                Ok(0) => {
                    return Err(format!("{} takes no more than {written} bytes", path.display()));
                }
                Ok(bytes) => {
                    written += bytes;
                    self.watch.wrote(bytes as u64);
                }
                // A signal, or a driver whose device is not ready yet. Who interrupts is heard.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("{}, after {written} bytes", at(path)(error))),
            }
        }
        Ok(to)
    }

    fn stream(&mut self, path: &Path) -> Result<(), String> {
        let device = OpenOptions::new().write(true).open(path).map_err(at(path))?;
        self.pour(device, path).map(drop)
    }

    fn install(&mut self, path: &Path) -> Result<(), String> {
        let folder = path.parent().ok_or_else(|| "it has no folder".to_owned())?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".unisono-").suffix(".part");
        // As readable as any file that this user makes.
        let part = builder.make_in(folder, |path| File::create_new(path)).map_err(at(folder))?;
        let file = part.as_file().try_clone().map_err(at(path))?;
        // The name must not outlive a power cut that the bytes do not.
        self.pour(file, path)?.sync_all().map_err(at(path))?;
        part.persist(path).map(drop).map_err(|e| at(path)(e.error))
    }

    fn wait(&self, path: &Path, line: &str, patience: Duration) -> Result<(), String> {
        let end = Instant::now() + patience;
        loop {
            let text = fs::read_to_string(path).map_err(at(path))?;
            if text.trim_end() == line {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("it still says `{}`", text.trim_end()));
            }
            if self.watch.stopped() {
                return Err(format!("it was interrupted while it said `{}`", text.trim_end()));
            }
            std::thread::sleep(NAP);
        }
    }

    fn run(&self, program: &Path, args: &[Arg], says: &str) -> Result<(), String> {
        let mut command = Command::new(program);
        for arg in args {
            match arg {
                Arg::Text(text) => command.arg(text),
                Arg::Image => command.arg(self.image()?),
            };
        }
        let stopped = || self.watch.stopped();
        let Some(Output { status, out, err }) = run(command, &stopped).map_err(at(program))? else {
            return Err("it was interrupted, and the program ended".to_owned());
        };
        if !status.success() {
            // Programs put the reason last.
            let said = out.lines().chain(err.lines()).rfind(|line| !line.trim().is_empty());
            let said = said.map(|line| format!(": {line}")).unwrap_or_default();
            return Err(format!("{status}{said}"));
        }
        if !out.starts_with(says) {
            let line = out.lines().next().unwrap_or_default();
            return Err(format!("it says `{line}`, not `{}`", says.trim_end()));
        }
        Ok(())
    }
}

/// In one call: a driver takes each write for a command of its own.
fn write_line(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

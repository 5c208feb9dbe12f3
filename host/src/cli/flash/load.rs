//! `unisono flash IMAGE --to …`.

use super::super::error::Usage;
use super::super::interrupt::Interrupt;
use super::super::progress::Progress;
use super::OWN_VERSION;
use super::image::{self, Demands};
use super::report::{About, Load};
use anyhow::{Context, Result};
use std::path::PathBuf;
use unisono_loader::{Act, LoadError, Package, Plan, Step, Watch, World, loader};

/// Options of `unisono flash`.
#[derive(clap::Args, Debug)]
pub struct LoadArgs {
    /// The image, with or without a header
    image: PathBuf,
    /// Where to: qemu:MACHINE (aarch64, aarch64-udp, riscv64, riscv64-udp, cortex-m),
    /// probe-rs[:CHIP], rshim[:N], remoteproc[:N] or ssh:[USER@]HOST
    #[arg(long, value_name = "DEVICE")]
    to: String,
    /// Print what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Take this folder for the root of the system's files, and the programs in its `bin`
    #[arg(long, value_name = "FOLDER", hide = true)]
    root: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &LoadArgs, demands: &Demands, interrupt: &Interrupt) -> Result<()> {
    let loader = loader(&args.to).map_err(|error| Usage(error.to_string()))?;
    let bytes = image::read(&args.image)?;
    let bare = !Package::is_package(&bytes);
    let shown = || args.image.display().to_string();
    let package = if bare {
        let version = OWN_VERSION.parse().map_err(anyhow::Error::msg)?;
        image::pack(&args.image, bytes, demands.board.as_deref(), version)?
    } else {
        Package::parse(bytes).with_context(shown)?
    };
    let signature = demands.check(&args.image, &package)?;
    let world = args.root.as_deref().map_or_else(World::real, World::below);
    let plan = loader.plan(&world, &package)?;
    let about = About::new(&args.image, &package, bare, signature);
    if args.dry_run {
        return Load::new(about, &plan, None).print(args.json);
    }
    let said = run_plan(&plan, &package, interrupt)?;
    Load::new(about, &plan, Some(said)).print(args.json)
}

fn run_plan(
    plan: &Plan,
    package: &Package,
    interrupt: &Interrupt,
) -> Result<Vec<String>, LoadError> {
    let pours = |step: &&Step| {
        matches!(step.act, Act::Unpack { .. } | Act::Stream { .. } | Act::Install { .. })
    };
    let bytes = plan.steps.iter().filter(pours).count() as u64 * package.payload().len() as u64;
    let mut eyes = Eyes { progress: Progress::new(bytes), interrupt };
    eyes.progress.stage("flash");
    plan.run(package, &mut eyes)
}

struct Eyes<'a> {
    progress: Progress,
    interrupt: &'a Interrupt,
}

impl Watch for Eyes<'_> {
    fn begin(&mut self, number: usize, step: &Step) {
        tracing::info!("step {number}: {step}");
    }

    fn wrote(&mut self, bytes: u64) {
        self.progress.add(bytes);
    }

    fn stopped(&self) -> bool {
        self.interrupt.check().is_err()
    }
}

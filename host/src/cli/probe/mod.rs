//! `unisono probe`: how fast all links and devices of a group are.

mod measure;
mod picture;
mod text;

use super::args::{GroupArgs, On, Ranks};
use super::drivers::Wanted;
use super::error::Usage;
use super::interrupt::Interrupt;
use super::job::{Job, copy};
use super::progress::Progress;
use super::report::print;
use super::staged::Staged;
use std::path::PathBuf;
use unisono::{DeviceSpec, Topology, World};

const EXAMPLES: &str = "\
Examples:
  unisono probe --on cpu:4
  unisono probe --on cpu,cpu,vulkan:0 -o topology.json
  unisono launch -n 4 --hosts a,b -- unisono probe -o topology.json --svg links.svg
  unisono plan --topology topology.json --explain
  unisono bench --on cpu:4 --topology topology.json -b 8 -e 64M -f 4

Every pair of ranks makes calls by itself, over the links that a group of them has: all-reduces of
8 bytes, whose time is that of two messages, and broadcasts of large tensors in both directions.
Then every rank broadcasts to all others, and all reduce to it. At last the whole group makes
all-reduces of 8 B to 16 MiB by every schedule: what they take beyond what links and folds explain
corrects the forecasts.";

/// Options of `unisono probe`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ProbeArgs {
    /// Device of each rank of this process, as `unisono bench` has it [default: one CPU rank a
    /// core, or one a process if there are several]
    #[arg(long, value_name = "DEVICES")]
    on: Option<On>,
    /// Write the topology to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the links into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Measure links and devices only, not also all-reduces by every schedule: sooner done, but
    /// forecasts are off by more
    #[arg(long)]
    no_calls: bool,
    /// Print the topology as JSON: what the file has
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    group: GroupArgs,
}

impl ProbeArgs {
    /// What is asked of which API.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.on.as_ref().map_or_else(Vec::new, On::wanted)
    }

    fn devices(&self, world: Option<&World>) -> Result<Vec<DeviceSpec>, Usage> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match &self.on {
            None => Ok(vec![DeviceSpec::Cpu; if world.is_some() { 1 } else { cores }]),
            Some(on) => Ok(on.here(world)?.named(None)),
        }
    }
}

/// Runs the command.
pub fn run(args: &ProbeArgs, interrupt: &Interrupt) -> anyhow::Result<()> {
    let world = args.group.world(interrupt)?;
    let devices = args.devices(world.as_ref());
    let job = Job::meet(world, devices.map_err(Into::into))?;
    let most = unisono::schedule::MEMBERS_MAX;
    let members = job.devices().len();
    if job.ranks() < 2 || members > most {
        let text = format!("{members} members: links need 2 ranks, and {most} members fit");
        return Err(Usage(text).into());
    }
    let places = Ranks::open(&job, &args.group, &interrupt.flag());
    let told = job.agree(places.as_ref().map(drop).map_err(copy));
    let (places, _) = (places?, told?);
    let files = || {
        let create = |path: &PathBuf| Staged::create(path);
        let of = |path: &Option<PathBuf>| path.as_ref().filter(|_| job.leads()).map(create);
        anyhow::Ok((of(&args.output).transpose()?, of(&args.svg).transpose()?))
    };
    let files = files();
    let told = job.agree(files.as_ref().map(drop).map_err(copy));
    let ((output, svg), _) = (files?, told?);
    let progress = Progress::steps(measure::steps(job.ranks()));
    let survey = measure::Survey { group: &args.group, job: &job, places: &places, interrupt };
    let topology = survey.all(!args.no_calls, &progress)?;
    progress.finish();
    if !job.leads() {
        return Ok(());
    }
    for (file, text) in [(output, topology.text()), (svg, picture::draw(&topology))] {
        if let Some(mut file) = file {
            file.write(text.as_bytes())?;
            file.sync()?;
            file.keep()?;
        }
    }
    print(&if args.json { topology.text() } else { shown(&topology)? })
}

fn shown(topology: &Topology) -> Result<String, std::fmt::Error> {
    let numa = unisono::topology::numa_nodes(std::path::Path::new("/sys"));
    text::render(topology, &numa)
}

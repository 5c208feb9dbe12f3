//! `launch`: starts the processes of a group, here or on several hosts, and ends them together.
//!
//! [`places`] says which rank runs where, [`start`] starts one, [`output`] puts its number before
//! each line that it prints, [`watch`] waits for all and leaves none behind.

mod output;
mod places;
mod start;
mod watch;

use super::error::Usage;
use super::interrupt::Interrupt;
use anyhow::{Context, Result};
use places::Host;
use start::Job;
use std::ffi::OsString;
use std::path::PathBuf;
use unisono_rendezvous::{Etcd, Interface, Secret};
pub use watch::RankFailed;

const AFTER_HELP: &str = "\
Each process finds its place in UNISONO_RANK, UNISONO_SIZE, UNISONO_LOCAL_RANK, UNISONO_LOCAL_SIZE,
UNISONO_JOB, UNISONO_MASTER (or UNISONO_RENDEZVOUS) and UNISONO_SECRET. Its standard input is
/dev/null: launch does not pass its own on. If one fails, the others get a moment to notice,
then they are ended; its exit code is launch's (128 + n if signal n ended it).

Other hosts are reached by ssh, or by the command in UNISONO_RSH; the secret goes there through its
standard input, never on a command line.

Examples:
  unisono launch -n 4 -- ./train
  unisono launch -n 8 --hosts node1,node2 --interface 10.0.0.0/8 -- ./train
  unisono launch --hosts node1:1,node2:3 -- ./train
  unisono launch -n 8 --hosts node1,node2 --rendezvous etcd://node9:2379/jobs -- ./train";

/// What `launch` takes.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LaunchArgs {
    /// How many ranks; may be left out if all hosts come with a number
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: Option<usize>,
    /// Hosts, each with its number of ranks or with an equal share: a,b or a:1,b:3
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// Where rank 0 can be reached [default: the first host, at a port of its own]
    #[arg(long, value_name = "HOST[:PORT]")]
    master: Option<String>,
    /// Ranks meet by way of an etcd; UNISONO_RENDEZVOUS does the same
    #[arg(long, value_name = "etcd://HOST:PORT/PREFIX", conflicts_with = "master")]
    rendezvous: Option<Etcd>,
    /// File with the secret that all ranks share [default: a new one]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Network between ranks: an interface (eth0) or a range (10.0.0.0/8) [default: what works]
    #[arg(long, value_name = "NAME|CIDR")]
    interface: Option<Interface>,
    /// Leave out `[RANK] ` before each line of output
    #[arg(long)]
    no_prefix: bool,
    /// The program that every rank runs, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs `launch`.
pub fn run(args: &LaunchArgs, interrupt: &Interrupt) -> Result<()> {
    let places = places::places(args.ranks, &args.hosts)?;
    let secret = match &args.secret_file {
        Some(file) => Secret::from_file(file)?,
        None => Secret::generate()?,
    };
    let name = start::job_name()?;
    let job = Job {
        meet: meet(args, &name)?,
        name,
        secret,
        interface: args.interface.as_ref().map(ToString::to_string),
        size: places.len(),
        prefix: !args.no_prefix,
        command: &args.command,
        folder: std::env::current_dir().context("the folder to start ranks in")?,
        rsh: start::rsh(std::env::var_os("UNISONO_RSH"))?,
    };
    watch::run(&job, &places, interrupt)
}

/// The variable that says where ranks meet, and its value.
fn meet(args: &LaunchArgs, job: &str) -> Result<(&'static str, String)> {
    let outer = std::env::var(start::RENDEZVOUS).ok().filter(|place| !place.is_empty());
    let outer = outer.filter(|_| args.master.is_none() && args.rendezvous.is_none());
    let parse = |place: String| {
        let etcd = place.parse::<Etcd>();
        etcd.map_err(|why| Usage(format!("{}={place}: {why}", start::RENDEZVOUS)))
    };
    match args.rendezvous.clone().map(Ok).or_else(|| outer.map(parse)).transpose()? {
        Some(etcd) => Ok((start::RENDEZVOUS, etcd.to_string())),
        None => Ok((start::MASTER, master(args, job)?)),
    }
}

/// UNISONO_MASTER of all ranks.
fn master(args: &LaunchArgs, job: &str) -> Result<String, Usage> {
    let port = start::port(job);
    let (host, port) = match (&args.master, args.hosts.first()) {
        (None, None) => return Ok("local".to_owned()),
        (None, Some(host)) => (host.address(), port),
        (Some(master), _) => {
            let end = master.rfind(']').map_or(0, |end| end + 1);
            match master[end..].split_once(':') {
                Some((rest, number)) if !number.contains(':') => {
                    let number = number.parse().ok().filter(|&n: &u16| n > 0);
                    let wrong = || Usage(format!("--master {master}: no port after the colon"));
                    (format!("{}{rest}", &master[..end]), number.ok_or_else(wrong)?)
                }
                _ => (master.clone(), port),
            }
        }
    };
    match host.contains(':') && !host.starts_with('[') {
        true => Ok(format!("[{host}]:{port}")),
        false => Ok(format!("{host}:{port}")),
    }
}

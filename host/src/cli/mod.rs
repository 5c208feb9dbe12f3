//! Commands: what they take, how they end.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong use,
//! 128 + n ended by signal n (130: Ctrl-C).

mod args;
mod bench;
mod devices;
mod drivers;
mod error;
mod flash;
mod interrupt;
mod job;
#[cfg(target_os = "linux")]
mod launch;
mod memory;
mod plan;
mod probe;
mod progress;
mod reduce;
mod reference;
mod report;
mod staged;
mod svg;

use clap::{CommandFactory, Parser, Subcommand};
use drivers::Wanted;
use error::{Usage, one_line};
use interrupt::Interrupt;
use std::io::{IsTerminal, Write};
use std::mem::take;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  unisono reduce --op avg rank0.safetensors rank1.safetensors -o mean.safetensors --verify
  unisono bench all_reduce -b 8 -e 64M -f 4 -t 4
  unisono probe --on cpu,cpu,vulkan:0 -o topology.json
  unisono plan -n 8 --alpha 5us --bandwidth 10GB/s --sizes 8,64K,64M
  unisono completions bash > ~/.local/share/bash-completion/completions/unisono

`unisono <COMMAND> --help` explains a command's options.";

/// All-reduce over mixed devices: every rank gets the same bits.
#[derive(Parser)]
#[command(name = "unisono", version, about, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    color: colorchoice_clap::Color,
    /// Say more on stderr; repeat for details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Reduce the tensors of one safetensors file a rank into one file
    Reduce(Box<reduce::ReduceArgs>),
    /// Measure collectives, in the format of nccl-tests, or the CPU's folds
    Bench(Box<bench::BenchArgs>),
    /// Predict how long every schedule takes on a group, and say which one wins from where
    Plan(Box<plan::PlanArgs>),
    /// Measure the links between all ranks and how fast their devices fold
    Probe(Box<probe::ProbeArgs>),
    /// List the devices that can be ranks here
    Devices(devices::DevicesArgs),
    /// Start the processes of a group, here or on several hosts
    #[cfg(target_os = "linux")]
    Launch(Box<launch::LaunchArgs>),
    /// Bring a firmware image to a board, or pack and check one
    Flash(Box<flash::FlashArgs>),
    /// Load an API's drivers, and be what crashes if one of them does
    #[command(name = drivers::COMMAND, hide = true)]
    Drivers(drivers::TrialArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Does it bring something to an end before it ends? Then it looks at signals all the time.
    const fn is_careful(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Self::Launch(_) => true,
            Self::Flash(_) => true,
            _ => false,
        }
    }

    /// What it asks of which API. `verbose`: -v was given.
    fn wanted(&self, verbose: bool) -> Vec<Wanted> {
        match self {
            Self::Reduce(args) => args.wanted(),
            Self::Bench(args) => args.wanted(),
            Self::Probe(args) => args.wanted(),
            Self::Devices(args) => args.wanted(verbose),
            // The others use none; processes that are launched look for themselves.
            _ => vec![],
        }
    }
}

/// Parses the command line, runs the command, and says how it went.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    cli.color.write_global();
    log_to_stderr(cli.verbose);
    // Before signals are caught, so that Ctrl-C ends a driver that hangs.
    let verbose = cli.verbose > 0;
    let mut out = drivers::check(&cli.command.wanted(verbose));
    let interrupt = match Interrupt::install(cli.command.is_careful()) {
        Ok(interrupt) => interrupt,
        Err(error) => return failed(&error.into(), None),
    };
    if !matches!(cli.command, Command::Devices(_)) {
        out.broken.iter().for_each(|driver| tracing::warn!("{driver}"));
        out.lost.iter().for_each(|device| tracing::warn!("{device}"));
    }
    let result = match &cli.command {
        Command::Reduce(args) => reduce::run(args, &interrupt),
        Command::Bench(args) => bench::run(args, &interrupt),
        Command::Plan(args) => plan::run(args),
        Command::Probe(args) => probe::run(args, &interrupt),
        Command::Devices(args) => {
            devices::run(args, take(&mut out.broken), take(&mut out.useless), verbose)
        }
        #[cfg(target_os = "linux")]
        Command::Launch(args) => launch::run(args, &interrupt),
        Command::Flash(args) => flash::run(args, &interrupt),
        Command::Completions { shell } => completions(*shell),
        Command::Drivers(args) => return drivers::load(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A device may be missing because of them.
            if error::is_missing(&error) {
                out.useless.iter().for_each(|driver| tracing::warn!("{driver}"));
            }
            failed(&error, interrupt.exit_code())
        }
    }
}

/// clap's own messages; a value that makes no sense takes one line.
fn refused(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let text = error.render().to_string();
    let printed = match (error.kind(), text.lines().next()) {
        (ErrorKind::ValueValidation, Some(line)) => {
            writeln!(anstream::stderr(), "{line}")
        }
        _ => error.print(),
    };
    // Nobody is left to be told that stderr is closed.
    let _ = printed;
    ExitCode::from(error.exit_code() as u8)
}

/// One line on stderr, and the exit code.
fn failed(error: &anyhow::Error, signalled: Option<u8>) -> ExitCode {
    use clap::builder::styling::AnsiColor;
    if error::is_closed_pipe(error) {
        // As if SIGPIPE had ended this process: whoever closed the pipe has seen enough.
        return ExitCode::from(141);
    }
    let (text, code) = match signalled {
        // What a device is left in has to be said.
        Some(code) if error.is::<unisono_loader::LoadError>() => (one_line(error), code),
        Some(code) => ("interrupted".to_owned(), code),
        #[cfg(target_os = "linux")]
        None if let Some(failed) = error.downcast_ref::<launch::RankFailed>() => {
            (one_line(error), failed.code)
        }
        None if error::is_usage(error) => (one_line(error), Usage::CODE),
        None => (one_line(error), 1),
    };
    let red = AnsiColor::Red.on_default().bold();
    let _ = writeln!(anstream::stderr(), "{red}error:{red:#} {text}");
    ExitCode::from(code)
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let plain = matches!(anstream::stderr().current_choice(), anstream::ColorChoice::Never);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(!plain && std::io::stderr().is_terminal())
        .with_max_level(level)
        .with_target(false)
        .without_time()
        .init();
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    // Scripts list hidden commands, too, so they are made from a tool that is without them.
    let tool = Cli::command();
    let shown = tool.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown = clap::Command::new("unisono")
        .version(env!("CARGO_PKG_VERSION"))
        .args(tool.get_arguments().cloned())
        .subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, "unisono", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}

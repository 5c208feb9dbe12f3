//! `cargo xtask`: everything around the code of unisono, as one program.
//!
//! `demo` and `test` do all that a newcomer needs; each of the other commands is one step of them.
//! A command installs what it misses, or says what to install, and never leaves a check out
//! silently.

mod bench_net;
mod bench_peers;
mod bench_plans;
mod boards;
mod cmd;
mod demo;
mod gpu;
mod install;
mod launchers;
mod project;
mod size;
mod suite;
mod tidy;
mod toolchain;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use project::Project;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Sets up, builds, checks and demonstrates unisono")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing, build, and reduce the shipped gradients over CPU and GPU ranks.
    Demo,
    /// Install what is missing and run every check.
    Test(suite::Options),
    /// Build every board's firmware and print the folder that the images are in.
    ///
    /// Tests of the host take it from UNISONO_BOARDS.
    Boards(boards::Options),
    /// Build the size probe for each bare-metal target and every board's image, and hold them
    /// against their budgets.
    Size(size::Options),
    /// Check the house rules: lengths, banned macros, root folder, direction of dependencies.
    Tidy,
    /// Make the bare-metal targets usable and print the environment to build for them.
    ///
    /// Use it as `eval "$(cargo xtask toolchain)"`; then `"$UNISONO_CARGO" build --target …` works.
    Toolchain,
    /// Check and measure the GPUs of this machine, through both APIs.
    GpuCheck(gpu::check::Options),
    /// Measure unisono against other libraries: the same work, in turn, in one run.
    BenchPeers(bench_peers::Options),
    /// Measure all-reduce between hosts in network namespaces: unequal links, lossy links.
    BenchNet(bench_net::Options),
    /// Measure what the planner forecasts, by all schedules, sizes and set-ups.
    BenchPlans(bench_plans::Options),
    /// Only install what `demo` and `test` need.
    Setup,
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    if let Task::GpuCheck(options) = &task
        && let Some(folder) = &options.packed
    {
        // There may be no sources where this runs.
        return gpu::check::packed(folder, options).map(|()| ExitCode::SUCCESS);
    }
    let project = Project::find()?;
    match task {
        Task::Demo => demo::run(&project)?,
        Task::Test(options) => return suite::run(&project, &options),
        Task::Boards(options) => boards::run(&project, &options)?,
        Task::Size(options) => size::run(&project, &options)?,
        Task::Tidy => tidy::run(&project)?,
        Task::Toolchain => print!("{}", toolchain::prepare()?.shell()),
        Task::GpuCheck(options) => gpu::check::run(&project, &options)?,
        Task::BenchPeers(options) => bench_peers::run(&project, &options)?,
        Task::BenchNet(options) => bench_net::run(&project, &options)?,
        Task::BenchPlans(options) => bench_plans::run(&project, &options)?,
        Task::Setup => install::everything(&project)?,
    }
    Ok(ExitCode::SUCCESS)
}

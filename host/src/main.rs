//! The command line of unisono.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}

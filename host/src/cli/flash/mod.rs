//! `unisono flash`: packs firmware images, checks them, and brings them to boards.

mod image;
mod load;
mod report;

use super::error::Usage;
use super::interrupt::Interrupt;
use super::report::{print, print_json};
use super::staged::Staged;
use anyhow::{Context, Result};
use report::{About, Signature};
use std::fs;
use std::path::PathBuf;
use unisono_loader::{Package, PackageError, Secret, Version};

const EXAMPLES: &str = "\
Examples:
  unisono flash pack qemu_virt_aarch64 -o dpu.img --sign release.pem
  unisono flash verify dpu.img --trust release.pub
  unisono flash dpu.img --to qemu:aarch64 --trust release.pub
  unisono flash bluefield.img --to rshim:0 --dry-run
  unisono flash m4.elf --to probe-rs:STM32F407VGTx
  unisono flash m7.img --to remoteproc:0
  unisono flash dpu_linux.img --to ssh:root@192.168.100.2

An image is an ELF file, a BlueField boot stream or raw bytes, behind a header with the board's
name, the message ABI, a version, a SHA-256 and optionally an ed25519 signature. A file without
header is packed on the fly. An image of this project names its board itself; --board, or else the
file's name, counts for one that names none. --dry-run reads the state of the device and prints
exactly the steps that would be done. A board under QEMU has 30 s for each answer. Ctrl-C ends what
is waited for.

Keys are PEM files of OpenSSL:
  openssl genpkey -algorithm ed25519 -out release.pem
  openssl pkey -in release.pem -pubout -out release.pub";

/// This program's version, without what a pre-release has behind it: images are built with it.
const OWN_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR"),
    ".",
    env!("CARGO_PKG_VERSION_PATCH")
);

/// Options of `unisono flash`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
          after_help = EXAMPLES)]
pub struct FlashArgs {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    load: Option<load::LoadArgs>,
    #[command(flatten)]
    demands: image::Demands,
}

#[derive(clap::Subcommand, Debug)]
enum Other {
    /// Put a header before an image, and sign it
    Pack(PackArgs),
    /// Check an image: header, hash, and with --trust the signature
    Verify(VerifyArgs),
}

/// Options of `unisono flash pack`.
#[derive(clap::Args, Debug)]
struct PackArgs {
    /// ELF file, BlueField boot stream or raw bytes
    #[arg(value_name = "ELF")]
    payload: PathBuf,
    /// The image to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The board that it is for [default: what the image itself names, or else the file's name]
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Version of the image
    #[arg(long, value_name = "X.Y.Z", default_value = OWN_VERSION)]
    image_version: Version,
    /// Sign with this private key (PEM)
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `unisono flash verify`.
#[derive(clap::Args, Debug)]
struct VerifyArgs {
    /// The image
    image: PathBuf,
    #[command(flatten)]
    demands: image::Demands,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &FlashArgs, interrupt: &Interrupt) -> Result<()> {
    match (&args.other, &args.load) {
        (Some(Other::Pack(args)), _) => pack(args),
        (Some(Other::Verify(args)), _) => verify(args),
        (None, Some(load)) => load::run(load, &args.demands, interrupt),
        (None, None) => Err(Usage("an image and --to are needed".to_owned()).into()),
    }
}

fn pack(args: &PackArgs) -> Result<()> {
    let bytes = image::read(&args.payload)?;
    let mut package = image::pack(&args.payload, bytes, args.board.as_deref(), args.image_version)?;
    let mut signature = Signature::None;
    if let Some(path) = &args.sign {
        let secret = image::key(path, Secret::from_pem)?;
        package.sign(&secret);
        signature = Signature::Made;
    }
    let mut file = Staged::create(&args.output)?;
    // An image cannot be built from its package again, nor a key from anything.
    let same = |path: &&PathBuf| fs::canonicalize(path).is_ok_and(|other| other == file.path());
    if let Some(input) = [Some(&args.payload), args.sign.as_ref()].into_iter().flatten().find(same)
    {
        let input = input.display();
        return Err(Usage(format!("{input} is input and output; name another output")).into());
    }
    file.write(package.header())?;
    file.write(package.payload())?;
    file.sync()?;
    file.keep()?;
    show(&About::new(&args.output, &package, false, signature), args.json)
}

fn verify(args: &VerifyArgs) -> Result<()> {
    let bytes = image::read(&args.image)?;
    let shown = || args.image.display().to_string();
    let package = Package::parse(bytes).with_context(shown)?;
    let signature = args.demands.check(&args.image, &package)?;
    show(&About::new(&args.image, &package, false, signature), args.json)
}

fn show(about: &About, json: bool) -> Result<()> {
    if json {
        return print_json(about);
    }
    print(&about.text())
}

/// Is the board's name on the command line to blame?
fn board_is_usage(error: PackageError, given: bool) -> anyhow::Error {
    match error {
        PackageError::Board(_) if given => Usage(format!("--board: {error}")).into(),
        PackageError::Board(_) => anyhow::Error::new(error).context("name its board with --board"),
        error => error.into(),
    }
}

//! `unisono devices`: what can be a rank here, and what cannot yet.

use super::report::{bytes, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use unisono_device_cpu::Isa;

const EXAMPLES: &str = "\
Examples:
  unisono devices
  unisono devices -v
  unisono devices --json";

/// Options of `unisono devices`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DevicesArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Devices {
    cpu: Cpu,
    /// Libraries that a later version will use.
    loaders: Vec<Loader>,
}

#[derive(Debug, Serialize)]
struct Cpu {
    /// What `--on` calls it.
    name: &'static str,
    model: String,
    architecture: &'static str,
    /// Cores that this process may use.
    cores: usize,
    /// What the kernels use.
    isa: &'static str,
    /// All that the kernels could use here.
    isas: Vec<&'static str>,
    memory: u64,
    memory_available: u64,
}

#[derive(Debug, Serialize)]
struct Loader {
    api: &'static str,
    found: Option<PathBuf>,
    package: &'static str,
}

impl Cpu {
    fn new() -> Self {
        let memory = MemoryRefreshKind::nothing().with_ram();
        let what = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(memory);
        let system = System::new_with_specifics(what);
        Self {
            name: "cpu",
            model: model(&system),
            architecture: std::env::consts::ARCH,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            isa: Isa::best().name(),
            isas: Isa::ALL.iter().filter(|isa| isa.is_available()).map(|isa| isa.name()).collect(),
            memory: system.total_memory(),
            memory_available: system.available_memory(),
        }
    }
}

fn model(system: &System) -> String {
    let brand = system.cpus().first().map_or("", |cpu| cpu.brand().trim());
    if brand.is_empty() { format!("{} CPU", std::env::consts::ARCH) } else { brand.to_owned() }
}

/// This machine's name and its CPU's model.
pub fn host_and_cpu() -> (String, String) {
    let what = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let model = model(&System::new_with_specifics(what));
    (System::host_name().unwrap_or_else(|| "localhost".into()), model)
}

/// Looks for a shared library where Linux systems keep them, without loading it.
fn find(library: &str) -> Option<PathBuf> {
    let arch = std::env::consts::ARCH;
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|paths| std::env::split_paths(&paths).collect())
        .unwrap_or_default();
    for folder in ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/lib", "/lib64"] {
        folders.push(folder.into());
        folders.push(format!("{folder}/{arch}-linux-gnu").into());
    }
    folders.into_iter().map(|folder| folder.join(library)).find(|path| path.exists())
}

/// Runs the command.
pub fn run(args: &DevicesArgs, verbose: bool) -> anyhow::Result<()> {
    let loader = |api, library, package| Loader { api, found: find(library), package };
    let devices = Devices {
        cpu: Cpu::new(),
        loaders: vec![
            loader(
                "Vulkan",
                "libvulkan.so.1",
                "libvulkan1 and a driver such as mesa-vulkan-drivers",
            ),
            loader(
                "OpenCL",
                "libOpenCL.so.1",
                "ocl-icd-libopencl1 and a driver such as pocl-opencl-icd",
            ),
        ],
    };
    if args.json {
        return print_json(&devices);
    }
    print(&devices.text(verbose)?)?;
    Ok(())
}

impl Devices {
    fn text(&self, verbose: bool) -> Result<String, std::fmt::Error> {
        let Cpu { model, cores, isa, memory, .. } = &self.cpu;
        let mut text = String::new();
        writeln!(
            text,
            "cpu      {model}, {cores} cores, kernels for {isa}, {} of memory",
            bytes(*memory as f64)
        )?;
        if verbose {
            let Cpu { architecture, isas, memory_available, .. } = &self.cpu;
            let free = bytes(*memory_available as f64);
            writeln!(
                text,
                "         {architecture}; kernels can run {}; {free} free",
                isas.join(", ")
            )?;
            writeln!(text, "         any number of ranks up to 64: --on cpu,cpu or --on cpu:2")?;
        }
        writeln!(text)?;
        writeln!(
            text,
            "GPUs (Vulkan, OpenCL) are not part of this version: all its ranks are CPU threads."
        )?;
        for Loader { api, found, package } in &self.loaders {
            match found {
                Some(path) => {
                    writeln!(
                        text,
                        "{api}: {} is there; this version does not use it yet.",
                        path.display()
                    )?;
                }
                None if verbose => {
                    writeln!(
                        text,
                        "{api}: no library here; for later versions, install {package}."
                    )?;
                }
                None => writeln!(text, "{api}: no library here.")?,
            }
        }
        Ok(text)
    }
}

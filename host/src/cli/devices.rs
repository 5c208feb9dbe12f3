//! `unisono devices`: what can be a rank here, and what is missing.

use super::drivers::{Broken, Wanted};
use super::report::{bytes, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use unisono::device::{
    Api, Arithmetic, Card, CardType, Catalog, DeviceSpec, DpuEntry, Opened, Which, attachable,
    boards,
};
use unisono_device_cpu::Isa;

const EXAMPLES: &str = "\
Examples:
  unisono devices
  unisono devices -v
  unisono devices --json

Devices are named by API and place (vulkan:0), part of the name (opencl:radeon), UUID or PCI
address. One line is one device, whatever the number of APIs that see it. `auto` is every device of
the list but software and boards, and the CPU. A board (dpu:NAME) folds for the ranks and has no
data; as dpu:NAME:rank it is a rank itself. One that runs already is named by the PCI address of its
card (dpu:pci:0000:03:00.0) or by the file that it shares with this host (dpu:file:PATH). -v and
--json open the devices and test their arithmetic.";

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
    /// Real ones first.
    devices: Vec<Device>,
    /// APIs without devices.
    missing: Vec<Missing>,
    /// Drivers that are left out.
    broken: Vec<Broken>,
    /// SmartNIC and DPU cores.
    boards: Vec<Board>,
}

/// A board that this version knows.
#[derive(Debug, Serialize)]
struct Board {
    /// What `--on` calls it.
    on: String,
    about: &'static str,
    /// Why it cannot be started here.
    missing: Option<String>,
}

impl From<DpuEntry> for Board {
    fn from(entry: DpuEntry) -> Self {
        let DpuEntry { on, about, missing } = entry;
        Self { on, about, missing }
    }
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

/// One device.
#[derive(Debug, Serialize)]
struct Device {
    name: String,
    vendor: String,
    /// discrete, integrated, virtual, other or software.
    r#type: &'static str,
    memory: u64,
    uuid: Option<String>,
    pci: Option<String>,
    /// What each API says, the first one is used by `auto`.
    apis: Vec<Through>,
}

/// A device as an API sees it.
#[derive(Debug, Serialize)]
struct Through {
    /// What `--on` calls it.
    on: String,
    api: &'static str,
    api_version: String,
    driver: String,
    features: Vec<Feature>,
    /// What the self-test found.
    arithmetic: Option<Vec<Feature>>,
    /// Why the device cannot be used after all.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Feature {
    name: &'static str,
    has: bool,
    /// The name for whoever reads, who has no use for `native_f32`.
    #[serde(skip)]
    words: &'static str,
}

#[derive(Debug, Serialize)]
struct Missing {
    api: &'static str,
    why: String,
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

const fn type_name(kind: CardType) -> &'static str {
    match kind {
        CardType::Discrete => "discrete",
        CardType::Integrated => "integrated",
        CardType::Virtual => "virtual",
        CardType::Other => "other",
        CardType::Software => "software",
    }
}

/// The version; some drivers begin it with the API's name.
fn version(card: &Card) -> String {
    let text = card.api_version.as_str();
    text.strip_prefix(card.api.name()).unwrap_or(text).trim().to_owned()
}

/// Arithmetic by what it means for whoever reads.
fn arithmetic(found: Arithmetic) -> Vec<Feature> {
    let Arithmetic { native_f32, normal_f32, native_f64, native_i64, storage_8, .. } = found;
    [
        ("native_f32", "f32 add and multiply are the device's own", native_f32),
        ("normal_f32", "they are, but for subnormals", normal_f32),
        ("native_f64", "f64 add, multiply and divide are the device's own", native_f64),
        ("native_i64", "64-bit integers are the device's own", native_i64),
        ("storage_8", "8-bit loads and stores", storage_8),
    ]
    .map(|(name, words, has)| Feature { name, has, words })
    .into()
}

impl Device {
    /// `test`: the devices are opened.
    fn new(cards: &[Card], test: bool) -> Option<Self> {
        let first = cards.first()?;
        let of = |find: fn(&Card) -> Option<String>| cards.iter().find_map(find);
        Some(Self {
            name: first.name.clone(),
            vendor: first.vendor.clone(),
            r#type: type_name(first.kind),
            memory: first.memory,
            uuid: of(|card| card.uuid.map(|uuid| Which::Uuid(uuid).to_string())),
            pci: of(|card| card.pci.map(|pci| pci.to_string())),
            apis: cards.iter().map(|card| Through::new(card, test)).collect(),
        })
    }
}

impl Through {
    fn new(card: &Card, test: bool) -> Self {
        let which = Which::Index(card.index);
        let on = match card.api {
            Api::Vulkan => DeviceSpec::Vulkan(which),
            Api::OpenCl => DeviceSpec::OpenCl(which),
        };
        let tested = test.then(|| match Opened::open(&on) {
            Ok(opened) => opened.map(|device| device.tested()).transpose(),
            Err(error) => Err(error),
        });
        let (found, error) = match tested {
            Some(Ok(found)) => (found.and_then(|card| card.arithmetic), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        let features = card.features.iter().map(|&(name, has)| Feature { name, has, words: name });
        Self {
            on: on.to_string(),
            api: card.api.name(),
            api_version: version(card),
            driver: card.driver.clone(),
            features: features.collect(),
            arithmetic: found.map(arithmetic),
            error,
        }
    }
}

impl DevicesArgs {
    /// What is asked of which API.
    pub fn wanted(&self, verbose: bool) -> Vec<Wanted> {
        Wanted::all(self.tests(verbose))
    }

    /// Are devices opened?
    const fn tests(&self, verbose: bool) -> bool {
        verbose || self.json
    }
}

/// Runs the command.
pub fn run(
    args: &DevicesArgs,
    mut broken: Vec<Broken>,
    useless: Vec<Broken>,
    verbose: bool,
) -> anyhow::Result<()> {
    broken.extend(useless);
    let catalog = Catalog::find();
    let test = args.tests(verbose);
    let missing = |missing: &unisono::device::Missing| Missing {
        api: missing.api.name(),
        why: missing.error.to_string(),
    };
    let devices = Devices {
        cpu: Cpu::new(),
        devices: catalog.devices.iter().filter_map(|cards| Device::new(cards, test)).collect(),
        missing: catalog.missing.iter().map(missing).collect(),
        broken,
        boards: boards().into_iter().map(Board::from).collect(),
    };
    if args.json {
        return print_json(&devices);
    }
    print(&devices.text(verbose)?)?;
    Ok(())
}

impl Devices {
    fn text(&self, verbose: bool) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        self.cpu.write(verbose, &mut text)?;
        for device in &self.devices {
            device.write(verbose, &mut text)?;
        }
        for Missing { why, .. } in &self.missing {
            writeln!(text, "{why}")?;
        }
        for broken in &self.broken {
            writeln!(text, "{broken}")?;
        }
        for Board { on, about, missing } in &self.boards {
            writeln!(text, "{on:LEFT$}{about}")?;
            if let Some(missing) = missing {
                writeln!(text, "{:LEFT$}cannot be started: {missing}", "")?;
            }
        }
        for (on, about) in attachable() {
            writeln!(text, "{on:LEFT$}{about}, if it runs already")?;
        }
        Ok(text)
    }
}

/// Columns of the left margin.
const LEFT: usize = 22;

impl Cpu {
    fn write(&self, verbose: bool, text: &mut String) -> std::fmt::Result {
        let Self { model, cores, isa, memory, .. } = self;
        writeln!(
            text,
            "{:LEFT$}{model}, {cores} cores, kernels for {isa}, {} of memory",
            "cpu",
            bytes(*memory as f64)
        )?;
        if verbose {
            let Self { architecture, isas, memory_available, .. } = self;
            let (free, isas) = (bytes(*memory_available as f64), isas.join(", "));
            writeln!(text, "{:LEFT$}{architecture}; kernels can run {isas}; {free} free", "")?;
            let ranks = "any number of ranks up to 64: --on cpu,cpu or --on cpu:2";
            writeln!(text, "{:LEFT$}{ranks}", "")?;
        }
        Ok(())
    }
}

impl Device {
    fn write(&self, verbose: bool, text: &mut String) -> std::fmt::Result {
        let Self { name, vendor, r#type, memory, uuid, pci, apis } = self;
        let names = apis.iter().map(|api| api.on.as_str()).collect::<Vec<_>>().join(" = ");
        let at = pci.as_ref().map_or_else(String::new, |pci| format!(", {pci}"));
        let memory = bytes(*memory as f64);
        writeln!(text, "{names:LEFT$}{name}, {vendor}, {type}, {memory} of memory{at}")?;
        for api in apis {
            let Through { api: which, api_version, driver, features, arithmetic, error, on } = api;
            writeln!(text, "{:LEFT$}{which} {api_version}, {driver}", "")?;
            if let Some(error) = error {
                writeln!(text, "{:LEFT$}cannot be used: {error}", "")?;
            }
            if !verbose {
                continue;
            }
            write_features(features, text)?;
            if let Some(found) = arithmetic {
                writeln!(text, "{:LEFT$}arithmetic of {on}, as tested:", "")?;
                write_features(found, text)?;
            }
        }
        if let (true, Some(uuid)) = (verbose, uuid) {
            writeln!(text, "{:LEFT$}UUID {uuid}", "")?;
        }
        Ok(())
    }
}

fn write_features(features: &[Feature], text: &mut String) -> std::fmt::Result {
    for Feature { words, has, .. } in features {
        writeln!(text, "{:LEFT$}  {} {words}", "", if *has { "yes" } else { "no " })?;
    }
    Ok(())
}

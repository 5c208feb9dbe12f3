//! Drivers that would take the tool with them are found in time, and left out.
//!
//! A loader loads every driver that is installed. One that crashes then, or whose file the loader
//! cannot read, would lose the devices of all others; and a driver may crash only when a device is
//! opened and its kernels are compiled. So the tool first does both in a child process (`trial`),
//! which is itself with a command that is not in the help. It opens the devices that the command
//! asks for (`wanted`), with the self-test of each. A device at which it dies is left out, and the
//! next child does without it. If one that is named is not there, none is opened. If a child dies
//! before, each driver gets one of its own, and the loader is told to use those whose child lives
//! (`only`). Commands that name no GPU do none of it: they load no driver at all.

mod heard;
mod only;
mod trial;
mod wanted;

use heard::{Dead, Fault};
use only::Only;
use serde::Serialize;
use std::path::PathBuf;
use trial::Trial;
pub use trial::{COMMAND, TrialArgs, load};
use unisono::device::{Api, DeviceSpec, GpuError, driver_files, rule_out, rule_out_device};
pub use wanted::{Open, Wanted};

/// A driver that is left out.
#[derive(Debug, Serialize)]
pub struct Broken {
    api: &'static str,
    /// The file that names it; null if that is not known.
    driver: Option<PathBuf>,
    why: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { api, driver, why } = self;
        match driver {
            Some(file) => {
                let file = file.display();
                write!(f, "{api}: {file} is left out: {why}; mend the driver or remove the file")
            }
            None => write!(f, "{api} is left out: {why}; mend its driver or remove it"),
        }
    }
}

/// What is left out.
#[derive(Debug, Default)]
pub struct LeftOut {
    pub broken: Vec<Broken>,
    /// Drivers whose libraries do not load: a loader passes over them, and nothing is lost.
    pub useless: Vec<Broken>,
    /// Devices that `auto` does without. Whoever names one gets the error.
    pub lost: Vec<GpuError>,
}

impl LeftOut {
    /// A device at which a child died.
    fn lose(&mut self, wanted: &Wanted, Dead { index, name, why }: Dead) {
        let device = format!("{} device {index}, {name},", wanted.api.name());
        let text = format!("{why}; has its driver all that it needs, and memory (`ulimit -v`)?");
        let why = GpuError::Lost { device, text };
        rule_out_device(wanted.api, index, why.clone());
        if wanted.open == Open::These(vec![DeviceSpec::Auto]) {
            self.lost.push(why);
        }
    }
}

/// Tries drivers and devices, and makes this process leave out what is broken. To be called while
/// the process has one thread.
pub fn check(wanted: &[Wanted]) -> LeftOut {
    // Side by side: drivers take their time.
    let mut trials: Vec<_> =
        wanted.iter().map(|wanted| (wanted, Trial::start(wanted, None, &[]))).collect();
    let (mut out, mut limits) = (LeftOut::default(), Vec::new());
    // The command will end with an error then, whatever else can be opened.
    let mut in_vain = false;
    trials.iter_mut().for_each(|(_, trial)| in_vain |= trial.list());
    if !in_vain {
        trials.iter_mut().for_each(|(_, trial)| trial.go_on());
    }
    for (wanted, trial) in trials {
        limits.extend(settle(wanted, trial, &mut in_vain, &mut out));
    }
    for limit in &limits {
        limit.set();
    }
    for limit in limits {
        limit.load();
    }
    out
}

/// Tries again without what is broken, until a child lives. Returns the drivers that are left if
/// the loader has to be told. `in_vain`: a device that is wanted is not there, so none is opened.
fn settle(
    wanted: &Wanted,
    mut trial: Trial,
    in_vain: &mut bool,
    out: &mut LeftOut,
) -> Option<Only> {
    let api = wanted.api;
    let (mut only, mut without) = (None, Vec::new());
    loop {
        let name = |(file, why)| Broken { api: api.name(), driver: Some(file), why };
        if *in_vain && trial.has_listed() {
            out.useless.extend(trial.give_up().into_iter().map(name));
            return only;
        }
        match trial.end() {
            Ok(useless) => {
                out.useless.extend(useless.into_iter().map(name));
                return only;
            }
            Err(Fault::NoChild(why)) => {
                let what = format!("its drivers cannot be tried first, in a process: {why}");
                let help = "is one more process allowed (`ulimit -u`), and is there memory for it?";
                rule_out(api, GpuError::Broken { api: api.name(), what, help });
                return None;
            }
            Err(Fault::Device(dead)) => {
                without.push(dead.index);
                out.lose(wanted, dead);
            }
            Err(Fault::Drivers(why)) => {
                let known = out.broken.len();
                let good = if only.is_none() { sort_out(api, &mut out.broken) } else { None };
                if good.is_none() {
                    if out.broken.len() == known && only.is_none() {
                        out.broken.push(Broken { api: api.name(), driver: None, why });
                    }
                    let what = "none of its drivers can be used".to_owned();
                    let help = "mend or remove those that are left out";
                    rule_out(api, GpuError::Broken { api: api.name(), what, help });
                    return None;
                }
                only = good;
            }
        }
        trial = Trial::start(wanted, only.as_ref(), &without);
        *in_vain |= trial.list();
    }
}

/// Which drivers of an API are broken? Returns the others, if there are both.
fn sort_out(api: Api, broken: &mut Vec<Broken>) -> Option<Only> {
    let mut good = Vec::new();
    let known = broken.len();
    let list = Wanted { api, open: Open::Nothing };
    for file in driver_files(api) {
        let alone = Only::new(api, std::slice::from_ref(&file));
        let alone = alone.map_err(|error| Fault::Drivers(error.to_string()));
        match alone.and_then(|only| Trial::start(&list, Some(&only), &[]).end()) {
            Ok(_) => good.push(file),
            Err(fault) => {
                let why = fault.to_string();
                // It is named already.
                let named = format!("{} is ", file.display());
                let why = why.strip_prefix(&named).map(str::to_owned).unwrap_or(why);
                broken.push(Broken { api: api.name(), driver: Some(file), why });
            }
        }
    }
    let some_of_each = broken.len() > known && !good.is_empty();
    some_of_each.then(|| Only::new(api, &good).ok()).flatten()
}

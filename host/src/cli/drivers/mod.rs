//! Drivers that would take the tool with them are found in time, and left out.
//!
//! A loader loads every driver that is installed. One that crashes then, or whose file the loader
//! cannot read, would lose the devices of all others. So the tool first loads them in a child
//! process (`trial`), which is itself with a command that is not in the help. Only if that dies or
//! fails, each driver gets a child of its own, and the loader is told to use those whose child
//! lives (`only`). Commands that name no GPU do none of it: they load no driver at all.

mod only;
mod trial;

use only::Only;
use serde::Serialize;
use std::path::PathBuf;
use trial::Trial;
pub use trial::{TrialArgs, try_drivers};
use unisono::device::{Api, GpuError, driver_files, rule_out};

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

/// Tries the drivers of these APIs, and makes this process leave out what is broken. To be called
/// while the process has one thread.
pub fn check(apis: &[Api]) -> Vec<Broken> {
    // Side by side: drivers take their time.
    let trials: Vec<_> = apis.iter().map(|&api| (api, Trial::start(api, None))).collect();
    let (mut broken, mut limits) = (Vec::new(), Vec::new());
    for (api, trial) in trials {
        if let Err(why) = trial.end() {
            limits.extend(sort_out(api, why, &mut broken));
        }
    }
    for limit in &limits {
        limit.set();
    }
    for limit in limits {
        limit.load();
    }
    broken
}

/// Which drivers of an API are broken? Returns the others; if there are none, the API is ruled out.
fn sort_out(api: Api, together: String, broken: &mut Vec<Broken>) -> Option<Only> {
    let mut good = Vec::new();
    let known = broken.len();
    for file in driver_files(api) {
        let alone = Only::new(api, std::slice::from_ref(&file));
        let alone = alone.map_err(|error| error.to_string());
        match alone.and_then(|only| Trial::start(api, Some(&only)).end()) {
            Ok(()) => good.push(file),
            Err(why) => {
                // It is named already.
                let named = format!("{} is ", file.display());
                let why = why.strip_prefix(&named).map(str::to_owned).unwrap_or(why);
                broken.push(Broken { api: api.name(), driver: Some(file), why });
            }
        }
    }
    let some_are_broken = broken.len() > known;
    if !good.is_empty()
        && some_are_broken
        && let Ok(only) = Only::new(api, &good)
        && Trial::start(api, Some(&only)).end().is_ok()
    {
        return Some(only);
    }
    if !some_are_broken {
        broken.push(Broken { api: api.name(), driver: None, why: together });
    }
    let what = "none of its drivers can be used".to_owned();
    let help = "`unisono devices` says why";
    rule_out(api, GpuError::Broken { api: api.name(), what, help });
    None
}

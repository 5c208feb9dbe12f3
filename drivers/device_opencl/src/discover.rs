//! Which devices there are. A driver that fails loses only its own.

use crate::card::{card, refusal};
use crate::vendors;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::error_codes::{
    CL_DEVICE_NOT_FOUND, CL_PLATFORM_NOT_FOUND_KHR, ClError, DLOPEN_FUNCTION_NOT_AVAILABLE,
    DLOPEN_RUNTIME_LOAD_FAILED,
};
use opencl3::platform::{Platform, get_platforms};
use std::sync::{Mutex, Once, PoisonError};
use unisono_gpu::{Card, GpuError};

const API: &str = "OpenCL";

/// How to get the library and a driver.
const GET_IT: &str = "install the driver of your device and the loader, on Debian and Ubuntu: \
                      apt-get install ocl-icd-libopencl1, and pocl-opencl-icd for the processor";
/// What to do where a variable leads the loader astray.
const UNSET_IT: &str = "unset it, or let it name a folder with the .icd file of a driver";
/// What to look at when it is named and not there.
const LOAD_IT: &str = "is its library there, with all that `ldd` says it needs, and is there \
                       memory for it (`ulimit -v`)?";
/// What to try when a driver is installed.
const CHECK_IT: &str = "check with `clinfo -l`, and that you may use the device: /dev/dri, \
                        /dev/kfd, /dev/nvidia*, and that there is memory (`ulimit -v`)";
/// PoCL leaves its device out, without a word, if it cannot write its cache.
const POCL_CACHE: &str = "PoCL has no device if it cannot write its cache: set POCL_CACHE_DIR to a \
                          directory that can be written";
/// It leaves out what it does not know, too.
const POCL_NAMES: &str = "POCL_DEVICES is set, and PoCL has only the devices that it names: unset \
                          it, or let it name those of PoCL, such as pthread or basic";

/// What a platform has then.
const NONE: &str = "no devices";

/// A device and its card.
pub(crate) struct Found {
    pub device: Device,
    pub card: Card,
}

/// The cards of all devices, in the order of their drivers.
///
/// # Errors
/// [`GpuError::Missing`] if there is none; it says what is missing.
pub fn devices() -> Result<Vec<Card>, GpuError> {
    Ok(find()?.into_iter().map(|found| found.card).collect())
}

/// All devices.
pub(crate) fn find() -> Result<Vec<Found>, GpuError> {
    // Drivers come up at the first question. With two of them at once, PoCL 3.1 crashes, or has
    // no devices.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = get_platforms().map_err(|error| no_platform(&error))?;
    let mut found = Vec::new();
    let mut empty = Vec::new();
    for platform in platforms {
        let name = platform_name(&platform);
        match platform.get_devices(CL_DEVICE_TYPE_ALL) {
            Ok(ids) if !ids.is_empty() => {
                found.extend(ids.into_iter().map(|id| (Device::new(id), name.clone())));
            }
            Ok(_) => empty.push((name, NONE.to_owned())),
            Err(ClError(CL_DEVICE_NOT_FOUND)) => empty.push((name, NONE.to_owned())),
            Err(error) => empty.push((name, error.to_string())),
        }
    }
    let mut cards = Vec::new();
    for (device, platform) in found {
        let card = card(&device, cards.len(), &platform);
        match refusal(&device) {
            None => cards.push(Found { device, card }),
            Some(why) => empty.push((card.name, why.to_owned())),
        }
    }
    if cards.is_empty() {
        return Err(no_device(&empty));
    }
    // Whoever opens several devices asks again and again.
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        for (name, why) in &empty {
            let hint = pocl(name, why).map_or_else(String::new, |hint| format!(" ({hint})"));
            tracing::warn!(target: "unisono::opencl", "{name} is left out: {why}{hint}");
        }
    });
    Ok(cards)
}

fn platform_name(platform: &Platform) -> String {
    platform.name().map_or_else(
        |error| format!("an OpenCL platform without a name ({error})"),
        |name| name.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned(),
    )
}

/// What to do, if it is PoCL that has no devices.
fn pocl(platform: &str, why: &str) -> Option<&'static str> {
    let named = std::env::var_os("POCL_DEVICES").is_some();
    let hint = if named { POCL_NAMES } else { POCL_CACHE };
    (why == NONE && platform.contains("Portable Computing Language")).then_some(hint)
}

/// No list of platforms at all.
fn no_platform(error: &ClError) -> GpuError {
    let (what, help) = match error.0 {
        DLOPEN_RUNTIME_LOAD_FAILED => {
            (format!("libOpenCL.so.1 cannot be loaded ({error})"), GET_IT)
        }
        DLOPEN_FUNCTION_NOT_AVAILABLE => {
            let path = std::env::var("OPENCL_DYLIB_PATH").unwrap_or_default();
            (
                format!("what was loaded is no OpenCL library (OPENCL_DYLIB_PATH is '{path}')"),
                "unset OPENCL_DYLIB_PATH, or let it name libOpenCL.so.1",
            )
        }
        CL_PLATFORM_NOT_FOUND_KHR => match vendors::variable() {
            Some((name, value)) => {
                let (what, value) = (vendors::astray(value.as_ref()), value.display());
                (format!("there is no driver, as {name} is '{value}', {what} ({error})"), UNSET_IT)
            }
            None => not_loaded(error),
        },
        _ => (format!("its platforms cannot be listed ({error})"), CHECK_IT),
    };
    GpuError::Missing { api: API, what, help }
}

/// Nothing leads the loader astray: either there is no driver, or none can be loaded.
fn not_loaded(error: &ClError) -> (String, &'static str) {
    let files = vendors::vendors();
    if files.is_empty() {
        return (format!("no driver is installed ({error})"), GET_IT);
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    (format!("no driver can be loaded, but {} names one ({error})", files.join(" or ")), LOAD_IT)
}

/// Platforms, but no device that can be used.
fn no_device(empty: &[(String, String)]) -> GpuError {
    if empty.is_empty() {
        let what = "no driver is installed".to_owned();
        return GpuError::Missing { api: API, what, help: GET_IT };
    }
    let all: Vec<String> = empty.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let pocls: Option<Vec<_>> = empty.iter().map(|(name, why)| pocl(name, why)).collect();
    let help = pocls.and_then(|hints| hints.first().copied()).unwrap_or(CHECK_IT);
    GpuError::Missing { api: API, what: all.join(", "), help }
}

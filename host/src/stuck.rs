//! What becomes of a call that has been given up while a device does not end its jobs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Devices that do end their jobs have done it by then, whatever the time limit of calls.
const LEAST: Duration = Duration::from_secs(10);

/// Who is told, and decides.
#[derive(Clone)]
pub(crate) struct OnStuck(Arc<dyn Fn(&str) + Send + Sync>);

impl OnStuck {
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// How long after a call was given up.
    pub fn patience(timeout: Duration) -> Duration {
        timeout.max(LEAST)
    }

    /// Says that the device of a rank has not ended its jobs.
    pub fn tell(&self, rank: u16, device: &str, after: Duration) {
        let Self(tell) = self;
        tell(&format!(
            "the device of rank {rank}, {device}, still works on a call that was given up \
             {after:?} ago; its driver hangs, and until it is done the call's memory cannot be used"
        ));
    }
}

impl Default for OnStuck {
    fn default() -> Self {
        Self::new(|text| tracing::error!("{text}"))
    }
}

impl fmt::Debug for OnStuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnStuck")
    }
}

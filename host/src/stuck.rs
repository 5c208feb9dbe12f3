//! What becomes of a call that has been given up while somebody does not let go of its memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use unisono_runtime::Holder;

/// Whoever does let go has done it by then, whatever the time limit of calls.
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

    /// Says who has not let go of a rank's memory.
    pub fn tell(&self, rank: u16, device: &str, holder: Holder, after: Duration) {
        let Self(tell) = self;
        tell(&match holder {
            Holder::Device => format!(
                "the device of rank {rank}, {device}, still works on a call that was given up \
                 {after:?} ago; its driver hangs, and until it is done the call's memory cannot be \
                 used"
            ),
            Holder::Peer(peer) => format!(
                "rank {peer} still uses the memory of rank {rank} for a call that was given up \
                 {after:?} ago; has its process been stopped, or does its device hang? Until it is \
                 done the call's memory cannot be used"
            ),
        });
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

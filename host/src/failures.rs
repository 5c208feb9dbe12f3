//! What devices said when they failed, for all ranks: a frame has no room for a driver's words.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a rank waits for the words of another one, which has told it already that its device
/// has failed, and says why once nobody uses its memory any more.
const WAIT: Duration = Duration::from_secs(2);

/// What a device has said.
#[derive(Debug)]
struct Said {
    call: u64,
    rank: u16,
    text: String,
}

/// The last words of each rank's device.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    said: Mutex<Vec<Said>>,
    news: Condvar,
}

impl Failures {
    /// What this rank's device has said in a call.
    pub fn say(&self, call: u64, rank: u16, text: String) -> String {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|said| said.rank != rank);
        said.push(Said { call, rank, text: text.clone() });
        drop(said);
        self.news.notify_all();
        text
    }

    /// What the device of another rank says.
    pub fn hear(&self, call: u64, rank: u16) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |said: &&Said| (said.call, said.rank) == (call, rank);
        let silent = |said: &mut Vec<Said>| !said.iter().any(|s| is(&s));
        let (said, _) = self
            .news
            .wait_timeout_while(said, WAIT, silent)
            .unwrap_or_else(PoisonError::into_inner);
        let text = said.iter().find(is).map(|said| said.text.clone());
        text.unwrap_or_else(|| "it has not said why yet; see that rank's own error".into())
    }
}

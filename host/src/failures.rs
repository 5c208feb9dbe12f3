//! What devices said when they failed, for all ranks: a frame has no room for a driver's words.
//!
//! Members of a process share them. Other processes get them as a note over the rendezvous.

use crate::world::World;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono_rendezvous::NOTE_MAX;

/// How long a rank waits for the words of another one, which has told it already that its device
/// has failed, and says why once nobody uses its memory any more.
const WAIT: Duration = Duration::from_secs(2);
/// How long a rank whose device has failed waits until the other processes have been told.
const TELLING: Duration = Duration::from_millis(100);
/// Between two looks at notes; other members of the process look, too.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of a note beside the text: four numbers of at most 10 bytes.
const HEAD: usize = 40;

/// What a device has said.
#[derive(Debug, Serialize, Deserialize)]
struct Said<'a> {
    /// Rounds of the rendezvous before the group was there: tells groups apart.
    group: u32,
    call: u64,
    rank: u16,
    text: Cow<'a, str>,
}

/// The last words of each rank's device.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    said: Mutex<Vec<Said<'static>>>,
    news: Condvar,
    world: Option<Others>,
}

/// Processes with other members.
#[derive(Debug)]
struct Others {
    world: World,
    group: u32,
    /// Members of this process.
    own: Vec<u16>,
}

impl Failures {
    /// For a group of several processes, once it is there.
    pub fn of(world: &World, own: Vec<u16>) -> Self {
        let others = Others { world: world.clone(), group: world.rounds(), own };
        Self { world: Some(others), ..Self::default() }
    }

    /// What this rank's device has said in a call.
    pub fn say(&self, call: u64, rank: u16, text: String) -> String {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|said| said.rank != rank);
        said.push(Said { group: 0, call, rank, text: text.clone().into() });
        drop(said);
        self.news.notify_all();
        if let Some(others) = &self.world {
            others.tell(call, rank, &text);
        }
        text
    }

    /// What the device of another rank says.
    pub fn hear(&self, call: u64, rank: u16) -> String {
        let text = match &self.world {
            Some(others) if !others.own.contains(&rank) => others.hear(call, rank),
            _ => self.hear_here(call, rank),
        };
        text.unwrap_or_else(|| "it has not said why yet; see that rank's own error".into())
    }

    fn hear_here(&self, call: u64, rank: u16) -> Option<String> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |said: &&Said<'_>| (said.call, said.rank) == (call, rank);
        let silent = |said: &mut Vec<Said<'_>>| !said.iter().any(|s| is(&s));
        let (said, _) = self
            .news
            .wait_timeout_while(said, WAIT, silent)
            .unwrap_or_else(PoisonError::into_inner);
        said.iter().find(is).map(|said| said.text.clone().into_owned())
    }
}

impl Others {
    fn tell(&self, call: u64, rank: u16, text: &str) {
        let cut = (0..=NOTE_MAX - HEAD).rev().find(|&at| text.is_char_boundary(at));
        let text = Cow::Borrowed(&text[..cut.unwrap_or(0)]);
        let said = Said { group: self.group, call, rank, text };
        // Writing to memory does not fail.
        if let Ok(note) = postcard::to_stdvec(&said) {
            self.world.note(&note, TELLING);
        }
    }

    fn hear(&self, call: u64, rank: u16) -> Option<String> {
        let find = |note: &[u8]| {
            let said: Said<'_> = postcard::from_bytes(note).ok()?;
            let this = (said.group, said.call, said.rank) == (self.group, call, rank);
            this.then(|| tame(&said.text))
        };
        let until = Instant::now() + WAIT;
        loop {
            // Also after the time is over: this process may have been stopped meanwhile.
            let late = Instant::now() >= until;
            match self.world.heard(LOOK, find) {
                (Some(text), _) => return Some(text),
                (None, true) if !late => {}
                (None, _) => return None,
            }
        }
    }
}

/// Words from another process, fit for a terminal: compilers' logs have several lines.
fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Whatever it says, however long it is.
    #[test]
    fn words_of_others_are_cut_and_tamed() {
        let job = format!("words-{}", std::process::id());
        let log = format!("\u{1b}[2Jline 1\nline 2\r{}", "ö".repeat(5000));
        let want = format!(" [2Jline 1\nline 2 {}", "ö".repeat(5000));
        let own = |process: u16| {
            let world = World::builder().rank(process.into()).size(2).job(&job);
            let failures = Failures::of(&world.build().expect("all come"), vec![process]);
            if process == 1 {
                // Another call's, garbage, then what is asked for.
                failures.say(6, 1, "earlier".into());
                failures.world.as_ref().expect("others").world.note(&[0xff; 77], TELLING);
                return failures.say(7, 1, log.clone());
            }
            failures.hear(7, 1)
        };
        thread::scope(|scope| {
            let (said, heard) = (scope.spawn(|| own(1)), scope.spawn(|| own(0)));
            assert_eq!(said.join().expect("no panic"), log);
            let heard = heard.join().expect("no panic");
            assert!(want.starts_with(&heard), "{heard}");
            assert!((NOTE_MAX - HEAD - 1..=NOTE_MAX).contains(&heard.len()), "{}", heard.len());
        });
    }
}

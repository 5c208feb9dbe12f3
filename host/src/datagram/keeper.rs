//! The thread that looks after links whose members do something else.

use super::link::Shared;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// A link that its member has not polled for so long is looked after; its lifeline is in any case.
const TICK: Duration = Duration::from_millis(10);
/// The same while packets come in for one.
const BUSY: Duration = Duration::from_millis(1);

/// Links that will have a keeper.
#[derive(Debug, Default)]
pub(crate) struct Keeper(Vec<Weak<Shared>>);

impl Keeper {
    /// One more link.
    pub(super) fn add(&mut self, link: &Arc<Shared>) {
        self.0.push(Arc::downgrade(link));
    }

    /// Starts the thread, if there is a link. It ends with the last of them.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(self) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let thread = thread::Builder::new().name("unisono-udp".into());
        thread.spawn(move || keep(self.0)).map(drop)
    }
}

fn keep(mut links: Vec<Weak<Shared>>) {
    let mut seen: Vec<u32> = vec![0; links.len()];
    while !links.is_empty() {
        let mut pause = TICK;
        for (link, seen) in links.iter().zip(&mut seen) {
            let Some(link) = link.upgrade() else { continue };
            link.watch();
            let polls = link.polls();
            if *seen == polls && link.tend() {
                pause = BUSY;
            }
            *seen = polls;
        }
        if links.iter().all(|link| link.strong_count() == 0) {
            links.clear();
        }
        thread::sleep(pause);
    }
}

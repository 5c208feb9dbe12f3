//! The thread that watches a board: its process if it has one, its signs of life, its log.

use crate::error::Problem;
use crate::process::Process;
use crate::talk::Alive;
use defmt_decoder::{DecodeError, Frame, StreamDecoder, Table};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unisono_core::wire::exit;
use unisono_link_window::{Area, Coherent, PipeReader, Region};

/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(2);

/// What the thread and the board's owner share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The board does not answer.
    mute: AtomicBool,
    /// `gone` is told.
    over: AtomicBool,
    gone: Mutex<Option<String>>,
    /// What is needed to read its log, once it is known; `None` if there is nothing to read. Until
    /// then the log waits.
    table: OnceLock<Option<Table>>,
}

/// A board that is being watched. Dropping it ends the board, if it was started here.
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: Option<u32>,
}

/// Says whether a board is gone; for links that do not notice it by themselves.
#[derive(Clone)]
pub struct Life(Arc<Shared>);

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Life").field(&!self.is_over()).finish()
    }
}

impl Life {
    /// Is it gone?
    pub fn is_over(&self) -> bool {
        self.0.over.load(Relaxed)
    }
}

/// What a board shows of itself beside its process.
pub trait Signs: Send {
    /// Takes bytes that the board has logged; how many.
    fn log(&mut self, into: &mut [u8]) -> usize;

    /// A number that changes as long as the board lives; constant if it gives no such sign, then
    /// `silence` does not count.
    fn beats(&self) -> Option<u32>;

    /// Has the board left since it was first seen, or been started anew?
    fn has_left(&mut self) -> bool {
        false
    }

    /// The board is gone: from now on no rank waits for it.
    fn close(&self);
}

/// A window has a log, a counter and links that can be closed.
pub struct WindowSigns {
    region: Region,
    log: Option<PipeReader<Coherent>>,
    attachment: u32,
}

impl WindowSigns {
    pub fn new(region: Region) -> Self {
        let log = PipeReader::new(&region, |area| matches!(area, Area::Log(_)), Coherent).ok();
        Self { region, log, attachment: 0 }
    }
}

impl Signs for WindowSigns {
    fn log(&mut self, into: &mut [u8]) -> usize {
        self.log.as_mut().and_then(|pipe| pipe.get(into).ok()).unwrap_or(0)
    }

    fn beats(&self) -> Option<u32> {
        Some(self.region.other_beats())
    }

    fn has_left(&mut self) -> bool {
        let now = self.region.attachment();
        if self.attachment == 0 {
            self.attachment = now;
        }
        now != self.attachment
    }

    fn close(&self) {
        // A region that cannot be written is gone for the ranks, too.
        let _ = self.region.close_for_other();
    }
}

/// What the thread needs.
pub struct Watch {
    pub name: String,
    /// Its machine, if it was started here.
    pub process: Option<Process>,
    pub signs: Box<dyn Signs>,
    /// How long the board may show no sign of life.
    pub silence: Duration,
}

impl Keeper {
    /// Begins to watch; if that cannot be, the board's machine ends.
    pub fn new(watch: Watch) -> Result<Self, Problem> {
        let shared = Arc::new(Shared::default());
        let pid = watch.process.as_ref().map(|process| process.child.id());
        let theirs = shared.clone();
        let name = format!("watch {}", watch.name);
        let thread = std::thread::Builder::new().name(name).spawn(move || watch.run(&theirs));
        let thread = Some(thread.map_err(Problem::Thread)?);
        Ok(Self { shared, thread, pid })
    }

    /// The board's life.
    pub fn life(&self) -> Life {
        Life(self.shared.clone())
    }

    /// Process id of the machine, if it was started here.
    pub const fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Tells how the log is read.
    pub fn read_log(&self, table: Option<Table>) {
        // Told once for each board.
        let _ = self.shared.table.set(table);
    }
}

impl Alive for Keeper {
    fn gone(&self) -> Option<String> {
        self.shared.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn mute(&self) {
        self.shared.mute.store(true, Relaxed);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn run(mut self, shared: &Shared) {
        let name = self.name.clone();
        let mut log = Log { name: &name, decoder: None, last_error: None };
        let (mut beats, mut since) = (self.signs.beats(), Instant::now());
        while !shared.stop.load(Relaxed) {
            if let (None, Some(Some(table))) = (&log.decoder, shared.table.get()) {
                log.decoder = Some(table.new_stream_decoder());
            }
            log.drain(&mut *self.signs);
            if self.signs.beats() != beats {
                (beats, since) = (self.signs.beats(), Instant::now());
            }
            let still = beats.is_some() && since.elapsed() > self.silence;
            let silent = still || shared.mute.load(Relaxed);
            if let Some(why) = self.gone(silent, &mut log) {
                // Whoever needs the board gets it as an error.
                tracing::info!(board = self.name, "{why}");
                *shared.gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                shared.over.store(true, Relaxed);
                self.signs.close();
                break;
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Why the board is gone, if it is.
    fn gone(&mut self, silent: bool, log: &mut Log<'_>) -> Option<String> {
        let mut parts = Vec::new();
        let Self { process, silence, .. } = self;
        match process.as_mut().map(|process| process.child.try_wait()) {
            Some(Ok(Some(status))) => {
                parts.push(format!("its machine ended with {status}{}", meaning(status)));
                let said = process.as_ref().map(Process::said).unwrap_or_default();
                parts.push(complaints(&said));
            }
            Some(Err(error)) => parts.push(format!("its process cannot be watched: {error}")),
            _ if silent => parts.push(no_sign_for(*silence)),
            _ if self.signs.has_left() => parts.push("it has left, or been started anew".into()),
            _ => return None,
        }
        log.drain(&mut *self.signs);
        parts.extend(log.last_error.clone());
        parts.retain(|part| !part.is_empty());
        Some(parts.join("; "))
    }
}

/// What is said of a board that stands still.
pub fn no_sign_for(silence: Duration) -> String {
    format!("no sign of life for {silence:?}")
}

/// What firmware means by the code that it has ended its machine with.
fn meaning(status: ExitStatus) -> String {
    let meaning = status.code().and_then(exit::meaning);
    meaning.map(|text| format!(" ({text})")).unwrap_or_default()
}

/// What a machine has said before its end, but for its warnings, which are not why it ended.
fn complaints(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.contains(": warning: "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Decodes the log.
struct Log<'a> {
    name: &'a str,
    decoder: Option<Box<dyn StreamDecoder + Send + Sync + 'a>>,
    /// The last thing that went wrong, by the board's own word.
    last_error: Option<String>,
}

impl Log<'_> {
    /// Passes on what the board has logged.
    fn drain(&mut self, signs: &mut dyn Signs) {
        let Self { name, decoder: Some(decoder), last_error } = self else { return };
        let mut bytes = [0; 512];
        while let n @ 1.. = signs.log(&mut bytes) {
            decoder.received(&bytes[..n]);
        }
        loop {
            match decoder.decode() {
                Ok(frame) => tell(name, &frame, last_error),
                Err(DecodeError::UnexpectedEof) => return,
                // A frame that lost bytes; the next one is found again.
                Err(DecodeError::Malformed) => {}
            }
        }
    }
}

/// One line of a board's log in this program's log.
fn tell(board: &str, frame: &Frame<'_>, last_error: &mut Option<String>) {
    let time = frame.display_timestamp().map(|t| t.to_string()).unwrap_or_default();
    let message = frame.display_message().to_string();
    match frame.level().map(|level| level.as_str()) {
        Some("error") => {
            tracing::error!(board, time, "{message}");
            *last_error = Some(message);
        }
        Some("warn") => tracing::warn!(board, time, "{message}"),
        Some("debug") => tracing::debug!(board, time, "{message}"),
        Some("trace") => tracing::trace!(board, time, "{message}"),
        _ => tracing::info!(board, time, "{message}"),
    }
}

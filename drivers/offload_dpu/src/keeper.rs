//! The thread that watches a board: its process, its signs of life, its log.

use crate::talk::Alive;
use defmt_decoder::{DecodeError, Frame, StreamDecoder, Table};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unisono_link_window::{Area, Coherent, PipeReader, Region};

/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(2);
/// Bytes of the machine's own error output that are told.
const TAIL: usize = 400;

/// What the thread and the board's owner share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// `gone` is told.
    over: AtomicBool,
    gone: Mutex<Option<String>>,
}

/// A board that is being watched. Dropping it ends the board.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

/// Says whether a board is gone; for links that do not notice it by themselves.
#[derive(Clone, Debug)]
pub struct Life(Arc<Shared>);

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

    /// The board is gone: from now on no rank waits for it.
    fn close(&self);
}

/// A window has a log, a counter and links that can be closed.
pub struct WindowSigns {
    region: Region,
    log: Option<PipeReader<Coherent>>,
}

impl WindowSigns {
    pub fn new(region: Region) -> Self {
        let log = PipeReader::new(&region, |area| matches!(area, Area::Log(_)), Coherent).ok();
        Self { region, log }
    }
}

impl Signs for WindowSigns {
    fn log(&mut self, into: &mut [u8]) -> usize {
        self.log.as_mut().and_then(|pipe| pipe.get(into).ok()).unwrap_or(0)
    }

    fn beats(&self) -> Option<u32> {
        Some(self.region.other_beats())
    }

    fn close(&self) {
        // A region that cannot be written is gone for the ranks, too.
        let _ = self.region.close_for_other();
    }
}

/// What the thread needs.
pub struct Watch {
    pub name: String,
    pub child: Child,
    pub signs: Box<dyn Signs>,
    pub table: Option<Table>,
    /// Where the machine's error output goes.
    pub stderr: PathBuf,
    /// How long the board may show no sign of life.
    pub silence: Duration,
}

impl Keeper {
    pub fn new(watch: Watch) -> Self {
        let shared = Arc::new(Shared::default());
        let pid = watch.child.id();
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || watch.run(&theirs));
        Self { shared, thread: Some(thread), pid }
    }

    /// The board's life.
    pub fn life(&self) -> Life {
        Life(self.shared.clone())
    }

    /// Process id of the machine.
    pub const fn pid(&self) -> u32 {
        self.pid
    }
}

impl Alive for Keeper {
    fn gone(&self) -> Option<String> {
        self.shared.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        let table = self.table.take();
        let name = self.name.clone();
        let mut log = Log::new(&name, table.as_ref());
        let (mut beats, mut since) = (self.signs.beats(), Instant::now());
        while !shared.stop.load(Relaxed) {
            log.drain(&mut *self.signs);
            let now = Instant::now();
            if self.signs.beats() != beats {
                (beats, since) = (self.signs.beats(), now);
            }
            let why = match self.child.try_wait() {
                Ok(Some(status)) => Some(self.ended(status, &mut log)),
                Err(error) => Some(format!("its process cannot be watched: {error}")),
                Ok(None) if beats.is_some() && now.duration_since(since) > self.silence => {
                    Some(format!("no sign of life for {:?}", self.silence))
                }
                Ok(None) => None,
            };
            if let Some(why) = why {
                tracing::error!(board = self.name, "{why}");
                *shared.gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                shared.over.store(true, Relaxed);
                self.signs.close();
                break;
            }
            std::thread::sleep(PERIOD);
        }
        // Already gone, or to be ended now; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ended(&mut self, status: std::process::ExitStatus, log: &mut Log<'_>) -> String {
        log.drain(&mut *self.signs);
        let stderr = std::fs::read(&self.stderr).unwrap_or_default();
        let text = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(TAIL)..]);
        let mut why = format!("its machine ended with {status}");
        for part in [text.trim(), log.last_error.as_deref().unwrap_or_default()] {
            if !part.is_empty() {
                why += &format!("; {part}");
            }
        }
        why
    }
}

/// Decodes the log.
struct Log<'a> {
    name: &'a str,
    decoder: Option<Box<dyn StreamDecoder + Send + Sync + 'a>>,
    /// The last thing that went wrong, by the board's own word.
    last_error: Option<String>,
}

impl<'a> Log<'a> {
    fn new(name: &'a str, table: Option<&'a Table>) -> Self {
        Self { name, decoder: table.map(Table::new_stream_decoder), last_error: None }
    }

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

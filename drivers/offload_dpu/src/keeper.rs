//! The thread that watches a board: its process, its signs of life, its log.

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
    gone: Mutex<Option<String>>,
}

/// A board that is being watched. Dropping it ends the board.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

/// What the thread needs.
pub struct Watch {
    pub name: String,
    pub child: Child,
    pub region: Region,
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

    /// Why the board is gone, if it is.
    pub fn gone(&self) -> Option<String> {
        self.shared.gone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Process id of the machine.
    pub const fn pid(&self) -> u32 {
        self.pid
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
        let region = self.region.clone();
        let table = self.table.take();
        let mut log = Log::new(&self.name, table.as_ref(), &region);
        let (mut beats, mut since) = (region.other_beats(), Instant::now());
        while !shared.stop.load(Relaxed) {
            log.drain();
            let now = Instant::now();
            if region.other_beats() != beats {
                (beats, since) = (region.other_beats(), now);
            }
            let why = match self.child.try_wait() {
                Ok(Some(status)) => Some(self.ended(status, &mut log)),
                Err(error) => Some(format!("its process cannot be watched: {error}")),
                Ok(None) if now.duration_since(since) > self.silence => {
                    Some(format!("no sign of life for {:?}", self.silence))
                }
                Ok(None) => None,
            };
            if let Some(why) = why {
                tracing::error!(board = self.name, "{why}");
                *shared.gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                // From now on no rank waits for it.
                let _ = region.close_for_other();
                break;
            }
            std::thread::sleep(PERIOD);
        }
        // Already gone, or to be ended now; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ended(&self, status: std::process::ExitStatus, log: &mut Log<'_>) -> String {
        log.drain();
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
    pipe: Option<PipeReader<Coherent>>,
    decoder: Option<Box<dyn StreamDecoder + Send + Sync + 'a>>,
    /// The last thing that went wrong, by the board's own word.
    last_error: Option<String>,
}

impl<'a> Log<'a> {
    fn new(name: &'a str, table: Option<&'a Table>, region: &Region) -> Self {
        let pipe = PipeReader::new(region, |area| matches!(area, Area::Log(_)), Coherent).ok();
        Self { name, pipe, decoder: table.map(Table::new_stream_decoder), last_error: None }
    }

    /// Passes on what the board has logged.
    fn drain(&mut self) {
        let Self { name, pipe: Some(pipe), decoder: Some(decoder), last_error } = self else {
            return;
        };
        let mut bytes = [0; 512];
        while let Ok(n @ 1..) = pipe.get(&mut bytes) {
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

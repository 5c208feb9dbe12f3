//! A progress bar for long runs, where somebody looks at it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs shorter than this show no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts bytes or steps; shows itself on a terminal if it takes long.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: AtomicBool,
}

impl Progress {
    /// So many bytes are to be worked through.
    pub fn new(bytes: u64) -> Self {
        let style = "{msg:9} {wide_bar} {bytes:>11} of {total_bytes}, {eta} left";
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, started: Instant::now(), shown: AtomicBool::new(false) }
    }

    /// So many steps are to be done.
    pub fn steps(steps: u64) -> Self {
        let progress = Self::new(steps);
        if let Ok(style) = ProgressStyle::with_template("{msg:9} {wide_bar} {pos} of {len}") {
            progress.bar.set_style(style);
        }
        progress
    }

    /// What is being done now.
    pub fn stage(&self, name: &'static str) {
        self.bar.set_message(name);
    }

    /// So many bytes or steps more are done.
    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        if self.started.elapsed() > PATIENCE && !self.shown.swap(true, Ordering::Relaxed) {
            // Stays hidden if stderr is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

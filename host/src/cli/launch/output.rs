//! What ranks print, line by line, with their number before it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer lines are cut into pieces: a program without line ends must not fill the memory.
const LINE_MAX: u64 = 64 << 10;
/// After the end of its rank, a stream ends soon; unless somebody who has left its group holds it.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// The threads that pass output on.
pub struct Output {
    results: Receiver<io::Result<()>>,
    sender: Sender<io::Result<()>>,
    open: usize,
}

impl Output {
    pub fn new() -> Self {
        let (sender, results) = channel();
        Self { results, sender, open: 0 }
    }

    /// Passes on what a rank prints, if its streams are pipes.
    pub fn pass_on(&mut self, rank: usize, child: &mut Child) -> io::Result<()> {
        if let Some(stream) = child.stdout.take() {
            self.spawn(rank, stream, io::stdout)?;
        }
        if let Some(stream) = child.stderr.take() {
            self.spawn(rank, stream, io::stderr)?;
        }
        Ok(())
    }

    fn spawn<W: Write + 'static>(
        &mut self,
        rank: usize,
        stream: impl Read + Send + 'static,
        to: fn() -> W,
    ) -> io::Result<()> {
        let sender = self.sender.clone();
        thread::Builder::new().name(format!("output of rank {rank}")).spawn(move || {
            let result = copy(rank, stream, to);
            // Nobody listens any more if the launcher did not wait for it.
            let _ = sender.send(result);
        })?;
        self.open += 1;
        Ok(())
    }

    /// An error once our own output cannot be written any more.
    pub fn check(&mut self) -> io::Result<()> {
        while let Ok(result) = self.results.try_recv() {
            self.open -= 1;
            result?;
        }
        Ok(())
    }

    /// Waits for what is still on its way.
    pub fn finish(mut self) -> io::Result<()> {
        let until = Instant::now() + STRAGGLERS;
        while self.open > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(result) = self.results.recv_timeout(left) else { break };
            self.open -= 1;
            result?;
        }
        Ok(())
    }
}

/// Each line in one write, so that lines of different ranks do not mix.
fn copy<W: Write>(rank: usize, stream: impl Read, to: fn() -> W) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = format!("[{rank}] ").into_bytes();
        let empty = line.len();
        stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.len() == empty {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        let mut to = to();
        to.write_all(&line)?;
        to.flush()?;
    }
}

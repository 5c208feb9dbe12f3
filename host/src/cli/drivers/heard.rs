//! What the child says, and what its end means.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A driver that takes longer to load hangs.
const LOADING: Duration = Duration::from_secs(10);
/// A device that takes longer to open hangs: its first kernels have to be compiled.
const OPENING: Duration = Duration::from_secs(30);
/// Begins the child's own lines; all others are what libraries say.
const MARK: &str = "unisono: ";
/// Lines of a library that are kept, the last ones, and the characters of each.
const WORDS_MAX: (usize, usize) = (3, 200);
/// Bytes of a line that are kept.
const LINE_MAX: usize = 4096;

/// Whether the devices that are wanted are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// All are.
    Complete,
    /// One is not, or its name fits several.
    Incomplete,
}

/// A line of the child.
pub enum Line<'a> {
    /// It knows the devices.
    Listed(Listed),
    /// A device is being opened.
    Opening(usize, &'a str),
    /// That went well, or gave an error.
    Opened,
    /// The loader cannot get past a driver.
    Broken(&'a str),
    /// The file of a driver whose library does not load, and why. The loader passes over it.
    Useless(&'a Path, &'a str),
    /// All went well: a library may end a process with any status.
    Done,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A library may have left the line open.
        write!(f, "\n{MARK}")?;
        match self {
            Self::Listed(Listed::Complete) => writeln!(f, "complete"),
            Self::Listed(Listed::Incomplete) => writeln!(f, "incomplete"),
            Self::Opening(index, name) => writeln!(f, "opening {index} {}", one_line(name)),
            Self::Opened => writeln!(f, "opened"),
            Self::Broken(words) => writeln!(f, "broken {}", one_line(words)),
            Self::Useless(file, why) => {
                let file = file.display().to_string();
                writeln!(f, "useless {}\t{}", one_line(&file), one_line(why))
            }
            Self::Done => writeln!(f, "done"),
        }
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LINE_MAX / 8).collect()
}

/// Why a trial failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this process: it cannot have a child.
    NoChild(String),
    /// With the drivers.
    Drivers(String),
    /// With one device, which has been tried.
    Device(Dead),
}

/// A device at which the child died.
#[derive(Debug, PartialEq, Eq)]
pub struct Dead {
    pub index: usize,
    pub name: String,
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChild(why) | Self::Drivers(why) | Self::Device(Dead { why, .. }) => {
                f.write_str(why)
            }
        }
    }
}

/// What was heard so far.
#[derive(Debug)]
pub struct Heard {
    line: Vec<u8>,
    /// The last words of libraries.
    words: Vec<String>,
    listed: Option<Listed>,
    opening: Option<(usize, String)>,
    broken: Option<String>,
    useless: Vec<(PathBuf, String)>,
    done: bool,
    /// When the present step began.
    since: Instant,
}

impl Heard {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            line: Vec::new(),
            words: Vec::new(),
            listed: None,
            opening: None,
            broken: None,
            useless: Vec::new(),
            done: false,
            since: Instant::now(),
        }
    }

    /// More of what it says.
    pub fn hear(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() < LINE_MAX {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            self.line(&String::from_utf8_lossy(&line));
        }
    }

    fn line(&mut self, line: &str) {
        let Some(own) = line.strip_prefix(MARK) else {
            let word: String = one_line(line.trim()).chars().take(WORDS_MAX.1).collect();
            if !word.is_empty() {
                if self.words.len() == WORDS_MAX.0 {
                    self.words.remove(0);
                }
                self.words.push(word);
            }
            return;
        };
        self.since = Instant::now();
        match own.split_once(' ').unwrap_or((own, "")) {
            ("opening", device) => {
                let (index, name) = device.split_once(' ').unwrap_or((device, ""));
                self.opening = index.parse().ok().map(|index| (index, name.to_owned()));
                self.words.clear();
            }
            ("complete", _) => self.listed = Some(Listed::Complete),
            ("incomplete", _) => self.listed = Some(Listed::Incomplete),
            ("opened", _) => self.opening = None,
            ("broken", words) => self.broken = Some(words.to_owned()),
            ("useless", words) => {
                let (file, why) = words.split_once('\t').unwrap_or((words, ""));
                self.useless.push((file.into(), why.to_owned()));
            }
            ("done", _) => self.done = true,
            _ => {}
        }
    }

    /// What is known of the devices, once they are listed.
    pub const fn listed(&self) -> Option<Listed> {
        self.listed
    }

    /// Its step begins only now.
    pub fn restart(&mut self) {
        self.since = Instant::now();
    }

    /// How long the present step has taken, and how long it may.
    pub fn times(&self) -> (Duration, Duration) {
        (self.since.elapsed(), if self.opening.is_some() { OPENING } else { LOADING })
    }

    /// The files of drivers whose libraries do not load, and why, as far as that was said.
    pub fn useless(self) -> Vec<(PathBuf, String)> {
        self.useless
    }

    /// What it is at.
    pub fn step(&self) -> String {
        match &self.opening {
            Some((index, name)) => format!("opening device {index}, {name},"),
            None => "loading the drivers".to_owned(),
        }
    }

    /// What the end of the child means; `None`: it was ended, as it hung. Returns the files of
    /// drivers whose libraries do not load, and why.
    ///
    /// # Errors
    /// What is wrong, and with what.
    pub fn end(mut self, status: Option<ExitStatus>) -> Result<Vec<(PathBuf, String)>, Fault> {
        // The last line may be open.
        self.hear(b"\n");
        let (_, patience) = self.times();
        if status.is_some_and(|status| status.success()) && self.done {
            return Ok(self.useless);
        }
        if let Some(words) = self.broken {
            return Err(Fault::Drivers(words));
        }
        let what = if self.opening.is_some() { "opens" } else { "loads" };
        let mut why = format!("a process that {what} it ");
        // Writing to a string does not fail.
        let _ = match status {
            Some(status) => write!(why, "ends with {status}"),
            None => write!(why, "hangs for {patience:?}"),
        };
        if !self.words.is_empty() {
            let _ = write!(why, ", and says: {}", self.words.join("; "));
        }
        Err(match self.opening {
            None => Fault::Drivers(why),
            Some((index, name)) => Fault::Device(Dead { index, name, why }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault of a child that hung after it had said this.
    fn fault(said: &str) -> Fault {
        let mut heard = Heard::new();
        // However it comes.
        said.as_bytes().chunks(3).for_each(|part| heard.hear(part));
        heard.end(None).expect_err("a fault")
    }

    #[test]
    fn what_died_is_known_by_its_last_line() {
        let loading = "a process that loads it hangs for 10s";
        assert_eq!(fault("").to_string(), loading);
        assert_eq!(fault(&Line::Done.to_string()).to_string(), loading);
        let opening = format!("{}{}", Line::Opened, Line::Opening(3, "a\nb"));
        let why = "a process that opens it hangs for 30s, and says: 3; 4; 5".to_owned();
        let dead = Dead { index: 3, name: "a b".into(), why };
        let said = format!("0\n{opening}1\n2\n3\n\n4\n5");
        assert_eq!(fault(&said), Fault::Device(dead));
        let said = format!("text without end{opening}{}", Line::Opened);
        assert_eq!(fault(&said), Fault::Drivers(loading.into()));
        let said = Line::Broken("it cannot be read").to_string();
        assert_eq!(fault(&said), Fault::Drivers("it cannot be read".into()));
    }

    #[test]
    fn it_says_whether_devices_are_there() {
        for listed in [Listed::Complete, Listed::Incomplete] {
            let mut heard = Heard::new();
            assert_eq!(heard.listed(), None);
            heard.hear(format!("a library{}", Line::Listed(listed)).as_bytes());
            assert_eq!(heard.listed(), Some(listed));
        }
    }

    #[test]
    fn nobody_can_say_too_much() {
        let mut heard = Heard::new();
        (0..1000).for_each(|_| heard.hear(&[b'x'; 1000]));
        heard.hear(b"\n\xff\xfe\n");
        assert!(heard.line.is_empty() && heard.words.iter().all(|word| word.len() <= 800));
    }
}

//! What became of the parts, and the summary that ends a run.

use anyhow::Result;
use std::fmt::{self, Write as _};
use std::time::Duration;

/// How many checks passed, failed, were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Not run.
    pub skipped: u64,
}

impl Counts {
    /// One check that passed.
    pub const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };
    const SKIPPED: Self = Self { passed: 0, failed: 0, skipped: 1 };

    /// Adds what a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …` says.
    pub fn add_test_line(&mut self, line: &str) {
        let Some((_, numbers)) =
            line.strip_prefix("test result: ").and_then(|l| l.split_once(". "))
        else {
            return;
        };
        for field in numbers.split("; ") {
            let Some((number, word)) = field.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Adds other checks.
    pub const fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// How a part ended that did not fail at its own work.
#[derive(Debug)]
pub enum Outcome {
    /// It ran; single checks may have failed.
    Ran(Counts),
    /// Something that it needs is not to be had here, and what.
    CannotRun(String),
}

/// The word in the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything passed.
    Ok,
    /// Something failed, or a mandatory part could not run.
    Failed,
    /// Left out.
    Skipped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "SKIPPED",
        })
    }
}

/// One line of the summary.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    /// What became of the part.
    pub verdict: Verdict,
    counts: Counts,
    time: Duration,
    /// Why, or how many.
    pub note: String,
}

impl Row {
    /// The row of a part that was started.
    pub fn new(
        name: &'static str,
        mandatory: bool,
        time: Duration,
        outcome: Result<Outcome>,
    ) -> Self {
        let (verdict, counts, note) = match outcome {
            Ok(Outcome::Ran(counts)) => {
                let verdict = if counts.failed > 0 { Verdict::Failed } else { Verdict::Ok };
                let note = if counts == Counts::PASSED {
                    String::new()
                } else {
                    format!("{} passed, {} failed", counts.passed, counts.failed)
                };
                (verdict, counts, note)
            }
            Ok(Outcome::CannotRun(why)) if mandatory => {
                (Verdict::Failed, Counts::FAILED, format!("mandatory, but cannot run: {why}"))
            }
            Ok(Outcome::CannotRun(why)) => return Self::skipped(name, time, &why),
            Err(error) => (Verdict::Failed, Counts::FAILED, format!("{error:#}")),
        };
        Self { name, verdict, counts, time, note }
    }

    /// The row of a part that was left out.
    pub fn skipped(name: &'static str, time: Duration, why: &str) -> Self {
        let note = why.to_owned();
        Self { name, verdict: Verdict::Skipped, counts: Counts::SKIPPED, time, note }
    }
}

/// Columns of the table's last field.
const NOTE_MAX: usize = 66;

/// The table of all parts, and as the very last line `N passed, N failed, N skipped`.
pub fn summary(rows: &[Row]) -> String {
    let mut text = String::from("\npart         result      time  note\n");
    let mut counts = Counts::default();
    let mut time = Duration::ZERO;
    for row in rows {
        counts.add(row.counts);
        time += row.time;
        let seconds = row.time.as_secs_f64();
        // A note may be a long error; it stands in full where the part ended.
        let first = row.note.lines().next().unwrap_or("");
        let note: String = first.chars().take(NOTE_MAX).collect();
        let line = format!("{:<12} {:<8} {seconds:>6.1} s  {note}", row.name, row.verdict);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "{:<12} {:<8} {:>6.1} s", "all", "", time.as_secs_f64());
    let Counts { passed, failed, skipped } = counts;
    let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    const T: Duration = Duration::from_millis(1500);

    #[test]
    fn other_lines_count_nothing() {
        let mut counts = Counts::default();
        counts.add_test_line("test a::b ... ok");
        counts.add_test_line("test result: nonsense");
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn only_optional_parts_may_be_missing() {
        let row = |mandatory| Row::new("x", mandatory, T, Ok(Outcome::CannotRun("no y".into())));
        assert_eq!(row(true).verdict, Verdict::Failed);
        assert_eq!(row(false).verdict, Verdict::Skipped);
    }

    #[test]
    fn failures_fail() {
        let failed = Row::new("x", true, T, Err(anyhow!("broken").context("outer")));
        assert_eq!((failed.verdict, failed.note.as_str()), (Verdict::Failed, "outer: broken"));
        let counts = Counts { passed: 5, failed: 1, skipped: 0 };
        assert_eq!(Row::new("x", true, T, Ok(Outcome::Ran(counts))).verdict, Verdict::Failed);
    }

    #[test]
    fn last_line_adds_up() {
        let counts = Counts { passed: 5, failed: 2, skipped: 1 };
        let rows = [
            Row::new("fmt", true, T, Ok(Outcome::Ran(Counts::PASSED))),
            Row::new("test", true, T, Ok(Outcome::Ran(counts))),
            Row::new("gpu", false, T, Ok(Outcome::CannotRun("no GPU".into()))),
            Row::new("demo", true, T, Err(anyhow!("two\nlines"))),
        ];
        let text = summary(&rows);
        assert!(text.ends_with("\n6 passed, 3 failed, 2 skipped\n"), "{text}");
        assert!(text.contains("fmt          ok          1.5 s\n"), "{text}");
        assert!(text.contains("gpu          SKIPPED     1.5 s  no GPU\n"), "{text}");
        assert!(text.contains("two\n") && !text.contains("lines"), "{text}");
    }
}

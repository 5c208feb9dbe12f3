//! What is said of a job that is over.

use super::job::{Done, Outcome};

impl Done {
    /// What and how, in a line; of a suite also what has passed.
    pub fn line(&self) -> String {
        let how = match &self.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(how) => format!("FAILED ({how})"),
            Outcome::Stopped => "STOPPED, its time was over".to_owned(),
            Outcome::NotRun => "NOT RUN, there was no time left".to_owned(),
        };
        let passed = self.parts(": passed");
        let mut line = format!("{:58} {how}, {:.1} s", self.what, self.seconds);
        if self.outcome != Outcome::Passed && !passed.is_empty() {
            line += &format!("; passed: {}", passed.join(", "));
        }
        if self.outcome == Outcome::Stopped {
            line += &format!("; {}", self.reached());
        }
        line
    }

    /// Parts of a suite that have said this.
    fn parts(&self, what: &str) -> Vec<&str> {
        let parts = self.lines.iter().filter_map(|line| line.strip_prefix("suite: "));
        parts.filter_map(|part| part.split_once(what)).map(|(part, _)| part).collect()
    }

    /// How far a program came: in a suite the part that it was in, else the last line.
    fn reached(&self) -> String {
        match (self.parts(": begun").last(), self.lines.last()) {
            (Some(part), _) => format!("then it was in: {part}"),
            (None, Some(line)) => format!("its last line: {line}"),
            (None, None) => "it had printed nothing".to_owned(),
        }
    }

    /// What there was no time for, and how far it came.
    pub fn cut(&self) -> Option<String> {
        let Self { what, outcome, .. } = self;
        match outcome {
            Outcome::NotRun => Some(format!("{what} (not begun)")),
            Outcome::Stopped => {
                let (passed, seconds) = (self.parts(": passed").len(), self.seconds);
                let passed =
                    if passed > 0 { format!("{passed} parts passed, ") } else { "".into() };
                Some(format!("{what} ({passed}stopped after {seconds:.0} s; {})", self.reached()))
            }
            Outcome::Passed | Outcome::Failed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_suite_tells_what_has_passed() {
        let stopped = |lines: &[&str]| Done {
            what: "a suite".to_owned(),
            outcome: Outcome::Stopped,
            seconds: 3.0,
            out: String::new(),
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
        };
        let done = stopped(&[
            "suite: rules: begun",
            "suite: rules: passed in 0.1 s",
            "noise",
            "suite: copies: begun",
            "suite: copies: passed in 0.2 s",
            "suite: lengths: begun",
            "more noise",
        ]);
        let how = "its time was over, 3.0 s; passed: rules, copies; then it was in: lengths";
        assert!(done.line().ends_with(how), "{}", done.line());
        let how = "a suite (2 parts passed, stopped after 3 s; then it was in: lengths)";
        assert_eq!(done.cut().as_deref(), Some(how));
        let how = "a suite (stopped after 3 s; its last line: 1 of 2)";
        assert_eq!(stopped(&["begin", "1 of 2"]).cut().as_deref(), Some(how));
        let how = "a suite (stopped after 3 s; it had printed nothing)";
        assert_eq!(stopped(&[]).cut().as_deref(), Some(how));
        let later = Done { outcome: Outcome::NotRun, ..stopped(&[]) };
        assert_eq!(later.cut().as_deref(), Some("a suite (not begun)"));
        assert_eq!(Done { outcome: Outcome::Passed, ..stopped(&[]) }.cut(), None);
    }
}

//! Running other programs: each call is shown, streamed, and its failure is an error that names it.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};

/// The command line as a person would type it (without its environment).
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs to the end with inherited output.
///
/// # Errors
/// If the program cannot be started or does not exit with 0.
pub fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    ended(command, status)
}

/// As [`run`], but what the program prints goes to stderr: our own stdout is for a result only.
///
/// # Errors
/// As [`run`].
pub fn run_aside(command: &mut Command) -> Result<()> {
    run(command.stdout(Stdio::from(std::io::stderr())))
}

/// Runs to the end and returns stdout; stderr is inherited.
///
/// # Errors
/// As [`run`], or if stdout is not UTF-8.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    ended(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` does not print UTF-8", shown(command)))
}

/// Does the program start and exit with 0? It prints nothing.
pub fn succeeds(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

/// Copies stdout to `out` as it comes and shows each line to `see` as well; stderr is inherited.
///
/// # Errors
/// If the program cannot be started or its output not be read; its exit status is the caller's.
pub fn tee(
    command: &mut Command,
    out: &mut impl Write,
    mut see: impl FnMut(&str),
) -> Result<ExitStatus> {
    eprintln!("$ {}", shown(command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let stdout = child.stdout.take().context("no pipe to the program")?;
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        // A test may print bytes that are no UTF-8; they are passed on as they are.
        out.write_all(&line)?;
        out.flush()?;
        see(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?)
}

/// Turns an exit status into a result.
///
/// # Errors
/// If it is not success.
pub fn ended(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_program() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.contains("`false` failed"), "{error}");
        let error = run(&mut Command::new("no-such-program-xyz")).unwrap_err().to_string();
        assert!(error.contains("cannot start `no-such-program-xyz`"), "{error}");
    }

    #[test]
    fn output_comes_back() {
        assert_eq!(read(Command::new("echo").arg("a b")).unwrap(), "a b\n");
        let mut lines = Vec::new();
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf 'x\\ny'; exit 3"]);
        let mut copy = Vec::new();
        let status = tee(&mut shell, &mut copy, |l| lines.push(l.to_owned()));
        assert_eq!(status.unwrap().code(), Some(3));
        assert_eq!(lines, ["x", "y"]);
        assert_eq!(copy, b"x\ny");
    }
}

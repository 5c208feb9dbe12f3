//! Starting one rank: its environment, here or through a remote shell.

use super::places::Place;
use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use unisono_rendezvous::Secret;

/// What all ranks have in common.
pub struct Job<'a> {
    pub name: String,
    /// Where ranks meet: a variable and its value.
    pub meet: (&'static str, String),
    pub secret: Secret,
    pub interface: Option<String>,
    pub size: usize,
    pub prefix: bool,
    pub command: &'a [OsString],
    pub folder: PathBuf,
    /// What starts a shell on another host: a program and its arguments before the host.
    pub rsh: Vec<OsString>,
}

const SECRET: &str = "UNISONO_SECRET";
/// Goes the same way as the secret.
const PASSWORD: &str = "UNISONO_ETCD_PASSWORD";
/// Where rank 0 is met.
pub const MASTER: &str = "UNISONO_MASTER";
/// The etcd that says it, in place of the above.
pub const RENDEZVOUS: &str = "UNISONO_RENDEZVOUS";

impl Job<'_> {
    /// Starts a rank. Call it from a thread that lives as long as the rank may: the kernel ends the
    /// rank together with the *thread* that has started it.
    pub fn start(&self, rank: usize, place: &Place) -> Result<Child> {
        let mut command = match &place.host {
            None => self.here(rank, place),
            Some(host) => self.there(rank, place, host),
        };
        if self.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        // A group of its own: it can be ended with all that it has started.
        command.process_group(0);
        let parent = getpid();
        let tie = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        };
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(tie) };
        let program = command.get_program().to_string_lossy().into_owned();
        let started = command.spawn().with_context(|| format!("rank {rank}: starting {program}"));
        let mut child = started?;
        if let (Some(_), Some(input)) = (&place.host, child.stdin.as_mut()) {
            let password = std::env::var_os(PASSWORD).unwrap_or_default();
            let line = [self.secret.expose(), b"\n", password.as_bytes(), b"\n"].concat();
            // If it has ended already, its exit code says more than this would.
            let _ = input.write_all(&line).and_then(|()| input.flush());
        }
        Ok(child)
    }

    fn here(&self, rank: usize, place: &Place) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null());
        // Of a job that this one is a part of.
        command.env_remove(MASTER).env_remove(RENDEZVOUS);
        command.envs(self.variables(rank, place));
        command.env(SECRET, OsStr::from_bytes(self.secret.expose()));
        command
    }

    /// The shell over there reads secret and password from its input, and takes the end of that for
    /// an order to end: so nothing stays there, however this process ends. What does not listen is
    /// killed there before this side kills the shell.
    fn there(&self, rank: usize, place: &Place, host: &str) -> Command {
        let mut script = Vec::new();
        script.extend(b"IFS= read -r UNISONO_SECRET; IFS= read -r UNISONO_ETCD_PASSWORD; ");
        script.extend(b"export UNISONO_SECRET UNISONO_ETCD_PASSWORD; ");
        // Neither may come from a user's own profile there.
        script.extend(b"unset UNISONO_MASTER UNISONO_RENDEZVOUS; exec 3<&0; cd ");
        script.extend(quoted(self.folder.as_os_str()));
        script.extend(b" || exit 127; setsid env");
        for (name, value) in self.variables(rank, place) {
            script.push(b' ');
            script.extend(quoted(OsStr::new(&format!("{name}={value}"))));
        }
        for word in self.command {
            script.push(b' ');
            script.extend(quoted(word));
        }
        script.extend(
            b" </dev/null 3<&- & p=$!; (while read -r x; do :; done; kill -TERM -$p; sleep 4; \
              kill -KILL -$p) <&3 >/dev/null 2>&1 & w=$!; exec 3<&- 2>/dev/null; \
              wait $p; s=$?; kill -KILL -$p $w; exit $s",
        );
        // Users' own shells differ; this one does not.
        let mut line = b"exec sh -c ".to_vec();
        line.extend(quoted(OsStr::from_bytes(&script)));
        let mut command = Command::new(&self.rsh[0]);
        command.args(&self.rsh[1..]).arg(host).arg(OsString::from_vec(line));
        command.stdin(Stdio::piped()).env_remove(SECRET);
        command
    }

    /// Everything but secret and password.
    fn variables(&self, rank: usize, place: &Place) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("UNISONO_RANK", rank.to_string()),
            ("UNISONO_SIZE", self.size.to_string()),
            ("UNISONO_LOCAL_RANK", place.local_rank.to_string()),
            ("UNISONO_LOCAL_SIZE", place.local_size.to_string()),
            ("UNISONO_JOB", self.name.clone()),
            self.meet.clone(),
        ];
        all.extend(self.interface.clone().map(|name| ("UNISONO_INTERFACE", name)));
        all
    }
}

/// A word of a shell's command line.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            byte => text.push(byte),
        }
    }
    text.push(b'\'');
    text
}

/// A name that no other job has.
pub fn job_name() -> Result<String> {
    let random = Secret::generate()?;
    Ok(String::from_utf8_lossy(&random.expose()[..16]).into_owned())
}

/// The port of a job: below those that systems give away themselves.
pub fn port(job: &str) -> u16 {
    let hash = Sha256::digest(job.as_bytes());
    20_000 + u16::from_le_bytes([hash[0], hash[1]]) % 10_000
}

/// The remote shell: UNISONO_RSH, or ssh that never asks for a password.
pub fn rsh(variable: Option<OsString>) -> Result<Vec<OsString>> {
    let Some(text) = variable.filter(|v| !v.is_empty()) else {
        return Ok(["ssh", "-o", "BatchMode=yes"].map(OsString::from).to_vec());
    };
    let words: Vec<OsString> = text
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    anyhow::ensure!(!words.is_empty(), "UNISONO_RSH is blank; it names a program like ssh");
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["", "a b", "it's", "$HOME `x` \\", "\"*\"", "ünï\n"] {
            let mut script = b"printf %s ".to_vec();
            script.extend(quoted(OsStr::new(word)));
            let said = Command::new("sh").arg("-c").arg(OsString::from_vec(script)).output();
            assert_eq!(String::from_utf8(said.unwrap().stdout).unwrap(), word);
        }
    }

    #[test]
    fn the_remote_shell_may_have_arguments() {
        assert_eq!(rsh(Some("ip netns  exec".into())).unwrap(), ["ip", "netns", "exec"]);
        assert_eq!(rsh(None).unwrap()[0], "ssh");
        assert!(rsh(Some(" ".into())).is_err());
    }
}

//! What `unisono flash` says.

use super::super::report::{print, print_json};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use unisono_loader::{Device, Package, Plan};

/// What is known of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Signature {
    /// There is none.
    None,
    /// It was made just now.
    Made,
    /// It is there, and nobody has said whom to trust.
    Unchecked,
    /// It is right.
    Checked,
}

/// An image; as JSON, these are its fields.
#[derive(Debug, Serialize)]
pub struct About {
    file: String,
    board: String,
    version: String,
    abi: u16,
    /// Does the image itself name it?
    abi_named: bool,
    /// What it is, in words.
    payload: String,
    bytes: u64,
    build: Option<String>,
    sha256: String,
    signature: Signature,
    key: Option<String>,
    /// Did the file have no header?
    packed_here: bool,
}

impl About {
    /// Of the image in this file.
    pub fn new(file: &Path, package: &Package, packed_here: bool, signature: Signature) -> Self {
        let payload = match package.elf() {
            Some(elf) => elf.to_string(),
            None => package.kind().to_string(),
        };
        Self {
            file: file.display().to_string(),
            board: package.board().to_owned(),
            version: package.version().to_string(),
            abi: package.abi(),
            abi_named: package.names_abi(),
            payload,
            bytes: package.payload().len() as u64,
            build: package.build().map(|build| format!("{build:016x}")),
            sha256: package.sha256(),
            signature,
            key: package.signed_by().map(|key| key.to_string()),
            packed_here,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let Self { file, board, version, abi, payload, bytes, sha256, .. } = self;
        let build = self.build.as_deref().unwrap_or("none");
        let key = self.key.as_deref().unwrap_or_default();
        let signature = match self.signature {
            Signature::None => "none".to_owned(),
            Signature::Made => format!("made with key {key}"),
            Signature::Unchecked => format!("by key {key}, not checked: no --trust"),
            Signature::Checked => format!("by key {key}, checked"),
        };
        let own = if self.abi_named { "" } else { " (the image itself names none)" };
        let packed = if self.packed_here { ", without a header: packed on the fly" } else { "" };
        format!(
            "image      {file}{packed}\n\
             board      {board}, version {version}, message ABI {abi}{own}\n\
             payload    {payload}, {bytes} bytes, build id {build}\n\
             sha256     {sha256}\n\
             signature  {signature}\n"
        )
    }
}

/// What was or would be done; as JSON, these are its fields.
#[derive(Debug, Serialize)]
pub struct Load {
    image: About,
    to: String,
    device: Seen,
    steps: Vec<Line>,
    /// Were the steps done?
    done: bool,
    /// What the device said of itself.
    said: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Seen {
    /// seen, unseen or missing.
    state: &'static str,
    what: String,
    help: Option<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    act: String,
    why: String,
}

impl Load {
    /// `said`: what came of the plan; `None` if it was not carried out.
    pub fn new(image: About, plan: &Plan, said: Option<Vec<String>>) -> Self {
        let (state, what, help) = match &plan.device {
            Device::Seen(what) => ("seen", what, None),
            Device::Unseen(what) => ("unseen", what, None),
            Device::Missing { what, help } => ("missing", what, Some(help.clone())),
        };
        let line =
            |step: &unisono_loader::Step| Line { act: step.act.to_string(), why: step.why.clone() };
        Self {
            image,
            to: plan.to.clone(),
            device: Seen { state, what: what.clone(), help },
            steps: plan.steps.iter().map(line).collect(),
            done: said.is_some(),
            said: said.unwrap_or_default(),
        }
    }

    /// To stdout.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            return print_json(self);
        }
        let mut text = self.image.text();
        self.write(&mut text)?;
        print(&text)
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let Seen { state, what, help } = &self.device;
        let help = help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
        writeln!(to, "to         {}", self.to)?;
        writeln!(to, "device     {state}: {what}{help}")?;
        for (i, Line { act, why }) in self.steps.iter().enumerate() {
            writeln!(to, "step {:<5} {act}: {why}", i + 1)?;
        }
        for line in &self.said {
            writeln!(to, "says       {line}")?;
        }
        match (self.done, self.device.state) {
            (true, _) => writeln!(to, "done       all {} steps", self.steps.len()),
            (false, "missing") => {
                writeln!(to, "done       nothing (--dry-run), and without the device it would fail")
            }
            (false, _) => writeln!(to, "done       nothing (--dry-run)"),
        }
    }
}

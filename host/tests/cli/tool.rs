//! Runs the tool and makes files for it.

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// The tool, in a folder.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.current_dir(folder).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

/// Runs the tool to its end.
pub fn run(folder: &Path, args: &[&str]) -> Ended {
    let output = command(folder).args(args).output().expect("the tool starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs the tool, which must succeed without a word on stderr; returns what it printed.
#[track_caller]
pub fn succeed(folder: &Path, args: &[&str]) -> String {
    let ended = run(folder, args);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args:?}: {}", ended.out);
    ended.out
}

/// A folder of its own.
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// The gradients that come with the sources.
pub fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp")
}

/// The paths of the four ranks' gradients.
pub fn rank_files() -> Vec<String> {
    (0..4).map(|r| digits().join(format!("rank{r}.safetensors")).display().to_string()).collect()
}

/// One tensor for [`write`].
#[derive(Clone)]
pub struct Tensor {
    pub name: &'static str,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// Of 32-bit floats.
    pub fn f32(name: &'static str, shape: &[usize], values: &[f32]) -> Self {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { name, dtype: Dtype::F32, shape: shape.to_vec(), data }
    }
}

/// Writes a safetensors file.
pub fn write(path: &Path, tensors: &[Tensor], metadata: Option<HashMap<String, String>>) {
    let views = tensors.iter().map(|t| {
        let view = TensorView::new(t.dtype, t.shape.clone(), &t.data);
        (t.name, view.unwrap_or_else(|e| panic!("{}: {e}", t.name)))
    });
    safetensors::serialize_to_file(views, metadata, path).expect("a file that can be written");
}

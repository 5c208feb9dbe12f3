//! `cargo xtask demo`: the main job, on real data, checked against bits that were made elsewhere.
//!
//! Four ranks sum the gradients of `host/data/digits-mlp`, first on the CPU, then two of them as
//! GPUs, one through each API (software drivers do), then all of them through an emulated DPU. All
//! results must have the bits that numpy wrote for the canonical order (`host/data/README.md`).

use crate::project::Project;
use crate::{boards, cmd, gpu, install};
use anyhow::{Context, Result, bail};
use safetensors::SafeTensors;
use std::fs;
use std::path::Path;
use std::process::Command;

const DATA: &str = "host/data/digits-mlp";
const RANKS: usize = 4;
const CPUS: &str = "cpu,cpu,cpu,cpu";
const MIXED: &str = "cpu,cpu,vulkan:0,opencl:0";
const BOARD: &str = "dpu:qemu-aarch64";
const EXPECTED: &str = "sum_canonical.safetensors";

/// Builds the command-line tool, runs the reduction, compares the result, shows the tool's table.
///
/// # Errors
/// If the tool does not build, fails, or gives other bits.
pub fn run(project: &Project) -> Result<()> {
    let mut build = project.cargo();
    build.args(["build", "--locked", "--release", "--package", "unisono"]);
    match install::protoc() {
        Ok(()) => drop(build.args(["--features", "etcd"])),
        // The demo itself does not need it.
        Err(error) => println!("SKIPPED  etcd in the tool: {error:#}"),
    }
    cmd::run(&mut build)?;
    let tool = project.target.join("release/unisono");
    if !tool.exists() {
        bail!("the package unisono built no command-line tool {}", tool.display());
    }
    let folder = project.target.join("demo");
    fs::create_dir_all(&folder)?;
    // Equal shares: left to the planner, software devices would not fold at all.
    let direct = ["--algo", "direct", "--chunk", "16KiB"];
    let run = Run { project, tool: &tool, images: None };
    run.reduce(&folder.join("sum.safetensors"), CPUS, &direct)?;
    let ranks = match gpu::prepare() {
        Ok(()) => {
            run.reduce(&folder.join("sum_mixed.safetensors"), MIXED, &direct)?;
            MIXED
        }
        // The main job is done; whoever wants GPUs sees what is missing.
        Err(error) => {
            println!("\nSKIPPED  the same over {MIXED}: {error:#}");
            CPUS
        }
    };
    let through = format!("{ranks},{BOARD}");
    match boards::emulators().and_then(|()| boards::build_all(project)) {
        Ok(images) => {
            let run = Run { images: Some(&images), ..run };
            run.reduce(&folder.join("sum_through_board.safetensors"), &through, &[])
        }
        Err(error) => {
            println!("\nSKIPPED  the same over {through}: {error:#}");
            Ok(())
        }
    }
}

/// What every run of the tool needs.
struct Run<'a> {
    project: &'a Project,
    tool: &'a Path,
    /// Folder of the boards' images.
    images: Option<&'a Path>,
}

impl Run<'_> {
    /// One run over these devices, compared.
    fn reduce(&self, output: &Path, on: &str, how: &[&str]) -> Result<()> {
        // A file of an earlier run must not pass for this run's result.
        if output.exists() {
            fs::remove_file(output)?;
        }
        let root = &self.project.root;
        let mut reduce = Command::new(self.tool);
        reduce.current_dir(root).args(["reduce", "--on", on, "--op", "sum"]).args(how);
        if let Some(images) = self.images {
            reduce.env(boards::IMAGES, images);
        }
        reduce.args((0..RANKS).map(|r| format!("{DATA}/rank{r}.safetensors")));
        reduce.arg("-o").arg(output).arg("--verify");
        eprintln!("$ {}", cmd::shown(&reduce));
        let table = cmd::read(&mut reduce)?;
        let expected = root.join(DATA).join(EXPECTED);
        let elements = compare(&read(output)?, &read(&expected)?)
            .with_context(|| format!("the sum is not {EXPECTED}"))?;
        println!("over {on}: {elements} elements have exactly the bits of {DATA}/{EXPECTED}");
        print!("{table}");
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// Compares two safetensors files tensor by tensor; returns the number of elements.
///
/// Only the tensors count: the order in the file and its metadata are the writer's choice.
fn compare(got: &[u8], expected: &[u8]) -> Result<usize> {
    let got = SafeTensors::deserialize(got).context("the result is no safetensors file")?;
    let expected = SafeTensors::deserialize(expected).context("the reference is broken")?;
    let (names, wanted) = (sorted(&got), sorted(&expected));
    if names != wanted || wanted.is_empty() {
        bail!("it has the tensors {names:?}, not {wanted:?}");
    }
    let mut elements = 0;
    for name in wanted {
        let (a, b) = (got.tensor(name)?, expected.tensor(name)?);
        if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
            let (da, db) = (a.dtype(), b.dtype());
            bail!("{name} is {da:?} {:?}, not {db:?} {:?}", a.shape(), b.shape());
        }
        let count: usize = b.shape().iter().product();
        if a.data() != b.data() {
            let differs = a.data().iter().zip(b.data()).position(|(x, y)| x != y);
            let at = differs.map_or(0, |byte| byte * count / b.data().len());
            bail!("{name} differs from element {at} of {count} on");
        }
        elements += count;
    }
    Ok(elements)
}

fn sorted<'a>(file: &'a SafeTensors<'_>) -> Vec<&'a str> {
    let mut names = file.names();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::Dtype;
    use safetensors::tensor::{TensorView, serialize};

    fn file(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap())
        });
        serialize(views, None).unwrap()
    }

    fn refusal(got: &[u8], expected: &[u8]) -> String {
        format!("{:#}", compare(got, expected).unwrap_err())
    }

    #[test]
    fn equal_tensors_pass() {
        let a = ("a", Dtype::U16, &[3usize][..], &[1u8, 2, 3, 4, 5, 6][..]);
        let b = ("b", Dtype::U8, &[1usize, 2][..], &[7u8, 8][..]);
        assert_eq!(compare(&file(&[a, b]), &file(&[b, a])).unwrap(), 5);
    }

    #[test]
    fn every_difference_is_refused() {
        let shape = &[3usize][..];
        let a = ("a", Dtype::U16, shape, &[1u8, 2, 3, 4, 5, 6][..]);
        let expected = file(&[a]);
        let bits = file(&[("a", Dtype::U16, shape, &[1u8, 2, 3, 4, 5, 7][..])]);
        assert_eq!(refusal(&bits, &expected), "a differs from element 2 of 3 on");
        let dtype = file(&[("a", Dtype::I16, shape, a.3)]);
        assert!(refusal(&dtype, &expected).contains("a is I16 [3], not U16 [3]"));
        let name = file(&[("b", Dtype::U16, shape, a.3)]);
        assert!(refusal(&name, &expected).contains("not [\"a\"]"));
        assert!(refusal(&expected, &file(&[])).contains("not []"));
        assert!(refusal(&file(&[]), &file(&[])).contains("not []"));
        assert!(refusal(b"nonsense", &expected).contains("no safetensors file"));
    }
}

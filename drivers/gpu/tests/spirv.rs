//! The committed SPIR-V is what the source gives, and valid.
//!
//! `UNISONO_BLESS=1 cargo test -p unisono-gpu --test spirv` writes it anew. Needs glslang-tools
//! and spirv-tools; without them the tests say so and pass, unless `UNISONO_SPIRV_TOOLS=1` says
//! that the tools must be there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use unisono_gpu::kernel::{FloatControls, Module, Widths};

/// What the modules are made for.
const TARGET: &str = "vulkan1.1";

/// Runs a tool; `None` if it is not installed and need not be.
fn tool(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let name = command.get_program().to_string_lossy().into_owned();
            let must = std::env::var_os("UNISONO_SPIRV_TOOLS").is_some();
            assert!(!must, "{name} is not installed: apt install glslang-tools spirv-tools");
            eprintln!("skipped: {name} is not installed");
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Standard output of a tool that must succeed.
fn succeed(command: &mut Command) -> Option<Vec<u8>> {
    let output = tool(command)?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    Some(output.stdout)
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// A place for files of this test.
fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Builds a module from source.
fn build(module: Module, to: &Path) -> Option<()> {
    let (_, defines) = module.build();
    let mut command = Command::new("glslangValidator");
    command.args(["-V", "-g0", "--target-env", TARGET, "-o"]).arg(to);
    command.args(defines.iter().map(|name| format!("-D{name}")));
    succeed(command.arg(kernels().join("fold.comp"))).map(drop)
}

/// The module's instructions, without the word that names the compiler's version.
fn instructions(file: &Path) -> Option<Vec<u8>> {
    succeed(Command::new("spirv-dis").args(["--no-header", "--raw-id"]).arg(file))
}

#[test]
fn committed_modules_are_what_the_source_gives() {
    for module in Module::ALL {
        let (name, _) = module.build();
        let committed = kernels().join("spirv").join(name);
        let built = scratch(name);
        let Some(()) = build(module, &built) else { return };
        if std::env::var_os("UNISONO_BLESS").is_some() {
            std::fs::copy(&built, &committed).expect("the module is written");
            continue;
        }
        assert_eq!(std::fs::read(&committed).expect("the committed module"), module.bytes());
        let (Some(want), Some(got)) = (instructions(&committed), instructions(&built)) else {
            return;
        };
        assert!(
            want == got,
            "{name} is not what kernels/fold.comp gives: run with UNISONO_BLESS=1"
        );
    }
}

#[test]
fn modules_are_valid_whatever_they_ask_for() {
    for module in Module::ALL {
        // Nothing, each request alone, and all.
        for bits in [0, 1, 2, 4, 8, 16, 32, 63] {
            let widths = |at: u32| Widths { w32: bits >> at & 1 != 0, w64: bits >> at & 2 != 0 };
            let words = module.words(FloatControls {
                denorm_preserve: widths(0),
                signed_zero_inf_nan_preserve: widths(2),
                rounding_mode_rte: widths(4),
            });
            let file = scratch("asking.spv");
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(&file, bytes).expect("a file");
            let mut validate = Command::new("spirv-val");
            let Some(_) = succeed(validate.args(["--target-env", TARGET]).arg(&file)) else {
                return;
            };
        }
    }
}

#[test]
fn requests_stand_where_they_belong() {
    let all = Widths { w32: true, w64: true };
    let controls = FloatControls {
        denorm_preserve: all,
        signed_zero_inf_nan_preserve: all,
        rounding_mode_rte: all,
    };
    let growth = |module: Module| module.words(controls).len() - module.bytes().len() / 4;
    // Three capabilities of 2 words, the extension of 7, three modes of 4.
    assert_eq!(growth(Module::Single), 3 * 2 + 7 + 3 * 4);
    assert_eq!(growth(Module::Double64), 3 * 2 + 7 + 3 * 4);
    assert_eq!(growth(Module::Double), 0);
    assert_eq!(growth(Module::Int8), 0);
}

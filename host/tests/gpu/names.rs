//! What devices are called, by whoever asks for one and by the tool.

use std::path::Path;
use std::process::{Command, Output};

fn tool(args: &[&str], variable: (&str, &str)) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_unisono"));
    tool.current_dir(folder.path()).args(args).env(variable.0, variable.1);
    tool.output().expect("the tool starts")
}

/// The error of a reduction that cannot begin.
fn refused(on: &str, code: i32, variable: (&str, &str)) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp");
    let file = data.join("rank0.safetensors").display().to_string();
    let files = vec![file.as_str(); on.split(',').count()];
    let output = tool(&[&["reduce", "--on", on, "-o", "sum.st"], &files[..]].concat(), variable);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// Also where a device has it in its name, as lavapipe has its 256 bits.
#[test]
fn a_number_is_a_place() {
    for number in ["256", "99", "15"] {
        let text = refused(&format!("vulkan:{number}"), 2, ("LANG", "C"));
        let start = format!("error: no Vulkan device {number}; there are: ");
        let rest = text.strip_prefix(&start).unwrap_or_else(|| panic!("{text}"));
        assert!(rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(" (0 "), "{text}");
    }
}

/// One line, that does not send anybody to a package that is there.
#[test]
fn variables_that_hide_a_driver_are_named() {
    for (api, variable, value) in [
        ("opencl:0", "POCL_DEVICES", "nonsense"),
        ("opencl:0", "POCL_CACHE_DIR", "/proc/nothing"),
        ("opencl:0", "OCL_ICD_VENDORS", "/proc/nothing/"),
        ("vulkan:0", "VK_DRIVER_FILES", "/proc/nothing.json"),
    ] {
        let text = refused(api, 1, (variable, value));
        assert!(text.starts_with("error: ") && text.lines().count() == 1, "{text}");
        assert!(text.contains(variable) && !text.contains("install"), "{text}");
    }
}

#[test]
fn json_names_arithmetic_for_programs() {
    let output = tool(&["devices", "--json"], ("LANG", "C"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut seen = 0;
    for device in json["devices"].as_array().expect("a list") {
        for api in device["apis"].as_array().expect("a list") {
            let list = api["arithmetic"].as_array().expect("a list");
            let names: Vec<_> = list.iter().map(|entry| entry["name"].as_str()).collect();
            let want = ["native_f32", "normal_f32", "native_f64", "native_i64", "storage_8"];
            assert_eq!(names, want.map(Some));
            assert!(list.iter().all(|entry| entry["has"].is_boolean() && entry["words"].is_null()));
            seen += 1;
        }
    }
    assert!(seen > 0, "{json}");
}

/// Before kernels of those that are there are compiled, which takes seconds the first time.
#[test]
fn nothing_is_opened_beside_a_device_that_is_not_there() {
    for on in ["opencl:0,vulkan:99", "vulkan:99,opencl:0", "opencl:0,opencl:no such name"] {
        let cache = tempfile::tempdir().expect("a folder");
        let value = cache.path().display().to_string();
        let text = refused(on, 2, ("POCL_CACHE_DIR", &value));
        assert!(text.starts_with("error: no ") && text.lines().count() == 1, "{text}");
        // PoCL keeps kernels in folders.
        let kept: Vec<_> = cache.path().read_dir().expect("a folder").flatten().collect();
        assert!(kept.iter().all(|entry| entry.path().is_file()), "{on}: {kept:?}");
    }
}

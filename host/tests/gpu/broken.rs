//! Drivers that crash, whether they are loaded or a device is opened, or that their loader cannot
//! read, lose their own devices and no others.

use serde_json::Value;
use std::fs::{copy, create_dir, write};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use unisono::device::{Api, driver_files};

/// How a run ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A place with drivers of an API: those of this machine, and more.
pub struct Place {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Place {
    /// OpenCL's drivers, and these files: name and contents.
    fn opencl(own: bool, more: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let vendors = folder.path().join("vendors");
        create_dir(&vendors).expect("a folder");
        for file in driver_files(Api::OpenCl).iter().filter(|_| own) {
            copy(file, vendors.join(file.file_name().expect("a name"))).expect("copied");
        }
        for (name, text) in more {
            write(vendors.join(name), text).expect("written");
        }
        let value = vendors.display().to_string();
        Self { folder, variables: vec![("OCL_ICD_VENDORS", value)] }
    }

    /// Vulkan's drivers after a manifest with this text.
    pub fn vulkan(own: bool, text: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = folder.path().join("broken.json");
        write(&manifest, text).expect("written");
        let own = driver_files(Api::Vulkan).into_iter().filter(|_| own);
        let all = std::env::join_paths(std::iter::once(manifest).chain(own)).expect("a list");
        let all = all.into_string().expect("UTF-8");
        Self { folder, variables: vec![("VK_DRIVER_FILES", all)] }
    }

    /// Runs the tool there; it must leave nothing behind.
    pub fn run(&self, args: &[&str]) -> Ended {
        let temporary = self.folder.path().join("tmp");
        std::fs::create_dir_all(&temporary).expect("a folder");
        let mut tool = Command::new(env!("CARGO_BIN_EXE_unisono"));
        tool.current_dir(self.folder.path()).args(args);
        tool.envs(self.variables.iter().map(|(name, value)| (name, value)));
        tool.env("TMPDIR", &temporary);
        let output = tool.output().expect("the tool starts");
        let left: Vec<_> = temporary.read_dir().expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        // Other tests may keep both cores.
        let slow = |line: &&str| !line.contains(" takes long; it gets ");
        let err = text(output.stderr);
        let err = err.split_inclusive('\n').filter(slow).collect();
        Ended { code: output.status.code(), out: text(output.stdout), err }
    }

    /// The devices that `--json` lists, by name, and the files of broken drivers with the reason.
    pub fn devices(&self) -> (Vec<String>, Vec<(String, String)>) {
        let ended = self.run(&["devices", "--json"]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
        let json: Value = serde_json::from_str(&ended.out).expect("JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |name: &str| json[name].as_array().expect("a list").clone();
        let apis = list("devices").into_iter().map(|device| device["apis"].clone());
        let names = apis.flat_map(|apis| apis.as_array().expect("a list").clone());
        let broken = list("broken");
        let broken = broken.iter().map(|driver| (text(&driver["driver"]), text(&driver["why"])));
        (names.map(|api| text(&api["on"])).collect(), broken.collect())
    }

    /// A small reduction with a rank there.
    pub fn reduce(&self, on: &str) -> Ended {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp");
        let rank = |r: usize| data.join(format!("rank{r}.safetensors")).display().to_string();
        self.run(&["reduce", "--verify", "--on", on, &rank(0), &rank(1), "-o", "sum.st"])
    }
}

/// A library that ends whoever loads it, in this way.
fn deadly(folder: &Path, way: &str) -> PathBuf {
    let name: String = way.chars().filter(char::is_ascii_alphabetic).collect();
    let head = "#include <stdlib.h>\n#include <unistd.h>\n";
    let code = format!("{head}__attribute__((constructor)) void die(void) {{ {way}; }}\n");
    compiled(folder, &name, &code)
}

/// A library of this C code.
pub fn compiled(folder: &Path, name: &str, code: &str) -> PathBuf {
    let source = folder.join(format!("{name}.c"));
    write(&source, code).expect("written");
    let library = folder.join(format!("lib{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().expect("a C compiler").success());
    library
}

pub fn manifest(library: &Path) -> Vec<u8> {
    let library = library.display();
    format!(
        r#"{{"file_format_version": "1.0.0",
            "ICD": {{"library_path": "{library}", "api_version": "1.3.0"}}}}"#
    )
    .into_bytes()
}

#[test]
fn an_opencl_driver_that_dies() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = format!("{}\n", deadly(folder.path(), "abort()").display());
    let place = Place::opencl(true, &[("a.icd", library.as_bytes()), ("z.icd", b"")]);
    let (seen, broken) = place.devices();
    assert!(seen.contains(&"opencl:0".to_owned()) && seen.contains(&"vulkan:0".to_owned()));
    let [(file, why)] = &broken[..] else { panic!("{broken:?}") };
    assert!(file.ends_with("/a.icd") && why.contains("SIGABRT"), "{broken:?}");
    let text = place.run(&["devices"]).out;
    assert!(text.contains("a.icd is left out: ") && text.contains("remove the file"), "{text}");
    let ended = place.reduce("cpu,opencl:0");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("a.icd is left out: "), "{}", ended.err);
    // Nothing is loaded where nothing is asked for.
    let ended = place.reduce("cpu:2");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn an_opencl_driver_that_dies_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = deadly(folder.path(), "abort()");
    let text = format!("{}\n", library.display());
    let in_a_file = Place::opencl(false, &[("a.icd", text.as_bytes())]);
    let mut by_itself = Place::opencl(false, &[]);
    by_itself.variables[0].1 = library.display().to_string();
    for place in [in_a_file, by_itself] {
        let (seen, broken) = place.devices();
        assert!(!seen.iter().any(|on| on.starts_with("opencl")), "{seen:?}");
        assert!(seen.contains(&"vulkan:0".to_owned()), "{seen:?}");
        assert!(broken.len() == 1 && broken[0].1.contains("SIGABRT"), "{broken:?}");
        // Nobody is sent to the list that is being read.
        let text = place.run(&["devices"]).out;
        assert!(text.contains("is left out: ") && !text.contains("`unisono devices`"), "{text}");
        let ended = place.reduce("cpu,opencl:0");
        assert_eq!(ended.code, Some(1));
        let (first, last) = ended.err.split_once('\n').expect("two lines");
        assert!(first.contains("is left out: a process that loads it ends with"), "{first}");
        assert!(last.starts_with("error: OpenCL: none of its drivers can be used;"), "{last}");
        for on in ["cpu,vulkan:0", "cpu:2", "auto"] {
            assert_eq!(place.reduce(on).code, Some(0), "{on}");
        }
    }
}

#[test]
fn vulkan_drivers_that_die_or_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let quiet = manifest(&deadly(folder.path(), "_exit(0)"));
    let deadly = manifest(&deadly(folder.path(), "abort()"));
    for (text, reason) in [
        (&b"\x00\x01\xfe{"[..], "no manifest: expected value"),
        (b"hello", "no manifest: expected value"),
        (&deadly[..40], "no manifest: EOF"),
        (&deadly, "SIGABRT"),
        (&quiet, "exit status: 0"),
    ] {
        let place = Place::vulkan(true, text);
        let (seen, broken) = place.devices();
        for on in ["vulkan:0", "opencl:0"] {
            assert!(seen.contains(&on.to_owned()), "{seen:?}");
        }
        let [(file, why)] = &broken[..] else { panic!("{broken:?}") };
        assert!(file.ends_with("/broken.json") && why.contains(reason), "{broken:?}");
        let ended = place.reduce("cpu,vulkan:0");
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let alone = Place::vulkan(false, text);
        let ended = alone.reduce("cpu,vulkan:0");
        assert_eq!(ended.code, Some(1));
        assert!(ended.err.contains(reason) && !ended.err.contains("install"), "{}", ended.err);
    }
}

/// PoCL's compiler aborts if it finds no linker, which is when a kernel is built.
#[test]
fn a_driver_that_dies_when_its_device_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().display().to_string();
    // With a cache of its own, as kernels that it has need no linker.
    let cache = folder.path().join("kernels").display().to_string();
    let place = Place { folder, variables: vec![("PATH", empty), ("POCL_CACHE_DIR", cache)] };
    // Nothing is left out where nothing is opened.
    let listed = place.run(&["devices"]).out;
    assert!(listed.contains("opencl:0") && !listed.contains("lost"), "{listed}");
    let ended = place.run(&["devices", "--json"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let json: Value = serde_json::from_str(&ended.out).expect("JSON");
    let devices = json["devices"].as_array().expect("a list");
    let apis = devices.iter().flat_map(|device| device["apis"].as_array().expect("a list"));
    for api in apis {
        let error = api["error"].as_str().unwrap_or_default();
        match api["on"].as_str() {
            Some("opencl:0") => {
                assert!(error.starts_with("OpenCL device 0, ") && error.contains("SIGABRT"));
                assert!(error.contains("\"ld\" doesn't exist"), "{error}");
            }
            _ => assert!(api["arithmetic"].is_array() && error.is_empty(), "{api}"),
        }
    }
    assert!(json["broken"].as_array().is_some_and(Vec::is_empty));
    let ended = place.reduce("cpu,opencl:0");
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let line = ended.err.strip_prefix("error: OpenCL device 0, ").unwrap_or_default();
    assert!(line.contains(" is lost: a process that opens it ends with"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    let ended = place.reduce("cpu,vulkan:0");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

/// Lavapipe writes to what it could not allocate.
#[test]
#[cfg(unix)]
fn too_little_memory_is_an_error() {
    use std::os::unix::process::ExitStatusExt;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp/rank0.safetensors");
    let folder = tempfile::tempdir().expect("a folder");
    let mut lost = 0;
    for megabytes in (200..=300).step_by(10) {
        let limit = format!("ulimit -v {megabytes}000; exec \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &limit, "sh", env!("CARGO_BIN_EXE_unisono"), "reduce", "--on"]);
        shell.arg("vulkan:0").arg(&data).arg("-o").arg(folder.path().join("sum.st"));
        let output = shell.output().expect("a shell");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), None, "{megabytes} MB: {text}");
        // Perhaps with a warning of a driver that is left out; it depends on the last megabyte.
        let mut lines = text.lines().rev();
        let error = lines.next().is_some_and(|line| line.starts_with("error: "))
            && lines.all(|line| line.contains(" WARN "));
        assert!(output.status.success() || error, "{megabytes} MB: {text}");
        lost += usize::from(text.contains(" is lost: "));
    }
    assert!(lost > 0, "this lavapipe needs less, or more: nothing is tested");
}

/// One that is only of no use breaks nothing, and is news for who asks for devices only.
#[test]
fn drivers_that_are_not_there() {
    let gone = manifest(Path::new("/nonexistent/libgone.so"));
    for place in [Place::opencl(true, &[("a.icd", b"/etc/passwd\n")]), Place::vulkan(true, &gone)] {
        let (seen, broken) = place.devices();
        let [(file, why)] = &broken[..] else { panic!("{broken:?}") };
        let reason = ["invalid ELF header", "cannot open shared object file"];
        assert!(
            (file.ends_with("/a.icd") || file.ends_with("/broken.json"))
                && reason.iter().any(|r| why.contains(r)),
            "{broken:?}"
        );
        assert!(seen.len() >= 2, "{seen:?}");
        let ended = place.reduce("cpu,vulkan:0");
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    }
}

/// Software devices would take it from the host, and the host would end somebody.
#[test]
fn a_tensor_larger_than_the_device_is_refused() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_unisono")).args(args).output();
        let output = output.expect("the tool starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (_, out, _) = run(&["devices", "--json"]);
    let json: Value = serde_json::from_str(&out).expect("JSON");
    for device in json["devices"].as_array().expect("a list") {
        let Some(memory) = device["memory"].as_u64() else { panic!("{device}") };
        let size = (memory + (1 << 20)).to_string();
        for api in device["apis"].as_array().expect("a list") {
            let on = api["on"].as_str().expect("a name");
            let (code, _, err) =
                run(&["bench", "--on", on, "-b", &size, "-e", &size, "-n", "1", "-w", "0"]);
            assert_eq!(code, Some(1), "{err}");
            assert!(err.contains("no memory for ") && err.contains("the device has "), "{err}");
        }
    }
}

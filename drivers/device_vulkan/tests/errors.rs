//! What is missing, broken or used up is an error that says so. Each case is a process of its own:
//! this test, started again with other surroundings.

use std::path::Path;
use std::process::Command;
use unisono_device_vulkan::{Context, Options, VulkanContext, devices, manifests};
use unisono_gpu::{GpuError, Place};

/// Which case this process is.
const CASE: &str = "UNISONO_TEST_CASE";

/// Runs `case` in a process with these variables set, and gives back what it wrote.
fn run(case: &str, variables: &[(&str, &Path)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "case", "--nocapture"]).env(CASE, case);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

/// The body of a process that [`run`] starts; nothing otherwise.
#[test]
fn case() {
    match std::env::var(CASE).as_deref() {
        Ok("list") => match devices() {
            Ok(cards) => cards.iter().for_each(|card| println!("has {}", card.name)),
            Err(error) => println!("{error}"),
        },
        Ok("manifests") => {
            manifests().iter().for_each(|path| println!("file {}", path.display()));
        }
        Ok("fill") => fill(),
        _ => {}
    }
}

/// Asks for more memory than the process may have.
fn fill() {
    let context = VulkanContext::open(0, &Options::default()).unwrap();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let used = pages.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 4096;
    let limit = used + (256 << 20);
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: a valid structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    match context.alloc(1 << 30, Place::Pinned) {
        Ok(_) => println!("got it all the same"),
        Err(error @ GpuError::OutOfMemory { bytes, .. }) => {
            assert_eq!(bytes, 1 << 30);
            println!("{error}");
        }
        Err(error) => panic!("{error}"),
    }
    // What is left can still be used.
    context.alloc(4096, Place::Pinned).unwrap();
}

/// Is there a device at all?
fn has_device() -> bool {
    devices().map_err(|error| eprintln!("SKIPPED: {error}")).is_ok()
}

#[test]
fn without_the_loader() {
    let folder = std::env::temp_dir().join(format!("unisono-loader-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libvulkan.so.1"), "not a library").unwrap();
    let text = run("list", &[("LD_LIBRARY_PATH", &folder)]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.contains("Vulkan: ") && text.contains("libvulkan.so.1"), "{text}");
    assert!(text.contains("apt install libvulkan1 mesa-vulkan-drivers"), "{text}");
}

#[test]
fn without_a_driver() {
    if !has_device() {
        return;
    }
    let none = Path::new("/nonexistent.json");
    let text = run("list", &[("VK_DRIVER_FILES", none), ("VK_ICD_FILENAMES", none)]);
    assert!(text.contains("VK_ERROR_INCOMPATIBLE_DRIVER"), "{text}");
    assert!(text.contains("where VK_DRIVER_FILES says, '/nonexistent.json'"), "{text}");
    assert!(text.contains("unset it") && !text.contains("install"), "{text}");
}

/// The loader speaks of memory then.
#[test]
fn a_manifest_that_is_none_is_named() {
    if !has_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("text", "hello"), ("half", r#"{"ICD": {"library_path": "lib"#)] {
        let manifest = folder.path().join(name).with_extension("json");
        std::fs::write(&manifest, text).unwrap();
        let said = run("list", &[("VK_ADD_DRIVER_FILES", &manifest)]);
        let start = format!("Vulkan: {} is no manifest: ", manifest.display());
        assert!(said.contains(&start) && !said.contains("install"), "{said}");
        assert!(said.contains("mend or remove it"), "{said}");
    }
}

/// In the loader's order, and an empty variable is none.
#[test]
fn manifests_are_found_where_the_loader_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["config/vulkan/icd.d", "data/vulkan/icd.d", "more"] {
        std::fs::create_dir_all(path(name)).unwrap();
    }
    for name in ["config/vulkan/icd.d/c.json", "data/vulkan/icd.d/d.json", "more/z.json"] {
        std::fs::write(path(name), "{}").unwrap();
    }
    for name in ["more/a.json", "more/a.txt"] {
        std::fs::write(path(name), "{}").unwrap();
    }
    let (config, data, more) = (path("config"), path("data"), path("more"));
    let (empty, none) = (Path::new(""), path("none"));
    let system = [("XDG_CONFIG_DIRS", &*none), ("XDG_DATA_DIRS", &*none)];
    let own = [("XDG_CONFIG_HOME", &*config), ("XDG_DATA_HOME", &*data)];
    let found = |more: &[(&str, &Path)]| -> Vec<String> {
        let text = run("manifests", &[&system[..], &own, more].concat());
        let file = |line: &str| line.rsplit_once("file ").map(|(_, path)| path.to_owned());
        let start = folder.path().display().to_string() + "/";
        text.lines().filter_map(file).map(|path| path.replace(&start, "")).collect()
    };
    let usual = ["config/vulkan/icd.d/c.json", "data/vulkan/icd.d/d.json"];
    let keep = |all: Vec<String>| all.into_iter().filter(|path| !path.starts_with('/'));
    assert!(keep(found(&[("VK_DRIVER_FILES", empty)])).eq(usual));
    let added = ["more/a.json", "more/z.json", usual[0], usual[1]];
    assert!(keep(found(&[("VK_ADD_DRIVER_FILES", &*more)])).eq(added));
    assert_eq!(found(&[("VK_ICD_FILENAMES", &*more)]), ["more/a.json", "more/z.json"]);
    let both = [("VK_ICD_FILENAMES", &*more), ("VK_DRIVER_FILES", &*none)];
    assert_eq!(found(&both), ["none"]);
}

#[test]
fn a_broken_driver_loses_only_its_own_devices() {
    if !has_device() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("unisono-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libbroken.so");
    std::fs::write(&library, "not a library").unwrap();
    let manifest = folder.join("broken.json");
    let text = format!(
        r#"{{"file_format_version": "1.0.0",
            "ICD": {{"library_path": "{}", "api_version": "1.3.0"}}}}"#,
        library.display()
    );
    std::fs::write(&manifest, text).unwrap();
    let with = run("list", &[("VK_ADD_DRIVER_FILES", &manifest)]);
    let without = run("list", &[]);
    std::fs::remove_dir_all(&folder).unwrap();
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("has ")).map(str::to_owned).collect()
    };
    assert_eq!(names(&with), names(&without));
    assert!(!names(&with).is_empty(), "{with}");
}

#[test]
fn out_of_memory() {
    if !has_device() {
        return;
    }
    let text = run("fill", &[]);
    if text.contains("got it all the same") {
        eprintln!("SKIPPED: device 0 does not take its memory from the process");
        return;
    }
    assert!(text.contains("no memory for 1073741824 bytes: VK_ERROR_OUT_OF"), "{text}");
}

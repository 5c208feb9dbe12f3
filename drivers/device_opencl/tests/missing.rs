//! What is said where OpenCL, its drivers or their devices are missing. Each case is a process of
//! its own, because the library is loaded once.

use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_device_opencl::{OpenCl, Options, devices};

/// Set where the tests run themselves.
const CHILD: &str = "UNISONO_TEST_CHILD";

/// The tests' own executable, to run [`child`] in.
fn child_command(program: &str) -> Command {
    let mut command = Command::new(program);
    if program == "unshare" {
        // A namespace in which an empty file hides the library.
        let hide = "for f in $(ldconfig -p | sed -n 's/.*libOpenCL.so.1 .*=> //p'); do \
                    mount --bind /dev/null $(readlink -f $f) || exit 77; done; exec \"$@\"";
        command.args(["-rm", "sh", "-c", hide, "sh"]).arg(std::env::current_exe().unwrap());
    }
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1");
    command
}

fn this() -> String {
    std::env::current_exe().unwrap().into_os_string().into_string().unwrap()
}

/// Lists the devices; the other tests run it where there are none, to hear what it says.
#[test]
fn child() {
    let (listed, opened) = (devices(), OpenCl::open(0, &Options::default()));
    if std::env::var_os(CHILD).is_none() {
        assert!(!listed.unwrap().is_empty());
        opened.unwrap();
        return;
    }
    match listed {
        Ok(cards) => println!("CHILD {} devices", cards.len()),
        Err(error) => println!("CHILD {error}"),
    }
    if let Err(error) = opened {
        println!("OPEN {error}");
    }
}

/// What the child says.
fn answer(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{error}", output.status);
    text.lines().filter(|line| line.contains("CHILD ")).map(str::to_owned).collect()
}

fn assert_has(answer: &str, parts: &[&str]) {
    for part in parts {
        assert!(answer.contains(part), "no '{part}' in '{answer}'");
    }
}

#[test]
fn no_library() {
    let output = child_command("unshare").output().unwrap();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        eprintln!("SKIPPED: no namespaces here, a missing library is NOT tested: {error}");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let parts = ["libOpenCL.so.1 cannot be loaded", "apt-get install ocl-icd-libopencl1", "OPEN "];
    assert_has(&text, &parts);
}

#[test]
fn another_library() {
    let answer = answer(child_command(&this()).env("OPENCL_DYLIB_PATH", "libc.so.6"));
    assert_has(&answer, &["is no OpenCL library", "'libc.so.6'", "unset OPENCL_DYLIB_PATH"]);
}

#[test]
fn no_driver() {
    let folders = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (empty, full) = (folders.join("empty"), folders.join("full"));
    std::fs::create_dir_all(&empty).unwrap();
    std::fs::create_dir_all(&full).unwrap();
    let icd = full.join("gone.icd");
    std::fs::write(&icd, "/proc/nothing/libgone.so\n").unwrap();
    for (value, what) in [
        (Path::new("/proc/nothing/"), "which does not exist"),
        (Path::new("/etc/passwd"), "which is no folder, no .icd file and no library"),
        (Path::new("nothing.icd"), "where the loader finds none"),
        (&empty, "a folder without .icd files"),
        (&full, "a folder whose .icd files name no library that loads"),
        (&icd, "a file that names no library that loads"),
    ] {
        let answer = answer(child_command(&this()).env("OCL_ICD_VENDORS", value));
        let said = format!("no driver, as OCL_ICD_VENDORS is '{}', {what}", value.display());
        assert_has(&answer, &[&said, "CL_PLATFORM_NOT_FOUND_KHR", "unset it, or let it name"]);
    }
}

/// PoCL leaves out what it does not know, which is not a matter of its cache.
#[test]
fn names_that_pocl_does_not_know() {
    let answer = answer(child_command(&this()).env("POCL_DEVICES", "nonsense"));
    assert_has(&answer, &["Portable Computing Language: no devices", "POCL_DEVICES is set"]);
    assert!(!answer.contains("POCL_CACHE_DIR"), "{answer}");
}

/// PoCL lists no device then, and says nothing.
#[test]
fn a_cache_that_cannot_be_written() {
    let answer = answer(child_command(&this()).env("POCL_CACHE_DIR", "/proc/nothing"));
    assert_has(&answer, &["Portable Computing Language: no devices", "set POCL_CACHE_DIR"]);
}

/// A driver that does not load takes nothing from the others.
#[test]
fn a_broken_driver_loses_only_its_own() {
    let vendors = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vendors");
    std::fs::create_dir_all(&vendors).unwrap();
    std::fs::write(vendors.join("broken.icd"), "/proc/nothing/libbroken.so\n").unwrap();
    let other = std::fs::read("/etc/OpenCL/vendors/pocl.icd").unwrap();
    std::fs::write(vendors.join("pocl.icd"), other).unwrap();
    let answer = answer(child_command(&this()).env("OCL_ICD_VENDORS", vendors));
    assert_has(&answer, &["CHILD 1 devices"]);
}

/// What there is, is described.
#[test]
fn cards_are_filled_in() {
    let cards = devices().unwrap();
    for (index, card) in cards.iter().enumerate() {
        assert_eq!(card.index, index);
        assert!(!card.name.is_empty() && !card.vendor.is_empty(), "{card:?}");
        assert!(card.api_version.starts_with("OpenCL "), "{card:?}");
        assert!(card.memory > 0, "{card:?}");
    }
    let pocl = cards.iter().find(|card| card.driver.starts_with("Portable")).unwrap();
    assert_eq!(pocl.kind, unisono_gpu::CardType::Software);
    assert!(pocl.features.contains(&("float64", true)), "{pocl:?}");
    assert_eq!((pocl.uuid, pocl.pci), (None, None), "{pocl:?}");
}

//! The small commands, and habits that all commands share.

use crate::tool::{command, folder, run, succeed};
use std::process::Stdio;

#[test]
fn the_version_is_the_crates() {
    let folder = folder();
    let version = succeed(folder.path(), &["--version"]);
    assert_eq!(version, format!("unisono {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_has_examples() {
    let folder = folder();
    for command in ["reduce", "bench", "plan", "devices", "flash"] {
        let help = succeed(folder.path(), &[command, "--help"]);
        assert!(help.contains(&format!("Examples:\n  unisono {command}")), "{help}");
    }
    let help = succeed(folder.path(), &["--help"]);
    for command in ["reduce", "bench", "plan", "devices", "flash", "completions"] {
        assert!(help.contains(&format!("  {command} ")), "{help}");
    }
    assert_eq!(run(folder.path(), &[]).code, Some(2));
    assert_eq!(run(folder.path(), &["nothing"]).code, Some(2));
}

#[test]
fn shells_complete() {
    let folder = folder();
    for (shell, mark) in [
        ("bash", "complete -F _unisono"),
        ("zsh", "#compdef unisono"),
        ("fish", "complete -c unisono"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion"),
    ] {
        let script = succeed(folder.path(), &["completions", shell]);
        assert!(script.contains(mark), "{shell}");
        assert!(script.contains("verify") && script.contains("version"), "{shell}");
        // Nobody is offered a command that is not in the help.
        assert!(!script.contains("drivers"), "{shell}");
    }
}

/// Cards that cannot be attached to: each error names the card and says why.
#[test]
fn cards_that_are_not_there_are_named() {
    let folder = folder();
    let card = folder.path().join("bus/pci/devices/0000:03:00.0");
    std::fs::create_dir_all(&card).expect("a folder");
    std::fs::write(card.join("resource0"), [0; 4096]).expect("written");
    for (on, said) in [
        ("dpu:pci:04:00.0", "no such PCI device"),
        ("dpu:pci:03:00.0", "it has 4096 bytes, and links to 3 members take "),
        ("dpu:file:/nowhere/window", "there is no such file"),
    ] {
        let mut command = command(folder.path());
        command.env("UNISONO_SYSFS", folder.path());
        let on = format!("cpu,cpu,{on}");
        let output = command.args(["bench", "all_reduce", "--on", &on]).output();
        let output = output.expect("the tool starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("cannot attach to") && text.contains(said), "{text}");
    }
    assert!(succeed(folder.path(), &["devices"]).contains("dpu:pci:ADDRESS"));
}

/// Without an emulator no board can be started here, and it is said what to install.
#[test]
fn boards_without_their_emulator_say_what_to_install() {
    let folder = folder();
    let output = command(folder.path()).arg("devices").env("PATH", "/nowhere").output();
    let text = String::from_utf8(output.expect("the tool starts").stdout).expect("UTF-8");
    for (program, package) in [
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("qemu-system-riscv64", "qemu-system-misc"),
        ("qemu-system-arm", "qemu-system-arm"),
        ("qemu-aarch64", "qemu-user"),
    ] {
        let line = format!(
            "cannot be started: no {program} in PATH: install QEMU (Debian: apt install {package})"
        );
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn the_cpu_is_a_device_and_gpus_are_listed_or_missed() {
    let folder = folder();
    let text = succeed(folder.path(), &["devices"]);
    assert!(text.starts_with("cpu      "), "{text}");
    let cores = std::thread::available_parallelism().expect("cores");
    assert!(text.contains(&format!(", {cores} cores, kernels for ")), "{text}");
    assert!(succeed(folder.path(), &["devices", "-v"]).lines().count() > text.lines().count());
    let json = succeed(folder.path(), &["devices", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["cpu"]["cores"], cores.get());
    assert!(json["cpu"]["memory"].as_u64().is_some_and(|bytes| bytes > 1 << 20));
    // Each API has devices, or says how to get some.
    let devices = json["devices"].as_array().expect("a list");
    let apis = devices.iter().flat_map(|device| device["apis"].as_array().expect("a list"));
    let seen: Vec<_> = apis.map(|api| api["api"].clone()).collect();
    let missing = json["missing"].as_array().expect("a list");
    for api in ["Vulkan", "OpenCL"] {
        let why = missing.iter().find(|missing| missing["api"] == api).map(|m| &m["why"]);
        let why = why.and_then(serde_json::Value::as_str).unwrap_or_default();
        assert_ne!(seen.iter().any(|seen| seen == api), why.contains("install"), "{json}");
    }
}

#[test]
fn verbose_runs_say_more_on_stderr_only() {
    let folder = folder();
    let files = crate::tool::rank_files();
    let ended = run(folder.path(), &["-v", "reduce", &files[0], "-o", "o.st"]);
    assert_eq!(ended.code, Some(0));
    assert!(ended.err.contains("INFO rank 0 reads "), "{}", ended.err);
    assert!(!ended.out.contains("INFO"));
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error_worth_a_word() {
    let folder = folder();
    let mut bench = command(folder.path());
    bench.args(["bench", "-t", "2", "-b", "8", "-e", "32K", "-f", "2", "-n", "1000"]);
    let mut child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

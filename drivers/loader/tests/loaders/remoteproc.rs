//! A fake core: its control files are pipes while the plan runs, so that it can answer.

use crate::world::{Root, Seen, acts, micro, plan, relative, run_with};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use unisono_loader::{Act, Device, LoadError};

const CORE: &str = "sys/class/remoteproc/remoteproc0";

fn core(state: &str) -> Root {
    let root = Root::new();
    root.file(&format!("{CORE}/state"), &format!("{state}\n"));
    root.file(&format!("{CORE}/firmware"), "old.elf\n");
    root.file(&format!("{CORE}/name"), "m4\n");
    root.file("lib/firmware/other.bin", "other");
    root
}

fn control(root: &Root, name: &str) -> PathBuf {
    root.path(&format!("{CORE}/{name}"))
}

/// The control files become pipes.
fn wake(root: &Root) -> (PathBuf, PathBuf) {
    root.pipe(&format!("{CORE}/state"));
    root.pipe(&format!("{CORE}/firmware"));
    (control(root, "state"), control(root, "firmware"))
}

#[test]
fn a_running_core_is_stopped_gets_its_image_and_is_started() {
    let (root, package) = (core("running"), micro());
    let plan = plan(&root, "remoteproc:0", &package).expect("a plan");
    assert_eq!(plan.device, Device::Seen("core m4, running".to_owned()));
    let bytes = package.payload().len();
    assert_eq!(
        acts(&root, &plan),
        [
            format!("make the file /lib/firmware/unisono-m4.elf of the payload ({bytes} bytes)"),
            format!("write `stop` into /{CORE}/state"),
            format!("wait until /{CORE}/state says `offline`, at most 10s"),
            format!("write `unisono-m4.elf` into /{CORE}/firmware"),
            format!("write `start` into /{CORE}/state"),
            format!("wait until /{CORE}/state says `running`, at most 10s"),
        ]
    );
    let (state, firmware) = wake(&root);
    let image = root.path("lib/firmware/unisono-m4.elf");
    let payload = package.payload().to_vec();
    let (said, got) = run_with(plan, package, move || {
        let stop = fs::read_to_string(&state).expect("a command");
        let there = fs::read(&image).is_ok_and(|bytes| bytes == payload);
        fs::write(&state, "offline\n").expect("somebody asks");
        let name = fs::read_to_string(&firmware).expect("a name");
        let start = fs::read_to_string(&state).expect("a command");
        fs::write(&state, "running\n").expect("somebody asks");
        (stop, there, name, start)
    });
    assert_eq!(said.expect("loaded"), [""; 0]);
    let (stop, there, name, start) = got;
    assert!(there, "the image has to be complete before the core is touched");
    assert_eq!((stop.as_str(), start.as_str()), ("stop\n", "start\n"));
    assert_eq!(name, "unisono-m4.elf\n");
    let entries = fs::read_dir(root.path("lib/firmware")).expect("a folder").count();
    assert_eq!(entries, 2, "nothing half-written may be left");
}

#[test]
fn a_core_that_is_off_is_not_stopped() {
    let (root, package) = (core("offline"), micro());
    let plan = plan(&root, "remoteproc", &package).expect("a plan");
    let acts = acts(&root, &plan);
    assert_eq!(acts.len(), 4);
    assert!(!acts.iter().any(|act| act.contains("`stop`")), "{acts:?}");
    let (state, firmware) = wake(&root);
    let (said, start) = run_with(plan, package, move || {
        fs::read_to_string(&firmware).expect("a name");
        let start = fs::read_to_string(&state).expect("a command");
        fs::write(&state, "running\n").expect("somebody asks");
        start
    });
    assert!(said.is_ok());
    assert_eq!(start, "start\n");
}

#[test]
fn a_core_that_does_not_stop_keeps_its_image() {
    let (root, package) = (core("running"), micro());
    let mut plan = plan(&root, "remoteproc", &package).expect("a plan");
    for step in &mut plan.steps {
        if let Act::Await { patience, .. } = &mut step.act {
            *patience = Duration::ZERO;
        }
    }
    // A plain file says what was written last.
    let error = plan.run(&package, &mut Seen::default()).expect_err("it does not stop");
    let error = relative(&root, &error.to_string());
    let start = format!(
        "remoteproc:0: step 3 of 6 failed (wait until /{CORE}/state says `offline`, at most 0ns): \
         it still says `stop`; done before: make the file "
    );
    assert!(error.starts_with(&start), "{error}");
    let end = format!("; now core m4 runs its old image, or is stopped: see /{CORE}/state");
    assert!(error.ends_with(&end), "{error}");
    assert_eq!(fs::read_to_string(control(&root, "firmware")).expect("a file"), "old.elf\n");
}

#[test]
fn a_core_that_cannot_be_stopped_is_left_alone() {
    for state in ["crashed", "suspended", "invalid", "detached"] {
        let root = core(state);
        let before = root.content();
        let error = plan(&root, "remoteproc", &micro()).expect_err(state);
        assert!(matches!(error, LoadError::State { .. }), "{error}");
        assert!(error.to_string().contains(&format!("says `{state}`")), "{error}");
        assert_eq!(root.content(), before);
    }
}

#[test]
fn no_folder_for_firmware_leaves_the_core_as_it_is() {
    let (root, package) = (core("running"), micro());
    let plan = plan(&root, "remoteproc", &package).expect("a plan");
    fs::remove_dir_all(root.path("lib")).expect("a folder");
    let error = plan.run(&package, &mut Seen::default()).expect_err("no folder").to_string();
    assert!(error.contains("step 1 of 6") && error.contains("/lib/firmware: No such"), "{error}");
    assert!(error.ends_with("nothing was done before; now core m4 is running, as before"));
    assert_eq!(fs::read_to_string(control(&root, "state")).expect("a file"), "running\n");
}

#[test]
fn without_a_core_nothing_is_done() {
    let (root, package) = (Root::new(), micro());
    let plan = plan(&root, "remoteproc:3", &package).expect("a plan");
    assert_eq!(plan.steps.len(), 4, "as for a core that is off");
    let error = plan.run(&package, &mut Seen::default()).expect_err("nothing is there");
    let error = relative(&root, &error.to_string());
    let line = "remoteproc:3: no core was seen: /sys/class/remoteproc/remoteproc3/state: No such \
                file or directory (os error 2); nothing was done (";
    assert!(error.starts_with(line), "{error}");
    assert_eq!(root.content(), []);
}

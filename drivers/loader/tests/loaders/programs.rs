//! Loaders that run programs: `probe-rs`, `ssh` and `scp`.

use crate::world::{Root, Seen, acts, elf, micro, plan, relative};
use std::fs;
use unisono_loader::{Device, LoadError, Package};

/// What is run, without the path of the unpacked image, which is another one each time.
fn run(root: &Root, to: &str, package: &Package) -> (Result<(), String>, Vec<String>) {
    let plan = plan(root, to, package).expect("a plan");
    let mut seen = Seen::default();
    let result = plan.run(package, &mut seen).map(drop);
    assert_eq!(seen.steps, plan.steps[..seen.steps.len()], "another step than planned");
    let log = root.log().into_iter().map(|line| {
        let word = |word: &str| {
            if word.contains("/unisono-flash-") { "<IMAGE>".to_owned() } else { word.to_owned() }
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    });
    (result.map_err(|error| relative(root, &error.to_string())), log.collect())
}

/// Copies the file in its last argument beside the log.
const KEEP: &str = r#"for last; do :; done; cp "$last" "$0.got""#;

#[test]
fn probe_rs_downloads_and_resets() {
    let (root, package) = (Root::new(), micro());
    root.program("probe-rs", &format!("[ \"$1\" = reset ] || {{ {KEEP}; }}"));
    let planned = acts(&root, &plan(&root, "probe-rs:STM32F407VGTx", &package).expect("a plan"));
    assert_eq!(
        planned,
        [
            "unpack the payload as IMAGE, file m4.elf in a temporary folder",
            "run `/bin/probe-rs download --non-interactive --chip STM32F407VGTx \
             --disable-progressbars --verify --binary-format elf IMAGE`",
            "run `/bin/probe-rs reset --non-interactive --chip STM32F407VGTx`",
        ]
    );
    let (result, log) = run(&root, "probe-rs:STM32F407VGTx", &package);
    assert_eq!(result, Ok(()));
    assert_eq!(
        log,
        [
            "probe-rs <download> <--non-interactive> <--chip> <STM32F407VGTx> \
             <--disable-progressbars> <--verify> <--binary-format> <elf> <IMAGE>",
            "probe-rs <reset> <--non-interactive> <--chip> <STM32F407VGTx>",
        ]
    );
    assert!(fs::read(root.path("bin/probe-rs.got")).expect("a file") == package.payload());
}

#[test]
fn probe_rs_without_a_chip_or_a_probe() {
    let (root, package) = (Root::new(), micro());
    root.program("probe-rs", "echo 'Error: No connected probes were found.' >&2; exit 3");
    let (result, log) = run(&root, "probe-rs", &package);
    let error = result.expect_err("no probe");
    let start = "probe-rs: step 2 of 3 failed (run `/bin/probe-rs download --non-interactive \
                 --disable-progressbars --verify --binary-format elf IMAGE`): exit status: 3: \
                 Error: No connected probes were found.; done before: unpack the payload";
    assert!(error.starts_with(start), "{error}");
    assert!(error.ends_with("may be written in part: load again before it is reset"), "{error}");
    assert_eq!(log.len(), 1);
}

#[test]
fn programs_that_are_missing_are_named_with_what_to_install() {
    let root = Root::new();
    for (to, package, program, help) in [
        ("probe-rs", micro(), "probe-rs", "cargo install probe-rs-tools"),
        ("ssh:dpu", elf(), "ssh", "openssh-client"),
    ] {
        let plan = plan(&root, to, &package).expect("a plan");
        let Device::Missing { what, .. } = &plan.device else { panic!("{plan:?}") };
        assert!(what.starts_with(&format!("there is no program {program}")), "{what}");
        let error = plan.run(&package, &mut Seen::default()).expect_err("no program");
        assert!(matches!(error, LoadError::Missing { .. }), "{error}");
        assert!(error.to_string().contains(help), "{error}");
    }
    // `scp` alone is missed, too.
    root.program("ssh", "");
    let plan = plan(&root, "ssh:dpu", &elf()).expect("a plan");
    assert!(matches!(&plan.device, Device::Missing { what, .. } if what.contains("program scp")));
}

const MACHINE: &str = std::env::consts::ARCH;

/// A DPU whose home folder is `home` below the root.
fn dpu(root: &Root, machine: &str) {
    fs::create_dir(root.path("home")).expect("a folder");
    let home = root.path("home");
    let home = home.display();
    root.program(
        "ssh",
        &format!(
            "cd '{home}'; uname() {{ echo {machine}; }}; for last; do :; done; eval \"$last\""
        ),
    );
    root.program(
        "scp",
        &format!("shift 4; [ \"${{2%%:*}}\" = root@dpu ] && cp \"$1\" \"{home}/${{2#*:}}\""),
    );
}

#[test]
fn ssh_copies_checks_and_names_the_program() {
    let (root, package) = (Root::new(), elf());
    dpu(&root, MACHINE);
    root.file("home/unisono-m4", "old");
    let sum = package.sha256();
    let (result, log) = run(&root, "ssh:root@dpu", &package);
    assert_eq!(result, Ok(()));
    let options = "<-o> <BatchMode=yes> <-o> <ConnectTimeout=10>";
    assert_eq!(
        log,
        [
            format!("ssh {options} <root@dpu> <uname -m>"),
            format!("scp {options} <IMAGE> <root@dpu:unisono-m4.part>"),
            format!("ssh {options} <root@dpu> <sha256sum unisono-m4.part>"),
            format!(
                "ssh {options} <root@dpu> <chmod 755 unisono-m4.part && mv -f unisono-m4.part \
                 unisono-m4>"
            ),
        ]
    );
    let planned = acts(&root, &plan(&root, "ssh:root@dpu", &package).expect("a plan"));
    assert_eq!(planned.len(), 5);
    let uname = "run `/bin/ssh -o BatchMode=yes -o ConnectTimeout=10 root@dpu 'uname -m'`, which \
                 must say ";
    assert_eq!(planned[1], format!("{uname}`{MACHINE}`"));
    assert!(planned[3].ends_with(&format!("`, which must say `{sum}`")), "{}", planned[3]);
    // It is there, it is whole, and it runs.
    let path = root.path("home/unisono-m4");
    assert!(fs::read(&path).expect("a file") == package.payload());
    let mut program = std::process::Command::new(&path);
    assert!(program.arg("--list").output().expect("it can be run").status.success());
    assert_eq!(fs::read_dir(root.path("home")).expect("a folder").count(), 1);
}

#[test]
fn a_host_of_another_kind_gets_nothing() {
    let (root, package) = (Root::new(), elf());
    dpu(&root, "mips");
    let (result, log) = run(&root, "ssh:root@dpu", &package);
    let error = result.expect_err("another machine");
    let cause = format!("it says `mips`, not `{MACHINE}`; done before: unpack the payload");
    assert!(error.contains(&cause), "{error}");
    assert!(error.ends_with("; now root@dpu is as before"), "{error}");
    assert_eq!(log.len(), 1);
}

#[test]
fn a_copy_that_is_damaged_does_not_get_the_name() {
    let (root, package) = (Root::new(), elf());
    dpu(&root, MACHINE);
    let home = root.path("home");
    root.program("scp", &format!("echo damaged > '{}/unisono-m4.part'", home.display()));
    let (result, log) = run(&root, "ssh:root@dpu", &package);
    let error = result.expect_err("damaged");
    assert!(error.contains("step 4 of 5 failed") && error.contains("it says `"), "{error}");
    let end = "; now root@dpu has a file unisono-m4.part in the home folder, and otherwise is as \
               before";
    assert!(error.ends_with(end), "{error}");
    assert_eq!(log.len(), 3);
    assert!(!home.join("unisono-m4").exists());
}

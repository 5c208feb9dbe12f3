//! A fake BlueField: `misc` and `boot` are pipes while the plan runs.

use crate::world::{Root, Seen, acts, boot_stream, plan, relative, run_with};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use unisono_loader::{Device, LoadError, Quiet};

/// As the driver's manual shows it.
const MISC: &str = "DISPLAY_LEVEL   0 (0:basic, 1:advanced, 2:log)\n\
    BOOT_MODE       1 (0:rshim, 1:emmc, 2:emmc-boot-swap)\n\
    SW_RESET        0 (1: reset)\n\
    DEV_NAME        pcie-04:00.2\n\
    DEV_INFO        BlueField-2(Rev 1)\n";

fn card(number: u16) -> Root {
    let root = Root::new();
    root.file(&format!("dev/rshim{number}/misc"), MISC);
    root.file(&format!("dev/rshim{number}/boot"), "");
    root
}

#[test]
fn what_is_planned_is_what_the_card_gets_and_in_this_order() {
    let (root, package) = (card(1), boot_stream());
    let plan = plan(&root, "rshim:1", &package).expect("a plan");
    let seen = "DEV_INFO BlueField-2(Rev 1), DEV_NAME pcie-04:00.2, \
                BOOT_MODE 1 (0:rshim, 1:emmc, 2:emmc-boot-swap)";
    assert_eq!(plan.device, Device::Seen(seen.to_owned()));
    assert_eq!(
        acts(&root, &plan),
        [
            "write `BOOT_MODE 0` into /dev/rshim1/misc",
            "write `SW_RESET 1` into /dev/rshim1/misc",
            "write the payload (700004 bytes) into /dev/rshim1/boot",
        ]
    );
    root.pipe("dev/rshim1/misc");
    root.pipe("dev/rshim1/boot");
    let (misc, boot) = (root.path("dev/rshim1/misc"), root.path("dev/rshim1/boot"));
    let payload = package.payload().to_vec();
    let (said, (commands, stream)) = run_with(plan, package, move || {
        // Open for writing, too: so it has no end between two commands.
        let misc = OpenOptions::new().read(true).write(true).open(misc).expect("a pipe");
        let lines = BufReader::new(misc).lines().take(2);
        let commands: Vec<String> = lines.map(|line| line.expect("a command")).collect();
        // The stream would fill the pipe if it came before the commands.
        (commands, fs::read(&boot).expect("a boot stream"))
    });
    assert_eq!(said.expect("loaded"), [""; 0]);
    assert_eq!(commands, ["BOOT_MODE 0", "SW_RESET 1"]);
    assert!(stream == payload, "{} bytes of {}", stream.len(), payload.len());
}

#[test]
fn a_card_that_goes_away_leaves_its_state_in_the_error() {
    let (root, package) = (card(0), boot_stream());
    let plan = plan(&root, "rshim", &package).expect("a plan");
    root.pipe("dev/rshim0/boot");
    let boot = root.path("dev/rshim0/boot");
    let (error, ()) = run_with(plan, package, move || {
        // It takes the first bytes and closes.
        let mut file = fs::File::open(boot).expect("a boot stream");
        file.read_exact(&mut [0; 100]).expect("its first bytes");
    });
    let error = relative(&root, &error.expect_err("broken off").to_string());
    let start = "rshim:0: step 3 of 3 failed (write the payload (700004 bytes) into \
                 /dev/rshim0/boot): /dev/rshim0/boot: Broken pipe (os error 32), after ";
    assert!(error.starts_with(start), "{error}");
    let end = "; done before: write `BOOT_MODE 0` into /dev/rshim0/misc, write `SW_RESET 1` into \
               /dev/rshim0/misc; now the Arm cores have no system: load again, or write `SW_RESET \
               1` into /dev/rshim0/misc to boot the old one from eMMC";
    assert!(error.ends_with(end), "{error}");
}

#[test]
fn who_interrupts_learns_the_state_too() {
    let (root, package) = (card(0), boot_stream());
    let plan = plan(&root, "rshim", &package).expect("a plan");
    let mut seen = Seen { stop_after: Some(1), ..Seen::default() };
    let error = plan.run(&package, &mut seen).expect_err("interrupted").to_string();
    assert!(error.contains("it was interrupted after 262144 bytes; done before"), "{error}");
    assert!(error.contains("now the Arm cores have no system"), "{error}");
    let boot = fs::read(root.path("dev/rshim0/boot")).expect("a file");
    assert_eq!(boot.len(), 262_144);
}

#[test]
fn a_card_that_refuses_a_setting_is_as_before() {
    let (root, package) = (card(0), boot_stream());
    let plan = plan(&root, "rshim", &package).expect("a plan");
    let misc = root.path("dev/rshim0/misc");
    fs::remove_file(&misc).expect("a file");
    fs::create_dir(&misc).expect("what cannot be written");
    let error = relative(&root, &plan.run(&package, &mut Quiet).expect_err("refused").to_string());
    let line = "rshim:0: step 1 of 3 failed (write `BOOT_MODE 0` into /dev/rshim0/misc): \
                /dev/rshim0/misc: Is a directory (os error 21); nothing was done before; now the \
                Arm cores run as before";
    assert_eq!(error, line);
}

#[test]
fn without_a_card_the_plan_is_the_same_and_is_not_carried_out() {
    let (root, other, package) = (Root::new(), card(0), boot_stream());
    let plan_here = plan(&root, "rshim:0", &package).expect("a plan");
    let plan_there = plan(&other, "rshim:0", &package).expect("a plan");
    assert_eq!(acts(&root, &plan_here), acts(&other, &plan_there));
    let Device::Missing { what, help } = &plan_here.device else { panic!("{plan_here:?}") };
    let what = relative(&root, what);
    assert_eq!(what, "no BlueField was seen: there is no /dev/rshim0/misc");
    assert!(help.contains("systemctl start rshim"), "{help}");
    let before = root.content();
    let mut seen = Seen::default();
    let error = plan_here.run(&package, &mut seen).expect_err("nothing is there");
    assert!(matches!(error, LoadError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("nothing was done"), "{error}");
    assert!(seen.steps.is_empty());
    assert_eq!(root.content(), before);
}

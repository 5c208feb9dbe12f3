//! `unisono flash`: whose image a file is, and whose key.

use crate::image::{AARCH64, RISCV, image, image_of_abi};
use crate::tool::{folder, run, succeed};
use std::fs;
use std::path::Path;
use std::process::Command;

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).expect("a file");
}

/// The error of `unisono flash`, which must be one.
#[track_caller]
fn refused(folder: &Path, args: &[&str]) -> String {
    let ended = run(folder, &[&["flash"], args].concat());
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{args:?}");
    ended.err
}

#[test]
fn the_name_of_a_file_counts_for_nothing_where_the_image_names_its_board() {
    let folder = folder();
    let folder = folder.path();
    put(folder, "dpu_linux", &image(AARCH64, "qemu_virt_aarch64", false));
    put(folder, "anything", &image(AARCH64, "dpu_linux", true));
    put(folder, "m4.elf", &image(RISCV, "qemu_virt_riscv64", false));
    let error = refused(folder, &["dpu_linux", "--to", "ssh:h", "-n"]);
    let line = "error: ssh:h cannot take this image: it is for board qemu-virt-aarch64, a machine \
                of QEMU; load it with --to qemu:aarch64\n";
    assert_eq!(error, line);
    for name in ["dpu-linux", "dpu_linux"] {
        let text = succeed(folder, &["flash", "anything", "--board", name, "--to", "ssh:h", "-n"]);
        assert!(text.contains("\nboard      dpu-linux, version "), "{text}");
    }
    let error = refused(folder, &["anything", "--board", "foo", "--to", "ssh:h", "-n"]);
    assert_eq!(error, "error: anything: it is for board dpu-linux, not for foo\n");
    let wrong = ["pack", "m4.elf", "--board", "qemu-virt-aarch64", "-o", "x.img"];
    let line = "error: m4.elf: it is for board qemu-virt-riscv64, not for qemu-virt-aarch64\n";
    assert_eq!(refused(folder, &wrong), line);
    assert!(!folder.join("x.img").exists());
    succeed(folder, &["flash", "pack", "m4.elf", "-o", "x.img"]);
    succeed(folder, &["flash", "verify", "x.img", "--board", "qemu_virt_riscv64"]);
    // Without its own word, the user's counts, or else the file's name.
    put(folder, "some_card", b"raw");
    let text = succeed(folder, &["flash", "pack", "some_card", "-o", "y.img"]);
    assert!(text.contains("board      some-card, "), "{text}");
    let named = ["flash", "pack", "some_card", "--board", "other_card", "-o", "y.img"];
    let text = succeed(folder, &named);
    assert!(text.contains("board      other-card, "), "{text}");
}

/// Keys of others lie beside the release's, as in a folder of ssh.
#[test]
fn keys_of_other_programs_in_a_folder_are_skipped() {
    let folder = folder();
    let folder = folder.path();
    put(folder, "card", b"raw");
    fs::create_dir(folder.join("keys")).expect("a folder");
    put(folder, "keys/id_ed25519.pub", b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@here\n");
    put(folder, "keys/old.pub", b"\xff\xfe");
    for args in [
        &["genpkey", "-algorithm", "ed25519", "-out", "release.pem"][..],
        &["genpkey", "-algorithm", "RSA", "-out", "rsa.pem"],
        &["pkey", "-in", "rsa.pem", "-pubout", "-out", "keys/rsa.pem"],
    ] {
        let made = Command::new("openssl").args(args).current_dir(folder).output();
        assert!(made.expect("openssl").status.success(), "{args:?}");
    }
    succeed(folder, &["flash", "pack", "card", "-o", "c.img", "--sign", "release.pem"]);
    let verify = ["verify", "c.img", "--trust", "keys"];
    let line = "error: keys: no *.pub or *.pem file with a public ed25519 key in this folder\n";
    assert_eq!(refused(folder, &verify), line);
    let public = ["pkey", "-in", "release.pem", "-pubout", "-out", "keys/release.pub"];
    let made = Command::new("openssl").args(public).current_dir(folder).output();
    assert!(made.expect("openssl").status.success());
    let ended = run(folder, &[&["-v", "flash"], &verify[..]].concat());
    assert!(ended.code == Some(0) && ended.out.trim_end().ends_with(", checked"), "{}", ended.err);
    for (file, why) in [
        ("id_ed25519.pub", "no public ed25519 key in PEM"),
        ("old.pub", "it is no text"),
        ("rsa.pem", "no public ed25519 key in PEM (the file holds a key of another kind)"),
    ] {
        assert!(ended.err.contains(&format!("keys/{file}: skipped, {why}")), "{}", ended.err);
    }
    // A key that is named itself has to be one.
    let error = refused(folder, &["verify", "c.img", "--trust", "keys/id_ed25519.pub"]);
    assert!(error.starts_with("error: keys/id_ed25519.pub: no public ed25519 key"), "{error}");
}

/// What is packed or signed with stays as it is.
#[test]
fn inputs_are_not_overwritten() {
    let folder = folder();
    let folder = folder.path();
    put(folder, "card", b"raw");
    let made = ["genpkey", "-algorithm", "ed25519", "-out", "key.pem"];
    let made = Command::new("openssl").args(made).current_dir(folder).output();
    assert!(made.expect("openssl").status.success());
    std::os::unix::fs::symlink("card", folder.join("link")).expect("a link");
    let key = fs::read(folder.join("key.pem")).expect("a key");
    for (output, input) in [("card", "card"), ("./link", "card"), ("key.pem", "key.pem")] {
        let args = ["flash", "pack", "card", "-o", output, "--sign", "key.pem"];
        let ended = run(folder, &args);
        let line = format!("error: {input} is input and output; name another output\n");
        assert_eq!((ended.code, ended.out.as_str(), ended.err), (Some(2), "", line));
    }
    assert_eq!(fs::read(folder.join("card")).expect("a file"), b"raw");
    assert_eq!(fs::read(folder.join("key.pem")).expect("a file"), key);
}

/// The folder of somebody who signs has both halves of a key.
#[test]
fn private_keys_in_a_folder_are_skipped() {
    let folder = folder();
    let folder = folder.path();
    put(folder, "card", b"raw");
    fs::create_dir(folder.join("keys")).expect("a folder");
    for args in [
        &["genpkey", "-algorithm", "ed25519", "-out", "keys/release.pem"][..],
        &["genpkey", "-algorithm", "RSA", "-out", "rsa.pem"],
    ] {
        let made = Command::new("openssl").args(args).current_dir(folder).output();
        assert!(made.expect("openssl").status.success(), "{args:?}");
    }
    let sign = ["flash", "pack", "card", "-o", "c.img", "--sign", "keys/release.pem"];
    succeed(folder, &sign);
    let verify = ["verify", "c.img", "--trust", "keys"];
    let line = "error: keys: no *.pub or *.pem file with a public ed25519 key in this folder\n";
    assert_eq!(refused(folder, &verify), line);
    let public = ["pkey", "-in", "keys/release.pem", "-pubout", "-out", "keys/release.pub"];
    let made = Command::new("openssl").args(public).current_dir(folder).output();
    assert!(made.expect("openssl").status.success());
    let text = succeed(folder, &[&["flash"], &verify[..]].concat());
    assert!(text.trim_end().ends_with(", checked"), "{text}");
    let ended = run(folder, &[&["-v", "flash"], &verify[..]].concat());
    assert!(ended.err.contains("keys/release.pem: skipped"), "{}", ended.err);
    let error = refused(folder, &["pack", "card", "-o", "d.img", "--sign", "rsa.pem"]);
    let start = "error: rsa.pem: no private ed25519 key in PEM (the file holds a key of another \
                 kind); ";
    assert!(error.starts_with(start), "{error}");
}

/// An image that speaks other messages is not packed, not taken for one, and not loaded.
#[test]
fn images_of_another_message_abi_are_refused() {
    let folder = folder();
    let folder = folder.path();
    put(folder, "new", &image_of_abi(AARCH64, "dpu_linux", true, &[2, 1]));
    put(folder, "own", &image_of_abi(AARCH64, "dpu_linux", true, &[1, 0]));
    let line =
        "error: new: it speaks message ABI 258, this host 1: build image and host together\n";
    for args in [&["pack", "new", "-o", "x.img"][..], &["new", "--to", "ssh:h", "-n"]] {
        assert_eq!(refused(folder, args), line);
    }
    assert!(!folder.join("x.img").exists());
    let text = succeed(folder, &["flash", "pack", "own", "-o", "x.img"]);
    assert!(text.contains(", message ABI 1\n"), "{text}");
}

/// A dry run refuses what the real one would: an image that the machine cannot run.
#[test]
fn a_dry_run_looks_at_the_machine_of_an_image() {
    let folder = folder();
    let folder = folder.path();
    put(folder, "image", &image(RISCV, "qemu_virt_aarch64", false));
    let line = "error: qemu:aarch64 cannot take this image: built for ELF machine 243, not 183\n";
    for dry in [&[][..], &["-n"]] {
        assert_eq!(refused(folder, &[&["image", "--to", "qemu:aarch64"], dry].concat()), line);
    }
    put(folder, "image", &image(AARCH64, "qemu_virt_aarch64", false));
    let text = succeed(folder, &["flash", "image", "--to", "qemu:aarch64", "-n"]);
    assert!(text.contains("\nstep 1 "), "{text}");
}

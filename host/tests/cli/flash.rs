//! `unisono flash`: images are packed, checked, refused, and loaded into a folder that stands for
//! the system.

use crate::tool::{folder, names, run, succeed};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What begins as a boot stream for BlueField does.
const STREAM: &[u8] = b"\x42\x66\x02\x13, but it is none";

/// The keys of RFC 8032, section 7.1, tests 1 and 2.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";
const PUB: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
    -----END PUBLIC KEY-----\n";
const OTHER: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n\
    -----END PRIVATE KEY-----\n";
/// Name of the first.
const ID: &str = "21fe31dfa154a261";

/// A folder with keys, a boot stream and a fake card.
fn desk() -> tempfile::TempDir {
    let folder = folder();
    let put = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, content).expect("a file");
    };
    put("key.pem", KEY.as_bytes());
    put("key.pub", PUB.as_bytes());
    put("other.pem", OTHER.as_bytes());
    put("blue_field.bfb", STREAM);
    put("root/dev/rshim0/misc", b"BOOT_MODE  1\nDEV_INFO  BlueField-2(Rev 1)\n");
    put("root/dev/rshim0/boot", b"");
    folder
}

/// It fails with this code and this line, and writes nothing.
#[track_caller]
fn refused(folder: &Path, args: &[&str], code: i32, line: &str) {
    let before = names(folder);
    let ended = run(folder, &[&["flash"], args].concat());
    let expected = (Some(code), "", format!("error: {line}\n"));
    assert_eq!((ended.code, ended.out.as_str(), ended.err), expected, "{args:?}");
    assert_eq!(names(folder), before, "{args:?} left something behind");
}

fn pack(folder: &Path, more: &[&str]) -> String {
    succeed(folder, &[&["flash", "pack", "blue_field.bfb", "-o", "b.img"], more].concat())
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).expect(name)
}

#[test]
fn an_image_is_packed_signed_and_verified() {
    let folder = desk();
    let folder = folder.path();
    let text = pack(folder, &["--sign", "key.pem", "--image-version", "3.2.1"]);
    let expected = format!(
        "image      b.img\n\
         board      blue-field, version 3.2.1, message ABI 1 (the image itself names none)\n\
         payload    a BlueField boot stream, 20 bytes, build id none\n\
         sha256     f8fa17a301ce5e51aa7f48f7ebc61042bb42e997678b5b32a529baa3d9e51257\n\
         signature  made with key {ID}\n"
    );
    assert_eq!(text, expected);
    let image = read(folder, "b.img");
    assert_eq!(image.len(), 168 + STREAM.len());
    assert_eq!(&image[168..], STREAM);
    let json = succeed(folder, &["flash", "verify", "b.img", "--trust", "key.pub", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["board"], "blue-field");
    assert_eq!(json["version"], "3.2.1");
    assert_eq!(json["signature"], "checked");
    assert_eq!(json["key"], ID);
    assert_eq!(json["packed_here"], false);
    let text = succeed(folder, &["flash", "verify", "b.img"]);
    assert!(text.ends_with(&format!("signature  by key {ID}, not checked: no --trust\n")));
    // A folder of keys will do, too.
    fs::create_dir(folder.join("keys")).expect("a folder");
    fs::copy(folder.join("key.pub"), folder.join("keys/release.pub")).expect("a key");
    succeed(folder, &["flash", "verify", "b.img", "--trust", "keys"]);
}

#[test]
fn whatever_is_wrong_with_an_image_is_said() {
    let folder = desk();
    let folder = folder.path();
    pack(folder, &[]);
    let image = read(folder, "b.img");
    let put = |name: &str, at: usize, byte: u8| {
        let mut bytes = image.clone();
        bytes[at] = byte;
        fs::write(folder.join(name), bytes).expect("a file");
    };
    put("abi.img", 10, 7);
    put("format.img", 8, 2);
    put("board.img", 24, b'/');
    fs::write(folder.join("cut.img"), &image[..image.len() - 1]).expect("a file");
    let own = image.len() - 168;
    for (file, line) in [
        ("abi.img", "it speaks message ABI 7, this host 1: build image and host together".into()),
        (
            "format.img",
            "its header has format 2, this program knows format 1: use the program that packed it"
                .to_owned(),
        ),
        ("board.img", "its header is damaged: the name of its board is none".into()),
        (
            "cut.img",
            format!(
                "its header says {own} bytes of payload, but {} follow: copy it again",
                own - 1
            ),
        ),
        (
            "blue_field.bfb",
            "no unisono image: it does not begin with the magic; `unisono flash pack` makes one"
                .into(),
        ),
    ] {
        refused(folder, &["verify", file], 1, &format!("{file}: {line}"));
    }
    let unsigned = "it is not signed, and --trust demands a signature: `unisono flash pack --sign` \
                    signs";
    for args in [
        &["verify", "b.img", "--trust", "key.pub"][..],
        &["b.img", "--to", "rshim", "--root", "root", "--trust", "key.pub"],
    ] {
        refused(folder, args, 1, &format!("b.img: {unsigned}"));
    }
    // What has no header has no signature either.
    let bare = ["blue_field.bfb", "--to", "rshim", "--root", "root", "--trust", "key.pub"];
    refused(folder, &bare, 1, &format!("blue_field.bfb: {unsigned}"));
    let other = "b.img: it is for board blue-field, not for other";
    refused(folder, &["verify", "b.img", "--board", "other"], 1, other);
    put("changed.img", 170, b'x');
    let ended = run(folder, &["flash", "changed.img", "--to", "rshim", "--root", "root"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(ended.err.contains("changed.img: its payload has SHA-256 "), "{}", ended.err);
    assert_eq!(read(folder, "root/dev/rshim0/boot"), b"");
}

#[test]
fn strangers_and_forgers_are_refused() {
    let folder = desk();
    let folder = folder.path();
    pack(folder, &["--sign", "other.pem"]);
    let ended = run(folder, &["flash", "verify", "b.img", "--trust", "key.pub"]);
    let end = format!("which is not among the trusted: {ID}\n");
    assert!(ended.code == Some(1) && ended.err.ends_with(&end), "{}", ended.err);
    pack(folder, &["--sign", "key.pem"]);
    let mut image = read(folder, "b.img");
    image[12] ^= 1;
    fs::write(folder.join("b.img"), image).expect("a file");
    let line = format!(
        "b.img: its signature with key {ID} is wrong: the image was changed after it was signed"
    );
    refused(folder, &["verify", "b.img", "--trust", "key.pub"], 1, &line);
    for (args, start) in [
        (&["verify", "b.img", "--trust", "key.pem"][..], "error: key.pem: no public ed25519 key"),
        (&["verify", "b.img", "--trust", "root"], "error: root: no *.pub or *.pem file"),
        (&["verify", "b.img", "--trust", "gone"], "error: gone: No such file"),
        (
            &["pack", "blue_field.bfb", "-o", "x.img", "--sign", "key.pub"],
            "error: key.pub: no private ed25519 key",
        ),
    ] {
        let ended = run(folder, &[&["flash"], args].concat());
        assert_eq!(ended.code, Some(1), "{args:?}");
        assert!(ended.err.starts_with(start), "{args:?}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{args:?}");
    }
    assert!(!folder.join("x.img").exists());
}

/// A dry run prints what a run does, to the letter, and does nothing.
#[test]
fn a_dry_run_says_what_a_run_does() {
    let folder = desk();
    let folder = folder.path();
    pack(folder, &["--sign", "key.pem"]);
    let misc = read(folder, "root/dev/rshim0/misc");
    let args = ["flash", "b.img", "--to", "rshim", "--root", "root", "--trust", "key.pub"];
    let dry = succeed(folder, &[&args[..], &["--dry-run"]].concat());
    assert_eq!(read(folder, "root/dev/rshim0/misc"), misc);
    assert_eq!(read(folder, "root/dev/rshim0/boot"), b"");
    let wet = succeed(folder, &args);
    assert_eq!(read(folder, "root/dev/rshim0/misc"), b"SW_RESET 1\n");
    assert_eq!(read(folder, "root/dev/rshim0/boot"), STREAM);
    let (dry, dry_end) = dry.trim_end().rsplit_once('\n').expect("lines");
    let (wet, wet_end) = wet.trim_end().rsplit_once('\n').expect("lines");
    assert_eq!(dry_end, "done       nothing (--dry-run)");
    assert_eq!(wet_end, "done       all 3 steps");
    let plain = |text: &str| text.lines().filter(|l| !l.starts_with("device ")).collect::<String>();
    assert_eq!(plain(dry), plain(wet));
    let first = "step 1     write `BOOT_MODE 0` into root/dev/rshim0/misc: the next reset of the \
                 Arm cores waits for a boot stream\n";
    assert!(dry.contains(first), "{dry}");
    assert!(dry.contains("device     seen: DEV_INFO BlueField-2(Rev 1), BOOT_MODE 1\n"), "{dry}");
}

#[test]
fn hardware_that_is_not_here_is_said_to_be_missing() {
    let folder = desk();
    let folder = folder.path();
    // A plain file is packed on the fly, and said so.
    let dry = ["flash", "blue_field.bfb", "--to", "rshim:7", "--root", "root", "-n"];
    let text = succeed(folder, &dry);
    assert!(text.starts_with("image      blue_field.bfb, without a header: packed on the fly\n"));
    let missing = "no BlueField was seen: there is no root/dev/rshim7/misc";
    assert!(text.contains(&format!("device     missing: {missing} (run this on ")), "{text}");
    let end = "done       nothing (--dry-run), and without the device it would fail\n";
    assert!(text.ends_with(end), "{text}");
    let json = succeed(folder, &[&dry[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["device"]["state"], "missing");
    assert_eq!(json["device"]["what"], missing);
    assert_eq!(json["steps"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["done"], false);
    assert_eq!(json["image"]["packed_here"], true);
    let ended = run(folder, &dry[..6]);
    let start = format!("error: rshim:7: {missing}; nothing was done (");
    assert!(ended.code == Some(1) && ended.err.starts_with(&start), "{}", ended.err);
}

/// A loader refuses what does not suit it, dry run or not.
#[test]
fn images_that_do_not_suit_a_loader() {
    let folder = desk();
    let folder = folder.path();
    fs::copy(env!("CARGO_BIN_EXE_unisono"), folder.join("tool")).expect("an ELF file");
    let line = "the image: it is for board tool, not for qemu-virt-aarch64";
    refused(folder, &["tool", "--to", "qemu:aarch64", "-n"], 1, line);
    let ended = run(folder, &["flash", "tool", "--to", "rshim:0", "--root", "root"]);
    let start = "error: rshim:0 cannot take this image: it is an ELF file, and a BlueField boots ";
    assert!(ended.code == Some(1) && ended.err.starts_with(start), "{}", ended.err);
}

#[test]
fn wrong_use() {
    let folder = desk();
    let folder = folder.path();
    let ended = run(folder, &["flash", "blue_field.bfb", "--to", "jtag"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.starts_with("error: jtag: no such loader; there are qemu:aarch64, "));
    let line = "blue_field.bfb: --board: \"A\" is no name of a board: at most 24 of a-z, 0-9, `-`, \
                `_` and `.`, the first a letter or digit";
    refused(folder, &["pack", "blue_field.bfb", "-o", "x.img", "--board", "A"], 2, line);
    fs::copy(folder.join("blue_field.bfb"), folder.join("B.bfb")).expect("a file");
    let ended = run(folder, &["flash", "pack", "B.bfb", "-o", "x.img"]);
    assert!(ended.err.starts_with("error: B.bfb: name its board with --board: "), "{}", ended.err);
    pack(folder, &[]);
    let line = "b.img: it has a header already";
    refused(folder, &["pack", "b.img", "-o", "c.img"], 1, line);
    for args in [&["flash"][..], &["flash", "b.img"], &["flash", "pack", "b.img"]] {
        assert_eq!(run(folder, args).code, Some(2), "{args:?}");
    }
    refused(folder, &["verify", "root"], 1, "root: not a regular file");
}

/// Keys and signatures are OpenSSL's.
#[test]
fn openssl_makes_the_keys() {
    let folder = desk();
    let folder = folder.path();
    for args in [
        &["genpkey", "-algorithm", "ed25519", "-out", "new.pem"][..],
        &["pkey", "-in", "new.pem", "-pubout", "-out", "new.pub"],
    ] {
        let made = Command::new("openssl").args(args).current_dir(folder).output();
        assert!(made.expect("openssl").status.success(), "{args:?}");
    }
    pack(folder, &["--sign", "new.pem"]);
    succeed(folder, &["flash", "verify", "b.img", "--trust", "new.pub"]);
    let image = read(folder, "b.img");
    fs::write(folder.join("head"), &image[..104]).expect("a file");
    fs::write(folder.join("signature"), &image[104..168]).expect("a file");
    let mut verify = Command::new("openssl");
    verify.args(["pkeyutl", "-verify", "-pubin", "-inkey", "new.pub", "-rawin", "-in", "head"]);
    let verified = verify.args(["-sigfile", "signature"]).current_dir(folder).output();
    let verified = verified.expect("openssl");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

//! Packages: what is written is read again, and whatever is wrong has its own line.

#[path = "elf/mod.rs"]
mod image;

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use unisono_core::wire::board::ABI;
use unisono_loader::{HEADER_BYTES, Key, Kind, Package, PackageError, Secret, Trust, Version};

/// The key of RFC 8032, section 7.1, test 1, as `openssl genpkey` writes keys.
const SECRET: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";
/// Its public key.
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
    -----END PUBLIC KEY-----\n";
/// The one of test 2.
const OTHER: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n\
    -----END PRIVATE KEY-----\n";

const VERSION: Version = Version([1, 20, 300]);

fn raw(payload: &[u8]) -> Package {
    Package::new(payload.to_vec(), "board-1", VERSION).expect("it can be packed")
}

fn file(package: &Package) -> Vec<u8> {
    [package.header(), package.payload()].concat()
}

fn secret(pem: &str) -> Secret {
    Secret::from_pem(pem).expect("a key")
}

/// Why this file is refused.
#[track_caller]
fn refused(bytes: &[u8]) -> PackageError {
    Package::parse(bytes.to_vec()).expect_err("it must be refused")
}

/// The file with some bytes changed.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file(&raw(b"payload"));
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// Every byte of the header, as the documentation has it.
#[test]
fn the_header_is_as_documented() {
    let mut expected = b"unisono\x1a".to_vec();
    expected.extend([1, 0]);
    expected.extend(ABI.to_le_bytes());
    expected.extend([1, 0, 20, 0, 44, 1]);
    expected.extend([3, 0, 0, 0, 0, 0]);
    expected.extend(b"board-1");
    expected.extend([0; 17]);
    expected.extend([0; 8]);
    expected.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(Sha256::digest(b"abc"));
    expected.extend([0; 72]);
    let package = raw(b"abc");
    assert_eq!(package.header(), expected);
    assert_eq!(HEADER_BYTES, expected.len());
    assert_eq!(
        package.sha256(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!((package.kind(), package.build(), package.abi()), (Kind::Raw, None, ABI));
}

#[test]
fn kinds_are_told_from_the_first_bytes() {
    assert_eq!(raw(b"\x42\x66\x02\x13 and so on").kind(), Kind::BootStream);
    assert_eq!(raw(b"\x42\x66\x02").kind(), Kind::Raw);
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("this very test");
    let package = raw(&own);
    assert_eq!(package.kind(), Kind::Elf);
    assert_eq!(package.elf().and_then(|elf| elf.uname()), Some(std::env::consts::ARCH));
    let again = Package::parse(file(&package)).expect("as written");
    assert_eq!(again.elf(), package.elf());
    let error = Package::new(b"\x7fELF, but no more".to_vec(), "b", VERSION).expect_err("damaged");
    assert!(matches!(error, PackageError::Elf(_)), "{error}");
}

/// Nothing but the image itself decides which board it is for.
#[test]
fn an_image_that_names_its_board_is_for_that_board() {
    let dpu = image::image(image::AARCH64, "dpu_linux", true);
    assert_eq!(Package::board_in(&dpu), Ok(Some("dpu-linux".to_owned())));
    assert_eq!(Package::board_in(b"raw"), Ok(None));
    for name in ["dpu_linux", "dpu-linux"] {
        let package = Package::new(dpu.clone(), name, VERSION).expect("its own name");
        assert_eq!(package.board(), "dpu-linux");
        assert_eq!(&package.header()[24..34], b"dpu-linux\0");
        assert_eq!(package.must_be_for("dpu_linux"), Ok(()));
    }
    let other = PackageError::OtherBoard { has: "dpu-linux".into(), wanted: "foo-1".into() };
    assert_eq!(Package::new(dpu.clone(), "foo_1", VERSION).map(drop), Err(other));
    // A header may say what it wants.
    let mut lie = file(&Package::new(dpu, "dpu-linux", VERSION).expect("packed"));
    lie[24] = b'b';
    let line = "its header is damaged: its payload is for another board than it says";
    assert_eq!(refused(&lie).to_string(), line);
    for name in ["", "../x", "A"] {
        let error = Package::board_in(&image::image(image::RISCV, name, false));
        assert_eq!(error, Err(PackageError::Section(name.to_owned())));
    }
}

/// Packed by a version that kept the name as it was given.
#[test]
fn a_header_may_have_the_name_of_a_file() {
    let mut old = file(&raw(b"payload"));
    old[29..31].copy_from_slice(b"_2");
    let package = Package::parse(old).expect("as written");
    assert_eq!(package.board(), "board-2");
    assert_eq!(package.must_be_for("board_2"), Ok(()));
}

/// Whatever else a file holds is named.
#[test]
fn keys_of_other_kinds_are_named() {
    // An X25519 key: the same container, another number.
    let x25519 = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VuBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
        -----END PRIVATE KEY-----\n";
    for (text, why) in [
        (x25519, "(the file holds a key of another kind)"),
        (PUBLIC, "(the file holds: PUBLIC KEY)"),
        ("-----BEGIN RSA PRIVATE KEY-----\n", "(the file holds: RSA PRIVATE KEY)"),
    ] {
        let error = Secret::from_pem(text).map(drop).expect_err(why);
        assert!(
            error.starts_with("no private ed25519 key in PEM ") && error.contains(why),
            "{error}"
        );
    }
    let error = Key::from_pem(&x25519.replace("PRIVATE", "PUBLIC")).map(drop).expect_err("none");
    assert!(error.starts_with("no public ed25519 key in PEM (") && !error.contains("1.3.101"));
}

#[test]
fn signatures_are_of_the_whole_header() {
    let mut package = raw(b"payload");
    package.sign(&secret(SECRET));
    let trust = Trust(vec![Key::from_pem(PUBLIC).expect("a key")]);
    let id = trust.check(&package).expect("signed");
    assert_eq!(package.signed_by(), Some(id));
    // The first bytes of `openssl pkey -pubin -outform DER | tail -c 32 | sha256sum`.
    assert_eq!(id.to_string(), "21fe31dfa154a261");
    let good = file(&package);
    assert!(trust.check(&Package::parse(good.clone()).expect("as written")).is_ok());
    // Board, version and build may be changed without breaking anything but the signature.
    for at in [12, 14, 16, 24, 104, 130, 167] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let bad = Package::parse(bad).expect("all but the signature is right");
        assert_eq!(trust.check(&bad), Err(PackageError::Signature(id)), "byte {at}");
    }
}

#[test]
fn only_trusted_keys_will_do() {
    let mut package = raw(b"payload");
    let trust = Trust(vec![Key::from_pem(PUBLIC).expect("a key")]);
    assert_eq!(trust.check(&package), Err(PackageError::Unsigned));
    package.sign(&secret(OTHER));
    let key = secret(OTHER).public().id();
    let trusted = secret(SECRET).public().id().to_string();
    assert_eq!(trust.check(&package), Err(PackageError::Stranger { key, trusted }));
    // Another's signature under a trusted name.
    let mut forged = file(&package);
    let mut own = raw(b"payload");
    own.sign(&secret(SECRET));
    forged[96..104].copy_from_slice(&own.header()[96..104]);
    let forged = Package::parse(forged).expect("all but the signature is right");
    assert!(matches!(trust.check(&forged), Err(PackageError::Signature(_))));
    // More than one may be trusted.
    let both = Trust(vec![secret(SECRET).public(), secret(OTHER).public()]);
    assert_eq!(both.check(&package), Ok(key));
}

#[test]
fn keys_that_are_none_are_named() {
    let error = Key::from_pem(SECRET).expect_err("private");
    assert!(error.contains("no public ed25519 key") && error.contains("-pubout"), "{error}");
    let error = Secret::from_pem(PUBLIC).expect_err("public");
    assert!(error.contains("no private ed25519 key") && error.contains("genpkey"), "{error}");
    assert!(Secret::from_pem("rubbish").is_err());
}

#[test]
fn everything_wrong_has_its_own_line() {
    let good = file(&raw(b"payload"));
    let damaged = PackageError::Header;
    for (bytes, error, line) in [
        (changed(0, b"U"), PackageError::Magic, "no unisono image"),
        (changed(7, b"\n"), PackageError::Magic, "no unisono image"),
        (changed(8, &[2]), PackageError::Format(2), "format 2, this program knows format 1"),
        (good[..9].to_vec(), PackageError::Short(9), "9 of 168 bytes"),
        (good[..167].to_vec(), PackageError::Short(167), "167 of 168 bytes"),
        (changed(10, &[9]), PackageError::Abi(9), "message ABI 9, this host"),
        (changed(18, &[0]), damaged("no such kind of payload"), "damaged"),
        (changed(18, &[2]), damaged("its payload is of another kind than it says"), "damaged"),
        (changed(19, &[2]), damaged("it is neither signed nor not signed"), "damaged"),
        (
            changed(96, &[1]),
            damaged("it says that it is not signed, and has a signature"),
            "damaged",
        ),
        (changed(23, &[1]), damaged("bytes that must be zero are not"), "damaged"),
        (changed(24, b"../"), damaged("the name of its board is none"), "board"),
        (changed(40, b"x"), damaged("the name of its board is none"), "board"),
        (changed(24, &[0]), damaged("the name of its board is none"), "board"),
        (changed(48, &[1]), damaged("its payload has another build id than it says"), "build"),
        (good[..170].to_vec(), PackageError::Length { says: 7, has: 2 }, "copy it again"),
        ([&good[..], b"x"].concat(), PackageError::Length { says: 7, has: 8 }, "but 8 follow"),
        (changed(63, &[255]), PackageError::Length { says: 7 | 255 << 56, has: 7 }, "bytes"),
    ] {
        assert_eq!(refused(&bytes), error);
        assert!(error.to_string().contains(line), "{error}");
    }
    let PackageError::Hash { says, has } = refused(&changed(168, b"P")) else { panic!("a hash") };
    assert_eq!(says, raw(b"payload").sha256());
    assert_eq!(has, raw(b"Payload").sha256());
    assert_eq!(refused(&[]), PackageError::Magic);
    assert!(matches!(Package::new(Vec::new(), "board", VERSION), Err(PackageError::Size(0))));
}

#[test]
fn names_of_boards_are_harmless() {
    for name in ["a", "0", "qemu-virt-aarch64", "a-b.c", "abcdefghijklmnopqrstuvwx"] {
        let package = Package::new(vec![1], name, VERSION).expect("a name");
        assert_eq!(package.board(), name);
        assert_eq!(package.must_be_for(name), Ok(()));
        let error = package.must_be_for("other").expect_err("another board").to_string();
        assert_eq!(error, format!("it is for board {name}, not for other"));
    }
    for name in ["", "-a", ".", "..", "A", "a/b", "a b", "ä", "a\0", "abcdefghijklmnopqrstuvwxy"] {
        let error = Package::new(vec![1], name, VERSION).expect_err(name);
        assert_eq!(error, PackageError::Board(name.to_owned()));
    }
}

#[test]
fn versions_are_three_numbers() {
    assert_eq!("1.20.300".parse(), Ok(VERSION));
    assert_eq!(VERSION.to_string(), "1.20.300");
    for wrong in ["", "1", "1.2", "1.2.3.4", "1.2.x", "1.2.65536", "-1.2.3"] {
        assert!(wrong.parse::<Version>().is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn what_is_packed_is_read_again(
        payload in prop::collection::vec(any::<u8>(), 1..2000),
        board in "[a-z0-9][a-z0-9._-]{0,23}",
        version in any::<[u16; 3]>(),
        sign in any::<bool>(),
    ) {
        prop_assume!(!payload.starts_with(b"\x7fELF"));
        let mut package = Package::new(payload.clone(), &board, Version(version)).expect("packed");
        if sign {
            package.sign(&secret(SECRET));
        }
        let again = Package::parse(file(&package)).expect("as written");
        prop_assert_eq!(again.payload(), payload);
        prop_assert_eq!(again.board(), board.replace('_', "-"));
        prop_assert_eq!(again.version(), Version(version));
        prop_assert_eq!(again.header(), package.header());
        prop_assert_eq!(again.signed_by().is_some(), sign);
    }

    /// Whatever follows the magic, reading it ends, and with what was said in the header.
    #[test]
    fn hostile_headers_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let magic = b"unisono\x1a\x01\0";
        bytes.splice(..0, magic.iter().copied());
        prop_assert!(Package::parse(bytes).is_err());
    }

    /// A changed bit is noticed: in the payload and in most of the header by `parse`, in the rest
    /// by the signature.
    #[test]
    fn no_bit_can_be_changed(at in 0usize..(168 + 7), bit in 0u8..8) {
        let mut package = raw(b"payload");
        package.sign(&secret(SECRET));
        let trust = Trust(vec![secret(SECRET).public()]);
        let mut bytes = file(&package);
        bytes[at] ^= 1 << bit;
        let outcome = Package::parse(bytes).and_then(|package| trust.check(&package));
        prop_assert!(outcome.is_err());
    }
}

/// An image's own word counts, when it is packed and when it is read.
#[test]
fn an_image_of_another_message_abi_is_refused() {
    let image = |abi: &[u8]| image::image_of_abi(image::AARCH64, "dpu_linux", true, abi);
    let pack = |payload: Vec<u8>| Package::new(payload, "dpu_linux", VERSION);
    let own = pack(image(&ABI.to_le_bytes())).expect("of this version");
    assert!(own.names_abi());
    assert_eq!(own.abi(), ABI);
    let mute = pack(image::image(image::AARCH64, "dpu_linux", true)).expect("it names none");
    assert!(!mute.names_abi() && !raw(b"abc").names_abi());
    let other = ABI + 0x102;
    assert_eq!(pack(image(&other.to_le_bytes())).err(), Some(PackageError::Abi(other)));
    let text = PackageError::Abi(other).to_string();
    assert!(text.contains(&format!("speaks message ABI {other}, this host {ABI}:")), "{text}");
    let short = pack(image(&[1])).expect_err("no ABI").to_string();
    assert_eq!(short, "its section .unisono.abi has 1 bytes; a message ABI has 2");
    // A header that claims this host's, as packers wrote that did not look.
    let mut file = file(&own);
    let section = [&b"dpu_linux\0\0\0"[..], &ABI.to_le_bytes()].concat();
    let at = file.windows(section.len()).position(|part| part == section).expect("the section");
    file[at + 12..at + 14].copy_from_slice(&other.to_le_bytes());
    let sum = Sha256::digest(&file[HEADER_BYTES..]);
    file[64..96].copy_from_slice(&sum);
    assert_eq!(refused(&file), PackageError::Abi(other));
}

//! Whatever is wrong: one line on stderr, nothing on stdout, no file left behind.

use crate::tool::{Ended, Tensor, folder, names, rank_files, run, write};
use safetensors::Dtype;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs `reduce` with the output `out.st`, which must fail with this code and message.
#[track_caller]
fn refused(folder: &Path, args: &[&str], code: i32, message: &str) {
    let before = names(folder);
    let args = [&["reduce"][..], args].concat();
    let args = if args.contains(&"-o") { args } else { [&args[..], &["-o", "out.st"]].concat() };
    let Ended { code: got, out, err } = run(folder, &args);
    assert_eq!((got, out.as_str()), (Some(code), ""), "{args:?}: {err}");
    assert_eq!(err, format!("error: {message}\n"), "{args:?}");
    assert_eq!(names(folder), before, "{args:?} left something behind");
}

#[test]
fn broken_files() {
    let folder = folder();
    let put = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    };
    let whole = std::fs::read(&rank_files()[0]).expect("gradients");
    put("good.st", &whole);
    put("tiny.st", b"1234");
    put("text.st", b"certainly not a tensor");
    put("cut.st", &whole[..whole.len() - 10]);
    put("head.st", &whole[..100]);
    put("long.st", &[&whole[..], b"more"].concat());
    put("json.st", &[&8u64.to_le_bytes()[..], b"{\"a\":1}}"].concat());
    let header = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#;
    put("size.st", &[&(header.len() as u64).to_le_bytes()[..], header, b"1234"].concat());
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    let no_file = "not a safetensors file";
    for (file, message) in [
        ("tiny.st", format!("tiny.st: {no_file}: 4 bytes are too few")),
        ("text.st", format!("text.st: {no_file}: it begins with no plausible size of a header")),
        ("cut.st", "cut.st: truncated: its header speaks of 203752 bytes, 203742 are there".into()),
        (
            "head.st",
            "head.st: truncated: a header of 440 bytes, but only 92 bytes are there".into(),
        ),
        ("long.st", format!("long.st: {no_file}: 4 bytes after the last tensor")),
        ("folder", "folder: not a regular file".into()),
        ("gone.st", "gone.st: No such file or directory (os error 2)".into()),
        (
            "size.st",
            format!(
                "size.st: {no_file}: its header makes no sense: invalid shape, data type, or \
                 offset for tensor"
            ),
        ),
    ] {
        refused(folder.path(), &["good.st", file], 1, &message);
    }
    let json = run(folder.path(), &["reduce", "json.st", "-o", "out.st"]);
    assert_eq!(json.code, Some(1));
    assert!(json.err.starts_with("error: json.st: not a safetensors file: its header makes no"));
    assert_eq!(json.err.lines().count(), 1);
}

/// Whichever entry counts, another reader of the output may take the other one.
#[test]
fn a_name_twice_in_a_header() {
    let folder = folder();
    let put = |name: &str, header: &str, data: &[u8]| {
        let header = format!("{{{header}}}");
        let size = (header.len() as u64).to_le_bytes();
        let file = [&size[..], header.as_bytes(), data].concat();
        std::fs::write(folder.path().join(name), file).expect("a file");
    };
    let one = |from: usize| {
        let to = from + 4;
        format!(r#""w":{{"dtype":"F32","shape":[1],"data_offsets":[{from},{to}]}}"#)
    };
    let about = r#""__metadata__":{"a":"b"}"#;
    put("same.st", &format!("{},{}", one(0), one(0)), b"1234");
    put("gap.st", &format!("{},{}", one(0), one(4)), b"12345678");
    put("about.st", &format!("{about},{about},{}", one(0)), b"1234");
    put("good.st", &format!("{about},{}", one(0)), b"1234");
    for (file, what) in
        [("same.st", "tensor \"w\""), ("gap.st", "tensor \"w\""), ("about.st", "its metadata")]
    {
        let message = format!("{file}: not a safetensors file: its header names {what} twice");
        refused(folder.path(), &["good.st", file], 1, &message);
        refused(folder.path(), &[file, file], 1, &message);
    }
    assert_eq!(run(folder.path(), &["reduce", "good.st", "-o", "o.st"]).code, Some(0));
}

#[test]
fn files_that_do_not_belong_together() {
    let folder = folder();
    let tensor = |dtype, shape: &[usize], bytes| {
        let (name, shape) = ("w", shape.to_vec());
        Tensor { name, dtype, shape, data: vec![1; bytes] }
    };
    let other = Tensor::f32("v", &[1], &[1.0]);
    let put = |name: &str, tensors: &[Tensor]| write(&folder.path().join(name), tensors, None);
    put("a.st", &[tensor(Dtype::F32, &[2, 3], 24)]);
    put("shape.st", &[tensor(Dtype::F32, &[3, 2], 24)]);
    put("dtype.st", &[tensor(Dtype::I32, &[2, 3], 24)]);
    put("more.st", &[tensor(Dtype::F32, &[2, 3], 24), other.clone()]);
    put("name.st", &[other]);
    put("bool.st", &[tensor(Dtype::BOOL, &[3], 3)]);
    for (file, message) in [
        ("shape.st", "tensor \"w\" has shape [2, 3] on rank 0 (a.st), but [3, 2] on rank 2"),
        ("dtype.st", "tensor \"w\" is f32 on rank 0 (a.st), but i32 on rank 2"),
        ("name.st", "tensor \"w\" of rank 0 (a.st) is missing on rank 2"),
    ] {
        refused(folder.path(), &["a.st", "a.st", file], 1, &format!("{message} ({file})"));
    }
    let more = "tensor \"v\" of rank 1 (more.st) is missing on rank 0 (a.st)";
    refused(folder.path(), &["a.st", "more.st"], 1, more);
    let boolean = "bool.st: tensor \"w\" is of type BOOL, which cannot be reduced (F64, F32, F16, \
                   BF16, F8_E4M3, F8_E5M2 and integers can)";
    refused(folder.path(), &["bool.st"], 1, boolean);
    let xor = "xor works on integers only, but tensor \"w\" is f32 (a.st)";
    refused(folder.path(), &["a.st", "--op", "xor"], 2, xor);
}

#[test]
fn wrong_use() {
    let folder = folder();
    write(&folder.path().join("a.st"), &[Tensor::f32("w", &[2], &[1.0, 2.0])], None);
    let four = ["a.st", "a.st", "a.st", "a.st"];
    let value = |what: &str, option: &str, why: &str| {
        format!("invalid value '{what}' for '{option}': {why}")
    };
    let gpu = "metal: no such device; there are cpu, vulkan:…, opencl:…, dpu:… and auto \
               (`unisono devices` lists them)";
    let gpu = value("cpu,metal", "--on <DEVICES>", gpu);
    let no_ring = "no schedule can do all-reduce over 4 ranks here: ring does not keep the \
                   canonical order, so sum of f32 would depend on the schedule; choose another one \
                   or allow any order";
    for (options, message) in [
        (&["--on", "cpu,metal"][..], gpu.as_str()),
        (&["--on", "cpu:3"], "--on names 3 ranks, but the command names 4 files"),
        (&["--op", "mulsum"], "mulsum needs --weights, one a rank"),
        (&["--weights", "1,1,1,1"], "--weights belong to --op mulsum, not to sum"),
        (&["--algo", "ring"], no_ring),
        (&["--window", "0"], "cannot build the group: a window must be 1 to 16 chunks"),
        (&["--chunk", "3B"], "a chunk of 3 bytes holds no element of f32"),
        (&["--algo", "hierarchical:9"], "a hierarchy of 9 nodes over 4 ranks is not possible"),
        (&["--algo", "hub:9"], "a hub of 9 nodes over 4 ranks is not possible"),
        (&["--algo", "star:99"], "cannot build the group: 103 members; at most 64 threads fit"),
        (
            &["--timeout", "5"],
            &value("5", "--timeout <TIME>", "a time needs a unit: ns, us, ms, s, min or h"),
        ),
    ] {
        refused(folder.path(), &[&four[..], options].concat(), 2, message);
    }
    let many = vec!["a.st"; 65];
    let message = "cannot build the group: 65 members; at most 64 threads fit";
    refused(folder.path(), &many, 2, message);
    let ended = run(folder.path(), &["reduce", "a.st"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("--output <FILE>"), "{}", ended.err);
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = folder();
    write(&folder.path().join("a.st"), &[Tensor::f32("w", &[2], &[1.0, 2.0])], None);
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    for (output, message) in [
        ("gone/out.st", "cannot write gone/out.st: no folder gone"),
        ("a.st/out.st", "cannot write a.st/out.st: Not a directory (os error 20)"),
        ("new/", "cannot write new/: that is the name of a folder"),
        ("new/.", "cannot write new/.: that is the name of a folder"),
        ("folder", "cannot write folder: it is not a regular file"),
        ("/", "cannot write /: it is not a regular file"),
    ] {
        refused(folder.path(), &["a.st", "-o", output], 1, message);
    }
}

/// A folder that exists is not said to be missing, and no temporary file is named.
#[cfg(target_os = "linux")]
#[test]
fn outputs_in_folders_of_the_kernel() {
    let folder = folder();
    write(&folder.path().join("a.st"), &[Tensor::f32("w", &[2], &[1.0, 2.0])], None);
    let none = "cannot write /proc/x: the folder /proc takes no new file";
    refused(folder.path(), &["a.st", "-o", "/proc/x"], 1, none);
    // Not even for root.
    let ended = run(folder.path(), &["reduce", "a.st", "-o", "/sys/x"]);
    let start = "error: cannot write /sys/x: the folder /sys takes no new file: ";
    assert!(ended.err.starts_with(start) && !ended.err.contains(".part"), "{}", ended.err);
    assert_eq!((ended.code, ended.err.lines().count()), (Some(1), 1));
    let dash = "cannot write -: results go to files (`./-` is one)";
    refused(folder.path(), &["a.st", "-o", "-"], 1, dash);
    let pipe = "cannot write /dev/stdout: it is not a regular file";
    refused(folder.path(), &["a.st", "-o", "/dev/stdout"], 1, pipe);
}

#[cfg(target_os = "linux")]
#[test]
fn links_that_lead_nowhere() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    let link = |to: &str, name: &str| symlink(to, folder.path().join(name)).expect("a link");
    write(&folder.path().join("a.st"), &[Tensor::f32("w", &[2], &[1.0, 2.0])], None);
    link("two.st", "one.st");
    link("one.st", "two.st");
    link("gone/out.st", "far.st");
    link("new/", "folder.st");
    let round = "cannot write one.st: Too many levels of symbolic links (os error 40)";
    for (output, message) in [
        ("one.st", round),
        ("far.st", "cannot write far.st: no folder gone"),
        ("folder.st", "cannot write folder.st: that is the name of a folder"),
    ] {
        refused(folder.path(), &["a.st", "-o", output], 1, message);
    }
}

#[test]
fn a_time_limit_ends_a_call() {
    let folder = folder();
    let zeros = vec![0.0; 1 << 20];
    write(&folder.path().join("a.st"), &[Tensor::f32("w", &[1 << 20], &zeros)], None);
    let args = ["reduce", "a.st", "a.st", "a.st", "a.st", "-o", "out.st"];
    let slow = ["--chunk", "1", "--window", "1", "--timeout", "1us"];
    let ended = run(folder.path(), &[&args[..], &slow].concat());
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
    assert!(ended.err.contains("gave up after 1µs without any progress"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1);
    assert_eq!(names(folder.path()), ["a.st"]);
}

/// Opening a pipe would wait for a writer for ever.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_input() {
    let folder = folder();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    let ended = run(folder.path(), &["reduce", "pipe", "-o", "out.st"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), "error: pipe: not a regular file\n"));
}

/// A limit on the size of files, like a full disk, is met in the middle of the output.
#[cfg(unix)]
#[test]
fn an_output_that_must_not_grow_leaves_nothing() {
    let folder = folder();
    let tool = env!("CARGO_BIN_EXE_unisono");
    let limited = format!("ulimit -f 10; exec {tool} reduce '{}' -o lim.st", rank_files()[0]);
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &limited]).current_dir(folder.path()).output();
    let output = output.expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let error = "error: writing lim.st: File too large (os error 27)\n";
    assert_eq!((output.status.code(), text.as_str()), (Some(1), error));
    assert!(output.stdout.is_empty());
    assert_eq!(names(folder.path()), [""; 0]);
}

/// A window that nobody answers behind: the user's time counts, not the ten seconds or the half a
/// minute that a board has by default.
#[test]
fn a_mute_board_has_as_much_time_as_was_given() {
    let folder = folder();
    let window = std::fs::File::create(folder.path().join("window")).expect("a file");
    window.set_len(8 << 20).expect("room");
    let files = &rank_files()[..2];
    let on = ["--on", "cpu,cpu,dpu:file:window", "--timeout", "1500ms"];
    let started = Instant::now();
    let message = "board file:window: no answer to a new window within 1.5s";
    refused(folder.path(), &[&[&*files[0], &*files[1]], &on[..]].concat(), 1, message);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

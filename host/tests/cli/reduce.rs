//! The main job on real gradients, against bits that numpy made.

use crate::tool::{command, digits, folder, names, rank_files, succeed};
use safetensors::SafeTensors;
use std::path::Path;

/// Every tensor's bytes by name.
fn tensors(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("the file is there");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let mut all: Vec<_> =
        file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect();
    all.sort();
    all
}

#[test]
fn every_canonical_schedule_gives_numpys_bits() {
    let folder = folder();
    let want = tensors(&digits().join("sum_canonical.safetensors"));
    let files = rank_files();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let mut shas = Vec::new();
    for (algo, options) in [
        ("auto", &[][..]),
        ("auto", &["--bucket", "0", "--window", "1"]),
        ("auto", &["--order", "any"]),
        ("direct", &["--chunk", "7", "--window", "2"]),
        ("direct", &["--chunk", "1"]),
        ("direct", &["--chunk", "1G", "--window", "1"]),
        ("one-shot", &["--chunk", "4KiB"]),
        ("one-shot", &["--chunk", "7", "--window", "1"]),
        ("binomial", &["--chunk", "1000", "--window", "3"]),
        ("binomial", &["--chunk", "100000000"]),
        ("halving-doubling", &["--chunk", "7", "--window", "16"]),
        ("halving-doubling", &["--bucket", "1K"]),
        ("star", &["--chunk", "7"]),
        ("star:3", &["--chunk", "64KiB", "--window", "2"]),
        ("hierarchical", &["--chunk", "7"]),
        ("hierarchical:4", &["--window", "1"]),
        ("hub", &["--chunk", "7"]),
        ("hub:4", &["--window", "1"]),
    ] {
        let args = ["reduce", "--on", "cpu,cpu,cpu,cpu", "--op", "sum", "-o", "sum.safetensors"];
        let rest = ["--verify", "--algo", algo];
        let args = [&args[..], &files, &rest, options].concat();
        let report = succeed(folder.path(), &args);
        assert!(tensors(&folder.path().join("sum.safetensors")) == want, "{algo} {options:?}");
        assert!(report.contains("0 elements differ"), "{report}");
        assert!(report.contains("(50826 compared bit by bit)"), "{report}");
        shas.extend(report.lines().find(|l| l.starts_with("sha256")).map(str::to_owned));
    }
    assert_eq!(shas.len(), 18);
    assert!(shas.iter().all(|sha| *sha == shas[0]), "{shas:?}");
    assert_eq!(names(folder.path()), ["sum.safetensors"]);
}

#[test]
fn another_order_is_the_same_on_all_ranks_and_near() {
    let folder = folder();
    let files = rank_files();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    for algo in ["ring", "double-tree"] {
        let args = ["reduce", "-o", "sum.st", "--algo", algo, "--order", "any", "--chunk", "1000"];
        let args = [&args[..], &["--verify", "--json"], &files].concat();
        let report: serde_json::Value =
            serde_json::from_str(&succeed(folder.path(), &args)).expect("JSON");
        let verify = &report["verify"];
        assert_eq!(verify["canonical"], false);
        assert_eq!(verify["elements"], 50_826);
        assert!(verify["differ"].as_u64().is_some_and(|n| n > 0 && n < 50_826), "{verify}");
        assert!(verify["error"]["max_ulp"].as_f64().is_some_and(|e| e > 0.1 && e < 2.0));
        assert_eq!(report["sections"][0]["schedule"], algo);
    }
}

#[test]
fn the_report_says_what_was_done() {
    let folder = folder();
    let files = rank_files();
    let args = ["reduce", "--on", "cpu:2", "-o", "out.st", "--bucket", "0", &files[0], &files[1]];
    let text = succeed(folder.path(), &args);
    let keys: Vec<_> = text.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(keys, ["group", "input", "plan", "time", "sha256", "output"], "{text}");
    assert!(text.contains("group    2 ranks on cpu ("), "{text}");
    assert!(text.contains("input    6 tensors, 203 kB a rank"), "{text}");
    assert!(text.contains("50826 elements in 6 buckets"), "{text}");
    let json = [&args[..], &["--json"]].concat();
    let report: serde_json::Value =
        serde_json::from_str(&succeed(folder.path(), &json)).expect("JSON");
    assert_eq!(report["ranks"], 2);
    assert_eq!(report["bytes"], 203_304);
    assert_eq!(report["sections"][0]["buckets"], 6);
    let (algbw, busbw) = (report["algbw"].as_f64(), report["busbw"].as_f64());
    // Two ranks: 2 (n-1) / n is 1.
    assert!(algbw.is_some_and(|b| b > 0.0) && algbw == busbw, "{report}");
    assert!(text.contains(report["sha256"].as_str().expect("a hash")));
}

#[test]
fn the_hash_is_that_of_the_tensors_in_the_order_of_names() {
    use sha2::{Digest, Sha256};
    let folder = folder();
    let files = rank_files();
    let report = succeed(folder.path(), &["reduce", &files[0], "-o", "same.st", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let all = tensors(Path::new(&files[0]));
    let hash = Sha256::digest(all.into_iter().flat_map(|(_, data)| data).collect::<Vec<_>>());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(report["sha256"], hash.as_str());
    // The sum over one rank is that rank's file, header and all.
    let same = std::fs::read(folder.path().join("same.st")).expect("the output");
    assert!(same == std::fs::read(&files[0]).expect("the input"));
}

/// Who may read a file is not changed by replacing it.
#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("sum.st");
    std::fs::write(&output, "old").expect("written");
    let files = rank_files();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    for mode in [0o600, 0o640] {
        let wanted = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&output, wanted).expect("our own file");
        succeed(folder.path(), &[&["reduce", "-o", "sum.st"][..], &files].concat());
        let got = std::fs::metadata(&output).expect("a file").permissions().mode() & 0o777;
        assert_eq!(got, mode, "{got:o}");
    }
}

#[test]
fn an_input_is_replaced_only_on_demand() {
    let folder = folder();
    let file = folder.path().join("a.st");
    std::fs::copy(&rank_files()[0], &file).expect("a copy");
    let before = std::fs::read(&file).expect("the copy");
    let args = ["reduce", "a.st", "a.st", "-o", "./a.st"];
    let refused = crate::tool::run(folder.path(), &args);
    assert_eq!(refused.code, Some(2));
    assert_eq!(refused.err, "error: a.st is input and output; --force allows it\n");
    assert!(std::fs::read(&file).expect("still there") == before);
    succeed(folder.path(), &[&args[..], &["--force"]].concat());
    assert!(std::fs::read(&file).expect("the sum") != before);
    assert_eq!(names(folder.path()), ["a.st"]);
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_stays_one() {
    let folder = folder();
    std::fs::write(folder.path().join("target.st"), "old").expect("a file");
    std::os::unix::fs::symlink("target.st", folder.path().join("link.st")).expect("a link");
    let files = rank_files();
    succeed(folder.path(), &["reduce", &files[0], "-o", "link.st"]);
    let link = std::fs::symlink_metadata(folder.path().join("link.st")).expect("the link");
    assert!(link.is_symlink());
    let target = std::fs::read(folder.path().join("target.st")).expect("the target");
    assert!(target == std::fs::read(&files[0]).expect("the input"));
}

/// What a link points to need not be there yet; a relative target starts at the link.
#[cfg(unix)]
#[test]
fn a_dangling_link_is_followed() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let files = rank_files();
    let want = std::fs::read(&files[0]).expect("the input");
    std::fs::create_dir(at("links")).expect("a folder");
    std::fs::create_dir(at("results")).expect("a folder");
    symlink("../results/new.st", at("links/relative.st")).expect("a link");
    symlink("links/relative.st", at("twice.st")).expect("a link");
    symlink(at("results/other.st"), at("absolute.st")).expect("a link");
    for (output, target) in [
        ("links/relative.st", "results/new.st"),
        ("twice.st", "results/new.st"),
        ("absolute.st", "results/other.st"),
    ] {
        succeed(folder.path(), &["reduce", &files[0], "-o", output]);
        assert!(std::fs::read_link(at(output)).is_ok(), "{output} is no link any more");
        assert!(std::fs::read(at(target)).expect("the target") == want, "{output}");
        std::fs::remove_file(at(target)).expect("the target");
        assert_eq!(names(&at("results")), [""; 0]);
    }
}

#[test]
fn no_bar_and_no_colours_where_nobody_looks() {
    let folder = folder();
    let files = rank_files();
    let args = ["reduce", &files[0], "-o", "o.st", "--verify"];
    assert!(!succeed(folder.path(), &args).contains('\u{1b}'));
    let coloured = succeed(folder.path(), &[&args[..], &["--color", "always"]].concat());
    assert!(coloured.contains('\u{1b}'), "{coloured}");
    let forced = command(folder.path()).args(args).env("CLICOLOR_FORCE", "1").output();
    assert!(forced.is_ok_and(|o| o.stdout.contains(&0x1b)));
}

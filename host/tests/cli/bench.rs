//! The benchmark's table, column by column, and its JSON.

use crate::tool::{folder, names, run, succeed};

const HEADER: [&str; 3] = [
    "#                                                              \
     out-of-place                       in-place          ",
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     \
     time   algbw   busbw  #wrong ",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             \
     (us)  (GB/s)  (GB/s)         ",
];

/// The lines with results.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split_whitespace().collect()).collect()
}

#[track_caller]
fn numbers(row: &[&str]) {
    for field in [5, 6, 7, 9, 10, 11] {
        let number = row[field].parse::<f64>();
        assert!(number.is_ok_and(|n| n >= 0.0), "{row:?}");
    }
}

#[test]
fn the_table_is_that_of_nccl_tests() {
    let folder = folder();
    let args = ["bench", "all_reduce", "-b", "8", "-e", "32K", "-f", "64", "-t", "3", "-n", "4"];
    let text = succeed(folder.path(), &args);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("# unisono "), "{text}");
    assert_eq!(lines[1], "# Collective test starting: all_reduce_perf");
    let settings = "# nThread 3 nGpus 1 minBytes 8 maxBytes 32768 step: 64(factor) warmup iters: 1 \
                    iters: 4 agg iters: 1 validation: 1 graph: 0 unalign: 0";
    assert_eq!(lines[2..5], [settings, "#", "# Using devices"]);
    for rank in 0..3 {
        let line = lines[5 + rank];
        assert!(line.starts_with(&format!("#  Rank  {rank} Group  0 Pid ")), "{line}");
        assert!(line.contains(&format!(" device  {rank} [0000:00:00] ")), "{line}");
    }
    assert_eq!(lines[8], "#");
    assert_eq!(lines[9..12], HEADER);
    let rows = rows(&text);
    let left: Vec<_> = rows.iter().map(|row| row[..5].join(" ")).collect();
    let expected = ["8 2 float sum -1", "512 128 float sum -1", "32768 8192 float sum -1"];
    assert_eq!(left, expected);
    for row in &rows {
        assert_eq!((row.len(), row[8], row[12]), (13, "0", "0"), "{row:?}");
        numbers(row);
    }
    for line in &lines[12..15] {
        // As wide as the header without the space at its end, and every column ends where it ends.
        assert_eq!(line.len(), HEADER[1].len() - 1, "{line}");
    }
    assert_eq!(lines[15], "# Out of bounds values : 0 OK");
    assert!(lines[16].starts_with("# Avg bus bandwidth    : "), "{text}");
    assert_eq!(lines[17..], ["#", "# Collective test concluded: all_reduce_perf", "#"]);
}

#[test]
fn every_collective_is_right() {
    let folder = folder();
    for (name, op, root, size) in [
        ("all_reduce", "sum", "-1", "100000"),
        ("reduce_scatter", "sum", "-1", "99968"),
        ("all_gather", "none", "-1", "99968"),
        ("reduce", "sum", "2", "100000"),
        ("broadcast", "none", "2", "100000"),
        ("all_to_all", "none", "-1", "99968"),
    ] {
        let args = ["bench", name, "-b", "100000", "-e", "100000", "-t", "4", "-n", "1", "-r", "2"];
        let text = succeed(folder.path(), &args);
        let rows = rows(&text);
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row[0], row[3], row[4], row[8]), (size, op, root, "0"), "{row:?}");
        // nccl-tests does not check an all-to-all in place either.
        let in_place = if name == "all_to_all" { "N/A" } else { "0" };
        assert_eq!(row[12], in_place, "{row:?}");
        assert!(text.contains("# Out of bounds values : 0 OK"), "{text}");
    }
}

/// Members without data have no buffers, whatever the call.
#[test]
fn every_collective_is_right_with_aggregators() {
    let folder = folder();
    for name in ["all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast"] {
        for algo in ["star:2", "hub:2"] {
            let size = ["bench", name, "--algo", algo, "-b", "1200", "-e", "1200"];
            let text = succeed(folder.path(), &[&size[..], &["-t", "3", "-n", "1"]].concat());
            let rows = rows(&text);
            assert_eq!(rows.len(), 1, "{name} {algo}");
            assert_eq!((rows[0][8], rows[0][12]), ("0", "0"), "{name} {algo}: {text}");
        }
    }
}

#[test]
fn all_types_and_operators() {
    let folder = folder();
    let args = ["bench", "-d", "all", "-o", "all", "-b", "10K", "-e", "10K", "-t", "3", "-n", "1"];
    let text = succeed(folder.path(), &args);
    // Six operators for each of 14 types, three more for each of the 8 integers.
    assert_eq!(rows(&text).len(), 14 * 6 + 8 * 3);
    assert!(rows(&text).iter().all(|row| row[8] == "0" && row[12] == "0"), "{text}");
    let any = ["--algo", "ring", "--order", "any", "--chunk", "100"];
    let text = succeed(folder.path(), &[&args[..], &any].concat());
    assert!(rows(&text).iter().all(|row| row[8] == "0" && row[12] == "0"), "{text}");
    for algo in ["one-shot", "binomial", "halving-doubling", "star:2", "hierarchical:3"] {
        let options = ["--algo", algo, "--chunk", "1KiB", "--window", "3"];
        let text = succeed(folder.path(), &[&args[..], &options].concat());
        assert!(text.contains("# Out of bounds values : 0 OK"), "{algo}: {text}");
    }
}

#[test]
fn results_as_json() {
    let folder = folder();
    let args = ["bench", "-b", "4K", "-e", "12K", "-i", "4K", "-t", "2", "-n", "3", "-J", "r.json"];
    let options = ["--samples", "5", "--median", "-a", "3", "-d", "bfloat16", "-o", "avg"];
    let text = succeed(folder.path(), &[&args[..], &options].concat());
    assert_eq!(rows(&text).len(), 3);
    let json = std::fs::read_to_string(folder.path().join("r.json")).expect("the file");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let results = json["results"].as_array().expect("rows");
    assert_eq!(results.len(), 3);
    for (i, row) in results.iter().enumerate() {
        assert_eq!(row["size"], 4096 * (i + 1));
        assert_eq!(row["count"], 2048 * (i + 1));
        assert_eq!((&row["type"], &row["redop"]), (&"bfloat16".into(), &"avg".into()));
        assert_eq!((&row["root"], &row["actual_iterations"]), (&(-1).into(), &3.into()));
        for half in ["out_of_place", "in_place"] {
            let half = &row[half];
            let number = |name: &str| half[name].as_f64().expect(name);
            assert!(number("min_time") > 0.0 && number("min_time") <= number("median_time"));
            assert_eq!(number("time"), number("median_time"));
            assert_eq!(number("nwrong"), 0.0);
            let rate = row["size"].as_f64().expect("size") / number("time") / 1e3;
            assert!((number("alg_bw") / rate - 1.0).abs() < 1e-9);
            // Two ranks: the factor is 1.
            assert!((number("bus_bw") / rate - 1.0).abs() < 1e-9);
        }
    }
    assert_eq!(json["out_of_bounds"], serde_json::json!({"count": 0, "okay": true}));
    assert!(json["average_bus_bandwidth"]["bandwidth"].as_f64().is_some_and(|b| b > 0.0));
}

#[test]
fn without_a_check_there_is_no_verdict() {
    let folder = folder();
    let args = ["bench", "-b", "0", "-e", "64", "-i", "64", "-t", "2", "-n", "1", "-c", "0"];
    let text = succeed(folder.path(), &args);
    let rows = rows(&text);
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), ["0", "64"]);
    assert!(rows.iter().all(|row| row[8] == "N/A" && row[12] == "N/A"), "{text}");
}

#[test]
fn folds_are_measured_and_checked() {
    let folder = folder();
    let args = ["bench", "fold", "-k", "3", "-b", "64K", "--budget", "1ms", "--json"];
    let report: serde_json::Value =
        serde_json::from_str(&succeed(folder.path(), &args)).expect("JSON");
    let folds = report["folds"].as_array().expect("rows");
    assert_eq!(folds.len(), 14 * 6 + 8 * 3);
    for fold in folds {
        assert_eq!(fold["wrong"], 0, "{fold}");
        let (median, best) = (fold["median"].as_f64(), fold["best"].as_f64());
        assert!(median.is_some_and(|m| m > 0.0) && best >= median, "{fold}");
    }
    assert!(report["memcpy"].as_f64().is_some_and(|m| m > 0.0));
    let text = succeed(folder.path(), &[&args[..8], &["-d", "half", "-o", "sum"]].concat());
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("3 sources of 65536 bytes"), "{text}");
    assert_eq!(
        lines[2].split_whitespace().collect::<Vec<_>>().join(" "),
        "type op GB/s best of memcpy #wrong"
    );
    assert!(lines[3].starts_with("half  sum  ") && lines.len() == 4, "{text}");
}

#[test]
fn nonsense_is_refused_before_anything_is_printed() {
    let folder = folder();
    for (options, message) in [
        (&["all_reduce", "-b", "2", "-e", "1"][..], "-b 2 is above -e 1"),
        (&["-f", "1"], "-f must be at least 2"),
        (&["-b", "0", "-f", "2"], "-f needs -b above 0"),
        (&["-i", "0"], "-i must be at least 1"),
        (&["-b", "1", "-e", "1G", "-i", "1"], "more than 100000 sizes: make the step larger"),
        (&["broadcast", "-r", "4", "-t", "4"], "root 4 of 4 ranks"),
        (&["-o", "xor"], "xor works on integers only, not on f32"),
        (&["-t", "0"], "cannot build the group: it has no rank; give at least one"),
        (
            &["all_gather", "--algo", "binomial", "-t", "2"],
            "no schedule can do all-gather over 2 ranks here: binomial has no routes for it",
        ),
    ] {
        let ended = run(folder.path(), &[&["bench"][..], options].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{options:?}");
        assert_eq!(ended.err, format!("error: {message}\n"), "{options:?}");
    }
}

/// Whoever measures for an hour must not learn at its end that the results went nowhere.
#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_printed() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    for (file, message) in [
        ("gone/r.json", "no folder gone"),
        ("new/", "that is the name of a folder"),
        ("folder", "it is not a regular file"),
        #[cfg(target_os = "linux")]
        ("/proc/r.json", "the folder /proc takes no new file"),
    ] {
        let args = ["bench", "-b", "8", "-e", "8", "-t", "2", "-n", "1", "-J", file];
        let ended = run(folder.path(), &args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{file}");
        assert_eq!(ended.err, format!("error: cannot write {file}: {message}\n"));
        assert_eq!(names(folder.path()), ["folder"]);
    }
}

/// A pipe or a device takes the results as it is.
#[cfg(unix)]
#[test]
fn results_into_a_pipe() {
    let folder = folder();
    let args = ["bench", "-b", "8", "-e", "8", "-t", "2", "-n", "1", "-J"];
    succeed(folder.path(), &[&args[..], &["/dev/null"]].concat());
    let both = succeed(folder.path(), &[&args[..], &["/dev/stdout"]].concat());
    let json = &both[both.find('{').expect("JSON behind the table")..];
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(json["results"].as_array().map(Vec::len), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_there_is_no_matter_of_the_group() {
    let folder = folder();
    let size = (1u64 << 53).to_string();
    for ranks in ["1", "3"] {
        let ended = run(folder.path(), &["bench", "-b", &size, "-e", &size, "-t", ranks]);
        let error =
            format!("error: {size} bytes of memory: Cannot allocate memory (os error 12)\n");
        assert_eq!((ended.code, ended.err), (Some(1), error));
    }
}

#[test]
fn nothing_is_no_size_of_a_fold() {
    let folder = folder();
    for what in [&["fold"][..], &["device", "vulkan:0"]] {
        let ended = run(folder.path(), &[&["bench"], what, &["-b", "0"]].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{what:?}");
        assert!(
            ended.err.contains("'0' for '--bytes <SIZE>': it must be above 0"),
            "{}",
            ended.err
        );
    }
}

/// Before the first row, and not after N calls.
#[test]
fn what_cannot_plan_anew_is_refused() {
    let folder = folder();
    let args = ["bench", "-t", "2", "-b", "8", "-e", "8", "-n", "1", "--replan", "100"];
    let ended = run(folder.path(), &args);
    let error = "error: --replan: the group was built without a topology, so its plans follow \
                 rules that no measurement changes; give it one (`unisono probe` measures it)\n";
    assert_eq!((ended.code, ended.err.as_str()), (Some(2), error));
    assert!(!ended.out.contains("float"), "no row: {}", ended.out);
    let file = folder.path().join("topology.json").display().to_string();
    succeed(folder.path(), &["probe", "--on", "cpu:2", "-o", &file]);
    let with = [&args[..], &["--topology", &file, "-J", "/dev/stdout"]].concat();
    let said = succeed(folder.path(), &with);
    let json = &said[said.find('{').expect("JSON behind the table")..];
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(json["replans"], serde_json::json!([]), "too few calls");
    let fixed = run(folder.path(), &[&with[..], &["--algo", "ring", "--order", "any"]].concat());
    assert_eq!(fixed.code, Some(2), "{}", fixed.err);
    assert!(fixed.err.contains("--replan: the group has one schedule"), "{}", fixed.err);
}

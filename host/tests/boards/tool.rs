//! The tool and the machine of its board, as others may treat them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// A hang guard.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of the tool's calls, and what an error may take longer: much less than another one.
const LIMIT: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(2);

/// A run of many calls, in a process group of its own.
struct Tool {
    child: Child,
    err: BufReader<ChildStderr>,
}

/// A machine that runs, and its command line.
struct Qemu {
    pid: String,
    args: String,
}

impl Tool {
    fn start(on: &str, bytes: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["-v", "bench", "all_reduce", "-b", bytes, "-e", bytes, "-n", "1000000"]);
        command.args(["--check", "0", "--timeout", "5s", "--on", on]).process_group(0);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the tool");
        let err = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, err }
    }

    /// The machine that it has started.
    fn qemu(&self) -> Qemu {
        let started = Instant::now();
        let parent = format!("PPid:\t{}", self.child.id());
        let is_child = |pid: &PathBuf| {
            let status = std::fs::read_to_string(pid.join("status")).unwrap_or_default();
            status.lines().any(|line| line == parent)
        };
        loop {
            let all =
                std::fs::read_dir("/proc").expect("Linux").flatten().map(|entry| entry.path());
            for path in all.filter(is_child) {
                let args = std::fs::read(path.join("cmdline")).unwrap_or_default();
                let args = String::from_utf8_lossy(&args).replace('\0', " ");
                if args.starts_with("qemu-") {
                    let pid = path.file_name().expect("a pid").to_string_lossy().into_owned();
                    return Qemu { pid, args };
                }
            }
            assert!(started.elapsed() < PATIENCE, "it starts no machine");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads its log until the board is in a group, and some calls are made.
    fn until_it_works(&mut self) {
        let mut line = String::new();
        while !line.contains("INFO member ") {
            line.clear();
            assert_ne!(self.err.read_line(&mut line).expect("text"), 0, "it has ended");
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Its exit code, and what it has said last.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.err.read_to_string(&mut text).expect("text");
        (self.child.wait().expect("a child").code(), text)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(signal: &str, whom: &str) {
    let kill = format!("kill -{signal} {whom}");
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.is_ok_and(|status| status.success()), "{kill}");
}

impl Qemu {
    /// Has it ended? A zombie has.
    fn is_over(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.map_or(true, |stat| stat.contains(") Z "))
    }

    /// The folder that it shares with its host.
    fn folder(&self) -> PathBuf {
        let path = self.args.split(['=', ',', ' ']).find(|part| part.contains("unisono-board-"));
        Path::new(path.expect("a path")).parent().expect("a folder").to_owned()
    }
}

/// Whatever its link and its part, a machine that stands still in mid-call is an error in time that
/// names the board.
#[test]
fn a_machine_that_stands_still_is_named_in_time() {
    let boards = [("qemu-aarch64", "8M"), ("qemu-riscv64-udp", "8M"), ("qemu-cortex-m", "2K")];
    for (name, bytes) in boards {
        for role in ["", ":rank"] {
            let mut tool = Tool::start(&format!("cpu,cpu,dpu:{name}{role}"), bytes);
            let qemu = tool.qemu();
            tool.until_it_works();
            let stopped = Instant::now();
            kill("STOP", &qemu.pid);
            let (code, text) = tool.ended();
            let took = stopped.elapsed();
            let last = text.lines().last().unwrap_or_default();
            // It is noticed by its silence or by a command that it does not take.
            let board = format!("error: board {name}: ");
            assert!(code == Some(1) && last.starts_with(&board), "{name}{role}: {text}");
            assert!(took < LIMIT + GRACE, "{name}{role}: {took:?}");
            assert!(qemu.is_over(), "{name}{role}");
        }
    }
}

/// A tool that is killed cannot end the machine: the system does. The next start clears away what
/// they have shared.
#[test]
fn nothing_outlives_a_tool_that_is_killed() {
    for (name, bytes) in [("qemu-aarch64", "8M"), ("linux-aarch64", "8M"), ("qemu-cortex-m", "2K")]
    {
        let mut tool = Tool::start(&format!("cpu,cpu,dpu:{name}"), bytes);
        let qemu = tool.qemu();
        tool.until_it_works();
        let folder = qemu.folder();
        kill("KILL", &tool.child.id().to_string());
        assert_eq!(tool.ended().0, None);
        let killed = Instant::now();
        while !qemu.is_over() {
            assert!(killed.elapsed() < PATIENCE, "{name} runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(super::start("dpu:qemu-aarch64", 2));
        assert!(!folder.exists(), "{}", folder.display());
    }
}

/// Ctrl-C reaches the machine, too, and is one line all the same.
#[test]
fn an_interrupt_while_a_board_boots_is_one_line() {
    let tool = Tool::start("cpu,cpu,dpu:qemu-aarch64", "8M");
    let _qemu = tool.qemu();
    kill("INT", &format!("-{}", tool.child.id()));
    let (code, text) = tool.ended();
    let said: Vec<_> = text.lines().filter(|line| !line.contains("INFO")).collect();
    assert_eq!((code, &said[..]), (Some(130), &["error: interrupted"][..]), "{text}");
}

/// A schedule may have other members than those that `--on` names: CPUs without data beside a board
/// that has some, or beside one that has none.
#[test]
fn a_board_and_aggregators_on_the_cpu_are_one_group() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits-mlp");
    let folder = tempfile::tempdir().expect("a folder");
    let reduce = |on: &str, algo: &str, order: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.arg("reduce").args((0..3).map(|r| data.join(format!("rank{r}.safetensors"))));
        command.args(["--on", on, "--algo", algo, "--order", order, "-o", "sum", "--verify"]);
        command.current_dir(folder.path()).output().expect("the tool starts")
    };
    let with = |on, algo| {
        let output = reduce(on, algo, "canonical");
        assert!(output.status.success(), "{algo}: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(folder.path().join("sum")).expect("the result")
    };
    let want = with("cpu:3", "auto");
    for (on, algo) in [
        ("cpu,cpu,dpu:linux-aarch64:rank", "star"),
        ("cpu,dpu:linux-aarch64:rank,cpu", "star:2"),
        ("cpu,cpu,cpu,dpu:linux-aarch64", "star:4"),
    ] {
        assert!(with(on, algo) == want, "{algo} on {on}");
    }
    let ring = reduce("cpu,cpu,cpu,dpu:linux-aarch64", "ring", "any");
    let text = String::from_utf8_lossy(&ring.stderr).into_owned();
    assert!(ring.status.code() == Some(2) && text.contains("no place for 1 member"), "{text}");
}

/// A chunk that does not fit the links of a board is wrong use, and the limit is said.
#[test]
fn a_chunk_that_is_too_large_for_a_board_is_wrong_use() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["bench", "all_reduce", "-b", "4M", "-e", "4M", "-n", "1", "--chunk", "1MiB"]);
    command.args(["--on", "cpu,cpu,dpu:linux_aarch64"]);
    let output = command.output().expect("the tool starts");
    let text = String::from_utf8_lossy(&output.stderr);
    let why = "a chunk of 262144 elements has 1048576 bytes, and the links of a board of the group \
               carry at most 16384\n";
    assert_eq!((output.status.code(), text.ends_with(why)), (Some(2), true), "{text}");
}

/// A board whose memory holds a small part of a tensor is a rank all the same: its tensors come in
/// pieces.
#[test]
fn a_small_rank_takes_tensors_in_pieces() {
    let folder = tempfile::tempdir().expect("a folder");
    let values = |rank: usize| (0..8000).map(move |i| (i * 7 + rank) as f32 / 3.0);
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let file = |rank: usize| {
        let path = folder.path().join(format!("rank{rank}.safetensors"));
        let data = bytes(&values(rank).collect::<Vec<_>>());
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![8000], &data);
        let tensors = [("t", view.expect("a tensor"))];
        safetensors::serialize_to_file(tensors, None, &path).expect("written");
        path
    };
    let output = folder.path().join("sum.safetensors");
    let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_unisono"));
    tool.args(["reduce", "--on", "cpu,dpu:qemu-cortex-m:rank", "--timeout", "120s"]);
    let ended = tool.args([file(0), file(1)]).arg("-o").arg(&output).output().expect("it starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let got = std::fs::read(&output).expect("the output");
    let got = safetensors::SafeTensors::deserialize(&got).expect("a safetensors file");
    let want: Vec<f32> = values(0).zip(values(1)).map(|(a, b)| a + b).collect();
    assert_eq!(got.tensor("t").expect("the tensor").data(), bytes(&want));
}

/// Ctrl-C in mid-call, to the tool alone as to all of its group: no machine and no file stays.
#[test]
fn an_interrupt_in_a_call_leaves_nothing() {
    for (name, bytes) in [("qemu-aarch64", "8M"), ("linux-aarch64", "8M"), ("qemu-cortex-m", "2K")]
    {
        for group in ["", "-"] {
            let mut tool = Tool::start(&format!("cpu,cpu,dpu:{name}"), bytes);
            let qemu = tool.qemu();
            tool.until_it_works();
            let folder = qemu.folder();
            kill("INT", &format!("{group}{}", tool.child.id()));
            let (code, text) = tool.ended();
            assert_eq!(code, Some(130), "{name}: {text}");
            assert_eq!(text.lines().last(), Some("error: interrupted"), "{name}: {text}");
            assert!(qemu.is_over(), "{name}");
            assert!(!folder.exists(), "{}", folder.display());
        }
    }
}

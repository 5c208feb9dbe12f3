//! Signals once a driver's compiler has been at work: LLVM takes some of them for itself.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn signals_end_the_tool_whatever_drivers_catch() {
    for (signal, code) in [(libc::SIGQUIT, 131), (libc::SIGXCPU, 152), (libc::SIGTERM, 143)] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_unisono"));
        tool.args(["bench", "--on", "cpu,opencl:0", "-b", "4M", "-e", "4M", "-n", "1000000"]);
        let mut tool = tool.stdout(Stdio::piped()).spawn().expect("the tool starts");
        let mut lines = BufReader::new(tool.stdout.take().expect("piped")).lines();
        // The table begins when devices are open and have been tested.
        let begun = lines.any(|line| line.expect("UTF-8").contains("#wrong"));
        assert!(begun, "it has ended");
        // SAFETY: the child has not been waited for.
        assert_eq!(unsafe { libc::kill(tool.id() as libc::pid_t, signal) }, 0);
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = tool.try_wait().expect("a status") {
                break status;
            }
            if Instant::now() > deadline {
                tool.kill().expect("it is there");
                panic!("signal {signal} was lost");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(code), "signal {signal}");
    }
}

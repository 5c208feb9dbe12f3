//! Long jobs take no more memory or descriptors than short ones.

use crate::job::{Job, all};

/// Kilobytes of memory and open descriptors of a process.
fn size(pid: u32) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()).and_then(|kb| kb.parse().ok());
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    (kb.unwrap_or(0), fds)
}

/// At least 10^5 small operations in one group, looked at while they run.
#[test]
fn a_hundred_thousand_operations_leave_nothing_behind() {
    for (links, samples) in [("auto", 150), ("tcp", 20), ("udp", 20)] {
        let line = format!("bench -b 64 -e 64 -n 5000 -w 0 --samples {samples} -c 0");
        let mut job = Job::start(&all(2, &format!("{line} --links {links}")));
        let pids: Vec<u32> = job.children.iter().map(std::process::Child::id).collect();
        let mut seen: Vec<Vec<(u64, usize)>> = vec![Vec::new(); 2];
        job.until("all calls", |job| {
            for (pid, seen) in pids.iter().zip(&mut seen) {
                // Ended processes have no memory.
                seen.extend(Some(size(*pid)).filter(|(kb, _)| *kb > 0));
            }
            job.children.iter_mut().all(|child| matches!(child.try_wait(), Ok(Some(_))))
        });
        for output in job.end() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for seen in seen {
            // In the middle everything has been set up for long.
            let (early, late) = seen.split_at(seen.len() / 2);
            let most = |half: &[(u64, usize)]| {
                let (kb, fds) = (half.iter().map(|s| s.0).max(), half.iter().map(|s| s.1).max());
                kb.zip(fds).expect("it was seen")
            };
            let (early, late) = (most(early), most(late));
            assert!(
                late.0 <= early.0 + 1024,
                "{links}: memory grew from {} to {}",
                early.0,
                late.0
            );
            assert!(late.1 <= early.1, "{links}: descriptors grew from {} to {}", early.1, late.1);
        }
    }
}

//! What cannot be: devices that are not there, tensors of others, failures in the driver's words.

use crate::data::{alone, build};
use std::time::{Duration, Instant};
use unisono::{Error, Group, Opened, Sum};

fn refusal(on: &str) -> String {
    let group = Group::builder().on(on).build();
    group.err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn devices_that_are_not_there_are_named() {
    let text = refusal("cpu,vulkan:99");
    assert!(text.starts_with("no Vulkan device 99; there are: 1 (0 "), "{text}");
    let text = refusal("opencl:no such name");
    assert!(text.starts_with("no OpenCL device 'no such name'; there are: 1 (0 "), "{text}");
    let text = refusal("vulkan:0000:ff:1f.7");
    assert!(text.contains("'0000:ff:1f.7'"), "{text}");
    assert!(refusal("cpu,metal").contains("metal: no such device"));
}

#[test]
fn a_name_picks_a_device() {
    let first = Opened::open(&"vulkan:0".parse().expect("a name")).expect("a device");
    let name = first.expect("no CPU").card().name.clone();
    let word = name.split_whitespace().next().expect("a word").to_uppercase();
    let group = build(Group::builder().on(&format!("vulkan:{word}")));
    let members = group.into_members();
    assert_eq!(members[0].device().map(|on| on.card().name.clone()), Some(name));
}

#[test]
fn rates_must_fit() {
    for rates in [vec![], vec![1.0], vec![1.0, -1.0], vec![1.0, f64::NAN]] {
        let error = Group::builder().on("cpu,vulkan:0").rates(rates).build().err();
        assert!(matches!(error, Some(Error::Build(_))), "{error:?}");
    }
}

/// Ranks of one group use the same open device; so does whoever opens it meanwhile.
#[test]
fn a_device_is_opened_once() {
    let members = build(Group::builder().on("opencl:0,opencl:0")).into_members();
    let address = |rank: usize| format!("{:?}", members[rank].device());
    assert_eq!(address(0), address(1));
}

/// More memory than there is: said by the driver, and the group goes on.
#[test]
fn too_much_memory_is_refused() {
    for on in ["vulkan:0", "opencl:0"] {
        let mut group = build(Group::builder().on(on));
        let error = group.tensor::<f64>(0, 1 << 46).expect_err("petabytes");
        assert!(matches!(error, Error::Gpu(_)), "{on}: {error}");
        let mut ones = vec![1f32; 3000];
        group.all_reduce(&mut [&mut ones[..]], Sum).expect("a sum");
        assert_eq!(ones[2999], 1.0);
    }
}

/// Groups come and go, devices stay sound.
#[test]
fn groups_come_and_go() {
    for _ in 0..20 {
        let mut group = build(Group::builder().on("vulkan:0,opencl:0").rates(vec![1e9; 2]));
        let mut a = group.tensor::<i32>(0, 5000).expect("a tensor");
        let mut b = group.tensor::<i32>(1, 5000).expect("a tensor");
        a.write(&[3; 5000]).expect("written");
        b.write(&[4; 5000]).expect("written");
        group.all_reduce(&mut [&mut a, &mut b], Sum).expect("a sum");
        drop(group);
        // Tensors outlive their group.
        assert_eq!(a.to_vec().expect("read"), [7; 5000]);
        assert_eq!(b.to_vec().expect("read"), [7; 5000]);
    }
}

/// Set where [`forks`] runs: a process without other tests.
const FORKING: &str = "UNISONO_TEST_FORKING";

/// Forks while a group is there; nothing in the other tests' process.
#[test]
fn forks() {
    if std::env::var_os(FORKING).is_none() {
        return;
    }
    for on in ["cpu,vulkan:0", "cpu,opencl:0"] {
        let mut group = build(Group::builder().on(on));
        let mut sum = || {
            let (mut a, mut b) = (vec![1f32; 5000], vec![2f32; 5000]);
            group.all_reduce(&mut [&mut a[..], &mut b[..]], Sum).map(|()| a[4999])
        };
        assert_eq!(sum(), Ok(3.0));
        // SAFETY: the child has the thread that calls, which holds no lock.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let told =
                matches!(sum(), Err(Error::Gpu(error)) if error.to_string().contains("fork"));
            // SAFETY: ends the child without running the test harness in it.
            unsafe { libc::_exit(if told { 0 } else { 1 }) };
        }
        assert_eq!(status(pid), 0, "what the child of a group over {on} is told");
        assert_eq!(sum(), Ok(3.0));
    }
}

/// Waits for a child, but not for ever.
fn status(pid: libc::pid_t) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut status = -1;
    // SAFETY: a child of this process, and room for its status.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > deadline {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    status
}

#[test]
fn a_child_of_the_process_is_told() {
    alone("errors::forks", FORKING);
}

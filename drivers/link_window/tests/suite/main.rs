//! The window link against the suite of all links: within a thread, and with one end in another
//! thread or process.

mod remote;

use remote::{Remote, serve, serve_here};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use unisono_driver::{Either, HostPtr};
use unisono_link_window::{Area, Coherent, Reading, Region, Shape, Window, WindowLink};
use unisono_testkit::link::{LinkHarness, link_suite};

type End = WindowLink<HostPtr, Coherent>;

/// The rank that the link belongs to.
const PEER: u16 = 3;
/// The suite's largest payload has 100 001 bytes.
const SHAPE: Shape = Shape { channels: 3, units: 16, slots: 5, slot_bytes: 100_032 };
const AREAS: [Area; 3] = [
    Area::Log(64),
    Area::Link { peer: 0, shape: Shape { channels: 1, units: 4, slots: 1, slot_bytes: 64 } },
    Area::Link { peer: PEER, shape: SHAPE },
];

fn bytes() -> u64 {
    Region::needed(&AREAS).expect("areas that can be")
}

fn host(path: &Path, reading: Reading) -> End {
    let window = Window::create(path, bytes()).expect("a new file");
    let region = Region::format(window, &AREAS).expect("they fit");
    WindowLink::new(&region, PEER, reading, Coherent).expect("in the table")
}

fn board(path: &Path, reading: Reading) -> End {
    let region = Region::open(Window::open(path).expect("the file")).expect("laid out");
    WindowLink::new(&region, PEER, reading, Coherent).expect("in the table")
}

/// Both ends here, each with a mapping of its own.
struct Mapped {
    readings: [Reading; 2],
    folder: tempfile::TempDir,
    pairs: u32,
}

impl LinkHarness for Mapped {
    type Link = End;

    fn pair(&mut self) -> (End, End) {
        self.pairs += 1;
        let path = self.folder.path().join(self.pairs.to_string());
        let host = host(&path, self.readings[0]);
        (host, board(&path, self.readings[1]))
    }

    fn turn(&mut self, _: &mut [&mut End]) {}
}

#[test]
fn passes_the_suite_by_copies_and_in_place() {
    for readings in [[Reading::Copied; 2], [Reading::InPlace; 2]] {
        let folder = tempfile::tempdir().expect("a folder");
        link_suite(&mut Mapped { readings, folder, pairs: 0 });
    }
}

/// One end, here or elsewhere.
type Anywhere = Either<End, Remote>;

/// The other end is in another thread, or in another process.
struct Apart {
    processes: bool,
    /// Is rank 0 of the suite the board?
    swapped: bool,
    folder: tempfile::TempDir,
    pairs: u32,
    children: Vec<Child>,
}

impl Apart {
    fn new(processes: bool, swapped: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { processes, swapped, folder, pairs: 0, children: Vec::new() }
    }
}

/// Names the socket and the window for a child.
const CHILD: &str = "UNISONO_TEST_BOARD";

impl LinkHarness for Apart {
    type Link = Anywhere;

    fn pair(&mut self) -> (Anywhere, Anywhere) {
        self.pairs += 1;
        let path = self.folder.path().join(self.pairs.to_string());
        let socket = path.with_extension("socket");
        let host = host(&path, Reading::InPlace);
        let stream = if self.processes {
            let listener = UnixListener::bind(&socket).expect("a socket");
            let me = std::env::current_exe().expect("a name");
            let mut child = Command::new(me);
            child.args(["--exact", "the_other_process"]).env(CHILD, &path);
            // An outer run would count what the child prints as tests of its own.
            child.stdout(Stdio::null());
            self.children.push(child.spawn().expect("it is running now"));
            listener.accept().expect("the child comes").0
        } else {
            let (here, there) = UnixStream::pair().expect("sockets");
            std::thread::spawn(move || serve(there, board(&path, Reading::Copied)));
            here
        };
        let ends = (Either::A(host), Either::B(Remote::new(stream)));
        if self.swapped { (ends.1, ends.0) } else { ends }
    }

    fn turn(&mut self, _: &mut [&mut Anywhere]) {
        std::thread::yield_now();
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for child in &mut self.children {
            let status = child.wait().expect("it has ended");
            assert!(status.success() || std::thread::panicking(), "{status}");
        }
    }
}

#[test]
fn passes_the_suite_between_threads() {
    link_suite(&mut Apart::new(false, false));
    link_suite(&mut Apart::new(false, true));
}

#[test]
fn passes_the_suite_between_processes() {
    link_suite(&mut Apart::new(true, false));
    link_suite(&mut Apart::new(true, true));
}

/// The other process; without the variable there is nothing for it to do.
#[test]
fn the_other_process() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let path = Path::new(&path);
    let stream = UnixStream::connect(path.with_extension("socket")).expect("the parent listens");
    serve(stream, board(path, Reading::Copied));
}

#[test]
fn a_region_can_be_used_again_after_clearing_its_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("window");
    let window = Window::create(&path, bytes()).expect("a new file");
    let region = Region::format(window, &AREAS).expect("they fit");
    assert_eq!(region.other_abi(), None);
    for _ in 0..3 {
        region.clear_link(PEER).expect("in the table");
        let a: End = WindowLink::new(&region, PEER, Reading::Copied, Coherent).expect("there");
        let b = board(&path, Reading::Copied);
        serve_here(a, b);
    }
    assert_eq!(region.other_abi(), Some(unisono_link_window::ABI));
}

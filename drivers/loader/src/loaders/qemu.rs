//! A board under QEMU: it is started with the image, greeted, asked what it is, and ended. QEMU's
//! machines keep nothing, so what is loaded is gone afterwards; what is proved is that the image
//! boots and speaks.

use super::{Kind, LoadError, Loader, Package, Plan, Way, World, needs};
use crate::plan::{Act, Device, Step};
use crate::run::Watch;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use unisono_core::wire::board::Identity;
use unisono_core::{DType, ReduceOp};
use unisono_offload_dpu::{AnyBoard, Image, Machine, Problem, Setup, start_unless};

pub const WAY: Way = Way {
    name: "qemu",
    usage: "qemu:aarch64, qemu:aarch64-udp, qemu:riscv64, qemu:riscv64-udp or qemu:cortex-m",
    open,
};

/// How long a board may take to answer; the tool's help says so. An emulated one shares the machine
/// with whatever else runs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at whether somebody has asked to stop.
const NAP: Duration = Duration::from_millis(5);
/// Bytes of tensor memory that are lent to the board, to see whether it can be a rank with them.
const LENT: u32 = 1 << 16;

struct Qemu {
    machine: &'static Machine,
}

fn open(rest: Option<&str>) -> Result<Box<dyn Loader>, String> {
    let named = |name: &str| Machine::named(&format!("qemu-{name}"));
    let machine = rest.and_then(named).ok_or("no such machine")?;
    Ok(Box::new(Qemu { machine }))
}

impl Loader for Qemu {
    fn plan(&self, _: &World, package: &Package) -> Result<Plan, LoadError> {
        let Self { machine } = *self;
        let to = machine.name.replacen('-', ":", 1);
        needs(&to, package, Kind::Elf, "QEMU loads ELF files")?;
        package.must_be_for(&machine.board())?;
        // Now, and not when it is started: a dry run refuses what the real one would.
        Image::check(machine, package.payload())
            .map_err(|why| LoadError::Unfit { to: to.clone(), why })?;
        let device = if machine.is_here() {
            Device::Seen(format!("the program {}, an emulator", machine.program()))
        } else {
            Device::Missing {
                what: format!("the program {} does not start", machine.program()),
                help: format!("install QEMU; Debian's package is {}", machine.package),
            }
        };
        let name = machine.image.to_owned();
        let nothing = "nothing is left: QEMU's machines keep nothing";
        let boot = Act::Boot { machine };
        let steps = vec![
            Step::new(Act::Unpack { name }, "QEMU reads a file", nothing),
            Step::new(boot, "an image that boots and speaks says who it is", nothing),
        ];
        Ok(Plan { to, device, steps })
    }
}

/// Starts a machine with an image; returns what its board says of itself. That it is this image's
/// board, the image's section says before the start, and its build id after it.
pub fn boot(
    machine: &'static Machine,
    image: &Path,
    watch: &dyn Watch,
) -> Result<Vec<String>, String> {
    let board = start(machine, image, watch)?;
    Ok(describe(board.identity(), machine.has_window()))
}

/// Starts the machine, unless somebody asks to stop.
fn start(
    machine: &'static Machine,
    image: &Path,
    watch: &dyn Watch,
) -> Result<Box<dyn AnyBoard>, String> {
    let setup = Setup { peers: 1, memory: LENT, patience: PATIENCE, silence: PATIENCE };
    let stop = Arc::default();
    let board = thread::scope(|scope| {
        let start = scope.spawn(|| start_unless(&stop, machine, image, setup));
        while !start.is_finished() {
            stop.store(watch.stopped(), Ordering::Relaxed);
            thread::sleep(NAP);
        }
        start.join()
    });
    let board = board.map_err(|_| "the thread that starts it has panicked".to_owned())?;
    // Whatever else has gone wrong by then: who is interrupted is told that.
    board.map_err(|error| match error.problem {
        Problem::Interrupted { .. } => error.to_string(),
        _ if watch.stopped() => format!("it was interrupted ({error})"),
        _ => error.to_string(),
    })
}

/// What a board is, in words.
fn describe(identity: &Identity, has_window: bool) -> Vec<String> {
    let Identity { name, fpu, calls, members, scratch, payload, memory, rate, .. } = identity;
    let has = |bits: u16, i: usize| bits >> i & 1 == 1;
    let dtypes = DType::ALL.iter().enumerate().filter(|(i, _)| has(identity.dtypes, *i));
    let dtypes: Vec<&str> = dtypes.map(|(_, dtype)| dtype.name()).collect();
    let ops = ReduceOp::ALL.iter().enumerate().filter(|(i, _)| has(identity.ops, *i));
    let ops: Vec<&str> = ops.map(|(_, op)| op.name()).collect();
    let fpu = if *fpu { "in hardware" } else { "in software" };
    let role = match memory {
        0 => "aggregates only".to_owned(),
        _ if has_window => "can be a rank with tensors in memory that its host lends".to_owned(),
        bytes => format!("can be a rank with tensors of {bytes} bytes"),
    };
    let at_a_time = if *calls == 1 { "call" } else { "calls" };
    vec![
        format!("{name}: adds {rate} f32 a millisecond, floating point {fpu}"),
        format!("types {}; operators {}", dtypes.join(" "), ops.join(" ")),
        format!(
            "groups of up to {members} members, {calls} {at_a_time} at a time, {scratch} bytes of \
             slots a call, chunks of up to {payload} bytes; {role}"
        ),
    ]
}

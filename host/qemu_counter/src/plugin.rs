//! What QEMU calls, and the part of its plugin interface that is used (`qemu-plugin.h`).

use crate::counter::Counter;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

type Id = u64;

/// A translated block; only QEMU knows what is in it.
#[repr(C)]
struct Block {
    _private: [u8; 0],
}

/// The callback looks at no registers.
const NO_REGISTERS: c_int = 0;

/// The version of the interface that this plugin is made for.
#[unsafe(no_mangle)]
static qemu_plugin_version: c_int = 1;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, f: extern "C" fn(Id, *mut Block));
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        f: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
}

static COUNTER: OnceLock<Counter> = OnceLock::new();

/// Bucket and instructions of a block share the pointer that QEMU keeps for us.
const BITS: u32 = 16;

extern "C" fn translated(_: Id, block: *mut Block) {
    let Some(counter) = COUNTER.get() else { return };
    // SAFETY: QEMU hands out a block that lives as long as this call.
    unsafe {
        let bucket = counter.bucket(qemu_plugin_tb_vaddr(block));
        let data = bucket << BITS | qemu_plugin_tb_n_insns(block);
        let data = std::ptr::without_provenance_mut(data);
        qemu_plugin_register_vcpu_tb_exec_cb(block, executed, NO_REGISTERS, data);
    }
}

extern "C" fn executed(core: c_uint, data: *mut c_void) {
    let Some(counter) = COUNTER.get() else { return };
    let (bucket, instructions) = (data.addr() >> BITS, data.addr() & ((1 << BITS) - 1));
    counter.executed(core as usize, bucket, instructions as u64);
}

/// QEMU starts the plugin.
///
/// # Safety
/// As QEMU calls it: `argv` has `argc` strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let text = |i| unsafe { CStr::from_ptr(*argv.add(i)).to_string_lossy().into_owned() };
    let args: Vec<String> = (0..usize::try_from(argc).unwrap_or(0)).map(text).collect();
    let pairs: Vec<_> = args.iter().filter_map(|arg| arg.split_once('=')).collect();
    match Counter::new(&pairs) {
        Ok(counter) => {
            // It is started once.
            let _ = COUNTER.set(counter);
            // SAFETY: a function that stays.
            unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
            0
        }
        Err(why) => {
            eprintln!("qemu-counter: {why}");
            1
        }
    }
}

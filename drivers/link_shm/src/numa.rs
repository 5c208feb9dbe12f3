//! Memory near the core that uses it, on machines with several memory nodes.

use std::sync::OnceLock;

/// Bytes of a page, or a multiple of it, on every machine.
const PAGE: usize = 64 << 10;

/// Nodes that fit the mask below.
const NODES: usize = 64;

/// Prefer this node (`linux/mempolicy.h`).
const MPOL_PREFERRED: libc::c_int = 1;
/// Move pages that are elsewhere.
const MPOL_MF_MOVE: libc::c_uint = 1 << 1;

/// Wants the whole pages of this memory on the node of the core that runs this: those that are
/// there move, others come there whichever process touches them first. On a machine with one node,
/// or where the system does not let it, nothing happens.
pub(crate) fn settle(start: *mut u8, bytes: usize) {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    if bytes >= PAGE && *SEVERAL.get_or_init(|| nodes() > 1) {
        prefer(start, bytes);
    }
}

/// Memory nodes of this machine.
fn nodes() -> usize {
    let all = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node =
        |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    all.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count()
}

/// Does it; false if the system does not.
fn prefer(start: *mut u8, bytes: usize) -> bool {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: both are written only.
    let found = unsafe {
        libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, std::ptr::null_mut::<u8>())
    };
    let node = node as usize;
    let before = start.align_offset(PAGE);
    let whole = bytes.saturating_sub(before) / PAGE * PAGE;
    if found != 0 || node >= NODES || whole == 0 {
        return false;
    }
    let mask: libc::c_ulong = 1 << node;
    let at = start.wrapping_add(before);
    // SAFETY: where pages are changes nothing of what is in them; the mask is read only.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            at,
            whole,
            MPOL_PREFERRED,
            &raw const mask,
            NODES as libc::c_ulong + 1,
            MPOL_MF_MOVE,
        )
    };
    done == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arena;

    /// Return the node of the page at an address.
    const MPOL_F_NODE_OF_ADDR: libc::c_ulong = 1 | 2;

    #[test]
    fn pages_are_where_the_core_is() {
        assert!(nodes() <= 1024);
        let arena = Arena::new(8 << 20, 100).expect("a little memory");
        let piece = arena.alloc(3 << 20).expect("it fits");
        // SAFETY: the piece is so long.
        unsafe { piece.start().write_bytes(7, 3 << 20) };
        if !prefer(piece.start(), 3 << 20) {
            // A kernel without nodes, or a sandbox.
            let error = std::io::Error::last_os_error().raw_os_error();
            assert!(matches!(error, Some(libc::ENOSYS | libc::EPERM)), "{error:?}");
            return;
        }
        let (mut cpu, mut here, mut node) = (0u32, 0u32, -1i32);
        // SAFETY: all are written only; the address is the piece's.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_getcpu,
                &raw mut cpu,
                &raw mut here,
                std::ptr::null_mut::<u8>(),
            );
            let (none, at) = (std::ptr::null_mut::<u8>(), piece.start().wrapping_add(1 << 20));
            libc::syscall(libc::SYS_get_mempolicy, &raw mut node, none, 0, at, MPOL_F_NODE_OF_ADDR)
        };
        // With several nodes the thread may have moved meanwhile.
        assert!(asked == 0 && (nodes() > 1 || node == here as i32), "node {node}");
        // SAFETY: as above.
        assert_eq!(unsafe { piece.start().add(2 << 20).read() }, 7, "what was in it stays");
        // What has no whole page is left alone.
        assert!(!prefer(piece.start().wrapping_add(1), PAGE));
    }
}

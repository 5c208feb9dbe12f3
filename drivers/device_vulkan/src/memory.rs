//! Which type of memory a buffer is made of.

use unisono_gpu::Place;
use vulkano::device::physical::PhysicalDevice;
use vulkano::memory::MemoryPropertyFlags as Flags;

/// The host reads and writes it at full speed, and what it writes is seen.
pub(crate) const HOST: Flags =
    Flags::HOST_VISIBLE.union(Flags::HOST_COHERENT).union(Flags::HOST_CACHED);

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Buffers.
    Data(Place),
    /// Little that the host writes and all work items read: best where a discrete GPU lets the host
    /// write into its own memory, so that they need not read over the bus.
    Parameters,
}

/// What the types of a device are, in its order.
pub(crate) fn types(device: &PhysicalDevice) -> impl Iterator<Item = Flags> + '_ {
    device.memory_properties().memory_types.iter().map(|kind| kind.property_flags)
}

/// The best type among those whose bit is set in `allowed`, if any will do. `unified`: device
/// memory that the host can reach is wanted, not avoided.
pub(crate) fn pick(
    types: impl Iterator<Item = Flags>,
    allowed: u32,
    purpose: Use,
    unified: bool,
) -> Option<usize> {
    // The first of the best: a driver lists the faster ones first.
    let ranked = types.enumerate().filter_map(|(index, flags)| {
        let usable = allowed & (1 << index) != 0 && !flags.intersects(special());
        let rank = rank(flags, purpose, unified).filter(|_| usable)?;
        Some((rank, index))
    });
    ranked.min().map(|(_, index)| index)
}

/// Types that only those may use who ask for more than memory.
fn special() -> Flags {
    Flags::LAZILY_ALLOCATED
        | Flags::PROTECTED
        | Flags::DEVICE_COHERENT
        | Flags::DEVICE_UNCACHED
        | Flags::RDMA_CAPABLE
}

/// 0 is best; `None` will not do.
fn rank(flags: Flags, purpose: Use, unified: bool) -> Option<u32> {
    let local = flags.intersects(Flags::DEVICE_LOCAL);
    let cached = flags.intersects(Flags::HOST_CACHED);
    let written = flags.contains(Flags::HOST_VISIBLE | Flags::HOST_COHERENT);
    match purpose {
        // Where there is one memory for both, some drivers call none of the host's types local.
        Use::Data(Place::Device) if unified && flags.contains(HOST) => Some(u32::from(!local)),
        // What the host can reach of a discrete GPU's memory may be a small window.
        Use::Data(Place::Device) if local && !flags.intersects(Flags::HOST_VISIBLE) => Some(2),
        Use::Data(Place::Device) if local => Some(3),
        Use::Data(Place::Device) => Some(4),
        Use::Data(Place::Pinned) if written => Some(u32::from(!cached) * 2 + u32::from(local)),
        Use::Parameters if written => Some(u32::from(!local)),
        Use::Data(Place::Pinned) | Use::Parameters => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Use = Use::Data(Place::Device);
    const PINNED: Use = Use::Data(Place::Pinned);

    #[test]
    fn discrete_memory_stays_out_of_the_hosts_window() {
        let local = Flags::DEVICE_LOCAL;
        let coherent = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let all = [Flags::empty(), local | coherent, local, coherent, HOST];
        let pick = |allowed, purpose, unified| pick(all.into_iter(), allowed, purpose, unified);
        assert_eq!(pick(!0, DEVICE, false), Some(2));
        assert_eq!(pick(!0, PINNED, false), Some(4));
        assert_eq!(pick(0b01011, PINNED, false), Some(3));
        assert_eq!(pick(0b00010, DEVICE, false), Some(1));
        assert_eq!(pick(0b00101, PINNED, false), None);
        assert_eq!(pick(!0, Use::Parameters, false), Some(1));
        assert_eq!(pick(0b11101, Use::Parameters, false), Some(3));
        assert_eq!(pick(0b00101, Use::Parameters, false), None);
    }

    #[test]
    fn shared_memory_is_used_as_such() {
        let local = Flags::DEVICE_LOCAL;
        let all = [local | Flags::DEVICE_COHERENT, local, local | HOST];
        let pick = |allowed, purpose, unified| pick(all.into_iter(), allowed, purpose, unified);
        assert_eq!(pick(!0, DEVICE, true), Some(2));
        assert_eq!(pick(!0, DEVICE, false), Some(1));
        assert_eq!(pick(!0, PINNED, false), Some(2));
        assert_eq!(pick(1, DEVICE, true), None);
        let all = [local, local | Flags::HOST_VISIBLE | Flags::HOST_COHERENT, HOST];
        assert_eq!(super::pick(all.into_iter(), !0, DEVICE, true), Some(2));
    }
}

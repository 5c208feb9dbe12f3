//! What this host says of itself. Only advice: in containers much of it is hidden or wrong, so
//! nothing here fails.

use std::fs;
use std::path::Path;

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numa {
    /// Its number.
    pub node: u16,
    /// Its CPUs, as the kernel lists them: `0-3,8`.
    pub cpus: String,
}

/// The NUMA nodes below this folder (`/sys`); none if it does not say.
#[must_use]
pub fn numa_nodes(sys: &Path) -> Vec<Numa> {
    let Ok(entries) = fs::read_dir(sys.join("devices/system/node")) else { return Vec::new() };
    let one = |entry: fs::DirEntry| {
        let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?.trim().to_owned();
        Some(Numa { node, cpus })
    };
    let mut all: Vec<_> = entries.flatten().filter_map(one).collect();
    all.sort_by_key(|numa| numa.node);
    all
}

/// The NUMA node of a PCI device, if the system says one.
#[must_use]
pub fn numa_of_pci(sys: &Path, address: &str) -> Option<u16> {
    let plain = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    // It becomes part of a path.
    if !address.chars().all(plain) || address.contains("..") {
        return None;
    }
    let file = sys.join("bus/pci/devices").join(address).join("numa_node");
    // -1 where the system has no nodes.
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_an_error() {
        let none = Path::new("/no/such/folder");
        assert_eq!(numa_nodes(none), []);
        assert_eq!(numa_of_pci(none, "0000:03:00.0"), None);
        assert_eq!(numa_of_pci(Path::new("/sys"), "../../../../etc"), None);
    }
}

//! What a process knows about the host that it is on.

use std::fs;
use std::net::IpAddr;

/// Of the running system: equal only for processes that share a kernel. Empty if it is not known.
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// For messages.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name of the interface.
    pub interface: String,
    /// The address itself.
    pub ip: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
}

impl Address {
    /// Is `other` in the same network?
    pub fn is_beside(&self, other: IpAddr) -> bool {
        is_within(other, self.ip, self.prefix)
    }

    /// Only between processes of this host: a bridge for containers or virtual machines has the
    /// same address on every host.
    pub fn is_of_this_host_only(&self) -> bool {
        const BRIDGES: [&str; 6] = ["docker", "virbr", "br-", "cni", "lxcbr", "podman"];
        self.ip.is_loopback() || BRIDGES.iter().any(|b| self.interface.starts_with(b))
    }
}

/// This host's addresses, but for those that need an interface beside them.
pub fn addresses() -> std::io::Result<Vec<Address>> {
    let all = if_addrs::get_if_addrs()?.into_iter();
    let address = |i: if_addrs::Interface| {
        let prefix = match &i.addr {
            if_addrs::IfAddr::V4(a) => a.prefixlen,
            if_addrs::IfAddr::V6(a) => a.prefixlen,
        };
        Address { ip: i.ip(), interface: i.name, prefix }
    };
    Ok(all.filter(|i| !i.is_link_local()).map(address).collect())
}

/// Do the first `prefix` bits of both agree?
pub fn is_within(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let differ = bits(ip) ^ bits(network);
    ip.is_ipv4() == network.is_ipv4() && differ.leading_zeros() >= u32::from(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_hold_their_addresses() {
        assert!(is_within(ip("10.1.2.3"), ip("10.1.0.0"), 16));
        assert!(!is_within(ip("10.2.2.3"), ip("10.1.0.0"), 16));
        assert!(is_within(ip("1.2.3.4"), ip("9.9.9.9"), 0));
        assert!(!is_within(ip("::"), ip("0.0.0.0"), 0));
        assert!(is_within(ip("fd00::1"), ip("fd00::1"), 128));
        assert!(!is_within(ip("10.0.0.1"), ip("10.0.0.0"), 32));
    }

    #[test]
    fn this_host_has_loopback_and_a_boot_id() {
        let all = addresses().unwrap();
        assert!(all.iter().any(|a| a.ip.is_loopback() && a.is_of_this_host_only()), "{all:?}");
        assert_eq!(boot_id().len(), 36);
    }
}

//! `--interface`: which of a host's addresses peers are told.

use crate::error::Error;
use crate::place::{Address, is_within};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An interface by its name, or all addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// `eth0`.
    Name(String),
    /// `10.1.0.0/16`.
    Network {
        /// An address of it.
        ip: IpAddr,
        /// How many of its bits count.
        prefix: u8,
    },
}

const VARIABLE: &str = "UNISONO_INTERFACE";

impl Interface {
    /// From UNISONO_INTERFACE.
    ///
    /// # Errors
    /// If it is set and makes no sense.
    pub fn from_env() -> Result<Option<Self>, Error> {
        let Some(value) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) else {
            return Ok(None);
        };
        let value = value.to_string_lossy().into_owned();
        let wrong = |why| Error::Variable { name: VARIABLE.into(), value: value.clone(), why };
        value.parse().map(Some).map_err(wrong)
    }

    /// Those of these addresses that belong to it.
    pub(super) fn choose(&self, own: &[Address]) -> Result<Vec<IpAddr>, Error> {
        let fits = |a: &&Address| match self {
            Self::Name(name) => a.interface == *name,
            Self::Network { ip, prefix } => is_within(a.ip, *ip, *prefix),
        };
        let found: Vec<IpAddr> = own.iter().filter(fits).map(|a| a.ip).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let all: Vec<_> = own.iter().map(|a| format!("{} {}", a.interface, a.ip)).collect();
        let why = format!("no address of this host is in it; there are {}", all.join(", "));
        Err(Error::Variable { name: "interface".into(), value: self.to_string(), why })
    }
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((ip, prefix)) = text.split_once('/') else {
            let bad = |c: char| c.is_whitespace() || c == ':';
            return match text.is_empty() || text.len() > 15 || text.contains(bad) {
                true => Err(format!("{text}: neither an interface nor a network like 10.0.0.0/8")),
                false => Ok(Self::Name(text.to_owned())),
            };
        };
        let ip: IpAddr = ip.parse().map_err(|_| format!("{ip}: no address"))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        match prefix.parse() {
            Ok(prefix) if prefix <= most => Ok(Self::Network { ip, prefix }),
            _ => Err(format!("{text}: behind the slash stand 0 to {most} bits")),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Network { ip, prefix } => write!(f, "{ip}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_networks_choose_addresses() {
        let address = |interface: &str, ip: &str| Address {
            interface: interface.into(),
            ip: ip.parse().unwrap(),
            prefix: 24,
        };
        let own = [address("lo", "127.0.0.1"), address("eth0", "10.1.2.3"), address("eth1", "::5")];
        let choose = |text: &str| text.parse::<Interface>().unwrap().choose(&own);
        assert_eq!(choose("eth0").unwrap(), [own[1].ip]);
        assert_eq!(choose("10.1.0.0/16").unwrap(), [own[1].ip]);
        assert_eq!(choose("::/64").unwrap(), [own[2].ip]);
        let error = choose("10.9.0.0/16").unwrap_err().to_string();
        assert!(error.contains("10.9.0.0/16") && error.contains("eth0 10.1.2.3"), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "a b", "10.0.0.1", "10.0.0.0/33", "x/8", "::/129", "sixteencharacter"] {
            let parsed = text.parse::<Interface>();
            assert!(parsed.is_err() || text == "10.0.0.1", "{text}: {parsed:?}");
        }
    }
}

//! What a rank says of itself under its key.

use crate::error::{Error, tame};
use crate::place::{self, Address};
use crate::secret::{hex, random};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Most addresses that rank 0 publishes, and that others try.
const ADDRESSES_MAX: usize = 32;

/// The value of a key, as JSON: `etcdctl get --prefix` shows who is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Card {
    /// Name of its host.
    host: String,
    /// Its number there.
    process: u32,
    /// Of the running system.
    boot: String,
    /// Chosen by this process: nobody else has the same card.
    nonce: String,
    /// Where the hub is, of rank 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    hub: Option<Hub>,
}

/// Where rank 0 waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hub {
    port: u16,
    addresses: Vec<IpAddr>,
}

impl Card {
    /// This process's; with the port of its hub if it is rank 0.
    pub fn new(port: Option<u16>) -> Result<Self, Error> {
        let mut hub = None;
        if let Some(port) = port {
            let own = place::addresses().map_err(Error::io("listing this host's addresses"))?;
            let (mut open, loopback): (Vec<_>, Vec<_>) =
                own.into_iter().partition(|a| !a.is_of_this_host_only());
            open.extend(loopback.into_iter().filter(|a| a.ip.is_loopback()));
            let addresses = open.into_iter().map(|a| a.ip).take(ADDRESSES_MAX).collect();
            hub = Some(Hub { port, addresses });
        }
        Ok(Self {
            host: place::host_name(),
            process: std::process::id(),
            boot: place::boot_id(),
            nonce: hex(&random()?[..8]),
            hub,
        })
    }

    pub fn text(&self) -> Result<String, Error> {
        serde_json::to_string(self)
            .map_err(std::io::Error::other)
            .map_err(Error::io("writing a key"))
    }

    /// Who this is, for messages.
    pub fn who(text: &[u8]) -> String {
        match serde_json::from_slice::<Self>(text) {
            Ok(card) => format!("process {} on {}", card.process, tame(&card.host)),
            Err(_) => "somebody else".to_owned(),
        }
    }

    /// The addresses of its hub in the order to try; `None` if this is not rank 0's card. What is
    /// there is checked by the handshake, so that a lie costs time only.
    pub fn hub(text: &[u8], own: &[Address]) -> Option<Vec<SocketAddr>> {
        let card: Self = serde_json::from_slice(text).ok()?;
        let Hub { port, mut addresses } = card.hub?;
        // Another host's loopback leads to this one.
        addresses.retain(|ip| !ip.is_loopback() || card.boot == place::boot_id());
        addresses.truncate(ADDRESSES_MAX);
        addresses.sort_by_key(|ip| match ip {
            ip if ip.is_loopback() => 2,
            ip if own.iter().any(|a| a.is_beside(*ip)) => 0,
            _ => 1,
        });
        Some(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_address_comes_first_and_loopback_only_on_the_same_host() {
        let own = [Address { interface: "eth0".into(), ip: [10, 0, 0, 7].into(), prefix: 8 }];
        let text = |boot: &str| {
            format!(
                r#"{{"host":"h","process":1,"boot":"{boot}","nonce":"n",
                    "hub":{{"port":7,"addresses":["127.0.0.1","1.2.3.4","10.0.0.1"]}}}}"#
            )
        };
        let shown = |boot: &str| {
            let all = Card::hub(text(boot).as_bytes(), &own).unwrap();
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("another"), "10.0.0.1:7 1.2.3.4:7");
        assert_eq!(shown(&place::boot_id()), "10.0.0.1:7 1.2.3.4:7 127.0.0.1:7");
    }

    #[test]
    fn what_others_write_is_not_believed() {
        assert_eq!(Card::who(b"\xff"), "somebody else");
        assert!(Card::hub(b"{}", &[]).is_none());
        let own = Card::new(None).unwrap().text().unwrap();
        assert!(Card::hub(own.as_bytes(), &[]).is_none());
        assert!(Card::who(own.as_bytes()).starts_with("process "));
    }
}

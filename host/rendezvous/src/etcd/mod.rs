//! Meeting by way of etcd: where it is, and what each rank keeps there.
//!
//! Every rank has one key, `PREFIX/JOB/RANK`, under a lease of its own. The key of rank 0 says
//! where its hub is. The key of a rank that dies vanishes with its lease, and so do those of a job
//! that crashes. A rank whose lease has ended is no member any more, whether etcd says so or is
//! silent for so long: it begins nothing new. What ranks have begun needs no etcd.

#[cfg(not(feature = "etcd"))]
mod absent;
#[cfg(feature = "etcd")]
mod card;
#[cfg(feature = "etcd")]
mod client;
#[cfg(feature = "etcd")]
mod keeper;
#[cfg(feature = "etcd")]
mod lease;

#[cfg(not(feature = "etcd"))]
pub(crate) use absent::Lease;
#[cfg(feature = "etcd")]
pub(crate) use lease::Lease;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long etcd keeps the key of a rank that it does not hear of, and how long a rank that does
/// not hear of etcd is still a member.
#[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "its only user is left out"))]
pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// Where an etcd is, and below which key: `etcd://HOST:PORT[,HOST:PORT]/PREFIX`, or
/// `etcd://USER@...` with the password in UNISONO_ETCD_PASSWORD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    pub(crate) user: Option<String>,
    /// `HOST:PORT` each; they belong to one etcd.
    pub(crate) servers: Vec<String>,
    /// Without a slash at its ends; may be empty.
    pub(crate) prefix: String,
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        write!(f, "{}/{}", self.servers.join(","), self.prefix)
    }
}

const SCHEME: &str = "etcd://";
const WANTED: &str = "wanted is etcd://HOST:PORT[,HOST:PORT]/PREFIX";

impl FromStr for Etcd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            let known = text.starts_with("https://") || text.starts_with("etcds://");
            let tls = if known { "; TLS is not supported" } else { "" };
            return Err(format!("{WANTED}{tls}"));
        };
        let (place, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, servers) = match place.rsplit_once('@') {
            None => (None, place),
            Some((user, _)) if user.contains(':') => {
                return Err("a password would be seen in lists of processes; \
                            UNISONO_ETCD_PASSWORD takes it"
                    .into());
            }
            Some(("", _)) => return Err(format!("no user before the @; {WANTED}")),
            Some((user, servers)) => (Some(user.to_owned()), servers),
        };
        let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        if let Some(bad) = servers.iter().find(|server| !is_server(server)) {
            return Err(format!("`{bad}` is no HOST:PORT; {WANTED}"));
        }
        let prefix = prefix.trim_matches('/').to_owned();
        if prefix.contains(|c: char| c.is_control() || c == '?' || c == '#') {
            return Err(format!("a prefix has no control characters, `?` or `#`; {WANTED}"));
        }
        if !cfg!(feature = "etcd") {
            return Err("this build is without etcd; `cargo build --features etcd` has it".into());
        }
        Ok(Self { user, servers, prefix })
    }
}

/// Is this `HOST:PORT` or `[IPV6]:PORT`?
fn is_server(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let named = match bare {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        }
    };
    named && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        for (text, shown) in [
            ("etcd://h:1/p", "etcd://h:1/p"),
            ("etcd://a.b:2379,[::1]:2380/x/y/", "etcd://a.b:2379,[::1]:2380/x/y"),
            ("etcd://me@h:1", "etcd://me@h:1/"),
            ("etcd://h:1//p", "etcd://h:1/p"),
        ] {
            assert_eq!(text.parse::<Etcd>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, why) in [
            ("", "wanted is"),
            ("http://h:1/p", "wanted is"),
            ("etcds://h:1/p", "TLS is not supported"),
            ("etcd://h/p", "`h` is no HOST:PORT"),
            ("etcd:///p", "`` is no HOST:PORT"),
            ("etcd://h:0/p", "is no HOST:PORT"),
            ("etcd://h:1,/p", "`` is no HOST:PORT"),
            ("etcd://::1:2379/p", "is no HOST:PORT"),
            ("etcd://a b:1/p", "is no HOST:PORT"),
            ("etcd://me:word@h:1/p", "UNISONO_ETCD_PASSWORD takes it"),
            ("etcd://@h:1/p", "no user"),
            ("etcd://h:1/p?ttl=1", "`?`"),
        ] {
            let error = text.parse::<Etcd>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}

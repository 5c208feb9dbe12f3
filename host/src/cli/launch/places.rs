//! Which rank runs where.

use crate::cli::error::Usage;
use std::str::FromStr;
use unisono_rendezvous::RANKS_MAX;

/// One of `--hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What the remote shell is told.
    pub name: String,
    /// Its ranks, if said.
    ranks: Option<usize>,
}

impl Host {
    /// Its address without the user before it.
    pub fn address(&self) -> String {
        self.name.rsplit_once('@').map_or(self.name.as_str(), |(_, host)| host).to_owned()
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // An IPv6 address has colons of its own, and brackets if a number follows.
        let (name, ranks) = match text.rsplit_once(':') {
            Some((name, ranks)) if !name.contains(':') || name.ends_with(']') => {
                let ranks = ranks.parse().ok().filter(|&n: &usize| n > 0);
                (name, Some(ranks.ok_or_else(|| format!("{text}: no number of ranks"))?))
            }
            _ => (text, None),
        };
        let name = name.replace(['[', ']'], "");
        // What begins with a dash would be an option of ssh.
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
            return Err(format!("{text}: no name of a host"));
        }
        Ok(Self { name, ranks })
    }
}

/// Where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// On which other host, if any.
    pub host: Option<String>,
    /// Which of the ranks there.
    pub local_rank: usize,
    /// How many there are there.
    pub local_size: usize,
}

/// The place of each rank.
pub fn places(ranks: Option<usize>, hosts: &[Host]) -> Result<Vec<Place>, Usage> {
    if let Some(twice) =
        hosts.iter().enumerate().find(|(i, h)| hosts[..*i].iter().any(|o| o.name == h.name))
    {
        let name = &twice.1.name;
        return Err(Usage(format!("--hosts names {name} twice; {name}:2 means two ranks there")));
    }
    let said: usize = hosts.iter().filter_map(|h| h.ranks).sum();
    let open = hosts.iter().filter(|h| h.ranks.is_none()).count();
    let ranks = match ranks {
        Some(ranks) => ranks,
        None if open == 0 && said > 0 => said,
        None => return Err(Usage("how many ranks? -n says it, or --hosts a:2,b:2".into())),
    };
    if ranks == 0 || ranks > RANKS_MAX {
        return Err(Usage(format!("-n {ranks}: a group has 1 to {RANKS_MAX} ranks")));
    }
    if hosts.is_empty() {
        return Ok(on(None, ranks).collect());
    }
    let left = ranks.checked_sub(said).filter(|&left| left >= open && (open > 0 || left == 0));
    let left = left.ok_or_else(|| {
        Usage(format!(
            "-n {ranks} does not fit: hosts name {said} ranks, and {open} have no number"
        ))
    })?;
    let mut shares = (0..open).map(|i| left / open + usize::from(i < left % open));
    let of = |host: &Host| on(Some(&host.name), host.ranks.or_else(|| shares.next()).unwrap_or(0));
    Ok(hosts.iter().flat_map(of).collect())
}

fn on(host: Option<&String>, ranks: usize) -> impl Iterator<Item = Place> + use<> {
    let host = host.cloned();
    (0..ranks).map(move |local_rank| Place { host: host.clone(), local_rank, local_size: ranks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(ranks: Option<usize>, hosts: &str) -> Result<String, String> {
        let hosts: Vec<Host> = match hosts {
            "" => Vec::new(),
            hosts => hosts.split(',').map(|h| h.parse()).collect::<Result<_, _>>()?,
        };
        let places = places(ranks, &hosts).map_err(|e| e.to_string())?;
        let shown =
            |p: Place| format!("{}{}/{}", p.host.unwrap_or_default(), p.local_rank, p.local_size);
        Ok(places.into_iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn ranks_are_spread_in_blocks() {
        for (ranks, hosts, wanted) in [
            (Some(2), "", "0/2 1/2"),
            (Some(3), "a,b", "a0/2 a1/2 b0/1"),
            (None, "a:1,b:2", "a0/1 b0/2 b1/2"),
            (Some(4), "a:1,b", "a0/1 b0/3 b1/3 b2/3"),
            (Some(1), "u@a", "u@a0/1"),
            (None, "[::1]:1,fd00::2:1", ""),
            (Some(2), "[::1]:1,fd00::2", "::10/1 fd00::20/1"),
        ] {
            assert_eq!(spread(ranks, hosts).unwrap_or_default(), wanted, "{hosts}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (ranks, hosts) in [
            (None, ""),
            (None, "a,b:2"),
            (Some(0), ""),
            (Some(5000), ""),
            (Some(1), "a,b"),
            (Some(3), "a:1,b:1"),
            (Some(1), "a:2"),
            (Some(2), "a,a"),
            (Some(1), "a:0"),
            (Some(1), "-oProxyCommand=x"),
            (Some(1), "a b"),
        ] {
            assert!(spread(ranks, hosts).is_err(), "{ranks:?} {hosts}");
        }
    }
}

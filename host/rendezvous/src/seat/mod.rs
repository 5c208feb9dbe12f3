//! Which rank this process is, by what its launcher has put into the environment.

mod detect;
mod env;
mod hostlist;
mod launcher;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::etcd::Etcd;
use crate::wire::RANKS_MAX;
use env::Env;
use std::fmt;
use std::str::FromStr;

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// UNISONO_RANK and UNISONO_SIZE: `unisono launch`, or somebody by hand.
    Unisono,
    /// torchrun, or another agent of torch elastic.
    Torchrun,
    /// mpirun of Open MPI.
    OpenMpi,
    /// mpiexec of MPICH, Intel MPI and others with Hydra.
    Hydra,
    /// srun.
    Slurm,
    /// RANK, WORLD_SIZE and MASTER_ADDR: operators of Kubernetes, scripts.
    Plain,
}

impl Launcher {
    /// For messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unisono => "unisono",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI's mpirun",
            Self::Hydra => "mpiexec (Hydra)",
            Self::Slurm => "srun",
            Self::Plain => "whoever set RANK and WORLD_SIZE",
        }
    }
}

/// A process among those on its host. It is never computed: launchers number as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Counted from 0.
    pub rank: usize,
    /// Of how many, if the launcher says it.
    pub size: Option<usize>,
}

/// Where rank 0 is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meet {
    /// All ranks are on this host: an abstract Unix socket, named after user and job.
    Local,
    /// A host's name or address, and the ports to try, in this order.
    Tcp {
        /// Name or address of rank 0's host, without brackets.
        host: String,
        /// First port.
        port: u16,
        /// How many: more than one where the launcher did not keep one free for us.
        ports: u16,
    },
    /// Rank 0 says it in an etcd.
    Etcd(Etcd),
}

impl FromStr for Meet {
    type Err = String;

    /// `local`, `HOST:PORT`, `[IPV6]:PORT` or `etcd://...`
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "local" {
            return Ok(Self::Local);
        }
        if text.contains("://") {
            return text.parse().map(Self::Etcd);
        }
        let wrong = || "wanted is HOST:PORT, [IPV6]:PORT or local".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let port = port.parse().ok().filter(|&p| p > 0).ok_or_else(wrong)?;
        // Without brackets nobody can tell where an IPv6 address ends.
        if host.is_empty() || (bare.is_none() && host.contains([':', '[', ']'])) {
            return Err(wrong());
        }
        Ok(Self::Tcp { host: bare.unwrap_or(host).to_owned(), port, ports: 1 })
    }
}

impl fmt::Display for Meet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("a Unix socket of this host"),
            Self::Etcd(etcd) => etcd.fmt(f),
            Self::Tcp { host, port, ports } => {
                match host.contains(':') {
                    true => write!(f, "[{host}]:{port}")?,
                    false => write!(f, "{host}:{port}")?,
                }
                if *ports > 1 { write!(f, "-{}", port + (ports - 1)) } else { Ok(()) }
            }
        }
    }
}

/// A process's place in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Which rank it is.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// Its place on its host, where the launcher says it.
    pub local: Option<Local>,
    /// Names the job: two that run at once are never taken for one.
    pub job: String,
    /// Who started it.
    pub launcher: Launcher,
    /// Where rank 0 is met.
    pub meet: Meet,
}

impl Seat {
    /// What the launcher has put into the environment; `None` if nobody says that this process is
    /// one of several.
    ///
    /// UNISONO_RANK and UNISONO_SIZE come first, then torchrun, Open MPI, MPICH and its kin, Slurm,
    /// then RANK with WORLD_SIZE and MASTER_ADDR. UNISONO_MASTER (`HOST:PORT`, `[IPV6]:PORT`, or
    /// `local`) and UNISONO_JOB override what any launcher says, and so does UNISONO_RENDEZVOUS
    /// ([`Etcd`]) in place of UNISONO_MASTER.
    ///
    /// # Errors
    /// If a variable makes no sense or the launcher leaves out what only it knows.
    pub fn from_env() -> Result<Option<Self>, Error> {
        detect::seat(&Env::of_process(), None)
    }

    /// The same, but ranks meet by way of this etcd, whatever variables say.
    ///
    /// # Errors
    /// As for [`Self::from_env`].
    pub fn from_env_at(etcd: Etcd) -> Result<Option<Self>, Error> {
        detect::seat(&Env::of_process(), Some(etcd))
    }

    /// A seat that is known otherwise, for example from a program's own arguments.
    ///
    /// # Errors
    /// If there is no such rank, or if the job's name is empty or longer than 200 B.
    pub fn new(rank: usize, size: usize, job: &str, meet: Meet) -> Result<Self, Error> {
        let wrong = |name: &str, value: String, why: String| {
            Err(Error::Variable { name: name.into(), value, why })
        };
        if size == 0 || size > RANKS_MAX {
            return wrong("size", size.to_string(), format!("a group has 1 to {RANKS_MAX} ranks"));
        }
        if rank >= size {
            let last = size - 1;
            return wrong("rank", rank.to_string(), format!("of {size} ranks the last is {last}"));
        }
        if job.is_empty() || job.len() > JOB_MAX {
            return wrong("job", job.into(), format!("takes 1 to {JOB_MAX} B"));
        }
        let job = job.to_owned();
        Ok(Self { rank, size, local: None, job, launcher: Launcher::Unisono, meet })
    }
}

/// Longest name of a job.
const JOB_MAX: usize = 200;

//! One function for each launcher; the order in [`seat`] matters, since one may run inside another.

use super::env::Env;
use super::{JOB_MAX, Launcher, Local, Meet, Seat, hostlist, launcher};
use crate::error::Error;
use crate::etcd::Etcd;
use crate::wire::RANKS_MAX;
use sha2::{Digest, Sha256};

/// Ports to try where the one that we are told is taken by the launcher itself.
const TRIES: u16 = 8;

/// What is known before the address is.
struct Found {
    launcher: Launcher,
    rank: &'static str,
    size: &'static str,
    local: Option<Local>,
    job: Option<String>,
    meet: Option<Meet>,
}

/// The seat that an environment describes; `etcd` comes before what it says.
pub(super) fn seat(env: &Env, etcd: Option<Etcd>) -> Result<Option<Seat>, Error> {
    let found = if env.has(&["UNISONO_RANK"]) {
        unisono(env)?
    } else if env.has(&["UNISONO_SIZE"]) {
        return Err(env.wrong("UNISONO_RANK", "UNISONO_SIZE needs it beside it"));
    } else if env.has(&["LOCAL_RANK", "GROUP_RANK", "RANK"]) {
        torchrun(env)?
    } else if env.has(&["OMPI_COMM_WORLD_RANK"]) {
        open_mpi(env)?
    } else if env.has(&["PMI_RANK"]) && !is_srun_with_pmi(env) {
        hydra(env)?
    } else if is_step(env) {
        slurm(env)?
    } else if env.has(&["RANK", "WORLD_SIZE", "MASTER_ADDR"]) {
        plain(env)?
    } else {
        return Ok(None);
    };
    finish(env, etcd, found).map(Some)
}

fn finish(env: &Env, etcd: Option<Etcd>, found: Found) -> Result<Seat, Error> {
    let size: usize = env.need(found.size, "the number of ranks has to be set too")?;
    let rank: usize = env.need(found.rank, "the rank has to be set")?;
    if size == 0 || size > RANKS_MAX {
        return Err(env.wrong(found.size, format!("a group has 1 to {RANKS_MAX} ranks")));
    }
    if rank >= size {
        let last = size - 1;
        return Err(env.wrong(found.rank, format!("of {size} ranks the last is {last}")));
    }
    let alone = size == 1 || found.local.is_some_and(|l| l.size == Some(size));
    let meet = match etcd.map(Meet::Etcd).map_or_else(|| named(env), |meet| Ok(Some(meet)))? {
        Some(meet) => meet,
        None if alone => Meet::Local,
        None => found.meet.ok_or(Error::NoMaster { launcher: found.launcher.name() })?,
    };
    let job = match (env.get("UNISONO_JOB"), found.job) {
        (Some(job), _) if job.len() > JOB_MAX => {
            return Err(env.wrong("UNISONO_JOB", format!("takes at most {JOB_MAX} B")));
        }
        (Some(job), _) => job.to_owned(),
        // A launcher's own name may be longer than what is sent around.
        (None, Some(job)) if job.len() > JOB_MAX => {
            crate::secret::hex(&Sha256::digest(job.as_bytes()))
        }
        (None, Some(job)) => job,
        // Many jobs meet there.
        (None, None) if matches!(meet, Meet::Etcd(_)) => {
            return Err(
                env.wrong("UNISONO_JOB", "give the job a name that no other one has in etcd")
            );
        }
        // On several hosts the address is what all have in common.
        (None, None) if meet != Meet::Local => "unnamed".to_owned(),
        (None, None) => launcher::id(found.rank).ok_or_else(|| {
            env.wrong("UNISONO_JOB", "/proc is not readable; give the job a name")
        })?,
    };
    Ok(Seat { rank, size, local: found.local, job, launcher: found.launcher, meet })
}

/// Where ranks meet, if a variable says it.
fn named(env: &Env) -> Result<Option<Meet>, Error> {
    const NAME: &str = "UNISONO_RENDEZVOUS";
    let Some(text) = env.get(NAME) else { return master(env) };
    if env.has(&["UNISONO_MASTER"]) {
        return Err(env.wrong(NAME, "UNISONO_MASTER says where ranks meet, too; one is enough"));
    }
    text.parse().map(|etcd| Some(Meet::Etcd(etcd))).map_err(|why: String| env.wrong(NAME, why))
}

/// UNISONO_MASTER.
fn master(env: &Env) -> Result<Option<Meet>, Error> {
    const NAME: &str = "UNISONO_MASTER";
    let Some(text) = env.get(NAME) else { return Ok(None) };
    match text.parse() {
        // Those need a name for the job and have a variable of their own.
        Ok(Meet::Etcd(_)) => Err(env.wrong(NAME, "UNISONO_RENDEZVOUS takes the place of an etcd")),
        Ok(meet) => Ok(Some(meet)),
        Err(why) => Err(env.wrong(NAME, why)),
    }
}

fn local(env: &Env, rank: &str, size: &str) -> Result<Option<Local>, Error> {
    let local = Local { rank: env.number(rank)?.unwrap_or(0), size: env.number(size)? };
    match local.size {
        Some(n) if local.rank >= n => Err(env.wrong(rank, format!("{size} is {n}"))),
        _ => Ok(env.has(&[rank]).then_some(local)),
    }
}

fn unisono(env: &Env) -> Result<Found, Error> {
    Ok(Found {
        launcher: Launcher::Unisono,
        rank: "UNISONO_RANK",
        size: "UNISONO_SIZE",
        local: local(env, "UNISONO_LOCAL_RANK", "UNISONO_LOCAL_SIZE")?,
        job: None,
        meet: None,
    })
}

/// MASTER_ADDR, and ports behind MASTER_PORT: the port itself is held by torchrun's own store, or
/// will be by torch.distributed of the same program.
fn behind_master(env: &Env) -> Result<Meet, Error> {
    let Some(host) = env.get("MASTER_ADDR") else {
        return Err(env.wrong("MASTER_ADDR", "RANK and WORLD_SIZE need it beside them"));
    };
    let port: u16 = env.need("MASTER_PORT", "MASTER_ADDR needs it beside it")?;
    // At the end of the range there is room before the port only.
    let port = if port > u16::MAX - TRIES { port - TRIES } else { port + 1 };
    Ok(Meet::Tcp { host: host.to_owned(), port, ports: TRIES })
}

fn torchrun(env: &Env) -> Result<Found, Error> {
    let part = |name| env.get(name).unwrap_or("0");
    let names = ["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"];
    Ok(Found {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        size: "WORLD_SIZE",
        local: local(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")?,
        // A restart is another job: ranks of the one before may still be there.
        job: Some(format!("torchrun-{}", names.map(part).join("-"))),
        meet: Some(behind_master(env)?),
    })
}

fn open_mpi(env: &Env) -> Result<Found, Error> {
    Ok(Found {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: local(env, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")?,
        job: env.get("PMIX_NAMESPACE").map(|job| format!("pmix-{job}")),
        meet: None,
    })
}

fn hydra(env: &Env) -> Result<Found, Error> {
    Ok(Found {
        launcher: Launcher::Hydra,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: local(env, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")?,
        job: env.get("PMI_JOBID").map(|job| format!("pmi-{job}")),
        meet: None,
    })
}

/// `srun --mpi=pmi2` sets PMI_RANK too, but Hydra's own processes under srun have a local rank.
fn is_srun_with_pmi(env: &Env) -> bool {
    is_step(env) && !env.has(&["MPI_LOCALRANKID"]) && env.get("PMI_RANK") == env.get("SLURM_PROCID")
}

/// Is this a task of srun? The script of a batch job has SLURM_PROCID=0 as well, and SLURM_NTASKS,
/// but it is one process: its step has no number, or one of those above any real step's.
fn is_step(env: &Env) -> bool {
    const SPECIAL: u32 = 0xffff_fff0;
    let step = |id: &str| id.parse().is_ok_and(|id: u32| id < SPECIAL);
    env.has(&["SLURM_PROCID"]) && env.get("SLURM_STEP_ID").is_some_and(step)
}

fn slurm(env: &Env) -> Result<Found, Error> {
    let either = |step: &'static str, job: &'static str| if env.has(&[step]) { step } else { job };
    let job: u32 = env.need("SLURM_JOB_ID", "srun sets it")?;
    let step: u32 = env.need("SLURM_STEP_ID", "srun sets it")?;
    let restart = env.get("SLURM_RESTART_COUNT").unwrap_or("0");
    let nodes = either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    let host = match env.get(nodes).map(hostlist::first) {
        Some(None) => return Err(env.wrong(nodes, "this is no list of hosts")),
        Some(Some(host)) => Some(host),
        None => None,
    };
    // Below the ports that systems give away themselves.
    let number = u64::from(job).wrapping_mul(31).wrapping_add(u64::from(step));
    let port = 20_000 + (number * u64::from(TRIES) % 10_000) as u16;
    let per_node = env.get(either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"));
    let node = env.number("SLURM_NODEID")?.unwrap_or(0);
    let tasks = per_node.and_then(|list| hostlist::tasks(list, node));
    let local = env.number("SLURM_LOCALID")?.map(|rank| Local { rank, size: tasks });
    Ok(Found {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local,
        job: Some(format!("slurm-{job}.{step}-{restart}")),
        meet: host.map(|host| Meet::Tcp { host, port, ports: TRIES }),
    })
}

fn plain(env: &Env) -> Result<Found, Error> {
    Ok(Found {
        launcher: Launcher::Plain,
        rank: "RANK",
        size: "WORLD_SIZE",
        local: local(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")?,
        job: None,
        meet: Some(behind_master(env)?),
    })
}

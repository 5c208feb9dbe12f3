//! Environments as launchers make them, and as they should not be.

use super::env::Env;
use super::{Launcher, Local, Meet, Seat, detect};
use crate::error::Error;

fn detected(pairs: &[(&str, &str)]) -> Result<Option<Seat>, Error> {
    detect::seat(&Env::of(pairs), None)
}

fn seat(pairs: &[(&str, &str)]) -> Seat {
    detected(pairs).unwrap().expect("a seat")
}

#[track_caller]
fn refused(pairs: &[(&str, &str)], words: &[&str]) {
    let error = detected(pairs).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word} is not in: {error}");
    }
}

fn local(rank: usize, size: usize) -> Option<Local> {
    Some(Local { rank, size: Some(size) })
}

fn tcp(host: &str, port: u16, ports: u16) -> Meet {
    Meet::Tcp { host: host.into(), port, ports }
}

const UNISONO: [(&str, &str); 2] = [("UNISONO_RANK", "1"), ("UNISONO_SIZE", "4")];
const OPEN_MPI: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "3"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
    ("OMPI_UNIVERSE_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-vm-20737@1"),
];
const HYDRA: [(&str, &str); 4] =
    [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "2")];
const TORCHRUN: [(&str, &str); 9] = [
    ("RANK", "5"),
    ("WORLD_SIZE", "6"),
    ("LOCAL_RANK", "2"),
    ("GROUP_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "3"),
    ("MASTER_ADDR", "node1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "r"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
];
const SLURM: [(&str, &str); 9] = [
    ("SLURM_JOB_ID", "7"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "7"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "2"),
    ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
    ("SLURM_STEP_NODELIST", "node[03-06]"),
    ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.99"),
];

#[test]
fn nobody_says_anything() {
    assert_eq!(detected(&[]).unwrap(), None);
    assert_eq!(detected(&[("RANK", "1"), ("UNISONO_MASTER", "x:1")]).unwrap(), None);
    assert_eq!(detected(&[("UNISONO_RANK", "")]).unwrap(), None);
}

#[test]
fn own_variables_come_first() {
    let own = [("UNISONO_MASTER", "[fd00::1]:99"), ("UNISONO_JOB", "j")];
    let seat = seat(&[&UNISONO[..], &own, &OPEN_MPI, &SLURM, &TORCHRUN].concat());
    assert_eq!((seat.rank, seat.size, seat.job.as_str()), (1, 4, "j"));
    assert_eq!((seat.launcher, seat.local), (Launcher::Unisono, None));
    assert_eq!(seat.meet, tcp("fd00::1", 99, 1));
    assert_eq!(seat.meet.to_string(), "[fd00::1]:99");
}

#[test]
fn open_mpi_on_one_host_needs_nothing_else() {
    let seat = seat(&[&OPEN_MPI[..], &SLURM[..4]].concat());
    assert_eq!((seat.rank, seat.size, seat.local), (1, 3, local(2, 3)));
    assert_eq!((seat.launcher, seat.meet), (Launcher::OpenMpi, Meet::Local));
    assert_eq!(seat.job, "pmix-prterun-vm-20737@1");
}

#[test]
fn several_hosts_need_a_master_if_the_launcher_names_none() {
    let mut far = OPEN_MPI;
    far[3].1 = "2";
    far[2].1 = "1";
    refused(&far, &["Open MPI", "UNISONO_MASTER=HOST:PORT"]);
    let seat = seat(&[&far[..], &[("UNISONO_MASTER", "node7:5000")]].concat());
    assert_eq!((seat.local, seat.meet), (local(1, 2), tcp("node7", 5000, 1)));
    refused(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], &["Hydra", "UNISONO_MASTER"]);
}

#[test]
fn hydra_names_no_job_so_its_process_does() {
    let one = seat(&HYDRA);
    assert_eq!((one.launcher, &one.meet, one.local), (Launcher::Hydra, &Meet::Local, local(0, 2)));
    assert_eq!(one.job, seat(&HYDRA).job);
    let (pid, start) = one.job.split_once('-').expect("PID-START");
    assert!(pid.parse::<u32>().is_ok() && start.parse::<u64>().is_ok(), "{}", one.job);
}

#[test]
fn torchrun_holds_its_port_itself() {
    let one = seat(&TORCHRUN);
    assert_eq!((one.rank, one.size, one.local), (5, 6, local(2, 3)));
    assert_eq!((one.launcher, &one.meet), (Launcher::Torchrun, &tcp("node1", 29501, 8)));
    let mut again = TORCHRUN;
    again[8].1 = "1";
    assert_ne!(one.job, seat(&again).job);
    again[6].1 = "65535";
    assert_eq!(seat(&again).meet, tcp("node1", 65527, 8));
    let mut alone = TORCHRUN;
    alone[4].1 = "6";
    assert_eq!(seat(&alone).meet, Meet::Local);
}

#[test]
fn slurm_comes_last_and_its_lists_are_expanded() {
    let one = seat(&SLURM);
    assert_eq!((one.rank, one.size, one.local), (5, 7, local(1, 2)));
    assert_eq!((one.launcher, one.job.as_str()), (Launcher::Slurm, "slurm-7.0-0"));
    let Meet::Tcp { host, port, ports } = &one.meet else { panic!("{:?}", one.meet) };
    assert_eq!((host.as_str(), *ports), ("node03", 8));
    assert!((20_000..30_000).contains(port), "{port}");
    // `srun --mpi=pmi2` is srun; Hydra's own processes under srun are Hydra's.
    let pmi = [("PMI_RANK", "5"), ("PMI_SIZE", "7")];
    assert_eq!(seat(&[&SLURM[..], &pmi].concat()).launcher, Launcher::Slurm);
    let hydra = seat(&[&SLURM[..], &HYDRA].concat());
    assert_eq!((hydra.launcher, hydra.rank), (Launcher::Hydra, 0));
}

#[test]
fn the_script_of_a_batch_job_is_no_rank() {
    let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "7")];
    assert_eq!(detected(&batch).unwrap(), None);
    let numbered = [&batch[..], &[("SLURM_STEP_ID", "4294967291")]].concat();
    assert_eq!(detected(&numbered).unwrap(), None);
}

#[test]
fn plain_variables_need_all_of_them() {
    let plain = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "m"), ("MASTER_PORT", "70")];
    let one = seat(&plain);
    assert_eq!((one.launcher, one.rank, one.meet), (Launcher::Plain, 1, tcp("m", 71, 8)));
    refused(&plain[..3], &["MASTER_PORT", "(not set)"]);
}

#[test]
fn nonsense_is_named_with_its_value() {
    refused(&UNISONO[..1], &["UNISONO_SIZE=(not set)"]);
    refused(&UNISONO[1..], &["UNISONO_RANK=(not set)"]);
    refused(&UNISONO, &["UNISONO_MASTER=HOST:PORT"]);
    let with = |name, value| {
        let mut all = UNISONO.to_vec();
        all.retain(|(n, _)| *n != name);
        all.extend([("UNISONO_MASTER", "local"), (name, value)]);
        if name == "UNISONO_MASTER" {
            all.remove(all.len() - 2);
        }
        all
    };
    assert!(detected(&with("UNISONO_RANK", "3")).is_ok());
    refused(&with("UNISONO_RANK", "4"), &["UNISONO_RANK=4", "the last is 3"]);
    refused(&with("UNISONO_RANK", "-1"), &["UNISONO_RANK=-1"]);
    refused(&with("UNISONO_SIZE", "0"), &["UNISONO_SIZE=0", "1 to 4096"]);
    refused(&with("UNISONO_SIZE", "x"), &["UNISONO_SIZE=x"]);
    refused(&with("UNISONO_LOCAL_RANK", "one"), &["UNISONO_LOCAL_RANK=one"]);
    for bad in ["x", "x:", ":1", "x:0", "x:65536", "::1:5", "[::1:5", "::1]:5"] {
        refused(&with("UNISONO_MASTER", bad), &[&format!("UNISONO_MASTER={bad}"), "HOST:PORT"]);
    }
    refused(&with("UNISONO_JOB", &"j".repeat(201)), &["UNISONO_JOB", "at most 200 B"]);
    let mut slurm = SLURM;
    slurm[7].1 = "node[";
    refused(&slurm, &["SLURM_STEP_NODELIST=node["]);
}

#[cfg(feature = "etcd")]
#[test]
fn an_etcd_may_be_where_ranks_meet() {
    const PLACE: (&str, &str) = ("UNISONO_RENDEZVOUS", "etcd://h:1,i:2/p/q");
    let etcd = || PLACE.1.parse().unwrap();
    let job = ("UNISONO_JOB", "mine");
    for launcher in [&UNISONO[..], &OPEN_MPI, &SLURM] {
        let one = seat(&[launcher, &[PLACE, job]].concat());
        assert_eq!((one.meet, one.job.as_str()), (Meet::Etcd(etcd()), "mine"));
    }
    // Slurm's own name for a job is one everywhere; nobody else may have the same.
    assert!(seat(&[&SLURM[..], &[PLACE]].concat()).job.starts_with("slurm-"));
    let plain = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "1")];
    refused(&[&plain[..], &[PLACE]].concat(), &["UNISONO_JOB", "no other one has in etcd"]);
    refused(&[&plain[..], &[PLACE, job, ("UNISONO_MASTER", "h:1")]].concat(), &["UNISONO_MASTER"]);
    let wrong = ("UNISONO_RENDEZVOUS", "redis://h:1");
    refused(&[&plain[..], &[wrong, job]].concat(), &["redis://h:1", "wanted is etcd://HOST:PORT"]);
    // What a program is told comes before its environment.
    let env = Env::of(&[&plain[..], &[wrong, job]].concat());
    let told = detect::seat(&env, Some(etcd())).unwrap().unwrap();
    assert_eq!(told.meet, Meet::Etcd(etcd()));
}

#[cfg(not(feature = "etcd"))]
#[test]
fn a_build_without_etcd_says_so() {
    let place = ("UNISONO_RENDEZVOUS", "etcd://h:1/p");
    refused(&[&UNISONO[..], &[place]].concat(), &["this build is without etcd"]);
}

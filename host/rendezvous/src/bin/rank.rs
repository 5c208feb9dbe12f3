//! One rank: takes its seat, joins, connects, exchanges a few bytes over every route, and says what
//! it got. Started by tests, or by hand under a launcher to see whether it works there.
//!
//! `unisono-rank [--seconds S] [--streams N] [--far] [--udp] [--rounds N] [--stay] [--silent]
//! [--again S]`

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    match linux::run(std::env::args().skip(1)) {
        Ok(said) => {
            println!("{said}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("error: needs Linux");
    std::process::exit(2);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::error::Error;
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};
    use unisono_rendezvous::{Options, Rendezvous, Route, Seat, Secret, connect};

    type Result<T> = std::result::Result<T, Box<dyn Error>>;

    /// What the command line asks for.
    struct Asked {
        seconds: f64,
        rounds: usize,
        stay: bool,
        silent: bool,
        /// Connect once more after this time, in which the first routes are used.
        again: Option<f64>,
        options: Options,
    }

    fn asked(mut args: impl Iterator<Item = String>) -> Result<Asked> {
        let options = Options::from_env()?;
        let (seconds, rounds, again) = (30.0, 2, None);
        let mut asked = Asked { seconds, rounds, stay: false, silent: false, again, options };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} takes a value"));
            match arg.as_str() {
                "--seconds" => asked.seconds = value()?.parse()?,
                "--rounds" => asked.rounds = value()?.parse()?,
                "--streams" => asked.options.streams = value()?.parse()?,
                "--again" => asked.again = Some(value()?.parse()?),
                "--far" => asked.options.near = false,
                "--udp" => asked.options.datagrams = true,
                "--stay" => asked.stay = true,
                "--silent" => asked.silent = true,
                _ => return Err(format!("{arg}: no such option").into()),
            }
        }
        Ok(asked)
    }

    pub fn run(args: impl Iterator<Item = String>) -> Result<String> {
        let asked = asked(args)?;
        let seat = Seat::from_env()?.ok_or("no launcher has given this process a rank")?;
        let secret = Secret::from_env()?;
        let time = Duration::try_from_secs_f64(asked.seconds)?;
        let mut group = Rendezvous::join(&seat, secret.as_ref(), time)?;
        if asked.stay {
            // Tests end this process, or another one, and see what the others say.
            println!("joined");
            std::io::stdout().flush()?;
            std::thread::sleep(if asked.silent {
                Duration::from_secs(600)
            } else {
                Duration::ZERO
            });
        }
        for round in 0..asked.rounds {
            let blobs = group.all_gather(&blob(seat.rank, round))?;
            for (rank, got) in blobs.iter().enumerate() {
                if *got != blob(rank, round) {
                    return Err(format!("rank {rank} gave a wrong blob in round {round}").into());
                }
            }
        }
        let mut routes = connect(&mut group, &asked.options)?;
        let mut said = format!("rank {} of {}", seat.rank, seat.size);
        if let Some(local) = seat.local {
            said += &format!(" local {}", local.rank);
        }
        said += &format!(" by {}:", seat.launcher.name());
        for (peer, route) in routes.iter_mut().enumerate() {
            said += &match route {
                None => " self".to_owned(),
                Some(Route::Near(stream)) => {
                    exchange(stream, (seat.rank, peer), 0)?;
                    " near".to_owned()
                }
                Some(Route::Far { streams, address }) => {
                    for (n, stream) in streams.iter_mut().enumerate() {
                        exchange(stream, (seat.rank, peer), n)?;
                    }
                    format!(" far*{}@{}", streams.len(), address.ip().to_canonical())
                }
                Some(Route::Datagrams(all)) => {
                    for pair in &mut *all {
                        let ours = [pair.session, pair.first].map(u32::to_le_bytes).concat();
                        pair.lifeline.write_all(&ours)?;
                        let mut theirs = [0; 8];
                        pair.lifeline.read_exact(&mut theirs)?;
                        if ours != theirs {
                            return Err("both ends have tokens of their own".into());
                        }
                    }
                    let address = all.first().ok_or("no socket")?.socket.peer_addr()?;
                    format!(" udp*{}@{}", all.len(), address.ip())
                }
            };
        }
        if let Some(seconds) = asked.again {
            let end = Instant::now() + Duration::try_from_secs_f64(seconds)?;
            while Instant::now() < end {
                use_all(&mut routes, seat.rank)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            println!("went on");
            connect(&mut group, &asked.options)?;
        }
        group.barrier()?;
        Ok(said)
    }

    fn use_all(routes: &mut [Option<Route>], rank: usize) -> Result<()> {
        for (peer, route) in routes.iter_mut().enumerate() {
            match route {
                None => {}
                Some(Route::Near(stream)) => exchange(stream, (rank, peer), 0)?,
                Some(Route::Far { streams, .. }) => exchange(&mut streams[0], (rank, peer), 0)?,
                Some(Route::Datagrams(all)) => {
                    exchange(&mut all[0].lifeline, (rank, peer), 0)?;
                }
            }
        }
        Ok(())
    }

    /// Differs in length and bytes from rank to rank and from round to round.
    fn blob(rank: usize, round: usize) -> Vec<u8> {
        (0..rank * 37 + round * 5).map(|i| (i ^ rank ^ (round << 4)) as u8).collect()
    }

    /// Both ends say who they are, and which stream they take this for.
    fn exchange(
        stream: &mut (impl Read + Write),
        (rank, peer): (usize, usize),
        number: usize,
    ) -> Result<()> {
        stream.write_all(&[rank as u8, peer as u8, number as u8])?;
        let mut got = [0; 3];
        stream.read_exact(&mut got)?;
        if got == [peer as u8, rank as u8, number as u8] {
            return Ok(());
        }
        Err(format!("the route from {rank} to {peer} leads to {got:?}").into())
    }
}

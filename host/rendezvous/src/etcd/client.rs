//! Talking to etcd: every call has a time limit, and every error is one that passes or one that
//! does not.

use super::Etcd;
use etcd_client::{Client, ConnectOptions, Error};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Holds the password of the user that the place names.
const PASSWORD: &str = "UNISONO_ETCD_PASSWORD";
/// One call: a server that is silent for longer may be frozen.
const CALL: Duration = Duration::from_secs(3);
/// Between two tries.
pub const PAUSE: Duration = Duration::from_millis(300);

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It may work the next time.
    Passing(String),
    /// It will not.
    Final(String),
}

impl Trouble {
    fn of(error: &Error) -> Self {
        // tonic's codes, of which only the numbers can be had without naming that crate.
        const FINAL: [(i32, &str); 4] = [
            (3, "it refuses the user or the password"),
            (7, "the user has no right to write there"),
            (9, "it refuses"),
            (16, "it does not accept who this is"),
        ];
        let Error::GRpcStatus(status) = error else { return Self::Passing(error.to_string()) };
        let said = crate::error::tame(status.message());
        let code = i32::from(status.code());
        match FINAL.iter().find(|(number, _)| *number == code) {
            Some((_, what)) => Self::Final(format!("{what} ({said})")),
            None => Self::Passing(said),
        }
    }
}

/// Makes a call.
pub async fn call<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
    match timeout(CALL, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Trouble::of(&error)),
        Err(_) => Err(Trouble::Passing(format!("no answer for {} s", CALL.as_secs()))),
    }
}

/// Connects, as soon as one of the servers is there; says what is wrong meanwhile.
pub async fn connect(etcd: &Etcd, say: impl Fn(String)) -> Result<Client, String> {
    // Pings end connections to servers that are gone without a word.
    let mut options = ConnectOptions::new()
        .with_connect_timeout(CALL)
        .with_keep_alive(CALL, CALL)
        .with_auto_token_refresh(true);
    if let Some(user) = &etcd.user {
        let password = std::env::var(PASSWORD);
        let password = password.map_err(|_| format!("{PASSWORD} has to be set for user {user}"))?;
        options = options.with_user(user, password);
    }
    loop {
        // The client itself would wait without saying why.
        let mut found = false;
        for server in &etcd.servers {
            match timeout(CALL, TcpStream::connect(server)).await {
                Ok(Ok(_)) => found = true,
                Ok(Err(error)) => say(format!("{server}: {error}")),
                Err(_) => say(format!("{server}: no answer for {} s", CALL.as_secs())),
            }
        }
        if found {
            match call(Client::connect(&etcd.servers, Some(options.clone()))).await {
                Ok(client) => return Ok(client),
                Err(Trouble::Passing(why)) => say(why),
                Err(Trouble::Final(why)) => return Err(why),
            }
        }
        sleep(PAUSE).await;
    }
}

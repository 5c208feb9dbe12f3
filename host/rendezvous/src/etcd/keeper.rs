//! What the thread of a lease does: takes it, renews it, watches the others, gives it back.

use super::LEASE;
use super::card::Card;
use super::client::{PAUSE, Trouble, call, connect};
use super::lease::{Desk, Phase};
use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse, WatchOptions,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch::Receiver;
use tokio::time::{sleep, timeout};

/// Between two renewals: two may get lost.
const BEAT: Duration = Duration::from_millis(LEASE.as_millis() as u64 / 3);
/// A key of a process that is dead is gone after this time.
const STALE: Duration = Duration::from_secs(LEASE.as_secs() + 2);
/// For giving the lease back; if that fails, it ends by itself.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs until the phase is [`Phase::Leaving`].
pub async fn run(desk: &Desk, mut phase: Receiver<Phase>) {
    let taken = tokio::select! {
        taken = take(desk) => taken,
        () = reached(&mut phase, Phase::Leaving) => return,
    };
    let (mut client, lease) = match taken {
        Ok(taken) => taken,
        Err(why) => return desk.change(|state| state.ended = Some(why)),
    };
    let mut heard = phase.clone();
    let watched = async {
        tokio::select! {
            () = watch(desk, client.clone()) => {}
            () = reached(&mut heard, Phase::Member) => {}
        }
    };
    let work = async {
        tokio::join!(renew(desk, client.clone(), lease), watched);
        // The key stays for the rest of its time, unless this process ends earlier.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = work => {}
        () = reached(&mut phase, Phase::Leaving) => {}
    }
    // All that was to be done is done; a server that is gone ends the lease in time.
    if timeout(FAREWELL, client.lease_revoke(lease)).await.is_err() {
        tracing::debug!("etcd at {}: the lease ends by itself", desk.etcd);
    }
}

/// Returns once this phase is there; the other end is never dropped before the last one.
async fn reached(phase: &mut Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|now| *now >= wanted).await;
}

/// Registers this rank. A key that is there may be a dead process's: then it vanishes soon.
async fn take(desk: &Desk) -> Result<(Client, i64), String> {
    let mut client = connect(&desk.etcd, |why| desk.say(why)).await?;
    let mut seen: Option<(Vec<u8>, Instant)> = None;
    loop {
        let asked = Instant::now();
        match put(desk, &mut client).await {
            Ok(Put::Done(lease, made)) => {
                desk.change(|state| {
                    state.last.clear();
                    state.valid = Some(asked + LEASE);
                    state.made = made;
                });
                return Ok((client, lease));
            }
            Ok(Put::Other(card)) => {
                let who = Card::who(&card);
                let since = match seen.take() {
                    Some((before, since)) if before == card => since,
                    _ => asked,
                };
                if since.elapsed() > STALE {
                    return Err(format!("rank {} is there twice: {who} is it", desk.rank));
                }
                desk.say(format!("{who} has the place of this rank"));
                seen = Some((card, since));
            }
            Ok(Put::Own) => {}
            Err(Trouble::Passing(why)) => desk.say(why),
            Err(Trouble::Final(why)) => return Err(why),
        }
        sleep(PAUSE).await;
    }
}

/// What came of an attempt to write the key.
enum Put {
    /// It is there, under this lease, made by this revision.
    Done(i64, i64),
    /// It is this process's own, of an attempt whose answer got lost; that is removed now.
    Own,
    /// Somebody has it.
    Other(Vec<u8>),
}

async fn put(desk: &Desk, client: &mut Client) -> Result<Put, Trouble> {
    let lease = call(client.lease_grant(LEASE.as_secs() as i64, None)).await?.id();
    let key = format!("{}{:06}", desk.folder, desk.rank);
    let options = PutOptions::new().with_lease(lease);
    let txn = Txn::new()
        .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key.as_str(), desk.card.as_str(), Some(options))])
        .or_else([TxnOp::get(key.as_str(), None)]);
    let answer = call(client.txn(txn)).await?;
    if answer.succeeded() {
        let made = answer.header().map_or(0, |header| header.revision());
        return Ok(Put::Done(lease, made));
    }
    call(client.lease_revoke(lease)).await?;
    let found = answer.op_responses().into_iter().find_map(|response| match response {
        TxnOpResponse::Get(get) => get.kvs().first().cloned(),
        _ => None,
    });
    match found {
        Some(key) if key.value() == desk.card.as_bytes() => {
            call(client.lease_revoke(key.lease())).await?;
            Ok(Put::Own)
        }
        found => Ok(Put::Other(found.map_or_else(Vec::new, |key| key.value().to_vec()))),
    }
}

/// Renews the lease until it has ended.
async fn renew(desk: &Desk, mut client: Client, lease: i64) {
    loop {
        let asked = Instant::now();
        // A stream for each renewal: there is none that could break in between.
        let pause = match call(client.lease_keep_alive(lease)).await {
            Ok(_) => {
                // An answer that comes too late brings nobody back.
                if desk.holds().is_err() {
                    return;
                }
                desk.change(|state| {
                    state.last.clear();
                    state.valid = Some(asked + LEASE);
                });
                BEAT
            }
            Err(Trouble::Passing(why) | Trouble::Final(why)) if why.contains("lease not found") => {
                let why = "this rank's lease has ended".to_owned();
                return desk.change(|state| state.ended = Some(why));
            }
            Err(Trouble::Passing(why) | Trouble::Final(why)) => {
                desk.say(why);
                PAUSE
            }
        };
        if desk.holds().is_err() {
            return;
        }
        sleep(pause).await;
    }
}

/// Watches the others' keys: rank 0 all of them, the others that of rank 0.
async fn watch(desk: &Desk, mut client: Client) {
    let mut known = BTreeMap::new();
    loop {
        if let Err(Trouble::Passing(why) | Trouble::Final(why)) =
            follow(desk, &mut client, &mut known).await
        {
            desk.say(why);
        }
        sleep(PAUSE).await;
    }
}

/// Reads all keys, then follows the changes until that breaks.
async fn follow(
    desk: &Desk,
    client: &mut Client,
    known: &mut BTreeMap<u32, i64>,
) -> Result<(), Trouble> {
    let all = desk.lapsed.is_some();
    let from = if all { desk.folder.clone() } else { format!("{}{:06}", desk.folder, 0) };
    let (mut get, mut watch) = (GetOptions::new(), WatchOptions::new());
    if all {
        (get, watch) = (get.with_prefix(), watch.with_prefix());
    }
    let now = call(client.get(from.as_str(), Some(get))).await?;
    let there = now.kvs().iter().filter_map(|key| Some((rank_of(desk, key)?, key)));
    let there: BTreeMap<u32, &KeyValue> = there.collect();
    // What has gone while nobody watched; a rank may have come again.
    known.retain(|rank, made| {
        let stays = there.get(rank).is_some_and(|key| key.create_revision() == *made);
        if !stays {
            went(desk, *rank, *made);
        }
        stays
    });
    there.into_iter().for_each(|(rank, key)| came(desk, known, rank, key));
    let revision = now.header().map_or(0, |header| header.revision());
    let watch = watch.with_start_revision(revision + 1);
    let mut stream = call(client.watch(from.as_str(), Some(watch))).await?;
    // Pings end the stream if the server is gone without a word.
    while let Ok(Some(message)) = stream.message().await {
        for event in message.events() {
            let Some(key) = event.kv() else { continue };
            let Some(rank) = rank_of(desk, key) else { continue };
            match event.event_type() {
                EventType::Put => came(desk, known, rank, key),
                EventType::Delete => {
                    if let Some(made) = known.remove(&rank) {
                        went(desk, rank, made);
                    }
                }
            }
        }
        if message.canceled() {
            break;
        }
    }
    Ok(())
}

fn rank_of(desk: &Desk, key: &KeyValue) -> Option<u32> {
    key.key_str().ok()?.strip_prefix(desk.folder.as_str())?.parse().ok()
}

fn came(desk: &Desk, known: &mut BTreeMap<u32, i64>, rank: u32, key: &KeyValue) {
    known.insert(rank, key.create_revision());
    if rank == 0 {
        desk.change(|state| {
            state.root = Some(key.value().to_vec());
            state.root_gone = false;
        });
    }
}

fn went(desk: &Desk, rank: u32, made: i64) {
    if rank == 0 {
        desk.change(|state| (state.root, state.root_gone) = (None, true));
    }
    if let Some(lapsed) = &desk.lapsed {
        // What was there before rank 0 may be left of an earlier job of the same name.
        lapsed(rank, made < desk.state().made);
    }
}

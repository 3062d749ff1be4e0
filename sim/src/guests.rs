//! Clients that are no good guests: one that sends nothing but NULL, one that floods what all clients
//! share, and one that has the same XIDs after a restart.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use nfs_binding::client::{Mount3, Nfs3, RpcClient};
use nfs_binding::proto::{
    CreateArgs, CreateHow, DirOpArgs, FileHandle, MountArgs, MountPath, NfsResult, ReadArgs,
    SetAttributes, SetattrArgs, Stable, WriteArgs,
};
use onc_rpc::{AuthSys, Credential};
use rdma::Time;
use rpc_transport::CallError;
use rpcrdma_programs::pattern;

use crate::client::{Counted, Desk, credential};
use crate::exports::EXPORT;
use crate::joining::{connect, connect_as};
use crate::plan::{Flood, FloodOf};
use crate::shared::Shared;
use crate::work::place;

/// The pause between two NULLs of the quiet client on a connection: they keep it from being closed for
/// idleness.
const NULL_EVERY: Duration = Duration::from_secs(100);
/// The user who floods.
const FLOODER: u32 = 1000;
/// The bytes of a long WRITE.
const LONG: usize = 128 << 10;
/// The WRITEs of the client that repeats its XIDs, in each of its lives.
const WRITES: u64 = 4;
/// The bytes of each. The first ones are the same in all lives: less tells no two of them apart.
const REPEATED: usize = 1024;
const SAME: usize = 512;

/// Runs the client that keeps all its connections and sends only NULL.
pub(crate) async fn idle(shared: Rc<Shared>, desk: Desk, connections: usize) {
    let Some(client) = connect_as(&shared, &desk, None, credential(), connections).await else {
        return;
    };
    let rpc = Counted::new(client, desk.under_way, Rc::clone(&shared.guests));
    let nfs = Nfs3::new(rpc.clone());
    loop {
        let nulls = (0..connections).map(|_| nfs.null(&()));
        join_all(nulls).await;
        rpc.sleep(NULL_EVERY).await;
    }
}

/// Runs the client that floods.
pub(crate) async fn flood(shared: Rc<Shared>, desk: Desk, flood: Flood) {
    let mut bursts = flood.bursts.clone();
    bursts.sort();
    let user = Credential::Sys(AuthSys {
        machine_name: "sim".into(),
        uid: FLOODER,
        gid: FLOODER,
        ..AuthSys::default()
    });
    if flood.of == FloodOf::Connections {
        for at in bursts {
            sleep_until(&desk, at).await;
            for _ in 0..flood.count {
                if let Some(client) = connect_as(&shared, &desk, None, user.clone(), 1).await {
                    let under_way = Rc::clone(&desk.under_way);
                    let rpc = Counted::new(client, under_way, Rc::clone(&shared.guests));
                    // The connection ends with the client.
                    let _ = Nfs3::new(rpc).null(&()).await;
                }
            }
        }
        return;
    }
    let Some(client) = connect_as(&shared, &desk, None, user, 1).await else {
        return;
    };
    let under_way = Rc::clone(&desk.under_way);
    let rpc = Counted::new(client, under_way, Rc::clone(&shared.guests));
    for at in bursts {
        sleep_until(&desk, at).await;
        burst(&rpc, &flood).await;
    }
}

/// Waits until this time after the start of the run.
async fn sleep_until(desk: &Desk, at: Duration) {
    let now = desk.runtime.now();
    desk.runtime.sleep((Time::ZERO + at).max(now) - now).await;
}

/// Sends a burst of calls.
async fn burst(rpc: &Counted, flood: &Flood) {
    let nfs = &Nfs3::new(rpc.clone());
    let Some((root, file)) = file(rpc, nfs, "flood").await else {
        return;
    };
    // As many at once as the credits allow.
    let calls = (0..flood.count).map(|number| async move {
        match flood.of {
            FloodOf::Refusals => {
                let what = place(root, &format!("none{number}"));
                drop(nfs.remove(&DirOpArgs { what }).await);
            }
            FloodOf::Changes => {
                let args = SetattrArgs {
                    object: file,
                    attributes: SetAttributes {
                        mode: Some(0o600),
                        ..SetAttributes::default()
                    },
                    guard: None,
                };
                drop(nfs.setattr(&args).await);
            }
            FloodOf::Data | FloodOf::Connections => {
                let args = WriteArgs {
                    file,
                    offset: 0,
                    count: LONG as u32,
                    stable: Stable::FileSync,
                    data: vec![0xf1; LONG].into(),
                };
                drop(nfs.write(&args).await);
            }
        }
    });
    join_all(calls).await;
}

/// Mounts, and makes a file in the root, or finds it there. Returns the handles of both.
async fn file(rpc: &Counted, nfs: &Nfs3<Counted>, name: &str) -> Option<(FileHandle, FileHandle)> {
    let args = MountArgs {
        path: MountPath::from(EXPORT.as_bytes()),
    };
    let root = done(Mount3::new(rpc.clone()).mount(&args)).await?.handle;
    let create = CreateArgs {
        place: place(root, name),
        how: CreateHow::Unchecked(SetAttributes::default()),
    };
    let made = done(nfs.create(&create)).await?;
    Some((root, made.object?))
}

/// Returns the results of a call that succeeds.
async fn done<T, F>(call: impl Future<Output = Result<NfsResult<T, F>, CallError>>) -> Option<T> {
    call.await.ok()?.ok()
}

/// Runs one life of the client whose XIDs are the same in each life: its random numbers are. It writes the
/// same places of one file, with other data.
pub(crate) async fn repeat(shared: Rc<Shared>, desk: Desk) {
    let Some(client) = connect(&shared, &desk, None).await else {
        return;
    };
    let rpc = Counted::new(client, desk.under_way, Rc::clone(&shared.tally));
    let nfs = Nfs3::new(rpc.clone());
    let Some((_, file)) = file(&rpc, &nfs, "repeated").await else {
        return;
    };
    for place in 0..WRITES {
        let number = shared.history.borrow_mut().number();
        let mut data = pattern::content(number, REPEATED);
        data[..SAME].fill(0x5e);
        let (offset, count) = (place * REPEATED as u64, REPEATED as u32);
        let args = WriteArgs {
            file,
            offset,
            count,
            stable: Stable::FileSync,
            data: data.clone().into(),
        };
        let Some(_) = done(nfs.write(&args)).await else {
            continue;
        };
        let args = ReadArgs {
            file,
            offset,
            count,
        };
        let read = done(nfs.read(&args)).await;
        let now = rpc.now();
        let mut journal = shared.journal.borrow_mut();
        journal.line(
            now,
            format_args!("WRITE {number} at {offset} after a restart"),
        );
        if read.is_some_and(|read| read.data.0.to_bytes()[..] != data[..]) {
            let text = format!("WRITE {number} was acknowledged, and its data are not in the file");
            journal.violation(now, text);
        }
    }
}

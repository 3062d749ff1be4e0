//! The processes with the mounts that commands run in: the process itself, and how it is controlled.
//!
//! Each is a group of its own, so that Ctrl-C ends the measuring program and not this one. It notices
//! that by the end of its standard input, and unmounts.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_util::future::{Either, select};
use nfs_binding::client::{Follow, NfsUrl};
use nfs_mount::{Copies, MountError, Umount, umount};
use rpcrdma_setup::access::{Access, Reached};
use rpcrdma_setup::catalog::{Catalog, Tuning};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::Policy;
use rpcrdma_setup::fuse::fuse_options;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::{Context, Failure};
use serde::{Deserialize, Serialize};

use crate::child::ChildProcess;
use crate::options::Options;
use crate::served::{Attach, Task, USAGE, answer, congestion};
use crate::targets::{self, EXPORT};
use crate::usage::Usage;
use crate::variant::Serves;

/// The order to unmount.
const UNMOUNT: &str = "unmount";
/// How long a mount may be in use after the command has ended: by processes that it has left behind.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two attempts to unmount.
const PAUSE: Duration = Duration::from_millis(20);

/// The first answer of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MountedAt {
    /// The directory.
    pub(crate) path: PathBuf,
    /// The method by which the device registers memory.
    registration: Option<String>,
}

impl MountedAt {
    /// Returns the name of the method by which the device registers memory; there is none over TCP.
    pub(crate) fn registration(&self) -> Option<&'static str> {
        let Policy(method) = self.registration.as_deref()?.parse().ok()?;
        method.map(|method| method.name())
    }
}

/// Counters of a mount's client.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MountUsage {
    /// Processor time of the process, and counters of its device.
    pub(crate) process: Usage,
    /// The number of calls.
    pub(crate) calls: u64,
    /// The bytes of RPC messages in both directions.
    pub(crate) rpc_bytes: u64,
}

/// The last answer of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Unmounted {
    /// Whether the mount was still in use, and was taken away.
    busy: bool,
    /// The reason why the mount could be neither ended nor taken away.
    failed: Option<String>,
}

/// Orders that have arrived, from another thread.
#[derive(Default)]
struct Orders(Mutex<(VecDeque<String>, Option<Waker>)>);

impl Orders {
    fn state(&self) -> MutexGuard<'_, (VecDeque<String>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, order: String) {
        let mut state = self.state();
        state.0.push_back(order);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    fn poll(&self, context: &TaskContext<'_>) -> Poll<String> {
        let mut state = self.state();
        match state.0.pop_front() {
            Some(order) => Poll::Ready(order),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Attach {
    fn access(&self, catalog: &Catalog) -> Result<Access, Failure> {
        let Some(Serves::Nfs(variant)) = Serves::parse(catalog, &self.variant) else {
            let text = format!("{}: nothing that can be mounted", self.variant);
            return Err(Failure::Usage(text));
        };
        let costs = self.costs.as_deref().map(CostsArg::parse).transpose();
        let options = Options {
            device: self.device.parse().map_err(Failure::Usage)?,
            registration: self.registration.parse().map_err(Failure::Usage)?,
            rate: self.rate,
            inline: self.inline,
            crc: self.crc,
            congestion: congestion(self.congestion.as_ref())?,
            costs: costs.map_err(Failure::Usage)?,
            tuning: Tuning::parse(catalog.clone(), &self.tuning)?,
            ..Options::default()
        };
        let mut access = targets::access(&options, variant, self.delay, false)?;
        let proto = access.mount.proto;
        access.mount = MountOptions::parse(&self.mount_options).map_err(Failure::work)?;
        access.mount.proto = proto;
        // A server that has died must not keep the measurement waiting for ever.
        access.mount.hard = false;
        Ok(access)
    }
}

/// Mounts an export at a directory of its own, and serves the mount until it is told to end.
///
/// # Errors
/// The export cannot be mounted.
pub(crate) fn serve(attach: &Attach, catalog: &Catalog) -> Result<(), Failure> {
    let access = attach.access(catalog)?;
    let url = NfsUrl {
        server: attach.server.ip().to_string(),
        port: Some(attach.server.port()),
        path: EXPORT.to_vec(),
    };
    let mounted = access.mount(&url)?;
    let reached = &mounted.reached;
    let runtime = reached.runtime.clone();
    let root = runtime.block_on(mounted.mount.resolve(&mounted.path, Follow::Yes));
    let root = root.context(&url)?;
    let at = tempfile::Builder::new().prefix("rpcrdma-run-").tempdir();
    let at = at.context("cannot make a directory to mount at")?;
    let options = fuse_options(&url.to_string(), &access.mount);
    let pool = reached.pool();
    let fuse = nfs_mount::mount(&mounted.mount, root, pool, at.path(), &options);
    let fuse = fuse.map_err(Failure::work)?;

    let copies = fuse.copies();

    let orders = Arc::new(Orders::default());
    let unmounting = Arc::new(Mutex::new(()));
    let (to, held, path) = (
        Arc::clone(&orders),
        Arc::clone(&unmounting),
        at.path().to_owned(),
    );
    // A thread of its own: unmounting sends requests that the serving thread has to answer.
    thread::spawn(move || obey(&to, &held, &path));
    answer(&MountedAt {
        path: at.path().to_owned(),
        registration: reached.registration().map(str::to_owned),
    })?;
    let answering = async {
        loop {
            match poll_fn(|context| orders.poll(context)).await.as_str() {
                USAGE => answer(&usage(reached, &copies))?,
                other => tracing::warn!(other, "unknown order"),
            }
        }
    };
    let ended = runtime.block_on(async {
        match select(pin!(fuse.serve()), pin!(answering)).await {
            Either::Left((ended, _)) => ended.map_err(Failure::work),
            Either::Right((failed, _)) => failed,
        }
    });
    ended?;
    // If the mount was taken away, the other thread says so, and this process ends.
    let _idle = unmounting.lock().unwrap_or_else(PoisonError::into_inner);
    answer(&Unmounted {
        busy: false,
        failed: None,
    })
}

fn usage(reached: &Reached, copies: &Copies) -> MountUsage {
    let stats = reached.client.stats();
    let mut process = Usage::now(
        &reached.counters(),
        reached.grants_sent(),
        reached.runtime.system_calls(),
    );
    process.copied_bytes += copies.bytes();
    MountUsage {
        process,
        calls: stats.calls,
        rpc_bytes: stats.bytes_sent + stats.bytes_received,
    }
}

/// Passes orders on, except the one to unmount. Ends this process when there is nobody any more who
/// gives orders, and when the mount was taken away from processes that still used it: the kernel
/// reports the end of an ordinary user's mount only when the last of them has gone.
fn obey(orders: &Orders, unmounting: &Mutex<()>, path: &Path) {
    let mut unmounted_before = false;
    for line in io::stdin().lock().lines() {
        match line {
            Ok(order) if order == UNMOUNT => {
                // Held until `unmount` has returned: `serve` ends earlier, and must then wait for the
                // result.
                let _held = unmounting.lock().unwrap_or_else(PoisonError::into_inner);
                let unmounted = match unmount(path, PATIENCE) {
                    // The answer comes when everything has been written.
                    Ok(false) => {
                        unmounted_before = true;
                        continue;
                    }
                    Ok(true) => Unmounted {
                        busy: true,
                        failed: None,
                    },
                    Err(error) => Unmounted {
                        busy: false,
                        failed: Some(error.to_string()),
                    },
                };
                // Without a reader there is nobody to tell.
                drop(answer(&unmounted));
                leave(path)
            }
            Ok(order) => orders.push(order),
            Err(_) => break,
        }
    }
    if !unmounted_before && let Err(error) = unmount(path, Duration::ZERO) {
        tracing::warn!(%error, path = %path.display(), "a mount is left behind");
    }
    leave(path)
}

/// Removes the directory of a mount, and ends this process.
fn leave(path: &Path) -> ! {
    // The directory is empty and nobody's any more, or was removed before.
    drop(std::fs::remove_dir(path));
    process::exit(0)
}

/// Unmounts. What is still in use after `patience` is taken away from its users. Returns whether it
/// was.
///
/// # Errors
/// The mount could be neither ended nor taken away.
fn unmount(path: &Path, patience: Duration) -> Result<bool, MountError> {
    let mut left = patience;
    loop {
        match umount(path, Umount::Idle) {
            // Something else has ended it.
            Ok(()) | Err(MountError::NotMounted { .. }) => return Ok(false),
            Err(MountError::Busy { .. }) if left.is_zero() => {
                // Only root can make the requests fail at once; those of an ordinary user fail when
                // this process ends.
                drop(umount(path, Umount::Force));
                return match umount(path, Umount::Lazy) {
                    Ok(()) | Err(MountError::NotMounted { .. }) => Ok(true),
                    Err(error) => Err(error),
                };
            }
            Err(MountError::Busy { .. }) => {
                thread::sleep(PAUSE);
                left = left.saturating_sub(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// A process with a mount. Dropping it unmounts.
pub(crate) struct MountProcess {
    child: ChildProcess,
    /// Where and how it is mounted.
    pub(crate) at: MountedAt,
}

impl MountProcess {
    /// Starts the process and waits until it has mounted.
    ///
    /// # Errors
    /// The export cannot be mounted; the process has said why.
    pub(crate) fn start(attach: &Attach, words: &[String]) -> Result<Self, Failure> {
        let name = format!("{} mount", attach.variant);
        let mut child = ChildProcess::start(&name, words, &Task::Mount(attach.clone()))?;
        let at = child.answer()?;
        Ok(Self { child, at })
    }

    /// Returns what the client has done.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn usage(&mut self) -> Result<MountUsage, Failure> {
        self.child.ask(USAGE)
    }

    /// Unmounts: then everything written is on the server.
    ///
    /// # Errors
    /// Something written could not be sent, or a process still uses the mount.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let unmounted: Unmounted = self.child.ask(UNMOUNT)?;
        if let Some(reason) = unmounted.failed {
            return Err(Failure::Work(format!("cannot unmount: {reason}")));
        }
        match unmounted.busy {
            false => Ok(()),
            true => Err(Failure::work(
                "the command left a process behind that uses the mount: it has lost its files; end it, \
                 and let the command wait for what it starts",
            )),
        }
    }
}

//! FUSE's side: each request of the kernel becomes a job for the file system's thread.
//!
//! The threads that read FUSE's device run the methods of [`Bridge`]. They copy what a request carries,
//! and never wait. [`requests`] has one method for each kind of request, [`listing`] those for reading
//! directories, and [`open`] the flags of open files.

mod listing;
mod open;
mod requests;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use fuser::{
    Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request,
};
use rdma::Pool;
use rustix::io::Errno;

use crate::convert::attr;
use crate::copies::Copies;
use crate::core::find::{Found, Stat};
use crate::core::{Connect, Core, UserOf};
use crate::counts::RequestKind;
use crate::engine::Queue;
use crate::users::Requester;

/// The generation of every inode. The kernel knows at most one object by a number at a time, and this
/// mount cannot be exported over NFS, which is what generations are for.
const GENERATION: Generation = Generation(0);

/// The state of the threads that take requests from FUSE and queue them for the NFS thread.
pub(crate) struct Bridge<C: Connect> {
    pub(crate) queue: Arc<Queue<C>>,
    /// Memory for written data, from which the transport sends without a copy.
    pub(crate) pool: Pool,
    pub(crate) copies: Copies,
    /// The maximum number of bytes of one write request.
    pub(crate) max_write: u32,
    /// The size in which programs should read and write.
    pub(crate) block: u32,
}

/// A reply that can be an error.
trait Fails {
    fn fail(self, error: Errno);
}

macro_rules! fails {
    ($($reply:ty),*) => {$(
        impl Fails for $reply {
            fn fail(self, error: Errno) {
                self.error(fuser::Errno::from_i32(error.raw_os_error()));
            }
        }
    )*};
}

fails!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyIoctl,
    ReplyLseek,
    ReplyOpen,
    ReplyPoll,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

impl<C: Connect> Bridge<C> {
    /// Passes a request to the file system's thread: `work` does it, and `answer` replies.
    fn submit<R, T, F>(
        &self,
        kind: RequestKind,
        request: &Request,
        reply: R,
        work: impl FnOnce(Rc<Core<C>>, UserOf<C>) -> F + Send + 'static,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) where
        R: Fails + Send + 'static,
        F: Future<Output = Result<T, Errno>> + 'static,
        T: 'static,
    {
        let requester = Requester {
            uid: request.uid(),
            gid: request.gid(),
            pid: request.pid(),
        };
        self.queue.push(Box::new(move |core: &Rc<Core<C>>| {
            core.counts.request(kind);
            let user = core.user(requester);
            let work = work(Rc::clone(core), user);
            let core = Rc::clone(core);
            Box::pin(async move {
                match core.interrupts.unless_killed(requester.pid, work).await {
                    Ok(value) => answer(reply, value),
                    Err(error) => reply.fail(error),
                }
            })
        }));
    }

    /// Copies data to memory that the transport can send.
    fn copy(&self, data: &[u8]) -> Bytes {
        self.copies.add(data.len());
        match self.pool.alloc(data.len()) {
            Ok(mut buf) => {
                buf.copy_from_slice(data);
                buf.freeze()
            }
            // The transport copies other memory.
            Err(_) => Bytes::copy_from_slice(data),
        }
    }

    fn entry(&self) -> impl FnOnce(ReplyEntry, Found) + Send + use<C> {
        let block = self.block;
        move |reply, found| match &found.stat {
            Some(stat) => {
                let attr_trust = stat.trust;
                let attr = attr(stat, stat.ino, block);
                reply.entry_with_ttls(&attr_trust, &found.trust, &attr, GENERATION);
            }
            // FUSE's form of a name that does not exist, and for how long.
            None if !found.trust.is_zero() => {
                let none = attr(&nothing(), 0, block);
                reply.entry_with_ttls(&found.trust, &found.trust, &none, GENERATION);
            }
            None => reply.fail(Errno::NOENT),
        }
    }

    fn attributes(&self) -> impl FnOnce(ReplyAttr, Stat) + Send + use<C> {
        let block = self.block;
        move |reply, stat| {
            let attr = attr(&stat, stat.shown_ino(), block);
            reply.attr(&stat.trust, &attr);
        }
    }
}

/// Returns attributes of nothing.
fn nothing() -> Stat {
    Stat {
        ino: 0,
        attributes: nfs_binding::proto::Attributes::default(),
        trust: std::time::Duration::ZERO,
    }
}

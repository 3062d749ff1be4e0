//! Changes of directories whose calls were sent more than once.
//!
//! When a connection ends, the client sends its calls again over another one, with their XIDs, and
//! the server's reply cache answers those that it has executed. A server that has restarted has
//! lost its cache, and executes them again: MKDIR then finds its own directory and fails with
//! NFS3ERR_EXIST, REMOVE with NFS3ERR_NOENT. Programs would take that for the outcome. So after
//! such an error of a call that was sent more than once, and only then, this client looks whether
//! the call has done its work before:
//!
//! * A directory, pipe, socket or device has the time of last access that MKDIR or MKNOD gave it,
//!   which no other call of any client has ([`Core::mark`]). Two clients that use `mkdir` as a lock
//!   must not both succeed. Without that proof the error stays: the server does not keep that time
//!   exactly, or was killed between making the object and setting the time.
//! * A symbolic link has the target that SYMLINK gave it. (One that is a lock has a target that
//!   says whose it is.)
//! * The name of a hard link, or the new name of a renamed object, is one of the object.
//! * A removed name is not there. It was before: the kernel removes no name that it has not looked
//!   up.
//!
//! An exclusive CREATE has a verifier, by which the server itself recognises the call.

use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nfs_binding::client::{Nfs3, RpcClient};
use nfs_binding::proto::{
    DirOp, DirOpArgs, FileHandle, FileType, HandleArgs, LinkArgs, LinkWcc, NfsResult, NfsTime,
    RenameArgs, RenameWcc, WccData,
};
use rpc_transport::{Call, CallError, Reply};
use rustix::io::Errno;

use crate::core::find::dir_op;
use crate::core::{Connect, Core, NodeOf, UserOf};
use crate::users::User;

/// The low bits of the nanoseconds of a [`Core::mark`] that are random: a millisecond.
const RANDOM_NANOS: u32 = (1 << 20) - 1;

/// Returns a number whose every bit depends on every bit of `x` (the finalizer of SplitMix64).
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The client of a user, which notes whether a call was sent more than once.
#[derive(Debug)]
pub(crate) struct Noting<'u, A> {
    caller: &'u A,
    resent: &'u Cell<bool>,
}

impl<A: RpcClient> RpcClient for Noting<'_, A> {
    async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let reply = self.caller.call(call).await?;
        if reply.is_retransmitted() {
            self.resent.set(true);
        }
        Ok(reply)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.caller.sleep(duration)
    }
}

/// The property by which this client recognizes an object that a certain call made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof<'a> {
    /// None: this client cannot recognize the object.
    None,
    /// The type of an object, and its time of last access.
    Mark(FileType, NfsTime),
    /// The target of a symbolic link.
    Target(&'a [u8]),
}

impl<C: Connect> Core<C> {
    /// Makes a call as [`Core::ask`] does. Sets `resent` if it was sent more than once.
    pub(crate) async fn ask_noting<'u, T, F, R>(
        &self,
        user: &'u User<C::As>,
        resent: &'u Cell<bool>,
        make: impl Fn(Nfs3<Noting<'u, C::As>>) -> R,
    ) -> Result<T, Errno>
    where
        R: Future<Output = Result<NfsResult<T, F>, CallError>>,
    {
        let caller = &user.caller;
        self.repeat(user, crate::core::Memory::ReadAheadToo, || {
            make(Nfs3::new(Noting { caller, resent }))
        })
        .await
    }

    /// Returns a time near the present that no other call of any client gives to an object.
    pub(crate) fn mark(&self) -> NfsTime {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        // Other calls, of this mount or another, that are made within the same millisecond have
        // other bits.
        let call = (u64::from(self.random) << 32) | u64::from(self.begin() as u32);
        let random = (mixed(call) as u32) & RANDOM_NANOS;
        let nanos = (now.subsec_nanos() & !RANDOM_NANOS) | random;
        NfsTime {
            seconds: u32::try_from(now.as_secs()).unwrap_or(u32::MAX),
            nanos: match nanos < 1_000_000_000 {
                true => nanos,
                false => nanos - (RANDOM_NANOS + 1),
            },
        }
    }

    /// Returns the object of a name if a call of this client has made it, as `proof` says.
    pub(crate) async fn made_before(
        &self,
        user: &UserOf<C>,
        directory: &NodeOf<C>,
        name: &[u8],
        proof: Proof<'_>,
    ) -> Option<NodeOf<C>> {
        if matches!(proof, Proof::None) {
            return None;
        }
        let node = self.ask_name(user, directory, name).await.ok()?;
        let now = node.attributes.borrow().get().clone();
        let is_ours = match proof {
            Proof::None => false,
            Proof::Mark(file_type, mark) => now.file_type == file_type && now.atime == mark,
            Proof::Target(target) => {
                let is_link = now.file_type == FileType::Symlink;
                let args = &HandleArgs {
                    object: node.handle,
                };
                let read = self.ask(user, |nfs| async move { nfs.readlink(args).await });
                is_link && read.await.is_ok_and(|ok| ok.text.0 == target)
            }
        };
        match is_ours {
            true => Some(node),
            false => {
                // It may have been added to the table just now.
                self.inodes.borrow_mut().drop_unused(node.ino);
                None
            }
        }
    }

    /// Sends a RENAME of `moved`, if that is known.
    pub(crate) async fn send_rename(
        &self,
        user: &UserOf<C>,
        (from, old): (&NodeOf<C>, &[u8]),
        (to, new): (&NodeOf<C>, &[u8]),
        moved: Option<&NodeOf<C>>,
    ) -> Result<RenameWcc, Errno> {
        let args = &RenameArgs {
            from: dir_op(from, old),
            to: dir_op(to, new),
        };
        let resent = Cell::new(false);
        let renamed = self
            .ask_noting(user, &resent, |nfs| async move { nfs.rename(args).await })
            .await;
        match (renamed, moved) {
            (Err(Errno::NOENT), Some(moved))
                if resent.get() && self.is_named(user, &args.to, moved.handle).await =>
            {
                self.done_before([from, to]);
                Ok(RenameWcc::default())
            }
            (renamed, _) => renamed,
        }
    }

    /// Sends a LINK.
    pub(crate) async fn send_link(
        &self,
        user: &UserOf<C>,
        node: &NodeOf<C>,
        (directory, name): (&NodeOf<C>, &[u8]),
    ) -> Result<LinkWcc, Errno> {
        let args = &LinkArgs {
            object: node.handle,
            link: dir_op(directory, name),
        };
        let resent = Cell::new(false);
        let linked = self
            .ask_noting(user, &resent, |nfs| async move { nfs.link(args).await })
            .await;
        match linked {
            Err(Errno::EXIST)
                if resent.get() && self.is_named(user, &args.link, node.handle).await =>
            {
                self.done_before([directory, node]);
                Ok(LinkWcc::default())
            }
            linked => linked,
        }
    }

    /// Sends a REMOVE, or an RMDIR.
    pub(crate) async fn send_removal<'u, R>(
        &self,
        user: &'u UserOf<C>,
        directory: &NodeOf<C>,
        resent: &'u Cell<bool>,
        make: impl Fn(Nfs3<Noting<'u, C::As>>) -> R,
    ) -> Result<WccData, Errno>
    where
        R: Future<Output = Result<NfsResult<WccData, WccData>, CallError>>,
    {
        match self.ask_noting(user, resent, make).await {
            Err(Errno::NOENT) if resent.get() => {
                self.done_before([directory]);
                Ok(WccData::default())
            }
            removed => removed,
        }
    }

    /// Returns whether a name is one of an object at the server.
    async fn is_named(&self, user: &UserOf<C>, what: &DirOp, object: FileHandle) -> bool {
        let args = &DirOpArgs { what: what.clone() };
        let found = self.ask(user, |nfs| async move { nfs.lookup(args).await });
        found.await.is_ok_and(|ok| ok.object == object)
    }

    /// Forgets the cached state of the objects of a call that had succeeded before it was sent
    /// again and failed: other clients may have changed them as well.
    fn done_before<const N: usize>(&self, nodes: [&NodeOf<C>; N]) {
        tracing::info!("a call was executed before the server restarted");
        for node in nodes {
            self.forget_cached(node, false);
        }
    }
}

//! Sending what was written: WRITE, COMMIT, and again after a restart of the server.
//!
//! A write is recorded in the file's map ([`Dirty`](crate::dirty::Dirty)) and is done for the program
//! that made it. Data is sent when there is enough for a WRITE, every two seconds, and when
//! somebody needs the server to have it: `stat`, `fsync`, `close`, a change of attributes. Until
//! then, set-id bits that the server takes away from a file when it is written to stay: a file that
//! is open to be written cannot be executed, and `close` waits until the kernel has forgotten them.
//! WRITEs are UNSTABLE, and a COMMIT follows, unless the data fits one WRITE. Data is kept until it
//! is on stable storage, so the sum of it is bounded, and writers wait while there is too much.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use nfs_binding::proto::{CommitArgs, Data, Stable, WriteArgs};
use rustix::io::Errno;

use crate::core::{Connect, Core, Memory, NodeOf, UserOf};
use crate::dirty::Batch;
use crate::node::Node;

/// The maximum number of WRITEs of one file in flight.
const WRITES: usize = 16;
/// The number of pieces of one WRITE above which they are copied into one buffer: each piece costs a
/// segment, and maybe a registration.
const PIECES: usize = 4;
/// The interval of write-back, in which all written data is sent.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// The pause before data is written again that the server has lost, if that happens repeatedly.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

const ALL: Range<u64> = 0..u64::MAX;

impl<C: Connect> Core<C> {
    /// Records a write. The caller has checked that the user may write.
    pub(crate) fn record(
        self: &Rc<Self>,
        user: &UserOf<C>,
        node: &NodeOf<C>,
        offset: u64,
        data: bytes::Bytes,
    ) {
        node.own_writes.set(node.own_writes.get() + 1);
        self.account(node, |dirty| dirty.write(offset, data, Rc::clone(user)));
        if node.dirty.borrow().dirty() >= self.limits.wsize as usize {
            self.send_some(node, &ALL, false);
        }
        if self.unwritten.get() > self.options.unwritten / 2 {
            self.send_everything();
        }
    }

    /// Waits until there is room for more written data.
    pub(crate) async fn room_to_write(self: &Rc<Self>) {
        let room = || (self.unwritten.get() <= self.options.unwritten).then_some(());
        if room().is_none() {
            self.send_everything();
            self.unwritten_less.until(room).await;
        }
    }

    /// Changes a file's map, and keeps the account of all files.
    fn account<T>(
        &self,
        node: &NodeOf<C>,
        change: impl FnOnce(&mut crate::dirty::Dirty<UserOf<C>>) -> T,
    ) -> T {
        let mut dirty = node.dirty.borrow_mut();
        let (before, was_empty) = (dirty.total(), dirty.is_empty());
        let value = change(&mut dirty);
        let (after, is_empty) = (dirty.total(), dirty.is_empty());
        drop(dirty);
        self.unwritten.set(self.unwritten.get() + after - before);
        if was_empty && !is_empty {
            self.unsaved.borrow_mut().push(Rc::clone(node));
        } else if !was_empty && is_empty {
            self.unsaved
                .borrow_mut()
                .retain(|other| !Rc::ptr_eq(other, node));
        }
        if after < before {
            self.unwritten_less.wake();
        }
        value
    }

    /// Sends data of a file within a range, as far as there are not too many WRITEs in flight.
    fn send_some(self: &Rc<Self>, node: &NodeOf<C>, within: &Range<u64>, stable: bool) {
        let wsize = self.limits.wsize as usize;
        while node.dirty.borrow().in_flight() < WRITES {
            let next = |dirty: &mut crate::dirty::Dirty<UserOf<C>>| {
                dirty.next_batch(wsize, within, |a, b| Rc::ptr_eq(a, b) || a.is_same_as(b))
            };
            let Some(batch) = self.account(node, next) else {
                break;
            };
            let dirty = node.dirty.borrow();
            // A single WRITE with FILE_SYNC saves the COMMIT.
            let last = dirty.dirty() == 0 && dirty.in_flight() == 1;
            let alone = node.syncing.get() > 0 && last && dirty.uncommitted().is_none();
            drop(dirty);
            let stable = match stable || alone || self.options.sync {
                true => Stable::FileSync,
                false => Stable::Unstable,
            };
            let (core, node) = (Rc::clone(self), Rc::clone(node));
            self.spawn(async move { core.send(&node, batch, stable).await });
        }
    }

    /// Sends one batch, and more if more is wanted.
    async fn send(self: Rc<Self>, node: &NodeOf<C>, batch: Batch<UserOf<C>>, stable: Stable) {
        let Batch {
            number,
            offset,
            data,
            user,
        } = batch;
        let count: usize = data.iter().map(bytes::Bytes::len).sum();
        let data = match data.len() > PIECES {
            true => match self.pool.concat(&data) {
                Ok(buf) => {
                    self.copies.add(count);
                    Data(buf.freeze().into())
                }
                // The transport can send pieces as well.
                Err(_) => Data(data.into_iter().collect()),
            },
            false => Data(data.into_iter().collect()),
        };
        let args = &WriteArgs {
            file: node.handle,
            offset,
            count: count as u32,
            stable,
            data,
        };
        let change = self.change(node);
        let outcome = self
            .ask_within(&user, Memory::Awaited, |nfs| async move {
                nfs.write(args).await
            })
            .await;
        let outcome = match outcome {
            Ok(ok) if ok.count as usize > count || (ok.count == 0 && count > 0) => Err(Errno::IO),
            outcome => outcome,
        };
        match outcome {
            Ok(ok) => {
                self.counts.server_written.add(ok.count as usize);
                // A violation of RFC 1813, section 3.3.7. But the server has the data, and a COMMIT makes it stable,
                // as with Linux's own client.
                let falls_short = (ok.committed as u32) < stable as u32;
                if falls_short {
                    rpcrdma_host::limited!(
                        warn,
                        ino = node.ino,
                        "the server did not write data to stable storage as it was asked to"
                    );
                }
                let uncommitted = falls_short || ok.committed == Stable::Unstable;
                let uncommitted = uncommitted.then_some(ok.verifier);
                self.learn_change(&change, ok.wcc);
                drop(change);
                self.check_permissions(node);
                self.account(node, |dirty| {
                    dirty.sent(number, ok.count.into(), uncommitted)
                });
            }
            Err(error) => {
                drop(change);
                tracing::warn!(ino = node.ino, %error, "data could not be written");
                node.write_failed(self.stale(node, error));
                node.attributes.borrow_mut().expire();
                self.account(node, |dirty| dirty.failed(number));
                // The kernel's pages have data that the server does not have.
                self.forget_cached(node, true);
            }
        }
        node.progress.wake();
        let enough = node.dirty.borrow().dirty() >= self.limits.wsize as usize;
        if node.draining.get() > 0 || enough {
            self.send_some(node, &ALL, false);
        }
        self.unhide_unused(node);
        self.inodes.borrow_mut().drop_unused(node.ino);
    }

    /// Sends all data of a file that has been written so far, and waits until the server has it. It
    /// need not be on stable storage. Errors are kept for `fsync` and `close`.
    pub(crate) async fn flush(self: &Rc<Self>, node: &NodeOf<C>) {
        self.write_out(node, &ALL, false).await;
    }

    /// Sends the data of a range and waits until the server has it. With `stable`, WRITEs sent from
    /// now on are FILE_SYNC; those in flight may be UNSTABLE.
    pub(crate) async fn write_out(
        self: &Rc<Self>,
        node: &NodeOf<C>,
        range: &Range<u64>,
        stable: bool,
    ) {
        let until = node.dirty.borrow().now();
        if node.dirty.borrow().is_written(until, range) {
            return;
        }
        let _draining = (!stable).then(|| Counted::new(&node.draining));
        loop {
            self.send_some(node, range, stable);
            if node.dirty.borrow().is_written(until, range) {
                return;
            }
            let mut first = true;
            // Woken when a WRITE ends, whichever it is.
            let ended = || (!std::mem::replace(&mut first, false)).then_some(());
            node.progress.until(ended).await;
        }
    }

    /// Brings all data of a file that has been written so far to stable storage. Errors are kept for
    /// [`Core::report`].
    pub(crate) async fn sync(self: &Rc<Self>, node: &NodeOf<C>) {
        let until = node.dirty.borrow().now();
        let _syncing = Counted::new(&node.syncing);
        let (mut pause, longest) = AGAIN;
        loop {
            self.flush(node).await;
            if node.dirty.borrow().is_committed(until) {
                return;
            }
            if node.committing.replace(true) {
                // A COMMIT that began before may cover it.
                let ended = || (!node.committing.get()).then_some(());
                node.progress.until(ended).await;
                continue;
            }
            let lost = {
                let _committing = Committing(node);
                self.commit(node).await
            };
            if lost > 0 {
                tracing::warn!(
                    ino = node.ino,
                    bytes = lost,
                    "the server has restarted: data that it had not committed is written again"
                );
                self.pause(node, pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }

    async fn pause(&self, node: &NodeOf<C>, pause: Duration) {
        let user = node.dirty.borrow().any_user();
        if let Some(user) = user {
            nfs_binding::client::RpcClient::sleep(&user.caller, pause).await;
        }
    }

    /// Sends a COMMIT. Returns the number of bytes that the server has lost.
    async fn commit(&self, node: &NodeOf<C>) -> usize {
        let (user, sent) = {
            let dirty = node.dirty.borrow();
            match dirty.uncommitted() {
                Some(user) => (user, dirty.now()),
                None => return 0,
            }
        };
        let args = &CommitArgs {
            file: node.handle,
            offset: 0,
            count: 0,
        };
        // A COMMIT modifies nothing that attributes show.
        let call = self.begin();
        let outcome = self
            .ask_within(&user, Memory::Awaited, |nfs| async move {
                nfs.commit(args).await
            })
            .await;
        match outcome {
            Ok(ok) => {
                self.learn_maybe(node, ok.wcc.after, call);
                self.account(node, |dirty| dirty.committed(sent, &ok.verifier))
            }
            Err(error) => {
                tracing::warn!(ino = node.ino, %error, "data could not be committed");
                node.write_failed(self.stale(node, error));
                self.account(node, |dirty| dirty.give_up(sent));
                self.forget_cached(node, true);
                0
            }
        }
    }

    /// Begins to bring all data of all files to stable storage.
    pub(crate) fn send_everything(self: &Rc<Self>) {
        for node in self.unsaved.borrow().iter() {
            if node.saving.replace(true) {
                continue;
            }
            let (core, node) = (Rc::clone(self), Rc::clone(node));
            self.spawn(async move {
                core.sync(&node).await;
                node.saving.set(false);
                core.unhide_unused(&node);
                core.inodes.borrow_mut().drop_unused(node.ino);
            });
        }
    }

    /// Waits until no file has data that is not on stable storage.
    pub(crate) async fn settle(self: &Rc<Self>) {
        loop {
            let next = self.unsaved.borrow().first().cloned();
            match next {
                Some(node) => self.sync(&node).await,
                None => return,
            }
        }
    }

    /// Reports the last write error of a file to an open file, once (`seen`).
    ///
    /// # Errors
    /// The last write error, if the open file has not been told of it.
    pub(crate) fn report(node: &Node<C::As>, seen: &Cell<u64>) -> Result<(), Errno> {
        let error = node.write_error.get();
        match error.last {
            Some(last) if error.serial > seen.replace(error.serial) => Err(last),
            _ => Ok(()),
        }
    }
}

/// Counts somebody who waits, while it lives.
struct Counted<'n>(&'n Cell<u32>);

impl<'n> Counted<'n> {
    fn new(count: &'n Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Notes the end of a COMMIT, also of one whose caller was killed.
struct Committing<'n, A>(&'n Node<A>);

impl<A> Drop for Committing<'_, A> {
    fn drop(&mut self) {
        self.0.committing.set(false);
        self.0.progress.wake();
    }
}

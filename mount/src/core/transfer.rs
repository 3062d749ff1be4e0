//! READ and WRITE requests.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use nfs_binding::proto::ReadArgs;
use onc_rpc::Bulk;
use rustix::io::Errno;

use crate::core::direct::{DirectPart, OldPages, shows};
use crate::core::files::OpenFile;
use crate::core::{Connect, Core, Memory, NodeOf, UserOf};
use crate::node::{Appends, Node};
use crate::read_ahead::{Arrived, Basis, Chunk, part};

/// The demands of one write request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteMode {
    /// The data is on stable storage before the reply: O_DIRECT, O_SYNC or O_DSYNC.
    pub(crate) through: bool,
    /// The data comes from the program's memory, past the page cache: O_DIRECT.
    pub(crate) direct: bool,
    /// The kernel writes back pages of a shared mapping (`FUSE_WRITE_CACHE`).
    pub(crate) mapped: bool,
    /// O_APPEND: the data goes to the end of the file.
    pub(crate) append: bool,
}

impl<C: Connect> Core<C> {
    /// Reads from an open file. Returns fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// The error of READ.
    pub(crate) async fn read(
        self: &Rc<Self>,
        number: u64,
        offset: u64,
        len: u32,
        direct: bool,
    ) -> Result<Bytes, Errno> {
        let file = self.file(number)?;
        let end = offset.checked_add(len.into()).ok_or(Errno::INVAL)?;
        let range = offset..end;
        let node = &file.node;
        if !direct {
            node.cached.set(node.cached.get().with(&range));
        }
        // Data that the server may not have when it executes the READ.
        let kept = || -> Vec<(u64, Bytes)> { node.dirty.borrow().kept(&range).collect() };
        let unsent_end = || node.dirty.borrow().end();
        let (before, end_before) = (kept(), unsent_end());
        if let [(at, data)] = &before[..]
            && *at == offset
            && data.len() == len as usize
        {
            self.counts.read_back.add(data.len());
            if direct {
                self.counts.read_direct.add(data.len());
            }
            return Ok(data.clone());
        }
        let parts = self.read_parts(&file, &range, direct).await?;
        let (after, end_after) = (kept(), unsent_end());
        // The file ends later than the server knew: the kernel would take a short reply for its end.
        let local = end_before.max(end_after).clamp(offset, end) - offset;
        let have: usize = parts.iter().map(Bytes::len).sum();
        if direct {
            self.counts.read_direct.add(have);
        }
        if before.is_empty() && after.is_empty() && have as u64 >= local {
            return Ok(match <[Bytes; 1]>::try_from(parts) {
                Ok([one]) => one,
                Err(parts) => {
                    self.copies.add(have);
                    parts.concat().into()
                }
            });
        }
        let mut data = BytesMut::with_capacity(len as usize);
        self.copies.add(have);
        parts.iter().for_each(|part| data.extend_from_slice(part));
        if (data.len() as u64) < local {
            data.resize(local as usize, 0);
        }
        for (at, piece) in before.iter().chain(&after) {
            let from = (at - offset) as usize;
            if data.len() < from + piece.len() {
                data.resize(from + piece.len(), 0);
            }
            data[from..from + piece.len()].copy_from_slice(piece);
            self.copies.add(piece.len());
        }
        Ok(data.freeze())
    }

    /// Reads a range from the server, or takes what was read ahead.
    async fn read_parts(
        self: &Rc<Self>,
        file: &Rc<OpenFile<C::As>>,
        range: &Range<u64>,
        direct: bool,
    ) -> Result<Vec<Bytes>, Errno> {
        let node = &file.node;
        let rsize = self.limits.rsize;
        // While written data is on its way, what is read ahead may lack it.
        if !direct && node.dirty.borrow().is_empty() {
            let basis = Basis {
                data_version: node.data_version.get(),
                own_writes: node.own_writes.get(),
            };
            let size = node.attributes.borrow().get().size;
            let limit = self.options.read_ahead;
            let (serve, begun) = file
                .read_ahead
                .borrow_mut()
                .plan(range, basis, size, rsize, limit);
            let now = Instant::now();
            self.read_memory.borrow_mut().used(file, now);
            for chunk in begun {
                let (core, file) = (Rc::clone(self), Rc::clone(file));
                self.spawn(async move {
                    let range = chunk.range.clone();
                    let memory = Memory::Free;
                    chunk.finish(core.fetch(&file.user, &file.node, range, memory).await);
                });
            }
            // If one of them failed, maybe for lack of memory to read ahead, the range is read by itself.
            if let Some(chunks) = serve
                && let Ok(parts) = parts_of(&chunks, range).await
            {
                self.counts
                    .read_ahead
                    .add(parts.iter().map(Bytes::len).sum());
                return Ok(parts);
            }
        }
        let starts = (range.start..range.end).step_by(rsize as usize);
        let pieces = starts.map(|start| {
            let piece = start..range.end.min(start + u64::from(rsize));
            self.fetch(&file.user, node, piece, Memory::ReadAheadToo)
        });
        let mut parts = Vec::new();
        for arrived in try_join_all(pieces).await? {
            parts.extend_from_slice(arrived.data.pieces());
            if arrived.eof {
                break;
            }
        }
        self.counts
            .read_fetched
            .add(parts.iter().map(Bytes::len).sum());
        Ok(parts)
    }

    /// Reads a range of at most `rsize` bytes, in as many READs as the server needs.
    async fn fetch(
        &self,
        user: &UserOf<C>,
        node: &NodeOf<C>,
        range: Range<u64>,
        memory: Memory,
    ) -> Result<Arrived, Errno> {
        let mut data = Bulk::new();
        let mut at = range.start;
        loop {
            let args = &ReadArgs {
                file: node.handle,
                offset: at,
                count: (range.end - at) as u32,
            };
            let call = self.begin();
            let ok = self
                .ask_within(user, memory, |nfs| async move { nfs.read(args).await })
                .await
                .map_err(|error| self.stale(node, error))?;
            self.learn_maybe(node, ok.attributes, call);
            let len = ok.data.0.len() as u64;
            // Data that was placed in a write chunk is as long as the chunk.
            if len != u64::from(ok.count) || ok.count > args.count || (len == 0 && !ok.eof) {
                tracing::warn!(
                    ino = node.ino,
                    "the server's reply to a READ makes no sense"
                );
                return Err(Errno::IO);
            }
            self.counts.server_read.add(len as usize);
            at += len;
            for piece in ok.data.0.into_segments() {
                data.push(piece);
            }
            if ok.eof || at >= range.end {
                return Ok(Arrived { data, eof: ok.eof });
            }
        }
    }

    /// Writes to an open file. The data is on stable storage afterwards if the file or the mount is
    /// synchronous, or `mode` says so. To append, `offset` is the kernel's opinion of where the file
    /// ends: it knows nothing of what other clients have appended since it last had the attributes.
    ///
    /// # Errors
    /// EFBIG beyond the server's maximum; the error of WRITE for a synchronous write, and that of
    /// GETATTR to append.
    pub(crate) async fn write(
        self: &Rc<Self>,
        number: u64,
        offset: u64,
        data: Bytes,
        mode: WriteMode,
    ) -> Result<u32, Errno> {
        let file = self.file(number)?;
        let node = &file.node;
        let len = data.len() as u32;
        let direct = mode.direct.then(|| DirectPart::begin(&file, offset, len));
        // The kernel sends the parts of a large write at once. Each gets its place in that order.
        let turn = match mode.append {
            true => Some(Turn::of(node).await),
            false => None,
        };
        self.room_to_write().await;
        let full = |error| matches!(error, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        let error = node.write_error.get();
        let through = mode.through || file.mode.sync || self.options.sync;
        if !mode.mapped && !through && error.last.is_some_and(full) {
            // A program that never closes the file would write for ever. Its other errors can wait.
            Self::report(node, &file.seen)?;
        }
        let of_kernel = offset;
        let offset = loop {
            let offset = match mode.append {
                true => self.end_of_file(&file).await?,
                false => offset,
            };
            let done = || (!node.resizing.get()).then_some(());
            if done().is_some() {
                break offset;
            }
            node.progress.until(done).await;
        };
        // No other request runs between here and the record of the data, so that two that append do
        // not get the same place.
        let end = offset.checked_add(len.into()).ok_or(Errno::FBIG)?;
        if end > self.limits.max_file_size {
            return Err(Errno::FBIG);
        }
        let range = offset..end;
        // Another write with the same open file must not take the error of this one for its own.
        let seen = Cell::new(node.write_error.get().serial);
        self.record(&file.user, node, offset, data);
        self.counts.written.add(len as usize);
        if mode.direct {
            self.counts.written_direct.add(len as usize);
        }
        drop(turn);
        let old_pages = mode.direct.then(|| OldPages::of(self, node, &range));
        if old_pages.is_none() {
            node.cached.set(node.cached.get().with(&range));
        }
        if offset != of_kernel {
            // The kernel has put the data into its pages at the wrong place.
            self.forget_cached(node, true);
        }
        if through {
            self.write_out(node, &range, true).await;
            if node.dirty.borrow().overlaps(&range) {
                // Part of it was on its way already, without the demand of stable storage.
                self.sync(node).await;
            }
            if let Some(old_pages) = old_pages {
                old_pages.are_gone().await;
            }
            self.until_attributes_invalidated(node).await;
            Self::report(node, &seen).inspect_err(|_| file.seen.set(seen.get()))?;
        }
        match direct {
            Some(part) => part.succeed(),
            None => {
                let end = of_kernel + u64::from(len);
                node.sure_size.set(node.sure_size.get().max(end));
                shows(node, end);
            }
        }
        Ok(len)
    }

    /// Returns where data is appended: the end of the file at the server, or of data that this client
    /// keeps.
    async fn end_of_file(&self, file: &OpenFile<C::As>) -> Result<u64, Errno> {
        let node = &file.node;
        self.refresh(&file.user, node).await?;
        let size = node.attributes.borrow().get().size;
        Ok(size.max(node.dirty.borrow().kept_end()))
    }
}

/// Returns the parts of a range, up to the end of the file, when the chunks that have it have arrived.
async fn parts_of(chunks: &[Rc<Chunk>], range: &Range<u64>) -> Result<Vec<Bytes>, Errno> {
    let mut parts = Vec::new();
    for chunk in chunks {
        let arrived = chunk.outcome().await?;
        parts.extend(part(&chunk.range, &arrived, range));
        if arrived.eof {
            break;
        }
    }
    Ok(parts)
}

/// The turn to append to a file, in the order in which the kernel sent the data.
struct Turn<'n, A> {
    node: &'n Node<A>,
    number: u64,
}

impl<'n, A> Turn<'n, A> {
    /// Waits for the turn.
    async fn of(node: &'n Node<A>) -> Self {
        let Appends { queue, ended } = &node.appends;
        let number = queue.borrow().back().map_or(0, |last| last + 1);
        queue.borrow_mut().push_back(number);
        let turn = Self { node, number };
        let first = || queue.borrow().front() == Some(&number);
        ended.until(|| first().then_some(())).await;
        turn
    }
}

impl<A> Drop for Turn<'_, A> {
    fn drop(&mut self) {
        let Self { node, number } = self;
        let mut queue = node.appends.queue.borrow_mut();
        queue.retain(|other| other != number);
        node.appends.ended.wake();
    }
}

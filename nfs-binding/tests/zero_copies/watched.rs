//! A device and a file system that record the memory in which bulk data passes them, and otherwise
//! forward to the ones inside.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use nfs_binding::fs::{
    Abilities, Caller, Change, DirEntry, DirectIoBytes, FileId, FileSystem, Found, FsResult,
    HowToCreate, Listing, NameRules, Object, Read, Renamed, Space, Special, Written,
};
use nfs_binding::proto::{Access, Attributes, NfsTime, SetAttributes, Stable, Verifier};
use onc_rpc::Bulk;
use rdma::{Device, Event, PostError, QpId, SendWr, Success, Time, WrId};

/// A set of memory ranges.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Vec<Range<usize>>>>);

impl Places {
    pub(crate) fn note(&self, bytes: &[u8]) {
        let start = bytes.as_ptr().addr();
        self.0.lock().unwrap().push(start..start + bytes.len());
    }

    /// Returns the number of bytes of these ranges that are in none of `others`.
    pub(crate) fn outside(&self, others: &Self) -> usize {
        let others = others.0.lock().unwrap();
        let places = self.0.lock().unwrap();
        let within = |place: &Range<usize>| {
            let overlaps = others.iter().map(|other| {
                let end = place.end.min(other.end);
                end.saturating_sub(place.start.max(other.start))
            });
            overlaps.max().unwrap_or(0)
        };
        places.iter().map(|place| place.len() - within(place)).sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().iter().map(Range::len).sum()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// The memory in which messages are received, and from which they are sent.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    pub(crate) received: Places,
    pub(crate) sent: Places,
}

pub(crate) struct WatchedDevice<D> {
    pub(crate) device: D,
    pub(crate) wire: Wire,
}

impl<D: Device> Device for WatchedDevice<D> {
    rdma::forward!(self => self.device;
        attributes pool counters attach ready set_busy_poll flush arm next_deadline listen
        local_address carrier close_listener connect prepare_accept accept reject disconnect abort
        destroy ending give_back register reclaim post_receive shared_receives);

    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        let before = events.len();
        self.device.poll(now, events);
        for event in events.range(before..) {
            if let Event::Completion(completion) = event
                && let Ok(Success::Receive { buf, .. }) = &completion.result
            {
                buf.pieces()
                    .for_each(|piece| self.wire.received.note(piece));
            }
        }
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        if let SendWr::Send { gather, .. } = &wr {
            gather.iter().for_each(|piece| self.wire.sent.note(piece));
        }
        self.device.post_send(qp, id, wr, signaled)
    }
}

/// The memory that a file system wrote from and read into.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) written: Places,
    pub(crate) read: Places,
}

pub(crate) struct WatchedFs<F> {
    pub(crate) fs: F,
    pub(crate) files: Files,
}

impl<F: FileSystem> FileSystem for WatchedFs<F> {
    fn read_unit(&self, file: &FileId) -> FsResult<u32> {
        self.fs.read_unit(file)
    }

    fn direct_io(&self) -> Option<DirectIoBytes> {
        self.fs.direct_io()
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.files.read.note(buf);
        self.fs.read(who, file, offset, buf)
    }

    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written> {
        let pieces = data.pieces().iter();
        pieces.for_each(|piece| self.files.written.note(piece));
        self.fs.write(who, file, offset, data, stable)
    }

    fn blocks(&self) -> bool {
        self.fs.blocks()
    }
    fn root(&self) -> FileId {
        self.fs.root()
    }
    fn write_verifier(&self) -> Verifier {
        self.fs.write_verifier()
    }
    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        self.fs.getattr(file)
    }
    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        self.fs.setattr(who, file, set, guard)
    }
    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        self.fs.lookup(who, dir, name)
    }
    fn access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        self.fs.access(who, file, wanted)
    }
    fn readlink(&self, who: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        self.fs.readlink(who, link)
    }
    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object> {
        self.fs.create(who, dir, name, how)
    }
    fn mkdir(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.fs.mkdir(who, dir, name, set)
    }
    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.fs.symlink(who, dir, name, target, set)
    }
    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        self.fs.mknod(who, dir, name, what, set)
    }
    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.fs.remove(who, dir, name)
    }
    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.fs.rmdir(who, dir, name)
    }
    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.fs.rename(who, from_dir, from, to_dir, to)
    }
    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes> {
        self.fs.link(who, file, dir, name)
    }
    fn readdir(
        &self,
        who: &Caller,
        dir: &FileId,
        cookie: u64,
        verifier: Verifier,
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing> {
        self.fs.readdir(who, dir, cookie, verifier, objects, take)
    }
    fn space(&self, who: &Caller, file: &FileId) -> FsResult<Space> {
        self.fs.space(who, file)
    }
    fn abilities(&self, file: &FileId) -> FsResult<Abilities> {
        self.fs.abilities(file)
    }
    fn name_rules(&self, file: &FileId) -> FsResult<NameRules> {
        self.fs.name_rules(file)
    }
    fn commit(&self, who: &Caller, file: &FileId, offset: u64, count: u32) -> Change<()> {
        self.fs.commit(who, file, offset, count)
    }
}

//! Copies the content of files from this machine to a server.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::slice;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nfs_binding::client::{NfsError, Object, Place, RpcClient};
use nfs_binding::proto::{FileHandle, FileType, SetAttributes, Stable, Status, Verifier};
use rustix::fs::FileType as Kind;

use super::CopyError;
use super::ledger::Ledger;
use super::local::{Meta, file_error, next_data, read_ahead, read_at, stat_file};
use super::put::{Item, Put};
use super::put_special::is_gone;
use super::same::is_same;

/// The maximum number of bytes written before a COMMIT. If the server restarts in between, at most
/// that much is written again.
const WINDOW: u64 = 256 << 20;
/// The maximum number of WRITEs of one file in flight. The budget limits their bytes.
const WRITES: usize = 16;
/// The maximum number of bytes read at once from a file that states no size. They are read before the
/// budget has room for them, which is only reserved for their WRITE.
const UNSIZED_READ: u32 = 64 << 10;
/// The mode of a file until it is complete: accessible only by its owner.
const PRIVATE: u32 = 0o600;
/// The permission bits, without the set-id bits.
pub(super) const PERMISSIONS: u32 = 0o777;
/// The maximum number of attempts to write a window if the server restarts each time.
const ATTEMPTS: u32 = 10;

/// The data to write.
pub(super) enum Content<'i> {
    /// A local file.
    File(&'i OwnedFd),
    /// Memory: pieces from an offset on, each as long as a WRITE except for the last.
    Memory(u64, Vec<Bytes>),
}

/// A source of data, and the file on the server that it is written to.
pub(super) struct Source<'i> {
    pub(super) content: Content<'i>,
    pub(super) size: u64,
    pub(super) item: &'i Item,
    pub(super) remote: FileHandle,
    /// Whether the file had less data than its length.
    pub(super) short: Cell<bool>,
    /// The bytes of the file that were counted.
    pub(super) counted: &'i Counted,
}

/// The part of the totals that one attempt to copy a file has counted, in bytes.
#[derive(Default)]
pub(super) struct Counted {
    begun: Cell<u64>,
    /// Bytes that the server has, each counted once.
    written: Cell<u64>,
    holes: Cell<u64>,
}

/// Records the file as unfinished when dropped, unless it was marked as done. So an unfinished file
/// is recorded however the copy ends.
pub(super) struct Unfinished<'i, 'l> {
    ledger: &'l Ledger<'l>,
    item: &'i Item,
    done: bool,
    /// Whether the server has no room for the file.
    no_room: bool,
    /// Whether this copy made the file, or its user owns it.
    is_own: bool,
    /// Whether something had this name before, whose content the copy has overwritten.
    overwrites: bool,
}

impl<'i, 'l> Unfinished<'i, 'l> {
    pub(super) fn new(ledger: &'l Ledger<'l>, item: &'i Item) -> Self {
        Self {
            ledger,
            item,
            done: false,
            no_room: false,
            is_own: false,
            overwrites: false,
        }
    }

    /// Returns the entry that is copied.
    pub(super) fn item(&self) -> &'i Item {
        self.item
    }

    /// Marks the file as done, or as left as it was.
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    /// Records whether the call that failed with `error`, the first that changes the file, has left it as
    /// it was. Without a reply, the server may have executed the call, and the file counts as unfinished.
    fn refused(&mut self, error: &CopyError) {
        self.done = match error {
            CopyError::Remote(error) => {
                error.status().is_some() || matches!(error, NfsError::ReadOnly { .. })
            }
            _ => true,
        };
    }
}

impl Drop for Unfinished<'_, '_> {
    fn drop(&mut self) {
        if !self.done {
            let at = self.item.dir.at(self.item.name());
            self.ledger.unfinished(at.display(), self.no_room);
        }
    }
}

/// Counts a file that is being copied while it lives.
struct Copying<'a>(&'a Cell<usize>);

impl<'a> Copying<'a> {
    fn new(number: &'a Cell<usize>) -> Self {
        number.set(number.get() + 1);
        Self(number)
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<C: RpcClient> Put<'_, C> {
    /// Copies a regular file.
    pub(super) async fn file(&self, item: &Item) -> Result<FileHandle, CopyError> {
        let _open = self.open_files.take(1).await;
        let _copying = Copying::new(&self.copying);
        let removed = self.removed.get();
        let (fd, meta) = self.open(item)?;
        let mut unfinished = Unfinished::new(self.ledger, item);
        let made = self.make_file(&mut unfinished, PRIVATE, Some(&fd)).await;
        let counted = Counted::default();
        let filled = match &made {
            Ok(made) => {
                let remote = (made.handle, &counted);
                self.fill(item, (&fd, &meta), remote).await
            }
            Err(_) => Ok(false),
        };
        let filled = made.and_then(|made| Ok((made.handle, filled?)));
        if let Err(error) = &filled {
            item.is_put_off.set(self.may_put_off(error, removed));
            let is_own = unfinished.is_own;
            self.give_up(&mut unfinished, error, is_own, &counted).await;
        }
        let (remote, changed) = filled?;
        // A failure from here on is no reason to remove the file: its data are complete.
        let at = item.dir.at(item.name());
        self.finish(remote, &meta, &at).await?;
        unfinished.done();
        if self.is_again.get() {
            self.ledger.completed(&at.display());
        }
        self.ledger.entry(true);
        if changed {
            let path = item.dir.at(item.name()).display();
            self.ledger.problem(CopyError::Changed { path });
        }
        Ok(remote)
    }

    /// Handles the failure of a copy that has not written all of its file: if the server has no room for it, removes
    /// the incomplete file, and takes back what was counted of it. `may_remove`: nothing of anybody else goes with it.
    pub(super) async fn give_up(
        &self,
        unfinished: &mut Unfinished<'_, '_>,
        error: &CopyError,
        may_remove: bool,
        counted: &Counted,
    ) {
        if unfinished.done || !error.is_lasting() {
            return;
        }
        unfinished.no_room = true;
        let (dir, name) = (&unfinished.item.dir, unfinished.item.name());
        if unfinished.overwrites {
            self.ledger.lost(dir.at(name).display());
        }
        let at = dir.at(name);
        let removed = may_remove && is_gone(&self.mount.remove(dir.info.remote, name, &at).await);
        if removed {
            unfinished.done();
            self.ledger.removed(&at.display());
            self.removed.set(self.removed.get() + 1);
        }
        // A file that is copied again is counted again, and may be there at the end.
        let is_put_off = unfinished.item.is_put_off.get();
        self.ledger.count(|totals| {
            if removed || is_put_off {
                totals.bytes_removed += counted.written.get();
                totals.holes -= counted.holes.get();
            }
            if is_put_off {
                totals.begun -= counted.begun.get();
            }
            totals.incomplete_removed += u64::from(removed && !is_put_off);
        });
    }

    /// Writes the content of a local file to an empty one on the server. Returns whether the local file changed
    /// meanwhile.
    async fn fill(
        &self,
        item: &Item,
        (fd, meta): (&OwnedFd, &Meta),
        (remote, counted): (FileHandle, &Counted),
    ) -> Result<bool, CopyError> {
        let mut source = Source {
            size: meta.size,
            item,
            remote,
            short: Cell::new(false),
            counted,
            content: Content::File(fd),
        };
        counted.begun.set(meta.size);
        self.ledger.count(|totals| totals.begun += meta.size);
        if source.size == 0 {
            self.write_to_end(fd, &mut source).await?;
        }
        let at = item.dir.at(item.name());
        let mut end = 0;
        let mut next = next_data(fd, 0, meta.size);
        while let Some(first) = next {
            let window = window(fd, meta.size, first);
            let begin = end;
            end = window.last().map_or(end, |part| part.end);
            let data: u64 = window.iter().map(|part| part.end - part.start).sum();
            self.count_holes(counted, (end - begin).saturating_sub(data));
            self.write_window(&source, &window).await?;
            next = next_data(fd, end, meta.size);
        }
        if end < meta.size {
            self.count_holes(counted, meta.size - end);
            // The file ends in a hole. The size is set separately, so that no server sets the times
            // first.
            let attributes = SetAttributes {
                size: Some(meta.size),
                ..SetAttributes::default()
            };
            self.mount.setattr(source.remote, attributes, &at).await?;
        }
        let path = || item.dir.info.local.path(&item.local);
        let now = stat_file(fd).map_err(|e| file_error("reading", path(), e))?;
        Ok(source.short.get() || !now.is_same_version(meta))
    }

    fn count_holes(&self, counted: &Counted, len: u64) {
        if len > 0 {
            counted.holes.set(counted.holes.get() + len);
            self.ledger.count(|totals| totals.holes += len);
        }
    }

    /// Opens a local file, and makes the kernel read ahead in a large one.
    fn open(&self, item: &Item) -> Result<(OwnedFd, Meta), CopyError> {
        let local = &item.dir.info.local;
        let failed = |error| local.error("reading", &item.local, error);
        let fd = match item.follows(self.options) {
            true => local.open_target(&item.local),
            false => local.open_file(&item.local),
        };
        let fd = fd.map_err(failed)?;
        let meta = stat_file(&fd).map_err(failed)?;
        if meta.kind != Kind::RegularFile {
            // It was a regular file when the directory was read.
            let path = item.dir.at(item.name()).display();
            return Err(CopyError::Changed { path });
        }
        if meta.size > u64::from(self.mount.limits().wsize) {
            read_ahead(&fd);
        }
        Ok((fd, meta))
    }

    /// Writes the content of a file that states no size, as those of `/proc` do: up to where a read
    /// finds nothing. Each part is read once, because reading removes the content of some such files.
    async fn write_to_end(&self, fd: &OwnedFd, source: &mut Source<'_>) -> Result<(), CopyError> {
        let len = u64::from(self.mount.limits().wsize.min(UNSIZED_READ));
        let path = || source.item.dir.info.local.path(&source.item.local);
        let stat = || stat_file(fd).map_err(|error| file_error("reading", path(), error));
        // An ordinary file that has got a size since it was opened may grow faster than it is copied.
        while stat()?.size == 0 {
            let piece = self.read_piece(source, fd, &(source.size..source.size + len))?;
            if piece.is_empty() {
                break;
            }
            let part = source.size..source.size + piece.len() as u64;
            source.size = part.end;
            source.content = Content::Memory(part.start, vec![piece]);
            self.write_window(source, slice::from_ref(&part)).await?;
        }
        // Reads that find less than they ask for are no sign of a change here.
        source.short.set(false);
        Ok(())
    }

    /// Creates an empty file with `mode`. An existing file is truncated; any other object except a
    /// directory is replaced. If `source` is given, the local file to copy, an existing file is also
    /// restricted to `mode`, and replaced if it has further names: these keep their content, as with
    /// `cp -a`. The new file is empty when it replaces the old one, so that a copy that ends early
    /// leaves an incomplete file under its own name, which the next copy completes.
    ///
    /// # Errors
    /// [`CopyError::Same`]: the existing file is `source`.
    pub(super) async fn make_file(
        &self,
        unfinished: &mut Unfinished<'_, '_>,
        mode: u32,
        source: Option<&OwnedFd>,
    ) -> Result<Object, CopyError> {
        let item = unfinished.item;
        let (dir, name) = (item.dir.info.remote, item.name());
        let at = item.dir.at(name);
        // No size: an UNCHECKED CREATE with size 0 would truncate an existing file before it is compared
        // with the source.
        let attributes = || SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        // Servers differ in the result of CREATE for a name of another object: some succeed.
        let there = match self.mount.create(dir, name, attributes(), &at).await {
            Ok(file) if file.attributes.file_type == FileType::Regular => {
                let id = (file.handle, file.attributes.fileid);
                let here = || source.and_then(|fd| stat_file(fd).ok());
                if is_same(self.mount, id, &at, here).await? {
                    unfinished.done();
                    let path = at.display();
                    return Err(CopyError::Same { path });
                }
                if source.is_none() || file.attributes.nlink < 2 {
                    let emptied = self.empty(&file, source.map(|_| mode), &at).await;
                    if file.attributes.size > 0 && emptied.as_ref().is_err_and(is_refusal) {
                        // It existed, and is as it was.
                        unfinished.done();
                    }
                    unfinished.is_own = emptied?;
                    unfinished.overwrites = file.attributes.size > 0;
                    return Ok(file);
                }
                file
            }
            Ok(other) => other,
            Err(error) => {
                let may_replace = replaceable(&error);
                let error = CopyError::from(error);
                unfinished.refused(&error);
                if !may_replace {
                    return Err(error);
                }
                let there = self.mount.lookup(dir, name, &at).await?;
                if there.attributes.file_type == FileType::Regular {
                    return Err(error);
                }
                there
            }
        };
        unfinished.done = false;
        let make = async |name: &[u8]| self.mount.create(dir, name, attributes(), &at).await;
        let file = self.replace(item, &there, false, make).await;
        let file = file.inspect_err(|error| unfinished.refused(error))?;
        // Its other names keep the content.
        unfinished.overwrites = there.attributes.nlink < 2;
        self.empty(&file, Some(mode), &at).await?;
        unfinished.is_own = true;
        Ok(file)
    }

    /// Truncates a file that may have existed, and sets its permissions to `mode`: some servers refuse
    /// a WRITE also from the owner if the mode does not permit it. Returns false if the server says that the file is
    /// somebody else's.
    async fn empty(
        &self,
        file: &Object,
        mode: Option<u32>,
        at: &impl Place,
    ) -> Result<bool, NfsError> {
        let there = &file.attributes;
        let size = (there.size > 0).then_some(0);
        let mode = mode.filter(|mode| there.mode & PERMISSIONS != *mode);
        let set = |mode, size| async move {
            let attributes = SetAttributes {
                mode,
                size,
                ..SetAttributes::default()
            };
            self.mount.setattr(file.handle, attributes, at).await
        };
        if (mode, size) == (None, None) {
            return Ok(true);
        }
        match set(mode, size).await {
            // Only the owner may change the mode; a user with write permission may still truncate.
            Err(error) if mode.is_some() && error.status() == Some(Status::PERM) => {
                if size.is_some() {
                    set(None, size).await?;
                }
                Ok(false)
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// Writes the parts and commits them. If the server restarted before the COMMIT (RFC 1813,
    /// section 4.8: its write verifier changed), writes them again.
    pub(super) async fn write_window(
        &self,
        source: &Source<'_>,
        parts: &[Range<u64>],
    ) -> Result<(), CopyError> {
        let at = source.item.dir.at(source.item.name());
        let wsize = u64::from(self.mount.limits().wsize);
        // A single WRITE with FILE_SYNC saves the COMMIT.
        let stable = match parts {
            [part] if part.end - part.start <= wsize => Stable::FileSync,
            _ => Stable::Unstable,
        };
        for attempt in 0..ATTEMPTS {
            let written = self.write_parts(source, parts, stable, attempt > 0).await?;
            let verifier = match written {
                Written::Stable => return Ok(()),
                Written::Under(verifier) => Some(verifier),
                Written::UnderSeveral => None,
            };
            if self.mount.commit(source.remote, &at).await.map(Some)? == verifier {
                return Ok(());
            }
        }
        Err(CopyError::Restarts {
            path: at.display(),
            times: ATTEMPTS,
        })
    }

    /// Reads one piece of the local file.
    fn read_piece(
        &self,
        source: &Source<'_>,
        fd: &OwnedFd,
        piece: &Range<u64>,
    ) -> Result<Bytes, CopyError> {
        let len = (piece.end - piece.start) as usize;
        let mut buf = self.pool.alloc(len).map_err(|error| CopyError::Memory {
            path: source.item.dir.at(source.item.name()).display(),
            source: error,
        })?;
        let path = || source.item.dir.info.local.path(&source.item.local);
        let read = read_at(fd, &mut buf, piece.start)
            .map_err(|error| file_error("reading", path(), error))?;
        if read < len {
            source.short.set(true);
        }
        buf.truncate(read);
        Ok(buf.freeze())
    }

    async fn write_parts(
        &self,
        source: &Source<'_>,
        parts: &[Range<u64>],
        stable: Stable,
        again: bool,
    ) -> Result<Written, CopyError> {
        let wsize = u64::from(self.mount.limits().wsize);
        let mut pieces = parts.iter().flat_map(|part| {
            let starts = (part.start..part.end).step_by(wsize as usize);
            starts.map(move |start| start..part.end.min(start + wsize))
        });
        let mut written = Written::Stable;
        let mut writing = FuturesUnordered::new();
        loop {
            while writing.len() < WRITES
                && let Some(piece) = pieces.next()
            {
                writing.push(self.write_piece(source, piece, stable, again));
            }
            match writing.next().await {
                Some(outcome) => written = written.and(outcome?),
                None => return Ok(written),
            }
        }
    }

    /// Writes one piece in as many WRITEs as the server needs.
    async fn write_piece(
        &self,
        source: &Source<'_>,
        piece: Range<u64>,
        stable: Stable,
        again: bool,
    ) -> Result<Written, CopyError> {
        let at = source.item.dir.at(source.item.name());
        let len = (piece.end - piece.start) as usize;
        let _part = self.budget.take(len).await;
        let mut data = match &source.content {
            Content::File(fd) => self.read_piece(source, fd, &piece)?,
            Content::Memory(start, pieces) => {
                let wsize = u64::from(self.mount.limits().wsize);
                let index = ((piece.start - start) / wsize) as usize;
                pieces.get(index).cloned().unwrap_or_default()
            }
        };
        let read = data.len();
        let mut offset = piece.start;
        let mut written = Written::Stable;
        while !data.is_empty() {
            let sent = data.clone();
            let ok = self
                .mount
                .write(source.remote, offset, sent, stable, &at)
                .await?;
            // `Mount::write` has checked that it is neither 0 nor too much.
            let _ = data.split_to(ok.count as usize);
            offset += u64::from(ok.count);
            if ok.committed == Stable::Unstable {
                written = written.and(Written::Under(ok.verifier));
            }
        }
        if !again {
            let written = &source.counted.written;
            written.set(written.get() + read as u64);
        }
        self.ledger.count(|totals| match again {
            true => totals.bytes_again += read as u64,
            false => totals.bytes += read as u64,
        });
        Ok(written)
    }
}

/// Returns the parts of a local file from `first` on that contain data, at most [`WINDOW`] bytes.
fn window(fd: &OwnedFd, size: u64, first: Range<u64>) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut room = WINDOW;
    let mut next = Some(first);
    while let Some(part) = next {
        let part = part.start..part.end.min(part.start + room);
        room -= part.end - part.start;
        next = match room {
            0 => None,
            _ => next_data(fd, part.end, size),
        };
        parts.push(part);
    }
    parts
}

/// The remaining work after some WRITEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// Nothing: all data is on stable storage.
    Stable,
    /// A COMMIT, which must return this verifier.
    Under(Verifier),
    /// Writing again: the server restarted between the WRITEs, so no verifier can match all of
    /// them.
    UnderSeveral,
}

impl Written {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Stable, one) | (one, Self::Stable) => one,
            (Self::Under(a), Self::Under(b)) if a == b => self,
            _ => Self::UnderSeveral,
        }
    }
}

/// Returns whether a call has changed nothing because the caller may not do that.
fn is_refusal(error: &NfsError) -> bool {
    let status = error.status();
    matches!(status, Some(Status::ACCES | Status::PERM | Status::ROFS))
}

/// Returns whether a CREATE may have failed because an object that is not a file has the name.
fn replaceable(error: &NfsError) -> bool {
    matches!(
        error.status(),
        Some(Status::EXIST | Status::ISDIR | Status::INVAL | Status::NXIO | Status::BADTYPE)
    )
}

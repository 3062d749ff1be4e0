//! Operations on the loop of the server, which must not wait: on objects that are open, with what the
//! kernel has in its caches.
//!
//! A worker does what is not known to be safe:
//!
//! * Only some file systems are known to keep the attributes of an open object in memory
//!   ([`host::keeps_attributes`]). On a network
//!   file system, in FUSE or on an overlay, which can be of those, statx(2) can wait for ever.
//! * A name is resolved by openat2(2) with `RESOLVE_CACHED`, except on tmpfs: that keeps no record of
//!   names that do not exist, and has the others in memory anyway.
//! * Data is read with `RWF_NOWAIT`, if the file system knows that; each is asked once. tmpfs has no
//!   such thing and needs none, unless the host has swapped something out. After a READ whose data was not
//!   in memory, some more of the file are left to workers: the kernel begins to read ahead in the attempt.
//! * A check of permission can read an access control list from the disk, the first time that it is
//!   needed. A worker makes the first check of each object ([`Node::knows_access`]), and opens its
//!   content, except on tmpfs, where WRITE and COMMIT do both here.
//! * Locks that others may hold while they wait are tried for some hundred instructions.
//! * Closing can take time: the last descriptor of a removed file frees its blocks. The idle closer
//!   closes what would be closed here.
//!
//! What is served from a tmpfs alone waits for no disk, unless the host has swapped something out. There the
//! server executes short operations that change no names as they are: they wait for nothing
//! but the locks of others in memory, and for the kernel if that has to free memory first. Longer ones, and
//! those that free the memory of files, are left to workers.
//!
//! A read whose data is in memory may still have to record the time of access, as with io_uring.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use linux_file_handle::may_access;
use rustix::fs::Access as Wanted;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use super::content::{is_end, require_file};
use super::node::Content;
use super::volume::Reads;
use super::*;
use crate::fs::NonBlocking;

/// The maximum number of objects and descriptors that wait for the idle closer. With so many, names are
/// left to workers, which close by themselves what they opened. (What loops are about to queue adds to it.)
const MOST_QUEUED: usize = 64;

/// An object in use by a call that must not wait.
struct InUse<'a> {
    served: &'a Served,
    /// `None` only while it is dropped.
    node: Option<Arc<Node>>,
}

impl std::ops::Deref for InUse<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        // If another thread has removed the object from the table meanwhile, this is the last
        // reference.
        if let Some(last) = self.node.take().and_then(Arc::into_inner) {
            self.served.close_later(Arc::new(last));
        }
    }
}

impl Served {
    /// Returns an object if it is open and its attributes are in memory.
    fn in_use(&self, id: &FileId) -> Option<InUse<'_>> {
        let node = match *id == self.root.id {
            true => Arc::clone(&self.root),
            false => self.tables.soon(id)?.open(id)?,
        };
        let served = self;
        let node = InUse {
            served,
            node: Some(node),
        };
        node.volume.keeps_attributes.then_some(node)
    }

    /// Returns the address by which a batch knows this file system.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the attributes that an object has or had since the last call of this batch arrived.
    fn attributes_in_batch(&self, node: &Node) -> Option<Attributes> {
        let known = batch::attributes(self.address(), &node.id);
        known.or_else(|| self.fresh_attributes(node))
    }

    /// Returns the present attributes of an object, and remembers them in a batch.
    fn fresh_attributes(&self, node: &Node) -> Option<Attributes> {
        let attributes = node.attributes().ok()?;
        batch::remember_attributes(self.address(), &node.id, &attributes);
        Some(attributes)
    }

    /// Returns whether the kernel can check the caller's access to an object without waiting.
    fn checks_at_once(&self, node: &Node, who: &Caller) -> bool {
        node.volume.in_memory || node.knows_access(self.authority.identity(who).uid)
    }

    /// Has the idle closer close an object that is not in the table.
    fn close_later(&self, node: Arc<Node>) {
        locked(&self.evicted).push(node);
        self.count_queued();
    }

    /// Has the idle closer close a descriptor.
    fn close_descriptor_later(&self, descriptor: OwnedFd) {
        locked(&self.closing).push(descriptor);
        self.count_queued();
    }

    /// Counts what was queued for the idle closer. With [`MOST_QUEUED`], that begins at once.
    fn count_queued(&self) {
        self.closer_signal.opened();
        if self.queued.fetch_add(1, Ordering::Relaxed) + 1 == MOST_QUEUED {
            self.closer_signal.hurry();
        }
    }

    /// Keeps the entry `name` of `dir` open, as [`Served::keep_child`] does. Returns `None` if that could
    /// take time: an object that is evicted has to be synced.
    fn keep_child_soon(&self, dir: &Node, name: &[u8], node: Node) -> Option<()> {
        if node.id == self.root.id {
            return Some(());
        }
        let (is_indexed, id) = (self.is_indexed(&node), node.id);
        let table = self.tables.soon(&id);
        let Some(mut table) = table.filter(|table| !table.evicts_for(&id)) else {
            self.close_later(Arc::new(node));
            return None;
        };
        if is_indexed {
            table.record_place(id, dir.id, name);
        }
        let (kept, same) = table.keep_open(node, |_| false);
        drop(table);
        self.closer_signal.opened();
        // The object was open already, so that closing it once more has no effect on it.
        drop(same);
        drop(InUse {
            served: self,
            node: Some(kept),
        });
        Some(())
    }

    /// Reads from a file what is in memory. Returns the number of bytes, which is less than asked for at the
    /// end of the file.
    fn read_cached(
        &self,
        volume: &Volume,
        fd: &OwnedFd,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<usize> {
        let reads = volume.reads(|| self.swapped.load(Ordering::Relaxed))?;
        let mut count = 0;
        while count < buf.len() {
            let (at, rest) = (offset + count as u64, &mut buf[count..]);
            let read = match reads {
                Reads::Memory => pread(fd, rest, at),
                Reads::Cached => {
                    let mut rest = [IoSliceMut::new(rest)];
                    preadv2(fd, &mut rest, at, ReadWriteFlags::NOWAIT)
                }
            };
            match read {
                Ok(0) => break,
                Ok(n) => count += n,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => {
                    volume.refuses_nowait();
                    return None;
                }
                Err(_) => return None,
            }
        }
        Some(count)
    }
}

/// Returns whether a read of what is in memory ended before the end of the file, of `size` bytes. Linux 5.9 and
/// 5.10 can return 0 there (preadv2(2), section BUGS), and the file can have grown meanwhile.
fn is_cut_short(offset: u64, count: usize, wanted: usize, size: u64) -> bool {
    count < wanted && offset.saturating_add(count as u64) < size
}

/// Returns whether a read got what is in a file of `size` bytes. Otherwise the file had another size.
fn is_range_of(offset: u64, count: usize, wanted: usize, size: u64) -> bool {
    let end = offset.saturating_add(count as u64);
    match count == wanted {
        true => end <= size,
        false => end == size || (count == 0 && offset > size),
    }
}

/// The content of an object in use by a call that must not wait.
struct ContentInUse<'a> {
    served: &'a Served,
    /// `None` only while it is dropped.
    content: Option<Arc<Content>>,
}

impl Drop for ContentInUse<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.content.take().and_then(Arc::into_inner) {
            self.served.close_descriptor_later(last.fd);
        }
    }
}

impl NonBlocking for Served {
    fn changes_credentials(&self) -> bool {
        matches!(self.authority, Authority::Callers(_))
    }

    fn is_in_memory(&self) -> bool {
        // With `crossmnt`, some of it can be in other file systems.
        self.root.volume.in_memory
            && !self.options.crossmnt
            && self.direct_io.is_none()
            && !self.swapped.load(Ordering::Relaxed)
    }

    fn is_open(&self, file: &FileId) -> bool {
        // An object that was removed is closed by whoever finds that out, which can take time.
        let node = self.in_use(file);
        // What this batch remembers would not show the removal, and another's change can take long.
        node.is_some_and(|node| self.is_unlocked(&node) && self.fresh_attributes(&node).is_some())
    }

    fn getattr(&self, file: &FileId) -> Option<Attributes> {
        let node = self.in_use(file)?;
        self.attributes_in_batch(&node)
    }

    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Option<FsResult<Found>> {
        if matches!(name, b"." | b"..") || name::check(name).is_err() {
            return None;
        }
        if self.queued.load(Ordering::Relaxed) >= MOST_QUEUED {
            return None;
        }
        let dir = self.in_use(dir)?;
        let directory = self.attributes_in_batch(&dir)?;
        permission::require_directory(&directory).ok()?;
        let _as_caller = self.authority.impersonate(who).ok()?;
        let path = match host::open_child_of_mount(&*dir, name, !dir.volume.in_memory) {
            Ok(path) => path,
            Err(Errno::NOENT) => return Some(Err(FsError::NotFound)),
            Err(_) => return None,
        };
        let opened =
            host::stat(&path).and_then(|stat| Ok((dir.volume.identify(&path, &stat)?, stat)));
        let (id, stat) = match opened {
            // Another object may have been renamed over it, or it is of another file system.
            Ok((id, stat)) if stat.stx_nlink > 0 && !dir.volume.is_subvolume_root(&stat) => {
                (id, stat)
            }
            _ => {
                self.close_descriptor_later(path);
                return None;
            }
        };
        let node = Node::new(id, Arc::clone(&dir.volume), path, &stat);
        let object = Object {
            id,
            attributes: node.to_client(&stat),
            mounted: None,
        };
        self.keep_child_soon(&dir, name, node)?;
        Some(Ok(Found { object, directory }))
    }

    fn access(&self, who: &Caller, file: &FileId, wanted: Access) -> Option<(Access, Attributes)> {
        let node = self.in_use(file)?;
        let stat = node.stat().ok()?;
        let attributes = node.to_client(&stat);
        if !self.checks_at_once(&node, who) {
            return None;
        }
        let allowed = self.allowed_access_to(&node, &stat, who, wanted).ok()?;
        Some((allowed, attributes))
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> Option<Read> {
        if self.direct_io.is_some() {
            // The data is not to be in the page cache.
            return None;
        }
        let node = self.in_use(file)?;
        require_file(&node).ok()?;
        let end = offset.checked_add(buf.len() as u64)?;
        if !self.checks_at_once(&node, who) || end > host::MAX_OFFSET || node.is_left_to_worker() {
            return None;
        }
        let content = node.content_soon()?;
        let content = ContentInUse {
            served: self,
            content: Some(content),
        };
        let fd = &content.content.as_ref()?.fd;
        let _as_caller = self.authority.impersonate(who).ok()?;
        if !batch::is_readable(self.address(), file) {
            may_access(&*node, Wanted::READ_OK).ok()?;
            batch::remember_readable(self.address(), file);
        }
        let read = self.read_cached(&node.volume, fd, offset, buf);
        let Some(count) = read else {
            node.leave_to_workers();
            return None;
        };
        // Data that is newer than the attributes is read again, once its reader sees newer ones; attributes
        // that are newer than the data would make old data look new.
        let known = batch::attributes(self.address(), file);
        let known = known.filter(|known| is_range_of(offset, count, buf.len(), known.size));
        let attributes = match known {
            Some(known) => known,
            None => self.fresh_attributes(&node)?,
        };
        if is_cut_short(offset, count, buf.len(), attributes.size) {
            node.leave_to_workers();
            return None;
        }
        Some(Read {
            count: u32::try_from(count).ok()?,
            eof: is_end(offset, count, buf.len(), attributes.size),
            attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::host::STATS;
    use super::*;
    use crate::fs::{FileSystem, HowToCreate};
    use crate::proto::{SetAttributes, Stable};

    /// Serves a directory in memory, and keeps this many objects open. No thread closes any.
    fn served(most_open: usize) -> (tempfile::TempDir, DirectoryFs) {
        let host = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = DirectoryOptions {
            most_open: Some(most_open),
            ..DirectoryOptions::default()
        };
        let fs = DirectoryFs::open(host.path(), options).unwrap();
        fs.0.closer_signal.close();
        (host, fs)
    }

    fn look_up(fs: &DirectoryFs, name: &[u8]) -> Option<FileId> {
        let found = NonBlocking::lookup(&*fs.0, &Caller::root(), &fs.root(), name)?;
        Some(found.unwrap().object.id)
    }

    /// The evicted object would have unstable data until the idle closer's next round.
    #[test]
    fn a_name_that_is_looked_up_evicts_no_object() {
        let (host, fs) = served(1);
        let how = HowToCreate::Guarded(SetAttributes::default());
        let who = Caller::root();
        let open = fs
            .create(&who, &fs.root(), b"open", &how)
            .result
            .unwrap()
            .id;
        let written = fs.write(&who, &open, 0, &b"data".into(), Stable::Unstable);
        written.result.unwrap();
        std::fs::write(host.path().join("other"), "").unwrap();
        for _ in 0..3 {
            assert_eq!(look_up(&fs, b"other"), None);
            assert!(fs.0.tables.of(&open).open(&open).is_some());
            assert_eq!(look_up(&fs, b"open"), Some(open), "it is open already");
        }
    }

    #[test]
    fn a_read_that_ends_before_the_end_of_the_file_is_left_to_a_worker() {
        for (offset, count, wanted, size, cut) in [
            (0, 0, 10, 10, true),
            (4096, 4096, 8192, 8193, true),
            (0, 10, 10, 20, false),
            (0, 10, 20, 10, false),
            (20, 0, 10, 10, false),
            (u64::MAX, 1, 2, u64::MAX, false),
        ] {
            let is = is_cut_short(offset, count, wanted, size);
            assert_eq!(is, cut, "{count} of {wanted} at {offset} of {size}");
        }
    }

    #[test]
    fn a_batch_reads_the_attributes_of_an_object_once() {
        const LEN: usize = 4096;
        let (host, fs) = served(1000);
        let file = host.path().join("f");
        std::fs::write(&file, [7; LEN]).unwrap();
        let id = look_up(&fs, b"f").unwrap();
        let (who, mut buf) = (Caller::root(), [0; LEN]);
        fs.read(&who, &id, 0, &mut buf).unwrap();
        let mut read = |offset: usize| {
            let read = NonBlocking::read(&*fs.0, &who, &id, offset as u64, &mut buf).unwrap();
            (read.count as usize, read.eof, read.attributes)
        };
        let getattr = |id: &FileId| NonBlocking::getattr(&*fs.0, id).unwrap();
        let stats = |calls: &mut dyn FnMut()| {
            let before = STATS.get();
            keep_identity_in_batch();
            calls();
            return_to_server();
            STATS.get() - before
        };
        let counted = stats(&mut || {
            for _ in 0..16 {
                let (count, eof, attributes) = read(0);
                assert_eq!((count, eof), (LEN, true));
                assert_eq!(attributes, getattr(&id));
                assert_eq!(read(LEN).0, 0);
            }
        });
        assert_eq!(counted, 1);
        let counted = stats(&mut || {
            for _ in 0..16 {
                assert_eq!(getattr(&fs.root()).file_type, FileType::Directory);
                let found = NonBlocking::lookup(&*fs.0, &who, &fs.root(), b"none");
                assert!(matches!(found, Some(Err(FsError::NotFound))));
            }
        });
        assert_eq!(counted, 1);
        // Two objects in turn.
        let counted = stats(&mut || {
            for _ in 0..4 {
                assert_ne!(getattr(&id), getattr(&fs.root()));
            }
        });
        assert_eq!(counted, 8);

        // What is read beside a change has a size that fits it, and the next batch sees the change.
        stats(&mut || {
            assert_eq!(read(0).2.size as usize, LEN);
            let mut appending = std::fs::File::options().append(true).open(&file).unwrap();
            appending.write_all(&[8; LEN]).unwrap();
            assert_eq!(read(0).2.size as usize, LEN);
            let (count, eof, attributes) = read(LEN);
            assert_eq!((count, eof, attributes.size as usize), (LEN, true, 2 * LEN));
            assert_eq!(getattr(&id), attributes);
        });
        std::fs::write(&file, [9; LEN / 2]).unwrap();
        stats(&mut || assert_eq!(getattr(&id).size as usize, LEN / 2));
        std::fs::write(&file, []).unwrap();
        assert_eq!(
            getattr(&id).size,
            0,
            "outside of a batch nothing is remembered"
        );
    }

    #[test]
    fn a_read_whose_length_fits_the_size_is_known() {
        for (offset, count, wanted, size, fits) in [
            (0, 10, 10, 10, true),
            (0, 10, 10, 20, true),
            (0, 10, 10, 9, false),
            (0, 5, 10, 5, true),
            (0, 5, 10, 4, false),
            (0, 5, 10, 6, false),
            (20, 0, 10, 10, true),
            (10, 0, 10, 10, true),
            (5, 0, 10, 10, false),
            (u64::MAX, 1, 2, u64::MAX, true),
        ] {
            let is = is_range_of(offset, count, wanted, size);
            assert_eq!(is, fits, "{count} of {wanted} at {offset} of {size}");
        }
    }

    #[test]
    fn names_are_left_to_workers_while_much_waits_to_be_closed() {
        let (host, fs) = served(1000);
        std::fs::write(host.path().join("f"), "").unwrap();
        assert!(look_up(&fs, b"f").is_some());
        for queued in 0..MOST_QUEUED {
            assert!(look_up(&fs, b"f").is_some(), "{queued}");
            let file = std::fs::File::open(host.path()).unwrap();
            fs.0.close_descriptor_later(file.into());
        }
        assert_eq!(look_up(&fs, b"f"), None);
        assert!(fs.0.closer_signal.is_hurried());
        fs.0.close_queued();
        assert!(look_up(&fs, b"f").is_some());
    }
}

//! FUSE's side: each request of the kernel becomes a job for the file system's thread.
//!
//! The threads that read FUSE's device run these methods. They copy what a request carries, and never
//! wait. What NFS version 3 does not have is refused with ENOSYS, which the kernel understands and
//! remembers: extended attributes and access control lists become EOPNOTSUPP, as does `fallocate`;
//! `SEEK_HOLE` finds none; `copy_file_range` becomes reads and writes. Locks are the kernel's own,
//! because this file system does not ask for them.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents,
    PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nfs_binding::proto::SetAttributes;
use rdma::Pool;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::convert::{attr, decode_device, kind, set_time, type_of_mode};
use crate::core::{Connect, Core, UserOf};
use crate::engine::Queue;
use crate::files::{OpenMode, Opened};
use crate::find::{Found, Stat};
use crate::users::Requester;

/// The kernel's flag of an `open` in order to execute a file (`FMODE_EXEC`).
const OPEN_TO_EXECUTE: i32 = 0x20;
/// The maximum number of the kernel's requests that no program waits for, such as reading ahead.
const BACKGROUND: u16 = 128;
/// The block size in which free space is reported.
const BLOCK: u32 = 4096;
/// The maximum length of a name, as far as the kernel is told. The server knows.
const NAME_MAX: u32 = 255;
/// Objects are never given the number of another one, so that their generation says nothing.
const GENERATION: Generation = Generation(0);

/// The state of the threads that take requests from FUSE and queue them for the NFS thread.
pub(crate) struct Bridge<C: Connect> {
    pub(crate) queue: Arc<Queue<C>>,
    /// Memory for written data, from which the transport sends without a copy.
    pub(crate) pool: Pool,
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

    fn attributes(&self) -> impl FnOnce(ReplyAttr, (Stat, u64)) + Send + use<C> {
        let block = self.block;
        move |reply, (stat, ino)| reply.attr(&stat.trust.clone(), &attr(&stat, ino, block))
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

fn open_mode(flags: i32) -> OpenMode {
    let accepted = OpenFlags(flags).acc_mode();
    let has = |flag: OFlags| flags as u32 & flag.bits() == flag.bits();
    OpenMode {
        read: accepted != OpenAccMode::O_WRONLY,
        write: accepted != OpenAccMode::O_RDONLY,
        execute: flags & OPEN_TO_EXECUTE != 0,
        direct: has(OFlags::DIRECT),
        sync: has(OFlags::DSYNC),
        exclusive: has(OFlags::EXCL),
    }
}

fn open_flags(mode: OpenMode, opened: Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    if opened.keep {
        flags |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    if !mode.write {
        // There is nothing to wait for when it is closed.
        flags |= FopenFlags::FOPEN_NOFLUSH;
    }
    flags
}

impl<C: Connect> Filesystem for Bridge<C> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel does not have is left out; none of it changes results.
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_HANDLE_KILLPRIV,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            if let Err(missing) = config.add_capabilities(wanted) {
                tracing::debug!(?missing, "the kernel's FUSE lacks something");
            }
        }
        if let Err(nearest) = config.set_max_write(self.max_write) {
            tracing::debug!(nearest, "the size of writes is not possible");
        }
        if let Err(nearest) = config.set_max_background(BACKGROUND) {
            tracing::debug!(nearest, "the number of requests is not possible");
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.queue.close();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, thread) = (name.as_bytes().to_vec(), request.pid());
        let work =
            async move |core: Rc<Core<C>>, user| core.lookup(&user, thread, parent.0, &name).await;
        self.submit(request, reply, work, self.entry());
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.queue.push(Box::new(move |core: &Rc<Core<C>>| {
            core.forget(ino.0, lookups);
            Box::pin(std::future::ready(()))
        }));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let work = async move |core: Rc<Core<C>>, user| {
            let stat = core.getattr(&user, ino.0).await?;
            let number = stat.attributes.fileid;
            Ok((stat, number))
        };
        self.submit(request, reply, work, self.attributes());
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attributes = SetAttributes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: set_time(atime),
            mtime: set_time(mtime),
        };
        let file = file.map(|file| file.0);
        let work = async move |core: Rc<Core<C>>, user| {
            let stat = core.setattr(&user, ino.0, file, attributes).await?;
            let number = stat.attributes.fileid;
            Ok((stat, number))
        };
        self.submit(request, reply, work, self.attributes());
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let work = async move |core: Rc<Core<C>>, user| core.readlink(&user, ino.0).await;
        self.submit(request, reply, work, |reply, text: Bytes| reply.data(&text));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(file_type) = type_of_mode(mode) else {
            return reply.fail(Errno::INVAL);
        };
        let (name, device) = (name.as_bytes().to_vec(), decode_device(rdev));
        let work = async move |core: Rc<Core<C>>, user| {
            core.mknod(&user, parent.0, &name, file_type, mode & 0o7777, device)
                .await
        };
        self.submit(request, reply, work, self.entry());
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        let work = async move |core: Rc<Core<C>>, user| {
            core.mkdir(&user, parent.0, &name, mode & 0o7777).await
        };
        self.submit(request, reply, work, self.entry());
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let work = async move |core: Rc<Core<C>>, user| core.unlink(&user, parent.0, &name).await;
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let work = async move |core: Rc<Core<C>>, user| core.rmdir(&user, parent.0, &name).await;
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        let target = target.as_os_str().as_bytes().to_vec();
        let work = async move |core: Rc<Core<C>>, user| {
            core.symlink(&user, parent.0, &name, &target).await
        };
        self.submit(request, reply, work, self.entry());
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // NFS version 3 has neither an exchange nor a rename that replaces nothing.
        if !flags.is_empty() {
            return reply.fail(Errno::INVAL);
        }
        let (old, new) = (name.as_bytes().to_vec(), new_name.as_bytes().to_vec());
        let work = async move |core: Rc<Core<C>>, user| {
            core.rename(&user, (parent.0, &old), (new_parent.0, &new))
                .await
        };
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = new_name.as_bytes().to_vec();
        let work =
            async move |core: Rc<Core<C>>, user| core.link(&user, ino.0, new_parent.0, &name).await;
        self.submit(request, reply, work, self.entry());
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (mode, thread) = (open_mode(flags.0), request.pid());
        let work = async move |core: Rc<Core<C>>, user| core.open(&user, thread, ino.0, mode).await;
        self.submit(request, reply, work, move |reply, opened: Opened| {
            reply.opened(FileHandle(opened.file), open_flags(mode, opened));
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, thread) = (name.as_bytes().to_vec(), request.pid());
        let open = open_mode(flags);
        let work = async move |core: Rc<Core<C>>, user| {
            core.create(&user, thread, parent.0, &name, mode & 0o7777, open)
                .await
        };
        let block = self.block;
        let answer = move |reply: ReplyCreate, (found, opened): (Found, Opened)| {
            let Some(stat) = &found.stat else {
                return reply.fail(Errno::IO);
            };
            // FUSE has one time for both here.
            let trust = stat.trust.min(found.trust);
            let attr = attr(stat, stat.ino, block);
            let file = FileHandle(opened.file);
            reply.created(&trust, &attr, GENERATION, file, open_flags(open, opened));
        };
        self.submit(request, reply, work, answer);
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let direct = open_mode(flags.0).direct;
        let work = async move |core: Rc<Core<C>>, _| core.read(file.0, offset, size, direct).await;
        self.submit(request, reply, work, |reply, data: Bytes| reply.data(&data));
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = self.copy(data);
        let mode = open_mode(flags.0);
        // Pages that were mapped are written later, by whoever; the flags are those of any open file.
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let through = !mapped && (mode.direct || mode.sync);
        let work =
            async move |core: Rc<Core<C>>, _| core.write(file.0, offset, data, through).await;
        self.submit(request, reply, work, |reply, len| reply.written(len));
    }

    fn flush(
        &self,
        request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let work = async move |core: Rc<Core<C>>, _| core.close(file.0).await;
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    fn release(
        &self,
        request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _ = request;
        // At once, so that a removal that follows finds the file closed.
        self.queue.push(Box::new(move |core: &Rc<Core<C>>| {
            core.release(file.0);
            reply.ok();
            Box::pin(std::future::ready(()))
        }));
    }

    fn fsync(
        &self,
        request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let work = async move |core: Rc<Core<C>>, _| core.fsync(file.0).await;
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let work = async move |core: Rc<Core<C>>, user| core.opendir(&user, ino.0).await;
        let answer = |reply: ReplyOpen, opened: crate::listing::OpenedDirectory| {
            let mut flags = FopenFlags::FOPEN_CACHE_DIR;
            if opened.keep {
                flags |= FopenFlags::FOPEN_KEEP_CACHE;
            }
            reply.opened(FileHandle(opened.number), flags);
        };
        self.submit(request, reply, work, answer);
    }

    fn readdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        directory: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.list(request, directory, offset, reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        _ino: INodeNo,
        directory: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.list_plus(request, directory, offset, reply);
    }

    fn releasedir(
        &self,
        request: &Request,
        _ino: INodeNo,
        directory: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let work = async move |core: Rc<Core<C>>, _| {
            core.releasedir(directory.0);
            Ok(())
        };
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    /// Changes of directories are on the server's stable storage when they are done.
    fn fsyncdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        _directory: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let work = async move |core: Rc<Core<C>>, user| core.statfs(&user, ino.0).await;
        let answer = |reply: ReplyStatfs, it: nfs_binding::proto::FsstatOk| {
            let blocks = |bytes: u64| bytes / u64::from(BLOCK);
            let (total, free) = (blocks(it.total_bytes), blocks(it.free_bytes));
            let available = blocks(it.available_bytes);
            let (files, free_files) = (it.total_files, it.available_files);
            reply.statfs(
                total, free, available, files, free_files, BLOCK, NAME_MAX, BLOCK,
            );
        };
        self.submit(request, reply, work, answer);
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let want = (
            mask.contains(AccessFlags::R_OK),
            mask.contains(AccessFlags::W_OK),
            mask.contains(AccessFlags::X_OK),
        );
        let work = async move |core: Rc<Core<C>>, user| core.access(&user, ino.0, want).await;
        self.submit(request, reply, work, |reply, ()| reply.ok());
    }

    fn setxattr(
        &self,
        _: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.fail(Errno::NOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.fail(Errno::NOSYS);
    }

    fn listxattr(&self, _: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.fail(Errno::NOSYS);
    }

    fn removexattr(&self, _: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.fail(Errno::NOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _out: u32,
        reply: ReplyIoctl,
    ) {
        reply.fail(Errno::NOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.fail(Errno::NOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.fail(Errno::NOSYS);
    }

    fn lseek(
        &self,
        _: &Request,
        _ino: INodeNo,
        _file: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.fail(Errno::NOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _from: INodeNo,
        _from_file: FileHandle,
        _from_offset: u64,
        _to: INodeNo,
        _to_file: FileHandle,
        _to_offset: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.fail(Errno::NOSYS);
    }
}

impl<C: Connect> Bridge<C> {
    fn list(&self, request: &Request, directory: FileHandle, offset: u64, reply: ReplyDirectory) {
        let (reply, pid) = (Listing(reply), request.pid());
        let work = async move |core: Rc<Core<C>>, _: UserOf<C>| Ok(core);
        let answer = move |reply: Listing<ReplyDirectory>, core: Rc<Core<C>>| {
            let inner = Rc::clone(&core);
            core.spawn(async move {
                let Listing(mut reply) = reply;
                let listing = inner.readdir(directory.0, offset, false, |listed| {
                    let kind = listed.file_type.map_or(fuser::FileType::RegularFile, kind);
                    let ino = INodeNo(listed.fileid);
                    !reply.add(ino, listed.cookie, kind, OsStr::from_bytes(&listed.name))
                });
                match inner.interrupts.unless_killed(pid, listing).await {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.fail(error),
                }
            });
        };
        self.submit(request, reply, work, answer);
    }

    fn list_plus(
        &self,
        request: &Request,
        directory: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (reply, pid) = (Listing(reply), request.pid());
        let block = self.block;
        let work = async move |core: Rc<Core<C>>, _: UserOf<C>| Ok(core);
        let answer = move |reply: Listing<ReplyDirectoryPlus>, core: Rc<Core<C>>| {
            let inner = Rc::clone(&core);
            core.spawn(async move {
                let Listing(mut reply) = reply;
                let core = &inner;
                let listing = inner.readdir(directory.0, offset, true, |listed| {
                    let name = OsStr::from_bytes(&listed.name);
                    // Attributes that are out of date would be taken for true.
                    let fresh = listed.node.as_ref().filter(|node| core.is_fresh(node));
                    let (ino, trust, attr) = match fresh {
                        Some(node) => {
                            let stat = core.stat(node);
                            (node.ino, stat.trust, attr(&stat, node.ino, block))
                        }
                        // An entry without an object: the kernel looks it up if need be.
                        None => {
                            let mut stat = nothing();
                            if let Some(file_type) = listed.file_type {
                                stat.attributes.file_type = file_type;
                            }
                            (0, stat.trust, attr(&stat, listed.fileid, block))
                        }
                    };
                    let ino = INodeNo(ino);
                    let full = reply.add(ino, listed.cookie, name, &trust, &attr, GENERATION);
                    if let (Some(node), false) = (fresh, full) {
                        node.lookups.set(node.lookups.get() + 1);
                    }
                    !full
                });
                match inner.interrupts.unless_killed(pid, listing).await {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.fail(error),
                }
            });
        };
        self.submit(request, reply, work, answer);
    }
}

/// A reply that is filled while the directory is read.
struct Listing<R>(R);

impl<R: Fails> Fails for Listing<R> {
    fn fail(self, error: Errno) {
        self.0.fail(error);
    }
}

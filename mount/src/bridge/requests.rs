//! One method for each kind of request.
//!
//! What NFS version 3 does not have is refused with ENOSYS, which the kernel understands and
//! remembers: extended attributes and access control lists become EOPNOTSUPP, as does `fallocate`;
//! `SEEK_HOLE` finds none; `copy_file_range` becomes reads and writes. Locks are the kernel's own,
//! because this file system does not ask for them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use nfs_binding::proto::SetAttributes;
use rustix::io::Errno;

use super::open::{appends, open_flags, open_mode};
use super::{Bridge, Fails, GENERATION};
use crate::convert::{attr, decode_device, set_time, type_of_mode};
use crate::core::files::Opened;
use crate::core::find::Found;
use crate::core::transfer::WriteMode;
use crate::core::{Connect, Core};
use crate::counts::RequestKind;
use crate::kernel::BACKGROUND;

/// The block size in which free space is reported.
const BLOCK: u32 = 4096;
/// The maximum length of a name, as far as the kernel is told. The server knows.
const NAME_MAX: u32 = 255;

/// Defines methods that refuse their requests, with the types of their arguments.
macro_rules! refused {
    ($($name:ident($($argument:ty),*) -> $reply:ty;)*) => {$(
        fn $name(&self, _: &Request, $(_: $argument,)* reply: $reply) {
            reply.fail(Errno::NOSYS);
        }
    )*};
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
        self.submit(RequestKind::Lookup, request, reply, work, self.entry());
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.queue.push(Box::new(move |core: &Rc<Core<C>>| {
            core.counts.request(RequestKind::Forget);
            core.forget(ino.0, lookups);
            Box::pin(std::future::ready(()))
        }));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let work = async move |core: Rc<Core<C>>, user| core.getattr(&user, ino.0).await;
        self.submit(
            RequestKind::Getattr,
            request,
            reply,
            work,
            self.attributes(),
        );
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
        let work =
            async move |core: Rc<Core<C>>, user| core.setattr(&user, ino.0, file, attributes).await;
        self.submit(
            RequestKind::Setattr,
            request,
            reply,
            work,
            self.attributes(),
        );
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let work = async move |core: Rc<Core<C>>, user| core.readlink(&user, ino.0).await;
        self.submit(
            RequestKind::Readlink,
            request,
            reply,
            work,
            |reply, text: Bytes| reply.data(&text),
        );
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
        self.submit(RequestKind::Mknod, request, reply, work, self.entry());
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
        self.submit(RequestKind::Mkdir, request, reply, work, self.entry());
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let work = async move |core: Rc<Core<C>>, user| core.unlink(&user, parent.0, &name).await;
        self.submit(RequestKind::Unlink, request, reply, work, |reply, ()| {
            reply.ok()
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        let work = async move |core: Rc<Core<C>>, user| core.rmdir(&user, parent.0, &name).await;
        self.submit(RequestKind::Rmdir, request, reply, work, |reply, ()| {
            reply.ok()
        });
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
        self.submit(RequestKind::Symlink, request, reply, work, self.entry());
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
        self.submit(RequestKind::Rename, request, reply, work, |reply, ()| {
            reply.ok()
        });
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
        self.submit(RequestKind::Link, request, reply, work, self.entry());
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (mode, thread) = (open_mode(flags.0), request.pid());
        let work = async move |core: Rc<Core<C>>, user| core.open(&user, thread, ino.0, mode).await;
        self.submit(
            RequestKind::Open,
            request,
            reply,
            work,
            move |reply, opened: Opened| {
                reply.opened(FileHandle(opened.file), open_flags(mode, opened));
            },
        );
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
        self.submit(RequestKind::Create, request, reply, work, answer);
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The kernel passes the flags of the open file also when it fills its page cache, for a
        // mapping. Only a read by a program has a lock owner.
        let direct = open_mode(flags.0).direct && lock_owner.is_some();
        let work = async move |core: Rc<Core<C>>, _| core.read(file.0, offset, size, direct).await;
        self.submit(
            RequestKind::Read,
            request,
            reply,
            work,
            |reply, data: Bytes| reply.data(&data),
        );
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
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = self.copy(data);
        let mode = open_mode(flags.0);
        // Pages that were mapped are written later, by whoever; the flags are those of any open file.
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let mode = WriteMode {
            through: !mapped && (mode.direct || mode.sync),
            // A write without a lock owner goes through the page cache, because the kernel could
            // not drop a page, and keeps the page locked meanwhile.
            direct: !mapped && mode.direct && lock_owner.is_some(),
            mapped,
            append: !mapped && appends(flags.0),
        };
        let work = async move |core: Rc<Core<C>>, _| core.write(file.0, offset, data, mode).await;
        self.submit(RequestKind::Write, request, reply, work, |reply, len| {
            reply.written(len)
        });
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
        self.submit(RequestKind::Flush, request, reply, work, |reply, ()| {
            reply.ok()
        });
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        // At once, so that a removal that follows finds the file closed.
        self.queue.push(Box::new(move |core: &Rc<Core<C>>| {
            core.counts.request(RequestKind::Release);
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
        self.submit(RequestKind::Fsync, request, reply, work, |reply, ()| {
            reply.ok()
        });
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let thread = request.pid();
        let work = async move |core: Rc<Core<C>>, user| core.opendir(&user, thread, ino.0).await;
        let answer = |reply: ReplyOpen, opened: crate::core::listing::OpenedDirectory| {
            let mut flags = FopenFlags::FOPEN_CACHE_DIR;
            if opened.keep {
                flags |= FopenFlags::FOPEN_KEEP_CACHE;
            }
            reply.opened(FileHandle(opened.number), flags);
        };
        self.submit(RequestKind::Opendir, request, reply, work, answer);
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
        self.submit(
            RequestKind::Releasedir,
            request,
            reply,
            work,
            |reply, ()| reply.ok(),
        );
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
        self.submit(RequestKind::Statfs, request, reply, work, answer);
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let want = (
            mask.contains(AccessFlags::R_OK),
            mask.contains(AccessFlags::W_OK),
            mask.contains(AccessFlags::X_OK),
        );
        let work = async move |core: Rc<Core<C>>, user| core.access(&user, ino.0, want).await;
        self.submit(RequestKind::Access, request, reply, work, |reply, ()| {
            reply.ok()
        });
    }

    refused! {
        setxattr(INodeNo, &OsStr, &[u8], i32, u32) -> ReplyEmpty;
        getxattr(INodeNo, &OsStr, u32) -> ReplyXattr;
        listxattr(INodeNo, u32) -> ReplyXattr;
        removexattr(INodeNo, &OsStr) -> ReplyEmpty;
        ioctl(INodeNo, FileHandle, IoctlFlags, u32, &[u8], u32) -> ReplyIoctl;
        poll(INodeNo, FileHandle, PollNotifier, PollEvents, PollFlags) -> ReplyPoll;
        fallocate(INodeNo, FileHandle, u64, u64, i32) -> ReplyEmpty;
        lseek(INodeNo, FileHandle, i64, i32) -> ReplyLseek;
        copy_file_range(
            INodeNo, FileHandle, u64, INodeNo, FileHandle, u64, u64, CopyFileRangeFlags
        ) -> ReplyWrite;
    }
}

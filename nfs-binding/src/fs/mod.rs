//! The trait for file systems that the server exports, shaped for NFS version 3, and its two
//! implementations.

use onc_rpc::Bulk;

use crate::proto::{
    Access, Attributes, DeviceNumber, NfsTime, Properties, SetAttributes, Stable, Verifier,
    WccAttributes, WccData,
};

mod caller;
pub mod directory;
mod error;
mod file_id;
mod handle_mac;
mod lock;
mod lru;
pub mod memory;
mod name;
mod nonblocking;
mod permission;
#[cfg(test)]
pub(crate) mod tests;

pub use caller::Caller;
pub use directory::DirectoryFs;
pub use error::{FsError, FsResult};
pub use file_id::FileId;
pub use handle_mac::HandleMac;
pub use memory::MemoryFs;
pub use name::MAX_NAME_LEN;
pub use nonblocking::NonBlocking;

/// The result of an operation that changes an object, with the object's attributes before and after
/// (weak cache consistency, RFC 1813, section 2.6).
///
/// The attributes are included after a failure too, as far as they could be read.
#[derive(Debug)]
pub struct Change<T> {
    /// The attributes of the file or directory that was changed.
    pub wcc: WccData,
    /// The result.
    pub result: FsResult<T>,
}

impl<T> Change<T> {
    /// Creates the result of a change that failed before the object's attributes could be read.
    #[must_use]
    pub fn refused(error: FsError) -> Self {
        Self {
            wcc: WccData::default(),
            result: Err(error),
        }
    }
}

/// The result of RENAME.
#[derive(Debug)]
pub struct Renamed {
    /// The attributes of the source directory.
    pub from: WccData,
    /// The attributes of the target directory.
    pub to: WccData,
    /// The result.
    pub result: FsResult<()>,
}

/// An object and its attributes.
#[derive(Clone, Debug)]
pub struct Object {
    /// The identity of the object for later operations.
    pub id: FileId,
    /// The current attributes. `fsid` is 0 for the file system of the root, and a different number
    /// for each file system that is mounted below and part of the export.
    pub attributes: Attributes,
    /// For a placeholder directory: the root of the other file system that it stands for
    /// ([`FileSystem::mounted_root`]), which may be exported by itself.
    pub mounted: Option<FileId>,
}

impl Object {
    /// Returns the object with its attributes borrowed.
    #[must_use]
    pub fn borrowed(&self) -> ObjectRef<'_> {
        ObjectRef {
            id: self.id,
            attributes: &self.attributes,
            mounted: self.mounted.as_ref(),
            mac: None,
        }
    }
}

/// An [`Object`] with borrowed attributes: a listing has hundreds of objects, and copies none.
#[derive(Clone, Copy, Debug)]
pub struct ObjectRef<'a> {
    /// See [`Object::id`].
    pub id: FileId,
    /// See [`Object::attributes`].
    pub attributes: &'a Attributes,
    /// See [`Object::mounted`].
    pub mounted: Option<&'a FileId>,
    /// The MAC of the object's handle, if the file system keeps it: a value that was made for this `id` and is never
    /// passed with another one.
    pub mac: Option<&'a HandleMac>,
}

/// The result of LOOKUP.
#[derive(Debug)]
pub struct Found {
    /// The object.
    pub object: Object,
    /// The attributes of the directory that it was looked up in.
    pub directory: Attributes,
}

/// The result of READ.
#[derive(Debug)]
pub struct Read {
    /// The number of bytes, from the start of the buffer.
    pub count: u32,
    /// Whether the read reached the end of the file.
    pub eof: bool,
    /// The file's attributes after the read.
    pub attributes: Attributes,
}

/// The result of WRITE.
#[derive(Debug)]
pub struct Written {
    /// The number of bytes.
    pub count: u32,
    /// The stability of the written bytes: at least the requested one.
    pub committed: Stable,
}

/// The treatment of an existing name by CREATE (RFC 1813, section 3.3.8).
#[derive(Clone, Debug)]
pub enum HowToCreate {
    /// Opens the existing file and sets only its size.
    Unchecked(SetAttributes),
    /// Fails.
    Guarded(SetAttributes),
    /// Opens the existing file if it was created with the same verifier: the call is a
    /// retransmission.
    Exclusive(Verifier),
}

/// The kind of object that MKNOD creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Character device.
    Character(DeviceNumber),
    /// Block device.
    Block(DeviceNumber),
    /// Socket.
    Socket,
    /// Named pipe.
    Fifo,
}

/// How much data of files took which way, bytes ([`FileSystem::direct_io`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectIoBytes {
    /// Written directly from the memory in which it arrived.
    pub written_in_place: u64,
    /// Copied into aligned memory, and written directly from there.
    pub written_copied: u64,
    /// Written through the page cache.
    pub written_buffered: u64,
    /// Read directly into the memory from which it is sent.
    pub read_direct: u64,
    /// Read through the page cache.
    pub read_buffered: u64,
}

/// A directory entry.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// The object's inode number (`fileid3`).
    pub fileid: u64,
    /// The name.
    pub name: &'a [u8],
    /// The cookie for continuing after this entry.
    pub cookie: u64,
    /// The object, if it was requested and could be opened.
    pub object: Option<ObjectRef<'a>>,
}

/// The result of a listing besides the entries.
#[derive(Debug)]
pub struct Listing {
    /// The cookie verifier, to be sent back with a cookie of this listing.
    pub verifier: Verifier,
    /// Whether the listing reached the end.
    pub eof: bool,
    /// The directory's attributes.
    pub attributes: Attributes,
}

/// The result of FSSTAT: space in bytes and numbers of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The size of the file system, bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that the caller can use.
    pub available_bytes: u64,
    /// The maximum number of files.
    pub total_files: u64,
    /// The number of files that can still be created.
    pub free_files: u64,
    /// The number of files that the caller can still create.
    pub available_files: u64,
}

/// The part of FSINFO that depends on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The maximum file size, bytes.
    pub max_file_size: u64,
    /// The resolution of times.
    pub time_delta: NfsTime,
    /// The supported features: links, settable times.
    pub properties: Properties,
}

/// The result of PATHCONF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRules {
    /// The maximum number of hard links to a file.
    pub link_max: u32,
    /// The maximum length of a name, bytes.
    pub name_max: u32,
    /// Whether a longer name is rejected rather than truncated.
    pub no_trunc: bool,
    /// Whether only the superuser can change the owner of a file.
    pub chown_restricted: bool,
    /// Whether names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Whether names keep their case.
    pub case_preserving: bool,
}

/// A file system as seen by NFS version 3 (RFC 1813, section 3.3).
///
/// Operations are called from several threads at once. When an operation returns, all data that RFC
/// 1813 requires on stable storage before the reply is there. The caller's identity has already
/// been squashed; the file system enforces permissions for it. The server enforces read-only
/// exports.
///
/// Every operation fails with [`FsError::Stale`] for an object that no longer exists, also for a
/// [`FileId`] that has the form of this file system's but was not issued by it, and with
/// [`FsError::BadHandle`] for one that does not have this form.
pub trait FileSystem: Send + Sync {
    /// Returns whether operations can wait for a disk, and therefore must run on a worker thread.
    fn blocks(&self) -> bool;

    /// Returns the operations that the server tries on its own thread, if operations can block and some
    /// of them often need not.
    fn nonblocking(&self) -> Option<&dyn NonBlocking> {
        None
    }

    /// Returns the root directory.
    fn root(&self) -> FileId;

    /// Returns the identity of the root directory, which no other directory has, and which lasts as
    /// long as the directory exists. The handles of an export end when its root has another one.
    fn root_identity(&self) -> Vec<u8> {
        self.root().as_bytes().to_vec()
    }

    /// Returns the root's identity as the root of a mount, if this is a directory of the host.
    fn mounted_root(&self) -> Option<FileId> {
        None
    }

    /// Excludes directories that are the roots of other exports ([`FileSystem::mounted_root`]),
    /// whose options may differ.
    fn set_other_exports(&self, roots: &[FileId]) {
        let _ = roots;
    }

    /// Returns the write verifier, which changes whenever unstable writes may have been lost (RFC
    /// 1813, section 3.3.7).
    fn write_verifier(&self) -> Verifier;

    /// Returns the attributes of an object.
    fn getattr(&self, file: &FileId) -> FsResult<Attributes>;

    /// Sets attributes if the object's ctime equals `guard`, and fails with [`FsError::NotSync`]
    /// otherwise.
    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()>;

    /// Looks up a name, including `.` and `..`. The parent of the root is the root itself, as with
    /// knfsd: nothing above it is shown.
    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found>;

    /// Returns which of `wanted` the caller may do.
    fn access(&self, who: &Caller, file: &FileId, wanted: Access)
    -> FsResult<(Access, Attributes)>;

    /// Returns the target of a symbolic link.
    fn readlink(&self, who: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)>;

    /// Reads up to `buf.len()` bytes at `offset`.
    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read>;

    /// Reads up to `count` bytes at `offset` without copying: the result shares the file system's
    /// memory, and does not change while it lives. Returns `None` if the file system has no such
    /// memory; the data must then be read into a buffer.
    fn read_shared(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        count: u32,
    ) -> FsResult<Option<(Read, Bulk)>> {
        let _ = (who, file, offset, count);
        Ok(None)
    }

    /// Returns the number of bytes, a power of two, of which offset and length of reads are best a
    /// multiple: the file system then needs no cache for them. 1 if it makes no difference.
    fn read_unit(&self, file: &FileId) -> FsResult<u32> {
        let _ = file;
        Ok(1)
    }

    /// Returns how much data was read and written directly since the start, and how much was not.
    /// `None` if the file system was not asked to do direct I/O.
    fn direct_io(&self) -> Option<DirectIoBytes> {
        None
    }

    /// Writes `data` at `offset` without copying it first, if the alignment of its memory allows
    /// that.
    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written>;

    /// Creates a regular file.
    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object>;

    /// Creates a directory.
    fn mkdir(&self, who: &Caller, dir: &FileId, name: &[u8], set: &SetAttributes)
    -> Change<Object>;

    /// Creates a symbolic link with the given target.
    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object>;

    /// Creates a device, socket or pipe.
    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object>;

    /// Removes a name of an object that is not a directory.
    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()>;

    /// Removes an empty directory.
    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()>;

    /// Renames an object. An existing target is replaced if it is of the same kind (and empty).
    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed;

    /// Creates a hard link to `file`. Returns its attributes.
    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes>;

    /// Passes the entries after `cookie` (0: from the start) to `take`, until it returns false (it
    /// did not take the entry) or the directory ends. With `objects`, each entry includes the
    /// object with attributes and identity. `take` must not call this file system, which may hold
    /// a lock on the directory meanwhile.
    fn readdir(
        &self,
        who: &Caller,
        dir: &FileId,
        cookie: u64,
        verifier: Verifier,
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing>;

    /// Returns the free space of the file system.
    fn space(&self, who: &Caller, file: &FileId) -> FsResult<Space>;

    /// Returns the capabilities of the file system.
    fn abilities(&self, file: &FileId) -> FsResult<Abilities>;

    /// Returns the rules for names.
    fn name_rules(&self, file: &FileId) -> FsResult<NameRules>;

    /// Syncs written data to stable storage. `count` 0 means to the end of the file.
    fn commit(&self, who: &Caller, file: &FileId, offset: u64, count: u32) -> Change<()>;
}

/// Returns the attributes that weak cache consistency compares.
fn wcc(attributes: &Attributes) -> WccAttributes {
    WccAttributes {
        size: attributes.size,
        mtime: attributes.mtime,
        ctime: attributes.ctime,
    }
}

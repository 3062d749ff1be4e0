//! File systems that the server exports: one trait, shaped for NFS version 3, and two of them.

use onc_rpc::Bulk;

use crate::proto::{
    Access, Attributes, DeviceNumber, NfsTime, Properties, SetAttributes, Stable, Verifier,
    WccAttributes, WccData,
};

mod caller;
pub mod directory;
mod error;
mod file_id;
mod lock;
mod lru;
pub mod memory;
mod name;
mod permission;
#[cfg(test)]
mod tests;

pub use caller::Caller;
pub use directory::DirectoryFs;
pub use error::{FsError, FsResult};
pub use file_id::FileId;
pub use memory::MemoryFs;
pub use name::MAX_NAME_LEN;

/// What an operation that changes something did: its result, and the attributes of the changed
/// object before and after (weak cache consistency, RFC 1813, section 2.6).
///
/// The attributes are there after a failure too, as far as they could be had.
#[derive(Debug)]
pub struct Change<T> {
    /// The file that was changed, or the directory whose entries were.
    pub wcc: WccData,
    /// The result.
    pub result: FsResult<T>,
}

impl<T> Change<T> {
    /// A change that failed before the object could be looked at.
    #[must_use]
    pub fn refused(error: FsError) -> Self {
        Self {
            wcc: WccData::default(),
            result: Err(error),
        }
    }
}

/// What RENAME did.
#[derive(Debug)]
pub struct Renamed {
    /// The directory that the name was in.
    pub from: WccData,
    /// The directory that it was moved to.
    pub to: WccData,
    /// The result.
    pub result: FsResult<()>,
}

/// An object, and what is known of it.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its name for later operations.
    pub id: FileId,
    /// Its attributes now. `fsid` is 0 for the file system of the root, and another number for each
    /// file system that is mounted below and part of this one.
    pub attributes: Attributes,
    /// For an empty directory in place of another file system that is not part of this one: the
    /// root of that ([`FileSystem::mounted_root`]), which may be exported by itself.
    pub mounted: Option<FileId>,
}

/// What LOOKUP found.
#[derive(Debug)]
pub struct Found {
    /// The object.
    pub object: Object,
    /// The attributes of the directory it was looked up in.
    pub directory: Attributes,
}

/// What READ read.
#[derive(Debug)]
pub struct Read {
    /// Bytes, from the start of the buffer.
    pub count: u32,
    /// Whether the read reached the end of the file.
    pub eof: bool,
    /// The file's attributes afterwards.
    pub attributes: Attributes,
}

/// What WRITE wrote.
#[derive(Debug)]
pub struct Written {
    /// Bytes.
    pub count: u32,
    /// What is promised about them: at least what was asked for.
    pub committed: Stable,
}

/// How CREATE treats a name that exists (RFC 1813, section 3.3.8).
#[derive(Clone, Debug)]
pub enum HowToCreate {
    /// Takes the existing file, and sets nothing of it but its size.
    Unchecked(SetAttributes),
    /// Fails.
    Guarded(SetAttributes),
    /// Takes the existing file when it was created with the same verifier: the client repeats
    /// itself.
    Exclusive(Verifier),
}

/// What MKNOD makes.
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

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry<'a> {
    /// The object's number (`fileid3`).
    pub fileid: u64,
    /// Its name there.
    pub name: &'a [u8],
    /// Where to go on after it.
    pub cookie: u64,
    /// The object; only when asked for, and when it could be had.
    pub object: Option<Object>,
}

/// What is said of a directory besides its entries.
#[derive(Debug)]
pub struct Listing {
    /// To be sent back with a cookie of this listing.
    pub verifier: Verifier,
    /// Whether the last entry was given.
    pub eof: bool,
    /// The directory's attributes.
    pub attributes: Attributes,
}

/// FSSTAT: room, bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system, bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that the caller can use.
    pub available_bytes: u64,
    /// Most files it can have.
    pub total_files: u64,
    /// Files that can still be created.
    pub free_files: u64,
    /// Files that the caller can still create.
    pub available_files: u64,
}

/// FSINFO, as far as it is the file system's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Longest file, bytes.
    pub max_file_size: u64,
    /// Resolution of times.
    pub time_delta: NfsTime,
    /// Links, settable times.
    pub properties: Properties,
}

/// PATHCONF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRules {
    /// Most hard links to a file.
    pub link_max: u32,
    /// Longest name, bytes.
    pub name_max: u32,
    /// Whether a longer name is refused rather than cut.
    pub no_trunc: bool,
    /// Whether only the superuser can give files away.
    pub chown_restricted: bool,
    /// Whether names that differ in case only are the same.
    pub case_insensitive: bool,
    /// Whether names keep their case.
    pub case_preserving: bool,
}

/// A file system, as NFS version 3 sees one (RFC 1813, section 3.3).
///
/// Operations are called from several threads at once. Each is complete when it returns: what RFC
/// 1813 wants on stable storage before the reply is there. The caller's identity has been squashed
/// already; the file system enforces permissions for it. Exporting read-only is the server's part.
///
/// All fail with [`FsError::Stale`] for an object that is gone, and with [`FsError::BadHandle`]
/// for a [`FileId`] that this file system never gave.
pub trait FileSystem: Send + Sync {
    /// Whether operations can wait for a disk, and so belong on a worker thread.
    fn blocks(&self) -> bool;

    /// The directory at the top.
    fn root(&self) -> FileId;

    /// The identity of the root as that of something mounted, if this is a directory of the host.
    fn mounted_root(&self) -> Option<FileId> {
        None
    }

    /// Keeps directories out of this file system that are the roots of other exports
    /// ([`FileSystem::mounted_root`]), whose options may be others.
    fn keep_apart(&self, roots: &[FileId]) {
        let _ = roots;
    }

    /// Changes whenever unstable writes may have been lost (RFC 1813, section 3.3.7).
    fn write_verifier(&self) -> Verifier;

    /// Attributes of an object.
    fn getattr(&self, file: &FileId) -> FsResult<Attributes>;

    /// Sets attributes, if the object's ctime is still `guard`; [`FsError::NotSync`] otherwise.
    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()>;

    /// The object of a name, "." and ".." included. The root's ".." is the root itself, as with
    /// knfsd: nothing above it is shown, and whoever walks up arrives there.
    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found>;

    /// Which of `wanted` the caller may do.
    fn access(&self, who: &Caller, file: &FileId, wanted: Access)
    -> FsResult<(Access, Attributes)>;

    /// The content of a symbolic link.
    fn readlink(&self, who: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)>;

    /// Reads up to `buf.len()` bytes at `offset`.
    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read>;

    /// The same without copying: up to `count` bytes at `offset`, in the memory in which the file
    /// system has them. They do not change while somebody holds them. `None` from one that has no
    /// such memory: its bytes are to be read into a buffer.
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

    /// Writes `data` at `offset`, from where its pieces lie.
    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written>;

    /// Makes a regular file.
    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object>;

    /// Makes a directory.
    fn mkdir(&self, who: &Caller, dir: &FileId, name: &[u8], set: &SetAttributes)
    -> Change<Object>;

    /// Makes a symbolic link whose content is `target`.
    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object>;

    /// Makes a device, socket or pipe.
    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object>;

    /// Takes away a name of anything but a directory.
    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()>;

    /// Takes away an empty directory.
    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()>;

    /// Moves a name, over what has the new name if that is of the same kind (and empty).
    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed;

    /// Gives `file` another name. The result is its attributes.
    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes>;

    /// Hands the entries after `cookie` (0: from the start) to `take`, until that returns false
    /// (it did not take the entry) or there are no more. With `objects`, each with its attributes
    /// and id.
    fn readdir(
        &self,
        who: &Caller,
        dir: &FileId,
        cookie: u64,
        verifier: Verifier,
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing>;

    /// Room in the file system.
    fn space(&self, who: &Caller, file: &FileId) -> FsResult<Space>;

    /// What it can do.
    fn abilities(&self, file: &FileId) -> FsResult<Abilities>;

    /// Its rules for names.
    fn name_rules(&self, file: &FileId) -> FsResult<NameRules>;

    /// Brings what was written to stable storage. `count` 0: to the end of the file.
    fn commit(&self, who: &Caller, file: &FileId, offset: u64, count: u32) -> Change<()>;
}

/// What weak cache consistency compares.
fn wcc(attributes: &Attributes) -> WccAttributes {
    WccAttributes {
        size: attributes.size,
        mtime: attributes.mtime,
        ctime: attributes.ctime,
    }
}

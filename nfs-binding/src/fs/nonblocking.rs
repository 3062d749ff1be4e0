//! Operations that a file system executes only if it need not wait.

#[cfg(doc)]
use super::FsError;
use super::{Caller, FileId, Found, FsResult, Read};
use crate::proto::{Access, Attributes};

/// The operations of a file system that can often be executed without waiting for a disk or a server,
/// although they may have to ([`FileSystem::blocks`](super::FileSystem::blocks)). The server tries
/// them on the thread that serves all connections, on which nothing may wait.
///
/// The result is `None` if the operation would wait, or would fail: then nothing has happened, and
/// the operation of the same name of [`FileSystem`](super::FileSystem) has to be called. That finds
/// out why it fails.
pub trait NonBlocking: Send + Sync {
    /// Returns whether the operations that have a caller change the credentials of the thread, even if only
    /// for a while.
    fn changes_credentials(&self) -> bool;

    /// Returns whether all of the file system is in memory. Then the operations of `FileSystem` on objects that
    /// are open ([`NonBlocking::is_open`]) wait for no disk.
    fn is_in_memory(&self) -> bool;

    /// Returns whether an object is open, so that it need not be searched for, has a name, and no other call is
    /// changing it.
    fn is_open(&self, file: &FileId) -> bool;

    /// Returns the attributes of an object.
    fn getattr(&self, file: &FileId) -> Option<Attributes>;

    /// Looks up a name. That there is no such name ([`FsError::NotFound`]) is a result, too.
    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Option<FsResult<Found>>;

    /// Returns which of `wanted` the caller may do.
    fn access(&self, who: &Caller, file: &FileId, wanted: Access) -> Option<(Access, Attributes)>;

    /// Reads up to `buf.len()` bytes at `offset`.
    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> Option<Read>;
}

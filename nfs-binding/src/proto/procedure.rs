//! The procedures: one type for each, with its number, arguments and results.

use onc_rpc::Decoder;

use super::{
    AccessArgs, AccessResult, CommitArgs, CommitResult, CreateArgs, CreateResult, DirOpArgs,
    ExportList, FsinfoResult, FsstatResult, GetattrResult, HandleArgs, LinkArgs, LinkResult,
    LookupResult, MkdirArgs, MknodArgs, MountArgs, MountList, MountResult, PathconfResult,
    ReadArgs, ReadResult, ReaddirArgs, ReaddirResult, ReaddirplusArgs, ReaddirplusResult,
    ReadlinkResult, RemoveResult, RenameArgs, RenameResult, SetattrArgs, SetattrResult,
    SymlinkArgs, WriteArgs, WriteResult, Xdr,
};

/// The program number of NFS.
pub const NFS_PROGRAM: u32 = 100_003;
/// The version of NFS.
pub const NFS_VERSION: u32 = 3;
/// The program number of MOUNT.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The version of MOUNT that belongs to NFS version 3.
pub const MOUNT_VERSION: u32 = 3;

/// Returns whether executing a procedure twice has the same effect as executing it once. WRITE is
/// not idempotent here: a late repetition would undo a later WRITE.
#[must_use]
pub fn is_idempotent(prog: u32, proc: u32) -> bool {
    let changes = matches!(
        proc,
        nfs::Setattr::NUMBER
            | nfs::Write::NUMBER
            | nfs::Create::NUMBER
            | nfs::Mkdir::NUMBER
            | nfs::Symlink::NUMBER
            | nfs::Mknod::NUMBER
            | nfs::Remove::NUMBER
            | nfs::Rmdir::NUMBER
            | nfs::Rename::NUMBER
            | nfs::Link::NUMBER
    );
    prog != NFS_PROGRAM || !changes
}

/// Returns the status with which the results of a procedure begin (program, version, procedure,
/// results), or `None` if they have none: those of NULL, and of all of MOUNT but MNT.
pub fn status_of(prog: u32, _: u32, proc: u32, results: &mut Decoder<'_>) -> Option<u32> {
    let has_one = match prog {
        NFS_PROGRAM => proc != nfs::Null::NUMBER,
        MOUNT_PROGRAM => proc == mnt::Mount::NUMBER,
        _ => false,
    };
    if has_one { results.u32().ok() } else { None }
}

/// A remote procedure.
pub trait Procedure {
    /// The program number.
    const PROGRAM: u32;
    /// The program version.
    const VERSION: u32;
    /// The procedure number.
    const NUMBER: u32;
    /// The name in RFC 1813, without its prefix.
    const NAME: &'static str;
    /// The arguments.
    type Args: Xdr + std::fmt::Debug;
    /// The results.
    type Results: Xdr;
}

macro_rules! procedures {
    ($program:ident, $version:ident, $names:ident; $(
        $(#[$meta:meta])* $number:literal $name:ident $rfc:literal ($args:ty) -> $results:ty;
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Debug)]
            pub enum $name {}

            impl Procedure for $name {
                const PROGRAM: u32 = $program;
                const VERSION: u32 = $version;
                const NUMBER: u32 = $number;
                const NAME: &'static str = $rfc;
                type Args = $args;
                type Results = $results;
            }
        )*

        /// The names of the program's procedures, by number.
        pub const $names: &[&str] = &[$($rfc),*];
    };
}

/// The procedures of NFS version 3 (RFC 1813, section 3.3).
pub mod nfs {
    use super::*;

    procedures! {
        NFS_PROGRAM, NFS_VERSION, NAMES;
        /// Does nothing.
        0 Null "NULL" (()) -> ();
        /// Returns attributes.
        1 Getattr "GETATTR" (HandleArgs) -> GetattrResult;
        /// Sets attributes.
        2 Setattr "SETATTR" (SetattrArgs) -> SetattrResult;
        /// Looks up a name.
        3 Lookup "LOOKUP" (DirOpArgs) -> LookupResult;
        /// Checks access permission.
        4 Access "ACCESS" (AccessArgs) -> AccessResult;
        /// Reads a symbolic link.
        5 Readlink "READLINK" (HandleArgs) -> ReadlinkResult;
        /// Reads from a file.
        6 Read "READ" (ReadArgs) -> ReadResult;
        /// Writes to a file.
        7 Write "WRITE" (WriteArgs) -> WriteResult;
        /// Creates a file.
        8 Create "CREATE" (CreateArgs) -> CreateResult;
        /// Creates a directory.
        9 Mkdir "MKDIR" (MkdirArgs) -> CreateResult;
        /// Creates a symbolic link.
        10 Symlink "SYMLINK" (SymlinkArgs) -> CreateResult;
        /// Creates a special file.
        11 Mknod "MKNOD" (MknodArgs) -> CreateResult;
        /// Removes a file.
        12 Remove "REMOVE" (DirOpArgs) -> RemoveResult;
        /// Removes a directory.
        13 Rmdir "RMDIR" (DirOpArgs) -> RemoveResult;
        /// Renames an object.
        14 Rename "RENAME" (RenameArgs) -> RenameResult;
        /// Creates a hard link.
        15 Link "LINK" (LinkArgs) -> LinkResult;
        /// Reads a directory.
        16 Readdir "READDIR" (ReaddirArgs) -> ReaddirResult;
        /// Reads a directory with its objects' handles and attributes.
        17 Readdirplus "READDIRPLUS" (ReaddirplusArgs) -> ReaddirplusResult;
        /// Returns the dynamic information of a file system.
        18 Fsstat "FSSTAT" (HandleArgs) -> FsstatResult;
        /// Returns the static information of a file system.
        19 Fsinfo "FSINFO" (HandleArgs) -> FsinfoResult;
        /// Returns POSIX limits.
        20 Pathconf "PATHCONF" (HandleArgs) -> PathconfResult;
        /// Commits written data to stable storage.
        21 Commit "COMMIT" (CommitArgs) -> CommitResult;
    }
}

/// The procedures of MOUNT version 3 (RFC 1813, section 5.2).
pub mod mnt {
    use super::*;

    procedures! {
        MOUNT_PROGRAM, MOUNT_VERSION, NAMES;
        /// Does nothing.
        0 Null "NULL" (()) -> ();
        /// Returns a directory's file handle.
        1 Mount "MNT" (MountArgs) -> MountResult;
        /// Lists the mounts of all clients.
        2 Dump "DUMP" (()) -> MountList;
        /// Reports that a directory is no longer in use.
        3 Unmount "UMNT" (MountArgs) -> ();
        /// Reports that no directory is in use any more.
        4 UnmountAll "UMNTALL" (()) -> ();
        /// Lists the exported directories.
        5 Export "EXPORT" (()) -> ExportList;
    }
}

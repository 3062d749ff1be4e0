//! The procedures: each a type that names its number, its arguments and its results.

use super::{
    AccessArgs, AccessResult, CommitArgs, CommitResult, CreateArgs, CreateResult, DirOpArgs,
    ExportList, FsinfoResult, FsstatResult, GetattrResult, HandleArgs, LinkArgs, LinkResult,
    LookupResult, MkdirArgs, MknodArgs, MountArgs, MountList, MountResult, PathconfResult,
    ReadArgs, ReadResult, ReaddirArgs, ReaddirResult, ReaddirplusArgs, ReaddirplusResult,
    ReadlinkResult, RemoveResult, RenameArgs, RenameResult, SetattrArgs, SetattrResult,
    SymlinkArgs, WriteArgs, WriteResult, Xdr,
};

/// The NFS program's number.
pub const NFS_PROGRAM: u32 = 100_003;
/// The NFS version here.
pub const NFS_VERSION: u32 = 3;
/// The MOUNT program's number.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The MOUNT version that goes with NFS version 3.
pub const MOUNT_VERSION: u32 = 3;

/// A remote procedure.
pub trait Procedure {
    /// Program number.
    const PROGRAM: u32;
    /// Program version.
    const VERSION: u32;
    /// Procedure number.
    const NUMBER: u32;
    /// Name, as RFC 1813 writes it, without its prefix.
    const NAME: &'static str;
    /// What it takes.
    type Args: Xdr;
    /// What it gives.
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

        /// Names of the program's procedures, by number.
        pub const $names: &[&str] = &[$($rfc),*];
    };
}

/// The procedures of NFS version 3 (RFC 1813, section 3.3).
pub mod nfs {
    use super::*;

    procedures! {
        NFS_PROGRAM, NFS_VERSION, NAMES;
        /// Do nothing.
        0 Null "NULL" (()) -> ();
        /// Get attributes.
        1 Getattr "GETATTR" (HandleArgs) -> GetattrResult;
        /// Set attributes.
        2 Setattr "SETATTR" (SetattrArgs) -> SetattrResult;
        /// Look up a name.
        3 Lookup "LOOKUP" (DirOpArgs) -> LookupResult;
        /// Check access.
        4 Access "ACCESS" (AccessArgs) -> AccessResult;
        /// Read a symbolic link.
        5 Readlink "READLINK" (HandleArgs) -> ReadlinkResult;
        /// Read from a file.
        6 Read "READ" (ReadArgs) -> ReadResult;
        /// Write to a file.
        7 Write "WRITE" (WriteArgs) -> WriteResult;
        /// Make a file.
        8 Create "CREATE" (CreateArgs) -> CreateResult;
        /// Make a directory.
        9 Mkdir "MKDIR" (MkdirArgs) -> CreateResult;
        /// Make a symbolic link.
        10 Symlink "SYMLINK" (SymlinkArgs) -> CreateResult;
        /// Make a special file.
        11 Mknod "MKNOD" (MknodArgs) -> CreateResult;
        /// Remove a file.
        12 Remove "REMOVE" (DirOpArgs) -> RemoveResult;
        /// Remove a directory.
        13 Rmdir "RMDIR" (DirOpArgs) -> RemoveResult;
        /// Rename.
        14 Rename "RENAME" (RenameArgs) -> RenameResult;
        /// Make a hard link.
        15 Link "LINK" (LinkArgs) -> LinkResult;
        /// Read a directory.
        16 Readdir "READDIR" (ReaddirArgs) -> ReaddirResult;
        /// Read a directory with its objects.
        17 Readdirplus "READDIRPLUS" (ReaddirplusArgs) -> ReaddirplusResult;
        /// Get figures that change.
        18 Fsstat "FSSTAT" (HandleArgs) -> FsstatResult;
        /// Get figures that do not change.
        19 Fsinfo "FSINFO" (HandleArgs) -> FsinfoResult;
        /// Get POSIX limits.
        20 Pathconf "PATHCONF" (HandleArgs) -> PathconfResult;
        /// Bring written data to stable storage.
        21 Commit "COMMIT" (CommitArgs) -> CommitResult;
    }
}

/// The procedures of MOUNT version 3 (RFC 1813, section 5.2).
pub mod mnt {
    use super::*;

    procedures! {
        MOUNT_PROGRAM, MOUNT_VERSION, NAMES;
        /// Do nothing.
        0 Null "NULL" (()) -> ();
        /// Get a directory's file handle.
        1 Mount "MNT" (MountArgs) -> MountResult;
        /// List who has mounted what.
        2 Dump "DUMP" (()) -> MountList;
        /// Say that a directory is no longer in use.
        3 Unmount "UMNT" (MountArgs) -> ();
        /// Say that none is.
        4 UnmountAll "UMNTALL" (()) -> ();
        /// List the exported directories.
        5 Export "EXPORT" (()) -> ExportList;
    }
}

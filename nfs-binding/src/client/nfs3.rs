//! The raw client: one method per procedure, with the arguments and results of RFC 1813.

use rpc_transport::CallError;

use super::rpc::{RpcClient, call};
use crate::proto::{
    AccessArgs, AccessResult, CommitArgs, CommitResult, CreateArgs, CreateResult, DirOpArgs,
    ExportList, FsinfoResult, FsstatResult, GetattrResult, HandleArgs, LinkArgs, LinkResult,
    LookupResult, MkdirArgs, MknodArgs, MountArgs, MountList, MountResult, PathconfResult,
    ReadArgs, ReadResult, ReaddirArgs, ReaddirResult, ReaddirplusArgs, ReaddirplusResult,
    ReadlinkResult, RemoveResult, RenameArgs, RenameResult, SetattrArgs, SetattrResult,
    SymlinkArgs, WriteArgs, WriteResult, mnt, nfs,
};

/// A client of NFS version 3. The outer error of a method is the transport's, the inner one the
/// server's.
#[derive(Clone, Debug)]
pub struct Nfs3<C> {
    rpc: C,
}

/// A client of MOUNT version 3. The outer error of a method is the transport's, the inner one the
/// server's.
#[derive(Clone, Debug)]
pub struct Mount3<C> {
    rpc: C,
}

macro_rules! procedures {
    ($program:ident, $module:ident; $(
        $(#[$meta:meta])* $method:ident = $procedure:ident($args:ty) -> $results:ty;
    )*) => {
        impl<C: RpcClient> $program<C> {
            /// Creates a client over an RPC transport.
            pub fn new(rpc: C) -> Self {
                Self { rpc }
            }

            /// Returns the RPC transport.
            pub fn rpc(&self) -> &C {
                &self.rpc
            }

            $(
                $(#[$meta])*
                ///
                /// # Errors
                /// [`CallError`] if the call got no reply, or one that cannot be decoded.
                pub async fn $method(&self, args: &$args) -> Result<$results, CallError> {
                    call::<$module::$procedure>(&self.rpc, args).await
                }
            )*
        }
    };
}

procedures! {
    Nfs3, nfs;
    /// NULL: does nothing; measures a round trip (RFC 1813, section 3.3.0).
    null = Null(()) -> ();
    /// GETATTR (section 3.3.1).
    getattr = Getattr(HandleArgs) -> GetattrResult;
    /// SETATTR (section 3.3.2).
    setattr = Setattr(SetattrArgs) -> SetattrResult;
    /// LOOKUP (section 3.3.3).
    lookup = Lookup(DirOpArgs) -> LookupResult;
    /// ACCESS (section 3.3.4).
    access = Access(AccessArgs) -> AccessResult;
    /// READLINK (section 3.3.5).
    readlink = Readlink(HandleArgs) -> ReadlinkResult;
    /// READ (section 3.3.6).
    read = Read(ReadArgs) -> ReadResult;
    /// WRITE (section 3.3.7).
    write = Write(WriteArgs) -> WriteResult;
    /// CREATE (section 3.3.8).
    create = Create(CreateArgs) -> CreateResult;
    /// MKDIR (section 3.3.9).
    mkdir = Mkdir(MkdirArgs) -> CreateResult;
    /// SYMLINK (section 3.3.10).
    symlink = Symlink(SymlinkArgs) -> CreateResult;
    /// MKNOD (section 3.3.11).
    mknod = Mknod(MknodArgs) -> CreateResult;
    /// REMOVE (section 3.3.12).
    remove = Remove(DirOpArgs) -> RemoveResult;
    /// RMDIR (section 3.3.13).
    rmdir = Rmdir(DirOpArgs) -> RemoveResult;
    /// RENAME (section 3.3.14).
    rename = Rename(RenameArgs) -> RenameResult;
    /// LINK (section 3.3.15).
    link = Link(LinkArgs) -> LinkResult;
    /// READDIR (section 3.3.16).
    readdir = Readdir(ReaddirArgs) -> ReaddirResult;
    /// READDIRPLUS (section 3.3.17).
    readdirplus = Readdirplus(ReaddirplusArgs) -> ReaddirplusResult;
    /// FSSTAT (section 3.3.18).
    fsstat = Fsstat(HandleArgs) -> FsstatResult;
    /// FSINFO (section 3.3.19).
    fsinfo = Fsinfo(HandleArgs) -> FsinfoResult;
    /// PATHCONF (section 3.3.20).
    pathconf = Pathconf(HandleArgs) -> PathconfResult;
    /// COMMIT (section 3.3.21).
    commit = Commit(CommitArgs) -> CommitResult;
}

procedures! {
    Mount3, mnt;
    /// NULL: does nothing (RFC 1813, section 5.2.0).
    null = Null(()) -> ();
    /// MNT: returns the file handle of a directory (section 5.2.1).
    mount = Mount(MountArgs) -> MountResult;
    /// DUMP: lists the mounts of all clients (section 5.2.2).
    dump = Dump(()) -> MountList;
    /// UMNT: reports that a directory is no longer in use (section 5.2.3).
    unmount = Unmount(MountArgs) -> ();
    /// UMNTALL: reports that no directory is in use any more (section 5.2.4).
    unmount_all = UnmountAll(()) -> ();
    /// EXPORT: lists the exported directories (section 5.2.5).
    export = Export(()) -> ExportList;
}

//! Procedures on one object: GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE, COMMIT.

use super::NfsResult;
use super::types::{
    Access, Attributes, Data, FileHandle, LinkText, NfsTime, SetAttributes, Stable, Verifier,
    WccData,
};
use super::xdr::xdr_struct;

xdr_struct! {
    /// The arguments of GETATTR, READLINK, FSSTAT, FSINFO and PATHCONF, which take only a file
    /// handle.
    pub struct HandleArgs {
        /// The object.
        pub object: FileHandle,
    }
    /// The arguments of SETATTR (RFC 1813, section 3.3.2).
    pub struct SetattrArgs {
        /// The object.
        pub object: FileHandle,
        /// The attributes to set.
        pub attributes: SetAttributes,
        /// If present, attributes are set only if the object's ctime equals this.
        pub guard: Option<NfsTime>,
    }
    /// The arguments of ACCESS (section 3.3.4).
    pub struct AccessArgs {
        /// The object.
        pub object: FileHandle,
        /// The permissions to check.
        pub access: Access,
    }
    /// The result of a successful ACCESS.
    pub struct AccessOk {
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// The permissions that the caller has.
        pub access: Access,
    }
    /// The result of a successful READLINK (section 3.3.5).
    pub struct ReadlinkOk {
        /// The link's attributes.
        pub attributes: Option<Attributes>,
        /// The link's target.
        pub text: LinkText,
    }
    /// The arguments of READ (section 3.3.6).
    #[derive(Copy)]
    pub struct ReadArgs {
        /// The file.
        pub file: FileHandle,
        /// The offset of the first byte.
        pub offset: u64,
        /// The number of bytes.
        pub count: u32,
    }
    /// The result of a successful READ.
    pub struct ReadOk {
        /// The file's attributes.
        pub attributes: Option<Attributes>,
        /// The number of bytes read: the length of `data`.
        pub count: u32,
        /// Whether the read reached the end of the file.
        pub eof: bool,
        /// The bytes.
        pub data: Data,
    }
    /// The arguments of WRITE (section 3.3.7).
    pub struct WriteArgs {
        /// The file.
        pub file: FileHandle,
        /// The offset of the first byte.
        pub offset: u64,
        /// The number of bytes: the length of `data`.
        pub count: u32,
        /// The data and metadata that must be on stable storage before the reply.
        pub stable: Stable,
        /// The bytes.
        pub data: Data,
    }
    /// The result of a successful WRITE.
    pub struct WriteOk {
        /// The file's attributes.
        pub wcc: WccData,
        /// The number of bytes written; may be less than requested.
        pub count: u32,
        /// The data and metadata that are on stable storage; at least what was requested.
        pub committed: Stable,
        /// The write verifier, which changes when the server may have lost uncommitted data.
        pub verifier: Verifier,
    }
    /// The arguments of COMMIT (section 3.3.21).
    #[derive(Copy)]
    pub struct CommitArgs {
        /// The file.
        pub file: FileHandle,
        /// The offset of the first byte.
        pub offset: u64,
        /// The number of bytes; 0 for all that follow.
        pub count: u32,
    }
    /// The result of a successful COMMIT.
    pub struct CommitOk {
        /// The file's attributes.
        pub wcc: WccData,
        /// The write verifier. It equals WRITE's if no data was lost in between.
        pub verifier: Verifier,
    }
}

/// Results of GETATTR (section 3.3.1).
pub type GetattrResult = NfsResult<Attributes, ()>;
/// Results of SETATTR.
pub type SetattrResult = NfsResult<WccData, WccData>;
/// Results of ACCESS.
pub type AccessResult = NfsResult<AccessOk, Option<Attributes>>;
/// Results of READLINK.
pub type ReadlinkResult = NfsResult<ReadlinkOk, Option<Attributes>>;
/// Results of READ.
pub type ReadResult = NfsResult<ReadOk, Option<Attributes>>;
/// Results of WRITE.
pub type WriteResult = NfsResult<WriteOk, WccData>;
/// Results of COMMIT.
pub type CommitResult = NfsResult<CommitOk, WccData>;

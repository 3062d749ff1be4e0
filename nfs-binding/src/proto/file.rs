//! Procedures on one object: GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE, COMMIT.

use super::NfsResult;
use super::types::{
    Access, Attributes, Data, FileHandle, LinkText, NfsTime, SetAttributes, Stable, Verifier,
    WccData,
};
use super::xdr::xdr_struct;

xdr_struct! {
    /// Arguments of every procedure that takes just a file handle: GETATTR, READLINK, FSSTAT,
    /// FSINFO, PATHCONF.
    pub struct HandleArgs {
        /// The object.
        pub object: FileHandle,
    }
    /// Arguments of SETATTR (RFC 1813, section 3.3.2).
    pub struct SetattrArgs {
        /// The object.
        pub object: FileHandle,
        /// What to set.
        pub attributes: SetAttributes,
        /// Set only if the object's ctime is this.
        pub guard: Option<NfsTime>,
    }
    /// Arguments of ACCESS (section 3.3.4).
    pub struct AccessArgs {
        /// The object.
        pub object: FileHandle,
        /// The permissions asked about.
        pub access: Access,
    }
    /// Successful ACCESS.
    pub struct AccessOk {
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// Which of the permissions the caller has.
        pub access: Access,
    }
    /// Successful READLINK (section 3.3.5).
    pub struct ReadlinkOk {
        /// The link's attributes.
        pub attributes: Option<Attributes>,
        /// What the link says.
        pub text: LinkText,
    }
    /// Arguments of READ (section 3.3.6).
    #[derive(Copy)]
    pub struct ReadArgs {
        /// The file.
        pub file: FileHandle,
        /// First byte.
        pub offset: u64,
        /// How many bytes.
        pub count: u32,
    }
    /// Successful READ.
    pub struct ReadOk {
        /// The file's attributes.
        pub attributes: Option<Attributes>,
        /// Bytes read: the length of `data`.
        pub count: u32,
        /// Whether the file ends here.
        pub eof: bool,
        /// The bytes.
        pub data: Data,
    }
    /// Arguments of WRITE (section 3.3.7).
    pub struct WriteArgs {
        /// The file.
        pub file: FileHandle,
        /// First byte.
        pub offset: u64,
        /// How many bytes: the length of `data`.
        pub count: u32,
        /// What must be on stable storage before the answer.
        pub stable: Stable,
        /// The bytes.
        pub data: Data,
    }
    /// Successful WRITE.
    pub struct WriteOk {
        /// The file's attributes.
        pub wcc: WccData,
        /// Bytes written; may be fewer than were sent.
        pub count: u32,
        /// What is on stable storage; at least what was asked for.
        pub committed: Stable,
        /// Changes when the server may have lost what is not on stable storage.
        pub verifier: Verifier,
    }
    /// Arguments of COMMIT (section 3.3.21).
    #[derive(Copy)]
    pub struct CommitArgs {
        /// The file.
        pub file: FileHandle,
        /// First byte.
        pub offset: u64,
        /// How many bytes; 0 for all that follow.
        pub count: u32,
    }
    /// Successful COMMIT.
    pub struct CommitOk {
        /// The file's attributes.
        pub wcc: WccData,
        /// The same as WRITE's if nothing was lost in between.
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

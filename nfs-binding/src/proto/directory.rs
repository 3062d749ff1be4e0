//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK,
//! READDIR, READDIRPLUS.

use onc_rpc::{DecodeError, Decoder, Encoder, padded};

use super::types::{
    Attributes, DeviceNumber, DirOp, FileHandle, FileType, LinkText, Name, SetAttributes, Verifier,
    WccData,
};
use super::xdr::xdr_struct;
use super::{NfsResult, Xdr};

xdr_struct! {
    /// Arguments of every procedure that takes just a name: LOOKUP, REMOVE, RMDIR.
    pub struct DirOpArgs {
        /// Directory and name.
        pub what: DirOp,
    }
    /// Successful LOOKUP (RFC 1813, section 3.3.3).
    pub struct LookupOk {
        /// What the name names.
        pub object: FileHandle,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
    }
    /// Arguments of CREATE (section 3.3.8).
    pub struct CreateArgs {
        /// Where.
        pub place: DirOp,
        /// How.
        pub how: CreateHow,
    }
    /// Success of CREATE, MKDIR, SYMLINK and MKNOD.
    pub struct CreateOk {
        /// The new object.
        pub object: Option<FileHandle>,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// The directory's attributes.
        pub dir_wcc: WccData,
    }
    /// Arguments of MKDIR (section 3.3.9).
    pub struct MkdirArgs {
        /// Where.
        pub place: DirOp,
        /// Its attributes.
        pub attributes: SetAttributes,
    }
    /// Arguments of SYMLINK (section 3.3.10).
    pub struct SymlinkArgs {
        /// Where.
        pub place: DirOp,
        /// Its attributes.
        pub attributes: SetAttributes,
        /// What the link says.
        pub text: LinkText,
    }
    /// Arguments of MKNOD (section 3.3.11).
    pub struct MknodArgs {
        /// Where.
        pub place: DirOp,
        /// What.
        pub what: MknodWhat,
    }
    /// Arguments of RENAME (section 3.3.14).
    pub struct RenameArgs {
        /// The old name.
        pub from: DirOp,
        /// The new name.
        pub to: DirOp,
    }
    /// Attributes of both directories after a RENAME, successful or not.
    #[derive(Default)]
    pub struct RenameWcc {
        /// The old name's directory.
        pub from_dir: WccData,
        /// The new name's directory.
        pub to_dir: WccData,
    }
    /// Arguments of LINK (section 3.3.15).
    pub struct LinkArgs {
        /// The object.
        pub object: FileHandle,
        /// Its further name.
        pub link: DirOp,
    }
    /// Attributes after a LINK, successful or not.
    #[derive(Default)]
    pub struct LinkWcc {
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// The new name's directory.
        pub dir_wcc: WccData,
    }
    /// Arguments of READDIR (section 3.3.16).
    #[derive(Copy)]
    pub struct ReaddirArgs {
        /// The directory.
        pub dir: FileHandle,
        /// Where to go on: 0, or an entry's cookie.
        pub cookie: u64,
        /// Zeroes with cookie 0, else what the last READDIR gave.
        pub verifier: Verifier,
        /// The most bytes of `READDIR3resok` wanted.
        pub count: u32,
    }
    /// A directory entry (`entry3`).
    pub struct Entry {
        /// The object's number in its file system.
        pub fileid: u64,
        /// Its name.
        pub name: Name,
        /// Where the next entry starts.
        pub cookie: u64,
    }
    /// Successful READDIR.
    pub struct ReaddirOk {
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
        /// To be given back with a cookie.
        pub verifier: Verifier,
        /// The entries.
        pub entries: Vec<Entry>,
        /// Whether these were the last.
        pub eof: bool,
    }
    /// Arguments of READDIRPLUS (section 3.3.17).
    #[derive(Copy)]
    pub struct ReaddirplusArgs {
        /// The directory.
        pub dir: FileHandle,
        /// Where to go on: 0, or an entry's cookie.
        pub cookie: u64,
        /// Zeroes with cookie 0, else what the last READDIRPLUS gave.
        pub verifier: Verifier,
        /// The most bytes of directory information (file ids, names, cookies) wanted.
        pub dir_count: u32,
        /// The most bytes of `READDIRPLUS3resok` wanted.
        pub max_count: u32,
    }
    /// A directory entry with its object (`entryplus3`).
    pub struct EntryPlus {
        /// The object's number in its file system.
        pub fileid: u64,
        /// Its name.
        pub name: Name,
        /// Where the next entry starts.
        pub cookie: u64,
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// The object.
        pub handle: Option<FileHandle>,
    }
    /// Successful READDIRPLUS.
    pub struct ReaddirplusOk {
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
        /// To be given back with a cookie.
        pub verifier: Verifier,
        /// The entries.
        pub entries: Vec<EntryPlus>,
        /// Whether these were the last.
        pub eof: bool,
    }
}

impl Entry {
    /// Bytes that an entry with a name of `name` bytes takes in a reply, its link included.
    #[must_use]
    pub const fn wire_len(name: usize) -> u64 {
        4 + 8 + (4 + padded(name as u64)) + 8
    }
}

impl EntryPlus {
    /// Bytes that an entry takes in a reply, its link included.
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        let attributes = match self.attributes {
            Some(_) => Attributes::MAX_LEN,
            None => 0,
        };
        let handle = match &self.handle {
            Some(handle) => 4 + padded(handle.as_bytes().len() as u64),
            None => 0,
        };
        Entry::wire_len(self.name.0.len()) + (4 + u64::from(attributes)) + (4 + handle)
    }
}

/// How CREATE treats a name that exists (`createhow3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Takes the file that is there.
    Unchecked(SetAttributes),
    /// Fails.
    Guarded(SetAttributes),
    /// Fails unless the file was made with this verifier: the call can be sent again.
    Exclusive(Verifier),
}

impl Xdr for CreateHow {
    const MAX_LEN: u32 = 4 + SetAttributes::MAX_LEN;

    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Unchecked(attributes) => attributes.encode(out.u32(0)),
            Self::Guarded(attributes) => attributes.encode(out.u32(1)),
            Self::Exclusive(verifier) => verifier.encode(out.u32(2)),
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match input.u32()? {
            0 => Ok(Self::Unchecked(SetAttributes::decode(input)?)),
            1 => Ok(Self::Guarded(SetAttributes::decode(input)?)),
            2 => Ok(Self::Exclusive(Verifier::decode(input)?)),
            value => Err(DecodeError::Invalid {
                what: "createmode3",
                value,
            }),
        }
    }
}

/// What MKNOD makes (`mknoddata3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MknodWhat {
    /// A character device.
    Character(SetAttributes, DeviceNumber),
    /// A block device.
    Block(SetAttributes, DeviceNumber),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// A type that MKNOD does not make: to be answered with NFS3ERR_BADTYPE.
    Other(FileType),
}

impl Xdr for MknodWhat {
    const MAX_LEN: u32 = 4 + SetAttributes::MAX_LEN + DeviceNumber::MAX_LEN;

    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Character(attributes, device) => {
                FileType::Character.encode(out);
                attributes.encode(out);
                device.encode(out);
            }
            Self::Block(attributes, device) => {
                FileType::Block.encode(out);
                attributes.encode(out);
                device.encode(out);
            }
            Self::Socket(attributes) => {
                FileType::Socket.encode(out);
                attributes.encode(out);
            }
            Self::Fifo(attributes) => {
                FileType::Fifo.encode(out);
                attributes.encode(out);
            }
            Self::Other(file_type) => file_type.encode(out),
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match FileType::decode(input)? {
            FileType::Character => Self::Character(Xdr::decode(input)?, Xdr::decode(input)?),
            FileType::Block => Self::Block(Xdr::decode(input)?, Xdr::decode(input)?),
            FileType::Socket => Self::Socket(Xdr::decode(input)?),
            FileType::Fifo => Self::Fifo(Xdr::decode(input)?),
            other => Self::Other(other),
        })
    }
}

/// Results of LOOKUP.
pub type LookupResult = NfsResult<LookupOk, Option<Attributes>>;
/// Results of CREATE, MKDIR, SYMLINK and MKNOD.
pub type CreateResult = NfsResult<CreateOk, WccData>;
/// Results of REMOVE and RMDIR (sections 3.3.12 and 3.3.13).
pub type RemoveResult = NfsResult<WccData, WccData>;
/// Results of RENAME.
pub type RenameResult = NfsResult<RenameWcc, RenameWcc>;
/// Results of LINK.
pub type LinkResult = NfsResult<LinkWcc, LinkWcc>;
/// Results of READDIR.
pub type ReaddirResult = NfsResult<ReaddirOk, Option<Attributes>>;
/// Results of READDIRPLUS.
pub type ReaddirplusResult = NfsResult<ReaddirplusOk, Option<Attributes>>;

#[cfg(test)]
mod arbitrary {
    use quickcheck::{Arbitrary, Gen};

    use super::*;

    impl Arbitrary for CreateHow {
        fn arbitrary(g: &mut Gen) -> Self {
            let attributes = SetAttributes::arbitrary(g);
            let exclusive = Self::Exclusive(Verifier::arbitrary(g));
            g.choose(&[
                Self::Unchecked(attributes.clone()),
                Self::Guarded(attributes),
                exclusive,
            ])
            .unwrap()
            .clone()
        }
    }

    impl Arbitrary for MknodWhat {
        fn arbitrary(g: &mut Gen) -> Self {
            let attributes = SetAttributes::arbitrary(g);
            let device = DeviceNumber::arbitrary(g);
            g.choose(&[
                Self::Character(attributes.clone(), device),
                Self::Block(attributes.clone(), device),
                Self::Socket(attributes.clone()),
                Self::Fifo(attributes),
                Self::Other(FileType::Regular),
            ])
            .unwrap()
            .clone()
        }
    }
}

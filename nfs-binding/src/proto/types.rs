//! Basic types of NFS version 3 (RFC 1813, sections 2.5 and 2.6).

use std::fmt;

use onc_rpc::{Bulk, DecodeError, Decoder, Encoder};
use smallvec::SmallVec;

use super::Xdr;
use super::xdr::{debug_bytes, put, xdr_enum, xdr_opaque, xdr_struct};

/// The maximum length of a file handle, bytes (NFS3_FHSIZE).
pub const MAX_FILE_HANDLE: u32 = 64;
/// The maximum length of a file name that is decoded, bytes. RFC 1813 gives none; servers support
/// 255. Longer names are decoded so that a server can answer NFS3ERR_NAMETOOLONG rather than
/// GARBAGE_ARGS.
pub const MAX_NAME: u32 = 4096;
/// The maximum length of a symbolic link's target, bytes. RFC 1813 gives none; this is the limit of
/// common systems (PATH_MAX without the NUL).
pub const MAX_PATH: u32 = 4095;
/// The maximum length of a symbolic link's target that is decoded, bytes. Longer ones than
/// [`MAX_PATH`] are decoded so that a server can answer NFS3ERR_NAMETOOLONG rather than GARBAGE_ARGS.
pub const MAX_LINK_TEXT: u32 = 8 << 10;
/// The maximum file data of one READ or WRITE, bytes.
pub const MAX_DATA: u32 = 4 << 20;

/// The verifier of READ, WRITE, COMMIT, READDIR or exclusive CREATE: eight bytes that only their
/// creator interprets.
pub type Verifier = [u8; 8];

/// A file handle, which identifies an object on a server as long as the object exists (`nfs_fh3`).
#[derive(Clone, Copy)]
pub struct FileHandle {
    len: u8,
    bytes: [u8; MAX_FILE_HANDLE as usize],
}

impl FileHandle {
    /// Creates a handle from its bytes. Returns `None` if there are more than 64.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut handle = Self {
            len: u8::try_from(bytes.len()).ok()?,
            bytes: [0; MAX_FILE_HANDLE as usize],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// Creates a handle from the first `len` bytes of an array, which has zeroes after them.
    pub(crate) fn from_array(len: usize, bytes: [u8; MAX_FILE_HANDLE as usize]) -> Self {
        debug_assert!(len <= bytes.len());
        Self {
            len: len as u8,
            bytes,
        }
    }

    /// Returns the bytes and zeroes after them.
    pub(crate) fn padded(&self) -> &[u8; MAX_FILE_HANDLE as usize] {
        &self.bytes
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl PartialEq for FileHandle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for FileHandle {}

impl std::hash::Hash for FileHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ")")
    }
}

impl Xdr for FileHandle {
    const MAX_LEN: u32 = 4 + MAX_FILE_HANDLE;

    fn encode(&self, out: &mut Encoder) {
        out.opaque(self.as_bytes());
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (len, bytes) = input.opaque_array()?;
        Ok(Self::from_array(len, bytes))
    }
}

/// One component of a path: bytes, in no particular character set (`filename3`). Short names, which
/// nearly all are, are held without an allocation.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub SmallVec<[u8; Name::SHORT]>);

impl Xdr for Name {
    const MAX_LEN: u32 = 4 + MAX_NAME;

    fn encode(&self, out: &mut Encoder) {
        out.opaque(&self.0);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from(&input.opaque(MAX_NAME)?[..]))
    }
}

impl Name {
    /// The maximum length of a name that is held without an allocation, bytes.
    const SHORT: usize = 24;

    /// Returns the name of the first `len` bytes of `from`.
    #[inline]
    pub(crate) fn of_prefix(from: &[u8], len: usize) -> Option<Self> {
        // Copying a fixed number of bytes, the last of which are not a part of the name, takes less time
        // than as many as there are.
        match from.first_chunk() {
            Some(short) if len <= Self::SHORT => {
                Some(Self(SmallVec::from_buf_and_len(*short, len)))
            }
            _ => from.get(..len).map(Self::from),
        }
    }
}

impl From<&[u8]> for Name {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

xdr_opaque! {
    /// The target of a symbolic link (`nfspath3`). DDP-eligible both as an argument of SYMLINK and
    /// as the result of READLINK (RFC 8267, section 4).
    pub struct LinkText(bulk, MAX_LINK_TEXT, 4);
}

/// File data, in the pieces in which it was received. DDP-eligible as the argument of WRITE and as
/// the result of READ (RFC 8267, section 4).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Data(pub Bulk);

impl Xdr for Data {
    const MAX_LEN: u32 = 4;

    fn encode(&self, out: &mut Encoder) {
        out.bulk(self.0.clone());
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.bulk(MAX_DATA).map(Self)
    }
}

impl<T: Into<Bulk>> From<T> for Data {
    fn from(data: T) -> Self {
        Self(data.into())
    }
}

#[cfg(test)]
impl quickcheck::Arbitrary for Data {
    fn arbitrary(g: &mut quickcheck::Gen) -> Self {
        let pieces = Vec::<Vec<u8>>::arbitrary(g).into_iter();
        Self(pieces.map(bytes::Bytes::from).collect())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_bytes("Name", &self.0, f)
    }
}

impl fmt::Debug for LinkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_bytes("LinkText", &self.0, f)
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.0.len())
    }
}

xdr_enum! {
    /// The type of an object (`ftype3`).
    pub enum FileType("file type") {
        /// Regular file.
        Regular = 1,
        /// Directory.
        Directory = 2,
        /// Block device.
        Block = 3,
        /// Character device.
        Character = 4,
        /// Symbolic link.
        Symlink = 5,
        /// Socket.
        Socket = 6,
        /// Named pipe.
        Fifo = 7,
    }
    /// The guarantee of a WRITE (`stable_how`).
    pub enum Stable("stable_how") {
        /// No guarantee before COMMIT.
        Unstable = 0,
        /// The data, and the metadata needed to find it, is on stable storage.
        DataSync = 1,
        /// Data and all attributes are on stable storage.
        FileSync = 2,
    }
}

impl Default for FileType {
    /// Returns [`FileType::Regular`].
    fn default() -> Self {
        Self::Regular
    }
}

xdr_struct! {
    /// A time since 1970-01-01 (`nfstime3`).
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct NfsTime {
        /// Seconds.
        pub seconds: u32,
        /// Nanoseconds within the second.
        pub nanos: u32,
    }
    /// A device number (`specdata3`).
    #[derive(Copy, Default)]
    pub struct DeviceNumber {
        /// Major number.
        pub major: u32,
        /// Minor number.
        pub minor: u32,
    }
    /// The attributes to set (`sattr3`).
    #[derive(Default)]
    pub struct SetAttributes {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// The size in bytes.
        pub size: Option<u64>,
        /// The time of the last access.
        pub atime: SetTime,
        /// The time of the last change of its content.
        pub mtime: SetTime,
    }
    /// The attributes that weak cache consistency compares (`wcc_attr`).
    #[derive(Default)]
    pub struct WccAttributes {
        /// The size in bytes.
        pub size: u64,
        /// The time of the last change of its content.
        pub mtime: NfsTime,
        /// The time of the last change of its attributes.
        pub ctime: NfsTime,
    }
    /// The attributes before and after an operation (`wcc_data`).
    #[derive(Default)]
    pub struct WccData {
        /// The attributes before.
        pub before: Option<WccAttributes>,
        /// The attributes after.
        pub after: Option<Attributes>,
    }
    /// A name in a directory (`diropargs3`).
    pub struct DirOp {
        /// The directory.
        pub dir: FileHandle,
        /// The name.
        pub name: Name,
    }
}

/// The attributes of an object (`fattr3`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The type.
    pub file_type: FileType,
    /// Permission bits, set-id bits and the sticky bit.
    pub mode: u32,
    /// The number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u64,
    /// The disk space that it takes, bytes.
    pub used: u64,
    /// The device number of a block or character device.
    pub rdev: DeviceNumber,
    /// The file system.
    pub fsid: u64,
    /// The inode number.
    pub fileid: u64,
    /// The time of the last access.
    pub atime: NfsTime,
    /// The time of the last change of its content.
    pub mtime: NfsTime,
    /// The time of the last change of its attributes.
    pub ctime: NfsTime,
}

/// The number of 32-bit words of `fattr3`.
const ATTRIBUTE_WORDS: usize = 21;

impl Attributes {
    /// Returns the encoded attributes. Nearly every result has attributes, and a listing has
    /// hundreds: encoded as a whole, they take a fraction of the time of one value after the other.
    #[inline]
    pub(crate) fn to_words(&self) -> [u8; ATTRIBUTE_WORDS * 4] {
        self.to_words_of(self.fsid)
    }

    /// Returns the encoded attributes with another `fsid`.
    #[inline]
    pub(crate) fn to_words_of(&self, fsid: u64) -> [u8; ATTRIBUTE_WORDS * 4] {
        let mut out = [0; ATTRIBUTE_WORDS * 4];
        let mut rest = &mut out[..];
        let rest = &mut rest;
        for value in [
            self.file_type as u32,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
        ] {
            put(rest, &value.to_be_bytes());
        }
        put(rest, &self.size.to_be_bytes());
        put(rest, &self.used.to_be_bytes());
        put(rest, &self.rdev.major.to_be_bytes());
        put(rest, &self.rdev.minor.to_be_bytes());
        put(rest, &fsid.to_be_bytes());
        put(rest, &self.fileid.to_be_bytes());
        for time in [self.atime, self.mtime, self.ctime] {
            put(rest, &time.seconds.to_be_bytes());
            put(rest, &time.nanos.to_be_bytes());
        }
        out
    }

    /// Decodes attributes.
    #[inline]
    pub(crate) fn from_words(words: &[u8; ATTRIBUTE_WORDS * 4]) -> Result<Self, DecodeError> {
        let words = words.as_chunks().0;
        let word = |at: usize| u32::from_be_bytes(words[at]);
        let long = |at: usize| u64::from(word(at)) << u32::BITS | u64::from(word(at + 1));
        let time = |at: usize| NfsTime {
            seconds: word(at),
            nanos: word(at + 1),
        };
        Ok(Self {
            file_type: FileType::from_number(word(0))?,
            mode: word(1),
            nlink: word(2),
            uid: word(3),
            gid: word(4),
            size: long(5),
            used: long(7),
            rdev: DeviceNumber {
                major: word(9),
                minor: word(10),
            },
            fsid: long(11),
            fileid: long(13),
            atime: time(15),
            mtime: time(17),
            ctime: time(19),
        })
    }
}

impl Xdr for Attributes {
    const MAX_LEN: u32 = ATTRIBUTE_WORDS as u32 * 4;

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.words(&self.to_words());
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Self::from_words(&input.words()?)
    }
}

/// The change of a time (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Does not set the time.
    #[default]
    Keep,
    /// Sets the time of the server's clock.
    ServerTime,
    /// Sets this time.
    To(NfsTime),
}

impl Xdr for SetTime {
    const MAX_LEN: u32 = 4 + NfsTime::MAX_LEN;

    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Keep => out.u32(0),
            Self::ServerTime => out.u32(1),
            Self::To(time) => {
                out.u32(2);
                time.encode(out);
                out
            }
        };
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match input.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::ServerTime),
            2 => Ok(Self::To(NfsTime::decode(input)?)),
            value => Err(DecodeError::Invalid {
                what: "time_how",
                value,
            }),
        }
    }
}

bitflags::bitflags! {
    /// The permissions of ACCESS (RFC 1813, section 3.3.4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Read a file or a directory.
        const READ = 0x01;
        /// Look a name up in a directory.
        const LOOKUP = 0x02;
        /// Rewrite existing file data or change existing directory entries.
        const MODIFY = 0x04;
        /// Write new data or add directory entries.
        const EXTEND = 0x08;
        /// Delete an existing directory entry.
        const DELETE = 0x10;
        /// Execute a file.
        const EXECUTE = 0x20;
    }

    /// The features of a file system (RFC 1813, section 3.3.19).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Properties: u32 {
        /// The file system supports hard links.
        const LINK = 0x01;
        /// The file system supports symbolic links.
        const SYMLINK = 0x02;
        /// PATHCONF is the same for all its objects.
        const HOMOGENEOUS = 0x08;
        /// SETATTR can set times to any value.
        const CAN_SET_TIME = 0x10;
    }
}

/// Bits without a name are kept, because the peer may define them.
macro_rules! xdr_flags {
    ($($name:ident),*) => {$(
        impl Xdr for $name {
            const MAX_LEN: u32 = 4;

            fn encode(&self, out: &mut Encoder) {
                out.u32(self.bits());
            }

            fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                input.u32().map(Self::from_bits_retain)
            }
        }
    )*};
}

xdr_flags!(Access, Properties);

#[cfg(test)]
mod arbitrary {
    use quickcheck::{Arbitrary, Gen};

    use super::*;

    impl Arbitrary for Name {
        fn arbitrary(g: &mut Gen) -> Self {
            let mut bytes = Vec::<u8>::arbitrary(g);
            bytes.truncate(MAX_NAME as usize);
            Self(bytes.into())
        }
    }

    impl Arbitrary for FileHandle {
        fn arbitrary(g: &mut Gen) -> Self {
            let mut bytes = Vec::<u8>::arbitrary(g);
            bytes.truncate(MAX_FILE_HANDLE as usize);
            Self::new(&bytes).unwrap()
        }
    }

    impl Arbitrary for Attributes {
        fn arbitrary(g: &mut Gen) -> Self {
            Self {
                file_type: Arbitrary::arbitrary(g),
                mode: Arbitrary::arbitrary(g),
                nlink: Arbitrary::arbitrary(g),
                uid: Arbitrary::arbitrary(g),
                gid: Arbitrary::arbitrary(g),
                size: Arbitrary::arbitrary(g),
                used: Arbitrary::arbitrary(g),
                rdev: Arbitrary::arbitrary(g),
                fsid: Arbitrary::arbitrary(g),
                fileid: Arbitrary::arbitrary(g),
                atime: Arbitrary::arbitrary(g),
                mtime: Arbitrary::arbitrary(g),
                ctime: Arbitrary::arbitrary(g),
            }
        }
    }

    impl Arbitrary for SetTime {
        fn arbitrary(g: &mut Gen) -> Self {
            let to = Self::To(NfsTime::arbitrary(g));
            *g.choose(&[Self::Keep, Self::ServerTime, to]).unwrap()
        }
    }

    impl Arbitrary for Access {
        fn arbitrary(g: &mut Gen) -> Self {
            Self::from_bits_retain(u32::arbitrary(g))
        }
    }

    impl Arbitrary for Properties {
        fn arbitrary(g: &mut Gen) -> Self {
            Self::from_bits_retain(u32::arbitrary(g))
        }
    }
}

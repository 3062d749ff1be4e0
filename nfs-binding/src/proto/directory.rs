//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK,
//! READDIR, READDIRPLUS.

use bytes::BytesMut;
use onc_rpc::{DecodeError, Decoder, Encoder, Message, padded};

use super::types::{
    Attributes, DeviceNumber, DirOp, FileHandle, FileType, LinkText, MAX_FILE_HANDLE, MAX_NAME,
    Name, SetAttributes, Verifier, WccData,
};
use super::xdr::{put, xdr_struct};
use super::{NfsResult, Status, Xdr};

xdr_struct! {
    /// The arguments of LOOKUP, REMOVE and RMDIR, which take only a name.
    pub struct DirOpArgs {
        /// The directory and the name.
        pub what: DirOp,
    }
    /// The result of a successful LOOKUP (RFC 1813, section 3.3.3).
    pub struct LookupOk {
        /// The handle of the object.
        pub object: FileHandle,
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
    }
    /// The arguments of CREATE (section 3.3.8).
    pub struct CreateArgs {
        /// The directory and the name.
        pub place: DirOp,
        /// The treatment of an existing name.
        pub how: CreateHow,
    }
    /// The result of a successful CREATE, MKDIR, SYMLINK or MKNOD.
    pub struct CreateOk {
        /// The handle of the new object.
        pub object: Option<FileHandle>,
        /// The new object's attributes.
        pub attributes: Option<Attributes>,
        /// The directory's attributes.
        pub dir_wcc: WccData,
    }
    /// The arguments of MKDIR (section 3.3.9).
    pub struct MkdirArgs {
        /// The directory and the name.
        pub place: DirOp,
        /// The attributes of the new directory.
        pub attributes: SetAttributes,
    }
    /// The arguments of SYMLINK (section 3.3.10).
    pub struct SymlinkArgs {
        /// The directory and the name.
        pub place: DirOp,
        /// The attributes of the new link.
        pub attributes: SetAttributes,
        /// The link's target.
        pub text: LinkText,
    }
    /// The arguments of MKNOD (section 3.3.11).
    pub struct MknodArgs {
        /// The directory and the name.
        pub place: DirOp,
        /// The type and attributes of the new object.
        pub what: MknodWhat,
    }
    /// The arguments of RENAME (section 3.3.14).
    pub struct RenameArgs {
        /// The old name.
        pub from: DirOp,
        /// The new name.
        pub to: DirOp,
    }
    /// The attributes of both directories after a RENAME, successful or not.
    #[derive(Default)]
    pub struct RenameWcc {
        /// The directory of the old name.
        pub from_dir: WccData,
        /// The directory of the new name.
        pub to_dir: WccData,
    }
    /// The arguments of LINK (section 3.3.15).
    pub struct LinkArgs {
        /// The object.
        pub object: FileHandle,
        /// The additional name.
        pub link: DirOp,
    }
    /// The attributes after a LINK, successful or not.
    #[derive(Default)]
    pub struct LinkWcc {
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// The directory of the new name.
        pub dir_wcc: WccData,
    }
    /// The arguments of READDIR (section 3.3.16).
    #[derive(Copy)]
    pub struct ReaddirArgs {
        /// The directory.
        pub dir: FileHandle,
        /// The cookie to continue from: 0 for the start, or that of an entry.
        pub cookie: u64,
        /// The cookie verifier: zeroes with cookie 0, else that of the previous READDIR.
        pub verifier: Verifier,
        /// The maximum length of `READDIR3resok`, bytes.
        pub count: u32,
    }
    /// A directory entry (`entry3`).
    pub struct Entry {
        /// The object's inode number in its file system.
        pub fileid: u64,
        /// The name of the entry.
        pub name: Name,
        /// The cookie of the position after this entry.
        pub cookie: u64,
    }
    /// The result of a successful READDIR.
    pub struct ReaddirOk {
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
        /// The cookie verifier, to be sent back with a cookie.
        pub verifier: Verifier,
        /// The entries.
        pub entries: Vec<Entry>,
        /// Whether the directory ends here.
        pub eof: bool,
    }
    /// The arguments of READDIRPLUS (section 3.3.17).
    #[derive(Copy)]
    pub struct ReaddirplusArgs {
        /// The directory.
        pub dir: FileHandle,
        /// The cookie to continue from: 0 for the start, or that of an entry.
        pub cookie: u64,
        /// The cookie verifier: zeroes with cookie 0, else that of the previous READDIRPLUS.
        pub verifier: Verifier,
        /// The maximum length of directory information (file ids, names, cookies), bytes.
        pub dir_count: u32,
        /// The maximum length of `READDIRPLUS3resok`, bytes.
        pub max_count: u32,
    }
    /// The result of a successful READDIRPLUS.
    pub struct ReaddirplusOk {
        /// The directory's attributes.
        pub dir_attributes: Option<Attributes>,
        /// The cookie verifier, to be sent back with a cookie.
        pub verifier: Verifier,
        /// The entries.
        pub entries: Vec<EntryPlus>,
        /// Whether the directory ends here.
        pub eof: bool,
    }
}

impl Entry {
    /// Returns the encoded length in bytes of an entry with a name of `name` bytes, list link
    /// included.
    #[must_use]
    pub const fn wire_len(name: usize) -> u64 {
        4 + 8 + (4 + padded(name as u64)) + 8
    }
}

/// A directory entry with its object (`entryplus3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlus {
    /// The object's inode number in its file system.
    pub fileid: u64,
    /// The name of the entry.
    pub name: Name,
    /// The cookie of the position after this entry.
    pub cookie: u64,
    /// The object's attributes.
    pub attributes: Option<Attributes>,
    /// The object's handle.
    pub handle: Option<FileHandle>,
}

impl Xdr for EntryPlus {
    const MAX_LEN: u32 = u64::MAX_LEN
        + Name::MAX_LEN
        + u64::MAX_LEN
        + <Option<Attributes>>::MAX_LEN
        + <Option<FileHandle>>::MAX_LEN;

    fn encode(&self, out: &mut Encoder) {
        self.fileid.encode(out);
        self.name.encode(out);
        self.cookie.encode(out);
        self.attributes.encode(out);
        self.handle.encode(out);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            fileid: Xdr::decode(input)?,
            name: Xdr::decode(input)?,
            cookie: Xdr::decode(input)?,
            attributes: Xdr::decode(input)?,
            handle: Xdr::decode(input)?,
        })
    }

    fn decode_some_of_list(input: &mut Decoder<'_>, list: &mut Vec<Self>) {
        let whole = input.in_one_piece();
        let mut rest = whole;
        while let Some((entry, after)) = Self::decode_link(rest) {
            list.push(entry);
            rest = after;
        }
        input.pass(whole.len() - rest.len());
    }
}

impl EntryPlus {
    /// Decodes a list link and an entry that has attributes and a handle, as nearly all of the hundreds
    /// in a listing do, and returns the entry and the bytes after it. `None` for anything else, which
    /// `decode` handles or refuses.
    #[inline]
    fn decode_link(whole: &[u8]) -> Option<(Self, &[u8])> {
        let (link, rest) = split_u32(whole)?;
        let (fileid, rest) = rest.split_first_chunk()?;
        let (name_len, name) = split_u32(rest)?;
        let rest = name.get(padded(name_len.into()) as usize..)?;
        let (between, rest) = rest.split_first_chunk::<BETWEEN>()?;
        let (cookie, between) = between.split_first_chunk()?;
        let (has_attributes, between) = split_u32(between)?;
        let (attributes, between) = between.split_first_chunk()?;
        let (has_handle, between) = split_u32(between)?;
        let (handle_len, _) = split_u32(between)?;
        let (handle, rest) = rest.split_at_checked(padded(handle_len.into()) as usize)?;
        if name_len > MAX_NAME || (link, has_attributes, has_handle) != (1, 1, 1) {
            return None;
        }
        let attributes = Attributes::from_words(attributes).ok()?;
        let handle = FileHandle::new(handle.get(..handle_len as usize)?)?;
        let entry = Self {
            fileid: u64::from_be_bytes(*fileid),
            name: Name::of_prefix(name, name_len as usize)?,
            cookie: u64::from_be_bytes(*cookie),
            attributes: Some(attributes),
            handle: Some(handle),
        };
        Some((entry, rest))
    }

    /// Returns the encoded length of the entry in bytes, list link included.
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        let handle = self.handle.as_ref();
        Self::wire_len_of(
            self.name.0.len(),
            self.attributes.is_some(),
            handle.map(|handle| handle.as_bytes().len()),
        )
    }

    /// Returns the encoded length in bytes of an entry with a name of `name` bytes, with or without
    /// attributes, and with a handle of `handle` bytes, list link included.
    pub(crate) fn wire_len_of(name: usize, attributes: bool, handle: Option<usize>) -> u64 {
        let attributes = if attributes { Attributes::MAX_LEN } else { 0 };
        let handle = handle.map_or(0, |handle| 4 + padded(handle as u64));
        Entry::wire_len(name) + (4 + u64::from(attributes)) + (4 + handle)
    }
}

/// The object of a directory entry, as [`EntryEncoder`] takes it.
#[derive(Clone, Debug)]
pub(crate) struct ListedObject<'a> {
    /// The handle.
    pub(crate) handle: FileHandle,
    /// The attributes as the file system returned them.
    pub(crate) attributes: &'a Attributes,
    /// The `fsid` that is encoded in place of `attributes.fsid`.
    pub(crate) fsid: u64,
}

impl ListedObject<'_> {
    /// Returns the length of the handle in bytes.
    pub(crate) fn handle_len(&self) -> usize {
        self.handle.as_bytes().len()
    }
}

/// The entries of a listing while they are encoded, each with its list link. A server encodes them
/// one by one as it reads the directory.
///
/// Handles are written with their padding to the maximum length, and the next entry overwrites it.
#[derive(Debug)]
pub(crate) struct EntryEncoder {
    bytes: BytesMut,
    /// The length of the entries, bytes. The rest of `bytes` is spare.
    len: usize,
}

/// The number of zero bytes that are added beyond the need when the buffer is extended, as far as its
/// capacity allows.
const FILLED: usize = 1024;

impl EntryEncoder {
    /// Creates an empty list with memory for `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            // With space for the padding of the last handle, which extends past the entries.
            bytes: BytesMut::with_capacity(capacity + MAX_FILE_HANDLE as usize),
            len: 0,
        }
    }

    /// Reserves `len` bytes for an entry and returns the buffer to write it to, which has room for the
    /// padding of a handle beyond them.
    #[inline]
    fn append(&mut self, len: u64) -> &mut [u8] {
        let from = self.len;
        self.len += len as usize;
        let needed = self.len + MAX_FILE_HANDLE as usize;
        if needed > self.bytes.len() {
            let filled = (needed + FILLED).min(self.bytes.capacity()).max(needed);
            self.bytes.resize(filled, 0);
        }
        &mut self.bytes[from..]
    }

    /// Appends an `entry3`.
    pub(crate) fn entry(&mut self, fileid: u64, name: &[u8], cookie: u64) {
        let out = self.append(Entry::wire_len(name.len()));
        put(&mut put_name(out, fileid, name), &cookie.to_be_bytes());
    }

    /// Appends an `entryplus3`.
    #[inline]
    pub(crate) fn entry_plus(
        &mut self,
        fileid: u64,
        name: &[u8],
        cookie: u64,
        object: Option<ListedObject<'_>>,
    ) {
        let handle = object.as_ref().map(ListedObject::handle_len);
        let len = EntryPlus::wire_len_of(name.len(), object.is_some(), handle);
        let out = &mut put_name(self.append(len), fileid, name);
        let Some(object) = object else {
            // Neither attributes nor a handle follow: the words for their flags are zero.
            put(out, &cookie.to_be_bytes());
            return;
        };
        let mut between = [0; BETWEEN];
        let rest = &mut &mut between[..];
        put(rest, &cookie.to_be_bytes());
        put(rest, &1_u32.to_be_bytes());
        put(rest, &object.attributes.to_words_of(object.fsid));
        put(rest, &1_u32.to_be_bytes());
        put(rest, &(object.handle_len() as u32).to_be_bytes());
        put(out, &between);
        put(out, object.handle.padded());
    }

    /// Returns the results of a successful READDIR or READDIRPLUS with these entries, and with the
    /// status.
    pub(crate) fn finish(
        mut self,
        dir_attributes: Option<Attributes>,
        verifier: &Verifier,
        eof: bool,
    ) -> Message {
        // The end of the list, then the flag `eof`.
        put(
            &mut self.append(AFTER_ENTRIES),
            &[0, 0, 0, 0, 0, 0, 0, u8::from(eof)],
        );
        self.bytes.truncate(self.len);
        let mut before = Encoder::with_capacity(BEFORE_ENTRIES);
        Status::OK.encode(&mut before);
        dir_attributes.encode(&mut before);
        verifier.encode(&mut before);
        let mut results = Message::from_payload(self.bytes.freeze());
        results.prepend(before.into_bytes());
        results
    }
}

/// Splits the first word off.
#[inline]
fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}

/// Writes the list link, the inode number and the name of an entry to the front of `out`, whose bytes for
/// the XDR padding of the name are zero already, and returns the rest.
#[inline]
fn put_name<'a>(mut out: &'a mut [u8], fileid: u64, name: &[u8]) -> &'a mut [u8] {
    let mut head = [0; 4 + 8 + 4];
    let rest = &mut &mut head[..];
    put(rest, &1_u32.to_be_bytes());
    put(rest, &fileid.to_be_bytes());
    put(rest, &(name.len() as u32).to_be_bytes());
    put(&mut out, &head);
    let (padded, rest) = out.split_at_mut(padded(name.len() as u64) as usize);
    padded[..name.len()].copy_from_slice(name);
    rest
}

/// The bytes of an `entryplus3` between the name and the handle: the cookie, the attributes, the length
/// of the handle, and two flags.
const BETWEEN: usize = 8 + 4 + Attributes::MAX_LEN as usize + 4 + 4;

/// The bytes before the entries: the status, the directory's attributes, and the verifier.
const BEFORE_ENTRIES: usize = 4 + 4 + Attributes::MAX_LEN as usize + 8;
/// The bytes after the entries: the end of the list and the eof flag.
pub(crate) const AFTER_ENTRIES: u64 = 4 + 4;

/// The treatment of an existing name by CREATE (`createhow3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Opens the existing file.
    Unchecked(SetAttributes),
    /// Fails.
    Guarded(SetAttributes),
    /// Fails unless the file was created with this verifier, so that the call can be retransmitted.
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

/// The type of object that MKNOD creates (`mknoddata3`).
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
    /// A type that MKNOD cannot create: answered with NFS3ERR_BADTYPE.
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

    impl Arbitrary for EntryPlus {
        fn arbitrary(g: &mut Gen) -> Self {
            Self {
                fileid: Arbitrary::arbitrary(g),
                name: Arbitrary::arbitrary(g),
                cookie: Arbitrary::arbitrary(g),
                attributes: Arbitrary::arbitrary(g),
                handle: Arbitrary::arbitrary(g),
            }
        }
    }

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

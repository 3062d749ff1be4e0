//! Direct Data Placement headers (RFC 5041, section 4).

/// Header of a tagged segment.
pub const TAGGED: usize = 14;
/// Header of an untagged segment.
pub const UNTAGGED: usize = 18;
/// Bytes that tell which of the two follows.
pub const CONTROL: usize = 1;
/// The only version (RFC 5041, section 4.1).
const VERSION: u8 = 1;

const TAGGED_FLAG: u8 = 0x80;
const LAST_FLAG: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;

/// Where the payload of a segment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into memory that the sender names.
    Tagged {
        /// Its handle.
        stag: u32,
        /// Tagged offset of the payload's first byte.
        offset: u64,
    },
    /// Into the next buffer of a queue.
    Untagged {
        /// RsvdULP's last four bytes; RDMAP has the Invalidate STag there.
        ulp_word: u32,
        /// Queue number.
        queue: u32,
        /// Message sequence number, from 1.
        msn: u32,
        /// Offset of the payload in its message.
        offset: u32,
    },
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message ends with this segment.
    pub last: bool,
    /// RsvdULP's first byte, which is RDMAP's control field.
    pub ulp_control: u8,
    /// Where the payload goes.
    pub placement: Placement,
}

/// The version field has another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("DDP version {version}")]
pub struct BadVersion {
    /// That value.
    pub version: u8,
    /// Whether the segment is a tagged one.
    pub tagged: bool,
}

/// A segment's header in a buffer, its length checked.
#[derive(Clone, Copy, Debug)]
pub struct HeaderView<'a>(&'a [u8]);

/// Length of the header whose first byte is `control`.
#[must_use]
pub fn header_len(control: u8) -> usize {
    if control & TAGGED_FLAG == 0 {
        UNTAGGED
    } else {
        TAGGED
    }
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl<'a> HeaderView<'a> {
    /// The header at the start of `bytes`, or `None` when they are too few.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let len = header_len(*bytes.first()?);
        bytes.get(..len).map(Self)
    }

    /// The header's bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The header's content. Reserved bits are ignored.
    ///
    /// # Errors
    /// The version is not one.
    pub fn to_header(&self) -> Result<Header, BadVersion> {
        let control = self.0[0];
        let tagged = control & TAGGED_FLAG != 0;
        let version = control & VERSION_MASK;
        if version != VERSION {
            return Err(BadVersion { version, tagged });
        }
        let placement = if tagged {
            let high = u64::from(be32(self.0, 6));
            Placement::Tagged {
                stag: be32(self.0, 2),
                offset: high << 32 | u64::from(be32(self.0, 10)),
            }
        } else {
            // One check of the length is enough for all of them.
            let bytes = &self.0[..UNTAGGED];
            Placement::Untagged {
                ulp_word: be32(bytes, 2),
                queue: be32(bytes, 6),
                msn: be32(bytes, 10),
                offset: be32(bytes, 14),
            }
        };
        Ok(Header {
            last: control & LAST_FLAG != 0,
            ulp_control: self.0[1],
            placement,
        })
    }
}

/// The header of an untagged message in one segment, with zeroes in RsvdULP's last four bytes.
#[inline]
pub(super) fn first_of_one(ulp_control: u8, queue: u32, msn: u32) -> [u8; UNTAGGED] {
    let mut header = [0; UNTAGGED];
    header[0] = LAST_FLAG | VERSION;
    header[1] = ulp_control;
    header[6..10].copy_from_slice(&queue.to_be_bytes());
    header[10..14].copy_from_slice(&msn.to_be_bytes());
    header
}

impl Header {
    /// Its length in bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        match self.placement {
            Placement::Tagged { .. } => TAGGED,
            Placement::Untagged { .. } => UNTAGGED,
        }
    }

    /// Writes the header to the start of `out` and returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::header_len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let last = if self.last { LAST_FLAG } else { 0 };
        out[1] = self.ulp_control;
        match self.placement {
            Placement::Tagged { stag, offset } => {
                out[0] = TAGGED_FLAG | last | VERSION;
                out[2..6].copy_from_slice(&stag.to_be_bytes());
                out[6..14].copy_from_slice(&offset.to_be_bytes());
                TAGGED
            }
            Placement::Untagged {
                ulp_word,
                queue,
                msn,
                offset,
            } => {
                let out = &mut out[..UNTAGGED];
                out[0] = last | VERSION;
                out[2..6].copy_from_slice(&ulp_word.to_be_bytes());
                out[6..10].copy_from_slice(&queue.to_be_bytes());
                out[10..14].copy_from_slice(&msn.to_be_bytes());
                out[14..18].copy_from_slice(&offset.to_be_bytes());
                UNTAGGED
            }
        }
    }
}

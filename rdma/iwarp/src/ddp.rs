//! Direct Data Placement headers (RFC 5041, section 4).

/// Length in bytes of a tagged segment's header.
pub const TAGGED: usize = 14;
/// Length in bytes of an untagged segment's header.
pub const UNTAGGED: usize = 18;
/// Number of bytes from which the kind of header can be determined.
pub const CONTROL: usize = 1;
/// The only version (RFC 5041, section 4.1).
const VERSION: u8 = 1;

const TAGGED_FLAG: u8 = 0x80;
const LAST_FLAG: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;

/// The destination of a segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Memory that the sender names (tagged).
    Tagged {
        /// Handle of the memory.
        stag: u32,
        /// Tagged offset of the payload's first byte.
        offset: u64,
    },
    /// The next buffer of a queue (untagged).
    Untagged {
        /// The last four bytes of RsvdULP, where RDMAP has the Invalidate STag.
        ulp_word: u32,
        /// Queue number.
        queue: u32,
        /// Message sequence number, from 1.
        msn: u32,
        /// Offset of the payload in its message.
        offset: u32,
    },
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether the message ends with this segment.
    pub last: bool,
    /// The first byte of RsvdULP, which is RDMAP's control field.
    pub ulp_control: u8,
    /// Destination of the payload.
    pub placement: Placement,
}

/// The DDP version is not 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("DDP version {version}")]
pub struct BadVersion {
    /// The version.
    pub version: u8,
    /// Whether the segment is tagged.
    pub tagged: bool,
}

/// A header in a buffer whose length has been checked.
#[derive(Clone, Copy, Debug)]
pub struct HeaderView<'a>(&'a [u8]);

/// Returns the length in bytes of the header whose first byte is `control`.
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
    /// Returns the header at the start of `bytes`, or `None` if there are too few bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let len = header_len(*bytes.first()?);
        bytes.get(..len).map(Self)
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Decodes the header. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`BadVersion`] if the version is not 1.
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
            // One length check covers all fields.
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

/// Returns the header of an untagged message in one segment.
#[inline]
pub(super) fn first_of_one(ulp_control: u8, ulp_word: u32, queue: u32, msn: u32) -> [u8; UNTAGGED] {
    let mut header = [0; UNTAGGED];
    header[0] = LAST_FLAG | VERSION;
    header[1] = ulp_control;
    header[2..6].copy_from_slice(&ulp_word.to_be_bytes());
    header[6..10].copy_from_slice(&queue.to_be_bytes());
    header[10..14].copy_from_slice(&msn.to_be_bytes());
    header
}

impl Header {
    /// Returns the encoded length in bytes.
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
    /// Panics if `out` is shorter than [`Header::header_len`].
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

//! The private data that peers exchange when the connection is established (RFC 8797).

use std::fmt;

/// Inline threshold in bytes, in both directions, of a peer that announced no other (RFC 8166,
/// section 3.3.3).
pub const DEFAULT_INLINE: u32 = 1024;
/// Largest inline threshold in bytes that private data can express (RFC 8797, section 4.2).
pub const MAX_INLINE: u32 = 262_144;

/// Length of the encoded private data in bytes.
pub const PRIVATE_DATA_LEN: usize = 8;

const FORMAT_IDENTIFIER: [u8; 4] = 0xf6ab_0e18_u32.to_be_bytes();
const FORMAT_VERSION: u8 = 1;
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;
/// Sizes are encoded as a number of these units, minus one.
const UNIT: u32 = 1024;

/// A peer's transport properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    remote_invalidation: bool,
    send_size: u32,
    receive_size: u32,
}

/// Returns the properties to assume for a peer that sent no private data (RFC 8797, section 5.1).
impl Default for PrivateData {
    fn default() -> Self {
        Self::new(DEFAULT_INLINE, DEFAULT_INLINE, false)
    }
}

impl PrivateData {
    /// Creates properties with these sizes in bytes, each adjusted to the nearest encodable value:
    /// rounded down to a multiple of 1024, but at least 1024, which every peer must support, and at
    /// most [`MAX_INLINE`].
    #[must_use]
    pub fn new(send_size: u32, receive_size: u32, remote_invalidation: bool) -> Self {
        Self {
            remote_invalidation,
            send_size: size_of_code(code_of_size(send_size)),
            receive_size: size_of_code(code_of_size(receive_size)),
        }
    }

    /// Returns the R bit. A requester sets it if every handle that it offers may be invalidated
    /// remotely, a responder if it can use Send With Invalidate.
    #[must_use]
    pub fn remote_invalidation(&self) -> bool {
        self.remote_invalidation
    }

    /// Returns the length in bytes of the longest message that the peer sends.
    #[must_use]
    pub fn send_size(&self) -> u32 {
        self.send_size
    }

    /// Returns the length in bytes of the longest message that the peer receives.
    #[must_use]
    pub fn receive_size(&self) -> u32 {
        self.receive_size
    }

    /// Encodes the private data for the connection manager (section 4).
    #[must_use]
    pub fn encode(&self) -> [u8; PRIVATE_DATA_LEN] {
        let [a, b, c, d] = FORMAT_IDENTIFIER;
        let flags = if self.remote_invalidation {
            FLAG_REMOTE_INVALIDATION
        } else {
            0
        };
        let sizes = (
            code_of_size(self.send_size),
            code_of_size(self.receive_size),
        );
        [a, b, c, d, FORMAT_VERSION, flags, sizes.0, sizes.1]
    }

    /// Finds the format anywhere in the private data of a connection: other layers may have put
    /// something before it, and some transports add padding after it (RFC 8797, section 5.2).
    /// Returns `None` if it is missing, truncated or of another version; [`PrivateData::default`]
    /// then applies.
    #[must_use]
    pub fn find(private_data: &[u8]) -> Option<Self> {
        let at = private_data
            .windows(FORMAT_IDENTIFIER.len())
            .position(|window| window == FORMAT_IDENTIFIER)?;
        let (format, _) = private_data[at..].split_first_chunk::<PRIVATE_DATA_LEN>()?;
        let [_, _, _, _, version, flags, send_size, receive_size] = *format;
        (version == FORMAT_VERSION).then(|| Self {
            remote_invalidation: flags & FLAG_REMOTE_INVALIDATION != 0,
            send_size: size_of_code(send_size),
            receive_size: size_of_code(receive_size),
        })
    }
}

impl fmt::Display for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (send, receive) = (self.send_size, self.receive_size);
        write!(f, "sends up to {send} B, receives up to {receive} B")?;
        match self.remote_invalidation {
            true => write!(f, ", remote invalidation"),
            false => Ok(()),
        }
    }
}

/// Encodes a size in bytes (section 4.2).
fn code_of_size(size: u32) -> u8 {
    // After the clamp the quotient is 1 to 256.
    (size.clamp(DEFAULT_INLINE, MAX_INLINE) / UNIT - 1) as u8
}

fn size_of_code(code: u8) -> u32 {
    (u32::from(code) + 1) * UNIT
}

/// The properties of one connection. Both sides compute the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Longest message from requester to responder, transport header included, in bytes.
    pub call_inline: u32,
    /// Longest message from responder to requester, in bytes.
    pub reply_inline: u32,
    /// Whether the responder may use Send With Invalidate for replies.
    pub remote_invalidation: bool,
}

impl Agreed {
    /// Computes the properties from what the two sides sent. `None` stands for a side that sent no
    /// private data, or none in this format (RFC 8797, sections 4.1, 4.2 and 5.1).
    #[must_use]
    pub fn new(client: Option<PrivateData>, server: Option<PrivateData>) -> Self {
        let (client, server) = (client.unwrap_or_default(), server.unwrap_or_default());
        Self {
            call_inline: client.send_size.min(server.receive_size),
            reply_inline: server.send_size.min(client.receive_size),
            remote_invalidation: client.remote_invalidation && server.remote_invalidation,
        }
    }
}

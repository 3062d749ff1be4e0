//! The types to compare: for each header type, operation and characteristic, a generator of values
//! and the codec of its crate.

mod any;
pub(crate) mod batch;
mod chunks;
pub mod made;
mod optinfo;
pub(crate) mod rtr;
pub(crate) mod v1;
pub(crate) mod v2;
pub(crate) mod v2_wg;
pub(crate) mod wg_ddp;
pub(crate) mod wg_property;
pub(crate) mod xchar;

use bytes::Bytes;
use quickcheck::Gen;
use rpcrdma_v2::Malformed;

use crate::show::Json;

/// A type of the workspace that has an XDR definition in `drafts/xdr`.
pub trait Codec {
    /// The type of its values.
    type Value: PartialEq;

    /// The name of its XDR type.
    const XDR: &'static str;

    /// Encodes a value as XDR.
    fn encode(value: &Self::Value) -> Bytes;

    /// Decodes a value. Returns it with the number of bytes consumed.
    ///
    /// # Errors
    /// [`Refused`], as the crate rejects the bytes.
    fn decode(bytes: &Bytes) -> Result<(Self::Value, usize), Refused>;

    /// Shows the value by the names of its fields.
    fn show(value: &Self::Value, json: &mut Json);
}

/// The reason why a codec of the workspace rejects something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The bytes do not match the XDR definition. Both sides must reject them.
    Form,
    /// A boolean is neither 0 nor 1 (RFC 4506, section 4.4), which the C library takes for true.
    /// What the C program encodes shows this; what it decodes does not.
    Boolean,
    /// Padding of opaque data is not zero (RFC 4506, section 4.10). What the C program encodes
    /// shows this; what it decodes does not.
    RoundUp,
    /// More elements than the crates' limits allow (`limits` in each). XDR has no such limits.
    Limit,
    /// A header of another version (RFC 8166, section 4.2.2).
    Version,
    /// RDMA_MSGP or RDMA_DONE (RFC 8166, section 4.6).
    Retired,
    /// Shorter than any header except that of an error (RFC 8166, section 4.5), as RDMA_DONE can
    /// be.
    Short,
    /// A rule of the working group's version 2 for the fields of one header, which its placement
    /// extension has as well: the chunks of a call, the handle to invalidate, the reply chunk of an
    /// external reply (version-two-07, sections 4.4.1, 4.5.1, 4.5.1.1, 6.3.5, 6.3.7, 6.3.8 and
    /// 6.5).
    Rule,
    /// A level of reverse-direction support that version-two-07, section 5.2.5, does not have.
    Level,
}

impl Refused {
    /// Returns the name in reports and vectors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Boolean => "boolean",
            Self::RoundUp => "round-up",
            Self::Limit => "limit",
            Self::Version => "version",
            Self::Retired => "retired",
            Self::Short => "short",
            Self::Rule => "rule",
            Self::Level => "level",
        }
    }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Boolean(_) => Self::Boolean,
            Malformed::RoundUp => Self::RoundUp,
            Malformed::TooMany(_) => Self::Limit,
            Malformed::Truncated
            | Malformed::Procedure(_)
            | Malformed::ErrorCode(_)
            | Malformed::Enumeration(..)
            | Malformed::Trailing(_) => Self::Form,
            Malformed::Rule(_) => Self::Rule,
        }
    }
}

/// The result of decoding with a codec of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The number of bytes consumed.
    pub used: usize,
    /// The value, encoded again.
    pub again: Bytes,
    /// Whether the value that was encoded again is equal.
    pub is_stable: bool,
    /// The value by the names of its fields, as JSON.
    pub json: String,
}

/// The name of a structure, and those of its fields in their order.
pub type Names = (&'static str, Vec<&'static str>);

/// One type to compare.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name in reports and vectors.
    pub name: &'static str,
    /// The name of its XDR type.
    pub xdr: &'static str,
    /// Generates an arbitrary value: its encoding and its JSON.
    pub sample: fn(&mut Gen) -> (Bytes, String),
    /// Decodes bytes with the workspace's codec.
    pub read: fn(&Bytes) -> Result<Read, Refused>,
    /// Whether bytes after the value are payload. Otherwise they are an error.
    pub has_payload: bool,
    /// Returns the name of the structure in Rust, and those of its fields in the XDR file. Only a codec that
    /// `rpcrdma_extension::xdr_struct!` makes has it.
    pub made: Option<fn() -> Names>,
}

impl Kind {
    /// Returns whether bytes may follow the value with which these bytes begin. In the working
    /// group's version 2, that depends on the header type, which damage may have changed.
    #[must_use]
    pub fn may_be_followed(&self, bytes: &[u8]) -> bool {
        match self.xdr {
            v2_wg::MESSAGE => {
                // Grants, properties and external messages.
                !matches!(bytes.get(12..16), Some([0, 0, 0, 5..=8 | 11]))
            }
            _ => self.has_payload,
        }
    }
}

fn read<C: Codec>(bytes: &Bytes) -> Result<Read, Refused> {
    let (value, used) = C::decode(bytes)?;
    let again = C::encode(&value);
    let is_stable = again == bytes[..used]
        || C::decode(&again).is_ok_and(|(same, len)| same == value && len == again.len());
    Ok(Read {
        used,
        again,
        is_stable,
        json: Json::of(|json| C::show(&value, json)),
    })
}

fn sample<C: Codec>(value: &C::Value) -> (Bytes, String) {
    (C::encode(value), Json::of(|json| C::show(value, json)))
}

/// Defines a [`Kind`] by name, [`Codec`], generator, and whether payload may follow.
macro_rules! kind {
    ($name:literal, $codec:ty, $any:expr, payload: $payload:literal) => {
        $crate::kind::Kind {
            name: $name,
            xdr: <$codec as $crate::kind::Codec>::XDR,
            sample: |g| $crate::kind::sample::<$codec>(&$any(g)),
            read: $crate::kind::read::<$codec>,
            has_payload: $payload,
            made: None,
        }
    };
}
pub(crate) use kind;

//! What is compared: for each header type, operation and characteristic, values of it, and how the
//! crate that owns it encodes and decodes them.

mod any;
mod batch;
mod chunks;
mod optinfo;
mod rtr;
mod v1;
mod v2;
mod xchar;

use bytes::Bytes;
use quickcheck::Gen;
use rpcrdma_v2::Malformed;

use crate::show::Json;

/// A type of the workspace that has an XDR definition in `drafts/xdr`.
pub trait Codec {
    /// Its values.
    type Value: PartialEq;

    /// The name of its XDR type.
    const XDR: &'static str;

    /// Its XDR.
    fn encode(value: &Self::Value) -> Bytes;

    /// From XDR, with the number of bytes used.
    ///
    /// # Errors
    /// [`Refused`], as the crate that owns it refuses.
    fn decode(bytes: &Bytes) -> Result<(Self::Value, usize), Refused>;

    /// By the names of its fields.
    fn show(value: &Self::Value, json: &mut Json);
}

/// Why a codec of the workspace does not accept something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not what its XDR definition says. Everybody must refuse it.
    Form,
    /// A boolean that is neither 0 nor 1 (RFC 4506, section 4.4), which the C library takes for
    /// true. It cannot be told from what the C program decodes, but from what it encodes.
    Boolean,
    /// Bytes that fill opaque data up are not zero (RFC 4506, section 4.10). As above.
    RoundUp,
    /// More elements than the crates' limits allow (`limits` in each). XDR has no such limits.
    Limit,
    /// Another version's header (RFC 8166, section 4.2.2).
    Version,
    /// RDMA_MSGP or RDMA_DONE (RFC 8166, section 4.6).
    Retired,
    /// Shorter than any header but an error's (RFC 8166, section 4.5), which RDMA_DONE can be.
    Short,
}

impl Refused {
    /// Its name in reports and vectors.
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
            | Malformed::Trailing(_)
            // No decoder has one so far. If one gets one, it needs a name of its own above.
            | Malformed::Rule(_) => Self::Form,
        }
    }
}

/// What a codec of the workspace read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes used.
    pub used: usize,
    /// The value, encoded again.
    pub again: Bytes,
    /// Whether what was encoded again means the same.
    pub is_stable: bool,
    /// The value by the names of its fields.
    pub json: String,
}

/// One kind of value: a row of [`all`].
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in reports and vectors.
    pub name: &'static str,
    /// The name of its XDR type.
    pub xdr: &'static str,
    /// An arbitrary value, encoded.
    pub sample: fn(&mut Gen) -> (Bytes, String),
    /// What the workspace's codec reads in these bytes.
    pub read: fn(&Bytes) -> Result<Read, Refused>,
    /// Whether bytes after the value are payload. Otherwise they are an error.
    pub has_payload: bool,
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

/// A [`Kind`]: name, [`Codec`], function that makes a value, and whether payload may follow.
macro_rules! kind {
    ($name:literal, $codec:ty, $any:expr, payload: $payload:literal) => {
        $crate::kind::Kind {
            name: $name,
            xdr: <$codec as $crate::kind::Codec>::XDR,
            sample: |g| $crate::kind::sample::<$codec>(&$any(g)),
            read: $crate::kind::read::<$codec>,
            has_payload: $payload,
        }
    };
}
pub(crate) use kind;

/// Every kind.
#[must_use]
pub fn all() -> Vec<Kind> {
    [v1::KINDS, v2::KINDS, xchar::KINDS, rtr::KINDS, batch::KINDS].concat()
}

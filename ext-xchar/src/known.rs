//! The characteristics that the draft defines (section 3).

use std::fmt;

use bytes::{BufMut, BytesMut};
use rpcrdma_extension::ReverseDirection;
use rpcrdma_v2::limits::DEFAULT_INLINE;
use rpcrdma_v2::{Malformed, Reader};

use crate::Characteristic;

/// XCHAR_RBSIZ: length in bytes of the shortest posted receive (section 3.1).
#[derive(Debug)]
pub enum ReceiveBufferSize {}

impl Characteristic for ReceiveBufferSize {
    type Value = u32;
    const ID: u32 = 1;
    const NAME: &'static str = "receive buffer size";

    fn default_value() -> u32 {
        DEFAULT_INLINE
    }

    fn encode(value: &u32, out: &mut BytesMut) {
        out.put_u32(*value);
    }

    fn decode(from: &mut Reader<'_>) -> Result<u32, Malformed> {
        from.u32()
    }
}

/// XCHAR_REQREMINV: whether the peer may use Send With Invalidate in its reply to a call with
/// chunks (section 3.2).
#[derive(Debug)]
pub enum RequesterRemoteInvalidation {}

impl Characteristic for RequesterRemoteInvalidation {
    type Value = bool;
    const ID: u32 = 2;
    const NAME: &'static str = "requester remote invalidation";

    fn default_value() -> bool {
        false
    }

    fn encode(value: &bool, out: &mut BytesMut) {
        out.put_u32(u32::from(*value));
    }

    fn decode(from: &mut Reader<'_>) -> Result<bool, Malformed> {
        from.boolean()
    }
}

/// XCHAR_BRS: a client's support for reverse-direction calls (section 3.3).
#[derive(Debug)]
pub enum BackwardRequestSupport {}

/// `bkreqsup`: the values of [`BackwardRequestSupport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardSupport {
    /// BKREQSUP_NONE: no reverse-direction calls.
    None,
    /// BKREQSUP_INLINE: reverse-direction calls without chunks.
    Inline,
    /// BKREQSUP_GENL: calls in the reverse direction may have chunks, as in the forward direction.
    General,
}

impl BackwardSupport {
    /// Converts the value to the type that the base protocol uses.
    #[must_use]
    pub fn limit(self) -> ReverseDirection {
        match self {
            Self::None => ReverseDirection::None,
            Self::Inline => ReverseDirection::Inline,
            Self::General => ReverseDirection::General,
        }
    }
}

impl fmt::Display for BackwardSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Inline => "inline",
            Self::General => "general",
        })
    }
}

impl Characteristic for BackwardRequestSupport {
    type Value = BackwardSupport;
    const ID: u32 = 3;
    const NAME: &'static str = "backward request support";

    fn default_value() -> BackwardSupport {
        BackwardSupport::Inline
    }

    fn encode(value: &BackwardSupport, out: &mut BytesMut) {
        out.put_u32(match value {
            BackwardSupport::None => 0,
            BackwardSupport::Inline => 1,
            BackwardSupport::General => 2,
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<BackwardSupport, Malformed> {
        match from.u32()? {
            0 => Ok(BackwardSupport::None),
            1 => Ok(BackwardSupport::Inline),
            2 => Ok(BackwardSupport::General),
            other => Err(Malformed::Enumeration("bkreqsup", other)),
        }
    }
}

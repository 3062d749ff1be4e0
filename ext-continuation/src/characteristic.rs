//! The characteristics that limit groups (sections 8.4 and 8.5), and the registration of all
//! characteristics of rtrext-00.

use bytes::{BufMut, BytesMut};
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport};
use rpcrdma_ext_xchar::{Characteristic, IdTaken, Registry};
use rpcrdma_v2::{Malformed, Reader};

/// XCHAR_REQRXLIM: maximum number of transmissions of a call that an end accepts (section 8.4).
#[derive(Debug)]
pub enum RequestReceiveLimit {}

impl Characteristic for RequestReceiveLimit {
    type Value = u32;
    const ID: u32 = 6;
    const NAME: &'static str = "request transmission receive limit";

    fn default_value() -> u32 {
        1
    }

    fn encode(value: &u32, out: &mut BytesMut) {
        out.put_u32(*value);
    }

    fn decode(from: &mut Reader<'_>) -> Result<u32, Malformed> {
        from.u32()
    }
}

/// XCHAR_RESPSXLIM: maximum number of transmissions of a reply that an end sends (section 8.5).
#[derive(Debug)]
pub enum ResponseSendLimit {}

impl Characteristic for ResponseSendLimit {
    type Value = u32;
    const ID: u32 = 7;
    const NAME: &'static str = "response transmission send limit";

    fn default_value() -> u32 {
        1
    }

    fn encode(value: &u32, out: &mut BytesMut) {
        out.put_u32(*value);
    }

    fn decode(from: &mut Reader<'_>) -> Result<u32, Malformed> {
        from.u32()
    }
}

/// Registers all four characteristics of the draft.
///
/// # Errors
/// [`IdTaken`] if one of their numbers is already registered.
pub fn register(registry: &mut Registry) -> Result<(), IdTaken> {
    registry.register::<RoundTripSupport>()?;
    registry.register::<ReceiveBufferStructure>()?;
    registry.register::<RequestReceiveLimit>()?;
    registry.register::<ResponseSendLimit>()
}

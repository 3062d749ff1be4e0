//! The characteristics with which an end announces its support (sections 8.2 and 8.3).

use std::fmt;

use bytes::{BufMut, BytesMut};
use rpcrdma_ext_xchar::Characteristic;
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_v2::limits::DEFAULT_INLINE;
use rpcrdma_v2::{Malformed, Reader};

use crate::{get_structure, put_structure};

/// XCHAR_RTRSUPP: the operations of rtrext-00 that an end supports (section 8.2).
#[derive(Debug)]
pub enum RoundTripSupport {}

bitflags::bitflags! {
    /// Values of [`RoundTripSupport`]. Unnamed bits are kept and have no meaning.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Support: u32 {
        /// RTRS_XREQ: the end accepts calls sent by ROPT_XMTREQ.
        const XREQ = 1;
        /// RTRS_XRESP: the end accepts ROPT_XMTRESP as the reply to its own calls by ROPT_XMTREQ, and
        /// replies by ROPT_XMTRESP if it accepts such calls.
        const XRESP = 2;
        /// RTRS_XCONT: the end supports ROPT_XMTCONT. Other characteristics limit the number of
        /// transmissions.
        const XCONT = 4;
        const _ = !0;
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

impl Characteristic for RoundTripSupport {
    type Value = Support;
    const ID: u32 = 4;
    const NAME: &'static str = "round-trip support";

    fn default_value() -> Support {
        Support::empty()
    }

    fn encode(value: &Support, out: &mut BytesMut) {
        out.put_u32(value.bits());
    }

    fn decode(from: &mut Reader<'_>) -> Result<Support, Malformed> {
        Ok(Support::from_bits_retain(from.u32()?))
    }
}

/// XCHAR_RBSTRUCT: the structure of an end's receive buffers (section 8.3).
#[derive(Debug)]
pub enum ReceiveBufferStructure {}

impl Characteristic for ReceiveBufferStructure {
    type Value = BufferStructure;
    const ID: u32 = 5;
    const NAME: &'static str = "receive buffer structure";

    /// Returns a structure of one segment that is not for placement (section 8.3; note 1 of table 3). Its actual
    /// length is the announced receive buffer size, if there is one.
    fn default_value() -> BufferStructure {
        BufferStructure::plain(DEFAULT_INLINE)
    }

    fn encode(value: &BufferStructure, out: &mut BytesMut) {
        put_structure(out, value);
    }

    fn decode(from: &mut Reader<'_>) -> Result<BufferStructure, Malformed> {
        get_structure(from)
    }
}

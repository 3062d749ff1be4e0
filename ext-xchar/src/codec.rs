//! Encoding and decoding of the four operations (sections 4 and 5.2).

use bytes::{BufMut, Bytes, BytesMut};
use onc_rpc::{pad, padded};
use rpcrdma_extension::Property;
use rpcrdma_v2::{Malformed, Reader};

use crate::{MAX_CHARACTERISTICS, Subset};

/// `rdma_opttype` of ROPT_INITXCH.
pub const INITXCH: u32 = 1;
/// `rdma_opttype` of ROPT_REQXCH.
pub const REQXCH: u32 = 2;
/// `rdma_opttype` of ROPT_RESPXCH.
pub const RESPXCH: u32 = 3;
/// `rdma_opttype` of ROPT_UPDXCH.
pub const UPDXCH: u32 = 4;

/// `optinfo_initxch`: the characteristics of the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// The characteristics, in any order.
    pub start: Vec<Property>,
    /// The elements of `start` that are not expected to change.
    pub no_change: Subset,
}

/// `optinfo_reqxch`: the characteristics that the sender asks the receiver to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The wanted characteristics of the receiver.
    pub want: Vec<Property>,
}

/// `optinfo_respxch`: the outcome of a [`Request`], by element of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Elements that were changed.
    pub done: Subset,
    /// Elements that will not be changed.
    pub rejected: Subset,
    /// Elements whose outcome an [`Update`] will report.
    pub pending: Subset,
}

/// `optinfo_updxch`: the report that a characteristic of the sender has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The new value.
    pub now: Property,
    /// Whether the change completes a pending element of a [`Request`].
    pub pending_cleared: bool,
}

/// Returns the length in bytes of a characteristic in a list.
pub(crate) fn property_len(property: &Property) -> usize {
    8 + padded(property.value.len() as u64) as usize
}

fn put_property(out: &mut BytesMut, property: &Property) {
    out.put_u32(property.id);
    out.put_u32(property.value.len() as u32);
    out.put_slice(&property.value);
    out.put_bytes(0, pad(property.value.len() as u64) as usize);
}

fn put_list(out: &mut BytesMut, list: &[Property]) {
    out.put_u32(list.len() as u32);
    for property in list {
        put_property(out, property);
    }
}

/// Decodes a property. Its value is copied: it is short, and outlives the receive in which it arrived.
fn property(from: &mut Reader<'_>) -> Result<Property, Malformed> {
    Ok(Property {
        id: from.u32()?,
        value: Bytes::copy_from_slice(from.opaque()?),
    })
}

fn list(from: &mut Reader<'_>) -> Result<Vec<Property>, Malformed> {
    let count = from.u32()? as usize;
    if count > MAX_CHARACTERISTICS {
        return Err(Malformed::TooMany("characteristics"));
    }
    // Each element takes at least eight bytes. They must be there before memory is allocated.
    if from.left() / 8 < count {
        return Err(Malformed::Truncated);
    }
    (0..count).map(|_| property(from)).collect()
}

impl Init {
    /// Encodes the operation as XDR, for `rdma_optinfo`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        put_list(&mut out, &self.start);
        self.no_change.encode_into(&mut out);
        out.freeze()
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let list: usize = self.start.iter().map(property_len).sum();
        4 + list + self.no_change.encoded_len()
    }

    /// Decodes the operation.
    ///
    /// # Errors
    /// [`Malformed`] if `info` does not match the XDR definition.
    pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                start: list(from)?,
                no_change: Subset::decode(from)?,
            })
        })
    }
}

impl Request {
    /// Encodes the operation as XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_list(&mut out, &self.want);
        out.freeze()
    }

    /// Decodes the operation.
    ///
    /// # Errors
    /// [`Malformed`] if `info` does not match the XDR definition.
    pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
        let want = Reader::whole(info, list)?;
        Ok(Self { want })
    }
}

impl Response {
    /// Encodes the operation as XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        for subset in [self.done, self.rejected, self.pending] {
            subset.encode_into(&mut out);
        }
        out.freeze()
    }

    /// Decodes the operation.
    ///
    /// # Errors
    /// [`Malformed`] if `info` does not match the XDR definition.
    pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                done: Subset::decode(from)?,
                rejected: Subset::decode(from)?,
                pending: Subset::decode(from)?,
            })
        })
    }

    /// Returns whether the response has exactly one outcome for each of the `len` elements of the
    /// request, and none for other elements (section 4.3).
    #[must_use]
    pub fn covers(&self, len: usize) -> bool {
        let overlap = self.done.and(self.rejected);
        let overlap = overlap.or(self.pending.and(self.done.or(self.rejected)));
        let all = self.done.or(self.rejected).or(self.pending);
        overlap.is_empty() && all == Subset::all(len)
    }
}

impl Update {
    /// Encodes the operation as XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(property_len(&self.now) + 4);
        put_property(&mut out, &self.now);
        out.put_u32(u32::from(self.pending_cleared));
        out.freeze()
    }

    /// Decodes the operation.
    ///
    /// # Errors
    /// [`Malformed`] if `info` does not match the XDR definition.
    pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                now: property(from)?,
                pending_cleared: from.boolean()?,
            })
        })
    }
}

//! The four operations as XDR (sections 4 and 5.2).

use bytes::{BufMut, Bytes, BytesMut};
use onc_rpc::{pad, padded};
use rpcrdma_v2::extension::Property;
use rpcrdma_v2::{Malformed, Reader};

use crate::Subset;

/// `rdma_opttype` of ROPT_INITXCH.
pub const INITXCH: u32 = 1;
/// `rdma_opttype` of ROPT_REQXCH.
pub const REQXCH: u32 = 2;
/// `rdma_opttype` of ROPT_RESPXCH.
pub const RESPXCH: u32 = 3;
/// `rdma_opttype` of ROPT_UPDXCH.
pub const UPDXCH: u32 = 4;

/// Most characteristics in one list. The document sets no limit; seven have numbers.
pub const MAX_CHARACTERISTICS: usize = 64;

/// `optinfo_initxch`: what the sender is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// Its characteristics, in any order.
    pub start: Vec<Property>,
    /// Those of them that are not expected to change.
    pub no_change: Subset,
}

/// `optinfo_reqxch`: what the sender wants the receiver to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Characteristics of the receiver.
    pub want: Vec<Property>,
}

/// `optinfo_respxch`: what becomes of a [`Request`], by the places in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Changed.
    pub done: Subset,
    /// Not to be changed.
    pub rejected: Subset,
    /// An [`Update`] will say.
    pub pending: Subset,
}

/// `optinfo_updxch`: a characteristic of the sender has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// What it is now.
    pub now: Property,
    /// Whether this completes what a [`Request`] asked for.
    pub pending_cleared: bool,
}

/// Bytes of a characteristic in a list.
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

/// A property, whose value is a slice of `info`, where `from` reads.
fn property(info: &Bytes, from: &mut Reader<'_>) -> Result<Property, Malformed> {
    let id = from.u32()?;
    let value = from.opaque()?;
    // Where the reader is, less the value and its round-up.
    let end = info.len() - from.left();
    let start = end - padded(value.len() as u64) as usize;
    let value = info.slice(start..start + value.len());
    Ok(Property { id, value })
}

fn list(info: &Bytes, from: &mut Reader<'_>) -> Result<Vec<Property>, Malformed> {
    let count = from.u32()? as usize;
    if count > MAX_CHARACTERISTICS {
        return Err(Malformed::TooMany("characteristics"));
    }
    // Each takes eight bytes at least: they must be there before memory is taken.
    if from.left() / 8 < count {
        return Err(Malformed::Truncated);
    }
    (0..count).map(|_| property(info, from)).collect()
}

impl Init {
    /// Its XDR, for `rdma_optinfo`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        put_list(&mut out, &self.start);
        self.no_change.encode_into(&mut out);
        out.freeze()
    }

    /// Bytes of its XDR.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let list: usize = self.start.iter().map(property_len).sum();
        4 + list + self.no_change.encoded_len()
    }

    /// Reads it. The values are slices of `info`.
    ///
    /// # Errors
    /// It is not what its definition says.
    pub fn decode(info: &Bytes) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                start: list(info, from)?,
                no_change: Subset::decode(from)?,
            })
        })
    }
}

impl Request {
    /// Its XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_list(&mut out, &self.want);
        out.freeze()
    }

    /// Reads it. The values are slices of `info`.
    ///
    /// # Errors
    /// It is not what its definition says.
    pub fn decode(info: &Bytes) -> Result<Self, Malformed> {
        let want = Reader::whole(info, |from| list(info, from))?;
        Ok(Self { want })
    }
}

impl Response {
    /// Its XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        for subset in [self.done, self.rejected, self.pending] {
            subset.encode_into(&mut out);
        }
        out.freeze()
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is not what its definition says.
    pub fn decode(info: &Bytes) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                done: Subset::decode(from)?,
                rejected: Subset::decode(from)?,
                pending: Subset::decode(from)?,
            })
        })
    }

    /// Whether it says one thing of each of `len` characteristics, and nothing of others (section
    /// 4.3).
    #[must_use]
    pub fn covers(&self, len: usize) -> bool {
        let overlap = self.done.and(self.rejected);
        let overlap = overlap.or(self.pending.and(self.done.or(self.rejected)));
        let all = self.done.or(self.rejected).or(self.pending);
        overlap.is_empty() && all == Subset::all(len)
    }
}

impl Update {
    /// Its XDR.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(property_len(&self.now) + 4);
        put_property(&mut out, &self.now);
        out.put_u32(u32::from(self.pending_cleared));
        out.freeze()
    }

    /// Reads it. The value is a slice of `info`.
    ///
    /// # Errors
    /// It is not what its definition says.
    pub fn decode(info: &Bytes) -> Result<Self, Malformed> {
        Reader::whole(info, |from| {
            Ok(Self {
                now: property(info, from)?,
                pending_cleared: from.boolean()?,
            })
        })
    }
}

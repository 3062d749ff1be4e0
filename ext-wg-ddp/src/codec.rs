//! The header types of this extension, from the end of the prefix on (version-two-07, appendix
//! B.2).

use bytes::{BufMut as _, Bytes, BytesMut};
use rpcrdma_chunks::{Chunks, Malformed, Reader, WriteChunk, put_write_list, write_list_len};
use smallvec::SmallVec;

/// The numbers of the header types, from the range for experiments
/// ([`rpcrdma_v2_wg::EXPERIMENTAL`]).
pub mod header_type {
    /// A part of a call; others follow.
    pub const CALL_PLACED_MIDDLE: u32 = 0xffff_ff01;
    /// The last or only part of a call.
    pub const CALL_PLACED: u32 = 0xffff_ff02;
    /// A part of a reply; others follow.
    pub const REPLY_PLACED_MIDDLE: u32 = 0xffff_ff03;
    /// The last or only part of a reply.
    pub const REPLY_PLACED: u32 = 0xffff_ff04;
}

/// Limits of this implementation, and lengths.
pub mod limits {
    /// Maximum number of placed items of a message.
    pub const MAX_ITEMS: usize = 16;
    /// Maximum number of parts of a message.
    pub const MAX_PARTS: u32 = 128;
    /// Length in bytes of the header of a part that others follow, prefix included.
    pub const MIDDLE_LEN: u64 = 28;
    /// Length in bytes of an item in a list of placed items.
    pub const ITEM_LEN: u64 = 16;
    /// Length in bytes of RDMA2_CALL_PLACED without chunks and items, prefix included.
    pub const CALL_LEN: u64 = 40;
    /// Length in bytes of RDMA2_REPLY_PLACED without chunks and items, prefix included.
    pub const REPLY_LEN: u64 = 28;
}

/// `rpcrdma2_placed_item`: an item that was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedItem {
    /// Offset of its first byte in the unreduced payload stream, as of a read chunk.
    pub position: u32,
    /// Length in bytes, without round-up; not zero.
    pub length: u32,
    /// The number of the buffer segment in which it begins. Segments for bulk data are counted
    /// across all parts of the RPC message, from 0.
    pub segment: u32,
    /// Offset in that segment in bytes, a multiple of four.
    pub offset: u32,
}

/// `rpcrdma2_hdr_placed_middle`: a part that others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedMiddle {
    /// Number of parts that follow; not zero.
    pub messages: u32,
    /// Bytes of the reduced payload stream in the parts that follow.
    pub remaining: u32,
    /// Bytes of the reduced payload stream in this part.
    pub payload: u32,
}

/// `rpcrdma2_hdr_call_placed`: the last or only part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlaced {
    /// The handle that the reply may invalidate; zero if there is none.
    pub inv_handle: u32,
    /// The chunk lists, as in RDMA2_CALL_INLINE.
    pub chunks: Chunks,
    /// The placed items, in the order of their positions.
    pub items: SmallVec<[PlacedItem; 1]>,
    /// Bytes of the reduced payload stream in this part.
    pub payload: u32,
}

/// `rpcrdma2_hdr_reply_placed`: the last or only part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyPlaced {
    /// The write chunks of the call, all returned unused: a placed reply has no results in write
    /// chunks.
    pub writes: Vec<WriteChunk>,
    /// The placed items, in the order of their positions.
    pub items: SmallVec<[PlacedItem; 1]>,
    /// Bytes of the reduced payload stream in this part.
    pub payload: u32,
}

impl PlacedMiddle {
    /// Encodes the fields after the prefix.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(12);
        for word in [self.messages, self.remaining, self.payload] {
            out.put_u32(word);
        }
        out.freeze()
    }

    /// Decodes the fields after the prefix.
    ///
    /// # Errors
    /// [`Malformed`]: they do not match their XDR definition.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            messages: from.u32()?,
            remaining: from.u32()?,
            payload: from.u32()?,
        })
    }
}

impl CallPlaced {
    /// Encodes the fields after the prefix.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u32(self.inv_handle);
        self.chunks.encode_into(&mut out);
        put_items(&mut out, &self.items);
        out.put_u32(self.payload);
        out.freeze()
    }

    /// Decodes the fields after the prefix. Also checks the rules for the chunk lists of an inline
    /// call that need nothing but the header: the positions of read chunks (sections 4.5.1.1 and
    /// 6.6.3) and the handle to invalidate (section 6.5).
    ///
    /// # Errors
    /// [`Malformed`]: they do not match their XDR definition, exceed a limit, or break a rule.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let call = Self {
            inv_handle: from.u32()?,
            chunks: from.chunks()?,
            items: items(from)?,
            payload: from.u32()?,
        };
        call.check()?;
        Ok(call)
    }

    fn check(&self) -> Result<(), Malformed> {
        let positions = self.chunks.reads.iter().map(|read| read.position);
        if !positions.clone().is_sorted() {
            return Err(Malformed::Rule("positions of read chunks decrease"));
        }
        if positions.clone().any(|position| position == 0) {
            return Err(Malformed::Rule("position-zero read chunk in the read list"));
        }
        let mut handles = self.chunks.handles();
        if self.inv_handle != 0 && !handles.any(|handle| handle == self.inv_handle) {
            return Err(Malformed::Rule("a handle that the call does not have"));
        }
        Ok(())
    }
}

impl ReplyPlaced {
    /// Returns the length of the whole header in bytes, prefix included.
    #[must_use]
    pub fn header_len(writes: &[WriteChunk], items: usize) -> u64 {
        let empty = write_list_len(&[]);
        let list = write_list_len(writes) - empty;
        limits::REPLY_LEN + list as u64 + limits::ITEM_LEN * items as u64
    }

    /// Encodes the fields after the prefix.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_write_list(&mut out, &self.writes);
        put_items(&mut out, &self.items);
        out.put_u32(self.payload);
        out.freeze()
    }

    /// Decodes the fields after the prefix.
    ///
    /// # Errors
    /// [`Malformed`]: they do not match their XDR definition, or exceed a limit.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            writes: from.write_list()?,
            items: items(from)?,
            payload: from.u32()?,
        })
    }
}

fn put_items(out: &mut BytesMut, items: &[PlacedItem]) {
    out.put_u32(items.len() as u32);
    for item in items {
        for word in [item.position, item.length, item.segment, item.offset] {
            out.put_u32(word);
        }
    }
}

fn items(from: &mut Reader<'_>) -> Result<SmallVec<[PlacedItem; 1]>, Malformed> {
    let count = from.u32()? as usize;
    if count > limits::MAX_ITEMS {
        return Err(Malformed::TooMany("placed items"));
    }
    let item = |_| {
        Ok(PlacedItem {
            position: from.u32()?,
            length: from.u32()?,
            segment: from.u32()?,
            offset: from.u32()?,
        })
    };
    (0..count).map(item).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;

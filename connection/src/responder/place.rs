//! Places a reply into the requester's chunks.

use onc_rpc::{Message, Segments};
use rdma::Stag;
use rpcrdma_chunks::{ChunkTooSmall, Segment, WriteChunk, fill, unused};
use smallvec::SmallVec;
use transfer_plan::{ReplyItem, ReplyPayload, ReplyPlan};

use crate::{Action, memory};

/// A reply that is ready to be sent.
pub(super) struct Placed {
    /// The RDMA Writes, which come before the Send.
    pub(super) writes: SmallVec<[Action; 2]>,
    /// The write list to return.
    pub(super) list: Vec<WriteChunk>,
    /// The reply chunk to return, if one was offered.
    pub(super) reply: Option<WriteChunk>,
    /// The inline payload.
    pub(super) payload: Segments,
}

/// Executes a plan: returns the RDMA Writes, the chunks with the lengths that are written (RFC
/// 8166, section 3.4.6), and the inline payload.
///
/// # Errors
/// [`ChunkTooSmall`]: a chunk is shorter than the plan assumes.
pub(super) fn place(
    plan: &ReplyPlan,
    message: &Message,
    writes: &[WriteChunk],
    reply: Option<&WriteChunk>,
) -> Result<Placed, ChunkTooSmall> {
    let mut placed = Placed {
        writes: SmallVec::new(),
        list: Vec::with_capacity(writes.len()),
        reply: None,
        payload: message.gather(|index| plan.items[index].1 == ReplyItem::InPayload),
    };
    for (index, offered) in writes.iter().enumerate() {
        let filled = fill(offered, plan.written(index))?;
        let items = plan.items.iter().zip(message.items());
        for ((_, how), bulk) in items {
            if *how == ReplyItem::WriteChunk(index) {
                // Without its round-up, which never goes into a write chunk (section 3.4.6.2).
                write_all(
                    &filled,
                    bulk.data.clone().into_segments(),
                    &mut placed.writes,
                );
            }
        }
        placed.list.push(filled);
    }
    if let Some(offered) = reply {
        placed.reply = Some(match plan.payload {
            // A reply chunk that was offered comes back in any case, here with lengths of zero
            // (section 4.3.3).
            ReplyPayload::Inline => unused(offered),
            ReplyPayload::ReplyChunk => {
                let filled = fill(offered, plan.payload_len)?;
                let payload = std::mem::take(&mut placed.payload);
                write_all(&filled, payload, &mut placed.writes);
                filled
            }
        });
    }
    Ok(placed)
}

/// Appends to `writes` one RDMA Write for each segment of `filled` that has any bytes.
pub(super) fn write_all(
    filled: &[Segment],
    mut gather: Segments,
    writes: &mut SmallVec<[Action; 2]>,
) {
    for segment in filled.iter().filter(|segment| segment.length > 0) {
        writes.push(Action::Write {
            gather: memory::split_front(&mut gather, segment.length as usize),
            stag: Stag(segment.handle),
            offset: segment.offset,
        });
    }
}

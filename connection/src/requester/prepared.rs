//! Planned calls whose memory has been allocated and not registered yet.

use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::{Bulk, Message, Position, Segments};
use rdma::{Pool, PoolExhausted, Region};
use rpcrdma_extension::{CallCandidate, Planned};
use transfer_plan::{CallItem, CallPayload, CallPlan, ChunkCounts, Limits};

use super::pending::PendingCall;
use super::registration::Purpose;
use crate::memory;

/// The transfer mode that carries a call: an extension, or the version's own (continuation).
#[derive(Debug)]
pub(super) struct Carrier {
    /// The number of the transfer mode ([`Modes`](crate::dialect::Modes)).
    pub(super) by: usize,
    /// The extension's layout of the call, until the call is sent.
    pub(super) plan: Option<Arc<dyn Planned>>,
    /// The extension's [`plan_state`](rpcrdma_extension::TransferMode::plan_state) when it made
    /// the layout.
    pub(super) state: Option<u64>,
    /// The type of the call's first message, once it is sent.
    pub(super) first_type: u32,
    /// The number of Sends of the call: the planned number, and after sending the actual one.
    pub(super) sends: u32,
    /// Whether the call may be begun before the peer can receive all of its Sends.
    pub(super) may_wait: bool,
    /// Receives that are posted beyond the credits, for a reply in several messages.
    pub(super) receives: u32,
}

/// A planned call with its memory.
pub(super) struct Prepared {
    pub(super) payload: CallPayload,
    pub(super) gather: Segments,
    pub(super) regions: Vec<(Purpose, Region)>,
    /// Length of the longest Send of the call, or the limit by which an extension divides it.
    pub(super) send_len: u64,
    pub(super) source: Option<PendingCall>,
    pub(super) carrier: Option<Carrier>,
}

impl Prepared {
    /// Keeps the call as the upper layer made it, because it may have to be planned again before it
    /// is sent.
    pub(super) fn keep(&mut self, source: PendingCall) {
        self.source = Some(source);
    }
}

/// Collects the memory that a call needs registered.
struct Memory<'a> {
    max_segment: u64,
    pool: &'a Pool,
    copied: &'a mut u64,
    regions: Vec<(Purpose, Region)>,
}

impl Memory<'_> {
    fn read(&mut self, position: u32, pieces: &[Bytes]) {
        for piece in pieces {
            for slice in memory::slices(piece, self.max_segment) {
                let region = Region::RemoteRead(slice);
                self.regions.push((Purpose::Read(position), region));
            }
        }
    }

    /// Adds items that the responder reads. Their data may lie in more pieces than the header can
    /// list beside the chunks in `others` and `payload` bytes; they are copied together then.
    fn items<'m>(
        &mut self,
        items: impl Iterator<Item = (u32, &'m Bulk)> + Clone,
        limits: &Limits,
        others: ChunkCounts,
        payload: u64,
    ) -> Result<(), PoolExhausted> {
        let segments = |data: &Bulk| {
            let pieces = data.pieces().iter();
            pieces
                .map(|piece| limits.segments(piece.len() as u64))
                .sum::<u64>()
        };
        let counts = ChunkCounts {
            read_segments: others.read_segments
                + items.clone().map(|(_, data)| segments(data)).sum::<u64>(),
            ..others
        };
        // Counted before anything is registered, since the header that lists the segments has to
        // fit as well.
        let fits = limits.fits(&counts, payload);
        for (position, data) in items {
            match fits {
                true => self.read(position, data.pieces()),
                false => {
                    let gather = data.pieces().iter().cloned().collect();
                    let joined = memory::flatten(&gather, self.pool, self.copied)?;
                    self.read(position, &[joined]);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, purpose: Purpose, len: u64) -> Result<(), PoolExhausted> {
        let buf = self
            .pool
            .alloc(usize::try_from(len).unwrap_or(usize::MAX))?;
        for piece in memory::cut(buf, self.max_segment) {
            self.regions.push((purpose, Region::RemoteWrite(piece)));
        }
        Ok(())
    }

    fn results(
        &mut self,
        write_chunks: &[u64],
        reply_chunk: Option<u64>,
    ) -> Result<(), PoolExhausted> {
        for (chunk, &len) in write_chunks.iter().enumerate() {
            self.write(Purpose::Write(chunk), len)?;
        }
        reply_chunk.map_or(Ok(()), |len| self.write(Purpose::Reply, len))
    }
}

/// Counts the chunks of these lengths that a call offers for its reply.
fn offered(write_chunks: &[u64], reply_chunk: Option<u64>, limits: &Limits) -> ChunkCounts {
    let segments = |len| limits.segments(len);
    ChunkCounts {
        read_segments: 0,
        write_chunks: write_chunks.len() as u64,
        write_segments: write_chunks.iter().copied().map(segments).sum(),
        reply_segments: reply_chunk.map(segments),
        position_zero: false,
    }
}

/// Divides a call as its plan says, and allocates memory for its results. The number of bytes
/// copied is added to `copied`.
///
/// # Errors
/// [`PoolExhausted`]: there is no memory in `pool`.
pub(super) fn prepare(
    message: &Message,
    plan: &CallPlan,
    limits: &Limits,
    pool: &Pool,
    copied: &mut u64,
) -> Result<Prepared, PoolExhausted> {
    let mut memory = Memory {
        max_segment: limits.max_segment,
        pool,
        copied,
        regions: Vec::new(),
    };
    let mut gather = message.gather(|index| plan.items[index].1 == CallItem::InPayload);
    if plan.payload == CallPayload::PositionZero {
        // Each piece would take a registration and a segment of its own. One copy of a long payload
        // costs less.
        let joined = memory::flatten(&gather, pool, memory.copied)?;
        memory.read(0, &[joined]);
        gather.clear();
    }
    let items = plan.items.iter().zip(message.items());
    let items = items.filter(|((_, how), _)| *how == CallItem::ReadChunk);
    let items = items.map(|((item, _), bulk)| (item.position, &bulk.data));
    let others = ChunkCounts {
        read_segments: memory.regions.len() as u64,
        position_zero: plan.payload == CallPayload::PositionZero,
        ..offered(&plan.write_chunks, plan.reply_chunk, limits)
    };
    let payload = plan.send_len() - plan.header_len;
    memory.items(items, limits, others, payload)?;
    memory.results(&plan.write_chunks, plan.reply_chunk)?;
    Ok(Prepared {
        payload: plan.payload,
        gather,
        regions: memory.regions,
        send_len: plan.send_len(),
        source: None,
        carrier: None,
    })
}

/// Allocates the memory that the plan of the extension with number `by` registers. The
/// plan was made with `limits`, in this state of the extension.
///
/// # Errors
/// [`PoolExhausted`]: there is no memory in `pool`. The call is returned.
pub(super) fn prepare_candidate(
    source: PendingCall,
    (by, state): (usize, Option<u64>),
    candidate: &CallCandidate,
    limits: &Limits,
    pool: &Pool,
    copied: &mut u64,
) -> Result<Prepared, (PoolExhausted, Box<PendingCall>)> {
    let mut memory = Memory {
        max_segment: limits.max_segment,
        pool,
        copied,
        regions: Vec::new(),
    };
    let items = candidate.reads.iter().filter_map(|&index| {
        let item = source.message.items().get(index)?;
        match item.position {
            Position::At(position) => Some((position, &item.data)),
            // `Shape::of` has refused calls with such items.
            Position::InOrder | Position::InOrderOrInline => None,
        }
    });
    let (writes, reply) = (&candidate.write_chunks, candidate.reply_chunk);
    let others = offered(writes, reply, limits);
    let collected = memory.items(items, limits, others, 0);
    if let Err(error) = collected.and_then(|()| memory.results(writes, reply)) {
        return Err((error, Box::new(source)));
    }
    Ok(Prepared {
        payload: CallPayload::Inline,
        gather: Segments::new(),
        regions: memory.regions,
        send_len: limits.inline_send,
        source: Some(source),
        carrier: Some(Carrier {
            by,
            plan: Some(candidate.plan.clone()),
            state,
            sends: candidate.messages(),
            first_type: 0,
            may_wait: candidate.cost.may_wait,
            receives: candidate.cost.receives,
        }),
    })
}

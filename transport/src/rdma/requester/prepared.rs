//! A call as planned: its memory taken, nothing registered yet.

use bytes::Bytes;
use conveyance::{CallItem, CallPayload, CallPlan};
use onc_rpc::{Message, Position, Segments};
use rdma::{Pool, PoolExhausted, Region};
use rpcrdma_v2::extension::{CallCandidate, Planned};

use super::super::memory;
use super::call::Waiting;
use super::registration::Role;

/// A call that goes in operations of an extension.
#[derive(Debug)]
pub(super) struct ByExtension {
    /// Which.
    pub(super) by: usize,
    /// Its layout, until it is carried out.
    pub(super) plan: Option<Box<dyn Planned>>,
    /// Messages that it takes, and credits: as planned, and once it is sent as sent.
    pub(super) transmissions: u32,
    /// Further receives that are posted for its reply.
    pub(super) receives: u32,
    /// The call as it was.
    pub(super) source: Waiting,
}

/// A call as planned, with its memory.
pub(super) struct Prepared {
    pub(super) payload: CallPayload,
    pub(super) gather: Segments,
    pub(super) regions: Vec<(Role, Region)>,
    pub(super) send_len: u64,
    pub(super) source: Option<Box<Waiting>>,
    pub(super) by_extension: Option<Box<ByExtension>>,
    /// An extension's operations did not work for it.
    pub(super) barred: bool,
}

impl Prepared {
    /// Keeps the call as it was: it is not going to be sent at once.
    pub(super) fn keep(&mut self, source: Waiting) {
        self.source = Some(Box::new(source));
    }
}

/// Memory for the parts of a call.
struct Memory<'a> {
    max_segment: u64,
    pool: &'a Pool,
    regions: Vec<(Role, Region)>,
}

impl Memory<'_> {
    fn read(&mut self, position: u32, pieces: &[Bytes]) {
        for piece in pieces {
            for slice in memory::slices(piece, self.max_segment) {
                let region = Region::RemoteRead(slice);
                self.regions.push((Role::Read(position), region));
            }
        }
    }

    fn write(&mut self, role: Role, len: u64) -> Result<(), PoolExhausted> {
        let buf = self
            .pool
            .alloc(usize::try_from(len).unwrap_or(usize::MAX))?;
        for piece in memory::cut(buf, self.max_segment) {
            self.regions.push((role, Region::RemoteWrite(piece)));
        }
        Ok(())
    }

    fn results(
        &mut self,
        write_chunks: &[u64],
        reply_chunk: Option<u64>,
    ) -> Result<(), PoolExhausted> {
        for (chunk, &len) in write_chunks.iter().enumerate() {
            self.write(Role::Write(chunk), len)?;
        }
        reply_chunk.map_or(Ok(()), |len| self.write(Role::Reply, len))
    }
}

/// Takes apart a message as planned, and takes memory for its results.
pub(super) fn prepare(
    message: &Message,
    plan: &CallPlan,
    max_segment: u64,
    pool: &Pool,
    copied: &mut u64,
) -> Result<Prepared, PoolExhausted> {
    let mut memory = Memory {
        max_segment,
        pool,
        regions: Vec::new(),
    };
    let mut gather = message.gather(|index| plan.items[index].1 == CallItem::InPayload);
    if plan.payload == CallPayload::PositionZero {
        memory.read(0, &[memory::flatten(&gather, pool, copied)?]);
        gather.clear();
    }
    for ((item, how), bulk) in plan.items.iter().zip(message.items()) {
        if *how == CallItem::ReadChunk {
            memory.read(item.position, bulk.data.pieces());
        }
    }
    memory.results(&plan.write_chunks, plan.reply_chunk)?;
    Ok(Prepared {
        payload: plan.payload,
        gather,
        regions: memory.regions,
        send_len: plan.send_len(),
        source: None,
        by_extension: None,
        barred: false,
    })
}

/// The same for a candidate of an extension's: takes memory for what it wants registered.
///
/// # Errors
/// There is none; gives the call back.
pub(super) fn prepare_candidate(
    source: Waiting,
    by: usize,
    candidate: CallCandidate,
    max_segment: u64,
    pool: &Pool,
) -> Result<Prepared, (PoolExhausted, Box<Waiting>)> {
    let mut memory = Memory {
        max_segment,
        pool,
        regions: Vec::new(),
    };
    for &index in &candidate.reads {
        if let Some(item) = source.message.items().get(index)
            && let Position::At(position) = item.position
        {
            memory.read(position, item.data.pieces());
        }
    }
    if let Err(error) = memory.results(&candidate.write_chunks, candidate.reply_chunk) {
        return Err((error, Box::new(source)));
    }
    Ok(Prepared {
        payload: CallPayload::Inline,
        gather: Segments::new(),
        regions: memory.regions,
        send_len: 0,
        source: None,
        by_extension: Some(Box::new(ByExtension {
            by,
            plan: Some(candidate.plan),
            transmissions: candidate.cost.transmissions.max(1),
            receives: candidate.cost.receives,
            source,
        })),
        barred: false,
    })
}

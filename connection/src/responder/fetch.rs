//! Fetches the read chunks of a call.

use onc_rpc::{BulkItem, Message, Position};
use rdma::{Buf, Pool, PoolExhausted};
use rpcrdma_chunks::{ReadChunk, Segment};
use rpcrdma_host::Account;
use smallvec::SmallVec;

use crate::memory;

/// The reason why there is no memory for the chunks of a call.
#[derive(Debug)]
pub(super) enum FetchError {
    /// There may be memory when other calls have ended.
    Later,
    /// The pool is too small for this call.
    Never(PoolExhausted),
}

/// An RDMA Read to start.
#[derive(Debug)]
pub(super) struct FetchRead {
    pub(super) chunk: usize,
    pub(super) piece: usize,
    pub(super) sink: Buf,
    pub(super) segment: Segment,
}

/// A chunk that is being fetched. Its memory is one buffer, cut at the boundaries of the segments.
#[derive(Debug)]
struct Fetched {
    chunk: ReadChunk,
    pieces: SmallVec<[Option<Buf>; 2]>,
}

/// A call whose chunks are being fetched, as far as it has arrived.
#[derive(Debug)]
pub(super) struct Fetch {
    /// The inline payload, and items that came with it.
    message: Message,
    /// Whether the first chunk is the payload (a Long Call).
    long: bool,
    chunks: SmallVec<[Fetched; 1]>,
    /// The number of RDMA Reads that have not completed.
    left: usize,
}

impl Fetch {
    pub(super) fn new(message: Message, long: Option<ReadChunk>, items: Vec<ReadChunk>) -> Self {
        let fetched = |chunk: ReadChunk| Fetched {
            chunk,
            pieces: SmallVec::new(),
        };
        Self {
            message,
            long: long.is_some(),
            chunks: long.into_iter().chain(items).map(fetched).collect(),
            left: 0,
        }
    }

    /// Returns the number of bytes of the chunks that are to be fetched.
    pub(super) fn bytes_to_fetch(&self) -> u64 {
        let lengths = self
            .chunks
            .iter()
            .map(|fetched| u64::from(fetched.chunk.length));
        lengths.sum()
    }

    /// Returns the number of bytes of pool memory that the chunks take when they are fetched.
    pub(super) fn memory_needed(&self) -> usize {
        let chunks = self.chunks.iter().map(|fetched| &fetched.chunk);
        let fetched = chunks.filter(|chunk| !chunk.segments.is_empty());
        fetched
            .map(|chunk| Pool::block_size(chunk.length as usize))
            .sum()
    }

    /// Allocates memory for all chunks, or for none, and returns the RDMA Reads to start.
    ///
    /// # Errors
    /// There is not enough memory; [`FetchError`] says whether to try again.
    pub(super) fn allocate(&mut self, pool: &Pool) -> Result<SmallVec<[FetchRead; 2]>, FetchError> {
        let largest = pool.account().map_or(usize::MAX, Account::largest);
        // Waiting would not help: no connection ever gets so much at once.
        if self.memory_needed() > largest {
            return Err(FetchError::Never(PoolExhausted {
                wanted: self.memory_needed(),
                in_use: pool.in_use(),
                limit: largest,
            }));
        }
        let mut reads = SmallVec::new();
        for (index, fetched) in self.chunks.iter_mut().enumerate() {
            let chunk = &fetched.chunk;
            if chunk.segments.is_empty() {
                continue;
            }
            // One buffer for each chunk, cut at the ends of segments. When the pieces are filled,
            // they are joined again without a copy.
            let mut rest = pool.alloc(chunk.length as usize).map_err(|error| {
                if error.wanted > error.limit {
                    FetchError::Never(error)
                } else {
                    FetchError::Later
                }
            })?;
            for (piece, &segment) in chunk.segments.iter().enumerate() {
                let next = rest.split_off(segment.length as usize);
                reads.push(FetchRead {
                    chunk: index,
                    piece,
                    sink: std::mem::replace(&mut rest, next),
                    segment,
                });
            }
        }
        // Only now that there is memory for all chunks. Before, a call that has to wait would have
        // kept a part.
        for fetched in &mut self.chunks {
            fetched.pieces = fetched.chunk.segments.iter().map(|_| None).collect();
        }
        self.left = reads.len();
        Ok(reads)
    }

    /// Records that an RDMA Read has completed. Returns whether it was the last one of the call.
    pub(super) fn read_arrived(&mut self, chunk: usize, piece: usize, sink: Buf) -> bool {
        let slot = self
            .chunks
            .get_mut(chunk)
            .and_then(|chunk| chunk.pieces.get_mut(piece));
        // A Read that a driver reports twice counts once.
        if let Some(slot @ None) = slot {
            *slot = Some(sink);
            self.left -= 1;
            return self.left == 0;
        }
        false
    }

    /// Returns the whole call.
    pub(super) fn into_message(self) -> Message {
        if self.chunks.is_empty() {
            return self.message;
        }
        let joined = |fetched: Fetched| BulkItem {
            position: Position::At(fetched.chunk.position),
            data: memory::gathered(
                fetched.pieces.into_iter().flatten(),
                u64::from(fetched.chunk.length),
            ),
        };
        let mut fetched = self.chunks.into_iter().map(joined);
        let long = if self.long { fetched.next() } else { None };
        let extras = self.message.extras().clone();
        let payload = long.map_or_else(
            || self.message.payload().clone(),
            |item| item.data.into_segments(),
        );
        if self.message.items().is_empty() {
            return Message::new(payload, fetched).with_extras(extras);
        }
        // Some items came with the call, others were fetched.
        let mut items = self.message.items().to_vec();
        items.extend(fetched);
        items.sort_by_key(|item| match item.position {
            Position::At(position) => position,
            Position::InOrder | Position::InOrderOrInline => u32::MAX,
        });
        Message::new(payload, items).with_extras(extras)
    }
}

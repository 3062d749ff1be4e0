//! Checks of the chunk lists of a header, for both versions.

use onc_rpc::padded;
use rpcrdma_v1::{CallChunks, Chunks, chunk_len, limits};

/// The maximum length of a call, in bytes.
pub(crate) const MAX_CALL: u64 = 1 << 20;

/// Returns the maximum number of heap bytes that decoding `len` bytes may hold. Lists grow by
/// doubling, and a write chunk takes more memory than its 8 bytes on the wire.
pub(crate) const fn most(len: usize) -> usize {
    1024 + 16 * len
}

pub(crate) fn within_limits(chunks: &Chunks) {
    assert!(chunks.reads.len() <= limits::MAX_READ_SEGMENTS);
    assert!(chunks.writes.len() <= limits::MAX_WRITE_CHUNKS);
    let lists = chunks.writes.iter().chain(&chunks.reply);
    assert!(
        lists
            .into_iter()
            .all(|chunk| chunk.len() <= limits::MAX_CHUNK_SEGMENTS)
    );
}

/// Checks that the chunks that a responder must fetch for a call are within its limit, and that
/// each has a position in the message.
pub(crate) fn fetchable(call: &CallChunks) {
    let mut end = 0;
    for chunk in &call.items {
        let position = u64::from(chunk.position);
        assert!(
            position >= end && position > 0 && position % 4 == 0,
            "places overlap"
        );
        end = position + padded(u64::from(chunk.length));
    }
    for chunk in call.payload.iter().chain(&call.items) {
        assert_eq!(chunk_len(&chunk.segments), u64::from(chunk.length));
        for segment in &chunk.segments {
            assert!(segment.length > 0);
            assert!(
                segment
                    .offset
                    .checked_add(u64::from(segment.length))
                    .is_some()
            );
        }
    }
    // What it makes the responder fetch is bounded, and with it the whole message.
    assert!(
        call.read_len() + 3 * call.items.len() as u64 <= MAX_CALL + 3 * call.items.len() as u64
    );
    assert!(end <= MAX_CALL);
}

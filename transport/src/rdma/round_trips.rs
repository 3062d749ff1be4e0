//! What an end does to spare round trips (rtrext-00): how its receives are made up, and what its
//! extension is told.

use rpcrdma_ext_continuation::{Config, Features};
use rpcrdma_ext_send_ddp::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};

use super::conversation::Setup;
use super::{ReceiveSegment, ReceiveStructure};

/// Bytes of the first segment of receives that bulk data is placed in: room for the header and for
/// what surrounds the data in common calls. What is longer goes on into the next segment.
const HEAD: u32 = 1024;
/// Bytes of the segment for bulk data: a mebibyte goes in 16 transmissions.
const TARGET: u32 = 64 << 10;
/// What file systems and page caches want.
const PAGE: u32 = 4096;
/// Transmissions of a message, at most: 4 MiB of bulk data go in them.
const MAX_TRANSMISSIONS: u32 = 64;
/// Longest transmission to send, bytes, whatever the peer can receive.
const MAX_TRANSMISSION: u32 = 1 << 20;

/// Receives that bulk data can be placed in, and that hold messages of `plain` bytes.
pub(super) fn placing(plain: u32) -> ReceiveStructure {
    let target = plain.saturating_sub(HEAD).max(TARGET);
    let segment = |len, align, ddp| ReceiveSegment { len, align, ddp };
    let segments = [segment(HEAD, 1, false), segment(target, PAGE, true)];
    ReceiveStructure::new(segments).unwrap_or_else(|_| ReceiveStructure::plain(plain as usize))
}

/// The same receives for messages of `size` bytes: longer ones get a tail, shorter ones stay as they
/// are, so that what a sender knows of segments holds all the while.
pub(super) fn resized(receives: &ReceiveStructure, size: u32) -> ReceiveStructure {
    let placing = receives.segments().iter().any(|segment| segment.ddp);
    if !placing {
        return ReceiveStructure::plain(size as usize);
    }
    let more = u64::from(size).saturating_sub(receives.size() as u64);
    let tail = (more > 0).then(|| ReceiveSegment {
        len: u32::try_from(more).unwrap_or(u32::MAX),
        align: 1,
        ddp: false,
    });
    let segments = receives.segments().iter().copied().chain(tail);
    ReceiveStructure::new(segments).unwrap_or_else(|_| receives.clone())
}

/// As the peer is told of it.
fn told(receives: &ReceiveStructure) -> BufferStructure {
    BufferStructure::new(receives.segments().iter().map(|segment| SegmentGroup {
        count: 1,
        segment: BufferSegment {
            length: segment.len,
            align: segment.align,
            flags: match segment.ddp {
                true => SegmentFlags::DDP,
                false => SegmentFlags::empty(),
            },
        },
    }))
}

/// Longest message that an end sends which would otherwise send `inline` bytes: where it places bulk
/// data, as much as the peer has room for.
pub(super) fn max_send(features: Features, inline: u32) -> u32 {
    match features.ddp.send {
        true => inline.max(MAX_TRANSMISSION),
        false => inline,
    }
}

/// Transmissions whose receives the parts of a call can hold until it is whole, with so many credits.
pub(super) fn held_by_a_call(features: Features, credits: u32) -> u32 {
    match features.cont.receive {
        true => credits.clamp(1, MAX_TRANSMISSIONS),
        false => 0,
    }
}

/// What the extension of a connection is told; nothing where it would be of no use.
pub(super) fn config(setup: &Setup) -> Option<Config> {
    let options = &setup.options;
    let features = options.features;
    (!features.is_none()).then(|| Config {
        features,
        structure: told(&setup.receives),
        request_limit: options.credits.clamp(1, MAX_TRANSMISSIONS),
        response_limit: MAX_TRANSMISSIONS,
        min_placed: options.costs.worth_placing(HEAD),
        max_message: u64::from(options.max_message),
        max_send: setup.max_send(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_for_placement_grow_by_a_tail_and_never_lose_a_segment() {
        let receives = placing(4096);
        assert_eq!(receives.size() as u32, HEAD + TARGET);
        assert!(receives.segments()[1].ddp);
        assert_eq!(resized(&receives, 4096), receives);
        let longer = resized(&receives, HEAD + TARGET + 4096);
        assert_eq!(longer.size() as u32, HEAD + TARGET + 4096);
        assert_eq!(longer.segments()[..2], *receives.segments());
        assert!(!longer.segments()[2].ddp);
        let plain = ReceiveStructure::plain(4096);
        assert_eq!(resized(&plain, 1024), ReceiveStructure::plain(1024));
        let long = placing(256 << 10);
        assert_eq!(long.size(), 256 << 10);
    }
}

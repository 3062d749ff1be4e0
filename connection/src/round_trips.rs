//! The features by which an end saves round trips (rtrext-00): the structure of its receives, and
//! the configuration of its extension.

use rpcrdma_ext_continuation::{Config, Features};
use rpcrdma_ext_send_ddp::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};
use rpcrdma_ext_wg_ddp::Config as PlacementConfig;
use rpcrdma_v2::Side;

use crate::dialect::MAX_SEGMENTS;
use crate::{Config as ConnectionConfig, ReceiveSegment, ReceiveStructure};

/// Length of the first segment of receives with placement, bytes: room for the header, and for the
/// rest of the message around the bulk data in common calls. Anything longer continues in the next
/// segment.
const HEAD: u32 = 1024;
/// The default of [`Options::least_placement`](crate::Options::least_placement), in bytes: 1 MiB takes
/// 16 transmissions.
pub(crate) const TARGET: u32 = 64 << 10;
/// Alignment of the segment for bulk data in bytes: a page, as file systems and page caches need
/// it.
const PAGE: u32 = 4096;
/// The maximum number of transmissions of a message: enough for 4 MiB of bulk data.
const MAX_TRANSMISSIONS: u32 = 64;
/// Maximum length of a transmission to send, in bytes, even if the peer's receives are longer.
const MAX_TRANSMISSION: u32 = 1 << 20;

/// Returns the structure of receives that hold messages of `plain` bytes and that bulk data can be
/// placed in: at least `target` bytes of it.
#[must_use]
pub(crate) fn placing(plain: u32, target: u32) -> ReceiveStructure {
    let target = plain.saturating_sub(HEAD).max(target);
    let segment = |len, align, ddp| ReceiveSegment { len, align, ddp };
    let segments = [segment(HEAD, 1, false), segment(target, PAGE, true)];
    ReceiveStructure::new(segments).unwrap_or_else(|_| ReceiveStructure::plain(plain as usize))
}

/// Returns `receives` enlarged for messages of `size` bytes. Receives with placement get one more
/// segment if they are too short; their first segments never change, because the peer has been told
/// of them.
#[must_use]
pub fn resized(receives: &ReceiveStructure, size: u32) -> ReceiveStructure {
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

/// Returns the structure in the form that is announced to the peer.
fn announced(receives: &ReceiveStructure) -> BufferStructure {
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

/// Returns the length of the longest message to send, in bytes: `inline`, or
/// [`MAX_TRANSMISSION`] if that is longer and this end places bulk data.
pub(crate) fn max_send(features: Features, inline: u32) -> u32 {
    match features.ddp.send {
        true => inline.max(MAX_TRANSMISSION),
        false => inline,
    }
}

/// Returns the maximum number of receives that the transmissions of one incomplete call can hold if
/// `credits` are granted.
#[must_use]
pub fn held_by_a_call(features: Features, credits: u32) -> u32 {
    match features.cont.receive {
        true => credits.clamp(1, MAX_TRANSMISSIONS),
        false => 0,
    }
}

/// Returns the configuration of send-based data placement in the working group's version 2, or
/// `None` if this end has none.
pub(crate) fn placement(config: &ConnectionConfig) -> Option<PlacementConfig> {
    let options = &config.options;
    let ddp = options.features.ddp;
    let (side, callbacks) = (config.role.side(), options.callbacks);
    (ddp.send || ddp.receive).then(|| PlacementConfig {
        makes_calls: side == Side::Client || config.callbacks > 0,
        takes_calls: side == Side::Server || config.callbacks > 0 && callbacks.chunks,
        send: ddp.send,
        receive: ddp.receive,
        offer_invalidation: options.remote_invalidation,
        structure: announced(&config.receives),
        min_placed: options.costs.min_placed_len(HEAD),
        max_message: u64::from(options.max_message),
        max_segments: MAX_SEGMENTS,
    })
}

/// Returns the configuration of the extension, or `None` if this end has none of its features.
pub(crate) fn config(config: &ConnectionConfig) -> Option<Config> {
    let options = &config.options;
    let features = options.features;
    (!features.is_none()).then(|| Config {
        features,
        // Calls from server to client come by the base protocol alone.
        takes_calls: config.role.side() == Side::Server,
        structure: announced(&config.receives),
        // A continued call takes a credit, and a posted receive, for each transmission.
        request_limit: config.credits.clamp(1, MAX_TRANSMISSIONS),
        response_limit: MAX_TRANSMISSIONS,
        min_placed: options.costs.min_placed_len(HEAD),
        max_message: u64::from(options.max_message),
        max_send: config.max_send(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_for_placement_grow_by_a_tail_and_never_lose_a_segment() {
        let receives = placing(4096, TARGET);
        assert_eq!(receives.size() as u32, HEAD + TARGET);
        assert!(receives.segments()[1].ddp);
        assert_eq!(resized(&receives, 4096), receives);
        let longer = resized(&receives, HEAD + TARGET + 4096);
        assert_eq!(longer.size() as u32, HEAD + TARGET + 4096);
        assert_eq!(longer.segments()[..2], *receives.segments());
        assert!(!longer.segments()[2].ddp);
        let plain = ReceiveStructure::plain(4096);
        assert_eq!(resized(&plain, 1024), ReceiveStructure::plain(1024));
        let long = placing(256 << 10, TARGET);
        assert_eq!(long.size(), 256 << 10);
        for size in [4096, 8192] {
            assert_eq!(placing(size, 0).size(), size as usize);
        }
        // No segment is empty.
        assert_eq!(placing(HEAD, 0), ReceiveStructure::plain(HEAD as usize));
    }
}

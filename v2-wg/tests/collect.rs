//! The memory of messages in several parts.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use onc_rpc::Segments;
use rpcrdma_chunks::Side;
use rpcrdma_v2_wg::base::{Base, Config};
use rpcrdma_v2_wg::{Direction, Properties};

const MESSAGE: usize = 1 << 20;
const RECEIVE: u32 = 66_560;

fn base() -> Base {
    Base::new(Config {
        side: Side::Server,
        properties: Properties {
            receive_size: RECEIVE,
            ..Properties::default()
        },
        offer_invalidation: true,
        can_invalidate: true,
        max_message: MESSAGE as u64,
    })
}

/// Passes a message in parts of `len` bytes, each in two pieces as it lies in its receive. Returns
/// the most memory that the parts took, and how many bytes were copied.
fn in_parts(len: usize) -> (usize, u64) {
    let message: Vec<u8> = (0..MESSAGE).map(|n| (n % 251) as u8).collect();
    let mut base = base();
    let mut most = 0;
    let mut left = &message[..];
    let segments = |part: &[u8]| -> Segments {
        let (head, target) = part.split_at(part.len().min(1000));
        let pieces = [head, target].map(bytes::Bytes::copy_from_slice);
        pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .collect()
    };
    while left.len() > len {
        let (part, rest) = left.split_at(len);
        let remaining = rest.len() as u32;
        base.collect(Direction::Call, 1, remaining, segments(part))
            .unwrap();
        most = most.max(base.collected_bytes());
        left = rest;
    }
    let finished = base.finish(segments(left)).unwrap();
    assert_eq!(finished.concat(), message, "parts of {len} bytes");
    assert_eq!(base.collected_bytes(), 0);
    (most, base.copied_bytes())
}

/// A part that reaches into a receive's long segment by few bytes does not hold it.
#[test]
fn a_message_in_short_parts_takes_little_more_memory_than_its_bytes() {
    for len in [4, 100, 1040, 4096, 20_000, 33_279] {
        let (most, copied) = in_parts(len);
        assert!(most <= 2 * MESSAGE, "{most} bytes in parts of {len}");
        assert!(copied > (MESSAGE - 2 * len) as u64, "{copied} bytes copied");
    }
}

#[test]
fn parts_that_fill_half_of_a_receive_are_not_copied() {
    for len in [33_280, 40_000, 66_000] {
        let (most, copied) = in_parts(len);
        assert_eq!(copied, 0);
        let parts = (MESSAGE - 1) / len;
        assert_eq!(most, parts * RECEIVE as usize, "parts of {len}");
    }
}

/// Short and long parts in any order.
#[test]
fn short_parts_between_long_ones_keep_their_place() {
    let mut base = base();
    let lens = [10, 40_000, 8, 8, 50_000, 60_000, 4];
    let total: usize = lens.iter().sum();
    let message: Vec<u8> = (0..total + 4).map(|n| (n % 253) as u8).collect();
    let mut at = 0;
    for len in lens {
        let part = Segments::from_iter([bytes::Bytes::copy_from_slice(&message[at..at + len])]);
        at += len;
        let remaining = (message.len() - at) as u32;
        base.collect(Direction::Reply, 7, remaining, part).unwrap();
    }
    let last = Segments::from_iter([bytes::Bytes::copy_from_slice(&message[at..])]);
    let finished = base.finish(last).unwrap();
    assert_eq!(finished.concat(), message);
    assert_eq!(base.copied_bytes(), 10 + 8 + 8 + 4);
}

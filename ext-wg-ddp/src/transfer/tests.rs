//! Tests of reply plans whose length is at the limit of a connection.

use bytes::Bytes;
use onc_rpc::BulkItem;
use rpcrdma_extension::layout::BufferStructure;
use transfer_plan::{ChunkCounts, ChunkLimits, Limits};

use super::*;
use crate::Config;

#[test]
fn a_reply_that_is_longer_than_allowed_is_not_placed() {
    let structure = BufferStructure::with_placement(1024, 1, 8192);
    let mut server = Placement::new(Config {
        makes_calls: false,
        takes_calls: true,
        send: true,
        receive: true,
        offer_invalidation: true,
        structure: structure.clone(),
        min_placed: 64,
        max_message: 1 << 16,
        max_segments: 256,
    });
    server.peer.receive_size = structure.sum() as u32;
    server.peer.structure = Some(structure.clone());
    server.peer.smallest_result = 64;
    let item = BulkItem {
        position: Position::At(24),
        data: Bytes::from_static(&[1; 1000]).into(),
    };
    let message = Message::new([Bytes::from_static(&[0; 24])].into_iter().collect(), [item]);
    let shape = Shape::of(&message).unwrap();
    for (max_message, placed) in [(1024, true), (1023, false)] {
        let limits = Limits {
            inline_send: structure.sum(),
            inline_receive: structure.sum(),
            max_segment: 1 << 20,
            max_message,
            chunks: ChunkLimits::default(),
            call_chunk: false,
            header_len: |_: &ChunkCounts| 32,
        };
        let reply = ReplyToPlan {
            shape: &shape,
            credits: 4,
            limits: &limits,
            context: &(),
        };
        let candidate = server.plan_base_reply(&reply, &[]);
        assert_eq!(candidate.is_some(), placed, "{max_message}");
    }
}

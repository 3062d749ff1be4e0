//! Tests of plans: their limits, how long they hold, and layouts that have to be made again.

use bytes::Bytes;
use onc_rpc::{BulkItem, Extras, Position};
use rpcrdma_chunks::{Reader, Segment, Side};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_extension::{Extensions, Property};
use transfer_plan::{ChunkCounts, ChunkLimits, Limits, ReplyNeed};

use super::*;
use crate::{Config, Support, property_id, smallest_result_value};

/// Returns an end of a connection whose peer has the same receives, and takes and places everything.
fn end(structure: &BufferStructure, is_client: bool) -> Placement {
    let mut end = Placement::new(Config {
        makes_calls: is_client,
        takes_calls: !is_client,
        send: true,
        receive: true,
        offer_invalidation: true,
        structure: structure.clone(),
        min_placed: 64,
        max_message: 1 << 16,
        max_segments: 256,
    });
    end.peer.receive_size = structure.sum() as u32;
    end.peer.structure = Some(structure.clone());
    end.peer.smallest_result = 64;
    end.peer.support = Support::CALLS;
    end
}

fn structure() -> BufferStructure {
    BufferStructure::with_placement(1024, 1, 8192)
}

fn limits(inline: u64, max_message: u64) -> Limits {
    Limits {
        inline_send: inline,
        inline_receive: inline,
        max_segment: 1 << 20,
        max_message,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len: |_: &ChunkCounts| 32,
    }
}

/// Returns a message with an item of `len` bytes.
fn message(len: usize) -> Message {
    let item = BulkItem {
        position: Position::At(24),
        data: Bytes::from(vec![1; len]).into(),
    };
    Message::new([Bytes::from_static(&[0; 24])].into_iter().collect(), [item])
}

#[test]
fn a_reply_that_is_longer_than_allowed_is_not_placed() {
    let structure = structure();
    let mut server = end(&structure, false);
    let shape = Shape::of(&message(1000)).unwrap();
    for (max_message, placed) in [(1024, true), (1023, false)] {
        let reply = ReplyToPlan {
            shape: &shape,
            credits: 4,
            limits: &limits(structure.sum(), max_message),
            context: &(),
        };
        let candidate = server.plan_base_reply(&reply, &[]);
        assert_eq!(candidate.is_some(), placed, "{max_message}");
    }
}

/// Returns the extensions of a connection with this one.
fn connection(end: Placement) -> Extensions {
    let side = match end.config.makes_calls {
        true => Side::Client,
        false => Side::Server,
    };
    Extensions::new(side, 1, vec![Box::new(end)]).unwrap()
}

/// Has the peer announce a property whose value is 64.
fn announce(connection: &mut Extensions, id: u32) {
    let value = smallest_result_value(64);
    connection.with_version_outbox(|out| out.share_property(Property { id, value }));
}

/// The engine repeats its choice without comparing costs while it gets the same plan.
#[test]
fn replies_that_are_alike_have_one_plan_until_the_peer_announces_something() {
    let structure = structure();
    let mut server = connection(end(&structure, false));
    let limits = limits(structure.sum(), 1 << 16);
    let plan = |server: &mut Extensions, len: usize, credits: u32, offered: &[WriteChunk]| {
        let reply = ReplyToPlan {
            shape: &Shape::of(&message(len)).unwrap(),
            credits,
            limits: &limits,
            context: &(),
        };
        let mode = server.transfer_mode(0).unwrap();
        let candidate = mode.plan_base_reply(&reply, offered);
        candidate.map(|candidate| candidate.plan)
    };
    let first = plan(&mut server, 9000, 8, &[]).unwrap();
    let is_first = |plan: Option<Arc<dyn Planned>>| Arc::ptr_eq(&plan.unwrap(), &first);
    assert!(is_first(plan(&mut server, 9000, 2, &[])));
    assert!(plan(&mut server, 9000, 1, &[]).is_none(), "it takes two");
    assert!(is_first(plan(&mut server, 9000, 8, &[])));
    // The requester wants the item inline.
    let empty = [WriteChunk::new()];
    assert!(plan(&mut server, 9000, 8, &empty).is_none());
    assert!(!is_first(plan(&mut server, 8996, 8, &[])));
    let again = plan(&mut server, 9000, 8, &[]).unwrap();
    announce(&mut server, property_id::SMALLEST_RESULT);
    let other = plan(&mut server, 9000, 8, &[]).unwrap();
    assert!(!Arc::ptr_eq(&again, &other));
}

#[test]
fn calls_are_planned_again_when_the_peer_has_announced_or_refused_something() {
    let mut client = connection(end(&structure(), true));
    let state = |client: &mut Extensions| client.transfer_mode(0).unwrap().plan_state();
    let mut states = vec![state(&mut client)];
    announce(&mut client, rpcrdma_v2_wg::property_id::RECEIVE_SIZE);
    states.push(state(&mut client));
    let mode = client.transfer_mode(0).unwrap();
    mode.call_refused(1, PeerError::Chunk);
    assert_eq!(states.last(), Some(&mode.plan_state()));
    mode.call_refused(1, PeerError::UnsupportedType);
    states.push(mode.plan_state());
    mode.reply_refused();
    states.push(mode.plan_state());
    assert!(states.iter().all(Option::is_some));
    assert!((1..states.len()).all(|at| !states[..at].contains(&states[at])));
    announce(&mut client, 0xffff);
    assert_eq!(states.last(), Some(&state(&mut client)));
}

/// A chunk can have more segments than planned, if its memory lies in several pieces. The header is
/// longer then, and leaves less room for the payload before the placed data.
#[test]
fn a_call_with_longer_lists_than_planned_is_laid_out_again() {
    let structure = structure();
    let mut client = end(&structure, true);
    let message = message(5000);
    let need = ReplyNeed::new(24, [1 << 14]);
    let call = CallToPlan {
        shape: &Shape::of(&message).unwrap(),
        need: &need,
        extras: &Extras::NONE,
        limits: &limits(structure.sum(), 1 << 16),
        credits: 8,
        reply_credits: 8,
        reservable: 0,
    };
    let mut candidates = client.plan_call(&call).into_iter();
    let with_chunk = |candidate: &CallCandidate| candidate.write_chunks[..] == [1 << 14];
    let candidate = candidates.find(with_chunk).unwrap();
    for segments in [1, 2, 1] {
        let segment = |handle| Segment {
            handle,
            length: (1 << 14) / segments,
            offset: 0,
        };
        let chunks = Chunks {
            writes: vec![(1..=segments).map(segment).collect()],
            ..Chunks::default()
        };
        let sent = client.send_call(7, &*candidate.plan, &message, &chunks);
        let sent = sent.unwrap();
        let [only] = &sent[..] else {
            panic!("{} messages", sent.len());
        };
        let fields = CallPlaced::decode(&mut Reader::new(&only.fields)).unwrap();
        assert_eq!(fields.chunks, chunks);
        let header = PREFIX_LEN + only.fields.len();
        assert_eq!(header + 24 + only.padding as usize, 1024);
        assert_eq!(only.placed.concat().len(), 5000);
    }
    // Another message than the planned one.
    let other = self::message(5001);
    let chunks = Chunks::default();
    assert!(
        client
            .send_call(7, &*candidate.plan, &other, &chunks)
            .is_err()
    );
}

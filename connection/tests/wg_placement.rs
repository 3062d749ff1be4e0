//! Tests of send-based data placement in version 2 of the working group: the message flows, and
//! what an end takes and refuses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_connection::{CallbackOptions, Options, ReplyRoom};
use rpcrdma_ext_wg_ddp::header_type::{
    CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE,
};
use rpcrdma_ext_wg_ddp::property_id;
use rpcrdma_negotiation::Version;
use rpcrdma_v2_wg::header_type::{CALL_INLINE, GRANT, REPLY_INLINE};
use rpcrdma_v2_wg::{Body, Chunks, ErrorBody, Header, Prefix, Properties, Property};
use support::{
    Endpoint, Pair, Sent, WgPeer, configs_with, data, encoded, inline_call, message, open, reply,
    room,
};

/// Returns a connection whose ends have these features.
fn connected(client: &str, server: &str, change: impl FnOnce(&mut Options, &mut Options)) -> Pair {
    Pair::echoing(configs_with(Version::TWO_WG, |ours, theirs| {
        ours.protocols = rpcrdma_protocols::standard(&client.parse().unwrap());
        theirs.protocols = rpcrdma_protocols::standard(&server.parse().unwrap());
        change(ours, theirs);
    }))
}

fn types(end: &Endpoint, from: usize) -> Vec<u32> {
    let sent = end.sent[from..].iter();
    let types = sent.map(|(message, _)| Prefix::peek(message).unwrap().header_type);
    types.filter(|&header_type| header_type != GRANT).collect()
}

/// What a call took: header types of the client's and the server's messages, registrations, RDMA
/// Reads and RDMA Writes.
type Went = (Vec<u32>, Vec<u32>, usize, usize, usize);

/// Makes a call with these items, which is answered with those.
fn exchange(pair: &mut Pair, items: &[Bytes], results: &[Bytes]) -> Went {
    let lens: Vec<usize> = results.iter().map(Bytes::len).collect();
    exchange_with(pair, items, results, &room(3, &lens))
}

fn exchange_with(pair: &mut Pair, items: &[Bytes], results: &[Bytes], needed: &ReplyRoom) -> Went {
    let before = (pair.client.sent.len(), pair.server.sent.len());
    let (registrations, written) = (pair.client.registrations, pair.server.written.len());
    pair.server.most_reads = 0;
    let (sent, answer) = (items.to_vec(), results.to_vec());
    pair.answer_with(move |call| {
        let (xid, _, items) = open(call);
        assert_eq!(items, sent);
        Some(reply(xid, 3, &answer))
    });
    let xid = 100 + before.0 as u32;
    let result = pair.call(message(xid, 5, items), needed).unwrap();
    assert_eq!(open(&result).2, results);
    assert!(pair.client.registered.is_empty(), "memory stays registered");
    (
        types(&pair.client, before.0),
        types(&pair.server, before.1),
        pair.client.registrations - registrations,
        pair.server.most_reads,
        pair.server.written.len() - written,
    )
}

/// A WRITE of 8 KiB takes one message each way, no registration and no RDMA Read.
#[test]
fn a_call_with_placed_data_takes_one_message() {
    let mut pair = connected("ddp", "ddp", |_, _| {});
    let went = exchange(&mut pair, &[data(1, 8192)], &[]);
    assert_eq!(went, (vec![CALL_PLACED], vec![REPLY_INLINE], 0, 0, 0));
    let sent = &pair.client.sent.last().unwrap().0;
    assert_eq!(sent.len(), 1024 + 8192, "it ends with its data");
    assert_eq!(
        sent[1024..],
        data(1, 8192),
        "data begin where a target begins"
    );
    assert!(
        sent[300..1024].iter().all(|&byte| byte == 0),
        "padding is zero"
    );
}

#[test]
fn a_long_call_with_placed_data_takes_several_messages() {
    let mut pair = connected("ddp", "ddp", |_, _| {});
    let went = exchange(&mut pair, &[data(1, 1 << 20)], &[]);
    let mut types = vec![CALL_PLACED_MIDDLE; 15];
    types.push(CALL_PLACED);
    assert_eq!(went, (types, vec![REPLY_INLINE], 0, 0, 0));
}

#[test]
fn results_are_placed_without_directions_in_the_call() {
    let mut pair = connected("ddp", "ddp", |_, _| {});
    let went = exchange(&mut pair, &[], &[data(1, 8192)]);
    assert_eq!(went, (vec![CALL_INLINE], vec![REPLY_PLACED], 0, 0, 0));
    let went = exchange(&mut pair, &[], &[data(1, 1 << 20)]);
    let mut types = vec![REPLY_PLACED_MIDDLE; 15];
    types.push(REPLY_PLACED);
    assert_eq!(went, (vec![CALL_INLINE], types, 0, 0, 0));
    // A result that is shorter than asked for stays in the payload.
    let needed = room(3, &[8192]);
    let went = exchange_with(&mut pair, &[], &[data(1, 100)], &needed);
    assert_eq!(went.1, [REPLY_INLINE]);
}

/// Nothing is gained by placing what is short: both ends spend more on it than on a copy.
#[test]
fn up_to_two_kibibytes_go_inline() {
    let mut pair = connected("ddp", "ddp", |_, _| {});
    for (len, placed) in [(2048, false), (2052, true)] {
        let (call, result) = match placed {
            true => (CALL_PLACED, REPLY_PLACED),
            false => (CALL_INLINE, REPLY_INLINE),
        };
        let went = exchange(&mut pair, &[data(1, len)], &[]);
        assert_eq!(went, (vec![call], vec![REPLY_INLINE], 0, 0, 0));
        let went = exchange(&mut pair, &[], &[data(2, len)]);
        assert_eq!(went, (vec![CALL_INLINE], vec![result], 0, 0, 0));
    }
}

#[test]
fn data_are_placed_both_ways_and_items_share_a_segment() {
    let mut pair = connected("ddp", "ddp", |_, _| {});
    let items = [data(1, 5000), data(2, 3001)];
    let went = exchange(&mut pair, &items, &items);
    assert_eq!(went, (vec![CALL_PLACED], vec![REPLY_PLACED], 0, 0, 0));
    let sent = &pair.client.sent.last().unwrap().0;
    assert_eq!(
        sent[1024 + 8192..],
        items[1],
        "the second begins at the next page"
    );
}

#[test]
fn placement_needs_both_ends_in_each_direction() {
    for (client, server, call, result) in [
        ("ddp", "none", false, false),
        ("none", "ddp", false, false),
        ("ddp:send", "ddp", true, false),
        ("ddp:receive", "ddp", false, true),
        ("ddp", "ddp:send", false, true),
        ("ddp", "ddp:receive", true, false),
    ] {
        let mut pair = connected(client, server, |_, _| {});
        let went = exchange(&mut pair, &[data(1, 400_000)], &[]);
        let placed = went.0.contains(&CALL_PLACED);
        assert_eq!(placed, call, "{client} {server}");
        let went = exchange(&mut pair, &[], &[data(1, 400_000)]);
        let placed = went.1.contains(&REPLY_PLACED);
        assert_eq!(placed, result, "{client} {server}");
    }
}

/// A value of another type is answered, and nothing of its message is applied (version-two-07,
/// sections 5.1 and 7.2.2). An end without the extension does not know the property.
#[test]
fn a_property_of_a_wrong_length_is_a_bad_value() {
    let announced = |id, value: &[u8]| {
        let mut set = Properties {
            receive_size: 8192,
            ..Properties::default()
        }
        .encode();
        let support = Property {
            id: property_id::SUPPORT,
            value: Bytes::copy_from_slice(&3u32.to_be_bytes()),
        };
        set.push(support);
        let value = Bytes::copy_from_slice(value);
        set.push(Property { id, value });
        set
    };
    // More groups than are kept.
    let many = [&65u32.to_be_bytes()[..], &[0; 65 * 16]].concat();
    let bad: [(u32, &[u8]); 6] = [
        (property_id::SUPPORT, &[0; 3]),
        (property_id::SUPPORT, &[0; 8]),
        (property_id::SMALLEST_RESULT, &[0]),
        (property_id::STRUCTURE, &[0; 7]),
        (property_id::STRUCTURE, &[0, 0, 0, 2, 0, 0, 0, 0]),
        (property_id::STRUCTURE, &many[..many.len() - 4]),
    ];
    // What the server sends behind its own properties, and its longest message after that.
    let answer = |set: Vec<Property>, change: fn(&mut Options)| {
        let mut peer = WgPeer::listening(|server| {
            change(server);
            server.inline_send = 16 << 10;
        });
        peer.properties(set, true);
        let mut sent = peer.taken();
        assert!(matches!(
            sent.remove(0),
            Body::Properties { last: true, .. }
        ));
        let before = peer.end.sent.len();
        peer.send_rpc(inline_call(Chunks::default()), &message(7, 1, &[]));
        peer.reply(Some(reply(7, 5000, &[])));
        let lengths = peer.end.sent[before..].iter().map(|(sent, _)| sent.len());
        (sent, lengths.max())
    };
    let refused = (vec![Body::Error(ErrorBody::BadPropertyValue)], Some(4096));
    let applied = (Vec::new(), Some(8192));
    for (id, value) in bad {
        let set = announced(id, value);
        assert_eq!(answer(set.clone(), placing), refused, "{id} {value:?}");
        assert_eq!(answer(set, |_| {}), applied, "{id} {value:?}");
    }
    let fine: [(u32, &[u8]); 4] = [
        (property_id::SUPPORT, &[]),
        (property_id::SMALLEST_RESULT, &[0; 4]),
        (property_id::STRUCTURE, &[0; 4]),
        (property_id::STRUCTURE, &many),
    ];
    for (id, value) in fine {
        let set = announced(id, value);
        assert_eq!(answer(set, placing), applied, "{id} {value:?}");
    }
}

fn placing(options: &mut Options) {
    options.protocols = rpcrdma_protocols::standard(&"ddp".parse().unwrap());
}

/// The first segment of a receive ends where the properties do, and the message goes on behind it.
#[test]
fn bytes_behind_properties_are_seen_wherever_they_begin() {
    for (behind, taken) in [(0, true), (4, false)] {
        let mut peer = WgPeer::listening(placing);
        let segments = peer.end.receives[0].lengths();
        assert_eq!(segments.into_iter().next(), Some(1024));
        let mut properties = Properties::default().encode();
        let credit = peer.flow.credit(100);
        let header = |properties: &[Property]| Header {
            xid: 7,
            credit,
            body: Body::Properties {
                last: true,
                properties: properties.to_vec(),
            },
        };
        // A property that is not known fills the segment.
        let (id, len) = (0xffff_ffee, 1024 - header(&properties).encoded_len() - 8);
        let value = Bytes::from(vec![0; len]);
        properties.push(Property { id, value });
        let message = encoded(&header(&properties), &vec![0; behind]);
        assert_eq!(message.len(), 1024 + behind);
        peer.send_bytes(&message);
        let sent = peer.take();
        let error = |sent: &Sent| match sent.header.body {
            Body::Error(error) => Some((sent.header.xid, error)),
            _ => None,
        };
        let errors: Vec<_> = sent.iter().filter_map(error).collect();
        match taken {
            true => assert_eq!(errors, []),
            false => assert_eq!(errors, [(7, ErrorBody::BadXdr)]),
        }
    }
}

/// Returns the properties of a server that places no results, so that calls with results wait for
/// the registration of a write chunk.
fn announced_without_results() -> Vec<Property> {
    let announced = WgPeer::announced_by_server(placing);
    let support = |property: Property| match property.id {
        property_id::SUPPORT => Property {
            value: Bytes::copy_from_slice(&1u32.to_be_bytes()),
            ..property
        },
        _ => property,
    };
    announced.into_iter().map(support).collect()
}

/// A placed call is planned and waits for a registration, while the server refuses another one.
#[test]
fn a_planned_placed_call_is_not_sent_by_a_type_refused_meanwhile() {
    for refused in [false, true] {
        let mut peer = WgPeer::client_announced(&announced_without_results(), placing);
        peer.end
            .call(message(1, 1, &[data(1, 8192)]), &room(1, &[]));
        peer.end.run();
        assert_eq!(types(&peer.end, 1), [CALL_PLACED]);
        peer.end
            .call(message(2, 1, &[data(1, 8192)]), &room(1, &[400_000]));
        peer.end.poll();
        assert_eq!(peer.end.registering.len(), 1);
        if refused {
            let (xid, credit) = (1, 100);
            let body = Body::Error(ErrorBody::InvalidHeaderType);
            let error = encoded(&Header { xid, credit, body }, &[]);
            peer.end.receive(&error, None).unwrap();
        }
        peer.end.run();
        let expected = match refused {
            false => vec![CALL_PLACED],
            true => vec![CALL_INLINE; 2],
        };
        assert_eq!(types(&peer.end, 2), expected);
    }
}

/// A call with placed data is planned, and then the peer can receive fewer messages than that.
#[test]
fn a_placed_call_does_not_begin_without_credits_for_all_parts() {
    let set = announced_without_results();
    for (left, expected) in [(100, vec![CALL_PLACED_MIDDLE; 16]), (15, vec![CALL_INLINE])] {
        let mut peer = WgPeer::client_announced(&set, placing);
        peer.end
            .call(message(1, 1, &[data(1, 1 << 20)]), &room(1, &[400_000]));
        peer.end.poll();
        let before = peer.end.sent.len();
        assert_eq!(peer.end.registering.len(), 1);
        // The server has received one message, the properties.
        let (xid, credit, body) = (0, 1 + left, Body::Grant);
        let grant = encoded(&Header { xid, credit, body }, &[]);
        peer.end.receive(&grant, None).unwrap();
        peer.end.run();
        let sent = types(&peer.end, before);
        assert_eq!(sent.len(), expected.len(), "{sent:?}");
        assert_eq!(sent[0], expected[0]);
    }
}

/// A grant counts as a message. The peer has used up half of what it may send, so that one is due,
/// but the call needs all credits that there are. Its messages tell the peer what a grant would.
#[test]
fn a_placed_call_with_no_credit_to_spare_is_sent_before_a_grant() {
    let announced = WgPeer::announced_by_server(placing);
    let few = |options: &mut Options| {
        placing(options);
        options.credits = 16;
    };
    let mut peer = WgPeer::client_announced(&announced, few);
    let before = peer.end.sent.len();
    let (xid, body) = (0, Body::Grant);
    for _ in 0..12 {
        // The server has received one message, the properties, and can take 16 more.
        let grant = Header {
            xid,
            credit: 1 + 16,
            body: body.clone(),
        };
        peer.end.receive(&encoded(&grant, &[]), None).unwrap();
    }
    peer.end
        .call(message(1, 1, &[data(1, 1 << 20)]), &room(1, &[]));
    peer.end.run();
    let sent = peer.end.sent[before..].iter();
    let sent: Vec<u32> = sent
        .map(|(message, _)| Prefix::peek(message).unwrap().header_type)
        .collect();
    let mut parts = vec![CALL_PLACED_MIDDLE; 15];
    parts.push(CALL_PLACED);
    assert_eq!(sent, parts);
}

/// A message is not begun before the peer can receive all of it.
#[test]
fn without_credits_for_all_parts_data_go_by_chunks() {
    let mut pair = connected("ddp", "ddp", |ours, theirs| {
        ours.credits = 8;
        theirs.credits = 8;
    });
    let went = exchange(&mut pair, &[data(1, 1 << 20)], &[]);
    assert_eq!((went.0, went.2, went.3), (vec![CALL_INLINE], 1, 1));
    let went = exchange(&mut pair, &[data(1, 100_000)], &[]);
    assert_eq!(went.0, [CALL_PLACED_MIDDLE, CALL_PLACED]);
}

/// The header of an 8 KiB write whose payload has 156 bytes without the data, as the draft shows it
/// (drafts/text/rpcrdma-v2-send-placement.xml).
#[rustfmt::skip]
const PLACED_CALL: [u32; 14] = [
    0x0000_0001, // rdma_xid
    0x0000_0002, // rdma_vers
    0x0000_0000, // rdma_credit
    0xffff_ff02, // rdma_htype: RDMA2_CALL_PLACED
    0x0000_0000, // rdma_inv_handle: none
    0x0000_0000, // rdma_reads: none
    0x0000_0000, // rdma_provisional_writes: none
    0x0000_0000, // rdma_provisional_reply: none
    0x0000_0001, // rdma_placed: one item
    0x0000_0098, // rdma_position: 152
    0x0000_2000, // rdma_length: 8192
    0x0000_0000, // rdma_segment: 0
    0x0000_0000, // rdma_offset: 0
    0x0000_009c, // rdma_payload_length: 156
];

/// The first header of a 1 MiB write with such a payload.
#[rustfmt::skip]
const PLACED_CALL_MIDDLE: [u32; 7] = [
    0x0000_0001, // rdma_xid
    0x0000_0002, // rdma_vers
    0x0000_0000, // rdma_credit
    0xffff_ff01, // rdma_htype: RDMA2_CALL_PLACED_MIDDLE
    0x0000_000f, // rdma_messages: 15 follow
    0x0000_0000, // rdma_remaining: none
    0x0000_009c, // rdma_payload_length: 156
];

/// The last header of the same write.
#[rustfmt::skip]
const PLACED_CALL_LAST: [u32; 14] = [
    0x0000_0001, // rdma_xid
    0x0000_0002, // rdma_vers
    0x0000_0000, // rdma_credit
    0xffff_ff02, // rdma_htype: RDMA2_CALL_PLACED
    0x0000_0000, // rdma_inv_handle: none
    0x0000_0000, // rdma_reads: none
    0x0000_0000, // rdma_provisional_writes: none
    0x0000_0000, // rdma_provisional_reply: none
    0x0000_0001, // rdma_placed: one item
    0x0000_0098, // rdma_position: 152
    0x0010_0000, // rdma_length: 1048576
    0x0000_0000, // rdma_segment: 0
    0x0000_0000, // rdma_offset: 0
    0x0000_0000, // rdma_payload_length: 0
];

/// The header of the reply to an 8 KiB read whose payload has 128 bytes without the data.
#[rustfmt::skip]
const PLACED_REPLY: [u32; 11] = [
    0x0000_0001, // rdma_xid
    0x0000_0002, // rdma_vers
    0x0000_0000, // rdma_credit
    0xffff_ff04, // rdma_htype: RDMA2_REPLY_PLACED
    0x0000_0000, // rdma_writes: none
    0x0000_0001, // rdma_placed: one item
    0x0000_007c, // rdma_position: 124
    0x0000_2000, // rdma_length: 8192
    0x0000_0000, // rdma_segment: 0
    0x0000_0000, // rdma_offset: 0
    0x0000_0080, // rdma_payload_length: 128
];

/// The structure of the receives in these examples, as it is announced.
#[rustfmt::skip]
const STRUCTURE: [u32; 11] = [
    0xffff_ff01, // rdma_which: RDMA2_PROPID_RBSTRUCT
    0x0000_0024, // rdma_data: 36 octets
    0x0000_0002, // two elements
    0x0000_0001, // rdma_count: 1
    0x0000_0400, // rdma_length: 1024
    0x0000_0001, // rdma_align: 1
    0x0000_0000, // rdma_flags: no target
    0x0000_0001, // rdma_count: 1
    0x0001_0000, // rdma_length: 65536
    0x0000_1000, // rdma_align: 4096
    0x0000_0001, // rdma_flags: RDMA2_RBUF_TARGET
];

/// Returns the first words of a message. XID and credits, which tell how far the connection has
/// come, are those of the examples.
fn words(message: &[u8], count: usize) -> Vec<u32> {
    let words = message.chunks_exact(4).take(count);
    let mut words: Vec<u32> = words
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    (words[0], words[2]) = (1, 0);
    words
}

#[test]
fn the_examples_of_the_draft_are_what_is_sent() {
    let mut pair = connected("ddp", "ddp", |_, _| {});
    let announced: Vec<u8> = STRUCTURE
        .iter()
        .copied()
        .flat_map(u32::to_be_bytes)
        .collect();
    for end in [&pair.client, &pair.server] {
        let properties = &end.sent[0].0;
        assert!(
            properties
                .windows(announced.len())
                .any(|part| part == announced)
        );
    }
    let sent = |pair: &mut Pair, length: usize| {
        let before = pair.client.sent.len();
        pair.answer_with(|call| Some(reply(open(call).0, 3, &[])));
        let xid = 100 + before as u32;
        let call = message(xid, 34, &[data(1, length)]);
        pair.call(call, &room(3, &[])).unwrap();
        let sent = pair.client.sent[before..].iter();
        let is_grant = |message: &Bytes| Prefix::peek(message).unwrap().header_type == GRANT;
        let messages = sent.map(|(message, _)| message.clone());
        messages
            .filter(|message| !is_grant(message))
            .collect::<Vec<_>>()
    };
    let short = sent(&mut pair, 8192);
    assert_eq!(short.len(), 1);
    assert_eq!(words(&short[0], 14), PLACED_CALL);
    assert_eq!(short[0].len(), 1024 + 8192);
    let long = sent(&mut pair, 1 << 20);
    assert_eq!(words(&long[0], 7), PLACED_CALL_MIDDLE);
    assert_eq!(words(long.last().unwrap(), 14), PLACED_CALL_LAST);
    assert_eq!(long.len(), 16);
    assert!(long.iter().all(|message| message.len() == 66560));

    let before = pair.server.sent.len();
    pair.answer_with(|call| Some(reply(open(call).0, 27, &[data(2, 8192)])));
    let xid = 100 + pair.client.sent.len() as u32;
    pair.call(message(xid, 3, &[]), &room(27, &[8192])).unwrap();
    let answer = &pair.server.sent[before].0;
    assert_eq!(words(answer, 11), PLACED_REPLY);
    assert_eq!(answer.len(), 1024 + 8192);
}

/// A client that takes calls with chunks takes placed ones, too, and its results are placed.
#[test]
fn data_are_placed_in_calls_to_a_client_and_their_replies() {
    for chunks in [true, false] {
        let mut pair = connected("ddp", "ddp", |client, server| {
            client.callbacks = CallbackOptions { credits: 4, chunks };
            server.callbacks = client.callbacks;
        });
        pair.answer_back = Some(Box::new(support::echo));
        let items = [data(1, 8192)];
        // Properties arrive with the first call.
        pair.call(message(1, 3, &items), &room(3, &[8192])).unwrap();
        let before = (pair.server.sent.len(), pair.client.sent.len());
        pair.server.call(message(1, 3, &items), &room(3, &[8192]));
        pair.settle();
        let (_, result) = pair.server.finished.pop().unwrap();
        assert_eq!(open(&result.unwrap()).2, items);
        assert_eq!(pair.server.registrations, 0);
        let went = (types(&pair.server, before.0), types(&pair.client, before.1));
        match chunks {
            true => assert_eq!(went, (vec![CALL_PLACED], vec![REPLY_PLACED])),
            false => assert!(!went.0.contains(&CALL_PLACED) && !went.1.contains(&REPLY_PLACED)),
        }
    }
}

/// Appendix B and section 6.5: a placed call offers the handle of its write chunk, unless this end
/// does not want handles to be invalidated by the peer.
#[test]
fn a_placed_call_offers_a_handle_only_where_that_is_wanted() {
    for wanted in [true, false] {
        // The server places no results, and registrations cost nothing, so the client offers a write
        // chunk for the result.
        let mut pair = connected("ddp:send", "ddp:receive", |client, _| {
            client.remote_invalidation = wanted;
            client.costs.registration = Duration::ZERO;
            client.costs.registration_page = Duration::ZERO;
        });
        let before = pair.server.sent.len();
        let went = exchange(&mut pair, &[data(1, 400_000)], &[data(2, 400_000)]);
        assert!(went.0.contains(&CALL_PLACED), "{went:?}");
        assert_eq!((went.2, went.4), (1, 1), "a write chunk: {went:?}");
        let invalidated = pair.server.sent[before..].iter();
        let invalidated = invalidated.filter_map(|(_, handle)| *handle).count();
        assert_eq!(invalidated, usize::from(wanted));
    }
}

/// A result that is too short to be placed can come in a reply that is too long for one message. A
/// responder that cannot continue it has to refuse it, once and not for each call.
#[test]
fn a_long_reply_that_was_refused_is_not_left_to_placement_again() {
    let set = WgPeer::announced_by_server(placing);
    let mut peer = WgPeer::client_announced(&set, placing);
    let long = ReplyRoom {
        idempotent: true,
        ..room(20_000, &[9000])
    };
    let call = |peer: &mut WgPeer, xid, room: &ReplyRoom| {
        peer.end.call(message(xid, 1, &[]), room);
    };
    let offered = |peer: &mut WgPeer| match peer.taken().remove(0) {
        Body::Call { chunks, .. } => (chunks.writes.len(), chunks.reply.is_some()),
        other => panic!("{other:?}"),
    };
    call(&mut peer, 1, &long);
    assert_eq!(offered(&mut peer), (0, false));
    let needed = 80_200;
    peer.send_error(1, ErrorBody::ReplyResource { needed });
    assert_eq!(offered(&mut peer), (1, true));
    call(&mut peer, 2, &long);
    assert_eq!(offered(&mut peer), (1, true));
    // Where a short result leaves a reply of one message, results are placed.
    call(&mut peer, 3, &room(1, &[9000]));
    assert_eq!(offered(&mut peer), (0, false));
}

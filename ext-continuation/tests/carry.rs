//! Calls and replies of many sizes, in every transfer mode, between ends with every combination of
//! features. The received message must equal the one sent.

mod common;

use common::{
    End, Planning, carry_call, carry_reply, config, encode, message, pair, pair_of,
    reply_candidates, stream,
};
use rpcrdma_ext_continuation::{Config, Continuation, Directions, Features, Request, Response};
use rpcrdma_ext_send_ddp::{Location, Support};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_extension::{CallCandidate, PeerError, Transmissions};
use rpcrdma_v2::operations::Routed;
use rpcrdma_v2::{Chunks, Direction};
use transfer_plan::ReplyNeed;

const XID: u32 = 0x0102_0304;

const FEATURES: [&str; 9] = [
    "none",
    "ddp",
    "cont",
    "ddp+cont",
    "ddp:send",
    "ddp:receive",
    "cont:send",
    "cont:receive",
    "ddp:send+cont:receive",
];

/// Length of the payload and of the items of a message.
type Size = (usize, &'static [usize]);

const CALLS: [Size; 9] = [
    (64, &[]),
    (156, &[8192]),
    (156, &[100]),
    (160, &[1000, 3, 5000]),
    (2000, &[8191]),
    (16_000, &[]),
    (65_536, &[]),
    (300, &[1 << 20]),
    (100_000, &[65_537, 1 << 19]),
];

/// Sizes of the longest reply, and of the reply actually sent.
const REPLIES: [(Size, Size); 8] = [
    ((64, &[]), (32, &[])),
    ((128, &[8192]), (128, &[8192])),
    ((128, &[8192]), (128, &[40])),
    ((128, &[1 << 20]), (120, &[4096])),
    ((128, &[1 << 20]), (128, &[1 << 20])),
    ((65_536, &[]), (65_536, &[])),
    ((65_536, &[]), (8000, &[])),
    ((3000, &[70_000, 300, 300]), (3000, &[69_999, 300])),
];

fn need((payload, items): Size) -> ReplyNeed {
    ReplyNeed::new(payload as u64, items.iter().map(|&len| len as u64))
}

/// Sends a call and its reply with each pair of candidates. Returns the number of candidates for
/// the call and for the replies.
fn all_ways(client: &mut End, server: &mut End, call: Size, reply: (Size, Size)) -> (usize, usize) {
    let call = message(XID, Direction::Call, call.0, call.1);
    let planning = Planning::new(client, &call, need(reply.0));
    let answer = message(XID, Direction::Reply, reply.1.0, reply.1.1);
    let (mut calls, mut replies) = (0, 0);
    for number in 0..planning.candidates(client).len() {
        let turn = |client: &mut End| planning.candidates(client).remove(number);
        let candidate = turn(client);
        let plan = candidate.plan.to_string();
        let reserved = candidate.cost.receives;
        let (incoming, whole, _, _) = carry_call(client, server, XID, &call, candidate);
        assert_eq!(stream(&whole), stream(&call), "{plan}");
        calls += 1;
        let ways = reply_candidates(server, &incoming, &answer).len();
        for way in 0..ways {
            // Each reply belongs to a call of its own.
            let candidate = turn(client);
            let (incoming, ..) = carry_call(client, server, XID, &call, candidate);
            let candidate = reply_candidates(server, &incoming, &answer).remove(way);
            assert!(candidate.cost.transmissions <= reserved + 1, "{plan}");
            let plan = candidate.plan.to_string();
            let (_, whole, _) = carry_reply(server, client, &incoming, &answer, candidate);
            assert_eq!(stream(&whole), stream(&answer), "{plan}");
            let mode = client
                .extensions
                .transfer_mode(1)
                .expect("it carries calls");
            mode.call_ended(XID);
            replies += 1;
        }
        // The responder must be able to use what the requester offered.
        assert!(ways > 0, "no way for the reply: {plan}");
    }
    (calls, replies)
}

#[test]
fn rtr_s5_every_message_arrives_whole_by_every_way_between_all_pairings() {
    for client in FEATURES {
        for server in FEATURES {
            let (mut a, mut b) = pair_of(client, server);
            let (mut calls, mut replies) = (0, 0);
            for call in CALLS {
                for reply in REPLIES {
                    let done = all_ways(&mut a, &mut b, call, reply);
                    (calls, replies) = (calls + done.0, replies + done.1);
                }
            }
            let none = client == "none" || server == "none";
            assert_eq!(calls == 0, none, "{client} to {server}");
            assert!(none || replies >= calls, "{client} to {server}");
        }
    }
}

/// A server may call its client: both directions work in the same way.
#[test]
fn rtr_s1_4_a_server_sends_calls_as_a_client_does() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    for call in CALLS {
        let (calls, replies) = all_ways(&mut server, &mut client, call, REPLIES[3]);
        assert!(calls > 0 && replies >= calls);
    }
}

/// An end that takes no calls, such as a client, says so and answers INVAL_OPTION to one that comes
/// nevertheless. Its own calls and their replies are as before.
#[test]
fn rtr_s1_4_an_end_that_takes_no_calls_says_so_and_refuses_them() {
    let call = message(XID, Direction::Call, 156, &[100_000]);
    let only_calls = Config {
        takes_calls: false,
        ..config("ddp+cont")
    };
    let (mut client, mut server) = pair(&only_calls, &config("ddp+cont"));
    let expected = Support::XRESP | Support::XCONT;
    assert_eq!(server.transmit().peer().support, expected);
    let planning = Planning::new(&server, &call, need((64, &[])));
    assert!(planning.candidates(&mut server).is_empty());
    // Another peer may not heed it.
    let (_, mut heedless) = pair_of("ddp+cont", "ddp+cont");
    let plan = planning.candidates(&mut heedless).remove(0).plan;
    let mode = heedless.extensions.transfer_mode(1);
    let mode = mode.expect("it carries calls");
    let sent = mode.send_call(XID, &*plan, &call, &Chunks::default());
    let sent = sent.expect("as planned");
    assert!(sent.len() > 1);
    for (number, sent) in sent.iter().enumerate() {
        let routed = client.receive(&encode(XID, Direction::Call, sent));
        match number {
            0 => assert_eq!(routed, Routed::Refused(PeerError::UnsupportedType)),
            _ => assert!(matches!(routed, Routed::Discarded(_)), "{routed:?}"),
        }
    }
    assert!(client.arrived.is_empty() && client.operations.is_empty());
    for call in CALLS {
        let (calls, replies) = all_ways(&mut client, &mut server, call, REPLIES[3]);
        assert!(calls > 0 && replies >= calls);
    }
}

fn by_name<'a>(found: &'a [CallCandidate], words: &[&str]) -> &'a CallCandidate {
    let names = |candidate: &&CallCandidate| {
        let plan = candidate.plan.to_string();
        words.iter().all(|word| plan.contains(word))
    };
    let mut found = found.iter().filter(names);
    let first = found.next();
    first.unwrap_or_else(|| panic!("none with {words:?}"))
}

#[test]
fn rtr_s3_3_a_write_of_eight_kilobytes_is_one_transmission_and_nothing_else() {
    let (mut client, mut server) = pair_of("ddp", "ddp");
    let call = message(XID, Direction::Call, 156, &[8192]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(136, []));
    let candidates = planning.candidates(&mut client);
    let placed = by_name(&candidates, &["item 0 placed"]);
    let cost = placed.cost;
    assert_eq!(
        (cost.transmissions, cost.receives, cost.unplaced),
        (1, 0, 0)
    );
    assert_eq!(cost.wire_bytes, 1024 + 8192);
    assert!(placed.reads.is_empty() && placed.write_chunks.is_empty());
    assert_eq!(
        placed.plan.to_string(),
        "call: 1 transmission (9216 B), payload 156 B, item 0 placed at 152 (8192 B); \
         reply: up to 1 transmission (<= 176 B)"
    );
    let candidate = planning.candidates(&mut client).remove(0);
    let (incoming, ..) = carry_call(&mut client, &mut server, XID, &call, candidate);
    // The item is in one piece, which is the segment for placement.
    let [item] = incoming.message.items() else {
        panic!("one item")
    };
    assert_eq!(item.data.len(), 8192);
}

#[test]
fn rtr_s4_2_a_mebibyte_each_way_takes_sixteen_transmissions_and_no_memory() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let write = message(XID, Direction::Call, 156, &[1 << 20]);
    let planning = Planning::new(&client, &write, ReplyNeed::new(136, []));
    let candidates = planning.candidates(&mut client);
    let placed = by_name(&candidates, &["item 0 placed"]);
    assert_eq!((placed.cost.transmissions, placed.cost.receives), (16, 0));
    assert!(placed.reads.is_empty() && placed.write_chunks.is_empty());

    let read = message(XID, Direction::Call, 112, &[]);
    let need = ReplyNeed::new(128, [1 << 20]);
    let planning = Planning::new(&client, &read, need);
    let candidates = planning.candidates(&mut client);
    let placed = by_name(
        &candidates,
        &["reply: up to 16 transmissions", "item 0 placed"],
    );
    assert_eq!((placed.cost.transmissions, placed.cost.receives), (1, 15));
    assert!(placed.reads.is_empty() && placed.write_chunks.is_empty());
    assert_eq!(placed.cost.reply_transmissions, 16);
    let at = candidates
        .iter()
        .position(|c| std::ptr::eq(c, placed))
        .expect("it is one of them");
    let candidate = planning.candidates(&mut client).remove(at);
    let (incoming, ..) = carry_call(&mut client, &mut server, XID, &read, candidate);
    let answer = message(XID, Direction::Reply, 128, &[1 << 20]);
    let reply = reply_candidates(&mut server, &incoming, &answer).remove(0);
    assert_eq!((reply.cost.transmissions, reply.cost.unplaced), (16, 0));
    assert!(reply.writes.is_empty());
}

#[test]
fn rtr_s4_2_a_long_call_and_a_long_reply_without_bulk_data_are_continued() {
    let (mut client, mut server) = pair_of("cont", "cont");
    let call = message(XID, Direction::Call, 65_536, &[]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(65_536, []));
    let candidate = planning.candidates(&mut client).remove(0);
    // With receives of 16 KiB, the headers make a fifth transmission necessary.
    assert_eq!(
        (candidate.cost.transmissions, candidate.cost.receives),
        (5, 4)
    );
    let (incoming, _, _, sent) = carry_call(&mut client, &mut server, XID, &call, candidate);
    numbered(&sent, 5, 5);
    let answer = message(XID, Direction::Reply, 65_536, &[]);
    let candidate = reply_candidates(&mut server, &incoming, &answer).remove(0);
    let (_, _, sent) = carry_reply(&mut server, &mut client, &incoming, &answer, candidate);
    numbered(&sent, 6, 5);
}

/// Checks a group against section 9.4: numbers from 1, the type of the first operation, and payload
/// lengths that add up.
fn numbered(sent: &Transmissions, initial: u32, count: usize) {
    assert_eq!((sent.len(), sent[0].number), (count, initial));
    let mut total = match initial {
        5 => {
            let request = Request::decode(&sent[0].fields).expect("well-formed");
            assert_eq!(request.count as usize, count);
            request.payload
        }
        _ => {
            let response = Response::decode(&sent[0].fields).expect("well-formed");
            assert_eq!(response.count as usize, count);
            response.payload
        }
    };
    for (number, sent) in sent.iter().enumerate().skip(1) {
        assert_eq!(sent.number, 7);
        let cont = Continuation::decode(&sent.fields).expect("well-formed");
        assert_eq!((cont.number as usize, cont.initial), (number, initial));
        total += cont.payload;
    }
    assert_eq!(total, 65_536);
}

#[test]
fn rtr_s7_2_padding_is_zeroes() {
    let (mut client, mut server) = pair_of("ddp", "ddp");
    let call = message(XID, Direction::Call, 156, &[8192]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(136, []));
    let candidate = planning.candidates(&mut client).remove(0);
    let (_, _, _, sent) = carry_call(&mut client, &mut server, XID, &call, candidate);
    let request = Request::decode(&sent[0].fields).expect("well-formed");
    let payload = sent[0].content();
    let data_at = 1024 - request.header_len() as usize;
    assert!(payload[156..data_at].iter().all(|&byte| byte == 0));
    assert_eq!(payload.len(), data_at + 8192);
    // The receiver ignores the contents of the padding.
    let mut bytes = encode(XID, Direction::Call, &sent[0]).to_vec();
    let len = bytes.len();
    bytes[1024 - 8..1024].fill(0xff);
    bytes.truncate(len);
    let _ = server.receive(&bytes.into());
    assert_eq!(stream(&server.take_call().message), stream(&call));
}

#[test]
fn rtr_s4_3_credits_that_do_not_suffice_leave_the_ways_that_need_fewer() {
    let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
    let write = message(XID, Direction::Call, 156, &[1 << 20]);
    let mut planning = Planning::new(&client, &write, ReplyNeed::new(136, []));
    for credits in [0, 1, 2, 15, 16, 32] {
        planning.credits = credits;
        let candidates = planning.candidates(&mut client);
        assert!(candidates.iter().all(|c| c.cost.transmissions <= credits));
        let placed = |c: &CallCandidate| c.plan.to_string().contains("item 0 placed");
        assert_eq!(candidates.iter().any(placed), credits >= 16, "{credits}");
        // By RDMA Read the call is a single transmission.
        let read = |c: &CallCandidate| c.reads[..] == [0];
        assert_eq!(candidates.iter().any(read), credits >= 1, "{credits}");
    }
    let read = message(XID, Direction::Call, 112, &[]);
    let need = ReplyNeed::new(128, [1 << 20]);
    let mut planning = Planning::new(&client, &read, need);
    for reservable in [0, 1, 14, 15, 16] {
        planning.reservable = reservable;
        let candidates = planning.candidates(&mut client);
        assert!(candidates.iter().all(|c| c.cost.receives <= reservable));
        let placed = |c: &CallCandidate| c.write_chunks.is_empty();
        assert_eq!(
            candidates.iter().any(placed),
            reservable >= 15,
            "{reservable}"
        );
        assert!(candidates.iter().any(|c| c.write_chunks[..] == [1 << 20]));
    }
}

/// A call has no more segments than the responder takes, in its items and for its reply together.
#[test]
fn calls_list_no_more_segments_than_the_peer_takes() {
    let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
    let call = message(XID, Direction::Call, 156, &[1 << 20]);
    let mut planning = Planning::new(&client, &call, need((128, &[1 << 19])));
    planning.limits.max_segment = 4096;
    for (segments, read_and_written) in [(384, true), (383, false)] {
        planning.limits.chunks.segments = segments;
        let found = planning.candidates(&mut client);
        let both = |c: &CallCandidate| !c.reads.is_empty() && !c.write_chunks.is_empty();
        assert_eq!(found.iter().any(both), read_and_written, "{segments}");
        assert!(found.iter().any(|c| !c.reads.is_empty()), "{segments}");
    }
}

#[test]
fn rtr_s5_2_limits_of_the_peer_are_kept_to() {
    let with_limits = |request_limit, response_limit| {
        let mut config = config("ddp+cont");
        (config.request_limit, config.response_limit) = (request_limit, response_limit);
        config
    };
    let write = message(XID, Direction::Call, 156, &[1 << 20]);
    let read = message(XID, Direction::Call, 112, &[]);
    for (limit, whole) in [(0, false), (1, false), (2, false), (15, false), (16, true)] {
        let (mut client, _) = pair(&config("ddp+cont"), &with_limits(limit, limit));
        let planning = Planning::new(&client, &write, ReplyNeed::new(136, []));
        let candidates = planning.candidates(&mut client);
        let most = candidates.iter().map(|c| c.cost.transmissions).max();
        assert!(most <= Some(limit.max(1)), "{most:?}");
        assert_eq!(candidates.iter().any(|c| c.reads.is_empty()), whole);
        let planning = Planning::new(&client, &read, ReplyNeed::new(128, [1 << 20]));
        let candidates = planning.candidates(&mut client);
        let most = candidates.iter().map(|c| c.cost.receives).max();
        assert!(most <= Some(limit.max(1) - 1), "{most:?}");
        assert_eq!(candidates.iter().any(|c| c.write_chunks.is_empty()), whole);
    }
    // A server sends no more transmissions than it announced, even if more are reserved.
    let (mut client, mut server) = pair(&config("cont"), &with_limits(20, 2));
    let planning = Planning::new(&client, &read, ReplyNeed::new(32_000, []));
    let candidate = planning.candidates(&mut client).remove(0);
    assert_eq!(candidate.cost.receives, 1);
    let (incoming, ..) = carry_call(&mut client, &mut server, XID, &read, candidate);
    let too_long = message(XID, Direction::Reply, 65_536, &[]);
    assert!(reply_candidates(&mut server, &incoming, &too_long).is_empty());
}

#[test]
fn rtr_s5_2_only_as_many_transmissions_reply_as_were_reserved_for() {
    let (mut client, mut server) = pair_of("cont", "cont");
    let read = message(XID, Direction::Call, 112, &[]);
    let planning = Planning::new(&client, &read, ReplyNeed::new(20_000, []));
    let candidate = planning.candidates(&mut client).remove(0);
    assert_eq!(candidate.cost.receives, 1);
    let (incoming, ..) = carry_call(&mut client, &mut server, XID, &read, candidate);
    let fits = message(XID, Direction::Reply, 32_000, &[]);
    assert_eq!(reply_candidates(&mut server, &incoming, &fits).len(), 1);
    let does_not = message(XID, Direction::Reply, 33_000, &[]);
    assert!(reply_candidates(&mut server, &incoming, &does_not).is_empty());
}

#[test]
fn rtr_s7_4_what_became_of_each_direction_is_said() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let read = message(XID, Direction::Call, 112, &[]);
    let need = ReplyNeed::new(128, [8192, 8192, 8192]);
    let planning = Planning::new(&client, &read, need);
    let candidates = planning.candidates(&mut client);
    let placed = |c: &CallCandidate| c.plan.to_string().contains("item 2 placed");
    let at = candidates.iter().position(placed).expect("there is one");
    let candidate = planning.candidates(&mut client).remove(at);
    let (incoming, ..) = carry_call(&mut client, &mut server, XID, &read, candidate);
    let answer = message(XID, Direction::Reply, 128, &[5000, 100]);
    let candidate = reply_candidates(&mut server, &incoming, &answer).remove(0);
    assert!(
        candidate
            .plan
            .to_string()
            .ends_with("item 0 placed, item 1 in it, 1 without an item")
    );
    let (_, _, sent) = carry_reply(&mut server, &mut client, &incoming, &answer, candidate);
    let response = Response::decode(&sent[0].fields).expect("well-formed");
    let found: Vec<&Location> = response.items.iter().map(|item| &item.location).collect();
    assert!(matches!(
        found[..],
        [Location::Placed(_), Location::TooShort, Location::NoItem]
    ));
    assert_eq!(
        (response.items[1].length, response.items[2].length),
        (100, 0)
    );
}

#[test]
fn rtr_s7_4_rdma2_msg_is_no_answer_to_directions() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let read = message(XID, Direction::Call, 112, &[]);
    let planning = Planning::new(&client, &read, ReplyNeed::new(128, [8192]));
    let mut seen = [false; 2];
    for at in 0..planning.candidates(&mut client).len() {
        let candidate = planning.candidates(&mut client).remove(at);
        let (incoming, _, _, sent) = carry_call(&mut client, &mut server, XID, &read, candidate);
        let request = Request::decode(&sent[0].fields).expect("well-formed");
        let has_directions = !request.directions.is_empty();
        let mode = server
            .extensions
            .transfer_mode(1)
            .expect("it plans replies");
        assert_eq!(mode.takes_base_reply(&*incoming.context), !has_directions);
        seen[usize::from(has_directions)] = true;
    }
    assert!(seen[1], "{seen:?}");
}

#[test]
fn rtr_s7_4_an_item_whose_size_decides_is_placed_as_far_as_receives_go() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let read = message(XID, Direction::Call, 112, &[]);
    let need = ReplyNeed::new(128, [1 << 20]);
    let mut planning = Planning::new(&client, &read, need);
    planning.reservable = 3;
    let sized = |c: &CallCandidate| c.plan.to_string().contains("placed up to 262144 B");
    let candidates = planning.candidates(&mut client);
    let at = candidates
        .iter()
        .position(sized)
        .expect("four buffers' worth");
    for (len, written) in [
        (8192, false),
        (262_144, false),
        (262_145, true),
        (1 << 20, true),
    ] {
        let candidate = planning.candidates(&mut client).remove(at);
        let (incoming, ..) = carry_call(&mut client, &mut server, XID, &read, candidate);
        let answer = message(XID, Direction::Reply, 128, &[len]);
        let mut candidates = reply_candidates(&mut server, &incoming, &answer);
        assert_eq!(candidates.len(), 1, "there is no choice");
        let candidate = candidates.remove(0);
        assert_eq!(!candidate.writes.is_empty(), written, "{len}");
        let (_, whole, _) = carry_reply(&mut server, &mut client, &incoming, &answer, candidate);
        assert_eq!(stream(&whole), stream(&answer));
    }
}

#[test]
fn rtr_s5_what_both_ends_say_decides_what_is_used() {
    // Client; server; placement, transmissions of a call, placement in replies, transmissions of a
    // reply.
    let cases = [
        ("ddp+cont", "ddp+cont", true, 20, true, 20),
        ("ddp", "ddp", true, 1, true, 1),
        ("cont", "cont", false, 20, false, 20),
        ("ddp:send", "ddp", true, 1, false, 1),
        ("ddp", "ddp:send", false, 1, true, 1),
        ("ddp:receive", "ddp", false, 1, true, 1),
        ("cont:send", "cont", false, 20, false, 1),
        ("cont:receive", "cont", false, 1, false, 20),
        ("cont", "cont:receive", false, 20, false, 1),
        ("cont", "cont:send", false, 1, false, 20),
        ("ddp", "cont", false, 1, true, 1),
        ("ddp+cont", "ddp", true, 1, true, 1),
    ];
    for (a, b, place, call, placed_replies, reply) in cases {
        let (client, _) = pair_of(a, b);
        let usable = client.transmit().usable();
        assert!(usable.requests && usable.responses, "{a} to {b}");
        let found = (usable.place, usable.call_transmissions);
        assert_eq!(found, (place, call), "{a} to {b}");
        let found = (usable.placed_replies, usable.reply_transmissions);
        assert_eq!(found, (placed_replies, reply), "{a} to {b}");
    }
    let (client, _) = pair_of("ddp+cont", "ddp+cont:receive");
    let usable = client.transmit().usable();
    assert!(usable.place && usable.placed_replies);
    assert_eq!(
        (usable.call_transmissions, usable.reply_transmissions),
        (20, 1)
    );
    let (mut client, _) = pair_of("ddp+cont", "none");
    assert!(!client.transmit().usable().requests);
    let call = message(XID, Direction::Call, 156, &[8192]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(136, []));
    assert!(planning.candidates(&mut client).is_empty());
}

#[test]
fn features_are_read_as_they_are_printed() {
    for send in [false, true] {
        for receive in [false, true] {
            for other in [
                Directions::NONE,
                Directions::BOTH,
                Directions {
                    send,
                    receive: !send,
                },
            ] {
                let features = Features {
                    ddp: Directions { send, receive },
                    cont: other,
                };
                assert_eq!(features.to_string().parse(), Ok(features));
            }
        }
    }
    let both: Features = "cont:send+ddp:receive+cont:receive"
        .parse()
        .expect("in any order");
    assert_eq!(both.to_string(), "ddp:receive+cont");
    for wrong in [
        "", "ddp:", "ddp+", "none+ddp", "ddp:both", "DDP", "ddp,cont", "xreq",
    ] {
        let error = wrong.parse::<Features>();
        assert!(error.is_err(), "{wrong}");
    }
}

#[test]
fn rtr_s8_3_a_size_that_was_not_said_follows_from_the_structure() {
    use bytes::Bytes;
    use rpcrdma_ext_send_ddp::ReceiveBufferStructure;
    use rpcrdma_ext_xchar::{Characteristic, Init, ReceiveBufferSize};
    let structure = BufferStructure::with_placement(1024, 1, 65_536);
    let structure = ReceiveBufferStructure::property(&structure);
    let size = ReceiveBufferSize::property(&8192);
    let all = config("ddp+cont").max_send;
    assert!(all >= 66_560);
    for (start, max_send, expected) in [
        (vec![structure.clone()], all, 66_560),
        // The size is limited to what this end sends.
        (vec![structure.clone()], 10_000, 10_000),
        (vec![size.clone(), structure.clone()], all, 8192),
        (vec![structure, size], all, 8192),
    ] {
        let config = Config {
            max_send,
            ..config("ddp+cont")
        };
        let mut client = End::new(rpcrdma_v2::Side::Client, &config);
        client.extensions.connected(None);
        client.look();
        let init = Init {
            start,
            ..Init::default()
        };
        let header = common::operation(1000, Direction::Reply, 1, init.encode());
        let _: Bytes = header.encode();
        let _ = client.receive(&header.encode());
        assert_eq!(client.extensions.limits().inline_send, expected);
    }
}

//! Every field of every header with invalid values: each has exactly one answer, and the connection
//! goes on.

mod common;

use bytes::Bytes;
use common::{
    End, Planning, carry_call, message, operation, pair_of, reply_candidates, stream, words,
};
use rpcrdma_ext_continuation::{
    Continuation, Fault, OutOfRange, Request, Response, TransmissionId, XMTCONT, XMTREQ, XMTRESP,
};
use rpcrdma_ext_send_ddp::{
    DirectedItem, DirectedSet, Direction as Directed, Location, PlacedItem,
};
use rpcrdma_extension::layout::Spot;
use rpcrdma_extension::{CallCandidate, IncomingCall, PeerError, Transmissions};
use rpcrdma_v2::operations::Routed;
use rpcrdma_v2::{Chunks, Direction, Segment, WriteChunk};
use smallvec::SmallVec;
use transfer_plan::ReplyNeed;

const XID: u32 = 0x1122_3344;
const MOST: u32 = u32::MAX;

/// The expected reaction to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// RDMA2_ERR_BAD_HEADER.
    BadHeader,
    /// ROPT_XMTERR about the transmission with this number.
    Report(u32, Fault),
    /// No answer: the message is discarded.
    Nothing,
    /// No error: the message is valid.
    Taken,
}

use Answered::{BadHeader, Nothing, Report, Taken};

fn segment_fault(value: u32, min: u32, max: u32) -> Answered {
    Report(0, Fault::Segment(OutOfRange { value, min, max }))
}

fn offset(value: u32, min: u32, max: u32) -> Answered {
    Report(0, Fault::Offset(OutOfRange { value, min, max }))
}

fn payload(number: u32, value: u32, max: u32) -> Answered {
    let min = 0;
    Report(number, Fault::Payload(OutOfRange { value, min, max }))
}

fn sequence(number: u32, expected: u32, found: u32) -> Answered {
    Report(number, Fault::Sequence { expected, found })
}

/// Delivers a message and checks its outcome. `lead` says whether the report also names the first
/// transmission of the group.
fn check(end: &mut End, direction: Direction, bytes: &Bytes, expected: Answered, what: &str) {
    let routed = end.receive(bytes);
    let report = end.take_report();
    assert!(end.operations.is_empty(), "{what}: one answer at most");
    match expected {
        BadHeader => {
            assert_eq!(routed, Routed::Refused(PeerError::Chunk), "{what}");
            assert_eq!(report, None, "{what}");
        }
        Nothing => {
            assert!(matches!(routed, Routed::Discarded(_)), "{what}: {routed:?}");
            assert_eq!(report, None, "{what}");
        }
        Taken => assert_eq!((routed, report), (Routed::Taken, None), "{what}"),
        Report(number, fault) => {
            assert!(matches!(routed, Routed::Discarded(_)), "{what}: {routed:?}");
            let report = report.unwrap_or_else(|| panic!("{what}: no report"));
            assert_eq!(report.fault, fault, "{what}");
            let bad = TransmissionId {
                xid: XID,
                direction,
                number,
            };
            assert_eq!(report.bad, bad, "{what}");
            let lead = report.lead.map(|lead| (lead.xid, lead.number));
            assert!(lead.is_none() || lead == Some((XID, 0)), "{what}");
            assert_eq!(lead.is_some(), number > 0, "{what}");
        }
    }
}

/// Returns a message whose `rdma_optinfo` has some words changed. `rest` follows the header.
fn patched(
    direction: Direction,
    opttype: u32,
    info: &[u8],
    patches: &[(usize, u32)],
    rest: &[u8],
) -> Bytes {
    let mut info = info.to_vec();
    for &(word, value) in patches {
        info[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
    }
    whole(direction, opttype, info.into(), rest)
}

fn whole(direction: Direction, opttype: u32, info: Bytes, rest: &[u8]) -> Bytes {
    let header = operation(XID, direction, opttype, info);
    [&header.encode()[..], rest].concat().into()
}

fn ends() -> (End, End) {
    pair_of("ddp+cont", "ddp+cont")
}

/// Returns a call with one placed item, whose reply may also have one, with this many additional
/// receives for the reply.
fn placed_both_ways(client: &mut End, item: usize, reply: u64) -> Transmissions {
    let call = message(XID, Direction::Call, 64, &[item]);
    let planning = Planning::new(client, &call, ReplyNeed::new(64, [reply]));
    let both = |c: &CallCandidate| c.plan.to_string().matches("item 0 placed").count() == 2;
    let mut candidates = planning.candidates(client);
    let at = candidates.iter().position(both).expect("there is one");
    let plan = candidates.remove(at).plan;
    let mode = client
        .extensions
        .transfer_mode(1)
        .expect("it carries calls");
    let sent = mode.send_call(XID, &*plan, &call, &Chunks::default());
    sent.expect("as planned")
}

/// Checks that a valid call is still accepted and that no state is left behind.
fn lives_on(client: &mut End, server: &mut End, what: &str) {
    server.arrived.clear();
    let sent = placed_both_ways(client, 8192, 8192);
    let bytes = common::encode(XID, Direction::Call, &sent[0]);
    check(server, Direction::Call, &bytes, Taken, what);
    assert_eq!(server.take_call().xid, XID);
}

/// The items of a request have no more segments together than one read list may have.
#[test]
fn items_with_too_many_segments_together_are_refused() {
    for (each, answered) in [(256, Taken), (257, BadHeader)] {
        let (mut client, mut server) = ends();
        let segment = Segment {
            handle: 1,
            length: 4,
            offset: 0,
        };
        let item = |position| PlacedItem {
            position,
            length: 4 * each,
            location: Location::Explicit(SmallVec::from_elem(segment, each as usize)),
        };
        let request = Request {
            count: 1,
            payload: 64,
            items: [item(60), item(60 + 4 * each)].into_iter().collect(),
            ..Request::default()
        };
        let call = message(XID, Direction::Call, 64, &[]);
        let bytes = whole(Direction::Call, XMTREQ, request.encode(), &stream(&call));
        check(&mut server, Direction::Call, &bytes, answered, "segments");
        lives_on(&mut client, &mut server, "segments");
    }
}

#[test]
fn rtr_s9_2_every_field_of_a_request() {
    let (mut client, mut server) = ends();
    let sent = placed_both_ways(&mut client, 8192, 8192);
    let (info, rest) = (sent[0].fields.clone(), sent[0].content());
    let as_it_is: Vec<u32> = info
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().expect("four bytes")))
        .collect();
    // The header has 28 + 64 bytes and is followed by 64 bytes of payload; the item is at position
    // 60.
    let expected = [1, 60, 8192, 2, 0, 1, 0, 1, 0, 8256, 1, 256, 2, 1, 0, 64];
    assert_eq!(as_it_is, expected);
    let room = 1024 + 8192 - 92;
    let cases: &[(usize, u32, Answered)] = &[
        // Items.
        (0, 0, BadHeader),
        (0, 2, BadHeader),
        (0, 17, BadHeader),
        (0, MOST, BadHeader),
        (1, 4, offset(4, 8, 64)),
        (1, 61, offset(61, 8, 64)),
        (1, 68, offset(68, 8, 64)),
        (1, MOST, offset(MOST, 8, 64)),
        (2, 0, segment_fault(1, 0, 0)),
        (2, 8191, Taken),
        (2, 8193, segment_fault(0, 0, 0)),
        (2, 65_536, segment_fault(0, 0, 0)),
        (2, 65_537, segment_fault(1, 2, 1024)),
        (2, 5 << 20, payload(0, (5 << 20) + 64, 4 << 20)),
        (2, MOST, payload(0, MOST, 4 << 20)),
        (3, 0, BadHeader),
        (3, 1, BadHeader),
        (3, 3, BadHeader),
        (3, 4, BadHeader),
        (3, 5, BadHeader),
        (3, 6, BadHeader),
        (3, 7, BadHeader),
        (3, MOST, BadHeader),
        (4, 2, offset(2, 0, 65_535)),
        (4, 4, segment_fault(0, 0, 0)),
        (4, 65_536, offset(65_536, 0, 65_535)),
        (4, MOST, offset(MOST, 0, 65_535)),
        (5, 0, BadHeader),
        (5, 2, BadHeader),
        (5, 1025, BadHeader),
        (5, MOST, BadHeader),
        (6, 1, segment_fault(1, 0, 0)),
        (6, MOST, segment_fault(MOST, 0, 0)),
        // Directions.
        (7, 0, BadHeader),
        (7, 2, BadHeader),
        (7, 17, BadHeader),
        (7, MOST, BadHeader),
        (8, 8256, BadHeader),
        (8, MOST, BadHeader),
        (9, 0, BadHeader),
        (9, MOST, Taken),
        (10, 0, BadHeader),
        (10, 2, BadHeader),
        (10, 17, BadHeader),
        (10, MOST, BadHeader),
        (11, 0, Taken),
        (11, MOST, Taken),
        (12, 0, BadHeader),
        (12, 1, BadHeader),
        (12, 3, BadHeader),
        (12, 4, BadHeader),
        (12, 5, BadHeader),
        (12, 6, BadHeader),
        (12, MOST, BadHeader),
        // Number of transmissions.
        (13, 0, sequence(0, 1, 0)),
        (13, 21, sequence(0, 20, 21)),
        (13, MOST, sequence(0, 20, MOST)),
        (14, MOST, Taken),
        // Payload length.
        (15, 0, offset(60, 8, 0)),
        (15, 63, payload(0, 63, room)),
        (15, 932, Taken),
        (15, 936, segment_fault(0, 0, 0)),
        (15, room, segment_fault(0, 0, 0)),
        (15, room + 4, payload(0, room + 4, room)),
        (15, MOST, payload(0, MOST, room)),
    ];
    for &(word, value, expected) in cases {
        let what = format!("word {word} is {value}");
        let bytes = patched(Direction::Call, XMTREQ, &info, &[(word, value)], &rest);
        check(&mut server, Direction::Call, &bytes, expected, &what);
        assert_eq!(
            server.arrived.len(),
            usize::from(expected == Taken),
            "{what}"
        );
        lives_on(&mut client, &mut server, &what);
    }
    for (what, info, expected) in [
        ("nothing", Bytes::new(), BadHeader),
        ("a word less", info.slice(..info.len() - 4), BadHeader),
        (
            "a word more",
            [&info[..], &[0; 4]].concat().into(),
            BadHeader,
        ),
    ] {
        let bytes = whole(Direction::Call, XMTREQ, info, &rest);
        check(&mut server, Direction::Call, &bytes, expected, what);
        lives_on(&mut client, &mut server, what);
    }
    let reply = whole(Direction::Reply, XMTREQ, info.clone(), &rest);
    check(
        &mut server,
        Direction::Reply,
        &reply,
        BadHeader,
        "direction",
    );
    lives_on(&mut client, &mut server, "direction");
    // Less data is sent than announced.
    for len in [0, 60, 64, 932, 932 + 8191] {
        let short = whole(Direction::Call, XMTREQ, info.clone(), &rest[..len]);
        let expected = match len {
            64.. => segment_fault(0, 0, 0),
            _ => payload(0, 64, len as u32),
        };
        check(&mut server, Direction::Call, &short, expected, "cut short");
        lives_on(&mut client, &mut server, "cut short");
    }
}

fn segment(handle: u32, length: u32, offset: u64) -> Segment {
    Segment {
        handle,
        length,
        offset,
    }
}

fn chunk(segments: &[Segment]) -> WriteChunk {
    segments.iter().copied().collect()
}

fn item(position: u32, length: u32, location: Location) -> PlacedItem {
    PlacedItem {
        position,
        length,
        location,
    }
}

fn spot(offset: u32, segments: &[u32]) -> Location {
    Location::Placed(Spot {
        offset,
        segments: segments.iter().copied().collect(),
    })
}

fn set(begin: u32, end: u32, to: &[Directed]) -> DirectedSet {
    let item = |to: &Directed| DirectedItem {
        min_len: 0,
        to: to.clone(),
    };
    DirectedSet {
        begin,
        end,
        items: to.iter().map(item).collect(),
    }
}

/// Returns a call in one transmission, with 64 bytes of payload and a segment for bulk data.
fn call_with(items: Vec<PlacedItem>, directions: Vec<DirectedSet>, rpc: [u32; 2]) -> Bytes {
    let request = Request {
        items: items.into(),
        directions: directions.into(),
        count: 1,
        reserved: 0,
        payload: 64,
    };
    let mut rest = words(&rpc).to_vec();
    rest.resize(1024 - request.header_len() as usize + 65_536, 0);
    whole(Direction::Call, XMTREQ, request.encode(), &rest)
}

/// Version-two-01, section 4.2.2, for operations that carry an RPC message.
#[test]
fn v2_s4_2_2_a_conveyed_message_has_the_direction_of_its_header() {
    let (mut client, mut server) = ends();
    for (msg_type, expected) in [(0, Taken), (1, BadHeader), (2, BadHeader)] {
        let bytes = call_with(vec![], vec![], [XID, msg_type]);
        check(&mut server, Direction::Call, &bytes, expected, "a call");
        assert_eq!(server.arrived.len(), usize::from(expected == Taken));
        server.arrived.clear();
    }
    let (_, sent) = answered(&mut client, &mut server);
    let (info, rest) = (sent[0].fields.clone(), sent[0].content());
    for (msg_type, expected) in [(0, Nothing), (2, Nothing), (1, Taken)] {
        let mut rest = rest.clone();
        rest[4..8].copy_from_slice(&u32::to_be_bytes(msg_type));
        let bytes = whole(Direction::Reply, XMTRESP, info.clone(), &rest);
        check(&mut client, Direction::Reply, &bytes, expected, "a reply");
        assert_eq!(client.arrived.len(), usize::from(expected == Taken));
    }
}

#[test]
fn rtr_s7_what_a_request_must_not_say_though_it_has_the_form() {
    let (mut client, mut server) = ends();
    let good = segment(1, 100, 0);
    let wraps = segment(1, 100, u64::MAX - 99);
    let explicit = |segments: &[Segment]| Location::Explicit(chunk(segments));
    let many: Vec<Segment> = (0..16).map(|handle| segment(handle, 1, 0)).collect();
    let placed = |position, offset| item(position, 100, spot(offset, &[0]));
    let written = |segments: &[Segment]| Directed::Explicit(chunk(segments));
    type Case = (&'static str, Vec<PlacedItem>, Vec<DirectedSet>, Answered);
    let cases: Vec<Case> = vec![
        ("an item", vec![placed(64, 0)], vec![], Taken),
        (
            "two items",
            vec![placed(8, 0), placed(164, 100)],
            vec![],
            Taken,
        ),
        (
            "in any order",
            vec![placed(8, 100), placed(164, 0)],
            vec![],
            Taken,
        ),
        (
            "the same bytes",
            vec![placed(8, 0), placed(164, 96)],
            vec![],
            segment_fault(0, 0, 0),
        ),
        (
            "the same place",
            vec![placed(64, 0), placed(64, 100)],
            vec![],
            offset(64, 164, 164),
        ),
        (
            "backwards",
            vec![placed(64, 0), placed(8, 100)],
            vec![],
            offset(8, 164, 164),
        ),
        (
            "beyond",
            vec![placed(64, 0), placed(168, 100)],
            vec![],
            offset(168, 164, 164),
        ),
        (
            "too short",
            vec![item(8, 9, Location::TooShort)],
            vec![],
            BadHeader,
        ),
        (
            "no item",
            vec![item(8, 9, Location::NoItem)],
            vec![],
            BadHeader,
        ),
        (
            "by read",
            vec![item(8, 100, explicit(&[good]))],
            vec![],
            Taken,
        ),
        (
            "by read, rounded up",
            vec![item(8, 97, explicit(&[good]))],
            vec![],
            Taken,
        ),
        (
            "by read, longer",
            vec![item(8, 96, explicit(&[good]))],
            vec![],
            BadHeader,
        ),
        (
            "by read, shorter",
            vec![item(8, 101, explicit(&[good]))],
            vec![],
            BadHeader,
        ),
        (
            "by read of nothing",
            vec![item(8, 100, explicit(&[]))],
            vec![],
            BadHeader,
        ),
        (
            "read passes memory",
            vec![item(8, 100, explicit(&[wraps]))],
            vec![],
            BadHeader,
        ),
        (
            "many segments",
            vec![item(8, 16, explicit(&many))],
            vec![],
            Taken,
        ),
        (
            "read at odd place",
            vec![item(9, 100, explicit(&[good]))],
            vec![],
            offset(9, 8, 64),
        ),
        (
            "write",
            vec![],
            vec![set(0, 64, &[written(&[good])])],
            Taken,
        ),
        (
            "write passes memory",
            vec![],
            vec![set(0, 64, &[written(&[wraps])])],
            BadHeader,
        ),
        (
            "choice passes memory",
            vec![],
            vec![set(0, 64, &[Directed::Choice(chunk(&[wraps]))])],
            BadHeader,
        ),
        (
            "ranges",
            vec![],
            vec![set(0, 32, &[]), set(32, 64, &[])],
            Taken,
        ),
        (
            "ranges overlap",
            vec![],
            vec![set(0, 33, &[]), set(32, 64, &[])],
            BadHeader,
        ),
        (
            "ranges in no order",
            vec![],
            vec![set(32, 64, &[]), set(0, 32, &[])],
            BadHeader,
        ),
        ("an empty range", vec![], vec![set(32, 32, &[])], BadHeader),
    ];
    for (what, items, directions, expected) in cases {
        let bytes = call_with(items, directions, [XID, 0]);
        check(&mut server, Direction::Call, &bytes, expected, what);
        assert_eq!(
            server.arrived.len(),
            usize::from(expected == Taken),
            "{what}"
        );
        lives_on(&mut client, &mut server, what);
    }
    for rpc in [[XID + 1, 0], [XID, 1], [XID, 2]] {
        let bytes = call_with(vec![], vec![], rpc);
        check(
            &mut server,
            Direction::Call,
            &bytes,
            BadHeader,
            "RPC header",
        );
        lives_on(&mut client, &mut server, "RPC header");
    }
    // The maximum number of segments for a reply, and one more, in two chunks that are each within
    // the limit.
    for (more, expected) in [(256, Taken), (257, BadHeader)] {
        let many = |count| -> Vec<Segment> { (0..count).map(|n| segment(n, 1, 0)).collect() };
        let both = vec![set(0, 64, &[written(&many(256)), written(&many(more))])];
        let request = Request {
            directions: both.into(),
            count: 1,
            payload: 64,
            ..Request::default()
        };
        let mut rest = words(&[XID, 0]).to_vec();
        rest.resize(64, 0);
        let bytes = whole(Direction::Call, XMTREQ, request.encode(), &rest);
        check(&mut server, Direction::Call, &bytes, expected, "segments");
    }
}

/// Returns a call of three transmissions.
fn group(client: &mut End) -> Vec<Bytes> {
    let call = message(XID, Direction::Call, 150_000, &[]);
    let planning = Planning::new(client, &call, ReplyNeed::new(64, []));
    let plan = planning.candidates(client).remove(0).plan;
    let mode = client
        .extensions
        .transfer_mode(1)
        .expect("it carries calls");
    let sent = mode.send_call(XID, &*plan, &call, &Chunks::default());
    let sent = sent.expect("as planned");
    let wire = sent
        .iter()
        .map(|sent| common::encode(XID, Direction::Call, sent));
    wire.collect()
}

/// Returns a continuation with these fields, followed by `rest` bytes.
fn cont(xid: u32, direction: Direction, fields: [u32; 3], rest: usize) -> Bytes {
    let [number, initial, payload] = fields;
    let cont = Continuation {
        number,
        initial,
        payload,
    };
    let header = operation(xid, direction, XMTCONT, cont.encode());
    [&header.encode()[..], &vec![7; rest]].concat().into()
}

#[test]
fn rtr_s9_4_every_field_of_a_continuation() {
    let (mut client, mut server) = ends();
    let wire = group(&mut client);
    let max = 66_560 - 40;
    let omt = |expected, found| Report(1, Fault::OperationType { expected, found });
    let other = |found| {
        let expected = XID;
        Fault::Xid { expected, found }
    };
    for (number, initial, len, expected) in [
        (0, 5, max, sequence(0, 1, 0)),
        (2, 5, max, sequence(2, 1, 2)),
        (MOST, 5, max, sequence(MOST, 1, MOST)),
        (1, 6, max, omt(5, 6)),
        (1, 0, max, omt(5, 0)),
        (1, 7, max, omt(5, 7)),
        (1, MOST, max, omt(5, MOST)),
        (1, 5, max - 1, payload(1, max - 1, max)),
        (1, 5, max + 1, payload(1, max + 1, max)),
        (1, 5, MOST, payload(1, MOST, max)),
        // A transmission may have no payload (section 9.4), but then the group has too little.
        (1, 5, 0, Taken),
    ] {
        let what = format!("{number} {initial} {len}");
        check(&mut server, Direction::Call, &wire[0], Taken, &what);
        let bytes = cont(XID, Direction::Call, [number, initial, len], max as usize);
        // A report about the first transmission names no other.
        let routed = server.receive(&bytes);
        let report = server.take_report();
        match expected {
            Report(at, fault) => {
                let report = report.unwrap_or_else(|| panic!("{what}: no report"));
                assert_eq!((report.bad.number, report.fault), (at, fault), "{what}");
                assert_eq!(
                    report.lead.map(|lead| (lead.xid, lead.number)),
                    Some((XID, 0))
                );
                assert!(matches!(routed, Routed::Discarded(_)), "{what}");
                // The remaining transmissions are not reported.
                check(&mut server, Direction::Call, &wire[2], Nothing, &what);
                check(&mut server, Direction::Call, &wire[1], Nothing, &what);
            }
            _ => {
                assert_eq!((routed, report), (Routed::Taken, None), "{what}");
                check(&mut server, Direction::Call, &wire[2], Taken, &what);
                server.arrived.clear();
            }
        }
        assert!(server.arrived.is_empty(), "{what}");
        lives_on(&mut client, &mut server, &what);
    }
    for (xid, direction) in [(XID + 1, Direction::Call), (XID, Direction::Reply)] {
        check(&mut server, Direction::Call, &wire[0], Taken, "XID");
        let bytes = cont(xid, direction, [1, 5, max], max as usize);
        let _ = server.receive(&bytes);
        let report = server.take_report().expect("one report");
        assert_eq!((report.bad.xid, report.bad.direction), (xid, direction));
        assert_eq!(report.fault, other(xid));
        assert_eq!(
            report.lead.map(|lead| (lead.xid, lead.direction)),
            Some((XID, Direction::Call))
        );
        // Nor are the remaining transmissions of the group that was interrupted.
        check(&mut server, Direction::Call, &wire[1], Nothing, "XID");
        lives_on(&mut client, &mut server, "XID");
    }
    let header = operation(XID, Direction::Call, XMTCONT, words(&[1, 5]));
    check(&mut server, Direction::Call, &wire[0], Taken, "cut short");
    check(
        &mut server,
        Direction::Call,
        &header.encode(),
        BadHeader,
        "cut short",
    );
    check(&mut server, Direction::Call, &wire[1], Nothing, "cut short");
    lives_on(&mut client, &mut server, "cut short");
    let header = operation(XID, Direction::Call, XMTCONT, words(&[1, 5, 0, 0]));
    check(&mut server, Direction::Call, &wire[0], Taken, "a word more");
    check(
        &mut server,
        Direction::Call,
        &header.encode(),
        BadHeader,
        "a word more",
    );
    lives_on(&mut client, &mut server, "a word more");
}

/// Returns a call that arrived at a server, and the transmissions of its reply.
fn answered(client: &mut End, server: &mut End) -> (IncomingCall, Transmissions) {
    let sent = placed_both_ways(client, 8192, 200_000);
    let _ = server.receive(&common::encode(XID, Direction::Call, &sent[0]));
    let call = server.take_call();
    let answer = message(XID, Direction::Reply, 64, &[8192]);
    let plan = reply_candidates(server, &call, &answer).remove(0).plan;
    let mode = server
        .extensions
        .transfer_mode(1)
        .expect("it carries replies");
    let sent = mode.send_reply(XID, &*plan, &answer).expect("as planned");
    (call, sent)
}

#[test]
fn rtr_s9_3_every_field_of_a_response() {
    let (mut client, mut server) = ends();
    let (_, sent) = answered(&mut client, &mut server);
    let (info, rest) = (sent[0].fields.clone(), sent[0].content());
    let expected = words(&[1, 60, 8192, 2, 0, 1, 0, 1, 64]);
    assert_eq!(info, expected);
    // The header has 28 + 36 bytes. Three additional receives were reserved.
    let room = 1024 + 8192 - 64;
    let cases: &[(usize, u32, Answered)] = &[
        (0, 0, Nothing),
        (0, 2, Nothing),
        (0, MOST, Nothing),
        (1, 4, offset(4, 8, 64)),
        (1, 61, offset(61, 8, 64)),
        (1, 68, offset(68, 8, 64)),
        (1, MOST, offset(MOST, 8, 64)),
        (2, 0, segment_fault(1, 0, 0)),
        (2, 8193, segment_fault(0, 0, 0)),
        (2, 65_537, segment_fault(1, 2, 1024)),
        (2, MOST, payload(0, MOST, 4 << 20)),
        (3, 0, Nothing),
        (3, 1, Nothing),
        (3, 3, Nothing),
        (3, 4, Nothing),
        (3, 5, Nothing),
        (3, 6, Nothing),
        (3, MOST, Nothing),
        (4, 2, offset(2, 0, 65_535)),
        (4, 4, segment_fault(0, 0, 0)),
        (4, MOST, offset(MOST, 0, 65_535)),
        (5, 0, Nothing),
        (5, 2, Nothing),
        (5, MOST, Nothing),
        (6, 1, segment_fault(1, 0, 0)),
        (6, MOST, segment_fault(MOST, 0, 0)),
        (7, 0, sequence(0, 1, 0)),
        (7, 5, sequence(0, 4, 5)),
        (7, MOST, sequence(0, 4, MOST)),
        (8, 0, offset(60, 8, 0)),
        (8, 63, payload(0, 63, room)),
        (8, room, segment_fault(0, 0, 0)),
        (8, room + 4, payload(0, room + 4, room)),
        (8, MOST, payload(0, MOST, room)),
    ];
    for &(word, value, expected) in cases {
        let what = format!("word {word} is {value}");
        let bytes = patched(Direction::Reply, XMTRESP, &info, &[(word, value)], &rest);
        check(&mut client, Direction::Reply, &bytes, expected, &what);
        assert!(client.arrived.is_empty(), "{what}");
    }
    let as_call = whole(Direction::Call, XMTRESP, info.clone(), &rest);
    check(&mut client, Direction::Call, &as_call, Nothing, "direction");
    let longer = whole(
        Direction::Reply,
        XMTRESP,
        [&info[..], &[0; 4]].concat().into(),
        &rest,
    );
    check(
        &mut client,
        Direction::Reply,
        &longer,
        Nothing,
        "a word more",
    );
    let mut other = rest.clone();
    other[3] ^= 1;
    let bytes = whole(Direction::Reply, XMTRESP, info.clone(), &other);
    check(
        &mut client,
        Direction::Reply,
        &bytes,
        Nothing,
        "XID in the RPC message",
    );
    // The call is still outstanding, and its reply is accepted once.
    let bytes = whole(Direction::Reply, XMTRESP, info, &rest);
    check(
        &mut client,
        Direction::Reply,
        &bytes,
        Taken,
        "as it was sent",
    );
    assert_eq!(client.take_reply().xid, XID);
    client
        .extensions
        .transfer_mode(1)
        .expect("it carries calls")
        .call_ended(XID);
    check(&mut client, Direction::Reply, &bytes, Nothing, "no call");
}

#[test]
fn rtr_s7_4_memory_that_comes_back_is_that_which_was_offered() {
    let (mut client, mut server) = ends();
    let call = message(XID, Direction::Call, 64, &[]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(64, [1000]));
    let written = |c: &CallCandidate| c.write_chunks[..] == [1000];
    let at = planning.candidates(&mut client).iter().position(written);
    let candidate = planning
        .candidates(&mut client)
        .remove(at.expect("there is one"));
    let (_, _, chunks, _) = carry_call(&mut client, &mut server, XID, &call, candidate);
    let [a, b] = chunks.writes[0][..] else {
        panic!("two segments")
    };
    assert_eq!((a.length, b.length), (500, 500));
    let part = |segment: Segment, length| Segment { length, ..segment };
    let placed = spot(0, &[0]);
    let explicit = |segments: &[Segment]| Location::Explicit(chunk(segments));
    let cases = [
        ("all", 1000, explicit(&[a, b]), Taken),
        ("less", 700, explicit(&[a, part(b, 200)]), Taken),
        ("nothing", 0, explicit(&[part(a, 0), part(b, 0)]), Taken),
        ("too short", 8, Location::TooShort, Taken),
        ("no item", 0, Location::NoItem, Taken),
        ("another length", 999, explicit(&[a, b]), Nothing),
        ("a gap", 700, explicit(&[part(a, 200), b]), Nothing),
        ("more", 1001, explicit(&[a, part(b, 501)]), Nothing),
        ("fewer segments", 500, explicit(&[a]), Nothing),
        ("more segments", 1500, explicit(&[a, b, b]), Nothing),
        ("another order", 1000, explicit(&[b, a]), Nothing),
        (
            "another handle",
            1000,
            explicit(&[a, segment(9, 500, b.offset)]),
            Nothing,
        ),
        (
            "another offset",
            1000,
            explicit(&[a, segment(b.handle, 500, 8)]),
            Nothing,
        ),
        ("placed", 1000, placed, Nothing),
    ];
    for (what, length, location, expected) in cases {
        let response = Response {
            items: [item(60, length, location)].into(),
            count: 1,
            payload: 64,
        };
        let mut rest = words(&[XID, 1]).to_vec();
        rest.resize(64, 0);
        let bytes = whole(Direction::Reply, XMTRESP, response.encode(), &rest);
        check(&mut client, Direction::Reply, &bytes, expected, what);
        assert_eq!(
            client.arrived.len(),
            usize::from(expected == Taken),
            "{what}"
        );
        if expected == Taken {
            let came = client.take_reply().writes[0].map(|w| (w.position, w.len));
            let is_explicit = matches!(what, "all" | "less" | "nothing");
            assert_eq!(
                came,
                is_explicit.then_some((60, u64::from(length))),
                "{what}"
            );
        }
    }
}

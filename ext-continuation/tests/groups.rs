//! Groups that are interrupted, abandoned and reported, and the handling of reports.

mod common;

use bytes::Bytes;
use common::{
    CREDITS, End, Planning, carry_call, encode, message, operation, pair_of, reply_candidates,
    stream,
};
use onc_rpc::Message;
use rpcrdma_ext_continuation::{
    Fault, OutOfRange, Report, RequestReceiveLimit, TransmissionId, XMTCONT, XMTERR, XMTREQ,
};
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport, Support};
use rpcrdma_ext_xchar::{Characteristic, UPDXCH, Update};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_extension::{Extensions, IncomingCall, PeerError, Planned, Transferred};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Chunks, Direction, ErrorBody, Header};
use transfer_plan::ReplyNeed;

const XID: u32 = 0x5566_7788;

fn send(client: &mut End, xid: u32, payload: usize) -> Vec<Bytes> {
    let call = message(xid, Direction::Call, payload, &[]);
    let planning = Planning::new(client, &call, ReplyNeed::new(200_000, []));
    let plan = planning.candidates(client).remove(0).plan;
    let mode = client
        .extensions
        .transfer_mode(1)
        .expect("it carries calls");
    let sent = mode.send_call(xid, &*plan, &call, &Chunks::default());
    let sent = sent.expect("as planned");
    sent.iter()
        .map(|sent| encode(xid, Direction::Call, sent))
        .collect()
}

fn id(xid: u32, direction: Direction, number: u32) -> TransmissionId {
    TransmissionId {
        xid,
        direction,
        number,
    }
}

fn other(body: Body) -> Bytes {
    let header = Header {
        xid: 77,
        credits: CREDITS,
        body,
    };
    header.encode()
}

#[test]
fn rtr_s4_2_nothing_may_come_between_the_transmissions_of_a_group() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let hmt = |found| Fault::HeaderType { expected: 5, found };
    let omt = |found| Fault::OperationType { expected: 7, found };
    let optional = |opttype| operation(77, Direction::Call, opttype, Bytes::new()).encode();
    let cases = [
        (other(Body::Msg(Direction::Call, Chunks::default())), hmt(0)),
        (
            other(Body::NoMsg(Direction::Call, Chunks::default())),
            hmt(1),
        ),
        (other(Body::Error(ErrorBody::BadHeader)), hmt(4)),
        // Operations of another extension, of no extension, and of this one.
        (optional(4), omt(4)),
        (optional(99), omt(99)),
        (optional(6), omt(6)),
        (optional(8), omt(8)),
    ];
    for (bytes, fault) in cases {
        let wire = send(&mut client, XID, 150_000);
        assert_eq!(wire.len(), 3);
        for at in 1..3 {
            for bytes in &wire[..at] {
                assert_eq!(server.receive(bytes), Routed::Taken);
            }
            let _ = server.receive(&bytes);
            let report = server.take_report().expect("a report");
            let bad = id(XID, Direction::Call, at as u32);
            let lead = Some(id(XID, Direction::Call, 0));
            assert_eq!(report, Report { bad, lead, fault });
            // The rest of the group is discarded silently.
            for bytes in &wire[at..] {
                assert!(matches!(server.receive(bytes), Routed::Discarded(_)));
            }
            assert!(server.operations.is_empty() && server.arrived.is_empty());
            assert!(server.take_report().is_none());
        }
    }
}

#[test]
fn rtr_s4_2_a_request_within_a_group_ends_it_and_is_taken_itself() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let first = send(&mut client, XID, 150_000);
    let second = send(&mut client, XID + 1, 150_000);
    assert_eq!(server.receive(&first[0]), Routed::Taken);
    assert_eq!(server.receive(&second[0]), Routed::Taken);
    let report = server.take_report().expect("a report");
    let fault = Fault::OperationType {
        expected: XMTCONT,
        found: XMTREQ,
    };
    assert_eq!(
        (report.bad, report.fault),
        (id(XID, Direction::Call, 1), fault)
    );
    for bytes in &second[1..] {
        assert_eq!(server.receive(bytes), Routed::Taken);
    }
    assert_eq!(server.take_call().xid, XID + 1);
    // The first message can be sent again.
    for bytes in &first {
        assert_eq!(server.receive(bytes), Routed::Taken);
    }
    assert_eq!(server.take_call().xid, XID);
}

#[test]
fn rtr_s9_5_a_continuation_of_nothing_is_reported() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let wire = send(&mut client, XID, 150_000);
    assert!(matches!(server.receive(&wire[1]), Routed::Discarded(_)));
    let report = server.take_report().expect("a report");
    let bad = id(XID, Direction::Call, 1);
    let (lead, fault) = (None, Fault::Continuation);
    assert_eq!(report, Report { bad, lead, fault });
    // One group causes one error report.
    assert!(matches!(server.receive(&wire[2]), Routed::Discarded(_)));
    assert!(server.take_report().is_none());
    for bytes in &wire {
        assert_eq!(server.receive(bytes), Routed::Taken);
    }
    let _ = server.take_call();
    // The discarded group is over, so a further continuation belongs to no group.
    let _ = server.receive(&wire[2]);
    let report = server.take_report().expect("a report");
    assert_eq!((report.bad.number, report.fault), (2, Fault::Continuation));
}

#[test]
fn rtr_s5_4_a_call_that_was_reported_is_sent_in_another_way() {
    let fields = OutOfRange {
        value: 9,
        min: 1,
        max: 8,
    };
    let (expected, found) = (1, 2);
    let faults = [
        Fault::HeaderType { expected, found },
        Fault::OperationType { expected, found },
        Fault::Continuation,
        Fault::Sequence { expected, found },
        Fault::Xid { expected, found },
        Fault::Offset(fields),
        Fault::Segment(fields),
        Fault::Payload(fields),
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        assert_eq!(fault.code(), at as u32 + 1);
        let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
        let _ = send(&mut client, XID, 150_000);
        let report = Report {
            bad: id(XID, Direction::Call, 1),
            lead: None,
            fault,
        };
        let bytes = operation(XID, Direction::Reply, XMTERR, report.encode()).encode();
        assert_eq!(client.receive(&bytes), Routed::Taken);
        let Some(Transferred::Rejected { reason, .. }) = client.arrived.front() else {
            panic!("it is not said");
        };
        assert!(reason.starts_with("OPTXERR_BAD"), "{reason}");
        assert!(
            reason.ends_with("in transmission 1 of CALL 0x55667788"),
            "{reason}"
        );
        assert_eq!(client.take_rejected(), (XID, Direction::Call));
        // A second report is ignored.
        assert!(matches!(client.receive(&bytes), Routed::Discarded(_)));
        assert!(client.arrived.is_empty() && client.operations.is_empty());
    }
}

/// Has a truncated operation refused by its owner.
fn refuse_truncated(end: &mut Extensions, header: &Header, beginning: &[Bytes], at: usize) -> bool {
    let operation = operations::received(header, beginning, at).expect("an operation");
    end.refuse_truncated(&operation)
}

/// A server that has no memory for a transmission refuses the call, drops the rest of the group, and
/// can be sent the next call in the same way.
#[test]
fn a_call_without_memory_for_its_transmissions_is_refused_once_and_sent_in_another_way() {
    for at in 0..3 {
        let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
        let group = send(&mut client, XID, 150_000);
        assert!(group.len() > 2);
        for (number, bytes) in group.iter().enumerate() {
            let (header, payload_at) = Header::decode(bytes).expect("a header");
            let beginning = [bytes.slice(..1024)];
            let extensions = &mut server.extensions;
            match number < at {
                true => assert_eq!(server.receive(bytes), Routed::Taken),
                false => assert!(refuse_truncated(
                    extensions, &header, &beginning, payload_at
                )),
            }
        }
        server.look();
        assert!(server.extensions.in_progress().is_none() && server.arrived.is_empty());
        assert_eq!(server.operations.len(), 1, "one report for the whole group");
        let report = server.operations.pop_front().expect("a report");
        let (xid, direction, opttype) = (XID, report.direction, report.number);
        assert_eq!((direction, opttype), (Direction::Reply, XMTERR));
        let bytes = operation(xid, direction, opttype, report.fields).encode();
        assert_eq!(client.receive(&bytes), Routed::Taken);
        assert_eq!(client.take_rejected(), (XID, Direction::Call));
        for bytes in send(&mut client, XID + 1, 150_000) {
            assert_eq!(server.receive(&bytes), Routed::Taken);
        }
        let call = server.take_call();
        assert_eq!((call.xid, server.arrived.len()), (XID + 1, 0), "at {at}");
    }
}

/// A server that has no memory for the rest of a call drops its transmissions. One report answers the whole group, and
/// the next one arrives.
#[test]
fn a_begun_call_is_refused_once_and_the_next_one_arrives() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    assert!(!server.extensions.refuse_parts(), "nothing has begun");
    for (number, bytes) in send(&mut client, XID, 150_000).iter().enumerate() {
        let is_dropped = matches!(server.receive(bytes), Routed::Discarded(_));
        assert_eq!(is_dropped, number > 0);
        assert_eq!(server.extensions.refuse_parts(), number == 0);
    }
    server.look();
    assert!(server.extensions.in_progress().is_none() && server.arrived.is_empty());
    assert_eq!(server.operations.len(), 1, "one report for the whole group");
    let report = server.operations.pop_front().expect("a report");
    let report = operation(XID, report.direction, report.number, report.fields);
    assert_eq!(client.receive(&report.encode()), Routed::Taken);
    assert_eq!(client.take_rejected(), (XID, Direction::Call));
    for bytes in send(&mut client, XID + 1, 150_000) {
        assert_eq!(server.receive(&bytes), Routed::Taken);
    }
    assert_eq!(server.take_call().xid, XID + 1);
}

/// Want of memory passes, other than a disagreement about the protocol: the client goes on to send calls in
/// transmissions.
#[test]
fn refusals_for_want_of_memory_are_no_reason_to_give_up_the_extension() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    for xid in XID..XID + 5 {
        let group = send(&mut client, xid, 150_000);
        let (header, payload_at) = Header::decode(&group[0]).expect("a header");
        let beginning = [group[0].slice(..1024)];
        let extensions = &mut server.extensions;
        assert!(refuse_truncated(
            extensions, &header, &beginning, payload_at
        ));
        server.look();
        let report = server.operations.pop_front().expect("a report");
        let bytes = operation(xid, report.direction, report.number, report.fields).encode();
        assert_eq!(client.receive(&bytes), Routed::Taken);
        assert_eq!(client.take_rejected(), (xid, Direction::Call));
    }
    for bytes in send(&mut client, XID + 5, 150_000) {
        assert_eq!(server.receive(&bytes), Routed::Taken);
    }
    assert_eq!(server.take_call().xid, XID + 5);
}

/// Returns a call in one transmission, as the server receives it.
fn called(client: &mut End, server: &mut End) -> IncomingCall {
    let wire = send(client, XID, 1000);
    assert_eq!(server.receive(&wire[0]), Routed::Taken);
    server.take_call()
}

/// Returns the transmissions of the reply to the call.
fn answered(server: &mut End, call: &IncomingCall, answer: &Message) -> Vec<Bytes> {
    let plan = reply_candidates(server, call, answer).remove(0).plan;
    let mode = server
        .extensions
        .transfer_mode(1)
        .expect("it carries replies");
    let sent = mode.send_reply(XID, &*plan, answer).expect("as planned");
    let sent = sent.iter();
    sent.map(|one| encode(XID, Direction::Reply, one)).collect()
}

#[test]
fn rtr_s5_4_a_reply_that_was_reported_is_told_to_the_responder() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let call = called(&mut client, &mut server);
    let answer = message(XID, Direction::Reply, 150_000, &[]);
    let wire = answered(&mut server, &call, &answer);
    assert_eq!(client.receive(&wire[0]), Routed::Taken);
    assert!(matches!(client.receive(&wire[2]), Routed::Discarded(_)));
    let operation = client.operations.pop_front().expect("a report");
    assert_eq!(operation.direction, Direction::Call);
    let bytes = operations::header(operation, CREDITS).encode();
    assert_eq!(server.receive(&bytes), Routed::Taken);
    assert_eq!(server.take_rejected(), (XID, Direction::Reply));
    // A second report is ignored, as is a report about a reply that was never sent.
    assert!(matches!(server.receive(&bytes), Routed::Discarded(_)));
    // The reply is sent again completely, because the call still waits for it.
    for bytes in &wire {
        assert_eq!(client.receive(bytes), Routed::Taken);
    }
    assert_eq!(stream(&client.take_reply().message), stream(&answer));
}

/// A report may name a bad transmission that this end never sent; the group that it interrupted is
/// dropped nevertheless. But a report is ignored unless it is consistent and matches what was sent.
#[test]
fn rtr_s5_4_a_call_whose_group_was_broken_into_is_sent_in_another_way() {
    let foreign = id(XID + 1, Direction::Call, 1);
    let (lead, next) = (id(XID, Direction::Call, 0), id(XID, Direction::Call, 1));
    let last = id(XID, Direction::Call, 2);
    let xid = |expected, found| Fault::Xid { expected, found };
    let hmt = |expected, found| Fault::HeaderType { expected, found };
    let omt = |expected, found| Fault::OperationType { expected, found };
    let range = |value| OutOfRange {
        value,
        min: 0,
        max: 8,
    };
    let (expected, found) = (1, 2);
    let cases = [
        (Some(lead), xid(XID, XID + 1), true),
        (Some(next), xid(XID, XID + 1), true),
        // A group cannot be interrupted after its last transmission.
        (Some(last), xid(XID, XID + 1), false),
        (
            Some(id(XID, Direction::Call, u32::MAX)),
            xid(XID, XID + 1),
            false,
        ),
        (Some(id(XID, Direction::Reply, 0)), xid(XID, XID + 1), false),
        (Some(foreign), xid(XID + 1, XID + 1), false),
        (None, xid(XID, XID + 1), false),
        (Some(lead), xid(XID + 1, XID), false),
        (Some(lead), xid(XID, XID), false),
        (Some(lead), hmt(5, 0), true),
        (Some(lead), hmt(5, 5), false),
        (Some(lead), hmt(0, 5), false),
        (Some(lead), omt(7, 5), true),
        (Some(lead), omt(7, 7), false),
        (Some(lead), omt(5, 6), false),
        (Some(lead), Fault::Continuation, false),
        (Some(lead), Fault::Sequence { expected, found }, false),
        (Some(lead), Fault::Offset(range(9)), false),
        (Some(lead), Fault::Segment(range(9)), false),
        (Some(lead), Fault::Payload(range(9)), false),
    ];
    for (lead, fault, is_taken) in cases {
        let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
        assert_eq!(send(&mut client, XID, 150_000).len(), 3);
        let bad = foreign;
        let report = Report { bad, lead, fault };
        let bytes = operation(XID + 1, Direction::Reply, XMTERR, report.encode()).encode();
        let routed = client.receive(&bytes);
        assert_eq!(routed == Routed::Taken, is_taken, "{report:?}: {routed:?}");
        if is_taken {
            let Some(Transferred::Rejected { reason, .. }) = client.arrived.front() else {
                panic!("it is not said");
            };
            let end = "in transmission 1 of CALL 0x55667789, in the middle of CALL 0x55667788";
            assert!(reason.ends_with(end), "{reason}");
            assert_eq!(client.take_rejected(), (XID, Direction::Call));
        }
        // A second report is discarded silently.
        assert!(!is_taken || matches!(client.receive(&bytes), Routed::Discarded(_)));
        assert!(client.arrived.is_empty() && client.operations.is_empty());
    }
    // A call in one transmission is no group that could be interrupted.
    let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
    assert_eq!(send(&mut client, XID, 1000).len(), 1);
    let report = Report {
        bad: foreign,
        lead: Some(lead),
        fault: xid(XID, XID + 1),
    };
    let bytes = operation(XID + 1, Direction::Reply, XMTERR, report.encode()).encode();
    assert!(matches!(client.receive(&bytes), Routed::Discarded(_)));
}

/// Two groups from one sender, of which the second interrupts the first. Both are lost, and one
/// report covers them.
#[test]
fn rtr_s5_4_a_report_is_about_the_group_that_was_broken_into_as_well() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let first = send(&mut client, XID, 150_000);
    let second = send(&mut client, XID + 1, 150_000);
    assert_eq!(server.receive(&first[0]), Routed::Taken);
    assert!(matches!(server.receive(&second[1]), Routed::Discarded(_)));
    let report = server.operations.pop_front().expect("a report");
    let bytes = operations::header(report, CREDITS).encode();
    assert_eq!(client.receive(&bytes), Routed::Taken);
    assert_eq!(client.take_rejected(), (XID + 1, Direction::Call));
    assert_eq!(client.take_rejected(), (XID, Direction::Call));
    assert!(client.arrived.is_empty() && client.operations.is_empty());
}

/// A client reports the message that interrupted a reply, and names the reply. The responder learns
/// that the reply did not arrive.
#[test]
fn rtr_s5_4_a_reply_that_was_broken_into_is_told_to_the_responder() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let call = called(&mut client, &mut server);
    let answer = message(XID, Direction::Reply, 150_000, &[]);
    let wire = answered(&mut server, &call, &answer);
    assert_eq!(client.receive(&wire[0]), Routed::Taken);
    let mut foreign = wire[1].to_vec();
    foreign[3] ^= 1;
    assert!(matches!(
        client.receive(&foreign.into()),
        Routed::Discarded(_)
    ));
    let report = client.operations.pop_front().expect("a report");
    let bytes = operations::header(report, CREDITS).encode();
    assert_eq!(server.receive(&bytes), Routed::Taken);
    assert_eq!(server.take_rejected(), (XID, Direction::Reply));
    assert!(matches!(server.receive(&bytes), Routed::Discarded(_)));
}

/// A repeated call was answered twice, first in one transmission and then in a group. The
/// interruption of a group is about the second answer.
#[test]
fn rtr_s5_4_a_report_is_about_the_last_reply_to_a_repeated_call() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let call = called(&mut client, &mut server);
    let short = message(XID, Direction::Reply, 1000, &[]);
    assert_eq!(answered(&mut server, &call, &short).len(), 1);
    let long = message(XID, Direction::Reply, 150_000, &[]);
    assert_eq!(answered(&mut server, &call, &long).len(), 3);
    let (found, expected) = (XID + 1, XID);
    let report = Report {
        bad: id(found, Direction::Reply, 1),
        lead: Some(id(XID, Direction::Reply, 0)),
        fault: Fault::Xid { expected, found },
    };
    let bytes = operation(found, Direction::Call, XMTERR, report.encode()).encode();
    assert_eq!(server.receive(&bytes), Routed::Taken);
    assert_eq!(server.take_rejected(), (XID, Direction::Reply));
}

#[test]
fn rtr_s9_5_reports_are_never_answered() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let _ = send(&mut client, XID, 150_000);
    let good = Report {
        bad: id(XID, Direction::Call, 1),
        lead: Some(id(XID, Direction::Call, 0)),
        fault: Fault::Sequence {
            expected: 1,
            found: 2,
        },
    };
    let info = good.encode();
    // XID, direction, number; the word that says that another identification follows; the same
    // three; code, two fields.
    assert_eq!(info, common::words(&[XID, 0, 1, 1, XID, 0, 0, 4, 1, 2]));
    let words: [(usize, u32); 11] = [
        (0, XID + 1),
        (0, 0),
        (1, 1),
        (1, 2),
        (1, u32::MAX),
        (3, 0),
        (3, 2),
        (5, 2),
        (7, 0),
        (7, 9),
        (7, u32::MAX),
    ];
    for end in [&mut client, &mut server] {
        for (word, value) in words {
            let mut info = info.to_vec();
            info[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
            let header = operation(XID, Direction::Reply, XMTERR, info.into());
            let routed = end.receive(&header.encode());
            assert!(
                matches!(routed, Routed::Discarded(_)),
                "{word} is {value}: {routed:?}"
            );
            assert!(end.operations.is_empty() && end.arrived.is_empty());
        }
        for cut in [0, 4, 16, info.len() - 4] {
            let header = operation(XID, Direction::Reply, XMTERR, info.slice(..cut));
            assert!(
                matches!(end.receive(&header.encode()), Routed::Discarded(_)),
                "{cut}"
            );
            assert!(end.operations.is_empty() && end.arrived.is_empty());
        }
    }
}

/// The memory for messages that may still be reported is bounded, and is freed when the connection
/// closes.
#[test]
fn only_so_many_replies_and_bad_messages_are_remembered() {
    const REPLIES: u32 = 256;
    const BAD: u32 = 4;
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    for xid in XID..=XID + REPLIES {
        let wire = send(&mut client, xid, 1000);
        assert_eq!(server.receive(&wire[0]), Routed::Taken);
        let call = server.take_call();
        let answer = message(xid, Direction::Reply, 150_000, &[]);
        let plan = reply_candidates(&mut server, &call, &answer).remove(0).plan;
        let mode = server
            .extensions
            .transfer_mode(1)
            .expect("it carries replies");
        let _ = mode.send_reply(xid, &*plan, &answer).expect("as planned");
    }
    let reported = |server: &mut End, xid| {
        let report = Report {
            bad: id(xid, Direction::Reply, 0),
            lead: None,
            fault: Fault::Continuation,
        };
        let report = operation(xid, Direction::Call, XMTERR, report.encode());
        server.receive(&report.encode()) == Routed::Taken
    };
    assert!(!reported(&mut server, XID), "the oldest is forgotten");
    for xid in [XID + 1, XID + REPLIES] {
        assert!(reported(&mut server, xid));
        assert_eq!(server.take_rejected(), (xid, Direction::Reply));
    }
    // The rest of a bad message is discarded silently, unless too many bad messages came after it.
    let parts: Vec<_> = (0..=BAD)
        .map(|n| send(&mut client, n, 150_000)[1].clone())
        .collect();
    for part in &parts {
        assert!(matches!(server.receive(part), Routed::Discarded(_)));
        assert!(server.take_report().is_some());
    }
    let _ = server.receive(&parts[1]);
    assert!(server.take_report().is_none(), "it was reported");
    let _ = server.receive(&parts[0]);
    assert!(server.take_report().is_some(), "that is forgotten");
    server.extensions.closed();
    assert!(
        !reported(&mut server, XID + 2),
        "nothing outlives the connection"
    );
}

#[test]
fn rtr_s5_1_a_peer_that_does_not_know_the_operations_is_not_sent_them_again() {
    let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
    let call = message(XID, Direction::Call, 156, &[8192]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(136, []));
    let plan = planning.candidates(&mut client).remove(0).plan;
    let _ = send(&mut client, XID, 150_000);
    let mode = client
        .extensions
        .transfer_mode(1)
        .expect("it carries calls");
    mode.call_refused(XID, PeerError::UnsupportedType);
    // This includes calls that were already planned.
    let late = mode.send_call(XID, &*plan, &call, &Chunks::default());
    assert!(late.is_err());
    assert!(planning.candidates(&mut client).is_empty());
}

#[test]
fn after_some_rejected_messages_the_extension_is_not_used() {
    let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
    let call = message(XID, Direction::Call, 156, &[8192]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(136, []));
    for _ in 0..3 {
        assert!(!planning.candidates(&mut client).is_empty());
        let _ = send(&mut client, XID, 150_000);
        let mode = client
            .extensions
            .transfer_mode(1)
            .expect("it carries calls");
        mode.call_refused(XID, PeerError::Chunk);
    }
    assert!(planning.candidates(&mut client).is_empty());
}

#[test]
fn a_plan_is_valid_only_for_its_message_and_its_registered_memory() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let call = message(XID, Direction::Call, 156, &[8192]);
    let other = message(XID, Direction::Call, 156, &[8193]);
    let planning = Planning::new(&client, &call, ReplyNeed::new(136, [1 << 20]));
    let count = planning.candidates(&mut client).len();
    for number in 0..count {
        let candidate = planning.candidates(&mut client).remove(number);
        let needs_memory = !candidate.reads.is_empty() || !candidate.write_chunks.is_empty();
        let mode = client
            .extensions
            .transfer_mode(1)
            .expect("it carries calls");
        let sent = mode.send_call(XID, &*candidate.plan, &call, &Chunks::default());
        assert_eq!(sent.is_err(), needs_memory);
        let candidate = planning.candidates(&mut client).remove(number);
        let mode = client
            .extensions
            .transfer_mode(1)
            .expect("it carries calls");
        let sent = mode.send_call(XID, &*candidate.plan, &other, &Chunks::default());
        assert!(sent.is_err() || candidate.reads[..] == [0]);
    }
    let candidate = planning.candidates(&mut client).remove(0);
    let (incoming, ..) = carry_call(&mut client, &mut server, XID, &call, candidate);
    let answer = message(XID, Direction::Reply, 136, &[]);
    let plan = reply_candidates(&mut server, &incoming, &answer)
        .remove(0)
        .plan;
    // A call's mode does not accept a reply's plan.
    let mode = client
        .extensions
        .transfer_mode(1)
        .expect("it carries calls");
    assert!(
        mode.send_call(XID, &*plan, &call, &Chunks::default())
            .is_err()
    );
}

/// A call is laid out for the receives that the peer has announced, in as many transmissions as it
/// takes. What was planned before the peer announces others is planned again.
#[test]
fn rtr_s7_2_a_plan_is_valid_only_until_the_peer_announces_something_else() {
    let shorter = BufferStructure::with_placement(512, 1, 4096);
    let updates = [
        ReceiveBufferStructure::property(&shorter),
        RequestReceiveLimit::property(&2),
        RoundTripSupport::property(&Support::empty()),
    ];
    for (items, now) in [&[8192][..], &[150_000], &[]].into_iter().zip(updates) {
        let (mut client, _) = pair_of("ddp+cont", "ddp+cont");
        let payload = if items.is_empty() { 100_000 } else { 156 };
        let call = message(XID, Direction::Call, payload, items);
        let planning = Planning::new(&client, &call, ReplyNeed::new(136, []));
        let send = |client: &mut End, plan: &dyn Planned| {
            let mode = client
                .extensions
                .transfer_mode(1)
                .expect("it carries calls");
            mode.send_call(XID, plan, &call, &Chunks::default())
        };
        let plan = planning.candidates(&mut client).remove(0).plan;
        assert!(send(&mut client, &*plan).is_ok());
        let update = Update {
            now,
            pending_cleared: false,
        };
        let header = operation(9, Direction::Call, UPDXCH, update.encode());
        assert_eq!(client.receive(&header.encode()), Routed::Taken);
        let late = send(&mut client, &*plan);
        assert!(late.is_err(), "{update:?}");
        // New plans are for what the peer takes now.
        for candidate in planning.candidates(&mut client) {
            if candidate.reads.is_empty() {
                assert!(send(&mut client, &*candidate.plan).is_ok(), "{update:?}");
            }
        }
    }
}

/// RFC 8166, section 3.3.1: each message has a new credit value. So has every transmission of a
/// group, and the value of the last one applies.
#[test]
fn the_credits_of_a_groups_last_transmission_apply() {
    let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
    let wire = send(&mut client, XID, 150_000);
    for (number, bytes) in wire.iter().enumerate() {
        let mut bytes = bytes.to_vec();
        let credits = 40 - number as u32;
        bytes[8..12].copy_from_slice(&credits.to_be_bytes());
        assert_eq!(server.receive(&bytes.into()), Routed::Taken);
    }
    let last = 40 - (wire.len() as u32 - 1);
    assert_eq!(server.take_call().requested, last);
}

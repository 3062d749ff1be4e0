//! Tests of messages in several Sends: the credits and receives that are reserved for them, their
//! time-out at a client, and what the engine owes the extension that carries them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Position, Segments};
use rdma::{Pool, Time};
use rpcrdma_connection::{CallError, Options};
use rpcrdma_ext_continuation::{Request, XMTCONT, XMTREQ};
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport, Support};
use rpcrdma_ext_xchar::{Characteristic, Init, UPDXCH, Update};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Cost, Extension, IncomingReply, NotTransferred, Outbox, Planned,
    ReceivedMessage, Refusal, ReplyCandidates, ReplyToPlan, TransferMode, Transferred,
    Transmission, Transmissions, Written, made_by,
};
use rpcrdma_host::{Budget, Charge};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::{Answer, Body, Chunks, Direction, ErrorBody, Header, Optional, Reader};
use support::{Pair, Posted, Seen, bytes, configs_with, data, message, open, reply, room};

/// Returns a connection with continued messages, whose client has credits for eight Sends.
fn continuing(change: impl FnOnce(&mut Options, &mut Options)) -> Pair {
    let mut pair = Pair::echoing(configs_with(Version::TWO, |client, server| {
        for options in [&mut *client, &mut *server] {
            options.protocols = rpcrdma_protocols::standard(&"cont".parse().unwrap());
            options.credits = 8;
        }
        change(client, server);
    }));
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    pair
}

#[test]
fn receives_for_replies_in_several_messages_are_released_with_each_call() {
    // A reply of 12,000 bytes takes three messages of 4096 bytes: two further receives.
    let mut pair = continuing(|client, _| client.spare_receives = 2);
    let posted = pair.client.receives.len();
    for xid in 2..5 {
        let content = data(xid, 12_000);
        let item = content.clone();
        pair.answer_with(move |call| Some(reply(open(call).0, 0, std::slice::from_ref(&item))));
        let call = message(xid, 0, &[]);
        let answer = pair.call(call, &room(0, &[content.len()])).unwrap();
        assert_eq!(open(&answer).2, [content]);
        assert_eq!(pair.client.registrations, 0, "call {xid} had no receives");
    }
    // Receives are released when they are consumed.
    for xid in 5..12 {
        pair.answer_with(support::echo);
        pair.call(message(xid, 0, &[]), &room(0, &[])).unwrap();
    }
    assert_eq!(pair.client.receives.len(), posted);
}

#[test]
fn receives_that_were_refused_are_not_counted_as_posted() {
    let mut pair = continuing(|client, _| client.spare_receives = 2);
    let call = |pair: &mut Pair, xid| {
        let content = data(xid, 12_000);
        let item = content.clone();
        pair.answer_with(move |call| Some(reply(open(call).0, 0, std::slice::from_ref(&item))));
        let answer = pair.call(message(xid, 0, &[]), &room(0, &[content.len()]));
        assert_eq!(open(&answer.unwrap()).2, [content]);
    };
    pair.client.no_further_receives = true;
    call(&mut pair, 2);
    assert_eq!(pair.client.registrations, 1, "it went by a write chunk");
    pair.client.no_further_receives = false;
    call(&mut pair, 3);
    assert_eq!(pair.client.registrations, 1);
}

#[test]
fn credits_of_a_call_that_waits_to_be_sent_are_not_promised_to_another() {
    let mut pair = continuing(|_, _| {});
    pair.client.room = 0;
    // Each takes five of eight credits in Sends alone.
    for xid in [2, 3] {
        let content = data(xid, 17_000);
        let call = message(xid, 0, std::slice::from_ref(&content));
        pair.client.call(call, &room(0, &[]));
        pair.client.run();
    }
    assert_eq!(pair.client.registrations, 1, "only the second has a chunk");
    pair.client.room = usize::MAX;
    pair.answer_with(|call| Some(reply(open(call).0, 0, &[])));
    pair.settle();
    let ended: Vec<u32> = pair.client.finished.iter().map(|(xid, _)| *xid).collect();
    assert_eq!(ended, [2, 3]);
}

/// A call in several Sends that waits to be sent while the inline limit falls is divided again, by
/// the new limit.
#[test]
fn a_carried_call_is_planned_again_when_the_inline_limit_shrinks() {
    let mut pair = continuing(|client, _| client.inline_send = 32 << 10);
    let resize = |pair: &mut Pair, size| {
        let requested = pair.client.connection.request_receive_size(size);
        assert_eq!(requested, Ok(()));
    };
    resize(&mut pair, 16 << 10);
    // The server announces the new size when every old receive has been consumed.
    for xid in 10..40 {
        pair.call(message(xid, 0, &[]), &room(0, &[])).unwrap();
    }
    pair.client.room = 0;
    pair.client.call(message(2, 5000, &[]), &room(0, &[]));
    pair.client.run();
    resize(&mut pair, 4096);
    pair.client.run();
    let before = pair.client.sent.len();
    pair.client.room = usize::MAX;
    pair.answer_with(|call| Some(reply(open(call).0, 0, &[])));
    pair.settle();
    let lengths = pair.client.sent[before..].iter();
    let lengths: Vec<usize> = lengths.map(|(message, _)| message.len()).collect();
    assert_eq!(lengths.len(), 5, "{lengths:?}");
    assert!(lengths.iter().all(|&len| len <= 4096), "{lengths:?}");
    assert_eq!(pair.client.registrations, 0);
    let (xid, result) = pair.client.finished.pop().unwrap();
    assert_eq!((xid, result.is_ok()), (2, true));
}

/// A call that waits to be sent while the server announces other receives is laid out for these, and
/// still needs no memory.
#[test]
fn a_carried_call_is_planned_again_when_the_server_announces_other_receives() {
    let mut pair = continuing(|client, server| {
        for options in [client, server] {
            options.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
        }
    });
    pair.client.room = 0;
    let content = data(2, 8192);
    let call = message(2, 0, std::slice::from_ref(&content));
    pair.client.call(call, &room(0, &[]));
    pair.client.run();
    let shorter = BufferStructure::with_placement(1024, 1, 4096);
    let update = Update {
        now: ReceiveBufferStructure::property(&shorter),
        pending_cleared: false,
    };
    let optional = Optional {
        direction: Direction::Call,
        opttype: UPDXCH,
        info: update.encode(),
    };
    let header = Header {
        xid: 0xffff,
        credits: 1,
        body: Body::Optional(optional),
    };
    pair.client.receive(&header.encode(), None).unwrap();
    let before = pair.client.sent.len();
    pair.client.room = usize::MAX;
    pair.client.run();
    let requests = pair.client.sent[before..].iter().map(|(message, _)| {
        let (header, _) = Header::decode(message).unwrap();
        let Body::Optional(optional) = header.body else {
            panic!("not in operations: {header:?}");
        };
        assert!(message.len() <= 1024 + 4096);
        optional.opttype
    });
    assert_eq!(requests.collect::<Vec<_>>(), [XMTREQ, XMTCONT]);
    assert_eq!(pair.client.registrations, 0);
}

/// Calls from server to client come by the base protocol. A client does not announce that it takes
/// them in operations, and refuses these by the error that says so.
#[test]
fn rtr_s1_4_a_client_does_not_say_that_it_takes_calls_in_operations() {
    let mut pair = continuing(|_, _| {});
    let (first, _) = &pair.client.sent[0];
    let (header, _) = Header::decode(first).unwrap();
    let Body::Optional(init) = header.body else {
        panic!("no INITXCH: {header:?}");
    };
    let init = Init::decode(&init.info).unwrap();
    let mut said = init.start.iter();
    let said = said.find(|property| property.id == RoundTripSupport::ID);
    let expected = Support::XRESP | Support::XCONT;
    assert_eq!(said, Some(&RoundTripSupport::property(&expected)));
    let optional = Optional {
        direction: Direction::Call,
        opttype: XMTREQ,
        info: Request::default().encode(),
    };
    let header = Header {
        xid: 9,
        credits: 1,
        body: Body::Optional(optional),
    };
    let call = [&header.encode()[..], &bytes(&message(9, 0, &[]))].concat();
    pair.client.receive(&call.into(), None).unwrap();
    pair.client.run();
    let (answer, _) = pair.client.sent.last().unwrap();
    let (answer, _) = Header::decode(answer).unwrap();
    assert_eq!(answer.xid, 9);
    assert_eq!(answer.body, Body::Error(ErrorBody::InvalidOption));
}

#[test]
fn a_reply_that_stays_incomplete_closes_the_clients_connection_after_its_time() {
    let timeout = Duration::from_secs(9);
    let mut pair = continuing(|client, _| client.group_timeout = timeout);
    let content = data(2, 12_000);
    pair.answer_with(move |call| Some(reply(open(call).0, 0, std::slice::from_ref(&content))));
    pair.client.call(message(2, 0, &[]), &room(0, &[12_000]));
    pair.client.run();
    let Some(Posted::Send(call, None)) = pair.client.posted.pop_front() else {
        panic!("no call");
    };
    pair.server.receive(&call, None).unwrap();
    pair.server.run();
    let (id, call) = pair.server.delivered.pop_front().unwrap();
    let answer = (pair.answer.as_mut().unwrap())(&call);
    pair.server.reply(id, answer);
    pair.server.run();
    assert_eq!(pair.server.posted.len(), 3);
    let start = Time::from_nanos(7_000_000_000);
    assert_eq!(pair.client.connection.poll_timeout(), None);
    for later in [Duration::ZERO, Duration::from_secs(5)] {
        pair.client.now = start + later;
        let Some(Posted::Send(part, None)) = pair.server.posted.pop_front() else {
            panic!("no reply");
        };
        pair.client.receive(&part, None).unwrap();
        pair.client.run();
        assert_eq!(pair.client.connection.poll_timeout(), Some(start + timeout));
    }
    let just_before = start + (timeout - Duration::from_nanos(1));
    pair.client.connection.handle_timeout(just_before);
    pair.client.run();
    assert_eq!(pair.client.closed, None);
    pair.client.connection.handle_timeout(start + timeout);
    pair.client.run();
    let reason = pair.client.closed.as_deref().unwrap();
    assert!(reason.contains("not finished within 9s"), "{reason}");
    assert_eq!(pair.client.finished.len(), 0);
}

/// Makes a call with 8 KiB of data and has the server receive truncated its messages from the one with
/// this index on.
fn without_memory(pair: &mut Pair, from: usize) -> (Message, Vec<Vec<Bytes>>) {
    let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
    let calls = std::rc::Rc::clone(&seen);
    pair.answer_with(move |call| {
        calls.borrow_mut().push(open(call).2);
        Some(reply(open(call).0, 0, &[]))
    });
    pair.client
        .call(message(7, 3, &[data(7, 8192)]), &room(0, &[]));
    pair.client.run();
    let messages = std::mem::take(&mut pair.client.posted);
    for (index, posted) in messages.into_iter().enumerate() {
        let Posted::Send(message, None) = posted else {
            panic!("the call is in Sends alone");
        };
        match index < from {
            true => pair.server.receive(&message, None).unwrap(),
            false => pair.server.receive_truncated(&message),
        }
    }
    pair.settle();
    let (xid, result) = pair.client.finished.pop().unwrap();
    assert_eq!(xid, 7);
    (result.unwrap(), seen.take())
}

/// The transmissions of an unfinished call count against the memory of their connection. When there is no more, they
/// are dropped, and the client keeps the data until there is memory to fetch it.
#[test]
fn transmissions_of_an_unfinished_call_are_charged_to_their_connection() {
    for has_memory in [true, false] {
        // 10,485 bytes are guaranteed to each connection.
        let budget = Budget::new(2 << 20, 100);
        let account = budget.account();
        let mut configs = configs_with(Version::TWO, |client, server| {
            for options in [client, server] {
                options.protocols = rpcrdma_protocols::standard(&"cont".parse().unwrap());
            }
        });
        configs.1.pool = Pool::new(64 << 20).charged_to(&account);
        let mut pair = Pair::echoing(configs);
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        assert_eq!(account.held(), 0);
        let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
        let calls = std::rc::Rc::clone(&seen);
        pair.answer_with(move |call| {
            calls.borrow_mut().push(open(call).2);
            Some(reply(open(call).0, 0, &[]))
        });
        let mut other = Charge::new(Some(budget.account()));
        if !has_memory {
            other.add(budget.limit());
        }
        let content = data(2, 17_000);
        let call = message(2, 0, std::slice::from_ref(&content));
        pair.client.call(call, &room(0, &[]));
        pair.client.run();
        let sends = std::mem::take(&mut pair.client.posted);
        assert_eq!(sends.len(), 5);
        for (number, posted) in sends.into_iter().enumerate() {
            let Posted::Send(part, None) = posted else {
                panic!("the call is in Sends alone");
            };
            // Each transmission before holds a receive. There is no room for the third.
            let held = match has_memory || number < 3 {
                true => number * 4096,
                false => 0,
            };
            assert_eq!(account.held(), held);
            pair.server.receive(&part, None).unwrap();
            pair.server.run();
        }
        assert_eq!(pair.server.delivered.len(), usize::from(has_memory));
        pair.settle();
        assert_eq!(pair.server.closed, None);
        assert_eq!(pair.server.connection.waits_for_memory(), !has_memory);
        drop(other);
        pair.server.connection.retry();
        pair.settle();
        let (xid, result) = pair.client.finished.pop().unwrap();
        assert!(xid == 2 && result.is_ok(), "{result:?}");
        assert_eq!(seen.take(), [[content]]);
        assert_eq!(pair.server.most_reads > 0, !has_memory);
        drop(pair);
        assert_eq!(account.held(), 0);
    }
}

/// The client keeps a call that a server without memory refuses, and offers its data for RDMA Reads. It is
/// executed once, and the next one comes in Sends again.
#[test]
fn a_call_without_memory_at_the_server_is_fetched_instead() {
    for from in 0..2 {
        let mut pair = continuing(|_, _| {});
        for _ in 0..4 {
            pair.server.most_reads = 0;
            let (_, calls) = without_memory(&mut pair, from);
            assert_eq!(calls, [vec![data(7, 8192)]], "from {from}");
            assert!(pair.server.most_reads > 0, "it was not fetched");
            assert!(pair.server.closed.is_none() && pair.client.registered.is_empty());
        }
    }
}

/// A message that belongs to no call that can be refused ends the connection.
#[test]
fn a_truncated_message_of_the_base_protocol_closes_the_connection() {
    for version in [Version::ONE, Version::TWO, Version::TWO_WG] {
        let mut pair = Pair::echoing(configs_with(version, |_, _| {}));
        pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
        pair.client.call(message(2, 200, &[]), &room(0, &[]));
        pair.client.run();
        let Some(Posted::Send(call, None)) = pair.client.posted.pop_front() else {
            panic!("no call");
        };
        pair.server.receive_truncated(&call);
        pair.server.run();
        let reason = pair.server.closed.as_deref().unwrap();
        assert!(reason.contains("share of memory"), "{version}: {reason}");
    }
}

/// A server announces its characteristics before it answers a message that came earlier
/// (xcharext-02: INITXCH is an end's first message).
#[test]
fn the_first_message_of_a_server_is_that_of_its_extensions() {
    let (_, server) = configs_with(Version::TWO, |_, _| {});
    let mut server = support::Endpoint::new(server);
    server.establish(None);
    // A call with a position-zero read chunk of no bytes is answered with an error.
    let (xid, credits) = (5, 1);
    let body = Body::NoMsg(Direction::Call, Chunks::default());
    let call = Header { xid, credits, body }.encode();
    server.receive(&call, None).unwrap();
    server.run();
    let sent: Vec<Seen> = server
        .sent
        .iter()
        .map(|(message, _)| Seen::new(message).unwrap())
        .collect();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].optional && sent[1].error, "{sent:?}");
}

/// The operation of the extension [`Carrier`]: from the range that nobody has assigned.
const CARRY: u32 = 0x7fff_0001;
/// The payload of an operation, in bytes.
const PART: usize = 3900;

thread_local! {
    /// The XIDs of the calls whose end was reported to the extension.
    static ENDED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// An extension that carries long calls. The reply names the number of bytes that the server says
/// it wrote into the first write chunk.
#[derive(Debug)]
struct Carrier;

impl Extension for Carrier {
    fn name(&self) -> &'static str {
        "carrier"
    }

    fn numbers(&self) -> &[u32] {
        &[CARRY]
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        if op.direction == Direction::Reply {
            let mut info = Reader::new(op.delimited()?.0);
            let (position, len) = (info.u32()?, u64::from(info.u32()?));
            let mut whole: BytesMut = op.message.iter().flatten().copied().collect();
            let payload = whole.split_off(op.delimited()?.1).freeze();
            out.transferred(Transferred::Reply(IncomingReply {
                xid: op.xid,
                granted: op.credits,
                transmissions: 1,
                message: Message::from_payload(payload),
                writes: [Some(Written { position, len })].into_iter().collect(),
            }));
        }
        Ok(())
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }
}

impl TransferMode for Carrier {
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let transmissions = call.shape.payload().div_ceil(PART as u64) as u32;
        let cost = Cost {
            transmissions,
            wire_bytes: call.shape.payload(),
            reply_transmissions: 1,
            reply_wire_bytes: 60,
            ..Cost::default()
        };
        vec![CallCandidate {
            cost,
            reads: Default::default(),
            write_chunks: [ROOM as u64].into_iter().collect(),
            reply_chunk: None,
            plan: Arc::new("parts"),
        }]
    }

    fn send_call(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        assert!(plan.of::<&'static str>().is_ok());
        let whole = Bytes::from(bytes(message));
        let starts = (0..whole.len()).step_by(PART);
        let parts = starts.map(|at| {
            Transmission::new(
                CARRY,
                Bytes::new(),
                Segments::from_iter([whole.slice(at..whole.len().min(at + PART))]),
            )
        });
        Ok(parts.collect())
    }

    fn plan_reply(&mut self, _: &ReplyToPlan<'_>) -> ReplyCandidates {
        ReplyCandidates::new()
    }

    fn send_reply(
        &mut self,
        _: u32,
        _: &dyn Planned,
        _: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        Err(NotTransferred("it carries no replies".to_owned()))
    }

    fn call_ended(&mut self, xid: u32) {
        ENDED.with_borrow_mut(|ended| ended.push(xid));
    }
}

/// The room for the item of a reply, in bytes.
const ROOM: usize = 5000;

/// Returns a connection whose client has made a call with room for one item, which the extension
/// carries. The test acts as the server.
fn carried(xid: u32) -> Pair {
    let mut pair = Pair::new(configs_with(Version::TWO, |client, server| {
        for options in [client, server] {
            let carrier = made_by(|_| Box::new(Carrier));
            options.protocols.add(Version::TWO, carrier);
        }
    }));
    pair.client.call(message(xid, 2000, &[]), &room(0, &[ROOM]));
    pair.settle();
    let sent = pair.client.sent.iter();
    let operations = sent.filter(|(sent, _)| Seen::new(sent).unwrap().xid == xid);
    assert_eq!(operations.count(), 3);
    pair
}

/// Returns a reply to a call, in which the server says that it wrote `len` bytes.
fn written(xid: u32, len: usize) -> Bytes {
    let answer = reply(xid, 0, &[Bytes::from(vec![0; len])]);
    let Position::At(position) = answer.items()[0].position else {
        panic!("an item without a position");
    };
    let info = [position, len as u32]
        .into_iter()
        .flat_map(u32::to_be_bytes);
    let body = Body::Optional(Optional {
        direction: Direction::Reply,
        opttype: CARRY,
        info: info.collect(),
    });
    let credits = 9;
    let header = Header { xid, credits, body }.encode();
    [&header[..], &answer.payload().concat()].concat().into()
}

#[test]
fn a_reply_in_operations_that_exceeds_its_chunk_fails_its_call() {
    for (len, fits) in [(ROOM, true), (ROOM + 1, false), (1 << 30, false)] {
        let mut pair = carried(2);
        let answer = written(2, len.min(2 * ROOM));
        // The length that the operation names, behind its position.
        let mut answer = BytesMut::from(&answer[..]);
        let at = rpcrdma_v2::limits::OPTIONAL_LEN + 4;
        answer[at..at + 4].copy_from_slice(&(len as u32).to_be_bytes());
        pair.client.receive(&answer.freeze(), None).unwrap();
        pair.client.run();
        let (_, result) = pair.client.finished.pop().unwrap();
        match result {
            Ok(reply) => assert!(fits && open(&reply).2[0].len() == ROOM, "{len}"),
            Err(CallError::Protocol(reason)) => {
                assert!(!fits && reason.contains("wrote more"), "{len}: {reason}");
            }
            Err(other) => panic!("{other}"),
        }
        assert!(pair.client.registered.is_empty());
    }
}

#[test]
fn an_extension_is_told_once_of_the_end_of_each_call_that_it_laid_out() {
    let ended = || ENDED.with_borrow_mut(std::mem::take);
    // Answered in operations.
    let mut pair = carried(2);
    assert_eq!(ended(), []);
    pair.client.receive(&written(2, ROOM), None).unwrap();
    pair.client.run();
    assert_eq!(ended(), [2]);
    // Refused by the peer: the call is made again without the extension.
    let mut pair = carried(3);
    let refused = Answer::invalid_option(3).encode(9);
    pair.client.receive(&refused, None).unwrap();
    pair.client.run();
    assert_eq!(ended(), [3]);
    assert_eq!(pair.client.finished.len(), 0);
    let sent = pair.client.sent.iter();
    let sent = sent.map(|(message, _)| Seen::new(message).unwrap());
    let of_call: Vec<bool> = sent
        .filter(|seen| seen.xid == 3)
        .map(|seen| seen.optional)
        .collect();
    assert_eq!(of_call, [true, true, true, false]);
    // Cancelled: it ends when the reply arrives.
    let mut pair = carried(4);
    pair.client.connection.cancel(4);
    pair.client.run();
    assert_eq!(ended(), []);
    pair.client.receive(&written(4, ROOM), None).unwrap();
    pair.client.run();
    assert_eq!(ended(), [4]);
    // Cancelled before the extension laid it out.
    let mut pair = carried(5);
    pair.client.room = 0;
    pair.client.call(message(6, 2000, &[]), &room(0, &[ROOM]));
    pair.client.run();
    assert_eq!(
        pair.client.registered.len(),
        2,
        "it is planned, and waits to be sent"
    );
    pair.client.connection.cancel(6);
    pair.client.room = usize::MAX;
    pair.client.run();
    assert_eq!(ended(), []);
    assert_eq!(pair.client.registered.len(), 1, "that of the call 5");
    let mut sent = pair.client.sent.iter();
    assert!(sent.all(|(message, _)| Seen::new(message).unwrap().xid != 6));
}

//! Tests of a client that sends invalid rtrext-00 operations to a server with all features. The
//! server sends exactly the required error, other connections are not affected, and no memory is
//! kept. The messages are built by hand from the figures of the documents. Tests of single fields
//! are in ext-continuation/tests/hostile.rs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rdma::{Device, QpId, SendWr, Time, WrId};
use rdma_support::fabric::{FakeDevice, Traffic, World, attributes};
use rdma_support::{Pair, bare, data, message, open, room, speaking};
use rpc_transport::ConnectionId;
use rpc_transport::rdma::{Choice, RdmaServerOptions, Version, Versions};
use rpcrdma_protocols::RoundTripFeatures;

const SERVER: usize = 1;
const XID: u32 = 0x0bad_f00d;
/// The credits that the server grants, which is also the maximum number of transmissions of a call.
const GRANT: u32 = 16;

const CALL: u32 = 0;
const REPLY: u32 = 1;
/// The length of the transport header of an operation, in bytes.
const HEADER: usize = 28;
/// The offset of the server's receive segment for bulk data.
const TARGET: usize = 1024;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn operation(xid: u32, direction: u32, opttype: u32, info: &[u32]) -> Vec<u8> {
    let len = 4 * info.len() as u32;
    bytes(&[&[xid, 2, GRANT, 5, direction, opttype, len], info].concat())
}

/// Returns a ROPT_XMTREQ operation with these items and no reply directions, the number of
/// transmissions, and the length of the payload.
fn request(xid: u32, items: &[u32], count: u32, payload: u32) -> Vec<u8> {
    operation(xid, CALL, 5, &[items, &[0, count, 0, payload]].concat())
}

/// Returns the description of an item of 100 bytes at position 16 that is placed in `segment` at
/// `offset`.
fn placed(offset: u32, segment: u32) -> [u32; 8] {
    [1, 16, 100, 2, offset, 1, segment, 0]
}

/// Returns the RPC message without the item that [`placed`] describes.
fn around(xid: u32) -> Vec<u8> {
    bytes(&[xid, CALL, 1, 100, 0xe0f])
}

/// Returns a complete call with a placed item, which claims to be at this offset and segment.
fn with_item(offset: u32, segment: u32) -> Vec<u8> {
    let items = &placed(offset, segment)[..7];
    let mut call = request(XID, items, 1, 20);
    call.extend(around(XID));
    call.resize(TARGET, 0xaa);
    call.extend(data(1, 100));
    call
}

fn plain(xid: u32) -> Vec<u8> {
    bytes(&[xid, CALL, 0, 0xe0f])
}

/// Returns the first transmission, with 8 payload bytes, of a call in `count` transmissions.
fn first(xid: u32, count: u32) -> Vec<u8> {
    [request(xid, &[0], count, 8), plain(xid)[..8].to_vec()].concat()
}

/// Returns the second transmission of the call that [`first`] begins, with the rest of the payload.
fn second(xid: u32, number: u32, initial: u32) -> Vec<u8> {
    let header = operation(xid, CALL, 7, &[number, initial, 8]);
    [header, plain(xid)[8..].to_vec()].concat()
}

/// Returns an RDMA2_MSG message with a call.
fn base(xid: u32) -> Vec<u8> {
    let header = bytes(&[xid, 2, GRANT, 0, CALL, 0, 0, 0]);
    [header, plain(xid)].concat()
}

/// A message of the server, without its credits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// RDMA2_ERR_BAD_HEADER.
    BadHeader(u32),
    /// ROPT_XMTERR: the XID and the words after the transport header.
    Report(u32, Vec<u32>),
    /// A reply to a call, or a transmission of one.
    Reply(u32),
}

fn report(number: u32, with_lead: bool, fault: &[u32]) -> Answer {
    let bad = [XID, CALL, number];
    let lead = match with_lead {
        true => vec![1, XID, CALL, 0],
        false => vec![0],
    };
    Answer::Report(XID, [&bad[..], &lead, fault].concat())
}

fn understood(message: &Bytes) -> Answer {
    let words: Vec<u32> = message
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words[1], 2, "version 2");
    assert!((1..=GRANT).contains(&words[2]), "{} credits", words[2]);
    match words[3..] {
        [4, 2] => Answer::BadHeader(words[0]),
        [5, REPLY, 8, len, ..] => {
            assert_eq!(len as usize, message.len() - HEADER);
            Answer::Report(words[0], words[7..].to_vec())
        }
        [5, REPLY, 6 | 7, ..] | [0, REPLY, ..] => Answer::Reply(words[0]),
        _ => panic!("unexpected {words:x?}"),
    }
}

/// A raw client that sends invalid operations, beside a valid client of the same server.
struct Liar {
    world: Rc<RefCell<World>>,
    pair: Pair,
    honest: ConnectionId,
    device: FakeDevice,
    qp: QpId,
    sent: u64,
}

impl Liar {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut RdmaServerOptions)) -> Self {
        let two = Version::TWO;
        let (mut client, mut server) = speaking(Choice::Only(two), Versions::only(two));
        let features: RoundTripFeatures = "ddp+cont".parse().unwrap();
        client.common.protocols = rpcrdma_protocols::standard(&features);
        server.common.protocols = rpcrdma_protocols::standard(&features);
        server.common.credits = GRANT;
        change(&mut server);
        let (world, mut pair) = Pair::fake_with(client, server, attributes());
        pair.echo();
        let honest = pair.connect();
        let (mut device, qp) = bare(&world);
        for id in 0..200 {
            let receive = device.pool().alloc(4096).unwrap();
            device.post_receive(qp, WrId(id), receive.into()).unwrap();
        }
        pair.until(|pair| {
            device.poll(Time::ZERO, &mut VecDeque::new());
            pair.server_up.len() == 2
        });
        let mut liar = Self {
            world,
            pair,
            honest,
            device,
            qp,
            sent: 0,
        };
        // What it is like: of all the characteristics, what it supports.
        let said = [1, 4, 4, 7, 0];
        liar.say(&operation(1, CALL, 1, &said));
        liar.pair.settle();
        liar
    }

    fn say(&mut self, message: &[u8]) {
        let send = SendWr::Send {
            gather: std::iter::once(Bytes::copy_from_slice(message)).collect(),
            invalidate: None,
        };
        self.sent += 1;
        let id = WrId(1000 + self.sent);
        self.device.post_send(self.qp, id, send, true).unwrap();
        self.device.poll(Time::ZERO, &mut VecDeque::new());
        self.pair.settle();
    }

    /// Sends messages and returns the server's answers.
    fn hear(&mut self, messages: &[Vec<u8>]) -> Vec<Answer> {
        let before = self.world.borrow().traffic.len();
        messages.iter().for_each(|message| self.say(message));
        let world = self.world.borrow();
        let answers = world.traffic[before..]
            .iter()
            .filter_map(|(from, what)| match what {
                Traffic::Send(bytes, _) if *from == SERVER => Some(understood(bytes)),
                _ => None,
            });
        answers.collect()
    }

    /// Checks that both connections still work and that the server has kept no memory.
    #[track_caller]
    fn unharmed(&mut self, idle: usize, what: &str) {
        assert_eq!(self.hear(&[base(7)]), [Answer::Reply(7)], "{what}");
        let call = message(9, 0, &[data(1, 8000)]);
        let end = self.pair.call(self.honest, call, &room(0, &[8000]));
        assert_eq!(open(&end.reply()), (9, 0, vec![data(1, 8000)]), "{what}");
        assert!(
            self.pair.server_down.is_empty(),
            "{what}: {:?}",
            self.pair.server_down
        );
        self.pair.settle();
        assert_eq!(self.pair.server_pool.in_use(), idle, "{what}");
    }

    /// Returns the server's pool memory in use while it is idle.
    fn idle(&mut self) -> usize {
        let _ = self.hear(&[base(7)]);
        let call = message(9, 0, &[data(1, 8000)]);
        let _ = self.pair.call(self.honest, call, &room(0, &[8000])).reply();
        self.pair.settle();
        self.pair.server_pool.in_use()
    }
}

type Row = (&'static str, Vec<Vec<u8>>, Vec<Answer>);

fn rows() -> Vec<Row> {
    let bad = || vec![Answer::BadHeader(XID)];
    let reply = || vec![Answer::Reply(XID)];
    let whole = |message: Vec<u8>| [message, plain(XID)].concat();
    let mut rows = vec![
        ("a call", vec![whole(request(XID, &[0], 1, 16))], reply()),
        (
            "in two transmissions",
            vec![first(XID, 2), second(XID, 1, 5)],
            reply(),
        ),
        ("with an item placed", vec![with_item(0, 0)], reply()),
        (
            "count of 0",
            vec![whole(request(XID, &[0], 0, 16))],
            vec![report(0, false, &[4, 1, 0])],
        ),
        (
            "count over the limit",
            vec![whole(request(XID, &[0], GRANT + 1, 16)), second(XID, 1, 5)],
            vec![report(0, false, &[4, GRANT, GRANT + 1])],
        ),
        (
            "payload that is not there",
            vec![whole(request(XID, &[0], 1, 20))],
            vec![report(0, false, &[8, 20, 0, 16])],
        ),
        (
            "payload of odd length",
            vec![whole(request(XID, &[0], 1, 15))],
            vec![report(0, false, &[8, 15, 0, 16])],
        ),
        (
            "payload of 4 GiB",
            vec![whole(request(XID, &[0], 1, u32::MAX))],
            vec![report(0, false, &[8, u32::MAX, 0, 16])],
        ),
        (
            "segment that is none",
            vec![with_item(0, 1)],
            vec![report(0, false, &[7, 1, 0, 0])],
        ),
        (
            "data that was not sent",
            vec![with_item(4, 0)],
            vec![report(0, false, &[7, 0, 0, 0])],
        ),
        (
            "odd offset",
            vec![with_item(2, 0)],
            vec![report(0, false, &[6, 2, 0, 65_535])],
        ),
        (
            "offset beyond the segment",
            vec![with_item(65_536, 0)],
            vec![report(0, false, &[6, 65_536, 0, 65_535])],
        ),
        (
            "another RPC XID",
            vec![[request(XID, &[0], 1, 16), plain(XID + 1)].concat()],
            bad(),
        ),
        (
            "a result in a request",
            vec![whole(request(XID, &[1, 16, 0, 5], 1, 16))],
            bad(),
        ),
        (
            "a type that is none",
            vec![whole(request(XID, &[1, 16, 0, 7], 1, 16))],
            bad(),
        ),
        (
            "items without end",
            vec![whole(request(XID, &[u32::MAX], 1, 16))],
            bad(),
        ),
        (
            "a REPLY",
            vec![whole(operation(XID, REPLY, 5, &[0, 0, 1, 0, 16]))],
            bad(),
        ),
        (
            "a response nobody waits for",
            vec![whole(operation(XID, REPLY, 6, &[0, 1, 16]))],
            vec![],
        ),
        (
            "a report of nothing",
            vec![operation(XID, REPLY, 8, &[XID, CALL, 0, 0, 3])],
            vec![],
        ),
        (
            "a report of no reply",
            vec![operation(XID, CALL, 8, &[XID, REPLY, 0, 0, 3])],
            vec![],
        ),
        (
            "a report that is none",
            vec![operation(XID, REPLY, 8, &[XID, CALL, 0, 0, 9])],
            vec![],
        ),
        (
            "continuation of nothing",
            vec![second(11, 1, 5)],
            vec![Answer::Report(11, vec![11, CALL, 1, 0, 3])],
        ),
        (
            "another number",
            vec![first(XID, 3), second(XID, 2, 5)],
            vec![report(2, true, &[4, 1, 2])],
        ),
        (
            "another type",
            vec![first(XID, 2), second(XID, 1, 6)],
            vec![report(1, true, &[2, 5, 6])],
        ),
        (
            "twice the same",
            vec![first(XID, 3), second(XID, 1, 5), second(XID, 1, 5)],
            vec![report(1, true, &[4, 2, 1])],
        ),
        (
            "a call between",
            vec![first(XID, 2), base(5), second(XID, 1, 5)],
            vec![report(1, true, &[1, 5, 0]), Answer::Reply(5)],
        ),
        (
            "an update between",
            vec![
                first(XID, 2),
                operation(5, CALL, 4, &[4, 4, 7, 0]),
                second(XID, 1, 5),
            ],
            vec![report(1, true, &[2, 7, 4])],
        ),
        (
            "a group between",
            vec![first(XID, 2), first(5, 2), second(5, 1, 5)],
            vec![report(1, true, &[2, 7, 5]), Answer::Reply(5)],
        ),
    ];
    let other = second(5, 1, 5);
    let of_other = Answer::Report(5, vec![5, CALL, 1, 1, XID, CALL, 0, 5, XID, 5]);
    rows.push(("another XID", vec![first(XID, 2), other], vec![of_other]));
    rows.push((
        "cut short",
        vec![operation(XID, CALL, 5, &[0, 0, 1, 0])],
        bad(),
    ));
    rows.push((
        "longer",
        vec![operation(XID, CALL, 5, &[0, 0, 1, 0, 0, 0])],
        bad(),
    ));
    rows
}

#[test]
fn lies_are_answered_as_they_must_be_and_nobody_else_is_harmed() {
    let mut liar = Liar::new();
    let idle = liar.idle();
    for (what, messages, expected) in rows() {
        assert_eq!(liar.hear(&messages), expected, "{what}");
        liar.unharmed(idle, what);
    }
}

/// rtrext-00, section 5.4: a reply that the client reports as unusable cannot be sent in another
/// transfer mode if the call offered no chunks, so an error answers the call.
#[test]
fn rtr_s5_4_a_reply_that_was_reported_is_answered_with_bad_header() {
    let mut liar = Liar::new();
    let idle = liar.idle();
    // The reply takes two receives, and three more than one are there for it.
    let info = [1, 16, 6000, 2, 0, 1, 0, 0, 1, 3, 20];
    let mut call = operation(XID, CALL, 5, &info);
    call.extend(bytes(&[XID, CALL, 1, 6000, 0xe0f]));
    call.resize(TARGET, 0);
    call.extend(data(1, 6000));
    let (call, report) = ([call], [operation(XID, CALL, 8, &[XID, REPLY, 0, 0, 3])]);
    for _ in 0..3 {
        let both = [Answer::Reply(XID), Answer::Reply(XID)];
        assert_eq!(liar.hear(&call), both);
        assert_eq!(liar.hear(&report), [Answer::BadHeader(XID)]);
        // Once for each reply.
        assert_eq!(liar.hear(&report), []);
        liar.unharmed(idle, "a reply reported");
    }
    // What was bad is of no reply, but came into the middle of this one.
    let bad = [XID + 1, REPLY, 1];
    let within = |fault: &[u32]| {
        let info = [&bad[..], &[1, XID, REPLY, 0], fault].concat();
        [operation(XID + 1, CALL, 8, &info)]
    };
    assert_eq!(liar.hear(&call).len(), 2);
    assert_eq!(liar.hear(&within(&[4, 1, 2])), []);
    assert_eq!(liar.hear(&within(&[5, XID + 1, XID])), []);
    let report = within(&[5, XID, XID + 1]);
    assert_eq!(liar.hear(&report), [Answer::BadHeader(XID)]);
    assert_eq!(liar.hear(&report), []);
    liar.unharmed(idle, "a reply broken into");
}

/// Only one incomplete group is kept, and any other message discards it.
#[test]
fn groups_that_are_never_completed_hold_nothing() {
    let mut liar = Liar::new();
    let idle = liar.idle();
    for number in 0..150 {
        // Each with XIDs of its own, and all the transmissions but the last.
        let xid = 100 + number;
        let parts = [first(xid, 3), second(xid, 1, 5)].map(|mut part| {
            // What is short is not left where it came.
            part.resize(3000, 0);
            part
        });
        let answers = liar.hear(&parts);
        assert_eq!(answers.len(), usize::from(number > 0));
        // Its parts hold the receives that they came in; those of the group before it are back.
        let held = liar.pair.server_pool.in_use() - idle;
        assert!(
            (64 << 10..=160 << 10).contains(&held),
            "group {number}: {held} bytes"
        );
    }
    let answers = liar.hear(&[base(5)]);
    assert_eq!(
        answers.len(),
        2,
        "the last one is reported, and the call answered"
    );
    liar.unharmed(idle, "groups");
    // Nor does one that its connection ended in.
    let _ = liar.hear(&[first(XID, 3)]);
    liar.device.disconnect(liar.qp);
    liar.device.poll(Time::ZERO, &mut VecDeque::new());
    liar.pair.until(|pair| !pair.server_down.is_empty());
    let call = message(9, 0, &[data(1, 8000)]);
    let _ = liar.pair.call(liar.honest, call, &room(0, &[8000])).reply();
    liar.pair.settle();
    assert!(liar.pair.server_pool.in_use() < idle);
}

/// A group that is not completed in time ends its connection, and no other.
#[test]
fn a_group_that_is_not_completed_in_time_closes_its_connection() {
    let limit = Duration::from_secs(7);
    let mut liar = Liar::with(|server| server.common.group_timeout = limit);
    let idle = liar.idle();
    // One that is completed late, but in time.
    let _ = liar.hear(&[first(5, 2)]);
    liar.pair.ahead += limit - Duration::from_secs(2);
    assert_eq!(liar.hear(&[second(5, 1, 5)]), [Answer::Reply(5)]);
    liar.pair.ahead += limit;
    liar.unharmed(idle, "completed");
    let _ = liar.hear(&[first(XID, 3)]);
    liar.pair.ahead += limit - Duration::from_secs(2);
    // Going on does not put it off.
    let _ = liar.hear(&[second(XID, 1, 5)]);
    assert!(liar.pair.server_down.is_empty());
    liar.pair.ahead += Duration::from_secs(2);
    liar.pair.settle();
    let [(_, reason)] = &liar.pair.server_down[..] else {
        panic!("{:?}", liar.pair.server_down);
    };
    assert!(reason.contains("not finished within 7s"), "{reason}");
    let call = message(9, 0, &[data(1, 8000)]);
    let end = liar.pair.call(liar.honest, call, &room(0, &[8000]));
    assert_eq!(open(&end.reply()).0, 9);
    liar.pair.settle();
    assert!(liar.pair.server_pool.in_use() < idle, "its memory is back");
}

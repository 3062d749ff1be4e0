//! Tests of the extension interface: what is reported to extensions, and what they can request.

mod common;
mod cutter;

use bytes::Bytes;
use common::{XID, header, optional, rpc};
use cutter::{Cutter, LEN};
use onc_rpc::{Extras, Message};
use rpcrdma_extension::{
    Action, CallToPlan, ConnectionLimits, Extension, Extensions, Heard, Outbox, PeerError,
    Property, ReceivedMessage, Refusal, Start, Transferred,
};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Chunks, Direction, ErrorBody, Header, Malformed, Optional, Side};
use transfer_plan::{ChunkCounts, ChunkLimits, Limits, ReplyNeed, Shape};

const A: u32 = 100;
const B: u32 = 200;

/// An extension that records every call of its methods.
#[derive(Debug)]
struct Recorder {
    name: &'static str,
    opttypes: Vec<u32>,
    said: Vec<String>,
    refusal: Option<Refusal>,
}

impl Recorder {
    fn boxed(name: &'static str, opttypes: &[u32]) -> Box<dyn Extension> {
        Box::new(Self::new(name, opttypes))
    }

    fn new(name: &'static str, opttypes: &[u32]) -> Self {
        let opttypes = opttypes.to_vec();
        Self {
            name,
            opttypes,
            said: Vec::new(),
            refusal: None,
        }
    }
}

impl Extension for Recorder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn numbers(&self) -> &[u32] {
        &self.opttypes
    }

    fn properties(&self) -> Vec<Property> {
        vec![Property {
            id: self.opttypes[0],
            value: Bytes::from_static(b"mine"),
        }]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        let opened_by = start.opened_by.map(|heard| heard.xid);
        let known = start.properties.len();
        self.said.push(format!("start {opened_by:?} {known}"));
        out.call(self.opttypes[0], Bytes::from_static(self.name.as_bytes()));
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let payload = op.message_len().saturating_sub(op.delimited()?.1);
        self.said.push(format!("got {} {payload}", op.number));
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        out.share_property(Property {
            id: 7,
            value: Bytes::copy_from_slice(op.delimited()?.0),
        });
        Ok(())
    }

    fn observed(&mut self, heard: &Heard, _: &mut Outbox<'_>) {
        self.said.push(format!("heard {:#x}", heard.xid));
    }

    fn refused(&mut self, xid: u32, error: PeerError, _: &mut Outbox<'_>) {
        self.said.push(format!("refused {xid} {error}"));
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        let Property { id, value } = property;
        self.said.push(format!("learnt {id} {value:?}"));
    }

    fn limits(&self, limits: &mut ConnectionLimits) {
        limits.inline_send += self.opttypes[0];
    }
}

fn two() -> Extensions {
    let list = vec![
        Recorder::boxed("a", &[A, A + 1]),
        Recorder::boxed("b", &[B]),
    ];
    Extensions::new(Side::Client, 50, list).expect("no operation is owned twice")
}

/// Returns what the two extensions have recorded since the last call.
fn said(set: &mut Extensions) -> Vec<String> {
    set.with(|a: &mut Recorder, _| std::mem::take(&mut a.said))
        .unwrap_or_default()
}

#[test]
fn an_operation_has_one_owner() {
    let list = vec![Recorder::boxed("a", &[A, B]), Recorder::boxed("b", &[B])];
    let taken = Extensions::new(Side::Client, 0, list).unwrap_err();
    let expected = (B, "a", "b");
    assert_eq!((taken.number, taken.first, taken.second), expected);
}

#[test]
fn operations_at_the_start_are_in_order_and_have_their_own_xids() {
    let mut set = two();
    let opening = optional(Direction::Call, 1, b"");
    set.connected(Some(operations::heard(&opening)));
    for (xid, opttype, info) in [(50, A, "a"), (49, B, "b")] {
        let Some(Action::Send(op)) = set.next_action() else {
            panic!("an operation");
        };
        assert_eq!(op.xid, xid);
        let optional = Optional {
            direction: Direction::Call,
            opttype,
            info: Bytes::from_static(info.as_bytes()),
        };
        let header = operations::header(op, 77);
        assert_eq!(
            (header.credits, header.body),
            (77, Body::Optional(optional))
        );
    }
    assert!(set.next_action().is_none());
    assert_eq!(said(&mut set), [format!("start Some({XID}) 2")]);
    assert_eq!(set.limits().inline_send, 4096 + A + B);
}

#[test]
fn an_operation_goes_to_its_owner_and_the_others_overhear_it() {
    let mut set = two();
    let header = optional(Direction::Call, A + 1, b"info");
    let message = [header.encode(), Bytes::from_static(b"payload!")];
    assert_eq!(
        operations::route(&mut set, &header, &message, 32),
        Routed::Taken
    );
    assert_eq!(said(&mut set), ["got 101 8"]);
    // A property that one extension announces is passed on to all others.
    let header = optional(Direction::Reply, B, b"x");
    assert_eq!(operations::route(&mut set, &header, &[], 32), Routed::Taken);
    let heard = format!("heard {XID:#x}");
    assert_eq!(said(&mut set), [&heard[..], "learnt 7 b\"x\""]);
}

#[test]
fn messages_of_the_base_protocol_are_shown_to_all_extensions() {
    let mut set = two();
    for body in [
        Body::Msg(Direction::Call, Chunks::default()),
        Body::NoMsg(Direction::Reply, Chunks::default()),
        Body::Error(ErrorBody::BadHeader),
    ] {
        let routed = operations::route(&mut set, &header(body), &[], 32);
        assert_eq!(routed, Routed::Base);
        assert_eq!(said(&mut set), [format!("heard {XID:#x}")]);
    }
}

#[test]
fn a_refusal_is_one_error_or_none() {
    let mut set = two();
    let mut refuse = |refusal: Refusal| {
        set.with(|a: &mut Recorder, _| a.refusal = Some(refusal));
        let header = optional(Direction::Call, A, b"");
        let routed = operations::route(&mut set, &header, &[], 28);
        assert!(set.next_action().is_none());
        routed
    };
    let malformed = refuse(Refusal::Malformed(Malformed::Truncated));
    assert_eq!(malformed, Routed::Refused(PeerError::Chunk));
    let unsupported = refuse(Refusal::Unsupported);
    assert_eq!(unsupported, Routed::Refused(PeerError::UnsupportedType));
    let discard = Refusal::Discard("no such exchange of characteristics");
    assert_eq!(refuse(discard), Routed::Discarded(discard));
}

#[test]
fn an_error_for_an_operation_goes_to_who_sent_it_once() {
    let mut set = two();
    set.connected(None);
    let _ = said(&mut set);
    let error = |xid| Header {
        xid,
        ..header(Body::Error(ErrorBody::InvalidOption))
    };
    assert_eq!(
        operations::route(&mut set, &error(50), &[], 20),
        Routed::Taken
    );
    let expected = [
        "heard 0x32",
        "refused 50 messages of this type are not supported",
    ];
    assert_eq!(said(&mut set), expected);
    // A repeated error, and an error about another XID, are about calls.
    assert_eq!(
        operations::route(&mut set, &error(50), &[], 20),
        Routed::Base
    );
    assert_eq!(
        operations::route(&mut set, &error(51), &[], 20),
        Routed::Base
    );
}

#[test]
fn only_so_many_operations_are_remembered() {
    let mut set = two();
    set.connected(None);
    for _ in 0..16 {
        set.with(|_: &mut Recorder, out| out.call(A, Bytes::new()));
    }
    let error = |xid| Header {
        xid,
        ..header(Body::Error(ErrorBody::InvalidOption))
    };
    assert_eq!(
        operations::route(&mut set, &error(49), &[], 20),
        Routed::Base
    );
    assert_eq!(
        operations::route(&mut set, &error(48), &[], 20),
        Routed::Taken
    );
}

#[test]
fn a_call_is_planned_sent_and_received_in_an_operation() {
    let cutters = || {
        vec![
            Recorder::boxed("a", &[A]),
            Box::new(Cutter::default()) as Box<dyn Extension>,
        ]
    };
    let mut client = Extensions::new(Side::Client, 1, cutters()).unwrap();
    let mut server = Extensions::new(Side::Server, 1, cutters()).unwrap();
    let words: Vec<u32> = [XID, 0, 2, 100_003, 3, 0]
        .into_iter()
        .chain(0..1000)
        .collect();
    let message = rpc(&words);
    let limits = Limits {
        inline_send: 4096,
        inline_receive: 4096,
        max_segment: 1 << 30,
        max_message: 1 << 20,
        chunks: ChunkLimits::default(),
        call_chunk: false,
        header_len: |_: &ChunkCounts| 32,
    };
    let call = CallToPlan {
        shape: &Shape::of(&message).unwrap(),
        need: &ReplyNeed::new(3 * LEN, []),
        extras: &Extras::NONE,
        limits: &limits,
        credits: 2,
        reply_credits: u32::MAX,
        reservable: 2,
    };
    let mut found = client.transfer_modes();
    let (number, mode) = found.next().expect("one carries calls");
    let candidate = mode.plan_call(&call).remove(0);
    assert_eq!(candidate.plan.to_string(), "2 pieces, 3 back");
    drop(found);
    let mode = client.transfer_mode(number).unwrap();
    let sent = mode.send_call(XID, &*candidate.plan, &message, &Chunks::default());
    let sent = sent.unwrap();
    assert_eq!(sent.len(), 2);
    for sent in sent {
        assert!(
            server.next_action().is_none(),
            "not before all of it is there"
        );
        let content = sent.content();
        let header = header(Body::Optional(Optional {
            direction: Direction::Call,
            opttype: sent.number,
            info: sent.fields,
        }));
        let bytes = Bytes::from([&header.encode()[..], &content].concat());
        let (header, at) = Header::decode(&bytes).unwrap();
        assert_eq!(
            operations::route(&mut server, &header, &[bytes], at),
            Routed::Taken
        );
    }
    let Some(Action::Transferred { by: 1, transferred }) = server.next_action() else {
        panic!("a message");
    };
    let Transferred::Call(call) = transferred else {
        panic!("a call");
    };
    assert_eq!((call.xid, call.requested, call.transmissions), (XID, 32, 2));
    let whole = |message: &Message| message.gather(|_| true).concat();
    assert_eq!(whole(&call.message), whole(&message));
    assert_eq!(call.context.downcast_ref::<u32>(), Some(&3));
}

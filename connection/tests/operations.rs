//! A test of a dialect with operations that is defined outside the crate: version 2 with another
//! number, in which each operation is a header type of its own. Both ends announce the length of
//! their receives once, and long calls travel in several Sends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::cell::Cell;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use onc_rpc::{Message, Segments};
use rpcrdma_chunks::Chunks;
use rpcrdma_connection::dialect::{
    BadMessage, Derived, Dialect, ExtensionHeader, Incoming, Negotiable, Session, VersionTwo,
    decode_header, incoming_of_extension,
};
use rpcrdma_connection::{CallError, Direction, Protocols, Side, agreed};
use rpcrdma_extension::{
    AgreedFeatures, CallCandidate, CallToPlan, ConnectionLimits, Cost, EndConfig, Extension,
    FeatureReason, FeatureValue, IncomingCall, NotTransferred, Outbox, Planned, ReceivedMessage,
    Refusal, ReplyCandidate, ReplyCandidates, ReplyToPlan, Start, TransferMode, Transferred,
    Transmission, Transmissions,
};
use rpcrdma_negotiation::{Version, VersionAction};
use rpcrdma_v2::{Body, CallChunks, ErrorBody, Header, Malformed, Optional, Reader, operations};
use support::{Endpoint, Pair, bytes, data, message, open, room};

/// The number of the version.
const NUMBER: u32 = 10;
const TEN: Version = Version::new(NUMBER, "ten");
/// The header types of the operations: the length of the sender's receives, a part of a call that
/// further parts follow, and the last part.
const RECEIVE_SIZE: u32 = 0x100;
const PART: u32 = 0x101;
const LAST_PART: u32 = 0x102;
/// Length of the header of a part, in bytes.
const PART_HEADER: u64 = 20;

#[derive(Clone, Debug)]
struct Ten;

/// Returns a header with another version number.
fn with_version(header: &[u8], number: u32) -> Bytes {
    let mut out = BytesMut::from(header);
    out[4..8].copy_from_slice(&number.to_be_bytes());
    out.freeze()
}

/// Decodes the header of an operation: XID, version, credits, header type, direction, and for
/// [`RECEIVE_SIZE`] the length. Returns `None` if the message is no operation.
fn operation(message: &Bytes) -> Result<Option<(Header, usize)>, Malformed> {
    let mut reader = Reader::new(message);
    let (xid, version, credits) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let opttype = reader.u32()?;
    if version != NUMBER {
        return Err(Malformed::Rule("not of this version"));
    }
    if opttype < RECEIVE_SIZE {
        return Ok(None);
    }
    let direction = match reader.u32()? {
        0 => Direction::Call,
        _ => Direction::Reply,
    };
    let at = match opttype {
        RECEIVE_SIZE => PART_HEADER as usize + 4,
        _ => PART_HEADER as usize,
    };
    if message.len() < at {
        return Err(Malformed::Rule("it ends in its header"));
    }
    let info = message.slice(PART_HEADER as usize..at);
    let body = Body::Optional(Optional {
        direction,
        opttype,
        info,
    });
    Ok(Some((Header { xid, credits, body }, at)))
}

impl Negotiable for Ten {
    fn version(&self) -> Version {
        TEN
    }
}

impl Derived for Ten {
    fn base(&self) -> &'static dyn Dialect {
        &VersionTwo
    }

    fn own_extensions(&self, end: &EndConfig<'_>) -> Vec<Box<dyn Extension>> {
        let parts = Parts {
            own: end.receives.size() as u32,
            peer: None,
            calls: Vec::new(),
        };
        vec![Box::new(parts)]
    }

    fn encode_own(&self, out: &mut BytesMut, header: ExtensionHeader) {
        for word in [header.xid, NUMBER, header.credits, header.number] {
            out.put_u32(word);
        }
        out.put_u32(header.direction.number());
        out.extend_from_slice(&header.fields);
    }

    fn decode_own(&self, session: &mut dyn Session, message: &Segments) -> Option<Incoming> {
        let decode = |first: &Bytes| match operation(first) {
            Ok(Some((header, at))) => Ok((Some(header), at)),
            Ok(None) => Ok((None, 0)),
            Err(error) => Err(error),
        };
        match decode_header(message, decode) {
            Err(error) => {
                let (answer, reason) = (None, error.to_string());
                Some(Incoming::Bad(
                    Direction::Call,
                    BadMessage { answer, reason },
                ))
            }
            Ok((Some(header), at)) => {
                let operation = operations::received(&header, message, at).unwrap();
                let extensions = session.extensions_mut().unwrap();
                extensions.connected(Some(operation.heard()));
                let done = extensions.received(&operation);
                Some(incoming_of_extension(&operation, done, NUMBER))
            }
            Ok((None, _)) => None,
        }
    }
}

/// The extension: what both ends have announced, and the parts of a call that has not arrived
/// completely.
#[derive(Debug)]
struct Parts {
    own: u32,
    peer: Option<u32>,
    calls: Vec<Bytes>,
}

impl Parts {
    fn size(&self) -> Bytes {
        Bytes::copy_from_slice(&self.own.to_be_bytes())
    }
}

impl Extension for Parts {
    fn name(&self) -> &'static str {
        "parts"
    }

    fn numbers(&self) -> &[u32] {
        &[RECEIVE_SIZE, PART, LAST_PART]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(RECEIVE_SIZE, self.size());
        }
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        if op.number == RECEIVE_SIZE {
            self.peer = Some(Reader::new(op.delimited()?.0).u32()?);
            out.limits_changed();
            match op.direction {
                Direction::Call => out.reply(op.xid, RECEIVE_SIZE, self.size()),
                Direction::Reply => out.answered(op.xid),
            }
            return Ok(());
        }
        let mut whole: BytesMut = op.message.iter().flatten().copied().collect();
        self.calls.push(whole.split_off(op.delimited()?.1).freeze());
        if op.number == PART {
            out.parts_follow();
        }
        if op.number == LAST_PART {
            let parts = std::mem::take(&mut self.calls);
            out.transferred(Transferred::Call(IncomingCall {
                xid: op.xid,
                requested: op.credits,
                transmissions: parts.len() as u32,
                message: Message::from_payload(Bytes::from(parts.concat())),
                chunks: CallChunks::default(),
                context: Box::new(()),
            }));
        }
        Ok(())
    }

    fn limits(&self, limits: &mut ConnectionLimits) {
        if let Some(peer) = self.peer {
            limits.inline_send = peer;
            limits.reply_last_resort = Some(peer);
            limits.inline_receive = self.own;
        }
    }

    fn agreed(&self, _: Side, agreed: &mut AgreedFeatures) {
        let known = agreed::both(true, self.peer.is_some(), FeatureReason::NotSaidYet);
        agreed.set("calls in parts", known);
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }
}

impl TransferMode for Parts {
    fn plan_state(&self) -> Option<u64> {
        Some(u64::from(self.peer?))
    }

    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        PLANNED.set(PLANNED.get() + 1);
        // A peer that announces less than a header can take no part.
        let part = self
            .peer
            .map(u64::from)
            .and_then(|peer| peer.checked_sub(PART_HEADER));
        let part = part.filter(|&part| part > 0 && call.shape.items().is_empty());
        let Some(part) = part else {
            return Vec::new();
        };
        let (sends, reply) = (call.shape.payload().div_ceil(part), call.need.stream_len());
        let cost = Cost {
            transmissions: sends as u32,
            wire_bytes: call.shape.payload() + sends * PART_HEADER,
            reply_transmissions: 1,
            reply_wire_bytes: reply,
            ..Cost::default()
        };
        vec![CallCandidate {
            cost,
            reads: Default::default(),
            write_chunks: Default::default(),
            reply_chunk: None,
            plan: Arc::new(part),
        }]
    }

    fn send_call(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        let part = *plan.of::<u64>().unwrap() as usize;
        let whole = Bytes::from(bytes(message));
        let starts = (0..whole.len()).step_by(part);
        let parts = starts.map(|at| {
            Transmission::new(
                if at + part < whole.len() {
                    PART
                } else {
                    LAST_PART
                },
                Bytes::new(),
                Segments::from_iter([whole.slice(at..whole.len().min(at + part))]),
            )
        });
        Ok(parts.collect())
    }

    fn plan_reply(&mut self, reply: &ReplyToPlan<'_>) -> ReplyCandidates {
        let candidate = |_| ReplyCandidate {
            cost: Cost {
                transmissions: 1,
                wire_bytes: reply.shape.payload(),
                ..Cost::default()
            },
            writes: Default::default(),
            plan: Arc::new("one message"),
        };
        BROKEN_REPLIES.get().map(candidate).into_iter().collect()
    }

    fn send_reply(
        &mut self,
        _: u32,
        _: &dyn Planned,
        _: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        let part = || Transmission::new(LAST_PART, Bytes::new(), Segments::new());
        let sends = BROKEN_REPLIES.get().unwrap_or(0);
        Ok((0..sends).map(|_| part()).collect())
    }
}

thread_local! {
    /// The number of messages into which the extension divides a reply that it planned for one
    /// message. `None` if it carries no replies.
    static BROKEN_REPLIES: Cell<Option<usize>> = const { Cell::new(None) };
}

thread_local! {
    /// The number of calls that the extension has planned.
    static PLANNED: Cell<usize> = const { Cell::new(0) };
}

/// Returns the versions of both ends.
fn protocols() -> Protocols {
    Protocols::default().speaking([&VersionTwo as _, &Ten as _])
}

/// Returns a connection that speaks this version, whose ends receive messages of up to 8 KiB.
fn pair() -> Pair {
    let configs = support::configs_with(TEN, |client, server| {
        for options in [client, server] {
            options.protocols = protocols();
            (options.inline_send, options.inline_receive) = (8192, 8192);
        }
    });
    Pair::echoing(configs)
}

/// Returns the header types of messages, and checks that all have the number of this version.
fn types(sent: &[(Bytes, Option<rdma::Stag>)]) -> Vec<u32> {
    let word = |message: &Bytes, at: usize| Reader::new(&message[at..]).u32().unwrap();
    let types = sent.iter().map(|(message, _)| {
        assert_eq!(word(message, 4), NUMBER);
        word(message, 12)
    });
    types.collect()
}

#[test]
fn a_dialect_of_the_programs_own_exchanges_properties_by_its_own_header_types() {
    let mut pair = pair();
    assert_eq!(types(&pair.client.sent), [RECEIVE_SIZE]);
    assert_eq!(types(&pair.server.sent), [RECEIVE_SIZE]);
    for end in [&pair.client, &pair.server] {
        let decision = end.connection.decision().unwrap();
        assert_eq!(decision.action, VersionAction::Use(TEN));
        let features = end.connection.features().unwrap();
        let inline = [agreed::INLINE_SEND, agreed::INLINE_RECEIVE].map(|name| features.get(name));
        let settled = (FeatureValue::Bytes(8192), FeatureReason::Extensions);
        assert_eq!(inline, [Some(settled); 2]);
        assert_eq!(features.peer_unknown(), Some(FeatureReason::NotExchanged));
        // What the extension has agreed on follows.
        let last = features.to_string().lines().last().map(str::to_owned);
        assert_eq!(
            last.as_deref(),
            Some("calls in parts: yes (both ends have it)")
        );
    }
    // 6,000 bytes are more than the default length of a message, and less than both have announced.
    let reply = pair.call(message(1, 1500, &[]), &room(1500, &[])).unwrap();
    assert_eq!(open(&reply).1, 1500);
    assert_eq!(types(&pair.client.sent), [RECEIVE_SIZE, 0]);
    assert_eq!(types(&pair.server.sent), [RECEIVE_SIZE, 0]);
}

#[test]
fn a_dialect_of_the_programs_own_carries_calls_in_several_sends() {
    let mut pair = pair();
    // The server answers with less, because only calls have parts.
    pair.answer_with(|call| {
        let (xid, words, _) = open(call);
        assert_eq!(words, 5000);
        Some(support::reply(xid, 1, &[]))
    });
    let reply = pair.call(message(1, 5000, &[]), &room(1, &[])).unwrap();
    assert_eq!(open(&reply).1, 1);
    let expected = [RECEIVE_SIZE, PART, PART, LAST_PART];
    assert_eq!(types(&pair.client.sent), expected);
    assert_eq!(pair.client.registrations, 0);
    // The base protocol carries what the extension does not.
    pair.answer = Some(Box::new(support::echo));
    let sent = data(7, 100_000);
    let call = message(2, 4, std::slice::from_ref(&sent));
    let reply = pair.call(call, &room(4, &[sent.len()])).unwrap();
    assert_eq!(open(&reply).2, [sent]);
    assert!(pair.client.registrations > 0);
}

/// A plan is made once for calls that are alike, and again when their lengths, the limits or the
/// state of the extension differ.
#[test]
fn calls_that_are_alike_are_planned_once() {
    let mut pair = pair();
    pair.answer_with(|call| Some(support::reply(open(call).0, 1, &[])));
    let mut xid = 0;
    let mut planned_by = |pair: &mut Pair, words: usize| {
        PLANNED.set(0);
        xid += 1;
        let sent = pair.client.sent.len();
        pair.call(message(xid, words, &[]), &room(1, &[])).unwrap();
        let parts = types(&pair.client.sent[sent..]);
        assert_eq!(parts.last(), Some(&LAST_PART));
        (PLANNED.get(), parts.len())
    };
    // The first reply may change the credits, which a plan depends on.
    assert_eq!(planned_by(&mut pair, 5000), (1, 3));
    planned_by(&mut pair, 5000);
    assert_eq!(planned_by(&mut pair, 5000), (0, 3));
    assert_eq!(planned_by(&mut pair, 3000), (1, 2));
    assert_eq!(planned_by(&mut pair, 3000), (0, 2));
    assert_eq!(planned_by(&mut pair, 5000), (0, 3));
    // The server announces shorter receives.
    let words = [9, NUMBER, 32, RECEIVE_SIZE, 1, 4096];
    let announced: Bytes = words.into_iter().flat_map(u32::to_be_bytes).collect();
    pair.client.receive(&announced, None).unwrap();
    pair.client.run();
    assert_eq!(planned_by(&mut pair, 5000), (1, 5));
    planned_by(&mut pair, 5000);
    assert_eq!(planned_by(&mut pair, 5000), (0, 5));
}

/// The base protocol takes over from an extension whose reply has more or fewer messages than it
/// planned: the receives and credits of the peer are those of the plan.
#[test]
fn a_reply_that_an_extension_does_not_send_as_planned_goes_by_the_base_protocol() {
    for sends in [0, 2] {
        let mut pair = pair();
        BROKEN_REPLIES.set(Some(sends));
        let reply = pair.call(message(1, 5000, &[]), &room(5000, &[]));
        BROKEN_REPLIES.set(None);
        assert_eq!(open(&reply.unwrap()).1, 5000, "{sends}");
        let parts = types(&pair.server.sent);
        let parts = parts.iter().filter(|&&kind| kind == LAST_PART).count();
        assert_eq!(parts, 0, "{sends}");
    }
}

/// Until the properties are exchanged, messages have up to the default length of a version with
/// operations, whatever this end wants to receive. The receives must hold that.
#[test]
fn receives_hold_a_message_of_the_default_length_before_the_extension_speaks() {
    let (client, server) = support::configs_with(TEN, |client, server| {
        for options in [client, server] {
            options.protocols = protocols();
            options.inline_receive = 1024;
        }
    });
    let [mut client, mut server] = [client, server].map(Endpoint::new);
    // The call waits for the connection, and is sent right behind the first operation.
    client.call(message(1, 900, &[]), &room(900, &[]));
    server.establish(None);
    client.establish(None);
    assert_eq!(types(&client.sent), [RECEIVE_SIZE, 0]);
    assert!(client.sent[1].0.len() > 3600);
    let mut pair = Pair {
        client,
        server,
        answer: Some(Box::new(support::echo)),
        answer_back: None,
    };
    pair.settle();
    let (xid, result) = pair.client.finished.pop().unwrap();
    assert_eq!((xid, open(&result.unwrap()).1), (1, 900));
}

/// A peer may announce receives that are shorter than the header of a part.
#[test]
fn a_peer_that_takes_no_part_gets_calls_by_the_base_protocol() {
    for size in [0, 1, PART_HEADER as u32 - 1, PART_HEADER as u32] {
        let mut pair = pair();
        let words = [9, NUMBER, 1, RECEIVE_SIZE, 1, size];
        let announced: Bytes = words.into_iter().flat_map(u32::to_be_bytes).collect();
        pair.client.receive(&announced, None).unwrap();
        pair.client.run();
        pair.client.call(message(1, 5000, &[]), &room(1, &[]));
        pair.client.run();
        let parts = types(&pair.client.sent);
        assert!(
            !parts.contains(&PART) && !parts.contains(&LAST_PART),
            "{size}"
        );
        // Not even a header without chunks fits.
        let (xid, result) = pair.client.finished.pop().unwrap();
        assert!(
            xid == 1 && matches!(result, Err(CallError::TooLarge(_))),
            "{size}"
        );
    }
}

#[test]
fn operations_of_no_extension_are_refused_in_the_version_of_the_dialect() {
    let mut pair = pair();
    let unknown: Bytes = [9, NUMBER, 1, 0x109, 0]
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    pair.server.receive(&unknown, None).unwrap();
    pair.server.run();
    let (answer, _) = pair.server.sent.last().unwrap();
    let (header, _) = Header::decode(&with_version(answer, 2)).unwrap();
    assert_eq!(header.xid, 9);
    assert_eq!(header.body, Body::Error(ErrorBody::InvalidOption));
    assert_eq!(answer[4..8], NUMBER.to_be_bytes());
}

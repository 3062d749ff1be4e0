//! Headers, properties and flow control of the working group's version 2
//! (draft-ietf-nfsv4-rpcrdma-version-two-07).

use std::collections::VecDeque;

use bytes::Bytes;
use rpcrdma_connection::flow::{MAX_CREDITS, MIN_CREDITS, MessageCounts};
use rpcrdma_v2_wg::limits::{MAX_PROPERTIES, MAX_PROPERTY_LEN, MIN_PAYLOAD_LEN};
use rpcrdma_v2_wg::{
    Answer, Body, DecodeError, Direction, Header, HeaderError, Properties, Property, check_call,
    check_returned,
};

use crate::chunks::{MAX_CALL, fetchable, most, within_limits};

/// Checks the decoder, or flow control. The first byte chooses; the rest is a message, or a start
/// of the counts and a sequence of events.
pub fn check(data: &[u8]) {
    match data.split_first() {
        Some((0, message)) => header(message),
        Some((_, events)) => {
            if let Some((start, events)) = events.split_first_chunk() {
                flow(u32::from_be_bytes(*start), events);
            }
        }
        None => {}
    }
}

fn header(bytes: &[u8]) {
    let message = Bytes::copy_from_slice(bytes);
    match crate::within(most(bytes.len()), || Header::decode(&message)) {
        Ok((header, at)) => decoded(&header, &message, at),
        Err(error) => refused(&error, bytes),
    }
}

fn refused(error: &DecodeError, bytes: &[u8]) {
    let word = |at: usize| {
        let rest = bytes.get(4 * at..).and_then(|rest| rest.first_chunk());
        rest.map(|word| u32::from_be_bytes(*word))
    };
    let is_whole = bytes.len() >= 16;
    assert_eq!(error.xid, word(0).filter(|_| is_whole));
    let Some(answer) = error.answer() else {
        return;
    };
    answered(&answer, word(0).expect("an answer needs an XID"));
    // Errors and replies are not answered, and a version depends on the connection.
    assert_eq!(word(1), Some(2));
    assert!(!matches!(word(3), Some(4 | 11..=13)));
}

fn decoded(header: &Header, message: &Bytes, at: usize) {
    let again = header.encode();
    assert_eq!((again.len(), header.encoded_len()), (at, at));
    assert_eq!(again, message[..at]);
    let payload = message.len() - at;
    assert!(!header.body.has_payload() || payload >= MIN_PAYLOAD_LEN);
    if let Some(chunks) = header.body.chunks() {
        within_limits(chunks);
    }
    if let Body::Properties {
        properties: list, ..
    } = &header.body
    {
        assert_eq!(payload, 0);
        properties(list);
    }

    let call = crate::within(2 * most(message.len()), || {
        if let Body::Reply { external, chunks } = &header.body {
            let _ = check_returned(chunks, *external, payload as u64, chunks);
        }
        check_call(header.body.clone(), payload as u64, MAX_CALL)
    });
    match (&header.body, call) {
        (Body::Call { external, .. }, Ok(call)) => {
            assert_eq!(header.body.direction(), Some(Direction::Call));
            assert_eq!(call.payload.is_some(), *external);
            fetchable(&call);
        }
        (_, Ok(call)) => panic!("no call, and checked as one: {call:?}"),
        (body, Err(violation)) => {
            let is_call = matches!(body, Body::Call { .. });
            assert_eq!(violation.error().is_some(), is_call);
        }
    }
}

fn properties(list: &[Property]) {
    assert!(list.len() <= MAX_PROPERTIES);
    assert!(list.iter().all(|one| one.value.len() <= MAX_PROPERTY_LEN));
    let mut applied = Properties::default();
    if applied.apply(list).is_err() {
        assert_eq!(applied, Properties::default(), "half of a message");
        return;
    }
    let mut again = Properties::default();
    assert_eq!(again.apply(&applied.encode()), Ok(()));
    assert_eq!(again, applied);
    // Of each known property the last value in the list counts, and an empty one is the default.
    let value = |of: &Properties, id| {
        let property = of.encode().into_iter().find(|one| one.id == id);
        property.map(|one| one.value)
    };
    for id in 1..=6 {
        let last = list.iter().rfind(|one| one.id == id);
        let expected = match last {
            Some(one) if !one.value.is_empty() => Some(one.value.clone()),
            _ => value(&Properties::default(), id),
        };
        assert_eq!(value(&applied, id), expected, "property {id}");
    }
}

/// Checks that the answer to a bad header is a valid RDMA2_ERROR.
fn answered(answer: &Answer, xid: u32) {
    let bytes = answer.encode(7);
    match Header::decode(&bytes) {
        Ok((header, at)) => {
            assert_eq!((header.xid, header.credit, at), (xid, 7, bytes.len()));
            assert_eq!(header.body, Body::Error(answer.error));
        }
        Err(error) => match error.error {
            HeaderError::Version { version, .. } => assert_eq!(version, answer.version),
            _ => panic!("an answer of ours: {error}"),
        },
    }
}

/// One end of a connection, and what must hold of it, in counts that do not wrap.
struct End {
    flow: MessageCounts,
    sent: i64,
    received: i64,
    limit: i64,
    told: i64,
    advertised: u32,
    /// Messages on their way to this end: the credit field, what it stands for, and whether the
    /// message is a grant.
    incoming: VecDeque<(u32, i64, bool)>,
}

impl End {
    fn new(start: u32) -> Self {
        Self {
            flow: MessageCounts::starting_at(start),
            sent: 0,
            received: 0,
            limit: 1,
            told: 1,
            advertised: 1,
            incoming: VecDeque::new(),
        }
    }

    fn check(&self, start: u32) {
        let wrapped = |count: i64| start.wrapping_add(count as u32);
        assert_eq!(self.flow.sent(), wrapped(self.sent));
        assert_eq!(self.flow.received(), wrapped(self.received));
        assert_eq!(
            i64::from(self.flow.may_send()),
            (self.limit - self.sent).max(0)
        );
        assert_eq!(self.flow.may_grant(), self.limit >= self.sent);
        // One for a grant, and one for a surplus message.
        let needed = (self.told - self.received + 2).max(0);
        assert_eq!(i64::from(self.flow.receives_needed()), needed);
        assert!(
            self.incoming.len() as i64 <= needed,
            "no receive for a message"
        );
    }

    /// Sends a message if it may be sent. Returns the message.
    fn send(&mut self, is_grant: bool) -> Option<(u32, i64, bool)> {
        let allowed = match is_grant {
            true => self.limit >= self.sent,
            false => self.limit > self.sent,
        };
        let taken = match is_grant {
            true => self.flow.take_grant(),
            false => self.flow.take_send(),
        };
        assert_eq!(taken, allowed);
        if !taken {
            return None;
        }
        self.sent += 1;
        let advertised = i64::from(self.advertised.min(MAX_CREDITS));
        self.told = self.told.max(self.received + advertised);
        Some((self.flow.credit(self.advertised), self.told, is_grant))
    }

    fn receive(&mut self) {
        if let Some((credit, limit, is_grant)) = self.incoming.pop_front() {
            assert_eq!(self.flow.take_received(credit, is_grant), Ok(()));
            self.received += 1;
            self.limit = limit;
        }
    }

    fn is_due(&self) -> bool {
        self.flow.limit_is_due(self.advertised)
    }
}

/// Drives two ends, a byte for each event: which end, what it does, and a number for it.
fn flow(start: u32, events: &[u8]) {
    let mut ends = [End::new(start), End::new(start)];
    for event in events {
        let (at, number) = (usize::from(event & 1), event >> 4);
        match event >> 1 & 7 {
            0 | 1 => {
                for _ in 0..=number {
                    ends[at].receive();
                }
            }
            2 | 3 => {
                for _ in 0..=number {
                    let sent = ends[at].send(false);
                    ends[1 - at].incoming.extend(sent);
                }
            }
            4 => ends[at].advertised = u32::from(number),
            5 => ends[at].advertised = u32::MAX >> number,
            6 => stranger(ends[at].flow, u32::from(number).wrapping_sub(8)),
            _ => {
                // A grant that says nothing new is never sent.
                let news = ends[at].received + i64::from(ends[at].advertised.min(MAX_CREDITS));
                if news > ends[at].told {
                    let sent = ends[at].send(true);
                    ends[1 - at].incoming.extend(sent);
                }
            }
        }
        ends.iter().for_each(|end| end.check(start));
    }
    settled(&mut ends, start);
}

/// Lets all messages arrive and both ends take messages again: then both can send, and no grants go
/// back and forth.
fn settled(ends: &mut [End; 2], start: u32) {
    for end in ends.iter_mut() {
        while !end.incoming.is_empty() {
            end.receive();
        }
        end.advertised = end.advertised.max(MIN_CREDITS);
    }
    for _ in 0..3 {
        for at in [0, 1] {
            if ends[at].is_due() {
                // An end that has sent its grant already waits for that of the other one.
                let grant = ends[at].send(true);
                ends[1 - at].incoming.extend(grant);
                ends[1 - at].receive();
            }
        }
    }
    for end in ends {
        end.check(start);
        assert!(end.flow.may_send() > 0 && !end.is_due(), "{:?}", end.flow);
    }
}

/// Checks a copy of an end with a peer that keeps to no rule.
fn stranger(mut flow: MessageCounts, credit: u32) {
    let mut surplus = 0;
    for is_grant in [true, false, true, false] {
        let (before, needed) = (flow, flow.receives_needed());
        match flow.take_received(flow.sent().wrapping_add(credit), is_grant) {
            Ok(()) => {
                assert_eq!(flow.received(), before.received().wrapping_add(1));
                assert!(needed > 0, "no receive for the message");
                surplus += u32::from(!is_grant && needed <= 2);
                assert_eq!(flow.receives_needed(), needed - 1);
            }
            Err(_) => assert_eq!(flow, before),
        }
    }
    assert!(surplus <= 1, "{surplus} messages beyond the limit");
}

//! Version 2 of the working group on one connection: how received messages are read.

use onc_rpc::Segments;
use rpcrdma_chunks::{Direction, Side};
use rpcrdma_extension::{
    AgreedFeatures, ConnectionLimits, ErrorAbout, Extensions, Fields, Heard, Kind,
    Property as Announced, ReceivedMessage, Refusal,
};
use rpcrdma_v2_wg::limits::PREFIX_LEN;
use rpcrdma_v2_wg::{
    Answer, Body, DecodeError, EXPERIMENTAL, ErrorBody, Header, HeaderError, MessageId, Owner,
    Prefix, Property, VERSION, header_type,
};

use super::super::{
    Dialect, Incoming, Modes, Plain, Receiver, ReplyBody, ReplyHeader, Session,
    incoming_of_extension, pieces,
};
use super::errors::{as_announced, bad_message, error_body, peer_error, refuse};
use super::parts::Part;
use super::receive::{limit_to_announced, refuse_unwanted_direction, rpc_message};
use super::{VersionTwoWg, WgSession, heard, heard_plain, prefix};

impl Session for WgSession {
    fn decode(&mut self, mut message: Segments, receiver: &Receiver) -> Incoming {
        // Most messages are plain, and between messages the header alone decides about these.
        if self.is_between_messages()
            && let Some((direction, plain)) = Plain::take_wg(&mut message, receiver)
        {
            if self.extensions.are_observed() {
                self.extensions.heard(&heard_plain(direction, plain));
            }
            return Incoming::Plain(direction, plain, message);
        }
        let prefix = prefix(&message).filter(|prefix| prefix.version == VERSION);
        self.begin_with(prefix);
        if let Some(prefix) = prefix
            && EXPERIMENTAL.contains(&prefix.header_type)
        {
            return self.extension_message(prefix, &message, receiver);
        }
        let (mut header, at) = match pieces::decode_header(&message, Header::decode) {
            Ok(decoded) => decoded,
            Err(error) => return self.undecodable(prefix, &error, receiver),
        };
        let (xid, direction) = (header.xid, header.body.direction());
        let is_error = matches!(header.body, Body::Error(_));
        if self.extensions.are_observed()
            && let Some(prefix) = prefix
            // `Extensions::failed` shows an error, if its code is known.
            && !is_error
        {
            self.extensions.heard(&heard(prefix, direction));
        }
        match header.body {
            Body::Grant => return Incoming::Handled(Direction::Call, None),
            Body::Error(error) => {
                return self.error_received(xid, header.credit, error, receiver);
            }
            Body::Properties { last, properties } => {
                return self.properties_received(xid, last, properties);
            }
            _ => {}
        }
        let part = Part::of(&header.body);
        // Between the parts of a message of the base protocol, what is for neither half of this end is that
        // in the first place.
        if self.base_part_may_arrive(part)
            && let Some(refused) = refuse_unwanted_direction(direction, xid, receiver)
        {
            return refused;
        }
        if let Err(refusal) = self.check_may_arrive(Some(Owner::Base), direction, xid, part) {
            return refuse(direction.unwrap_or(Direction::Call), xid, refusal);
        }
        if let Some(refused) = refuse_unwanted_direction(direction, xid, receiver) {
            return refused;
        }
        // Grants and properties were handled above.
        let direction = direction.unwrap_or(Direction::Call);
        let last = part != Part::Further;
        if receiver.side == Side::Client
            && direction == Direction::Call
            && let Err(error) = limit_to_announced(&mut header.body, self.base.properties().reverse)
        {
            // It may be the last part of a call whose other parts are here.
            self.give_up_parts(direction, xid, last);
            let (answer, reason) = (
                Answer::new(xid, error),
                "a call beyond the announced support",
            );
            return bad_message(direction, Some(answer), reason);
        }
        pieces::advance(&mut message, at);
        let remaining = match header.body {
            Body::Middle { remaining, .. } => Some(remaining),
            _ => None,
        };
        match self.collect_payload(direction, xid, part, remaining, message) {
            Ok(Some(payload)) => {
                // What this end has announced, which may be less than what its decoder can read.
                let most = self.base.properties().segment_count;
                rpc_message(header, direction, payload, receiver, most)
            }
            Ok(None) => Incoming::Handled(direction, None),
            Err(refusal) => refuse(direction, xid, refusal),
        }
    }

    fn begin(&mut self) {
        self.begin_with(None);
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(&self.extensions)
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        Some(&mut self.extensions)
    }

    fn modes(&mut self) -> Modes<'_> {
        Modes {
            own: Some(&mut self.base),
            extensions: Some(&mut self.extensions),
        }
    }

    fn limits(&self) -> Option<ConnectionLimits> {
        let mut limits = ConnectionLimits::default();
        self.base.limits(&mut limits);
        self.extensions.adjust_limits(&mut limits);
        Some(limits)
    }

    fn agreed(&self, agreed: &mut AgreedFeatures) {
        self.base.agreed(agreed);
        self.extensions.agreed(agreed);
    }

    fn in_progress(&self) -> Option<usize> {
        let incomplete = self.part_in_progress().is_some() || self.base.exchange_is_incomplete();
        let bytes = || {
            let base = self.base.collected_bytes();
            base.saturating_add(self.extensions.collected_bytes())
        };
        incomplete.then(bytes)
    }

    fn copied_parts(&self) -> usize {
        self.base.collected_copies()
    }

    fn copied_bytes(&self) -> u64 {
        self.base.copied_bytes() + self.extensions.copied_bytes()
    }

    fn announced(&self) -> Option<(Vec<Announced>, Option<Vec<Announced>>)> {
        let raw = |properties: Vec<Property>| {
            let one = |Property { id, value }| Announced { id, value };
            properties.into_iter().map(one).collect()
        };
        let own = raw(self.base.properties().encode());
        Some((own, self.base.peer().map(|peer| raw(peer.encode()))))
    }

    fn closed(&mut self) {
        self.base.parts_lost();
        self.extensions.closed();
    }
}

impl WgSession {
    /// Takes the payload of a message, or of a part of one. Returns the payload of the whole message
    /// if it is complete. `remaining` is that of a part which others follow.
    ///
    /// # Errors
    /// [`Refusal`]: the message is given up.
    fn collect_payload(
        &mut self,
        direction: Direction,
        xid: u32,
        part: Part,
        remaining: Option<u32>,
        payload: Segments,
    ) -> Result<Option<Segments>, Refusal> {
        if part == Part::None {
            // The payload is in a chunk.
            self.message_began();
            return Ok(Some(payload));
        }
        let it = MessageId {
            owner: Owner::Base,
            direction,
            xid,
        };
        let last = part == Part::Last;
        self.check_not_refused(it, last)?;
        let begins = self.part_in_progress().is_none();
        let taken = match remaining {
            Some(remaining) => {
                let collected = self.base.collect(direction, xid, remaining, payload);
                collected.map(|()| None)
            }
            None => self.base.finish(payload).map(Some),
        };
        match &taken {
            Ok(_) if begins => self.message_began(),
            Ok(_) => {}
            Err(_) => self.part_refused(it, last),
        }
        taken
    }

    /// Passes a message of an extension to it.
    fn extension_message(
        &mut self,
        prefix: Prefix,
        message: &Segments,
        receiver: &Receiver,
    ) -> Incoming {
        let Prefix {
            xid,
            header_type: number,
            credit: credits,
            ..
        } = prefix;
        let known = self.extensions.direction(number);
        let owner = self.extensions.owner(number);
        let last = self.extensions.is_last_part(number);
        let part = if last { Part::Last } else { Part::Further };
        // A message whose number does not tell the direction has that of messages for this end.
        let direction = known.unwrap_or(match receiver.side {
            Side::Server => Direction::Call,
            Side::Client => Direction::Reply,
        });
        let of = owner.map_or(known, |_| Some(direction));
        if let Err(refusal) = self.check_may_arrive(owner.map(Owner::Extension), of, xid, part) {
            // A message of an unknown direction is answered like a call (section 6.1): its XID need not be
            // that of a call of this end, which it would end as a reply.
            return refuse(known.unwrap_or(Direction::Call), xid, refusal);
        }
        let it = owner.map(|owner| MessageId {
            owner: Owner::Extension(owner),
            direction,
            xid,
        });
        if let Some(it) = it
            && let Err(refusal) = self.check_not_refused(it, last)
        {
            return bad_message(direction, None, refusal);
        }
        let begins = self.part_in_progress().is_none();
        let received = ReceivedMessage {
            number,
            xid,
            direction,
            credits,
            message,
            fields: Fields::Open { at: PREFIX_LEN },
        };
        let done = self.extensions.received(&received);
        match (it, &done) {
            // A message of an extension that carries no RPC messages is no reason to forget them.
            (Some(it), Ok(()))
                if begins
                    && (self.extensions.has_delivered() || self.part_in_progress() == Some(it)) =>
            {
                self.message_began();
            }
            (Some(it), Err(Refusal::Malformed(_) | Refusal::Answer(..) | Refusal::Unusable(_))) => {
                if begins {
                    self.refused.end_of(it.owner);
                }
                self.part_refused(it, last);
            }
            (Some(it), Err(Refusal::Discard(_))) => self.part_refused(it, last),
            _ => {}
        }
        match done {
            // An error has no direction, and could be taken for one about a call of the peer
            // (drafts/errata-07.md, 54). At an end that makes no calls, a type that it does not support is
            // answered like one that it does not know (section 6.1).
            Err(refusal @ (Refusal::Malformed(_) | Refusal::Unsupported | Refusal::Answer(..)))
                if known == Some(Direction::Reply)
                    && (receiver.makes_calls || refusal != Refusal::Unsupported) =>
            {
                let reason = refusal.to_string();
                Incoming::Unusable { xid, reason }
            }
            // Only the extension knows the direction.
            Err(Refusal::Unusable(reason)) if known.is_none() => {
                let reason = reason.to_owned();
                Incoming::Unusable { xid, reason }
            }
            done => incoming_of_extension(&received, done, VERSION),
        }
    }

    /// Handles a message whose header cannot be decoded. `prefix` is that of a message of this version.
    fn undecodable(
        &mut self,
        prefix: Option<Prefix>,
        error: &DecodeError,
        receiver: &Receiver,
    ) -> Incoming {
        if let (Some(xid), HeaderError::Version { version, is_error }) = (error.xid, error.error) {
            let error = error_body(VersionTwoWg.version_error(version, VERSION));
            // Whether the message is a call is not known.
            let answers = receiver.takes_calls && !is_error;
            let answer = answers.then_some(Answer {
                xid,
                version,
                error,
            });
            return bad_message(Direction::Call, answer, error);
        }
        if let Some(Prefix {
            xid, header_type, ..
        }) = prefix
        {
            match header_type {
                header_type::CALL_MIDDLE => self.give_up_parts(Direction::Call, xid, false),
                header_type::CALL_EXTERNAL | header_type::CALL_INLINE => {
                    self.give_up_parts(Direction::Call, xid, true);
                }
                header_type::REPLY_EXTERNAL
                | header_type::REPLY_MIDDLE
                | header_type::REPLY_INLINE => {
                    let last = header_type != header_type::REPLY_MIDDLE;
                    self.give_up_parts(Direction::Reply, xid, last);
                    let reason = error.to_string();
                    return Incoming::Unusable { xid, reason };
                }
                header_type::CONNPROP_MIDDLE => self.lost_properties(false),
                header_type::CONNPROP_FINAL => self.lost_properties(true),
                // The error names the call with this XID, if there is one. Its sender may send it once more.
                _ if matches!(error.error, HeaderError::HeaderType(_)) => {
                    self.give_up_parts(Direction::Call, xid, false);
                }
                _ => {}
            }
        }
        let most = self.base.properties().segment_count;
        let answer = error.answer().map(|answer| Answer {
            error: as_announced(answer.error, most),
            ..answer
        });
        bad_message(Direction::Call, answer, error)
    }

    /// Handles an error: one about a message of an extension or about properties, or about a call. An end
    /// that makes no calls has sent properties as well.
    fn error_received(
        &mut self,
        xid: u32,
        credits: u32,
        error: ErrorBody,
        receiver: &Receiver,
    ) -> Incoming {
        // Section 7: a code that is not known is ignored, with its message.
        let Some(peer_error) = peer_error(error) else {
            return bad_message(Direction::Reply, None, error);
        };
        let heard = Heard {
            xid,
            direction: Direction::Reply,
            credits,
            kind: Kind::Base(header_type::ERROR),
        };
        match self.extensions.failed(&heard, peer_error) {
            ErrorAbout::Call if !receiver.makes_calls => {
                let reason = "an error to an end that makes no calls";
                bad_message(Direction::Reply, None, reason)
            }
            ErrorAbout::Call => Incoming::Reply(ReplyHeader {
                xid,
                granted: credits,
                body: ReplyBody::Error(peer_error),
                payload: Segments::new(),
            }),
            ErrorAbout::Extension => Incoming::Handled(Direction::Reply, None),
            ErrorAbout::Version => {
                // The peer assumes the defaults for this end then, which this end can meet.
                rpcrdma_host::limited!(warn, xid, %error, "the peer did not take the properties of this end");
                self.extensions.own_properties_refused();
                Incoming::Handled(Direction::Reply, None)
            }
        }
    }
}

//! Handling of arriving replies and errors, and the outcomes of calls.

use onc_rpc::{Message, Segments};
use rdma::Stag;
use rdma::trace::Event;
use rpcrdma_chunks::Direction;
use rpcrdma_chunks::{Chunks, ReturnedChunks};
use rpcrdma_extension::IncomingReply;
use rpcrdma_negotiation::show_versions;

use super::Requester;
use super::outstanding::{Outcome, Stage};
use super::prepared::Carrier;
use super::registration::Purpose;
use crate::dialect::{Dialect, PeerError, Plain, ReplyBody, ReplyHeader, Returned};
use crate::shared::Shared;
use crate::{Action, CallError};

/// The text for errors by which a responder reports that it could not return a result.
const EXECUTED: &str = "the call has been executed and is not repeated";

impl Requester {
    /// Handles a reply without chunks. If the call offered none either, it ends at once.
    pub(crate) fn plain_reply_received(
        &mut self,
        shared: &mut Shared,
        header: Plain,
        payload: Segments,
        invalidated: Option<Stag>,
    ) {
        let xid = header.xid;
        let answered = self.by_xid.get(&xid).copied();
        // A handle that came with the reply may belong to another call, whose memory is to be
        // reclaimed.
        let answered = answered.filter(|&key| self.calls[key].is_plain() && invalidated.is_none());
        let Some(key) = answered else {
            return self.reply_received(shared, ReplyHeader::plain(header, payload), invalidated);
        };
        let sent = self.calls[key].sent_messages();
        shared.flow.call_replied(sent, Some(header.credits));
        self.watch.call_answered(key);
        shared.trace_credits(xid, answer_arrived);
        let call = self.calls.remove(key);
        self.by_xid.remove(&xid);
        if let Some(carrier) = &call.carrier {
            self.carried_ended(shared, xid, carrier);
        }
        self.earlier_errors.forget(xid);
        let result = Ok(Message::without_items(payload));
        shared.actions.push_back(Action::Finished { xid, result });
    }

    /// Handles a reply, or an error instead of one.
    pub(crate) fn reply_received(
        &mut self,
        shared: &mut Shared,
        reply: ReplyHeader,
        invalidated: Option<Stag>,
    ) {
        let xid = reply.xid;
        let sent = self.sent_call(xid);
        // The device has invalidated the handle, whatever the message turns out to be.
        self.handle_invalidated(shared, sent, invalidated);
        // The repeated call may still be queued, and `sent` is then `None`. So errors about its first
        // attempt are discarded before an unknown XID is counted.
        if let ReplyBody::Error(error) = reply.body
            && self.earlier_errors.take_expected(xid, error)
        {
            return self.count_discarded(&"one more error about messages that were refused before");
        }
        let Some(key) = sent else {
            if self.batches
                && let ReplyBody::Error(error) = reply.body
                && self.batch_refused(shared, xid, error)
            {
                return shared.flow.lower_grant(reply.granted);
            }
            return self.count_unknown_xid(xid);
        };
        // The credits of an error never raise the limit, but may lower it. Until a valid message
        // grants more, a single message may be outstanding (RFC 8166, section 3.3.3; version-two-01,
        // section 5).
        let granted = match reply.body {
            ReplyBody::Reply { .. } => Some(reply.granted),
            ReplyBody::Error(_) => {
                shared.flow.lower_grant(reply.granted);
                None
            }
        };
        let Stage::Sent(offered) = &self.calls[key].stage else {
            return;
        };
        let carrier = self.calls[key].carrier.as_ref();
        let first_type = carrier.map_or(0, |carrier| carrier.first_type);
        let carrier = carrier.map(|carrier| carrier.by);
        // A plain reply to a call that an extension carried says nothing of chunks: none is used.
        let none = Chunks::default();
        let offered = match carrier.is_some() && reply.is_plain() {
            true => &none,
            false => offered,
        };
        let long = offered.reads.first().is_some_and(|read| read.position == 0);
        let (returned, message) = match reply.check(shared.dialect, offered) {
            Ok(checked) => checked,
            Err(error) if shared.dialect.bad_replies_end_calls() => {
                return self.reply_unusable(shared, xid, error.to_string());
            }
            Err(error) => return self.count_discarded(&error),
        };
        // The connection compares this with the reason for which the version was chosen
        // (`Connection::was_misjudged`).
        if let Returned::Error(PeerError::Version { low, high }) = returned {
            self.version_refused = Some((low, high));
        }
        let refused = match returned {
            Returned::Error(error) if !shared.dialect.sends_again(first_type, error) => None,
            Returned::Error(error @ (PeerError::UnsupportedType | PeerError::Chunk)) => Some(error),
            _ => None,
        };
        // The call had offered no reply chunk, because its reply could be continued. This peer does
        // not do that (version-two-07, section 7.3.5), so later calls have to offer one.
        if let (Some(_), Returned::Error(PeerError::ReplyResource { .. })) = (carrier, &returned)
            && offered.reply.is_none()
        {
            let modes = shared.session.modes();
            modes.all().for_each(|(_, mode)| mode.reply_refused());
        }
        let outcome = match (carrier, refused) {
            (Some(by), Some(error)) => {
                let name = || shared.dialect.error_name(error);
                rpcrdma_host::limited!(warn, xid, error = %name(), "call in messages of an extension refused, it is sent without");
                // The mode must know before the call is planned again, or it would offer the same
                // once more.
                if let Some(mode) = shared.session.modes().get(by) {
                    mode.call_refused(xid, error);
                }
                if error == PeerError::UnsupportedType {
                    self.header_type_refused(shared, key, first_type);
                }
                self.base_only_outcome(key)
            }
            _ => {
                // Without call chunks, versions have no error for a refused RDMA_NOMSG.
                let external_refused = carrier.is_none()
                    && long
                    && shared.limits.call_chunk
                    && matches!(returned, Returned::Error(PeerError::UnsupportedType));
                let again = match external_refused {
                    true => {
                        self.external_calls_refused(shared);
                        self.calls[key].original().cloned()
                    }
                    false => self.repeated(key, &returned, &shared.limits),
                };
                match again {
                    Some(again) => Outcome::Again(Box::new(again)),
                    None => outcome(shared.dialect, returned, message),
                }
            }
        };
        self.end_answered(shared, key, granted, outcome);
    }

    /// Handles a reply that arrived in messages of an extension. With `by`, only a call that this
    /// extension carried can have the reply; without it, any call can.
    pub(crate) fn carried_reply_received(
        &mut self,
        shared: &mut Shared,
        by: Option<usize>,
        reply: IncomingReply,
    ) {
        let xid = reply.xid;
        let Some(key) = self.sent_call(xid) else {
            return self.count_unknown_xid(xid);
        };
        let call = &self.calls[key];
        let carried_by = call.carrier.as_ref().map(|carrier| carrier.by);
        // The lengths in the reply are those of the write chunks that the call listed in the
        // extension's own header. Another call has no such list.
        if by.is_some() && carried_by != by {
            return self.count_discarded(
                &"a reply in messages of an extension to a call that was not sent in them",
            );
        }
        // The device lets the responder write no further than a registration goes. A longer length
        // is a false report.
        let written = reply.writes.iter().enumerate();
        let mut written = written.filter_map(|(chunk, written)| Some((chunk, (*written)?.len)));
        let fits = written.all(|(chunk, len)| len <= call.registered_bytes(Purpose::Write(chunk)));
        let belongs = shared
            .dialect
            .check_payload(xid, Direction::Reply, &reply.message);
        if let Err(error) = belongs {
            return self.count_discarded(&error);
        }
        shared.moved.carried(&reply.message, reply.transmissions);
        let outcome = match fits {
            true => Outcome::CarriedReply(reply.message, reply.writes),
            false => Outcome::Failed(CallError::Protocol(
                "the server says that it wrote more than there was room for".to_owned(),
            )),
        };
        self.end_answered(shared, key, Some(reply.granted), outcome);
    }

    /// Fails the call with this XID, because its reply has arrived and cannot be used.
    pub(crate) fn reply_unusable(&mut self, shared: &mut Shared, xid: u32, reason: String) {
        let Some(key) = self.sent_call(xid) else {
            return self.count_unknown_xid(xid);
        };
        rpcrdma_host::limited!(warn, xid, reason, "reply cannot be used");
        // The credits of a message that breaks a rule count for nothing.
        let outcome = Outcome::Failed(CallError::Protocol(reason));
        self.end_answered(shared, key, None, outcome);
    }

    /// Records that the responder could not use the messages of an extension that carried a call.
    /// The call is sent again without extensions.
    pub(crate) fn carried_call_rejected(&mut self, shared: &mut Shared, xid: u32, reason: &str) {
        let Some(key) = self.sent_call(xid) else {
            return self.count_unknown_xid(xid);
        };
        rpcrdma_host::limited!(
            warn,
            xid,
            reason,
            "call in messages of an extension rejected, it is sent without"
        );
        let outcome = self.base_only_outcome(key);
        self.end_answered(shared, key, None, outcome);
    }

    /// Records that the responder does not support the header type of a call's first message. This
    /// type is not sent again (version-two-07, section 7.1.3): queued messages of calls that use it are removed.
    /// The responder keeps no parts of such calls, so their further parts need not be sent either.
    fn header_type_refused(&mut self, shared: &mut Shared, key: usize, number: u32) {
        for xid in shared.flow.withdraw_calls(number) {
            if let Some(key) = self.sent_call(xid)
                && let Some(carrier) = &mut self.calls[key].carrier
            {
                carrier.sends -= 1;
            }
        }
        let call = &self.calls[key];
        let others = call.sends().saturating_sub(1);
        let about_types = shared.dialect.refuses_by_type_alone(number);
        self.earlier_errors.expect(call.xid, others, about_types);
    }

    /// Records that the responder has refused RDMA2_CALL_EXTERNAL, the header type of a call with a
    /// call chunk. It is not sent again (version-two-07, section 7.1.3).
    fn external_calls_refused(&mut self, shared: &mut Shared) {
        shared.limits.chunks.position_zero = false;
        self.limits_changed(shared);
    }

    /// Returns the outcome by which a call that an extension could not carry is planned again.
    fn base_only_outcome(&self, key: usize) -> Outcome {
        let call = &self.calls[key];
        match (&call.carrier, call.original()) {
            (Some(_), Some(source)) => Outcome::Again(Box::new(source.clone().base_only())),
            _ => Outcome::Failed(CallError::Protocol(
                "the server refused a message of an extension that was not sent".to_owned(),
            )),
        }
    }

    /// Returns the key of the sent call with this XID, also if it was cancelled.
    fn sent_call(&self, xid: u32) -> Option<usize> {
        let found = self.by_xid.get(&xid).copied();
        let sent = |key: &usize| matches!(self.calls[*key].stage, Stage::Sent(_));
        let cancelled = || {
            let mut cancelled = self.cancelled.iter().copied();
            cancelled.find(|&key| self.calls[key].xid == xid)
        };
        found.filter(sent).or_else(cancelled)
    }

    /// Counts a reply whose XID is that of no call that was sent.
    fn count_unknown_xid(&mut self, xid: u32) {
        self.counters.unknown_xid += 1;
        tracing::debug!(xid, "reply to no call");
    }

    /// Returns the credits of an answered call, and ends the call. `granted` is the grant of the
    /// answer, if it applies.
    pub(super) fn end_answered(
        &mut self,
        shared: &mut Shared,
        key: usize,
        granted: Option<u32>,
        outcome: Outcome,
    ) {
        let sent = self.calls[key].sent_messages();
        // After an error, other Sends of the same call may still be under way. Each will use up a
        // receive of the responder, so that their credits are not free yet.
        match outcome {
            Outcome::Reply { .. } | Outcome::CarriedReply(..) => {
                shared.flow.call_replied(sent, granted);
            }
            _ => shared.flow.call_refused(sent, granted),
        }
        shared.trace_credits(self.calls[key].xid, answer_arrived);
        if self.calls[key].cancelled {
            self.counters.cancelled_replies += 1;
            self.cancelled.retain(|&cancelled| cancelled != key);
            self.end_call(shared, key, Outcome::Dropped);
        } else {
            self.end_call(shared, key, outcome);
        }
    }

    /// Counts a message that is discarded silently (RFC 8166, section 4.5).
    pub(crate) fn count_discarded(&mut self, why: &dyn std::fmt::Display) {
        self.counters.discarded += 1;
        rpcrdma_host::limited!(warn, %why, "message from the responder discarded");
    }

    /// Removes a call, and reports its outcome.
    pub(super) fn finish_call(&mut self, shared: &mut Shared, key: usize, outcome: Outcome) {
        let mut call = self.calls.remove(key);
        let xid = call.xid;
        // A cancelled call is no longer in `by_xid`. Another call may have the XID there.
        if self.by_xid.get(&xid) == Some(&key) {
            self.by_xid.remove(&xid);
        }
        if let Some(carrier) = &call.carrier {
            self.carried_ended(shared, xid, carrier);
        }
        if let Outcome::Again(mut call) = outcome {
            if !self.takes_calls() {
                return self.earlier_errors.forget(xid);
            }
            // What it waited for ended when it was first planned.
            call.waits = None;
            // It was made before all that are pending.
            return self.pending.push_front(*call);
        }
        self.earlier_errors.forget(xid);
        shared.moved.received.chunk += outcome.written();
        if let Some(result) = call.take_result(shared.dialect, outcome) {
            shared.actions.push_back(Action::Finished { xid, result });
        }
    }

    /// Tells the extension that carried a call that it has ended, and releases the receives for its
    /// reply.
    fn carried_ended(&mut self, shared: &mut Shared, xid: u32, carrier: &Carrier) {
        // Its plan was taken when it was laid out.
        if carrier.plan.is_none()
            && let Some(mode) = shared.session.modes().get(carrier.by)
        {
            mode.call_ended(xid);
        }
        let count = carrier.receives;
        if count > 0 {
            self.release_receives(count);
            shared.actions.push_back(Action::ReleaseReceives { count });
        }
    }
}

fn answer_arrived(in_flight: u32, granted: u32) -> Event {
    Event::Answered { in_flight, granted }
}

/// Returns the outcome of a call whose reply was checked with this result.
fn outcome(dialect: &dyn Dialect, returned: Returned, message: Message) -> Outcome {
    let error = match returned {
        Returned::Reply(ReturnedChunks { writes, long }) => {
            return Outcome::Reply {
                message,
                writes,
                long,
            };
        }
        Returned::Error(error) => error,
    };
    let name = dialect.error_name(error);
    let chunk = |what: &str| CallError::Chunk(format!("{name}: {what}"));
    let protocol = |what: &str| CallError::Protocol(format!("{what} ({name})"));
    Outcome::Failed(match error {
        PeerError::Chunk => chunk(
            "the header or a chunk could not be used, or the reply was longer than the room \
             offered for it",
        ),
        PeerError::Version { low, high } => CallError::Protocol(format!(
            "no version in common: the server speaks RPC-over-RDMA {}, this call was version {}",
            show_versions(low, high),
            dialect.version()
        )),
        PeerError::UnsupportedType => {
            protocol("the server took a call for a message of an unknown type")
        }
        PeerError::ReadChunks { .. } => {
            chunk("the call has more read chunks than the responder fetches")
        }
        PeerError::WriteChunks { .. } => {
            chunk("the call has more write chunks than the responder fills")
        }
        PeerError::Segments { .. } => {
            chunk("the call has more segments than the responder accepts")
        }
        PeerError::WriteResource { .. } => chunk(&format!(
            "a write chunk is too short for its result; {EXECUTED}"
        )),
        PeerError::ReplyResource { .. } => chunk(&format!(
            "the reply chunk is too short for the reply; {EXECUTED}"
        )),
        PeerError::Continuation => protocol("the responder cannot join the parts of the call"),
        PeerError::PropertyValue => protocol("the responder took a call for properties"),
        PeerError::VersionMismatch => protocol("the responder speaks another version here"),
        PeerError::System => protocol("the responder cannot execute the call"),
    })
}

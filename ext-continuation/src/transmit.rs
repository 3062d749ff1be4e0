//! The state of one end of a connection, and its reaction to the connection's events.

pub(crate) mod call;
mod replies;
pub(crate) mod reply;

use std::any::Any;
use std::collections::VecDeque;

use onc_rpc::Message;
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport};
use rpcrdma_ext_xchar::{Characteristic, ReceiveBufferSize};
use rpcrdma_extension::layout::Frame;
use rpcrdma_extension::{
    AgreedFeatures, CallCandidate, CallToPlan, ConnectionLimits, Extension, Heard, Kind,
    NotTransferred, Outbox, PeerError, Planned, Property, ReceivedMessage, Refusal,
    ReplyCandidates, ReplyToPlan, TransferMode, Transmissions,
};
use rpcrdma_v2::{Chunks, Direction, OPTIONAL, Side};
use smallvec::SmallVec;

use crate::group::Group;
use crate::transmit::call::SentCalls;
use crate::transmit::reply::{LastReply, ReplyContext};
use crate::{
    Config, Fault, PeerAnnouncements, RequestReceiveLimit, ResponseSendLimit, Usable, XMTCONT,
    XMTERR, XMTREQ, XMTRESP, decide,
};

/// Number of messages that the peer could not use after which this end sends no more of them,
/// because the two implementations do not understand each other.
const MAX_FAULTS: u32 = 3;
/// Maximum number of bad messages of which further transmissions are discarded silently. A message
/// that interrupts a group can be bad itself, so there can be several.
const MAX_ABANDONED: usize = 4;
/// Maximum number of sent replies that the peer may still report as unusable.
const MAX_REPLIES: usize = 256;

/// The state of message continuation at one end of a connection: an
/// [`Extension`](rpcrdma_extension::Extension) of version 2 that carries RPC messages.
#[derive(Debug)]
pub struct Transmit {
    pub(crate) config: Config,
    /// This side's receive buffers, as announced to the peer.
    pub(crate) frame: Frame,
    peer: PeerAnnouncements,
    /// The transfer modes that the configuration and the announcements of both ends allow. Decided
    /// when the peer announces something, because every call asks for it.
    decided: Usable,
    /// Number of announcements of the peer that the transfer modes depend on.
    pub(crate) announced: u64,
    /// The characteristics that matter here and were announced by the peer.
    pub(crate) announced_ids: SmallVec<[u32; 5]>,
    /// Whether the peer has refused these operations.
    refused: bool,
    pub(crate) faults: u32,
    /// The calls that have not ended.
    pub(crate) outstanding: SentCalls,
    /// The transfer modes of the last reply, until the peer announces something.
    pub(crate) last_reply: Option<LastReply>,
    /// XID and number of transmissions of sent replies, the oldest first.
    replies: VecDeque<(u32, u32)>,
    pub(crate) incoming: Option<Group>,
    /// Messages in which an error was found. The remaining transmissions of their groups are
    /// discarded silently, so that one bad message causes one error report.
    abandoned: VecDeque<(u32, Direction)>,
}

impl Transmit {
    /// Creates the state for a new connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let peer = PeerAnnouncements::default();
        Self {
            frame: config.frame(),
            decided: decide(&config, &peer),
            config,
            peer,
            announced: 0,
            announced_ids: SmallVec::new(),
            refused: false,
            faults: 0,
            outstanding: SentCalls::default(),
            last_reply: None,
            replies: VecDeque::new(),
            incoming: None,
            abandoned: VecDeque::new(),
        }
    }

    /// Returns the configuration of this end.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns what the peer has announced about sending and receiving in several transmissions.
    #[must_use]
    pub fn peer(&self) -> &PeerAnnouncements {
        &self.peer
    }

    /// Returns the features that may be used at present.
    #[must_use]
    pub fn usable(&self) -> Usable {
        let mut usable = self.decided;
        usable.requests &= !self.refused && self.faults < MAX_FAULTS;
        usable
    }

    /// Returns the peer's receive buffers, for messages of up to `inline` bytes.
    pub(crate) fn send_frame(&self, inline: u64) -> Frame {
        let frame = self
            .peer
            .frame
            .as_ref()
            .filter(|_| self.config.features.ddp.send);
        match frame {
            Some(frame) => frame.within(inline),
            None => Frame::plain(inline),
        }
    }

    pub(crate) fn abandon(&mut self, xid: u32, direction: Direction) {
        self.resume(xid, direction);
        if self.abandoned.len() == MAX_ABANDONED {
            self.abandoned.pop_front();
        }
        self.abandoned.push_back((xid, direction));
    }

    /// Ends the silent discard for a message, because it begins again.
    pub(crate) fn resume(&mut self, xid: u32, direction: Direction) {
        if !self.abandoned.is_empty() {
            self.abandoned.retain(|&bad| bad != (xid, direction));
        }
    }

    pub(crate) fn is_abandoned(&self, xid: u32, direction: Direction) -> bool {
        self.abandoned.contains(&(xid, direction))
    }

    pub(crate) fn remember_reply(&mut self, xid: u32, count: u32) {
        if self.replies.len() == MAX_REPLIES {
            self.replies.pop_front();
        }
        self.replies.push_back((xid, count));
    }

    /// Returns the number of transmissions of the reply with this XID; of the last one, if the call
    /// was repeated.
    pub(crate) fn reply_sent(&self, xid: u32) -> Option<u32> {
        let mut found = self.replies.iter().rev().filter(|(sent, _)| *sent == xid);
        found.next().map(|&(_, count)| count)
    }

    /// Forgets the reply with this XID. Returns whether there was one.
    pub(crate) fn forget_reply(&mut self, xid: u32) -> bool {
        let at = self.replies.iter().rposition(|&(sent, _)| sent == xid);
        at.and_then(|at| self.replies.remove(at)).is_some()
    }
}

impl Extension for Transmit {
    fn name(&self) -> &'static str {
        "round-trip reduction"
    }

    fn numbers(&self) -> &[u32] {
        &[XMTREQ, XMTRESP, XMTCONT, XMTERR]
    }

    fn properties(&self) -> Vec<Property> {
        let config = &self.config;
        let mut properties = vec![
            RoundTripSupport::property(&config.support()),
            RequestReceiveLimit::property(&config.max_call_transmissions()),
            ResponseSendLimit::property(&config.max_reply_transmissions()),
        ];
        if config.features.ddp.receive {
            properties.push(ReceiveBufferStructure::property(&config.structure));
        }
        properties
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        self.operation(op, out)
    }

    fn refuse_truncated(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> bool {
        self.refuse_truncated_call(op, out)
    }

    fn refuse_parts(&mut self, out: &mut Outbox<'_>) -> bool {
        self.refuse_begun_call(out)
    }

    fn observed(&mut self, heard: &Heard, out: &mut Outbox<'_>) {
        self.interrupted(out, |_| match heard.kind {
            Kind::Base(found) => Fault::HeaderType {
                expected: OPTIONAL,
                found,
            },
            Kind::Extension(found) => Fault::OperationType {
                expected: XMTCONT,
                found,
            },
        });
    }

    fn property_received(&mut self, property: &Property, out: &mut Outbox<'_>) {
        let value = &property.value;
        match property.id {
            ReceiveBufferSize::ID => {}
            RoundTripSupport::ID => {
                let support = RoundTripSupport::from_bytes(value);
                self.peer.support = support.unwrap_or_default();
            }
            ReceiveBufferStructure::ID => {
                let structure = ReceiveBufferStructure::from_bytes(value).ok();
                self.peer.frame = structure.and_then(|structure| Frame::new(&structure).ok());
            }
            RequestReceiveLimit::ID => {
                let takes = RequestReceiveLimit::from_bytes(value);
                self.peer.takes = takes.unwrap_or_else(|_| RequestReceiveLimit::default_value());
            }
            ResponseSendLimit::ID => {
                let sends = ResponseSendLimit::from_bytes(value);
                self.peer.sends = sends.unwrap_or_else(|_| ResponseSendLimit::default_value());
            }
            _ => return,
        }
        if !self.announced_ids.contains(&property.id) {
            self.announced_ids.push(property.id);
        }
        self.announced += 1;
        self.decided = decide(&self.config, &self.peer);
        self.last_reply = None;
        out.limits_changed();
    }

    fn limits(&self, limits: &mut ConnectionLimits) {
        // Section 8.3: if only the structure was announced, the size follows from it.
        if !self.announced_ids.contains(&ReceiveBufferSize::ID)
            && let Some(frame) = &self.peer.frame
        {
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            limits.inline_send = limits.inline_send.max(len.min(self.config.max_send));
        }
    }

    fn agreed(&self, side: Side, agreed: &mut AgreedFeatures) {
        self.list_agreed(side, agreed);
    }

    fn parts_lost(&mut self, direction: Direction, xid: u32) {
        let _ = (self.incoming).take_if(|group| group.parts.is(direction, xid));
    }

    fn collected_bytes(&self) -> usize {
        let group = self.incoming.as_ref();
        group.map_or(0, |group| group.parts.memory())
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }

    fn closed(&mut self) {
        self.incoming = None;
        self.last_reply = None;
        self.outstanding = SentCalls::default();
        self.replies.clear();
    }
}

impl TransferMode for Transmit {
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        self.call_candidates(call)
    }

    fn plan_state(&self) -> Option<u64> {
        // What the peer announces, and whether it takes these operations, is all that changes.
        let can_send = u64::from(self.usable().requests);
        Some(self.announced << 1 | can_send)
    }

    fn send_call(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        self.transmit_call(xid, plan.of()?, message, chunks)
    }

    fn plan_reply(&mut self, reply: &ReplyToPlan<'_>) -> ReplyCandidates {
        self.reply_candidates(reply)
    }

    /// "In all cases, each xmddp_rsdloc sent as part of a request has a corresponding xmddp_loc in the
    /// associated response" (section 7.4), and RDMA2_MSG has no place for one. drafts/errata.md says which
    /// replies come by it all the same.
    fn takes_base_reply(&self, context: &(dyn Any + Send)) -> bool {
        let context = context.downcast_ref::<ReplyContext>();
        context.is_none_or(|context| context.directions.is_empty())
    }

    fn send_reply(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        self.transmit_reply(xid, plan.of()?, message)
    }

    fn call_refused(&mut self, xid: u32, error: PeerError) {
        self.outstanding.remove(xid);
        match error {
            // Section 5.1: this error is how an end learns that the peer lacks the extension.
            PeerError::UnsupportedType => self.refused = true,
            _ => self.faults = self.faults.saturating_add(1),
        }
    }

    fn call_ended(&mut self, xid: u32) {
        self.outstanding.remove(xid);
    }
}

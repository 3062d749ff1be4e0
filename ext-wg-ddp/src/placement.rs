//! The state of the extension at one end of a connection.

use onc_rpc::Message;
use rpcrdma_chunks::{CallChunks, Chunks, Direction, Side};
use rpcrdma_extension::agreed::{PLACED_HERE, PLACED_THERE, both};
use rpcrdma_extension::layout::{BufferStructure, Frame};
use rpcrdma_extension::{
    AgreedFeatures, Extension, FeatureReason, IncomingCall, IncomingReply, Outbox, Part, PeerError,
    Property, ReceivedMessage, Refusal, TransferMode, Transferred, Whole,
};
use rpcrdma_v2_wg::check_payload;
use rpcrdma_v2_wg::limits::DEFAULT_INLINE;
use smallvec::SmallVec;

use crate::group::{Bad, Group, joined};
use crate::header_type::{CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE};
use crate::last_reply::LastReply;
use crate::property::is_structure;
use crate::{
    CallPlaced, NO_RESULTS, PlacedMiddle, ReplyPlaced, Support, property_id, smallest_result_from,
    smallest_result_value, structure_from, structure_value, support_from, support_value,
};

/// The configuration of one end.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether this end makes calls: a client, and a server that calls its clients.
    pub makes_calls: bool,
    /// Whether this end takes calls with chunks: a server, and a client that has announced so
    /// (version-two-07, section 5.2.5).
    pub takes_calls: bool,
    /// Whether this end places items in what it sends.
    pub send: bool,
    /// Whether the peer may place items in what this end receives.
    pub receive: bool,
    /// Whether calls of this end offer a handle to be invalidated by the reply.
    pub offer_invalidation: bool,
    /// The structure of this end's receives.
    pub structure: BufferStructure,
    /// Minimum length in bytes of an item to place, and of a result to be placed.
    pub min_placed: u32,
    /// Maximum length of an RPC message in bytes, items included.
    pub max_message: u64,
    /// Maximum number of segments in the header of a call (version-two-07, section 5.2.4).
    pub max_segments: u32,
}

/// The properties of this extension that the peer has announced, or their defaults.
#[derive(Clone, Debug)]
pub(crate) struct PeerAnnouncements {
    send_size: u32,
    pub(crate) receive_size: u32,
    pub(crate) structure: Option<BufferStructure>,
    pub(crate) support: Support,
    pub(crate) smallest_result: u32,
}

impl Default for PeerAnnouncements {
    fn default() -> Self {
        Self {
            send_size: DEFAULT_INLINE,
            receive_size: DEFAULT_INLINE,
            structure: None,
            support: Support::empty(),
            smallest_result: NO_RESULTS,
        }
    }
}

/// The state of send-based data placement at one end of a connection: an
/// [`Extension`](rpcrdma_extension::Extension) that carries RPC messages.
#[derive(Debug)]
pub struct Placement {
    pub(crate) config: Config,
    pub(crate) peer: PeerAnnouncements,
    /// Number of announcements of the peer that plans depend on.
    pub(crate) announced: u64,
    /// This end's buffers, as the peer can use them. Every placed message is looked for in them, so they
    /// are computed when the peer announces something.
    own_frame: Option<Frame>,
    /// The transfer mode of the last reply, until the peer announces something.
    pub(crate) last_reply: Option<LastReply>,
    incoming: Option<Group>,
    /// Whether the peer has refused properties of this end. It then numbers targets by a Maximum Send Size
    /// that this end does not know, so that nothing can be placed.
    pub(crate) properties_refused: bool,
    /// Whether this end has refused properties of the peer. The ends may then disagree on the peer's Maximum Send
    /// Size, and so on how targets are numbered.
    peer_refused: bool,
    /// Whether the peer has refused a header type of calls, although it announced that it takes
    /// them. It is not sent again (version-two-07, section 7.1.3).
    pub(crate) calls_refused: bool,
    /// Whether the peer was unable to return the reply to a call that offered no Reply chunk,
    /// because its results were too short to be placed. From then on, only calls whose replies fit
    /// inline even then are sent without a Reply chunk (version-two-07, section 7.3.5).
    pub(crate) replies_refused: bool,
}

impl Placement {
    /// Creates the state for a new connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let peer = PeerAnnouncements::default();
        Self {
            own_frame: own_frame(&config, &peer),
            config,
            peer,
            announced: 0,
            last_reply: None,
            incoming: None,
            properties_refused: false,
            peer_refused: false,
            calls_refused: false,
            replies_refused: false,
        }
    }

    /// Returns the peer's buffers for messages of up to `inline` bytes, if any data can be placed in
    /// them.
    pub(crate) fn peer_frame(&self, inline: u64) -> Option<Frame> {
        let structure = self.peer.structure.as_ref().filter(|_| self.config.send)?;
        // A structure of another length than the peer's receives have is taken as not announced.
        (structure.sum() == u64::from(self.peer.receive_size)).then_some(())?;
        usable(structure, inline)
    }

    /// Returns this end's buffers, as the peer can use them.
    pub(crate) fn own_frame(&self) -> Option<&Frame> {
        self.own_frame.as_ref()
    }

    /// Returns the length in bytes from which on this end wants results placed.
    pub(crate) fn smallest_result(&self) -> u32 {
        match self.config.makes_calls && self.config.receive {
            true => self.config.min_placed.min(NO_RESULTS - 1),
            false => NO_RESULTS,
        }
    }

    /// Returns whether this end may place the items of its calls in the peer's receives.
    pub(crate) fn places_calls(&self) -> bool {
        let refused = self.calls_refused || self.are_properties_refused();
        self.config.send && self.peer.support.contains(Support::CALLS) && !refused
    }

    /// Returns whether the peer places the results of this end's calls in this end's receives.
    pub(crate) fn has_results_placed(&self) -> bool {
        let wanted = self.smallest_result() != NO_RESULTS && !self.are_properties_refused();
        wanted && self.peer.support.contains(Support::RESULTS)
    }

    /// Returns whether this end places the results of the peer's calls in the peer's receives.
    pub(crate) fn places_results(&self) -> bool {
        let wanted = self.peer.smallest_result != NO_RESULTS && self.peer.structure.is_some();
        self.config.takes_calls && self.config.send && wanted && !self.are_properties_refused()
    }

    /// Returns whether properties of one end were refused by the other. Then neither knows which the other goes by.
    fn are_properties_refused(&self) -> bool {
        self.properties_refused || self.peer_refused
    }

    /// Has everything planned anew, because properties were refused.
    fn plan_again(&mut self, out: &mut Outbox<'_>) {
        self.announced += 1;
        self.last_reply = None;
        out.limits_changed();
    }

    /// Returns whether the peer may place the items of its calls in this end's receives. Whether it
    /// does so is not known.
    fn has_calls_placed(&self) -> bool {
        self.config.takes_calls && self.config.receive && !self.peer_refused
    }

    fn part(&mut self, op: &ReceivedMessage<'_>, direction: Direction) -> Result<(), Bad> {
        let (middle, header) = op.read(PlacedMiddle::decode)?;
        let begun = self.begun(op, direction);
        let mut group = begun.unwrap_or_else(|| {
            let receive = usize::try_from(self.config.structure.sum());
            Group::new(direction, op.xid, receive.unwrap_or(usize::MAX))
        });
        group.add(middle, op.message, header as u64, self.config.max_message)?;
        self.incoming = Some(group);
        Ok(())
    }

    fn call(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Bad> {
        let (call, header) = op.read(CallPlaced::decode)?;
        let (message, parts) =
            self.finished(op, Direction::Call, call.payload, header, &call.items)?;
        let handle = Some(call.inv_handle).filter(|&handle| handle != 0);
        let chunks = checked(call.chunks, op.xid, &message, &self.config)?;
        let call = IncomingCall {
            xid: op.xid,
            requested: op.credits,
            transmissions: parts,
            message,
            chunks,
            context: Box::new(()),
        };
        out.transferred(Transferred::BaseCall { call, handle });
        Ok(())
    }

    fn reply(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Bad> {
        let (reply, header) = op.read(ReplyPlaced::decode)?;
        let (message, parts) =
            self.finished(op, Direction::Reply, reply.payload, header, &reply.items)?;
        let mut segments = reply.writes.iter().flatten();
        let used = segments.any(|segment| segment.length > 0);
        if used || check_payload(op.xid, Direction::Reply, &message).is_err() {
            let reason = "a placed reply that is not one of its call";
            return Err(Bad(PeerError::Chunk, reason));
        }
        out.transferred(Transferred::AnyReply(IncomingReply {
            xid: op.xid,
            granted: op.credits,
            transmissions: parts,
            message,
            writes: SmallVec::new(),
        }));
        Ok(())
    }

    /// Returns the parts of a message that have arrived, to which another is to be added, if there are
    /// any.
    fn begun(&mut self, op: &ReceivedMessage<'_>, direction: Direction) -> Option<Group> {
        let begun = self.incoming.take();
        begun.filter(|group| group.message.is(direction, op.xid))
    }

    /// Adds the last part of a message, which has a header of `header` bytes. Returns the whole and
    /// the number of its parts.
    fn finished(
        &mut self,
        op: &ReceivedMessage<'_>,
        direction: Direction,
        payload: u32,
        header: usize,
        items: &[crate::PlacedItem],
    ) -> Result<(Message, u32), Bad> {
        let header = header as u64;
        let whole = match self.begun(op, direction) {
            Some(group) => group.finish(payload, op.message, header)?,
            None => Whole::One(Part::new(op.message, header, payload.into())?),
        };
        let none = Frame::plain(0);
        let frame = self.own_frame().unwrap_or(&none);
        let message = joined(&whole, frame, items, self.config.max_message)?;
        Ok((message, whole.count()))
    }
}

/// Returns the buffers of an end with this configuration, as its peer can use them.
fn own_frame(config: &Config, peer: &PeerAnnouncements) -> Option<Frame> {
    let longest = u64::from(peer.send_size);
    usable(&config.structure, longest).filter(|_| config.receive)
}

/// Returns the direction of a header type.
fn direction(header_type: u32) -> Direction {
    match header_type {
        CALL_PLACED_MIDDLE | CALL_PLACED => Direction::Call,
        _ => Direction::Reply,
    }
}

/// Returns the buffers with this structure for messages of up to `longest` bytes, if any data can
/// be placed in them.
fn usable(structure: &BufferStructure, longest: u64) -> Option<Frame> {
    let frame = Frame::new(structure).ok()?;
    let frame = frame.within(longest).with_usable_targets();
    frame.can_place().then_some(frame)
}

/// Checks a call with these chunks, whose placed items are in `message`. Returns the chunks.
fn checked(
    chunks: Chunks,
    xid: u32,
    message: &Message,
    config: &Config,
) -> Result<CallChunks, Bad> {
    if !chunks.reads.is_empty() {
        // Section 7.3.1: zero says that no read chunks can be used for this call.
        let error = PeerError::ReadChunks { max: 0 };
        return Err(Bad(error, "read chunks beside placed items"));
    }
    let max = config.max_segments;
    if chunks.handles().count() > max as usize {
        let error = PeerError::Segments { max };
        return Err(Bad(error, "more segments than are taken"));
    }
    if check_payload(xid, Direction::Call, message).is_err() {
        return Err(Bad(PeerError::Chunk, "header and RPC message do not agree"));
    }
    let checked = CallChunks::new(chunks, false, message.payload_len(), config.max_message);
    checked.map_err(|_| Bad(PeerError::Chunk, "chunk lists that break a rule"))
}

impl Extension for Placement {
    fn name(&self) -> &'static str {
        "send-based data placement"
    }

    fn numbers(&self) -> &[u32] {
        &[
            CALL_PLACED_MIDDLE,
            CALL_PLACED,
            REPLY_PLACED_MIDDLE,
            REPLY_PLACED,
        ]
    }

    fn direction(&self, number: u32) -> Option<Direction> {
        Some(direction(number))
    }

    fn properties(&self) -> Vec<Property> {
        let mut properties = Vec::new();
        let mut add = |id, value| properties.push(Property { id, value });
        if self.config.receive {
            add(
                property_id::STRUCTURE,
                structure_value(&self.config.structure),
            );
        }
        if self.config.takes_calls {
            let mut support = Support::empty();
            support.set(Support::CALLS, self.config.receive);
            support.set(Support::RESULTS, self.config.send);
            add(property_id::SUPPORT, support_value(support));
        }
        if self.config.makes_calls && self.config.receive {
            let value = smallest_result_value(self.smallest_result());
            add(property_id::SMALLEST_RESULT, value);
        }
        properties
    }

    fn is_last_part(&self, number: u32) -> bool {
        matches!(number, CALL_PLACED | REPLY_PLACED)
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let direction = direction(op.number);
        let takes = match direction {
            Direction::Call => self.config.takes_calls,
            Direction::Reply => self.config.makes_calls,
        };
        // A message that has begun goes on when properties between its parts are refused.
        let has_begun = |group: &Group| group.message.is(direction, op.xid);
        let is_refused = self.peer_refused && !self.incoming.as_ref().is_some_and(has_begun);
        if is_refused || !(takes && self.config.receive) {
            return Err(Refusal::Unsupported);
        }
        let taken = match op.number {
            CALL_PLACED => self.call(op, out),
            REPLY_PLACED => self.reply(op, out),
            _ => self.part(op, direction).map(|()| out.parts_follow()),
        };
        // A requester learns why; a bad reply fails its call here.
        taken.map_err(|Bad(error, reason)| match direction {
            Direction::Call => Refusal::Answer(error, reason),
            Direction::Reply => Refusal::Unusable(reason),
        })
    }

    fn observes(&self) -> bool {
        false
    }

    fn parts_lost(&mut self, direction: Direction, xid: u32) {
        let _ = (self.incoming).take_if(|group| group.message.is(direction, xid));
    }

    /// Section 5.1 of version-two-07: a value is empty, which means the default, or the encoding of
    /// the property's type.
    fn is_valid(&self, property: &Property) -> bool {
        let value = &property.value;
        match property.id {
            _ if value.is_empty() => true,
            property_id::STRUCTURE => is_structure(value),
            property_id::SUPPORT | property_id::SMALLEST_RESULT => value.len() == 4,
            _ => true,
        }
    }

    fn property_received(&mut self, property: &Property, out: &mut Outbox<'_>) {
        let value = &property.value;
        let number = || value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let default = PeerAnnouncements::default();
        match property.id {
            rpcrdma_v2_wg::property_id::SEND_SIZE => {
                self.peer.send_size = number().unwrap_or(default.send_size);
            }
            rpcrdma_v2_wg::property_id::RECEIVE_SIZE => {
                self.peer.receive_size = number().unwrap_or(default.receive_size);
            }
            property_id::STRUCTURE => self.peer.structure = structure_from(value).ok(),
            property_id::SUPPORT => {
                self.peer.support = support_from(value).unwrap_or_default();
            }
            property_id::SMALLEST_RESULT => {
                let length = smallest_result_from(value);
                self.peer.smallest_result = length.unwrap_or(default.smallest_result);
            }
            _ => return,
        }
        self.announced += 1;
        self.own_frame = own_frame(&self.config, &self.peer);
        self.last_reply = None;
        out.limits_changed();
    }

    fn own_properties_refused(&mut self, out: &mut Outbox<'_>) {
        self.properties_refused = true;
        self.plan_again(out);
    }

    fn peer_properties_refused(&mut self, out: &mut Outbox<'_>) {
        self.peer_refused = true;
        self.plan_again(out);
    }

    fn agreed(&self, side: Side, agreed: &mut AgreedFeatures) {
        let why_not = match agreed.peer_unknown() {
            _ if self.properties_refused => FeatureReason::Peer,
            // The peer has announced it, in properties that this end did not take.
            _ if self.peer_refused => FeatureReason::Here,
            unknown => unknown.unwrap_or(FeatureReason::NotAnnounced),
        };
        let (there, here) = match side {
            Side::Client => (self.places_calls(), self.has_results_placed()),
            Side::Server => (self.places_results(), self.has_calls_placed()),
        };
        let why_not_there = match side {
            Side::Client if self.calls_refused => FeatureReason::Peer,
            _ => why_not,
        };
        agreed.set(PLACED_THERE, both(self.config.send, there, why_not_there));
        let here = match side {
            Side::Client => both(self.config.receive, here, why_not),
            // The client chooses the transfer mode of its calls.
            Side::Server => (here, FeatureReason::Here),
        };
        agreed.set(PLACED_HERE, here);
    }

    fn collected_bytes(&self) -> usize {
        let group = self.incoming.as_ref();
        group.map_or(0, |group| group.message.memory())
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }

    fn closed(&mut self) {
        self.incoming = None;
        self.last_reply = None;
    }
}

#[cfg(test)]
mod tests;

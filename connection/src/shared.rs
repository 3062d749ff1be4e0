//! The state that requester and responder of an open connection share.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Segments, total_len};
use rdma::Stag;
use rdma::trace::{Event, Wait};
use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_extension::{Batch, OutgoingMessage, SmallMessages, Transmission};
use slab::Slab;
use tracing::field::{DisplayValue, display};
use transfer_plan::Limits;

use crate::dialect::{Dialect, ErrorMessage, ExtensionHeader, Outgoing, Plain, Session};
use crate::flow::FlowControl;
use crate::given::Given;
use crate::moved::Moved;
use crate::{Action, Config};

/// The size in bytes of the allocations that headers are encoded into. Some tens of headers share
/// one allocation, which lives as long as any of them.
const HEADER_ROOM: usize = 2048;
/// The maximum length of a plain header, in bytes.
const PLAIN_HEADER: usize = 32;

/// The state that requester and responder of an open connection share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The version that the connection speaks.
    pub(crate) dialect: &'static dyn Dialect,
    /// The limits with which messages are planned.
    pub(crate) limits: Limits,
    /// The state of the version on this connection, with the extensions.
    pub(crate) session: Box<dyn Session>,
    /// Whether the session has a set of extensions, so that version 1 asks for it once.
    pub(crate) has_extensions: bool,
    pub(crate) flow: FlowControl,
    /// Actions that are to be returned to the driver, in this order.
    pub(crate) actions: VecDeque<Action>,
    /// The calls and replies of a trace whose last message is on its way to the send queue.
    pub(crate) given: Given,
    /// The buffer that headers are encoded into.
    pub(crate) headers: BytesMut,
    pub(crate) moved: Moved,
    /// Bytes of memory that the earlier parts of the message hold that is being handled, and that nobody counts. While
    /// the message was incomplete, they were charged.
    pub(crate) uncounted_parts: usize,
}

/// Frees memory that a slab needed for more entries than it has now, and returns the number of bytes freed.
pub(crate) fn shrink_slab<T>(slab: &mut Slab<T>) -> usize {
    let before = slab.capacity();
    slab.shrink_to_fit();
    let freed = before.saturating_sub(slab.capacity());
    freed.saturating_mul(size_of::<T>())
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        dialect: &'static dyn Dialect,
        limits: Limits,
        session: Box<dyn Session>,
    ) -> Self {
        let options = &config.options;
        let mut policy = options.grants.make(config.role.side());
        if let Some(again) = &config.ask_again {
            policy.set_ask_again(again.clone());
        }
        let count = options.initial_message_count;
        Self {
            flow: FlowControl::new(&config.end(), dialect.accounting(), count, policy),
            config,
            dialect,
            limits,
            has_extensions: session.extensions().is_some(),
            session,
            actions: VecDeque::new(),
            given: Given::default(),
            headers: BytesMut::with_capacity(HEADER_ROOM),
            moved: Moved::default(),
            uncounted_parts: 0,
        }
    }

    /// Returns the address of the peer as a field of a log event, which has no such field if it is unknown.
    pub(crate) fn peer(&self) -> Option<DisplayValue<SocketAddr>> {
        self.config.peer.map(display)
    }

    /// Records an event of a call, if calls are traced.
    #[inline]
    pub(crate) fn trace(&self, xid: u32, event: Event) {
        if let Some(tracer) = &self.config.trace {
            tracer.record(xid, event);
        }
    }

    /// Has it recorded when a call or reply whose last message was queued leaves ([`Shared::sends_wait`]). Records
    /// that it waits for credits of the peer, if it does. Does nothing if calls are not traced.
    #[inline]
    pub(crate) fn trace_queued(&mut self, direction: Direction, xid: u32) {
        if self.config.trace.is_some() {
            self.record_queued(direction, xid);
        }
    }

    #[cold]
    fn record_queued(&mut self, direction: Direction, xid: u32) {
        match (self.flow.trace_last(xid), direction) {
            (false, _) => self.record_given(0, direction, xid),
            (true, Direction::Call) => self.trace(xid, Event::Waits(Wait::Credit)),
            (true, Direction::Reply) => self.trace(xid, Event::Held(Wait::Credit)),
        }
    }

    fn record_left(&self, direction: Direction, xid: u32) {
        match direction {
            Direction::Call => {
                self.trace_credits(xid, |in_flight, granted| Event::Sent { in_flight, granted });
            }
            Direction::Reply => self.trace(xid, Event::Replied),
        }
    }

    /// Adds the queued messages that the peer can receive now to the actions.
    #[inline]
    pub(crate) fn release_queued(&mut self) {
        self.flow.release_queued(&mut self.actions);
        if self.config.trace.is_some() {
            for (behind, direction, xid) in self.flow.take_traced(&self.actions) {
                self.record_given(behind, direction, xid);
            }
        }
    }

    /// Records that a call is sent, as it seldom waits for the send queue, and has it recorded if it does. For a
    /// reply, this would be the end, so it is recorded when it is in the send queue.
    fn record_given(&mut self, behind: u64, direction: Direction, xid: u32) {
        if direction == Direction::Call {
            self.record_left(direction, xid);
        }
        self.given.add(&self.actions, behind, direction, xid);
    }

    /// Records the calls and replies that have left, if so many messages that the driver has taken wait for room
    /// in the send queue, and those that have to wait.
    pub(crate) fn sends_wait(&mut self, messages: usize) {
        while let Some((direction, xid, waited)) = self.given.next_left(messages) {
            if waited || direction == Direction::Reply {
                self.record_left(direction, xid);
            }
        }
        while let Some((direction, xid)) = self.given.next_waiting() {
            let wait = Wait::SendQueue;
            match direction {
                Direction::Call => self.trace(xid, Event::Waits(wait)),
                Direction::Reply => self.trace(xid, Event::Held(wait)),
            }
        }
    }

    /// Records that a call was sent or answered, with the credits in use and granted then, if calls are
    /// traced.
    #[inline]
    pub(crate) fn trace_credits(&self, xid: u32, event: fn(u32, u32) -> Event) {
        if let Some(tracer) = &self.config.trace {
            let (in_flight, granted) = self.flow.in_use_and_granted();
            tracer.record(xid, event(in_flight, granted));
        }
    }

    /// Returns the [`plan_state`](rpcrdma_extension::TransferMode::plan_state) of the transfer mode
    /// with this number, which changes when its plans do.
    pub(crate) fn plan_state(&mut self, extension: usize) -> Option<u64> {
        self.session.modes().get(extension)?.plan_state()
    }

    /// Lets an extension put the first of these small messages into one, as many as it wants. Returns the
    /// number of the extension as well, or `None` if each is sent by itself.
    pub(crate) fn batch(
        &mut self,
        direction: Direction,
        messages: &[&Message],
    ) -> Option<(usize, Batch)> {
        let most = self.limits.inline_send;
        let small = SmallMessages {
            direction,
            messages,
            room: most.checked_sub(self.operation_header_len())?,
        };
        let mut all = self.session.extensions_mut()?.all_batching();
        let (by, batch) = all.find_map(|(by, it)| Some((by, it.send_batch(&small)?)))?;
        let Transmission {
            fields,
            payload,
            padding,
            placed,
            ..
        } = &batch.transmission;
        let pieces = payload.iter().chain(placed).chain([fields]);
        let len = u64::from(*padding) + pieces.map(|piece| piece.len() as u64).sum::<u64>();
        let count = batch.count;
        if !(2..=messages.len()).contains(&count) || len > small.room {
            tracing::error!(count, len, "an extension has made an impossible batch");
            return None;
        }
        Some((by, batch))
    }

    /// Returns the length in bytes of the header of an extension's message without fields.
    fn operation_header_len(&mut self) -> u64 {
        let header = ExtensionHeader {
            xid: 0,
            credits: 0,
            direction: Direction::Call,
            number: 0,
            fields: Bytes::new(),
        };
        // Whatever was encoded before has been split off.
        self.dialect.encode_extension(&mut self.headers, header);
        let len = self.headers.len() as u64;
        self.headers.clear();
        len
    }

    /// Encodes the header of a message without chunks.
    pub(crate) fn encode_plain(&mut self, direction: Direction, xid: u32) -> Bytes {
        let credits = self.flow.credit_field(direction);
        let header = Plain { xid, credits };
        self.headers.reserve(PLAIN_HEADER);
        self.dialect
            .encode_plain(&mut self.headers, direction, header);
        self.headers.split().freeze()
    }

    /// Encodes a header that may have chunks. Returns it with its chunk lists.
    pub(crate) fn encode(&mut self, header: Outgoing) -> (Bytes, Chunks) {
        let chunks = self.dialect.encode(&mut self.headers, header);
        (self.headers.split().freeze(), chunks)
    }

    /// Sends a call or reply that takes one Send.
    pub(crate) fn send(
        &mut self,
        direction: Direction,
        header: Bytes,
        mut payload: Segments,
        invalidate: Option<Stag>,
    ) {
        self.moved.sent.inline += total_len(&payload);
        // The header is a piece of its own: the payload is sent from where the upper layer has it.
        payload.insert(0, header);
        self.queue_send(direction, payload, invalidate, false);
    }

    /// Has the driver write to the chunks of the peer.
    pub(crate) fn write(&mut self, writes: impl IntoIterator<Item = Action>) {
        for write in writes {
            if let Action::Write { gather, .. } = &write {
                self.moved.sent.chunk += total_len(gather);
            }
            self.actions.push_back(write);
        }
    }

    /// Sends a message of a call or reply, as soon as the peer can receive it. `more` says that the
    /// next message of the same call or reply follows at once.
    pub(crate) fn queue_send(
        &mut self,
        direction: Direction,
        gather: Segments,
        invalidate: Option<Stag>,
        more: bool,
    ) {
        let actions = &mut self.actions;
        self.flow.send(actions, direction, gather, invalidate, more);
    }

    /// Sends a message of an extension, without payload. Closes the connection if too many wait for
    /// credits.
    pub(crate) fn send_extension_message(&mut self, message: OutgoingMessage) {
        let OutgoingMessage {
            xid,
            direction,
            number,
            fields,
        } = message;
        let header = ExtensionHeader {
            xid,
            credits: self.flow.credit_field(direction),
            direction,
            number,
            fields,
        };
        self.dialect.encode_extension(&mut self.headers, header);
        let message = self.headers.split().freeze();
        self.send_answer(message);
    }

    /// Sends an error message. Closes the connection if too many errors wait.
    pub(crate) fn send_error(&mut self, error: &ErrorMessage) {
        let credits = self.flow.credit_field(Direction::Reply);
        let message = self.dialect.encode_error(error, credits);
        self.send_answer(message);
    }

    /// Sends a message whose number the calls in progress do not limit. Closes the connection if too
    /// many wait for credits.
    fn send_answer(&mut self, message: Bytes) {
        if let Err(error) = self.flow.send_answer(&mut self.actions, message) {
            let reason = error.to_string();
            self.actions.push_back(Action::Close { reason });
        }
    }
}

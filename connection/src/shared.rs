//! The state that requester and responder of an open connection share.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use onc_rpc::Segments;
use rdma::Stag;
use rpcrdma_chunks::Chunks;
use rpcrdma_v2::{Direction, Side};
use rpcrdma_v2_wg::limits::{MAX_CREDITS, MIN_CREDITS};
use slab::Slab;
use tracing::field::{DisplayValue, display};
use transfer_plan::Limits;

use crate::dialect::{Dialect, ErrorMessage, OperationHeader, OperationRouter, Outgoing, Plain};
use crate::send_window::SendWindow;
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
    /// The extensions, in a version that has operations.
    pub(crate) operations: Option<Box<OperationRouter>>,
    /// Flow control, in a version that counts Sends.
    pub(crate) window: Option<Box<SendWindow>>,
    /// Actions that are to be returned to the driver, in this order.
    pub(crate) actions: VecDeque<Action>,
    /// The buffer that headers are encoded into.
    pub(crate) headers: BytesMut,
}

/// Returns the number of messages that an end can receive at a time, where every Send counts. More
/// receives are posted: for messages that only grant credits, and in place of consumed receives that
/// are not posted again yet.
pub(crate) fn most_messages(config: &Config) -> u32 {
    let callbacks = match config.role.side() {
        Side::Client => config.callbacks,
        Side::Server => 0,
    };
    let credits = config.credits.saturating_add(callbacks);
    credits.clamp(MIN_CREDITS, MAX_CREDITS)
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
        operations: Option<Box<OperationRouter>>,
    ) -> Self {
        let window = dialect.send_flow_control().map(|format| {
            let capacity = most_messages(&config);
            let count = config.options.initial_message_count;
            Box::new(SendWindow::new(format, capacity, count))
        });
        Self {
            config,
            dialect,
            limits,
            operations,
            window,
            actions: VecDeque::new(),
            headers: BytesMut::with_capacity(HEADER_ROOM),
        }
    }

    /// Returns the address of the peer as a field of a log event, which has no such field if it is unknown.
    pub(crate) fn peer(&self) -> Option<DisplayValue<SocketAddr>> {
        self.config.peer.map(display)
    }

    /// Returns the [`plan_state`](rpcrdma_extension::TransferMode::plan_state) of the extension
    /// with this number.
    pub(crate) fn plan_state(&mut self, extension: usize) -> Option<u64> {
        let operations = self.operations.as_mut()?;
        operations.extensions.transfer_mode(extension)?.plan_state()
    }

    /// Encodes the header of a message without chunks.
    pub(crate) fn encode_plain(&mut self, direction: Direction, mut header: Plain) -> Bytes {
        header.credits = self.credits(header.credits);
        self.headers.reserve(PLAIN_HEADER);
        self.dialect
            .encode_plain(&mut self.headers, direction, header);
        self.headers.split().freeze()
    }

    /// Encodes a header that may have chunks. Returns it with its chunk lists.
    pub(crate) fn encode(&mut self, mut header: Outgoing) -> (Bytes, Chunks) {
        header.credits = self.credits(header.credits);
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
        payload.insert(0, header);
        self.push_send(direction, payload, invalidate, false);
    }

    /// Sends a message of a call or reply, as soon as the peer can receive it. `more` says that the
    /// next message of the same call or reply follows at once.
    pub(crate) fn push_send(
        &mut self,
        direction: Direction,
        gather: Segments,
        invalidate: Option<Stag>,
        more: bool,
    ) {
        match &mut self.window {
            Some(window) => window.send(&mut self.actions, direction, gather, invalidate, more),
            None => self.actions.push_back(Action::Send {
                gather,
                invalidate,
                more,
            }),
        }
    }

    /// Returns the number of messages that the peer can receive now, where every Send counts.
    pub(crate) fn sendable(&self) -> u32 {
        let window = self.window.as_ref();
        window.map_or(u32::MAX, |window| window.available())
    }

    /// Returns the number of messages that the peer can receive now, where every Send counts, and
    /// that calls may take. A client leaves one for the reply to each call of its server in progress:
    /// the server may wait for it before it replies to the client's calls, and grant nothing more
    /// until it has. (A server needs no such rule: its clients' credits cover all their calls.)
    pub(crate) fn sendable_for_calls(&self) -> u32 {
        let window = self.window.as_ref();
        window.map_or(u32::MAX, |window| match self.config.role.side() {
            Side::Client => window.available_beside_replies(),
            Side::Server => window.available(),
        })
    }

    /// Records how many calls of this end are outstanding. The credits of a client cover the replies
    /// to its calls from the start, those of a server while it makes calls.
    pub(crate) fn calls_outstanding(&mut self, outstanding: u32) {
        if self.config.role.side() == Side::Server
            && let Some(window) = &mut self.window
        {
            window.set_replies(outstanding);
        }
    }

    /// Returns the number of messages that the peer may send when the next message has reached it,
    /// where every Send counts.
    pub(crate) fn receivable(&self) -> u32 {
        let window = self.window.as_ref();
        window.map_or(u32::MAX, |window| window.receivable())
    }

    /// Returns the credit value of a message: `credits`, unless every Send counts.
    pub(crate) fn credits(&mut self, credits: u32) -> u32 {
        match &mut self.window {
            Some(window) => window.credit(),
            None => credits,
        }
    }

    /// Sends an operation of an extension, without payload. Closes the connection if too many wait
    /// for credits.
    pub(crate) fn send_operation(&mut self, mut header: OperationHeader) {
        header.credits = self.credits(header.credits);
        if let Some(operations) = &self.operations {
            let message = operations.encode(&mut self.headers, header);
            self.send_answer(message);
        }
    }

    /// Sends an error message that grants `credits`. Closes the connection if too many errors wait.
    pub(crate) fn send_error(&mut self, error: &ErrorMessage, credits: u32) {
        let credits = self.credits(credits);
        let message = self.dialect.encode_error(error, credits);
        self.send_answer(message);
    }

    /// Sends a message whose number the calls in progress do not limit. Closes the connection if too
    /// many wait for credits.
    fn send_answer(&mut self, message: Bytes) {
        match &mut self.window {
            Some(window) => {
                if let Err(error) = window.send_answer(&mut self.actions, message) {
                    let reason = error.to_string();
                    self.actions.push_back(Action::Close { reason });
                }
            }
            None => self.actions.push_back(Action::plain_send(message)),
        }
    }
}

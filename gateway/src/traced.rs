//! Timelines of relayed calls ([`rdma::trace`]): each call on the track of its client's connection, where it
//! arrives, and on that of the connection to the server, where it is made again. Both have its XID.
//!
//! Transports record what they know of a call; the rest is recorded here: for TCP, everything at the end at which
//! a call arrives.

use std::net::SocketAddr;

use rdma::trace::{End, Event, Trace, Tracer, Wait};
use rpc_transport::{ConnectionId, ServerTransport};

use crate::reduction::{CallKind, ReducedCall};

const SENT: Event = Event::Sent {
    in_flight: 0,
    granted: 0,
};
const ANSWERED: Event = Event::Answered {
    in_flight: 0,
    granted: 0,
};

/// The track of one connection of a pair.
#[derive(Clone, Debug)]
struct Side {
    tracer: Tracer,
    /// Whether the transport records nothing of the calls that arrive on the connection, and of those that the
    /// gateway makes from it against the direction of the connection.
    plain: bool,
}

impl Side {
    fn plain(&self, xid: u32, event: Event) {
        if self.plain {
            self.tracer.record(xid, event);
        }
    }

    /// Records that a call has arrived on this connection.
    fn arrived(&self, xid: u32) {
        self.plain(xid, Event::Arrived);
    }

    /// Records that a call which arrived here is passed on.
    fn relayed(&self, xid: u32, kind: &CallKind) {
        let CallKind {
            program,
            version,
            procedure,
            ..
        } = *kind;
        let version = u16::try_from(version).unwrap_or(u16::MAX);
        let relayed = Event::Relayed {
            program,
            version,
            procedure,
        };
        self.tracer.record(xid, relayed);
    }

    /// Records that a call is made from this connection.
    fn called(&self, xid: u32, call: &ReducedCall) {
        let called = Event::Called {
            program: call.kind.program,
            version: u16::try_from(call.kind.version).unwrap_or(u16::MAX),
            procedure: call.kind.procedure,
            bytes: u32::try_from(call.message.stream_len()).unwrap_or(u32::MAX),
        };
        self.tracer.record(xid, called);
    }
}

/// The tracks of a pair. While calls are not traced, it has none, and each function is a branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traced(Option<Box<Tracks>>);

#[derive(Clone, Debug)]
struct Tracks {
    client: Side,
    server: Side,
    /// Whether the connection to the server has been established.
    reached: bool,
}

impl Traced {
    /// Returns the tracks of a client's connection, which is that of `transport`, and of the connection to the
    /// server, which is to be opened. `plain` says that the transport to the server does not trace calls of the
    /// server.
    pub(crate) fn new(
        trace: Option<&Trace>,
        transport: &dyn ServerTransport,
        (conn, client): (ConnectionId, SocketAddr),
        (server, plain): (SocketAddr, bool),
    ) -> Self {
        let tracks = trace.map(|trace| {
            let known = transport.tracer(conn);
            let client = Side {
                plain: known.is_none(),
                tracer: known.unwrap_or_else(|| trace.open(End::Responder, client)),
            };
            let tracer = trace.open(End::Requester, server);
            let server = Side { tracer, plain };
            Box::new(Tracks {
                client,
                server,
                reached: false,
            })
        });
        Self(tracks)
    }

    /// Returns the observer of the connection to the server.
    pub(crate) fn of_server(&self) -> Option<Tracer> {
        self.0.as_ref().map(|tracks| tracks.server.tracer.clone())
    }

    /// Records that the connection to the server is established.
    pub(crate) fn reached(&mut self) {
        if let Some(tracks) = &mut self.0 {
            tracks.reached = true;
        }
    }
}

/// Calls of the client.
impl Traced {
    /// Records that a call has arrived.
    pub(crate) fn arrived(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            tracks.client.arrived(xid);
        }
    }

    /// Records that a call waits for memory for its reply.
    pub(crate) fn waits_for_memory(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            let held = Event::Held(Wait::Memory);
            tracks.client.tracer.record(xid, held);
        }
    }

    /// Records that a call is passed on to the server's transport, before it is.
    pub(crate) fn passed(&self, xid: u32, call: &ReducedCall) {
        if let Some(tracks) = &self.0 {
            tracks.client.relayed(xid, &call.kind);
            tracks.server.called(xid, call);
            if !tracks.reached {
                let waits = Event::Waits(Wait::Connection);
                tracks.server.tracer.record(xid, waits);
            }
        }
    }

    /// Records that the server's reply has arrived, or that there is none.
    pub(crate) fn replied(&self, xid: u32, failed: bool) {
        if let Some(tracks) = &self.0 {
            tracks.server.tracer.record(xid, Event::Ended { failed });
            tracks.client.tracer.record(xid, Event::Done);
        }
    }

    /// Records that the reply was given to the client's transport.
    pub(crate) fn answered(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            tracks.client.plain(xid, Event::Replied);
        }
    }

    /// Records that a call ends without a reply to the client.
    pub(crate) fn dropped(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            tracks.client.plain(xid, Event::Dropped);
        }
    }
}

/// Calls of the server (RFC 8167, RFC 8881).
impl Traced {
    /// Records that a call has arrived.
    pub(crate) fn arrived_back(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            tracks.server.arrived(xid);
        }
    }

    /// Records that a call is passed on to the client's transport, before it is.
    pub(crate) fn passed_back(&self, xid: u32, call: &ReducedCall) {
        if let Some(tracks) = &self.0 {
            tracks.server.relayed(xid, &call.kind);
            tracks.client.called(xid, call);
            tracks.client.plain(xid, SENT);
        }
    }

    /// Records that the client's reply has arrived, or that there is none.
    pub(crate) fn replied_back(&self, xid: u32, failed: bool) {
        if let Some(tracks) = &self.0 {
            if !failed {
                tracks.client.plain(xid, ANSWERED);
            }
            tracks.client.tracer.record(xid, Event::Ended { failed });
            tracks.server.tracer.record(xid, Event::Done);
        }
    }

    /// Records that the reply was given to the server's transport.
    pub(crate) fn answered_back(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            tracks.server.plain(xid, Event::Replied);
        }
    }

    /// Records that a call ends without a reply to the server.
    pub(crate) fn dropped_back(&self, xid: u32) {
        if let Some(tracks) = &self.0 {
            tracks.server.plain(xid, Event::Dropped);
        }
    }
}

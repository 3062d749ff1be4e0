//! Observers of calls: what happens to each call at both ends, with the time.
//!
//! Connections, clients and servers record [`Event`]s through a [`Tracer`], of which each connection or
//! client has one while it is traced. An [`Option`] of it is tested wherever there is something to record,
//! so that an untraced call costs a branch for each event. A [`Sink`] takes the records: `rpcrdma-trace`
//! has one that writes a file for Perfetto.
//!
//! Events say when one part of a call ends and the next begins. So the parts of a call add up to its
//! duration, whatever the clock.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Clock, Time};

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The end that makes the call.
    Requester,
    /// The end that executes it.
    Responder,
}

/// The reason why a call waits before it is sent or executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// A connection, which is being established.
    Connection,
    /// A credit, or as many as the call needs.
    Credit,
    /// Memory of this end's pool, or of the connection's share of the budget.
    Memory,
    /// A free entry of the send queue.
    SendQueue,
    /// Receives for the reply, which are being posted.
    Receives,
    /// The inline limit, which both ends are changing.
    Limit,
}

/// Something that happened to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The call was made.
    Called {
        /// Program number.
        program: u32,
        /// Program version.
        version: u16,
        /// Procedure number.
        procedure: u32,
        /// Length of the call's XDR stream, bytes.
        bytes: u32,
    },
    /// The call cannot go on for this reason. The reason applies until the next event of the call.
    Waits(Wait),
    /// The call waits no longer for a connection.
    Submitted,
    /// The registration of the call's memory was requested.
    Registering {
        /// The number of regions.
        regions: u32,
    },
    /// The last registration was answered.
    Registered,
    /// The call was given to the device. The counts are those after it.
    Sent {
        /// Credits in use: in version-two-07, calls in flight.
        in_flight: u32,
        /// Credits granted; 0 where there are no credits.
        granted: u32,
    },
    /// The reply arrived. The counts are those after it.
    Answered {
        /// Credits in use, without this call's: in version-two-07, calls in flight.
        in_flight: u32,
        /// Credits granted; 0 where there are no credits.
        granted: u32,
    },
    /// The invalidation of the call's handles was requested.
    Invalidating,
    /// The last handle is invalid.
    Invalidated,
    /// The call ended.
    Ended {
        /// Whether it ended without results.
        failed: bool,
    },
    /// The call arrived at the responder.
    Arrived,
    /// The responder keeps the call or its reply back, for this reason.
    Held(Wait),
    /// RDMA Reads of the call's chunks were requested.
    Fetching {
        /// The bytes to fetch.
        bytes: u32,
    },
    /// The call's data has arrived completely.
    Fetched,
    /// The service was called.
    Handed {
        /// Program number.
        program: u32,
        /// Program version.
        version: u16,
        /// Procedure number.
        procedure: u32,
    },
    /// A gateway passed the call on to the other end of the relay, and waits for its reply.
    Relayed {
        /// Program number.
        program: u32,
        /// Program version.
        version: u16,
        /// Procedure number.
        procedure: u32,
    },
    /// The call waits for a worker thread.
    Deferred,
    /// The service began to work for the call: on files or a disk, for NFS.
    Begun,
    /// The service has the results, or a gateway the other end's reply.
    Done,
    /// The reply was given to the device.
    Replied,
    /// The call has ended at the responder without a reply.
    Dropped,
}

impl Event {
    /// Returns the end of the call at which it happened.
    #[must_use]
    pub const fn end(&self) -> End {
        match self {
            Self::Called { .. }
            | Self::Waits(_)
            | Self::Submitted
            | Self::Registering { .. }
            | Self::Registered
            | Self::Sent { .. }
            | Self::Answered { .. }
            | Self::Invalidating
            | Self::Invalidated
            | Self::Ended { .. } => End::Requester,
            Self::Arrived
            | Self::Held(_)
            | Self::Fetching { .. }
            | Self::Fetched
            | Self::Handed { .. }
            | Self::Relayed { .. }
            | Self::Deferred
            | Self::Begun
            | Self::Done
            | Self::Replied
            | Self::Dropped => End::Responder,
        }
    }
}

/// An event with its time and its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time of the event.
    pub at: Time,
    /// The track that [`Sink::open`] returned.
    pub track: u32,
    /// The XID of the call.
    pub xid: u32,
    /// The event.
    pub event: Event,
}

/// The subject of a track: a client, or a connection of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// A name that tells tracks of several simulations apart; empty otherwise.
    pub label: Arc<str>,
    /// The end of the calls. Calls in the reverse direction have the other one.
    pub end: End,
    /// The address of the peer.
    pub peer: SocketAddr,
}

/// A receiver of records. Records of one call come in order, those of different calls need not.
pub trait Sink: Send + Sync {
    /// Returns a number for a new track.
    fn open(&self, track: Track) -> u32;

    /// Ends a track, which has no more records.
    fn close(&self, track: u32);

    /// Takes a record. Called on the path of calls, by several threads.
    fn record(&self, record: Record);
}

/// The source of tracers: a sink with its clock.
#[derive(Clone)]
pub struct Trace {
    sink: Arc<dyn Sink>,
    clock: Clock,
    label: Arc<str>,
}

impl Trace {
    /// Returns a source for this sink, with the times of `clock`.
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>, clock: Clock) -> Self {
        Self {
            sink,
            clock,
            label: "".into(),
        }
    }

    /// Sets the label of its tracks ([`Track::label`]).
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Self {
        self.label = label.into();
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Begins a track of calls to or from this peer.
    #[must_use]
    pub fn open(&self, end: End, peer: SocketAddr) -> Tracer {
        let label = Arc::clone(&self.label);
        let opened = Opened {
            track: self.sink.open(Track { label, end, peer }),
            sink: Arc::clone(&self.sink),
        };
        Tracer {
            opened: Arc::new(opened),
            clock: self.clock.clone(),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

/// A track of a sink, which is closed with it.
struct Opened {
    sink: Arc<dyn Sink>,
    track: u32,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.sink.close(self.track);
    }
}

/// Records the events of one track, which ends with the last clone.
#[derive(Clone)]
pub struct Tracer {
    opened: Arc<Opened>,
    clock: Clock,
}

impl Tracer {
    /// Records an event of the call with this XID, at the present time.
    #[inline(never)]
    pub fn record(&self, xid: u32, event: Event) {
        self.opened.sink.record(Record {
            at: self.clock.now(),
            track: self.opened.track,
            xid,
            event,
        });
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Tracer");
        debug
            .field("track", &self.opened.track)
            .finish_non_exhaustive()
    }
}

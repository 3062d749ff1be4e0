//! The parts of a call.

use rdma::trace::{Event, Wait};

/// A part of the time of a call. The parts of a call follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A wait for a connection, which is being established.
    Connection,
    /// A wait for credits.
    Credit,
    /// A wait for memory.
    Memory,
    /// A wait for the send queue.
    SendQueue,
    /// A wait for receives.
    Receives,
    /// A wait for an inline limit that is being changed.
    Limit,
    /// Its memory is registered.
    Registration,
    /// Time from sending to the arrival of the reply: the network and the responder.
    Remote,
    /// Its handles are invalidated.
    Invalidation,
    /// Its data is fetched by RDMA Read.
    Fetch,
    /// A wait for a worker thread.
    Worker,
    /// The service executes it: on files or a disk, for NFS.
    Service,
    /// A gateway has passed it on: the time from that to the other end's reply.
    Relayed,
    /// Time that no event explains: this end's own work, and waiting for the processor.
    Other,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 14] = [
        Self::Connection,
        Self::Credit,
        Self::Memory,
        Self::SendQueue,
        Self::Receives,
        Self::Limit,
        Self::Registration,
        Self::Remote,
        Self::Invalidation,
        Self::Fetch,
        Self::Worker,
        Self::Service,
        Self::Relayed,
        Self::Other,
    ];

    /// Returns the name that the part has in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "waits for a connection",
            Self::Credit => "waits for a credit",
            Self::Memory => "waits for memory",
            Self::SendQueue => "waits for the send queue",
            Self::Receives => "waits for receives",
            Self::Limit => "waits for the inline limit",
            Self::Registration => "registers memory",
            Self::Remote => "network and server",
            Self::Invalidation => "invalidates memory",
            Self::Fetch => "RDMA Read",
            Self::Worker => "waits for a worker",
            Self::Service => "service",
            Self::Relayed => "relayed",
            Self::Other => "other",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the part that begins with an event. `None`: the call ends with it.
    pub(crate) const fn after(event: &Event) -> Option<Self> {
        Some(match event {
            Event::Waits(wait) | Event::Held(wait) => match wait {
                Wait::Connection => Self::Connection,
                Wait::Credit => Self::Credit,
                Wait::Memory => Self::Memory,
                Wait::SendQueue => Self::SendQueue,
                Wait::Receives => Self::Receives,
                Wait::Limit => Self::Limit,
            },
            Event::Registering { .. } => Self::Registration,
            Event::Sent { .. } => Self::Remote,
            Event::Invalidating => Self::Invalidation,
            Event::Fetching { .. } => Self::Fetch,
            Event::Deferred => Self::Worker,
            Event::Handed { .. } | Event::Begun => Self::Service,
            Event::Relayed { .. } => Self::Relayed,
            Event::Called { .. }
            | Event::Submitted
            | Event::Registered
            | Event::Answered { .. }
            | Event::Invalidated
            | Event::Arrived
            | Event::Fetched
            | Event::Done => Self::Other,
            Event::Ended { .. } | Event::Replied | Event::Dropped => return None,
        })
    }
}

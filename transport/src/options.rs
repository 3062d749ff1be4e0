//! Options and counters of a client.

use std::time::Duration;

use onc_rpc::Credential;
use rdma::trace::Trace;

/// The maximum number of connections of one client. A server has to hold memory for each.
pub const MAX_NCONNECT: usize = 16;

/// The size in bytes of the allocations that message headers are built in, with short arguments or results
/// behind them. Some tens of headers share one allocation, which lives as long as any of them.
pub(crate) const HEADER_ROOM: usize = 2048;

/// The treatment of a call that gets no reply, in the terms of the NFS mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retransmit until a reply comes, or until no call has been answered for
    /// [`ClientOptions::give_up_after`] since the connection was lost, even if reconnecting succeeds.
    Hard,
    /// Fail with [`crate::CallError::TimedOut`] when the last of this many retransmissions has
    /// timed out, or earlier when `Hard` would give up.
    Soft {
        /// The maximum number of retransmissions (`retrans`).
        retransmissions: u32,
    },
}

/// The options of a [`crate::Client`].
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The credential of calls without their own.
    pub credential: Credential,
    /// The number of connections that calls are spread over (`nconnect`), clamped to 1 to
    /// [`MAX_NCONNECT`]. A server that is full may accept a connection and then close it. Therefore, once
    /// one of them has replied, each that has not takes one call at a time, and if it ends (except by a
    /// protocol error), its calls move to those that have.
    pub nconnect: usize,
    /// The time-out of one transmission of a call (`timeo`). Both transports are reliable, so a
    /// late reply means that the connection or the server is in trouble (RFC 5531, section 4): the
    /// client re-establishes the connection and retransmits every call on it with the same XID. A
    /// call is never sent twice over one connection, because over RDMA only the reply returns the
    /// credit of the first transmission (RFC 8166, section 3.3.1).
    pub timeout: Duration,
    /// The action after a time-out.
    pub retry: Retry,
    /// How long a connection that had worked may stay lost before all its calls fail. The time
    /// counts from the loss or, if no call was pending then, from the next call. A connection works
    /// if replies arrive.
    pub give_up_after: Duration,
    /// The time-out of the very first reply, counted from the first call. A server that accepts
    /// connections and then stays silent, or closes them, probably speaks another protocol. This
    /// limit does not apply to a server that has ever replied.
    pub first_reply_within: Duration,
    /// The time-out of establishing a connection.
    pub connect_timeout: Duration,
    /// The pause before the second attempt to re-establish a connection. (The first is made at
    /// once.) Each further pause is twice as long.
    pub backoff_min: Duration,
    /// The maximum pause.
    pub backoff_max: Duration,
    /// The observer of calls, if they are traced.
    pub trace: Option<Trace>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            credential: Credential::None,
            nconnect: 1,
            timeout: Duration::from_secs(60),
            retry: Retry::Hard,
            give_up_after: Duration::from_secs(180),
            first_reply_within: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(3),
            trace: None,
        }
    }
}

/// Counters of a client since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Calls submitted.
    pub calls: u64,
    /// Calls that got a reply, including RPC-level errors.
    pub replies: u64,
    /// Calls retransmitted.
    pub retransmissions: u64,
    /// Connections re-established after a loss.
    pub reconnects: u64,
    /// Connections closed because a reply was overdue.
    pub overdue: u64,
    /// Calls accepted from the server.
    pub callbacks: u64,
    /// Replies without a waiting call: replies to cancelled calls, or duplicates.
    pub stray_replies: u64,
    /// Bytes of RPC messages sent, without transport framing.
    pub bytes_sent: u64,
    /// Bytes of RPC messages received, without transport framing.
    pub bytes_received: u64,
}

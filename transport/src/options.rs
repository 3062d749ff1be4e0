//! How a client calls.

use std::time::Duration;

use onc_rpc::Credential;

/// Most connections of one client. A server has to hold memory for each.
pub const MAX_NCONNECT: usize = 16;

/// Bytes that messages' headers are made in: some tens of them share one allocation, which lasts as
/// long as any of them.
pub(crate) const HEADER_ROOM: usize = 2048;

/// What becomes of a call whose reply does not come, in the words of the NFS mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is sent again until it is answered, or the server has been out of reach for
    /// [`ClientOptions::give_up_after`].
    Hard,
    /// It ends with [`crate::CallError::TimedOut`] when the reply to the last of this many
    /// retransmissions is overdue, and earlier when the server is out of reach for
    /// [`ClientOptions::give_up_after`].
    Soft {
        /// Retransmissions, at most (`retrans`).
        retransmissions: u32,
    },
}

/// Options of a [`crate::Client`].
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Who calls.
    pub credential: Credential,
    /// Connections to spread calls over, 1 to [`MAX_NCONNECT`]; others are cut to that.
    pub nconnect: usize,
    /// How long one try of a call waits for the reply (`timeo`). Both transports are reliable, so
    /// an overdue reply means that the connection or the server is in trouble (RFC 5531, section
    /// 4): the connection is made anew, and every call on it sent again with the same XID. A call
    /// is never sent twice over one connection: over RDMA the credit of the first transmission is
    /// given back by its reply only (RFC 8166, section 3.3.1).
    pub timeout: Duration,
    /// What to do then.
    pub retry: Retry,
    /// How long a connection that had been working may stay lost, counted from the loss or, when
    /// nothing was pending then, from the next call. All its calls end after that. A connection
    /// works when replies come.
    pub give_up_after: Duration,
    /// How long the first reply of all may take, counted from sending the first call. A server
    /// that takes connections and then says nothing, or closes them, is likely none at all: the
    /// port is another protocol's. One that has ever answered is waited for as long as the other
    /// limits say.
    pub first_reply_within: Duration,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// Pause before the second attempt to connect again. (The first is made at once.) Each
    /// further pause is twice as long.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
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
        }
    }
}

/// Counts of a client since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Calls handed in.
    pub calls: u64,
    /// Calls that ended with a reply, a refusal included.
    pub replies: u64,
    /// Calls sent again.
    pub retransmissions: u64,
    /// Connections made again after a loss.
    pub reconnects: u64,
    /// Connections given up because a reply was overdue.
    pub overdue: u64,
    /// Calls of the server's that were taken.
    pub callbacks: u64,
    /// Replies that nobody waited for: to cancelled calls, or repeated.
    pub stray_replies: u64,
    /// Bytes of RPC messages sent, transport framing not counted.
    pub bytes_sent: u64,
    /// Bytes of RPC messages received, likewise.
    pub bytes_received: u64,
}

//! What a client's user hands in and gets back.

use std::time::Duration;

use onc_rpc::{CallHeader, Credential, Cursor, Decoder, Message, Verifier};
use rpcrdma_connection::{CallError as ConnectionError, ReplyRoom};

use crate::service::Denial;

/// One remote procedure call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// The arguments, DDP-eligible items held apart.
    pub args: Message,
    /// The room that the reply needs.
    pub reply: ReplyRoom,
}

impl Call {
    /// The call as a message with `xid` from whoever `cred` says, and the room that its reply needs.
    #[must_use]
    pub fn into_message(self, xid: u32, cred: Credential) -> (Message, ReplyRoom) {
        let header = CallHeader {
            xid,
            prog: self.prog,
            vers: self.vers,
            proc: self.proc,
            cred,
            verf: Verifier::default(),
        };
        let mut message = self.args;
        message.prepend(header.encode());
        (message, self.reply)
    }
}

/// A successful reply (MSG_ACCEPTED, SUCCESS).
#[derive(Debug)]
pub struct Reply {
    message: Message,
    results: Cursor,
    round_trip: Duration,
}

impl Reply {
    /// From a reply message and the place in it where the results start.
    #[must_use]
    pub fn new(message: Message, results: Cursor, round_trip: Duration) -> Self {
        Self {
            message,
            results,
            round_trip,
        }
    }

    /// A decoder at the start of the results.
    #[must_use]
    pub fn results(&self) -> Decoder<'_> {
        Decoder::at(&self.message, self.results)
    }

    /// Time from handing in the call to having the reply.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}

/// Why a call got no successful reply. Each call ends exactly once, with a [`Reply`] or with this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No reply in the time that the options allow, retransmissions included.
    #[error("no reply from {server} in {after:?}")]
    TimedOut {
        /// The server.
        server: String,
        /// How long was waited.
        after: Duration,
    },
    /// The connection could not be made, or not made again.
    #[error("cannot connect to {server}: {reason}")]
    Connect {
        /// The server.
        server: String,
        /// Why, for the user.
        reason: String,
    },
    /// The server takes connections, but has not answered one call since this client was made.
    #[error(
        "{server} takes connections but answers no calls ({reason}): \
         the port may be another protocol's or transport's, or the server has no room for a client"
    )]
    Unanswered {
        /// The server.
        server: String,
        /// How the connections ended, for the user.
        reason: String,
    },
    /// The server's RPC layer answered, but not with results (RFC 5531, section 9).
    #[error("the server refused the call: {0}")]
    Refused(Denial),
    /// The reply fitted neither inline nor in the chunks that were offered, or the peer could not
    /// use the chunks (RDMA_ERROR with ERR_CHUNK).
    #[error("the server could not convey the reply (ERR_CHUNK): {0}")]
    Chunk(String),
    /// The peer sent something that the protocol does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The call cannot be conveyed: longer than the transport, or its memory, allows.
    #[error("the call cannot be sent: {0}")]
    TooLarge(String),
    /// A call from server to client: the client takes none.
    #[error("the client takes no calls: {0}")]
    NoCallbacks(String),
    /// A call from server to client: the connection ended before its reply came. Only the client can
    /// make another.
    #[error("the client is gone: {reason}")]
    Disconnected {
        /// Why, for the log.
        reason: String,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

impl From<ConnectionError> for CallError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TooLarge(reason) => Self::TooLarge(reason),
            ConnectionError::Chunk(reason) => Self::Chunk(reason),
            ConnectionError::NoCallbacks(reason) => Self::NoCallbacks(reason),
            ConnectionError::Protocol(reason) => Self::Protocol(reason),
            // A later version of that crate may have more.
            other => Self::Protocol(other.to_string()),
        }
    }
}

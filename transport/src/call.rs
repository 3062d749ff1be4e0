//! Types that a client's user passes in and receives: calls, replies and errors.

use std::any::Any;
use std::time::Duration;

use onc_rpc::{CallHeader, Credential, Cursor, Decoder, Message, Verifier};
use rpcrdma_connection::{CallError as ConnectionError, ReplyRoom};

use crate::error_reply::ErrorReply;
use crate::program::ProgramVersions;

/// One remote procedure call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// The arguments. DDP-eligible items are held apart from the XDR stream.
    pub args: Message,
    /// The size bounds of the reply.
    pub reply: ReplyRoom,
}

impl Call {
    /// Creates a call of a procedure of a program, in its highest version.
    #[must_use]
    pub fn new(program: ProgramVersions, proc: u32, args: Message, reply: ReplyRoom) -> Self {
        Self {
            prog: program.prog,
            vers: program.high,
            proc,
            args,
            reply,
        }
    }

    /// Attaches a value for extensions of the connection that know its type, which carry it to the
    /// service ([`crate::Request::extra`]). All others, and transports without extensions, ignore it.
    #[must_use]
    pub fn with_extra<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.args.extras_mut().insert(value);
        self
    }

    /// Encodes the call as an RPC message with the given XID and credential. Returns it with the
    /// size bounds of its reply.
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
    retransmitted: bool,
}

impl Reply {
    /// Creates a reply from its message and the position in it at which the results start.
    #[must_use]
    pub fn new(message: Message, results: Cursor, round_trip: Duration) -> Self {
        Self {
            message,
            results,
            round_trip,
            retransmitted: false,
        }
    }

    /// Sets whether the call was sent more than once.
    #[must_use]
    pub fn with_retransmitted(mut self, retransmitted: bool) -> Self {
        self.set_retransmitted(retransmitted);
        self
    }

    /// Sets, in place, whether the call was sent more than once.
    pub(crate) fn set_retransmitted(&mut self, retransmitted: bool) {
        self.retransmitted = retransmitted;
    }

    /// Returns whether the call was sent more than once, which happens only when a connection ends.
    /// If the server has restarted in between, it may have executed the call twice: a call that is
    /// not idempotent, such as MKDIR, then fails although it has done its work.
    #[must_use]
    pub fn is_retransmitted(&self) -> bool {
        self.retransmitted
    }

    /// Returns the value of this type that an extension of the connection has attached to the reply.
    #[must_use]
    pub fn extra<T: Any>(&self) -> Option<&T> {
        self.message.extras().get()
    }

    /// Returns a decoder that is positioned at the start of the results.
    #[must_use]
    pub fn results(&self) -> Decoder<'_> {
        Decoder::at(&self.message, self.results)
    }

    /// Returns the time from submission of the call to arrival of the reply.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}

/// The reason why a call got no successful reply. Each call ends exactly once, with a [`Reply`] or
/// with this error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No reply came in the time that the options allow, retransmissions included.
    #[error("no reply from {server} in {after:.1?}")]
    TimedOut {
        /// The server's name or address.
        server: String,
        /// The time that the client waited.
        after: Duration,
    },
    /// The connection could not be established or re-established.
    #[error("cannot connect to {server}: {reason}")]
    Connect {
        /// The server's name or address.
        server: String,
        /// The reason, in words for the user.
        reason: String,
    },
    /// The server accepts connections, but has not answered a single call since this client was
    /// created.
    #[error(
        "{server} takes connections but answers no calls ({reason}): \
         the port may be another protocol's or transport's, or the server has no room for a client"
    )]
    Unanswered {
        /// The server's name or address.
        server: String,
        /// The reason why the connections ended, in words for the user.
        reason: String,
    },
    /// The server's RPC layer answered with an error instead of results (RFC 5531, section 9).
    #[error("the server refused the call: {0}")]
    Refused(ErrorReply),
    /// The reply fitted neither inline nor in the chunks that the call offered, or the peer could
    /// not use the chunks (RDMA_ERROR with ERR_CHUNK).
    #[error(
        "the reply fits neither inline nor the chunks offered, or the chunks were refused: {0}"
    )]
    Chunk(String),
    /// The peer violated the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The call is too long for the transport or for its memory limit.
    #[error("the call cannot be sent: {0}")]
    TooLarge(String),
    /// A call from the server to a client that does not accept calls.
    #[error("the client takes no calls: {0}")]
    NoCallbacks(String),
    /// The connection ended before the reply to a call from the server to the client came. Only the
    /// client can establish another connection.
    #[error("the client is gone: {reason}")]
    Disconnected {
        /// The reason, for the log.
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
            // Servers alone end connections while calls of theirs are made.
            error @ ConnectionError::Ending => Self::Disconnected {
                reason: error.to_string(),
            },
            // A later version of that crate may have more.
            other => Self::Protocol(other.to_string()),
        }
    }
}

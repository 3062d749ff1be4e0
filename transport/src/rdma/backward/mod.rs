//! Calls from server to client on the connection that the client made (RFC 8167).
//!
//! The backward direction has the same two parts as the forward one, at the other ends: the server's
//! [`Requester`](super::Requester), the client's [`Responder`](super::Responder). Each direction has
//! XIDs and credits of its own (sections 2.4.1 and 4.1); receives and the inline thresholds are
//! shared (sections 4.2 and 4.3). What the drivers do for the second core of a connection is here.

mod client;
mod direction;
mod server;
#[cfg(test)]
mod tests;

pub(super) use self::client::run_callee;
pub(super) use self::direction::direction;
pub(super) use self::server::{run_caller, submit};

/// Calls from server to client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallbackOptions {
    /// Calls outstanding on a connection at most; receives for them, or for the replies to them, are
    /// posted. With 0, which is the default, a client takes none and a server makes none.
    pub credits: u32,
    /// Whether they, or their replies, may have chunks. A client says so to its server in version 2
    /// (xcharext-02, section 3.3) and refuses chunks otherwise (RFC 8167, section 5.3). A server goes
    /// by this in version 1, where only its upper layer can know, and by what the client said in
    /// version 2.
    pub chunks: bool,
}

//! What a server's user provides.

use std::net::SocketAddr;

use onc_rpc::{AcceptStatus, AuthStat, Credential, Cursor, Decoder, Message};
use rdma::Pool;

use crate::{Callee, PeerOrigin};

/// A program and the versions of it that a service implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Program number.
    pub prog: u32,
    /// Lowest version.
    pub low: u32,
    /// Highest version.
    pub high: u32,
}

/// An RPC-level answer that is not success (RFC 5531, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denial {
    /// MSG_ACCEPTED with a status other than SUCCESS.
    #[error("{0}")]
    Accepted(AcceptStatus),
    /// MSG_DENIED, AUTH_ERROR.
    #[error("authentication error: {0}")]
    Auth(AuthStat),
    /// MSG_DENIED, RPC_MISMATCH.
    #[error("RPC version mismatch: the server speaks {low} to {high}")]
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
}

/// A service's answer: the results, DDP-eligible items held apart, or a refusal.
pub type ServiceReply = Result<Message, Denial>;

/// What a service does with a request.
pub enum Outcome {
    /// The answer is here.
    Done(ServiceReply),
    /// The answer takes time (a disk): run this on a worker thread.
    Later(Box<dyn FnOnce() -> ServiceReply + Send>),
}

/// A call that arrived. Its program and version are ones that the service has.
#[derive(Debug)]
pub struct Request {
    /// The client's address.
    pub peer: SocketAddr,
    /// Where it is, and who owns its end of the connection if it is here.
    pub origin: PeerOrigin,
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// Who asks.
    pub cred: Credential,
    /// Where to take memory for DDP-eligible results from, so that the device can send from it
    /// without a copy. Usable on any thread.
    pub pool: Pool,
    message: Message,
    args: Cursor,
    client: Option<Callee>,
}

impl Request {
    /// From a call message and the place in it where the arguments start.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "one per field of an RPC call")]
    pub fn new(
        peer: SocketAddr,
        prog: u32,
        vers: u32,
        proc: u32,
        cred: Credential,
        pool: Pool,
        message: Message,
        args: Cursor,
    ) -> Self {
        Self {
            peer,
            origin: PeerOrigin::default(),
            prog,
            vers,
            proc,
            cred,
            pool,
            message,
            args,
            client: None,
        }
    }

    /// As a call from there. Without this it is one from within the process.
    #[must_use]
    pub fn from_origin(mut self, origin: PeerOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// With a handle to its client.
    #[must_use]
    pub fn from_client(mut self, client: Option<Callee>) -> Self {
        self.client = client;
        self
    }

    /// A handle to call the client over the connection that the call came over, if the server makes
    /// callbacks ([`crate::ServerOptions::callbacks`]).
    #[must_use]
    pub fn client(&self) -> Option<&Callee> {
        self.client.as_ref()
    }

    /// A decoder at the start of the arguments.
    #[must_use]
    pub fn args(&self) -> Decoder<'_> {
        Decoder::at(&self.message, self.args)
    }
}

/// One or more RPC programs.
pub trait Service {
    /// The programs it implements.
    fn programs(&self) -> &[Programs];

    /// Handles one call. On the server's own thread: what may block belongs into
    /// [`Outcome::Later`].
    fn call(&mut self, request: Request) -> Outcome;

    /// Whether executing the procedure twice can differ from executing it once. The server then
    /// remembers the reply and answers a retransmission from memory.
    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool;
}

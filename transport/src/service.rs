//! The interface that the user of a server implements.

use std::any::Any;
use std::net::SocketAddr;

use onc_rpc::{CallHeader, Credential, Cursor, Decoder, Message};
use rdma::Pool;

use crate::program::ProgramVersions;
use crate::server::Use;
use crate::{Backchannel, ErrorReply, PeerOrigin, ReducedArguments};

/// A service's reply: the results with DDP-eligible items held apart, or an RPC-level error.
pub type ServiceReply = Result<Message, ErrorReply>;

/// The result of passing a request to a service.
pub enum ServiceOutcome {
    /// The reply is ready.
    Done(ServiceReply),
    /// The reply takes time (for example a disk access): run this job on a worker thread.
    Later(Box<dyn FnOnce() -> ServiceReply + Send>),
    /// The reply may be possible without waiting: run this attempt on the server's own thread,
    /// soon, in a batch with those of other calls ([`crate::after_attempts`]).
    Attempt(Box<dyn FnOnce() -> Attempted + Send>),
}

impl ServiceOutcome {
    /// Executes what is left of the call on the calling thread, and returns the reply.
    ///
    /// # Errors
    /// The reply is an RPC-level error.
    pub fn complete(self) -> ServiceReply {
        match self {
            Self::Done(reply) => reply,
            Self::Later(job) => job(),
            Self::Attempt(attempt) => match attempt() {
                Attempted::Done(reply) => reply,
                Attempted::Later(job) => job(),
            },
        }
    }
}

/// The result of an attempt to answer a call without waiting ([`ServiceOutcome::Attempt`]).
pub enum Attempted {
    /// The reply is ready.
    Done(ServiceReply),
    /// The call would have had to wait: run this job on a worker thread.
    Later(Box<dyn FnOnce() -> ServiceReply + Send>),
}

/// A call that arrived. The service implements its program and version.
#[derive(Debug)]
pub struct Request {
    /// The call's XID.
    pub xid: u32,
    /// The client's address.
    pub peer: SocketAddr,
    /// The origin of the call: host and, if the client is on this host, its user.
    pub origin: PeerOrigin,
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// The caller's credential.
    pub cred: Credential,
    /// The pool for the memory of DDP-eligible results. The device can send from this memory
    /// without a copy. Usable on any thread.
    pub pool: Pool,
    message: Message,
    args: Cursor,
    client: Option<Backchannel>,
    used: Option<Use>,
    keeps_credentials: bool,
}

impl Request {
    /// Creates a request from the header of a call, the whole message, and the position of its
    /// arguments.
    #[must_use]
    pub fn new(
        peer: SocketAddr,
        header: CallHeader,
        pool: Pool,
        message: Message,
        args: Cursor,
    ) -> Self {
        Self {
            xid: header.xid,
            peer,
            origin: PeerOrigin::default(),
            prog: header.prog,
            vers: header.vers,
            proc: header.proc,
            cred: header.cred,
            pool,
            message,
            args,
            client: None,
            used: None,
            keeps_credentials: false,
        }
    }

    /// Sets the origin of the call. Without this, the call counts as coming from this process.
    #[must_use]
    pub fn from_origin(mut self, origin: PeerOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// Sets the handle to the client.
    #[must_use]
    pub fn with_backchannel(mut self, client: Option<Backchannel>) -> Self {
        self.client = client;
        self
    }

    /// Sets what a server knows of the call: its connection, for [`Request::count_as_use`], the handle to the
    /// client, and whether its thread keeps its credentials. A request is some hundreds of bytes, so its server
    /// sets these in place.
    pub(crate) fn set_server(&mut self, used: Use, client: Option<Backchannel>, keeps: bool) {
        self.used = Some(used);
        self.client = client;
        self.keeps_credentials = keeps;
    }

    /// Sets what [`Request::keeps_credentials`] returns.
    #[must_use]
    pub fn on_thread_that_keeps_credentials(mut self, keeps: bool) -> Self {
        self.keeps_credentials = keeps;
        self
    }

    /// Returns whether the server's own thread must never change its credentials (user, groups and
    /// capabilities), because a transport depends on them, which need not be that of this call. Then
    /// neither [`Service::call`] nor an attempt may change them, even if it restores them. Workers may.
    #[must_use]
    pub fn keeps_credentials(&self) -> bool {
        self.keeps_credentials
    }

    /// Tells the server that the call reached what the service is there for, by a client that it
    /// admits (a call to an export that the client may use, but not NULL, nor a call that was
    /// turned away). At its limit on connections ([`crate::ServerOptions::max_connections`]), the
    /// server closes those first that had no such call, and then the one whose last such call is
    /// the longest ago.
    pub fn count_as_use(&self) {
        if let Some(used) = &self.used {
            used.count();
        }
    }

    /// Returns the handle for calling the client over the connection that the call came over, if
    /// the server makes callbacks ([`crate::ServerOptions::callbacks`]).
    #[must_use]
    pub fn backchannel(&self) -> Option<&Backchannel> {
        self.client.as_ref()
    }

    /// Returns the value of this type that an extension of the connection has attached to the call,
    /// such as what the caller gave it ([`crate::Call::with_extra`]).
    #[must_use]
    pub fn extra<T: Any>(&self) -> Option<&T> {
        self.message.extras().get()
    }

    /// Returns a decoder that is positioned at the start of the arguments.
    #[must_use]
    pub fn args(&self) -> Decoder<'_> {
        Decoder::at(&self.message, self.args)
    }
}

/// One or more RPC programs.
pub trait Service {
    /// Returns the programs that the service implements.
    fn programs(&self) -> &[ProgramVersions];

    /// Handles one call on the server's own thread. Work that may block belongs in
    /// [`ServiceOutcome::Later`]. Work that must not run while the server uses its transports (for
    /// example because it changes the identity of the thread) belongs there too or, if it does not
    /// block, in [`ServiceOutcome::Attempt`]; see [`Request::keeps_credentials`].
    fn call(&mut self, request: Request) -> ServiceOutcome;

    /// Returns whether executing the procedure twice can differ from executing it once (whether it
    /// is not idempotent). The server then caches the reply and answers a retransmission from the
    /// cache.
    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool;

    /// Returns which arguments of calls may be reduced, by the Upper-Layer Bindings of the programs
    /// (RFC 8166, section 6.1). RDMA transports do not fetch more. A call whose other arguments lie in
    /// a chunk as well shows its procedure only when they are here. To fetch its chunks one after the
    /// other would cost each such call a round trip, so all are fetched together if they are no more
    /// than any procedure may have ([`ReducedArguments::with_most_of_any`]).
    fn reduced_arguments(&self) -> ReducedArguments {
        ReducedArguments::ANY
    }

    /// Returns whether a call that ended with these results has changed anything. Asked of
    /// procedures whose replies are remembered ([`Service::remember_reply`]): the replies to calls
    /// that have changed nothing leave the cache first. RPC-level errors change nothing, except
    /// SYSTEM_ERR, which may come after a part of the work.
    fn has_changed(&self, prog: u32, vers: u32, proc: u32, results: &Message) -> bool {
        let _ = (prog, vers, proc, results);
        true
    }
}

//! The interface that the NFS client needs from an RPC transport.

use std::future::Future;
use std::time::Duration;

use onc_rpc::{Encoder, Message};
use rpc_transport::{Call, CallError, Client, EncodedCredential, Reply};

use crate::proto::Xdr;
use crate::ulb::Binding;

/// An RPC client: a transport's, or a test's.
pub trait RpcClient {
    /// Makes a call. Many calls may be outstanding at once.
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>>;

    /// Returns a future that completes after `duration`, for servers that ask the client to try
    /// again later.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;
}

impl RpcClient for Client {
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> {
        Client::call(self, call)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.runtime().sleep(duration)
    }
}

/// A transport's client on behalf of one user: its calls have that user's credential instead of the
/// client's own. Clones are cheap.
#[derive(Clone, Debug)]
pub struct ClientAs {
    /// The client.
    pub client: Client,
    /// The user's credential.
    pub credential: EncodedCredential,
}

impl RpcClient for ClientAs {
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> {
        self.client.call_as(call, &self.credential)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.client.runtime().sleep(duration)
    }
}

impl<C: RpcClient> RpcClient for &C {
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> {
        (**self).call(call)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        (**self).sleep(duration)
    }
}

/// Calls procedure `P`.
///
/// # Errors
/// The transport's error, or [`CallError::Protocol`] if the results cannot be decoded.
pub async fn call<P: Binding>(
    rpc: &impl RpcClient,
    args: &P::Args,
) -> Result<P::Results, CallError> {
    let reply = rpc.call(encoded::<P>(args)).await?;
    results::<P>(&reply)
}

/// Returns a call of procedure `P`, for a client that decodes the reply itself ([`results`]).
pub fn encoded<P: Binding>(args: &P::Args) -> Call {
    Call {
        prog: P::PROGRAM,
        vers: P::VERSION,
        proc: P::NUMBER,
        args: encode(args),
        reply: P::reply_room(args),
    }
}

/// Decodes the results of procedure `P`.
///
/// # Errors
/// [`CallError::Protocol`] if that is not possible.
pub fn results<P: Binding>(reply: &Reply) -> Result<P::Results, CallError> {
    let mut results = reply.results();
    P::Results::decode(&mut results)
        .and_then(|value| results.finish().map(|()| value))
        .map_err(|error| CallError::Protocol(format!("results of {}: {error}", P::NAME)))
}

fn encode(args: &impl Xdr) -> Message {
    let mut out = Encoder::new();
    args.encode(&mut out);
    out.finish()
}

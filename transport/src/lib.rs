//! ONC RPC over RDMA and over TCP, with one client interface and one server interface for both.
//!
//! Upper layers exchange RPC messages whose bulk data items are held apart ([`onc_rpc::Message`]).
//! Code below this interface decides which bytes are sent inline and which as chunks.
//!
//! This example runs a server whose only procedure returns its argument, and a client of it, over the
//! software RDMA device of `rdma-iwarp`:
//!
//! ```
//! use std::{cell::RefCell, rc::Rc, thread};
//!
//! use bytes::Bytes;
//! use onc_rpc::Encoder;
//! use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
//! use rpc_transport::{
//!     Call, Client, ClientOptions, ErrorReply, ProgramVersions, ReplyRoom, Request, Runtime,
//!     Server, ServerOptions, Service, ServiceOutcome, Stop,
//! };
//!
//! const MAX_LEN: u32 = 1 << 20;
//! // A number from the range that needs no assignment (RFC 5531, section 8.3).
//! const PROGRAM: ProgramVersions = ProgramVersions { prog: 0x4000_1234, low: 1, high: 1 };
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     fn programs(&self) -> &[ProgramVersions] {
//!         &[PROGRAM]
//!     }
//!
//!     fn call(&mut self, request: Request) -> ServiceOutcome {
//!         // Bulk data may be sent in chunks (RFC 8166 calls it DDP-eligible).
//!         let reply = request.args().bulk(MAX_LEN).map(|data| {
//!             let mut results = Encoder::new();
//!             results.bulk(data);
//!             results.finish()
//!         });
//!         let garbage = |_| ErrorReply::Accepted(onc_rpc::AcceptStatus::GarbageArgs);
//!         ServiceOutcome::Done(reply.map_err(garbage))
//!     }
//!
//!     fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
//!         false
//!     }
//! }
//!
//! fn device() -> std::io::Result<Box<iwarp::Iwarp>> {
//!     let pool = rdma::Pool::new(64 << 20);
//!     Ok(Box::new(iwarp::Iwarp::new(iwarp::Options::default(), pool)?))
//! }
//!
//! # type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
//! # fn main() -> Outcome<()> {
//! let (stop, (listening, address)) = (Stop::new(), std::sync::mpsc::channel());
//! let serving = thread::spawn({
//!     let stop = stop.clone();
//!     move || -> Outcome<()> {
//!         let mut transport = RdmaServer::new(device()?, RdmaServerOptions::new(rpcrdma_protocols::base()));
//!         let address = transport.listen("127.0.0.1:0".parse()?)?;
//!         let mut server = Server::new(Box::new(Echo), ServerOptions::default())?;
//!         server.add_transport(Rc::new(RefCell::new(transport)))?;
//!         listening.send(address)?;
//!         Ok(server.run(&stop)?)
//!     }
//! });
//!
//! let runtime = Runtime::new()?;
//! let transport = RdmaClient::new(device()?, RdmaClientOptions::new(rpcrdma_protocols::base()));
//! let client = runtime.block_on(Client::connect(
//!     &runtime,
//!     address.recv()?,
//!     Rc::new(RefCell::new(transport)),
//!     ClientOptions::default(),
//! ))?;
//! let data = Bytes::from(vec![7; 100_000]);
//! let mut args = Encoder::new();
//! args.bulk(data.clone());
//! let call = client.call(Call {
//!     prog: PROGRAM.prog,
//!     vers: PROGRAM.low,
//!     proc: 1,
//!     args: args.finish(),
//!     // The longest results: a length, and the data.
//!     reply: ReplyRoom { payload: 4, items: [MAX_LEN].into_iter().collect(), idempotent: true },
//! });
//! let reply = runtime.block_on(call)?;
//! assert_eq!(reply.results().bulk(MAX_LEN)?.to_bytes(), data);
//! stop.stop();
//! serving.join().map_err(|_| "the server's thread panicked")??;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod backchannel;
mod call;
mod call_counts;
mod client;
mod client_loops;
mod client_state;
mod connection_id;
mod credential;
mod dispatch;
mod error_reply;
mod host;
mod interrupt;
mod options;
mod origin;
mod poll_loop;
mod procedures;
mod program;
mod readiness;
mod reply_cache;
mod runtime;
#[cfg(test)]
mod script;
mod server;
mod service;
mod statistics;
mod stop;
mod tcp;
mod timer;
mod transports;
mod workers;

pub mod limits;
pub mod rdma;

pub use backchannel::Backchannel;
pub use call::{Call, CallError, Reply};
pub use call_counts::{
    CallResult, ClientCounts, LATENCY_BOUNDS, Latency, ProcedureCounts, StatusOf,
};
pub use client::{CallFuture, Client};
pub use client_loops::ClientLoops;
pub use connection_id::ConnectionId;
pub use credential::EncodedCredential;
pub use error_reply::ErrorReply;
pub use interrupt::Interrupt;
pub use options::{ClientOptions, ClientStats, MAX_NCONNECT, Retry};
pub use origin::PeerOrigin;
pub use poll_loop::{Armed, PollLoop, PollSource, SourceId, Wake};
pub use procedures::Procedures;
pub use program::ProgramVersions;
pub use readiness::MioReadiness;
pub use rpcrdma_connection::{ReducedArguments, ReplyRoom};
pub use runtime::{Elapsed, Runtime, Sleep, Stepped};
pub use server::{
    Admission, LoopStatistics, Place, ReplyCacheStatistics, SPARE, Server, ServerGroup,
    ServerOptions, ServerStats, TransportFailed, after_attempts,
};
pub use service::{Attempted, Request, Service, ServiceOutcome, ServiceReply};
pub use statistics::{ConnectionKind, TransportStatistics};
pub use stop::Stop;
pub use tcp::{DEFAULT_MAX_RECORD, TcpClient, TcpCounters, TcpOptions, TcpServer};
pub use transports::{
    ClientTransport, ClientTransportEvent, ConnectionLost, ServerTransport, ServerTransportEvent,
};
pub use workers::is_worker;

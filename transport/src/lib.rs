//! ONC RPC over RDMA and over TCP, with one client interface and one server interface for both.
//!
//! Upper layers exchange RPC messages whose bulk data items are held apart ([`onc_rpc::Message`]).
//! Code below this interface decides which bytes are sent inline and which as chunks.

#![forbid(unsafe_code)]

mod backchannel;
mod call;
mod client;
mod client_loops;
mod client_state;
mod credential;
mod dispatch;
mod options;
mod origin;
mod poll_loop;
mod readiness;
mod reply_cache;
mod runtime;
mod server;
mod service;
mod stop;
mod tcp;
mod timer;
mod transports;
mod workers;

pub mod limits;
pub mod rdma;

pub use backchannel::Backchannel;
pub use call::{Call, CallError, Reply};
pub use client::{CallFuture, Client};
pub use client_loops::ClientLoops;
pub use credential::EncodedCredential;
pub use options::{ClientOptions, ClientStats, MAX_NCONNECT, Retry};
pub use origin::PeerOrigin;
pub use poll_loop::{Armed, PollLoop, SourceId, Wake};
pub use readiness::MioReadiness;
pub use rpcrdma_connection::ReplyRoom;
pub use runtime::{Elapsed, Runtime, Sleep, Stepped};
pub use server::{Server, ServerGroup, ServerOptions, ServerStats, TransportFailed};
pub use service::{ErrorReply, ProgramVersions, Request, Service, ServiceOutcome, ServiceReply};
pub use stop::Stop;
pub use tcp::{DEFAULT_MAX_RECORD, TcpClient, TcpCounters, TcpOptions, TcpServer};
pub use transports::{
    ClientTransport, ClientTransportEvent, ConnectionId, ConnectionLost, PollSource,
    ServerTransport, ServerTransportEvent,
};
pub use workers::is_worker;

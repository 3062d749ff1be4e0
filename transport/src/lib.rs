//! ONC RPC over RDMA and over TCP, with one client interface and one server interface for both.
//!
//! Upper layers exchange RPC messages whose bulk data items are held apart ([`onc_rpc::Message`]).
//! Code below this interface decides which bytes are sent inline and which as chunks.

#![forbid(unsafe_code)]

mod call;
mod callee;
mod client;
mod dispatch;
mod options;
mod origin;
mod poll_loop;
mod port;
mod readiness;
mod reply_cache;
mod runtime;
mod server;
mod service;
mod session;
mod stop;
mod tcp;
mod timer;
mod workers;

pub mod limits;
pub mod rdma;

pub use call::{Call, CallError, Reply};
pub use callee::Callee;
pub use client::{CallFuture, Client};
pub use options::{ClientOptions, ClientStats, MAX_NCONNECT, Retry};
pub use origin::PeerOrigin;
pub use poll_loop::{Armed, PollLoop, SourceId, Wake};
pub use port::{ClientEvent, ClientPort, ConnId, Down, ServerEvent, ServerPort, Source};
pub use readiness::MioReadiness;
pub use rpcrdma_connection::ReplyRoom;
pub use runtime::{Elapsed, Runtime, Sleep, Stepped};
pub use server::{PortLost, Server, ServerOptions, ServerStats};
pub use service::{Denial, Outcome, Programs, Request, Service, ServiceReply};
pub use stop::Stop;
pub use tcp::{DEFAULT_MAX_RECORD, TcpClient, TcpCounters, TcpOptions, TcpServer};
pub use workers::is_worker;

//! ONC RPC over RDMA, and over TCP beside it: one client and one server interface for both.
//!
//! Upper layers hand in and take out RPC messages whose bulk items are held apart
//! ([`onc_rpc::Message`]); which bytes travel which way is decided below this interface.

#![forbid(unsafe_code)]

mod call;
mod poll_loop;
mod port;
mod runtime;
mod service;
mod timer;

pub use call::{Call, CallError, Reply, ReplyRoom};
pub use poll_loop::{PollLoop, SourceId, Wake};
pub use port::{ClientEvent, ClientPort, ConnId, Down, ServerEvent, ServerPort, Source};
pub use runtime::{Elapsed, Runtime, Sleep};
pub use service::{Denial, Outcome, Programs, Request, Service, ServiceReply};

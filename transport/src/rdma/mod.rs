//! RPC-over-RDMA: the connection engine.
//!
//! [`Requester`] and [`Responder`] are the two parts that a side of a connection can play, as state
//! machines without I/O: they take what happened and give back what to do. A conversation finds the
//! version that a connection speaks, and in version 2 lets extensions take part. [`RdmaClient`] and
//! [`RdmaServer`] drive them with a [`rdma::Device`]. Which bytes travel which way is decided by
//! plans ([`conveyance`]); each one is logged at debug level.

mod backward;
mod client;
mod conversation;
mod driver;
mod link;
mod memory;
mod options;
mod receive_memory;
mod receives;
mod requester;
mod responder;
mod round_trips;
mod server;
mod stalled;
mod unfinished;
mod wire;

pub use backward::CallbackOptions;
pub use client::RdmaClient;
pub use conversation::Considered;
pub use conveyance::CostModel;
pub use options::{MakeExtension, RdmaClientOptions, RdmaOptions, RdmaServerOptions};
pub use receives::{BadStructure, ReceiveSegment, ReceiveStructure};
pub use requester::{
    RegId, Requester, RequesterAction, RequesterConfig, RequesterCounters, ReservationId,
};
pub use responder::{ReadId, Responder, ResponderAction, ResponderConfig, ResponderCounters};
pub use rpcrdma_ext_continuation::{Features as RoundTripFeatures, UnknownFeature, Ways};
pub use rpcrdma_ext_xchar::NotChanged;
pub use rpcrdma_negotiation::{Choice, Decision, Features, Reason, Verdict, Version, Versions};
pub use server::RdmaServer;
pub use wire::header_len;

//! RPC-over-RDMA clients and servers.
//!
//! [`RdmaClient`] and [`RdmaServer`] hold connections over a [`rdma::Device`]. The protocol of each is a
//! [`rpcrdma_connection::Connection`]; one driver for both ends executes its actions.

mod client;
mod driver;
mod gather;
mod options;
mod queue_pair;
mod receive_memory;
mod receives;
mod server;
mod stalled;
mod timers;

pub use client::RdmaClient;
pub use conveyance::CostModel;
pub use options::{RdmaClientOptions, RdmaServerOptions};
pub use rpcrdma_connection::{
    BadStructure, CallbackOptions, Considered, MakeExtension, Options as RdmaOptions,
    ReceiveSegment, ReceiveStructure, RequesterCounters, ResponderCounters,
};
pub use rpcrdma_ext_continuation::{Features as RoundTripFeatures, UnknownFeature, Ways};
pub use rpcrdma_ext_xchar::NotChanged;
pub use rpcrdma_negotiation::{Choice, Decision, Features, Reason, Verdict, Version, Versions};
pub use server::RdmaServer;

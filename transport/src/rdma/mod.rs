//! RPC-over-RDMA clients and servers.
//!
//! [`RdmaClient`] and [`RdmaServer`] hold connections over a [`rdma::Device`]. The protocol of each
//! is a [`rpcrdma_connection::Connection`]; one driver for both ends executes its actions.

mod asked;
mod client;
mod driver;
mod end;
mod gather;
mod link_phase;
mod options;
mod own_receives;
mod queue_pair;
mod receive_buffers;
mod receive_memory;
mod receive_pool;
mod receives;
mod send_queue;
mod server;
mod shared_use;
mod slow_senders;
mod stalled;
mod timers;
mod wr_id;

use rpcrdma_v1::PrivateData;

pub use client::RdmaClient;
pub use options::{FallbackWarning, MetServers, RdmaClientOptions, RdmaServerOptions};
pub use receive_pool::shares_receives;
pub use rpcrdma_connection::NotChanged;
pub use rpcrdma_connection::flow::{
    Accounting, AskAgain, CreditFields, Demand, GrantAll, GrantEvent, GrantPolicy, MakeGrantPolicy,
    for_another_end,
};
pub use rpcrdma_connection::{
    AgreedFeatures, BadStructure, CallbackOptions, ConsideredMode, Options as RdmaOptions,
    Properties, Protocols, ReceiveSegment, ReceiveStructure, RequesterCounters, ResponderCounters,
    agreed, receive_memory,
};
pub use rpcrdma_negotiation::{
    Choice, KnownVersions, ParseVersionError, Version, VersionAction, VersionDecision,
    VersionReason, Versions,
};
pub use server::RdmaServer;
pub use transfer_plan::CostModel;

/// Private data of the rejection of a client for which there is no place or no memory at present. A
/// client of this crate tries again; for others it is a rejection like any other. (To drop the
/// request would not say so: the connection manager of RDMA hardware rejects it then, and over TCP
/// that looks like a server of another protocol.)
const NO_ROOM: &[u8] = b"rpcrdma: no room";

/// Returns the private data of a peer (RFC 8797) as text for logs.
fn shown(private_data: Option<PrivateData>) -> String {
    private_data.map_or_else(|| "none".to_owned(), |data| data.to_string())
}

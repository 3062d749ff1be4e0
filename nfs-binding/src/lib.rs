//! NFS version 3 and MOUNT version 3 over any RPC transport: wire types, upper-layer binding,
//! server, client, tree copies.
//!
//! Nothing here knows how bytes travel: calls and replies are messages with their bulk items held
//! apart (`onc_rpc::Message`), and the transport decides.

#![forbid(unsafe_code)]

pub mod client;
pub mod copy;
pub mod escape;
pub mod fs;
#[cfg(test)]
mod in_process;
pub mod proto;
pub mod server;
pub mod ulb;

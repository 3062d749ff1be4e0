//! NFS version 3 and MOUNT version 3 over any RPC transport: wire types, upper-layer binding,
//! server, client.
//!
//! This crate does not depend on how bytes are transferred: calls and replies are messages whose
//! bulk data items are held apart (`onc_rpc::Message`), and the transport decides how to send them.

#![forbid(unsafe_code)]

// What tests have in common with those of other crates names this one by its name.
#[cfg(test)]
extern crate self as nfs_binding;

pub mod client;
pub mod escape;
pub mod fs;
pub mod overrides;
pub mod proto;
pub mod server;
pub mod ulb;

#[cfg(test)]
#[path = "../tests/support/in_process.rs"]
mod in_process;

//! The interface between the versions of RPC-over-RDMA and what they do not know: messages of
//! extensions in one or several parts, properties of the two ends, transfer modes for RPC messages,
//! and the layout of receives. No I/O and no clock.

#![forbid(unsafe_code)]

pub mod layout;

//! The iwarp device, through its public face: device against device, and device against raw
//! sockets.

#[expect(clippy::unwrap_used, reason = "helpers of tests")]
mod node;

mod basics;

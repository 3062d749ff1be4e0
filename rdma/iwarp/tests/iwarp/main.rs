//! The iwarp device, through its public face: device against device, and device against raw
//! sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;
mod raw;

mod basics;
mod codec;
mod crc;
mod hostile;
mod progress;
mod setup;
mod taps;

#[path = "../support/mod.rs"]
mod support;

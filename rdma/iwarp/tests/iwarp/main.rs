//! Tests of the iwarp device through its public interface: two devices, or a device and a raw
//! socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;
mod raw;

mod basics;
mod codec;
mod congestion;
mod counters;
mod crc;
mod hostile;
mod progress;
mod setup;
mod sharing;
mod taps;
mod turns;

#[path = "../support/mod.rs"]
mod support;

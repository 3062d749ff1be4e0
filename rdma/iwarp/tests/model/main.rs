//! Tests of devices against the contract of the device model: of the iwarp device in every `cargo
//! test`, and of RDMA devices of the machine if there are any:
//!
//! ```sh
//! VERBS_MODEL=10.8.0.1,10.8.0.2 model-… --test-threads=1
//! ```
//!
//! with the addresses of two RDMA devices that can reach each other, the connecting one first.
//! `VERBS_MODEL_REGISTRATION=per-call` selects a registration strategy, and
//! `VERBS_MODEL_AS_ADAPTER=1` selects windows to the pool's registrations that are invalidated by
//! requests, as on all devices but rxe (which does not check the bounds of such windows).
//!
//! The tests found two faults of the kernel's soft drivers: rxe does not check the bounds of a
//! window, and siw lets a peer read by any handle of its connection.

#![allow(clippy::unwrap_used, reason = "a test")]

mod connecting;
mod ending;
mod loops;
mod moving;
mod reaching;
mod scattering;
mod sharing;
mod waking;
mod world;

#[path = "../support/mod.rs"]
mod support;

//! What the model says of devices, held against devices: the iwarp device in every `cargo test`,
//! and a real one where there is one:
//!
//! ```sh
//! VERBS_MODEL=10.8.0.1,10.8.0.2 model-… --test-threads=1
//! ```
//!
//! with the addresses of two verbs devices, the connecting one first, that have a way to each
//! other. `VERBS_MODEL_REGISTRATION=per-call` asks for a way of registering memory, and
//! `VERBS_MODEL_AS_ADAPTER=1` for windows of the pool's registrations that are invalidated by requests,
//! as on all devices but rxe (which checks no bounds of such windows).

#![allow(clippy::unwrap_used, reason = "a test")]

mod connecting;
mod ending;
mod moving;
mod reaching;
mod scattering;
mod waking;
mod world;

#[path = "../support/mod.rs"]
mod support;

//! Negotiation of the RPC-over-RDMA version and of the features of a connection. No I/O and no
//! clock.
//!
//! The decisions are made by pure functions, [`decide_version`] and [`decide_features`], whose
//! results include the reasons and can be printed. Each end has a state machine for the version:
//! [`ClientNegotiation`] (version-two-01, section 5) sends one version 2 message and holds
//! everything else back until it knows the version; [`ServerNegotiation`] uses the version of the
//! first message that arrives. A client keeps the evidence about servers without version 2 in a
//! [`KnownServers`].
//!
//! ```
//! use rpcrdma_negotiation::{
//!     Choice, ServerReaction, Version, VersionAction, VersionDecision, VersionReason, decide_version,
//! };
//!
//! let linux = ServerReaction::RefusedVersion { low: 1, high: 1 };
//! let decision = decide_version(Choice::Auto, &linux);
//! assert_eq!(decision.action, VersionAction::Use(Version::One));
//! assert_eq!(
//!     decision.to_string(),
//!     "version 1: the server refused version 2 and speaks 1"
//! );
//! ```

#![forbid(unsafe_code)]

mod client;
mod decide;
mod features;
mod known_servers;
mod round_trips;
mod server;
mod version;

pub use client::{Asked, ClientNegotiation, Heard};
pub use decide::{
    Evidence, ServerReaction, VersionAction, VersionDecision, VersionReason, decide_version,
    show_versions,
};
pub use features::{
    FeatureReason, Features, OwnProperties, PeerProperties, WithReason, decide_features,
};
pub use known_servers::KnownServers;
pub use round_trips::{RoundTrips, decide_round_trips};
pub use server::{FirstHeard, ServerNegotiation};
pub use version::{Choice, ParseVersionError, Version, Versions};

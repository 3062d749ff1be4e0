//! Negotiation of the RPC-over-RDMA version and of the features of a connection. No I/O and no
//! clock.
//!
//! The decisions are made by pure functions, whose results include the reasons and can be printed.
//!
//! A client's version follows from its configuration and from what it remembers of the server
//! ([`decide_without_probe`]). Otherwise the client sends a version 2 message, and a second one if
//! the server speaks the other version with the number 2, and holds everything else back: a
//! [`VersionProbe`] says what the answer, or its absence, means (version-two-01, section 5), by
//! [`decide_version`]. A server uses the version of the first message that arrives
//! ([`decide_first_message`]). The features of versions 1 and 2 of 2016 follow from the properties of
//! both ends ([`decide_features`]); `rpcrdma-connection` adds those of the working group's version 2. A client keeps the evidence about servers without version 2 in a
//! [`KnownServers`]. The phases of a connection are those of its owner; nothing here remembers what
//! was decided.
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

mod decide;
mod features;
mod first_message;
mod known_servers;
mod probe;
mod round_trips;
mod version;

pub use decide::{
    Evidence, ServerReaction, VersionAction, VersionDecision, VersionReason, decide_version,
    decide_without_probe, show_versions,
};
pub use features::{
    FeatureReason, Features, OwnProperties, PeerProperties, WithReason, decide_features,
};
pub use first_message::{FirstMessage, decide_first_message};
pub use known_servers::KnownServers;
pub use probe::{ProbeAnswer, VersionProbe};
pub use round_trips::{RoundTrips, decide_round_trips};
pub use version::{Choice, ParseVersionError, Version, Versions};

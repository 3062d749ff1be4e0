//! Negotiation of the RPC-over-RDMA version of a connection. No I/O and no clock.
//!
//! The decisions are made by pure functions, whose results include the reasons and can be printed.
//!
//! Nothing here knows a version by name. An end has a list of [`KnownVersions`], in the order in
//! which it prefers them, and each is a [`Negotiable`] value: it recognizes its messages, and says
//! whether a client has to ask for it.
//!
//! A client's version follows from its configuration and from what it remembers of the server
//! ([`decide_first_step`]). Otherwise the client sends the first message of the version that it
//! prefers, and another one if the server speaks another version that has to be asked for, and
//! holds everything else back: a [`VersionProbe`] says what the answer, or its absence, means
//! (version-two-01, section 5). A server uses the version of the first message that arrives
//! ([`decide_first_message`]). A client keeps the evidence about servers that lack a version in a
//! [`KnownServers`]. The phases of a connection are those of its owner; nothing here remembers what
//! was decided.
//!
//! The text of a decision says what was chosen, and why:
//!
//! ```
//! use std::time::Duration;
//!
//! use rpcrdma_negotiation::{
//!     Choice, FirstStep, KnownVersions, Negotiable, ProbeAnswer, Version, VersionAction,
//!     VersionProbe, decide_first_step,
//! };
//!
//! /// Version 1, or version 2, which a client asks for.
//! #[derive(Debug)]
//! struct Known(Version);
//!
//! impl Negotiable for Known {
//!     fn version(&self) -> Version {
//!         self.0
//!     }
//!
//!     fn is_asked_for(&self) -> bool {
//!         self.0 == Version::TWO
//!     }
//! }
//!
//! let all: [&dyn Negotiable; 2] = [&Known(Version::TWO), &Known(Version::ONE)];
//! let known: KnownVersions = all.into_iter().collect();
//! let step = decide_first_step(&known, Choice::Auto, None);
//! assert_eq!(step, Some(FirstStep::Ask(Version::TWO)));
//! let (xid, wait) = (7, Duration::from_secs(5));
//! let probe = VersionProbe::new(known, Choice::Auto, Version::TWO, xid, wait);
//!
//! // Linux answers with ERR_VERS, 1 to 1.
//! let linux: Vec<u8> = [xid, 2, 32, 4, 1, 1, 1].into_iter().flat_map(u32::to_be_bytes).collect();
//! let ProbeAnswer::VersionError(decision) = probe.received(&linux) else {
//!     panic!("it decides");
//! };
//! assert_eq!(decision.action, VersionAction::Use(Version::ONE));
//! assert_eq!(
//!     decision.to_string(),
//!     "version 1: the server refused version 2 and speaks 1"
//! );
//! ```

#![forbid(unsafe_code)]

mod decide;
mod first_message;
mod known;
mod known_servers;
mod probe;
mod version;

pub use decide::{
    Evidence, FirstStep, Shown, VersionAction, VersionDecision, VersionReason, decide_first_step,
    show_versions,
};
pub use first_message::{FirstMessage, Refusal, RefusalError, decide_first_message};
pub use known::{Beginning, KnownVersions, Negotiable, ParseVersionError, Recognition};
pub use known_servers::KnownServers;
pub use probe::{ProbeAnswer, VersionProbe};
pub use version::{Choice, Version, Versions};

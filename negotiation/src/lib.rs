//! Which version of RPC-over-RDMA, and which features, both ends of a connection use. No I/O and no
//! clock.
//!
//! What follows from what both ends said is decided by pure functions, [`decide_version`] and
//! [`decide_features`], whose results say why and can be printed. Around the first there is a state
//! machine for each end: [`ClientNegotiation`] (version-two-01, section 5) asks with one version 2
//! message and holds everything else back until it knows; [`ServerNegotiation`] goes by the first
//! message that arrives. What a client learnt the hard way, it keeps in a [`Memory`].
//!
//! ```
//! use rpcrdma_negotiation::{Choice, Decision, PeerDid, Reason, Verdict, Version, decide_version};
//!
//! let linux = PeerDid::RefusedVersion { low: 1, high: 1 };
//! let decision = decide_version(Choice::Auto, &linux);
//! assert_eq!(decision.verdict, Verdict::Speak(Version::One));
//! assert_eq!(
//!     decision.to_string(),
//!     "version 1: the server refused version 2 and speaks 1"
//! );
//! ```

#![forbid(unsafe_code)]

mod client;
mod decide;
mod features;
mod memory;
mod round_trips;
mod server;
mod version;

pub use client::{Asked, ClientNegotiation, Heard};
pub use decide::{Decision, Lesson, PeerDid, Reason, Verdict, decide_version, show_versions};
pub use features::{Decided, Features, Have, PeerHas, Why, decide_features};
pub use memory::Memory;
pub use round_trips::{RoundTrips, decide_round_trips};
pub use server::{FirstHeard, ServerNegotiation};
pub use version::{Choice, ParseVersionError, Version, Versions};

//! The extensions of version-two-01: characteristics of both ends (xcharext-02), and messages in several transmissions
//! with data that Sends place (rtrext-00).

mod characteristics;
mod group;
mod replies;
mod spread;
mod state;
mod strays;

pub(super) use group::{Request, Transmitted};
pub(super) use replies::{Reply, spoil, transmitted};
pub(super) use state::{Came, Second};
pub(super) use strays::{message as stray, refusal, report};

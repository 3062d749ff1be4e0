//! Send-based data placement in version-two-07 (send-placement-00): what both ends announce, calls with placed items and
//! their rules, and replies with placed data.

mod calls;
mod layout;
mod places;
mod replies;
mod state;
mod told;

pub(super) use calls::{Joined, eligible, insert};
pub(super) use layout::{Element, Target, targets};
pub(super) use places::{Part, located, padding};
pub(super) use replies::{announcements, placed_messages, stray};
pub(super) use state::{Came, Placement};

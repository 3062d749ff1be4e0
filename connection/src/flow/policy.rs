//! Policies for granting: how many credits the peer of a connection gets, and when it is told.
//!
//! A policy chooses within what the accounting allows, so that no policy can break a rule of the
//! protocol or stop a connection:
//!
//! - At least one credit is granted, or [`MIN_CREDITS`](super::MIN_CREDITS) where messages are
//!   counted (at a client, also one for each call that its server may make), and never more than
//!   there are receives for, or than the peer requests.
//! - What was granted is not taken back. Fewer credits take effect as the peer uses the earlier ones.
//! - Where messages are counted, each call in progress lowers what is granted by one. A peer without
//!   credits gets new ones whatever the policy says, as soon as three can be granted or a reply leaves,
//!   and two idle ends do not answer grants with grants.

use std::fmt;

use rdma::Time;
use rpcrdma_chunks::Side;

/// The reason why a policy is asked for the number of credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantEvent {
    /// The version of the connection is known.
    Opened,
    /// A call of the peer has arrived.
    CallBegan,
    /// A call of the peer has been answered or dropped. A reply grants what the policy returns.
    CallEnded,
    /// The most that can be granted has changed.
    MostChanged,
}

/// The state of a connection by which a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Demand {
    /// The time of the last event that the connection was told of, [`Time::ZERO`] when it is opened.
    pub now: Time,
    /// The number of calls of the peer that have arrived and are not answered: the queue depth.
    pub calls: u32,
    /// The most credits that can be granted: the receives of this end, and in a version that counts
    /// calls, no more than the peer requests.
    pub most: u32,
}

/// Decides what one connection grants its peer.
///
/// Credits are calls that the peer may have outstanding, or where messages are counted, messages
/// that it may have on their way while no call is in progress.
pub trait GrantPolicy: fmt::Debug + Send {
    /// Returns the number of credits to grant from now on. The number that is granted is the nearest
    /// one that the accounting allows, at most [`Demand::most`].
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32;

    /// Returns whether to tell the peer its new limit by a message that only grants credits
    /// (version-two-07, section 4.2.1.1), because no other message is to be sent. The peer has
    /// `left` credits, with those that only its own grants have used, and would have `advertised`.
    /// By default it is told when it has used half of them. Versions that count calls have no such
    /// message.
    fn refreshes(&self, left: u32, advertised: u32) -> bool {
        2 * u64::from(left) <= u64::from(advertised)
    }
}

/// Makes the policy of each connection. Connections that are to share what they grant share what
/// this holds.
pub trait MakeGrantPolicy: fmt::Debug + Send + Sync {
    /// Returns the policy of a new connection, for the calls that its peer makes to this end, which
    /// is the given side of the connection.
    fn make(&self, side: Side) -> Box<dyn GrantPolicy>;
}

/// The default policy: grants all that can be granted.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantAll;

impl GrantPolicy for GrantAll {
    fn credits(&mut self, _: GrantEvent, _: &Demand) -> u32 {
        u32::MAX
    }
}

impl MakeGrantPolicy for GrantAll {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(Self)
    }
}

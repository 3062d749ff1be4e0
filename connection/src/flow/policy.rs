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
//!
//! # Policies that share something among connections
//!
//! A policy is asked at the events of its own connection. If its answer depends on other connections as
//! well, it may have become another one without such an event: a connection that was granted little
//! because others were busy could have more once they are idle. Such a policy keeps the handle that it
//! gets ([`GrantPolicy::set_ask_again`]) wherever the policies of the other connections find it, and the
//! one whose event changes the answer uses the handle ([`AskAgain::ask`]). The driver of the connection
//! then has the policy asked again, on its own thread. The peer learns a higher number from the next
//! reply, and where messages are counted, from a message that only grants credits if
//! [`GrantPolicy::refreshes`] says so. Versions that count calls have no such message: their credits come
//! with replies (RFC 8166, section 3.3.1), and a peer that waits has a call outstanding, whose reply is
//! encoded with what the policy says then.

use std::fmt;
use std::sync::Arc;

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
    /// The policy was to be asked again ([`AskAgain::ask`]).
    AskedAgain,
}

/// The handle by which a policy of one connection is asked again, because of what happened on another
/// one.
#[derive(Clone)]
pub struct AskAgain {
    driver: Arc<dyn Fn(u64) + Send + Sync>,
    connection: u64,
}

impl AskAgain {
    /// Returns the handle of a driver's connection with this number, which is passed to `driver`. The
    /// driver must only take note of it, and wake the thread that calls
    /// [`Connection::ask_policy_again`](crate::Connection::ask_policy_again): it is called by
    /// policies of other connections, on any thread.
    #[must_use]
    pub fn new(driver: Arc<dyn Fn(u64) + Send + Sync>, connection: u64) -> Self {
        Self { driver, connection }
    }

    /// Has the policy of the connection asked soon, with [`GrantEvent::AskedAgain`]. Nothing happens if
    /// the connection has ended. A policy may use this while it is asked itself, and holds its locks. It
    /// should do so only if the other one has a higher answer than before: what was granted is not
    /// taken back.
    pub fn ask(&self) {
        (self.driver)(self.connection);
    }
}

impl fmt::Debug for AskAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AskAgain").field(&self.connection).finish()
    }
}

/// The state of a connection by which a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Demand {
    /// The time of the last event that the connection was told of, [`Time::ZERO`] when it is opened. A
    /// driver reads the clock once in a turn, so all calls that begin in one turn have the same time.
    pub now: Time,
    /// The number of calls of the peer that this end executes: they have been taken from the device, and
    /// are not answered. It is not the depth of a queue. A server that answers at once has one, however
    /// many wait in its device.
    pub calls: u32,
    /// The fewest credits that can be granted. Where messages are counted, fewer than this are granted as
    /// if they were this many: [`MIN_CREDITS`](super::MIN_CREDITS) by a server.
    pub least: u32,
    /// The most credits that can be granted: the receives of this end, and in a version that counts
    /// calls, no more than the peer requests.
    pub most: u32,
}

impl Demand {
    /// Returns the demand of a connection of which as little as one credit can be granted. Policies are
    /// given theirs by the connection; this is for their tests.
    #[must_use]
    pub fn new(now: Time, calls: u32, most: u32) -> Self {
        Self {
            now,
            calls,
            least: 1,
            most,
        }
    }

    /// Returns the demand with other fewest credits that can be granted.
    #[must_use]
    pub fn with_least(self, least: u32) -> Self {
        Self { least, ..self }
    }
}

/// Decides what one connection grants its peer.
///
/// Credits are calls that the peer may have outstanding, or where messages are counted, messages
/// that it may have on their way while no call is in progress.
pub trait GrantPolicy: fmt::Debug + Send {
    /// Returns the number of credits to grant from now on. The number that is granted is the nearest
    /// one that the accounting allows, from [`Demand::least`] to [`Demand::most`].
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32;

    /// Returns whether the policy is asked when calls of the peer begin and end. Asked once, when the
    /// version of the connection is known. A policy whose answer does not depend on calls, as the default
    /// is, returns false, and costs calls nothing.
    fn follows_calls(&self) -> bool {
        true
    }

    /// Gives the policy, before it is asked for the first time, the handle by which it is asked again. A
    /// policy that decides by its own connection alone, as the default is, has no use for it. Not called
    /// if the driver of the connection has none ([`Config::ask_again`](crate::Config::ask_again)).
    fn set_ask_again(&mut self, _: AskAgain) {}

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

    /// Returns what makes the policies of another client or server, which shares nothing with those of
    /// this one. `None`, the default, if policies share nothing anyway. In a simulation, all ends are in
    /// one process.
    fn for_another_end(&self) -> Option<Arc<dyn MakeGrantPolicy>> {
        None
    }
}

/// Returns `grants` for one more client or server ([`MakeGrantPolicy::for_another_end`]).
#[must_use]
pub fn for_another_end(grants: &Arc<dyn MakeGrantPolicy>) -> Arc<dyn MakeGrantPolicy> {
    let own = grants.for_another_end();
    own.unwrap_or_else(|| Arc::clone(grants))
}

/// The default policy: grants all that can be granted.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantAll;

impl GrantPolicy for GrantAll {
    fn credits(&mut self, _: GrantEvent, _: &Demand) -> u32 {
        u32::MAX
    }

    fn follows_calls(&self) -> bool {
        false
    }
}

impl MakeGrantPolicy for GrantAll {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(Self)
    }
}

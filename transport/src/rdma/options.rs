//! The options of RPC-over-RDMA clients and servers, in addition to those of connections.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma::Attributes;
use rpcrdma_connection::{Config, Options, Protocols};
use rpcrdma_host::Budget;
use rpcrdma_negotiation::{Choice, Version, VersionDecision, VersionReason, Versions};

use super::receive_pool::shares_receives;
use super::{receive_memory, receive_pool};

/// The default memory for receives, bytes: enough for the default maximum number of connections
/// with plain receives, or a hundred with receives for placement.
const DEFAULT_RECEIVE_MEMORY: usize = 512 << 20;
/// The default time without progress: long enough for lost packets to be sent again several times,
/// and for 1 MiB at half a Mbit/s.
const DEFAULT_PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The options of a client.
#[derive(Clone, Debug)]
pub struct RdmaClientOptions {
    /// The options that both ends of a connection choose.
    pub common: Options,
    /// The maximum time for connecting.
    pub connect_timeout: Duration,
    /// The versions that may be spoken, of [`Options::protocols`].
    pub version: Choice,
    /// How long to wait for a server's answer to the first message, before the client assumes that
    /// the server lacks the version of that message.
    pub patience: Duration,
    /// The warning about a fallback to version 1 that the server did not confirm. Clones of the options
    /// share it, so that it is logged once for all.
    pub fallback_warning: FallbackWarning,
    /// The servers to which a connection has been established. Clones of the options share them: if one
    /// refuses a connection then, it has no room at present.
    pub met: MetServers,
    /// Bytes of the device's pool that the receives of all connections may take together. The default is no limit:
    /// as much as connections need. Where connections share receives, servers wait beyond it, and messages
    /// are copied out of their receives. Elsewhere, further connections get fewer credits, and with no
    /// memory left for one they fail.
    pub max_receive_memory: usize,
}

/// Servers to which a connection has been established. Clones are one set.
#[derive(Clone, Debug, Default)]
pub struct MetServers(Arc<Mutex<HashSet<SocketAddr>>>);

impl MetServers {
    fn servers(&self) -> MutexGuard<'_, HashSet<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn contains(&self, server: &SocketAddr) -> bool {
        self.servers().contains(server)
    }

    pub(super) fn insert(&self, server: SocketAddr) {
        self.servers().insert(server);
    }
}

/// A warning that a client uses an older version because a connection was lost or silent, which can
/// have other causes than the server's version. It is logged once; clones count as one.
#[derive(Clone, Debug, Default)]
pub struct FallbackWarning(Arc<AtomicBool>);

impl FallbackWarning {
    /// Returns whether the warning has been logged.
    #[must_use]
    pub fn was_logged(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns true once, for the first decision that rests on a lost connection or a missing answer.
    fn claim(&self, decision: &VersionDecision) -> bool {
        match decision.reason {
            VersionReason::ShownNow(evidence) => {
                evidence.is_loss() && !self.0.swap(true, Ordering::Relaxed)
            }
            _ => false,
        }
    }

    /// Logs the warning, unless it was logged before or the server itself said what it speaks.
    pub(super) fn warn_once(&self, server: SocketAddr, decision: &VersionDecision) {
        if self.claim(decision) {
            tracing::warn!(
                %server,
                "using RPC-over-RDMA {decision}. A server of version 2 that is full or restarts looks the \
                 same: rpcrdma=2 or rpcrdma=2wg among the mount options requires version 2, and rpcrdma=1 \
                 avoids this warning"
            );
        }
    }
}

impl RdmaClientOptions {
    /// Returns the default options of clients whose connections have these protocols.
    #[must_use]
    pub fn new(protocols: Protocols) -> Self {
        Self {
            common: Options::client(protocols),
            connect_timeout: Duration::from_secs(10),
            version: Choice::default(),
            patience: Config::DEFAULT_PATIENCE,
            fallback_warning: FallbackWarning::default(),
            met: MetServers::default(),
            max_receive_memory: usize::MAX,
        }
    }
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct RdmaServerOptions {
    /// The options that both ends of a connection choose.
    pub common: Options,
    /// The maximum number of connections at the same time. Further ones are rejected, and told to
    /// try again. [`crate::ServerOptions::max_connections`] limits those of all transports, and is
    /// usually reached first.
    pub max_connections: usize,
    /// Bytes of the device's pool that the receives of all connections may take together.
    ///
    /// Where connections share receives ([`shares_receives`]), this covers posted ones and those
    /// whose messages are in use. Beyond it, messages are copied out of their receives, and peers
    /// wait for receives, by which rxe may lose connections ([`rdma::WhenEmpty::MayEndConnection`]).
    ///
    /// Elsewhere, the less is left, the fewer credits a new connection gets; with none left it is
    /// rejected. A connection has a receive for each credit and six more. A plain receive of 4 KiB takes
    /// 4 KiB, and one with placement 68 KiB. Three features are allowed on a new connection only while at
    /// most half of this memory is taken: placed data, and only if it does not reduce the credits; calls in
    /// several transmissions, which count the receives that an incomplete call holds; and longer receives
    /// ([`Options::max_receive_size`]), which count at their maximum length.
    pub max_receive_memory: usize,
    /// Memory budget for calls and replies of all connections, without receives. Several transports
    /// may share one.
    pub budget: Budget,
    /// How long a peer may leave RDMA Reads unanswered, or Sends and RDMA Writes uncompleted,
    /// before its connection is closed. While memory is short, the timeout is two seconds for
    /// connections that hold more than their guaranteed memory.
    pub progress_timeout: Duration,
    /// The interval at which memory is given back that only earlier traffic needed: that of connections which have
    /// ended since, or have sent nothing for a whole interval. `None`: never.
    pub give_back_after: Option<Duration>,
    /// Bytes of fetched chunks that the unanswered calls of one connection may hold together.
    /// Further calls wait.
    pub max_fetched: u64,
    /// The versions to accept, of [`Options::protocols`].
    pub versions: Versions,
}

impl RdmaServerOptions {
    /// Returns the function that tells the versions that are accepted ([`Options::receives`]).
    pub(super) fn allows(&self) -> impl Fn(Version) -> bool + Copy {
        move |version| self.versions.contains(version)
    }

    /// Returns the least useful [`RdmaServerOptions::max_receive_memory`] on a device with these
    /// attributes, bytes: enough for one connection with one credit, or for the least number of
    /// shared receives.
    #[must_use]
    pub fn least_receive_memory(&self, attributes: &Attributes) -> usize {
        match shares_receives(attributes) {
            true => receive_pool::least(&self.common.longest_receives(self.allows())),
            false => receive_memory::least(&self.common.plain_receives(self.allows())),
        }
    }
}

impl RdmaServerOptions {
    /// Returns the default options of servers whose connections have these protocols.
    #[must_use]
    pub fn new(protocols: Protocols) -> Self {
        Self {
            common: Options::server(protocols),
            max_connections: 1024,
            max_receive_memory: DEFAULT_RECEIVE_MEMORY,
            budget: Budget::default(),
            progress_timeout: DEFAULT_PROGRESS_TIMEOUT,
            give_back_after: None,
            max_fetched: Config::DEFAULT_MAX_FETCHED,
            versions: Versions::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_negotiation::{Evidence, Shown, VersionAction};

    use super::*;

    #[test]
    fn version_1_without_an_answer_is_warned_of_once() {
        let decided = |shown| VersionDecision {
            action: VersionAction::Use(Version::ONE),
            reason: VersionReason::ShownNow(Evidence {
                asked: Version::TWO,
                speaks: Some(Version::ONE),
                shown,
            }),
        };
        let warning = FallbackWarning::default();
        assert!(
            !warning.claim(&decided(Shown::Refused)),
            "the server said so"
        );
        assert!(!warning.was_logged());
        let other = warning.clone();
        assert!(warning.claim(&decided(Shown::Dropped)));
        assert!(!other.claim(&decided(Shown::NoAnswer)));
        assert!(other.was_logged());
    }
}

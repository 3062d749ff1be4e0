//! Test support: a small device in memory that executes a connection's actions, and a pair of
//! connections.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test program uses a part"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod endpoint;
mod messages;
mod pair;
mod seen;
mod wg_peer;

pub use endpoint::{Endpoint, PendingRead, Posted};
pub use messages::{bytes, data, message, open, reply, room};
pub use pair::{Answer, Pair, echo};
pub use seen::Seen;
pub use wg_peer::{Sent, WgPeer, encoded, inline_call, inline_reply};

use std::time::Duration;

use rdma::Pool;
use rpcrdma_connection::{Config, Options, Protocols, Role};
use rpcrdma_negotiation::{
    Choice, Evidence, FirstMessage, Shown, Version, Versions, decide_first_message,
};

/// Pool limit of an end of a connection, bytes.
pub const POOL: usize = 1 << 28;

/// How long clients wait for the answer to their first message in version 2.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the version of a message that can be the first on a connection.
pub fn version_of(message: &[u8]) -> Version {
    let protocols = Protocols::default();
    match decide_first_message(protocols.known(), &Versions::default(), message) {
        FirstMessage::Use(version) => version,
        other => panic!("{other:?}"),
    }
}

/// Returns what a server showed that was asked for version 2 of the working group, and speaks
/// version 1 or is assumed to.
pub fn evidence(shown: Shown) -> Evidence {
    Evidence {
        asked: Version::TWO_WG,
        speaks: Some(Version::ONE),
        shown,
    }
}

/// Returns the configuration of a client that may speak these versions.
pub fn client(versions: Choice, options: Options) -> Config {
    client_with(versions, None, options)
}

/// Returns the configuration of a client with evidence from an earlier connection.
pub fn client_with(versions: Choice, evidence: Option<Evidence>, options: Options) -> Config {
    let role = Role::Client {
        versions,
        evidence,
        patience: PATIENCE,
        last_xid: 0,
    };
    Config::new(role, options, Pool::new(POOL))
}

/// Returns the configuration of a server that speaks these versions.
pub fn server(versions: Versions, options: Options) -> Config {
    Config::new(Role::Server { versions }, options, Pool::new(POOL))
}

/// Returns the configurations of both ends of a connection that speaks this version only, with the
/// default options.
pub fn configs(version: Version) -> (Config, Config) {
    configs_with(version, |_, _| {})
}

/// Returns the configurations of both ends of a connection that speaks this version only, with the
/// options of the client and of the server changed.
pub fn configs_with(
    version: Version,
    change: impl FnOnce(&mut Options, &mut Options),
) -> (Config, Config) {
    let (mut ours, mut theirs) = (
        Options::client(rpcrdma_protocols::base()),
        Options::server(rpcrdma_protocols::base()),
    );
    change(&mut ours, &mut theirs);
    let (choice, versions) = (Choice::Only(version), Versions::only(version));
    (client(choice, ours), server(versions, theirs))
}

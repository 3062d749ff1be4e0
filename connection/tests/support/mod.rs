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
use rpcrdma_connection::{Config, Options, Role};
use rpcrdma_negotiation::{Choice, Evidence, Version, Versions};

/// Pool limit of an end of a connection, bytes.
pub const POOL: usize = 1 << 28;

/// How long clients wait for the answer to their first message in version 2.
pub const PATIENCE: Duration = Duration::from_secs(5);

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

//! How much memory the server may take, by its own documented limits.

use std::time::Duration;

use rpc_transport::rdma::{RdmaOptions, RdmaServerOptions, RoundTripFeatures, Version, Versions};
use rpc_transport::{ServerOptions, TcpOptions};

use rdma::{Budget, Pool};

use super::Form;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Memory for the bystander's client, bytes.
pub const BYSTANDER_POOL: usize = 8 * MIB;

/// Memory for a client that a hostile server lies to, bytes.
pub const VICTIM_POOL: usize = 16 * MIB;

/// A server's limits. Each is an option of the server's or a constant of the device's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The device's pool: all receives, fetched chunks and long replies ([`rdma::Pool::limit`]).
    pub pool: usize,
    /// The file system in memory.
    pub files: u64,
    /// [`ServerOptions::reply_cache_bytes`].
    pub reply_cache: usize,
    /// [`RdmaServerOptions::max_connections`].
    pub connections: usize,
    /// [`iwarp::Options::max_connections`]: those being set up, or ending, included.
    pub sockets: usize,
    /// [`RdmaOptions::credits`].
    pub credits: u32,
    /// [`RdmaOptions::max_message`], and [`RdmaServerOptions::max_fetched`].
    pub message: u32,
}

/// The limits of the server here: small, so that whoever passes them shows.
pub const SERVER: Limits = Limits {
    pool: 24 * MIB,
    files: 4 * MIB as u64,
    reply_cache: 256 * KIB,
    connections: 16,
    sockets: 600,
    credits: 16,
    message: 256 << 10,
};

/// What a socket costs while no memory of the pool is given to it: staging, queues, frames.
const SOCKET: usize = 16 * KIB;
/// What a connection's send queue can hold besides memory of the pool: 4096 requests
/// ([`rdma::Attributes::max_send_wr`]) with a header each, and the calls that wait with their chunk
/// lists.
const SEND_QUEUE: usize = 2 * MIB;
/// The bystander beside its pool, the program itself, and what the hostile peer has at hand.
const OURSELVES: usize = 4 * MIB;

impl Limits {
    /// Bytes that this process may have allocated at any time.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.pool
            + self.files as usize
            + self.reply_cache
            + self.connections * SEND_QUEUE
            + self.sockets * SOCKET
            + BYSTANDER_POOL
            + VICTIM_POOL
            + OURSELVES
    }

    /// The same in words.
    #[must_use]
    pub fn explain(&self) -> String {
        let mib = |bytes: usize| bytes as f64 / MIB as f64;
        format!(
            "{:.1} MiB = pool {} + files {} + reply cache {} + send queues {} + sockets {:.1} + \
             bystander {} + victim {} + the rest {}",
            mib(self.bound()),
            mib(self.pool),
            mib(self.files as usize),
            mib(self.reply_cache),
            mib(self.connections * SEND_QUEUE),
            mib(self.sockets * SOCKET),
            mib(BYSTANDER_POOL),
            mib(VICTIM_POOL),
            mib(OURSELVES),
        )
    }

    /// The server's options, as far as these limits go.
    #[must_use]
    pub fn server(&self) -> ServerOptions {
        ServerOptions {
            workers: 1,
            reply_cache_entries: 256,
            reply_cache_bytes: self.reply_cache,
            ..ServerOptions::default()
        }
    }

    /// What calls and replies of all connections may take of the pool.
    #[must_use]
    pub fn budget(&self) -> Budget {
        Budget::new(self.pool / 2, self.connections)
    }

    /// The options of its port for TCP.
    #[must_use]
    pub fn tcp(&self, pool: Pool, budget: Budget, progress: Duration) -> TcpOptions {
        TcpOptions {
            pool,
            budget,
            record_timeout: progress,
            reply_timeout: progress,
            max_connections: self.connections,
            ..TcpOptions::default()
        }
    }

    /// The options of its port for RDMA.
    #[must_use]
    pub fn rdma(&self, form: Form, budget: Budget, progress: Duration) -> RdmaServerOptions {
        let default = RdmaServerOptions::default();
        RdmaServerOptions {
            common: RdmaOptions {
                credits: self.credits,
                max_message: self.message,
                features: features(form),
                ..default.common
            },
            max_connections: self.connections,
            max_receive_memory: self.pool / 2,
            budget,
            progress_timeout: progress,
            max_fetched: u64::from(self.message),
            // What the tables' errors name as the lowest and highest version.
            versions: match form {
                Form::First => Versions::only(Version::One),
                Form::Translated | Form::Second => Versions::default(),
            },
        }
    }
}

/// What victims of hostile peers that speak in this form have.
pub(crate) fn features(form: Form) -> RoundTripFeatures {
    match form {
        Form::First | Form::Translated => RoundTripFeatures::default(),
        Form::Second => RoundTripFeatures::ALL,
    }
}

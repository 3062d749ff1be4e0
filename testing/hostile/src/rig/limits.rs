//! The maximum memory of the server according to its documented limits.

use std::time::Duration;

use rpc_transport::rdma::{RdmaOptions, RdmaServerOptions, Version, Versions};
use rpc_transport::{ServerOptions, TcpOptions};
use rpcrdma_protocols::RoundTripFeatures;

use rdma::Pool;
use rpcrdma_host::Budget;

use super::Form;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The memory of the bystander, bytes.
pub const BYSTANDER_POOL: usize = 8 * MIB;

/// The memory of a client under attack of a hostile server, bytes.
pub const VICTIM_POOL: usize = 16 * MIB;

/// The maximum length of a segment of clients under attack, and of gateways: 8 KiB take two.
pub(crate) const SEGMENT: u32 = 4096;
/// Their maximum number of outstanding calls. The number of receives is four more.
pub(crate) const CREDITS: u32 = 8;
/// Their maximum number of outstanding callbacks.
pub(crate) const CALLBACKS: u32 = 4;

/// The limits of a server. Each is an option of the server or a constant of the device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The device's pool, which contains all receives, fetched chunks and long replies
    /// ([`rdma::Pool::limit`]).
    pub pool: usize,
    /// The limit of the memory file system.
    pub files: u64,
    /// The value of [`ServerOptions::reply_cache_bytes`].
    pub reply_cache: usize,
    /// The value of [`RdmaServerOptions::max_connections`].
    pub connections: usize,
    /// The value of [`iwarp::Options::max_connections`], which includes connections that are being
    /// set up or ending.
    pub sockets: usize,
    /// The value of [`RdmaOptions::credits`].
    pub credits: u32,
    /// The value of [`RdmaOptions::max_message`] and [`RdmaServerOptions::max_fetched`].
    pub message: u32,
}

/// The limits of the server here: small, so that exceeding them is detected.
pub const SERVER: Limits = Limits {
    pool: 24 * MIB,
    files: 4 * MIB as u64,
    reply_cache: 256 * KIB,
    connections: 16,
    sockets: 600,
    credits: 16,
    message: 256 << 10,
};

/// The cost of a socket besides memory of the pool: staging area, queues, frames; bytes.
const SOCKET: usize = 16 * KIB;
/// The maximum size of a connection's send queue besides memory of the pool, bytes: 4096 requests
/// ([`rdma::Attributes::max_send_wr`]) with a header each, and the waiting calls with their chunk
/// lists.
const SEND_QUEUE: usize = 2 * MIB;
/// The cost of the bystander besides its pool, of the program itself, and of the hostile peer,
/// bytes.
const OURSELVES: usize = 4 * MIB;

impl Limits {
    /// Returns the maximum number of bytes that this process may have allocated at any time.
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

    /// Returns the number of bytes that a gateway with these limits takes beside the server: it has a pool, and
    /// each client has a connection to the server as well.
    #[must_use]
    pub fn gateway(&self) -> usize {
        self.pool + self.connections * SEND_QUEUE + (self.sockets + self.connections) * SOCKET
    }

    /// Describes the bound in words.
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

    /// Returns the server's options with these limits.
    #[must_use]
    pub fn server(&self) -> ServerOptions {
        ServerOptions {
            workers: 1,
            reply_cache_entries: 256,
            reply_cache_bytes: self.reply_cache,
            ..ServerOptions::default()
        }
    }

    /// Returns the part of the pool that calls and replies of all connections may use.
    #[must_use]
    pub fn budget(&self) -> Budget {
        Budget::new(self.pool / 2, self.connections)
    }

    /// Returns the options of its port for TCP.
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

    /// Returns the options of its port for RDMA.
    #[must_use]
    pub fn rdma(&self, form: Form, budget: Budget, progress: Duration) -> RdmaServerOptions {
        let default = RdmaServerOptions::new(rpcrdma_protocols::standard(&features(form)));
        RdmaServerOptions {
            common: RdmaOptions {
                credits: self.credits,
                max_message: self.message,
                ..default.common
            },
            max_connections: self.connections,
            max_receive_memory: self.pool / 2,
            budget,
            progress_timeout: progress,
            give_back_after: default.give_back_after,
            max_fetched: u64::from(self.message),
            // The errors in the tables name these as the lowest and highest version.
            versions: match form {
                Form::First => Versions::only(Version::ONE),
                Form::Translated | Form::Second => Versions::only(Version::ONE).with(Version::TWO),
                Form::Wg => Versions::only(Version::ONE).with(Version::TWO_WG),
            },
        }
    }
}

/// Returns the features of clients and servers under attack in this version.
pub(crate) fn features(form: Form) -> RoundTripFeatures {
    match form {
        Form::First | Form::Translated => RoundTripFeatures::default(),
        Form::Second | Form::Wg => RoundTripFeatures::ALL,
    }
}

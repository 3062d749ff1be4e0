//! What can be chosen about RPC-over-RDMA connections.

use std::time::Duration;

use conveyance::CostModel;
use rdma::Budget;
use rpcrdma_ext_continuation::Features as RoundTripFeatures;
use rpcrdma_negotiation::{Choice, Version, Versions};
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::Side;
use rpcrdma_v2::extension::Extension;
use rpcrdma_v2::limits::DEFAULT_INLINE as V2_INLINE;

use super::{CallbackOptions, ReceiveStructure, receive_memory, round_trips};

/// Makes an extension's state for a new connection, at this end of it.
pub type MakeExtension = fn(Side) -> Box<dyn Extension>;

/// The inline threshold that Linux peers use as well, bytes.
const DEFAULT_INLINE: u32 = 4096;
/// A 4 MiB item and what comes with it.
const DEFAULT_MAX_MESSAGE: u32 = (4 << 20) + (64 << 10);
/// A segment's length is 32 bits wide; this keeps sums of two in range.
const DEFAULT_MAX_SEGMENT: u32 = 1 << 30;
/// Enough for all connections that are accepted, with plain receives, and for a hundred with receives
/// that bulk data is placed in.
const DEFAULT_RECEIVE_MEMORY: usize = 512 << 20;
/// What a peer may have receives made longer to.
const DEFAULT_MAX_RECEIVE: u32 = 32 << 10;
/// For several replies of a mebibyte at a time, in receives of 64 KiB.
const DEFAULT_SPARE_RECEIVES: u32 = 256;
/// What 4 MiB take at half a Mbit/s. Transmissions of a message follow one another without a pause.
const DEFAULT_GROUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Long enough for lost packets to be sent again several times, and for a mebibyte at half a Mbit/s.
const DEFAULT_PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server is waited for that says nothing to version 2.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(5);

/// What both sides choose.
#[derive(Clone, Debug)]
pub struct RdmaOptions {
    /// Client: calls outstanding on a connection at most. Server: credits granted at most. The
    /// device's receive queue may hold fewer.
    pub credits: u32,
    /// Longest message to send inline, transport header included, bytes: 1024 to 262144, in steps
    /// of 1024 (RFC 8797, section 4.2).
    pub inline_send: u32,
    /// Longest message to receive inline, likewise; also the size of every receive buffer.
    pub inline_receive: u32,
    /// Whether to say so to the peer, in private data. A peer that is told nothing, or that says
    /// nothing, gets and sends 1024 bytes at most.
    pub private_data: bool,
    /// Whether the responder may invalidate one of a call's handles with its reply. Both sides must
    /// want it, and say so in private data.
    pub remote_invalidation: bool,
    /// RDMA Reads that the peer may have outstanding.
    pub inbound_reads: u32,
    /// RDMA Reads to have outstanding.
    pub outbound_reads: u32,
    /// Longest RPC message in either direction, bytes of its XDR stream.
    pub max_message: u32,
    /// Longest piece of memory for one segment, bytes. Chunks that are longer have several.
    pub max_segment: u32,
    /// Calls from server to client.
    pub callbacks: CallbackOptions,
    /// Version 2: bytes that receives may be made longer to when the peer asks.
    pub max_receive_size: u32,
    /// Version 2, client: receives to post at most beyond those for credits, for replies that come
    /// in several transmissions.
    pub spare_receives: u32,
    /// Version 2: how long a message that comes in several transmissions may be incomplete. A connection
    /// on which it takes longer is closed.
    pub group_timeout: Duration,
    /// What everything costs, as far as it is known: ways to convey a message are chosen by it.
    pub costs: CostModel,
    /// Version 2: what this end does to spare round trips. Receives are made as it asks.
    pub features: RoundTripFeatures,
    /// Version 2: extensions, beside the exchange of transport characteristics, which is always
    /// there.
    pub extensions: Vec<MakeExtension>,
}

impl RdmaOptions {
    /// What [`RdmaOptions::inline_send`] and [`RdmaOptions::inline_receive`] are when nothing else is
    /// asked for.
    pub const DEFAULT_INLINE: u32 = DEFAULT_INLINE;

    /// What to tell the peer (RFC 8797).
    pub(crate) fn private_data(&self) -> Option<PrivateData> {
        let data = PrivateData::new(
            self.inline_send,
            self.inline_receive,
            self.remote_invalidation,
        );
        self.private_data.then_some(data)
    }

    /// Bytes of each receive, where only this version is spoken.
    #[must_use]
    pub fn receive_size(&self, version: Version) -> u32 {
        u32::try_from(self.receives(version == Version::Two).size()).unwrap_or(u32::MAX)
    }

    /// What receives are made of: their size is never less than what the peer was, or is taken to have
    /// been, told; where version 2 may be spoken, never less than its default (version-two-01,
    /// section 2.3).
    pub(crate) fn receives(&self, two: bool) -> ReceiveStructure {
        let data = PrivateData::new(self.inline_send, self.inline_receive, false);
        let least = if two { V2_INLINE } else { 0 };
        let plain = data.receive_size().max(least);
        if two && self.features.ddp.receive {
            return round_trips::placing(plain);
        }
        ReceiveStructure::plain(plain as usize)
    }
}

/// How a client connects.
#[derive(Clone, Debug)]
pub struct RdmaClientOptions {
    /// What both sides choose.
    pub common: RdmaOptions,
    /// How long to try to connect.
    pub connect_timeout: Duration,
    /// Which version to speak.
    pub version: Choice,
    /// How long to wait for a server's answer to version 2, before it is taken for one that speaks
    /// version 1 only.
    pub patience: Duration,
}

impl Default for RdmaClientOptions {
    fn default() -> Self {
        Self {
            common: RdmaOptions {
                credits: 128,
                inline_send: DEFAULT_INLINE,
                inline_receive: DEFAULT_INLINE,
                private_data: true,
                remote_invalidation: true,
                inbound_reads: 32,
                // A requester never reads, but some devices refuse a connection without.
                outbound_reads: 1,
                max_message: DEFAULT_MAX_MESSAGE,
                max_segment: DEFAULT_MAX_SEGMENT,
                callbacks: CallbackOptions::default(),
                max_receive_size: DEFAULT_MAX_RECEIVE,
                spare_receives: DEFAULT_SPARE_RECEIVES,
                group_timeout: DEFAULT_GROUP_TIMEOUT,
                costs: CostModel::default(),
                features: RoundTripFeatures::default(),
                extensions: Vec::new(),
            },
            connect_timeout: Duration::from_secs(10),
            version: Choice::default(),
            patience: DEFAULT_PATIENCE,
        }
    }
}

/// How a server listens.
#[derive(Clone, Debug)]
pub struct RdmaServerOptions {
    /// What both sides choose.
    pub common: RdmaOptions,
    /// Connections at the same time; more are rejected.
    pub max_connections: usize,
    /// Bytes of the device's pool that the receives of all connections may take together. As less is
    /// left, new connections get fewer credits, at last none: they are rejected. Receives of 4 KiB
    /// take 4 KiB for each credit, and six more; those that bulk data is placed in 68 KiB. Calls
    /// in several transmissions are taken out of half of this alone: the parts of one that is not complete
    /// hold the receives that they came in, so that these count twice. So is what a peer may have made
    /// longer ([`RdmaOptions::max_receive_size`]), which is counted as if it were.
    pub max_receive_memory: usize,
    /// Memory budget for calls and replies of all connections, without receives. Ports may share one.
    pub budget: Budget,
    /// How long a peer may leave RDMA Reads unanswered, or Sends and RDMA Writes uncompleted, before its
    /// connection is closed. While memory is short, the timeout is two seconds for connections that hold
    /// more than their guaranteed memory.
    pub progress_timeout: Duration,
    /// Bytes of fetched chunks that the unanswered calls of one connection may hold together.
    /// Further calls wait.
    pub max_fetched: u64,
    /// Which versions to accept.
    pub versions: Versions,
}

impl RdmaServerOptions {
    /// The least that [`RdmaServerOptions::max_receive_memory`] can usefully be: enough for one connection
    /// with one credit. With less, every connection is rejected.
    #[must_use]
    pub fn least_receive_memory(&self) -> usize {
        let two = self.versions.contains(Version::Two);
        receive_memory::least(&self.common.receives(two))
    }
}

impl Default for RdmaServerOptions {
    fn default() -> Self {
        Self {
            common: RdmaOptions {
                credits: 64,
                inline_send: DEFAULT_INLINE,
                inline_receive: DEFAULT_INLINE,
                private_data: true,
                remote_invalidation: true,
                // As above, the other way round.
                inbound_reads: 1,
                outbound_reads: 32,
                max_message: DEFAULT_MAX_MESSAGE,
                max_segment: DEFAULT_MAX_SEGMENT,
                callbacks: CallbackOptions::default(),
                max_receive_size: DEFAULT_MAX_RECEIVE,
                spare_receives: DEFAULT_SPARE_RECEIVES,
                group_timeout: DEFAULT_GROUP_TIMEOUT,
                costs: CostModel::default(),
                features: RoundTripFeatures::default(),
                extensions: Vec::new(),
            },
            max_connections: 1024,
            max_receive_memory: DEFAULT_RECEIVE_MEMORY,
            budget: Budget::default(),
            progress_timeout: DEFAULT_PROGRESS_TIMEOUT,
            max_fetched: 64 << 20,
            versions: Versions::default(),
        }
    }
}

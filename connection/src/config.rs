//! The configuration of a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma::Pool;
use rdma::trace::Tracer;
use rpcrdma_chunks::Side;
use rpcrdma_chunks::limits::{MAX_CHUNK_SEGMENTS, MAX_WRITE_CHUNKS};
use rpcrdma_extension::{DEFAULT_INLINE, EndConfig, FIRST_MESSAGE_MAX};
use rpcrdma_negotiation::{Choice, Evidence, Version, Versions};
use rpcrdma_v1::PrivateData;
use transfer_plan::{ChunkLimits, CostModel, Limits};

use crate::dialect::Dialect;
use crate::flow::{AskAgain, GrantAll, MakeGrantPolicy};
use crate::{BEYOND_CREDITS, Protocols, ReceiveStructure, ReducedArguments};

/// The default maximum length of an RPC message, in bytes: an item of 4 MiB and the rest of the
/// message.
const DEFAULT_MAX_MESSAGE: u32 = (4 << 20) + (64 << 10);
/// The default maximum length of a segment, in bytes. A segment's length has 32 bits; the sum of
/// two lengths up to this default does not overflow.
const DEFAULT_MAX_SEGMENT: u32 = 1 << 30;
/// The default maximum number of bytes of items that are sent inline wherever they fit.
const DEFAULT_SHORT_ITEMS: u32 = 2048;
/// The default maximum length, in bytes, to which this end enlarges its receives at the peer's
/// request.
const DEFAULT_MAX_RECEIVE: u32 = 32 << 10;
/// The maximum number of segments in the chunk lists of a call that this end takes. Version 2 of the
/// working group announces it (version-two-07, section 5.2.4).
const MAX_SEGMENTS: u32 = 256;
/// The default maximum number of receives beyond those for credits, for replies in several
/// messages: several replies of 1 MiB at a time in messages of 64 KiB.
const DEFAULT_SPARE_RECEIVES: u32 = 256;
/// The default time-out of a message in several transmissions: enough for 4 MiB at 0.6 Mbit/s.
const DEFAULT_GROUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Calls from server to client (RFC 8167). By default there are none. Both ends have to choose
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallbackOptions {
    /// The maximum number of outstanding calls from server to client on a connection. With 0, a
    /// server makes none. A client then announces in version 2 that it accepts none; in version 1
    /// it discards them, and the server is not informed.
    pub credits: u32,
    /// Whether calls from server to client and their replies may have chunks. In version 2 a client
    /// tells its server; in version 1 it cannot, so the server uses its own option, and only the
    /// upper layer knows whether the client accepts that (section 6).
    pub chunks: bool,
}

/// The options that both ends of a connection choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Client: the maximum number of outstanding calls on a connection. Server: the maximum number
    /// of credits granted. The size of the device's receive queue may reduce both.
    pub credits: u32,
    /// Length of the longest message to send inline, transport header included, bytes: 1024 to
    /// 262144, in steps of 1024 (RFC 8797, section 4.2).
    pub inline_send: u32,
    /// Length of the longest message to receive inline, in the same bounds; also the length of
    /// every receive buffer.
    pub inline_receive: u32,
    /// Whether `inline_send`, `inline_receive` and `remote_invalidation` are announced in the
    /// connection manager's private data ([`PrivateData`]). In version 1, if either end sends none,
    /// inline messages have at most 1024 bytes. Version 2 ignores it.
    pub private_data: bool,
    /// Whether the responder may invalidate one of a call's handles with its reply (Send With
    /// Invalidate). Both ends must choose it. They announce it in private data (version 1), by a
    /// characteristic (version 2 of 2016), or in each call (version-two-07).
    pub remote_invalidation: bool,
    /// The maximum number of RDMA Reads that the peer may have outstanding.
    pub inbound_reads: u32,
    /// The maximum number of RDMA Reads that this end has outstanding.
    pub outbound_reads: u32,
    /// Maximum length of an RPC message in either direction, in bytes of its XDR stream.
    pub max_message: u32,
    /// Maximum length of the memory of one segment, in bytes. Longer chunks have several segments.
    pub max_segment: u32,
    /// Maximum number of bytes of items that the base protocol sends inline wherever they fit, without
    /// asking whether an extension would be cheaper: both ends spend more on placing so little than on a
    /// copy. A call is planned with the items of its call and reply together, a reply with its own.
    pub short_items: u32,
    /// Calls from server to client.
    pub callbacks: CallbackOptions,
    /// Version 2: the maximum length, in bytes, to which this end enlarges its receives at the
    /// peer's request.
    pub max_receive_size: u32,
    /// Version 2, client: the maximum number of receives posted beyond those for credits, for
    /// replies in several messages.
    pub spare_receives: u32,
    /// Version 2: the time within which a message in several transmissions must be complete;
    /// otherwise the connection is closed.
    pub group_timeout: Duration,
    /// Version 2 of the working group: the count of messages at which each end begins, the same at
    /// both ends. The protocol's is 0; a count near 2^32 lets a test see the counters wrap
    /// (version-two-07, section 4.2.1).
    pub initial_message_count: u32,
    /// The cost of each kind of work request and registration, by which the cheapest transfer mode
    /// of a message is chosen.
    pub costs: CostModel,
    /// The versions that this end knows, and their extensions, which determine the segments of
    /// receives. [`Role`] says which of the versions may be spoken; a connection is closed if there is
    /// none.
    pub protocols: Protocols,
    /// Makes the policy of each connection that decides how many credits the peer is granted.
    pub grants: Arc<dyn MakeGrantPolicy>,
}

impl Options {
    /// The default of [`Options::inline_send`] and [`Options::inline_receive`], bytes: that of
    /// Linux.
    pub const DEFAULT_INLINE: u32 = 4096;

    /// Returns the defaults of a client: 128 calls outstanding, 4096 bytes inline, RPC messages of
    /// up to 4 MiB and 64 KiB.
    #[must_use]
    pub fn client(protocols: Protocols) -> Self {
        Self {
            credits: 128,
            inline_send: Self::DEFAULT_INLINE,
            inline_receive: Self::DEFAULT_INLINE,
            private_data: true,
            remote_invalidation: true,
            inbound_reads: 32,
            // A requester never reads, but some devices refuse a connection without any.
            outbound_reads: 1,
            max_message: DEFAULT_MAX_MESSAGE,
            max_segment: DEFAULT_MAX_SEGMENT,
            short_items: DEFAULT_SHORT_ITEMS,
            callbacks: CallbackOptions::default(),
            max_receive_size: DEFAULT_MAX_RECEIVE,
            spare_receives: DEFAULT_SPARE_RECEIVES,
            group_timeout: DEFAULT_GROUP_TIMEOUT,
            initial_message_count: 0,
            costs: CostModel::default(),
            protocols,
            grants: Arc::new(GrantAll),
        }
    }

    /// Returns the defaults of a server: those of a client, but with 64 credits, 1 inbound and 32
    /// outbound RDMA Reads.
    #[must_use]
    pub fn server(protocols: Protocols) -> Self {
        Self {
            credits: 64,
            // As for clients, the other way round.
            inbound_reads: 1,
            outbound_reads: 32,
            ..Self::client(protocols)
        }
    }

    /// Returns the private data to send to the peer (RFC 8797), or `None` if none is to be sent.
    #[must_use]
    pub fn private_data(&self) -> Option<PrivateData> {
        let data = PrivateData::new(
            self.inline_send,
            self.inline_receive,
            self.remote_invalidation,
        );
        self.private_data.then_some(data)
    }

    /// Returns the structure of the receives that are posted at first. Each is at least as long as
    /// the announced or default inline threshold. If a version with extensions is among those that may
    /// be spoken, which `allows` accepts, each is also at least as long as the default of version 2
    /// (version-two-01, section 2.3): peers use that until an extension has announced another length.
    #[must_use]
    pub fn receives(&self, allows: impl Fn(Version) -> bool) -> ReceiveStructure {
        let plain = self.plain_receives(&allows);
        let wanted = self.protocols.receives(&allows, plain.len());
        wanted.unwrap_or(plain)
    }

    /// Returns the structure of the receives that are enough as long as no data is placed in them:
    /// [`Options::receives`], or shorter.
    #[must_use]
    pub fn plain_receives(&self, allows: impl Fn(Version) -> bool) -> ReceiveStructure {
        let data = PrivateData::new(self.inline_send, self.inline_receive, false);
        let least = match self.protocols.has_extensions(allows) {
            true => DEFAULT_INLINE,
            false => 0,
        };
        ReceiveStructure::plain(data.receive_size().max(least) as usize)
    }

    /// Returns the structure of receives that are long enough for all lengths that a peer may ask
    /// for: [`Options::receives`], or longer.
    #[must_use]
    pub fn longest_receives(&self, allows: impl Fn(Version) -> bool) -> ReceiveStructure {
        let receives = self.receives(&allows);
        let may_change = self.protocols.has_extensions(allows);
        match may_change && receives.len() < self.max_receive_size {
            true => receives.resized(self.max_receive_size),
            false => receives,
        }
    }
}

/// The end of the connection that this is, and the versions that it may speak.
#[derive(Clone, Debug)]
pub enum Role {
    /// This end established the connection.
    Client {
        /// The versions that it may speak.
        versions: Choice,
        /// The evidence from an earlier connection that the server lacks the version that it was
        /// asked for, if there is any.
        evidence: Option<Evidence>,
        /// How long to wait for the answer to the first message, before this end assumes that the
        /// server lacks its version.
        patience: Duration,
        /// The XID of a call to this server, made not long ago or about to be made. Messages of
        /// extensions get XIDs far from it.
        last_xid: u32,
    },
    /// This end accepted the connection.
    Server {
        /// The versions that it may speak.
        versions: Versions,
    },
}

impl Role {
    /// Returns whether a version may be spoken.
    fn allows(&self, version: Version) -> bool {
        match self {
            Self::Client { versions, .. } => versions.allows(version),
            Self::Server { versions } => versions.contains(version),
        }
    }

    /// Returns the side of the connection that the end is.
    #[must_use]
    pub fn side(&self) -> Side {
        match self {
            Self::Client { .. } => Side::Client,
            Self::Server { .. } => Side::Server,
        }
    }
}

/// The configuration of one connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// The options that both ends choose.
    pub options: Options,
    /// The maximum number of outstanding calls from client to server: [`Options::credits`] or
    /// fewer.
    pub credits: u32,
    /// The maximum number of outstanding calls from server to client: [`CallbackOptions::credits`]
    /// or fewer.
    pub callbacks: u32,
    /// The maximum number of receives for the second and later messages of replies:
    /// [`Options::spare_receives`] or fewer.
    pub spare_receives: u32,
    /// The maximum number of bytes of fetched chunks that all unanswered calls of the peer may hold
    /// together. Further calls wait.
    pub max_fetched: u64,
    /// Number of arguments of each procedure of this end that may be in read chunks ("reduced").
    pub reduced_arguments: ReducedArguments,
    /// Length of the longest segment, bytes: [`Options::max_segment`] or what the device allows.
    pub max_segment: u64,
    /// The structure of the first receives. The driver needs it to post them.
    pub receives: ReceiveStructure,
    /// Whether there is memory for receives in which data is placed, if an extension wants such.
    pub may_place: bool,
    /// Whether there is memory for the receives that the parts of incomplete calls hold
    /// ([`Protocols::held_by_a_call`]).
    pub may_hold_calls: bool,
    /// The pool that provides memory for chunks.
    pub pool: Pool,
    /// Length in bytes of the longest message whose memory the driver does not count, if it counts that of longer
    /// ones for as long as anybody holds it: receives that all connections share, and copies of messages. A call
    /// that waits for memory is not charged for that to the account of `pool`. With `None`, the driver counts none.
    pub longest_uncounted: Option<usize>,
    /// The address of the peer, for logs, if it is known.
    pub peer: Option<SocketAddr>,
    /// The observer of its calls, if they are traced.
    pub trace: Option<Tracer>,
    /// The handle by which the connection's policy of granting is asked again. A driver that has none
    /// leaves policies with what they said at the events of their own connections.
    pub ask_again: Option<AskAgain>,
}

impl Config {
    /// Returns the configuration of a client with the default options, which accepts no calls.
    #[must_use]
    pub fn client(pool: Pool, protocols: Protocols) -> Self {
        let role = Role::Client {
            versions: Choice::default(),
            evidence: None,
            patience: Self::DEFAULT_PATIENCE,
            last_xid: 0,
        };
        Self::new(role, Options::client(protocols), pool)
    }

    /// Returns the configuration of a server with the default options, which makes no calls.
    #[must_use]
    pub fn server(pool: Pool, protocols: Protocols) -> Self {
        let versions = Versions::default();
        Self::new(Role::Server { versions }, Options::server(protocols), pool)
    }

    /// The default time to wait for a server's answer to the first message.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(5);

    /// Returns a configuration with these options. Receives are long enough for every version that
    /// `role` allows.
    #[must_use]
    pub fn new(role: Role, options: Options, pool: Pool) -> Self {
        Self {
            credits: options.credits,
            callbacks: options.callbacks.credits,
            spare_receives: options.spare_receives,
            max_fetched: match &role {
                Role::Client { .. } => u64::from(options.max_message),
                Role::Server { .. } => Self::DEFAULT_MAX_FETCHED,
            },
            reduced_arguments: ReducedArguments::ANY,
            max_segment: u64::from(options.max_segment),
            receives: options.receives(|version| role.allows(version)),
            may_place: true,
            may_hold_calls: true,
            pool,
            longest_uncounted: None,
            peer: None,
            trace: None,
            ask_again: None,
            role,
            options,
        }
    }

    /// Restricts the connection to this version.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        match &mut self.role {
            Role::Client { versions, .. } => *versions = Choice::Only(version),
            Role::Server { versions } => *versions = Versions::only(version),
        }
        self.receives = self.options.receives(|version| self.role.allows(version));
        self
    }

    /// Makes a client accept calls from its server, or a server make calls to its clients (RFC
    /// 8167). Both ends must be configured for it.
    #[must_use]
    pub fn with_callbacks(mut self, callbacks: CallbackOptions) -> Self {
        self.options.callbacks = callbacks;
        self.callbacks = callbacks.credits;
        self
    }

    /// Returns the number of receives that the first action of a [`Connection`](crate::Connection)
    /// requests. A driver that must not run out of memory for them can allocate them beforehand.
    #[must_use]
    pub fn first_receives(&self) -> u32 {
        let callbacks = match self.role.side() {
            Side::Client => self.callbacks,
            // Posted before the first callback.
            Side::Server => 0,
        };
        let credits = self.credits.saturating_add(callbacks);
        credits.saturating_add(BEYOND_CREDITS)
    }

    /// The default of [`Config::max_fetched`] of a server, bytes.
    pub const DEFAULT_MAX_FETCHED: u64 = 64 << 20;

    /// Returns the limits for planning on a connection that sends messages of up to `send` bytes
    /// and receives messages of up to `receive` bytes.
    pub(crate) fn limits(&self, dialect: &dyn Dialect, send: u32, receive: u32) -> Limits {
        Limits {
            inline_send: u64::from(send),
            inline_receive: u64::from(receive),
            max_segment: self.max_segment,
            max_message: u64::from(self.options.max_message),
            chunks: ChunkLimits {
                // The codecs of this project take no more in a list. Versions 1 and 2 of 2016 have no way
                // to announce a limit.
                segments: MAX_CHUNK_SEGMENTS as u32,
                write_chunks: MAX_WRITE_CHUNKS as u32,
                ..ChunkLimits::default()
            },
            header_len: dialect.header_len(),
            call_chunk: dialect.has_call_chunk(),
        }
    }

    /// Returns the length of the longest message that this end sends in version 2, whatever the
    /// peer can receive, bytes.
    pub(crate) fn max_send(&self) -> u32 {
        let inline = self.options.inline_send.max(FIRST_MESSAGE_MAX);
        let allows = |version| self.role.allows(version);
        inline.max(self.options.protocols.max_send(allows))
    }

    /// Returns what extensions are told of this end.
    pub(crate) fn end(&self) -> EndConfig<'_> {
        let options = &self.options;
        EndConfig {
            side: self.role.side(),
            credits: self.credits,
            callbacks: self.callbacks,
            callback_chunks: options.callbacks.chunks,
            receives: &self.receives,
            may_place: self.may_place,
            may_hold_calls: self.may_hold_calls,
            max_receive_size: options.max_receive_size,
            max_send: self.max_send(),
            max_message: options.max_message,
            max_segment: u32::try_from(self.max_segment).unwrap_or(u32::MAX),
            max_segments: MAX_SEGMENTS,
            remote_invalidation: options.remote_invalidation,
            costs: &options.costs,
        }
    }

    pub(crate) fn dialect(&self, version: Version) -> Option<&'static dyn Dialect> {
        self.options.protocols.dialects(|it| it == version).next()
    }
}

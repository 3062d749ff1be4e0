//! A relay of ONC RPC: clients connect to it by TCP or RPC-over-RDMA, and for each it connects to a server
//! by TCP or RPC-over-RDMA.
//!
//! A [`Relay`] works on RPC messages, below the code that makes calls and above connections. It changes
//! no byte of a message: XID, credential and verifier pass as they are, because RPCSEC_GSS signs them
//! (RFC 2203, section 5.3.1), and so does everything of programs that nobody here knows. What it decides
//! is how a message travels: which of its items may be placed, and how long the reply may become. An
//! upper-layer binding tells ([`reduction`]).
//!
//! One call is answered here: a client's question whether its connection may be encrypted (RFC 9289), because
//! what would follow is no RPC. It is told no.
//!
//! Each client's connection has a connection to the server of its own, for calls in both directions:
//! NFSv4.1 binds sessions to connections, and its callbacks come back the same way. The two are a pair. When
//! the server's connection ends, replies that have arrived leave, and the client's is closed. When the
//! client's ends, calls that have arrived are passed on and answered before the server's is closed, so
//! that a server's reply cache knows them when the client returns.
//!
//! # Memory
//!
//! The calls of a client and the replies that wait for it are charged to the account of its connection
//! ([`rpcrdma_host::Budget`]), and room for each reply is set aside before its call is passed on. While
//! there is none, calls wait; the transport then takes no more from the client, by credits or by the window of
//! TCP. Nothing is copied if both transports have one memory pool.

#![forbid(unsafe_code)]

mod calls;
mod kinds;
mod outgoing;
mod pair;
mod relay;
mod traced;

pub use nfs_binding::reduction;

pub use kinds::{Kinds, OnKind, Treatment};
pub use outgoing::{Origin, Outgoing};
pub use relay::{Relay, RelayOptions, RelayStats};

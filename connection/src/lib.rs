//! The protocol state of one RPC-over-RDMA connection, as `quinn_proto::Connection` is for QUIC.
//!
//! A [`Connection`] owns the requester, the responder, the extensions and the version negotiation
//! of one connection, at a client or at a server, for calls in both directions (RFC 8166, RFC 8167,
//! both versions 2). It does no I/O, has no clock, and knows no device: a *driver* posts its work
//! requests, registers its memory, and passes events to it.
//!
//! # How a connection is driven
//!
//! The driver tells the connection what happens, and executes the actions that it asks for. Its
//! methods may be called at any time and in any order: what cannot be done yet waits, and what has
//! become pointless is ignored. Two orders matter. Messages and completions are passed on in the
//! order in which the device reports them, and actions are executed in the order in which
//! [`Connection::poll_action`] returns them. Nothing is lost: an action stays until it is taken, a
//! call of the peer is delivered once, and a call of this end ends exactly once, by
//! [`Action::Finished`] with its reply or an error, by [`Connection::cancel`], or with the
//! connection. Errors of the peer and of memory end a call or the connection; no method panics
//! because of them.
//!
//! 1. Make the connection with [`Connection::new`], and execute its first action, which asks for
//!    receives. They must be posted before the transport connection is established or accepted,
//!    since messages may arrive from then on.
//! 2. Tell it that the transport connection is established with [`Event::Established`], before any
//!    message. Calls may be made earlier; they wait.
//! 3. Tell it what happens with [`Connection::handle`], make and cancel calls with
//!    [`Connection::call`] and [`Connection::cancel`], and answer each call of the peer
//!    ([`Action::Deliver`]) once with [`Connection::reply`], also if there is nothing to reply.
//! 4. After each step, take actions with [`Connection::poll_action`] until there are none, and
//!    execute them. Some are answered by an event, at once or later, as the table says.
//! 5. Then ask [`Connection::poll_timeout`] when [`Connection::handle_timeout`] has to be called. If
//!    something waits for memory ([`Connection::waits_for_memory`]), call [`Connection::retry`] when
//!    some is free. Step 4 follows both.
//! 6. When the transport connection is lost or closed, so that its peer can reach no memory any more, tell it
//!    with [`Event::Closed`], execute the last actions, and drop it together with all memory that is
//!    registered for it. The last actions report the replies that had arrived, whose memory was still to
//!    be invalidated. Calls that have not ended are over with that, and no action says so. Those that were made while the version was
//!    not known can be handed to the next connection ([`Connection::into_pending_calls`]).
//!
//! | action | what the driver does | answered by |
//! |---|---|---|
//! | [`PostReceives`](Action::PostReceives) | keeps `count` more receives posted | [`Event::ReceivesPosted`], at once |
//! | [`ReleaseReceives`](Action::ReleaseReceives) | does not repost the next `count` consumed receives | |
//! | [`ReplaceReceives`](Action::ReplaceReceives) | posts receives of another structure from now on | [`Event::ReceivesReplaced`], when none of the old ones is left |
//! | [`Register`](Action::Register) | registers memory that the peer may read or write | [`Event::Registered`], at once or later |
//! | [`Send`](Action::Send), [`Write`](Action::Write) | posts the work request | |
//! | [`Read`](Action::Read) | posts the work request | [`Event::ReadDone`], on its completion |
//! | [`Invalidate`](Action::Invalidate) | posts the work request | [`Event::Reclaimed`], on its completion |
//! | [`Reclaim`](Action::Reclaim) | reclaims memory whose handle the peer, or the end of the connection, has invalidated | [`Event::Reclaimed`], at once or later |
//! | [`Deliver`](Action::Deliver) | passes the call to the upper layer | [`Connection::reply`] |
//! | [`Finished`](Action::Finished) | reports the result to the caller | |
//! | [`Decided`](Action::Decided), [`Misjudged`](Action::Misjudged) | reconnects if necessary | |
//! | [`Close`](Action::Close) | closes the connection | [`Event::Closed`] |
//!
//! A handle that the peer invalidated with a Send comes with [`Event::Received`], and an action to
//! reclaim its memory follows. A call is finished only after the peer can reach none of its memory.
//!
//! This crate counts receives and knows no buffers: actions say how many receives the driver must
//! keep posted. The queue pair keeps the order of work requests, and the connection relies on that:
//! an RDMA Write is placed before the Send that was posted after it arrives.
//!
//! # Versions, and calls from server to client
//!
//! [`Config::client`] speaks version 2 where the server does, and version 1 otherwise;
//! [`Config::server`] speaks what its client begins with. [`Config::with_version`] fixes one, and
//! [`Config::with_callbacks`] allows calls from server to client (RFC 8167), for which both ends
//! must be configured. A server then uses [`Connection::call`] as a client does. In version 1, a
//! client that accepts no calls discards them and cannot report that: the server must end them
//! after a time-out with [`Connection::cancel`].
//!
//! # Example
//!
//! A client calls a server; version negotiation selects version 2. The messages are short, so that
//! no memory is registered:
//!
//! ```
//! use onc_rpc::{AcceptStatus, CallHeader, Credential, Message, ReplyHeader, Verifier};
//! use rdma::{Pool, Time};
//! use rpcrdma_connection::{Action, Config, Connection, Event, ReplyRoom};
//!
//! let (pool, now) = (Pool::new(1 << 20), Time::ZERO);
//! let client = Connection::new(Config::client(pool.clone(), rpcrdma_protocols::base()));
//! let server = Connection::new(Config::server(pool, rpcrdma_protocols::base()));
//! let mut ends = [client, server];
//! for end in &mut ends {
//!     // Drivers post the receives that the first action asks for, and then connect or accept.
//!     while let Some(Action::PostReceives { id, .. }) = end.poll_action(16) {
//!         end.handle(now, Event::ReceivesPosted { id, posted: true });
//!     }
//!     end.handle(now, Event::Established { peer: None });
//! }
//! let (xid, prog, vers, proc) = (7, 100_003, 3, 0);
//! let (cred, verf) = (Credential::None, Verifier::default());
//! let call = CallHeader { xid, prog, vers, proc, cred, verf };
//! ends[0].call(xid, Message::from_payload(call.encode()), &ReplyRoom::default())?;
//!
//! let mut reply = None;
//! while reply.is_none() {
//!     for (at, peer) in [(0, 1), (1, 0)] {
//!         // There is always room in the send queue of this example.
//!         while let Some(action) = ends[at].poll_action(16) {
//!             match action {
//!                 Action::Send { gather: message, invalidate: invalidated, .. } => {
//!                     ends[peer].handle(now, Event::Received { message, invalidated });
//!                 }
//!                 Action::Deliver { id, .. } => {
//!                     let reply = ReplyHeader::accepted(xid, AcceptStatus::Success).encode();
//!                     ends[at].reply(now, id, Some(Message::from_payload(reply)));
//!                 }
//!                 Action::Finished { result, .. } => reply = Some(result?),
//!                 Action::Decided(decision) => println!("{decision}"),
//!                 other => panic!("nothing is registered or placed here: {other:?}"),
//!             }
//!         }
//!     }
//! }
//! assert_eq!(reply.map(|message| message.payload_len()), Some(24));
//! assert!(ends[0].decision().is_some_and(|decision| decision.to_string().starts_with("version 2")));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/callback.rs` does the same with memory to register and with a call from server to
//! client.

// The phases of a connection are in connection.rs; state that is valid in one phase only is in that
// phase. An open connection (open.rs) has a requester, a responder, or both. The versions are in
// dialect/. Plans are made by functions (plan.rs, and the crate `transfer_plan` for the base
// protocol).

#![forbid(unsafe_code)]

mod action;
mod collected;
mod config;
mod connection;
mod error;
mod features;
mod given;
mod group;
mod memory;
mod moved;
mod open;
mod plan;
mod protocols;
mod receives;
mod reduced_arguments;
mod reply_room;
mod requester;
mod responder;
mod shared;

pub mod dialect;
pub mod flow;

// What configurations and inspection are made of.
pub use rpcrdma_chunks::{Direction, Side};
pub use rpcrdma_extension::layout::{BadStructure, ReceiveSegment, ReceiveStructure};
pub use rpcrdma_extension::{AgreedFeatures, NotChanged, agreed};
pub use rpcrdma_negotiation::{Choice, Evidence, Version, VersionDecision, Versions};
pub use rpcrdma_v1::PrivateData;
pub use rpcrdma_v2_wg::Properties;
pub use transfer_plan::{CostModel, ReplyNeed, Shape};

pub use action::{Action, CallId, Event, ReadId, ReceivesId, RegistrationId};
pub use config::{CallbackOptions, Config, Options, Role};
pub use connection::Connection;
pub use error::CallError;
pub use moved::{Moved, MovedBytes};
pub use plan::ConsideredMode;
pub use protocols::Protocols;
pub use receives::{BEYOND_CREDITS, EXTRA_RECEIVES, REPOST_LATER, receive_memory};
pub use reduced_arguments::ReducedArguments;
pub use reply_room::ReplyRoom;
pub use requester::{PendingCalls, RequesterCounters};
pub use responder::ResponderCounters;

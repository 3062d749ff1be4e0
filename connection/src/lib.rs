//! The protocol state of one RPC-over-RDMA connection.

#![forbid(unsafe_code)]

mod action;
mod config;
mod connection;
mod error;
mod extended;
mod features;
mod id_map;
mod memory;
mod open;
mod plan;
mod receives;
mod reply_room;
mod requester;
mod responder;
mod shared;

pub mod dialect;
pub mod round_trips;

pub use action::{Action, CallId, Event, ReadId, ReceivesId, RegistrationId};
pub use config::{CallbackOptions, Config, MakeExtension, Options, Role};
pub use connection::Connection;
pub use error::CallError;
pub use extended::Extended;
pub use id_map::IdMap;
pub use plan::Considered;
pub use receives::{
    BEYOND_CREDITS, BadStructure, EXTRA_RECEIVES, REPOST_LATER, ReceiveSegment, ReceiveStructure,
};
pub use reply_room::ReplyRoom;
pub use requester::{PendingCalls, RequesterCounters};
pub use responder::ResponderCounters;

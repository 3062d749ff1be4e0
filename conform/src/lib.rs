//! A judge for servers and clients of RPC-over-RDMA, of any make. That for clients is in [`client`]; the rest is about
//! servers.
//!
//! A *case* ([`case::Case`]) is data: an address (`rfc8166/4.5.2/3`), a level, one sentence of what is sent,
//! one of what must come, and a script of steps: octets that are sent, memory that is offered, and
//! expectations. [`cases`] has the tables, [`run`] performs one case on a connection of its own, over iWARP
//! or, by [`endpoint`], over a device; [`judge`] performs many, and [`report`] has what they found. [`wire`] encodes messages from the
//! figures of the specifications, and shares nothing with the codecs of the product: an error in one of
//! those would be repeated. Cases can also be read from files ([`mod@file`]), in the words of XDR files
//! ([`vocabulary`], [`xdr`]).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use rpcrdma_conform::case::Ground;
//! use rpcrdma_conform::cases;
//! use rpcrdma_conform::judge::{Selection, judge};
//! use rpcrdma_conform::run::Server;
//!
//! let server = Server {
//!     address: "127.0.0.1:20049".parse()?,
//!     patience: Duration::from_secs(5),
//!     watcher: None,
//!     dial: None,
//! };
//! // These cases use no file. For others, make a folder and a file, and give their handles to `Ground::new`.
//! let selection = Selection {
//!     only: vec!["rfc8166/4.5.1".into()],
//!     ..Selection::default()
//! };
//! let cases = cases::all(&Ground::without_files(1));
//! let report = judge(&cases, &selection, &server, &mut |entry| {
//!     println!("{entry}");
//!     true
//! });
//! println!("{} passed", report.tally(false).passed);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! No case connects to any address but the one in its [`case::Ground`]. The cases of [`cases`] call only NFSv3
//! procedures, only on the file and the folder that the ground names; those of files call what they say. If nothing may
//! be written, [`read_only`] finds the cases that can be performed. Deviations that are known already ([`known`]) do not
//! count.

#![forbid(unsafe_code)]

pub mod about;
pub mod case;
pub mod cases;
pub mod characteristics;
pub mod client;
mod connection_wg;
pub mod dialect;
mod difference;
pub mod endpoint;
mod exchange;
pub mod expect;
pub mod fields;
pub mod file;
pub mod judge;
pub mod known;
mod memory;
pub mod octets;
pub mod operation;
pub mod pattern;
pub mod peer;
mod private_data;
pub mod read_only;
pub mod report;
pub mod run;
pub mod stream;
pub mod vocabulary;
pub mod watch;
pub mod wire;
pub mod xdr;

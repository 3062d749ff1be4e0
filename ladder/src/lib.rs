//! Ladder diagrams of calls over RDMA, as text for a terminal and as SVG.
//!
//! A [`Picture`] has one [`Ladder`] for each call, side by side on one scale of time. A ladder has two
//! life lines with [`Arrow`]s between them (messages and RDMA operations) and [`Mark`]s on them
//! (interrupts, registrations, waits). Pictures are plain values: this crate knows neither devices nor
//! protocols, and the same picture gives the same text and the same SVG everywhere.
//!
//! ```
//! use std::time::Duration;
//! use rpcrdma_ladder::{Arrow, ArrowKind, Ladder, Picture, Side, TextOptions, text};
//!
//! let us = Duration::from_micros;
//! let arrow = |from, start, name: &str| Arrow {
//!     from,
//!     start: us(start),
//!     end: us(start + 5),
//!     octets: 100,
//!     kind: ArrowKind::Send,
//!     name: name.to_owned(),
//!     critical: true,
//! };
//! let picture = Picture {
//!     title: "A call".to_owned(),
//!     ladders: vec![Ladder {
//!         name: "v2".to_owned(),
//!         arrows: vec![arrow(Side::Left, 0, "call"), arrow(Side::Right, 7, "reply")],
//!         took: us(12),
//!         ..Ladder::default()
//!     }],
//!     notes: Vec::new(),
//! };
//! let drawn = text(&picture, &TextOptions::default());
//! assert!(drawn.contains("call") && drawn.contains("12.0 µs"));
//! ```

#![forbid(unsafe_code)]

mod bounded;
mod group;
mod model;
mod scale;
mod svg;
mod text;
mod words;

pub use model::{Arrow, ArrowKind, Ladder, Mark, MarkKind, Picture, Side};
pub use svg::{Style, svg};
pub use text::{TextOptions, text};

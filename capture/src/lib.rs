//! Captures of the traffic of RDMA devices, as pcapng files that stock Wireshark reads as iWARP
//! over TCP, without privileges.
//!
//! A [`Capture`] is a file. [`Capture::tap`] makes an observer of a device ([`rdma::Tap`]) that
//! adds each connection of the device as a TCP connection of its own:
//!
//! * a device that shows its TCP streams, `rdma-iwarp`: its bytes, each FPDU in a segment of its
//!   own;
//! * a device that shows its messages, `rdma-sim`, or that is observed by
//!   [`Reconstructed`], such as `rdma-core-device`: the FPDUs that an iWARP device would send
//!   (RFC 5040, 5041, 5044), with CRCs.
//!
//! A device behind an emulated link ([`rdma::middleware::Linked`]) is shown as a packet capture at
//! this side's end of the link would show it: [`CaptureTap::behind`] corrects the times of a device
//! that shows its streams, and [`Reconstructed`] is put around the link.
//!
//! Ethernet, IP and TCP headers, handshakes and acknowledgements are made here. Times are those of
//! the devices' clock with one offset, in nanoseconds. The file has a maximum length, and keeps as
//! much of each packet as [`Limits`] say.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use rdma::{Frame, QpId, Tap, Time};
//! use rdma_capture::{Capture, Limits, Origin};
//!
//! let told = Box::new(|why: &rdma_capture::Stopped| eprintln!("{why}"));
//! let capture = Capture::create(Path::new("all.pcapng"), Limits::default(), 0, told)?;
//! let tap = capture.tap("iwarp", Origin::Stream);
//! // device.set_tap(Box::new(tap));
//! # Ok::<_, std::io::Error>(())
//! ```
//!
//! The crate has no thread.

#![forbid(unsafe_code)]

mod capture;
mod checksum;
mod file;
mod flow;
mod fpdu;
mod link;
mod packet;
mod reconstructed;
mod splitter;
mod tap;

pub use capture::Capture;
pub use file::{LEAST_SIZE, LEAST_SNAP, Limits, OnStop, Origin, Stopped, WHOLE};
pub use reconstructed::Reconstructed;
pub use tap::CaptureTap;

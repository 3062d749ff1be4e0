//! Devices that wrap a device.
//!
//! Each adds one thing, and is a [`Device`](crate::Device) itself, so they stack in any order. A
//! boxed device is a device too.

mod counting;
mod edited;
mod forward;
mod link;
mod linked;
mod tapped;

#[cfg(test)]
mod fake;

pub use counting::Counting;
pub use edited::Edited;
pub use link::{Delay, ParseLinkError, Rate, Shaper};
pub use linked::Linked;
pub use tapped::{Posted, Tapped};

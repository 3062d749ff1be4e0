//! Devices that wrap another device.
//!
//! Each adds one function and implements [`Device`](crate::Device) itself, so they can be stacked
//! in any order. A boxed device is also a device.

mod edited;
mod forward;
mod link;
mod linked;
mod tapped;

#[cfg(test)]
mod fake;

pub use edited::Edited;
pub use link::{Delay, ParseLinkError, Rate, Shaper};
pub use linked::Linked;
pub use tapped::{Posted, Tapped};

//! Devices that wrap a device.

mod link;

pub use link::{Delay, ParseLinkError, Rate, Shaper};

//! What goes between the process that measures and those that it starts: orders and answers.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::conveyance::Serves;

/// What asks for a [`Usage`](crate::usage::Usage) over the control channel.
pub(crate) const USAGE: &str = "usage";

/// What a child is to serve, and how: its last argument, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// A conveyance's name, or the floor's.
    pub(crate) serves: String,
    /// The device under RPC-over-RDMA, as it is named in options.
    pub(crate) device: String,
    /// How it offers memory to its peer, as options have it.
    pub(crate) registration: String,
    /// Address to listen on.
    pub(crate) listen: IpAddr,
    /// Delay of what this side sends.
    pub(crate) delay: Duration,
    /// Rate of what this side sends, bits per second.
    pub(crate) rate: Option<u64>,
    /// Bytes of receives, in version 2.
    pub(crate) inline: u32,
    /// Whether iWARP frames have checksums.
    pub(crate) crc: bool,
    /// Whether to spin instead of sleeping.
    pub(crate) busy_poll: bool,
    /// What everything costs, as options have it.
    pub(crate) costs: Option<String>,
    /// The only processor to use.
    pub(crate) processor: Option<usize>,
}

impl Served {
    /// Raw TCP exchanges, which nothing but the address matters for.
    pub(crate) fn baseline(listen: IpAddr) -> Self {
        Self {
            serves: Serves::FLOOR.to_owned(),
            device: String::new(),
            registration: String::new(),
            listen,
            delay: Duration::ZERO,
            rate: None,
            inline: 0,
            crc: false,
            busy_poll: false,
            costs: None,
            processor: None,
        }
    }
}

/// The first line of a child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    /// Where.
    pub(crate) address: SocketAddr,
}

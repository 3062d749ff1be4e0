//! The options of a comparison.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use rpcrdma_setup::Failure;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceName, Policy};

use crate::variant::Variant;

/// The permitted receive sizes in version 2, in bytes: from its minimum to the maximum that private
/// data can express in version 1.
const INLINE: RangeInclusive<u32> = 4096..=262_144;

/// An operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum OpName {
    /// The NULL procedure
    Null,
    /// Attributes of a file
    Getattr,
    /// Reading from a file
    Read,
    /// Writing to a file, unstable
    Write,
    /// A long reply: 64 KiB of a large directory, none of it DDP-eligible
    Readdirplus,
    /// A long call: 64 KiB that are not DDP-eligible, to a program of this project's own
    LongCall,
    /// The same with a reply as long
    LongBoth,
    /// Copying a generated tree there and back
    Tree,
}

impl OpName {
    /// All operations.
    pub const ALL: [Self; 8] = [
        Self::Null,
        Self::Getattr,
        Self::Read,
        Self::Write,
        Self::Readdirplus,
        Self::LongCall,
        Self::LongBoth,
        Self::Tree,
    ];
}

/// The options of a comparison. The default is that of `rpcrdma compare` without options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Device under RPC-over-RDMA; [`DeviceName::Sim`] counts in a simulation instead of measuring.
    pub device: DeviceName,
    /// The method by which a verbs device registers memory for its peer.
    pub registration: Policy,
    /// The address of this machine that all servers listen on, including the TCP baseline.
    pub address: IpAddr,
    /// The transports and variants to compare.
    pub via: Vec<Variant>,
    /// The operations to measure.
    pub ops: Vec<OpName>,
    /// The sizes of READ and WRITE, in bytes.
    pub sizes: Vec<u64>,
    /// The number of calls per latency figure. `None`: as many as the time allows.
    pub count: Option<u32>,
    /// The time to spend on one figure.
    pub time: Duration,
    /// The delay of the link in each direction. If it is zero, round trips are measured with a
    /// millisecond, and everything else without delay.
    pub delay: Duration,
    /// A shell command that makes the network delay packets by its argument; this program then adds
    /// no delay.
    pub set_delay: Option<String>,
    /// The rate of the link in each direction, in bits per second.
    pub rate: Option<u64>,
    /// The receive size of both sides in version 2, in bytes.
    pub inline: u64,
    /// Whether iWARP frames have CRCs.
    pub crc: bool,
    /// Whether both sides spin instead of sleeping.
    pub busy_poll: bool,
    /// Whether the client and the servers are pinned to one processor each.
    pub pin: bool,
    /// Whether round trips are measured.
    pub round_trips: bool,
    /// Whether ratios to version 1 are measured exactly, as checking predictions requires. On a
    /// busy machine this takes longer.
    pub exact: bool,
    /// The costs by which transfer modes are chosen and latencies predicted.
    pub costs: Option<CostsArg>,
    /// Whether costs are measured even if no prediction needs them.
    pub save_costs: bool,
    /// Arguments that make this program call [`serve_child`](crate::serve_child) with the argument
    /// after them. Each server is a separate process that is started in this way.
    pub child: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: DeviceName::Iwarp,
            registration: Policy(None),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            via: Variant::ALL.to_vec(),
            ops: OpName::ALL.to_vec(),
            sizes: vec![1 << 10, 4 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20],
            count: None,
            time: Duration::from_millis(200),
            delay: Duration::ZERO,
            set_delay: None,
            rate: None,
            inline: 4096,
            crc: false,
            busy_poll: false,
            pin: true,
            round_trips: true,
            exact: false,
            costs: None,
            save_costs: false,
            child: Vec::new(),
        }
    }
}

impl Options {
    /// Removes duplicates from the lists, which would be measured twice and give each row twice.
    pub(crate) fn distinct(mut self) -> Self {
        keep_first(&mut self.via);
        keep_first(&mut self.ops);
        keep_first(&mut self.sizes);
        self
    }
}

fn keep_first<T: Copy + PartialEq>(list: &mut Vec<T>) {
    let mut seen = Vec::with_capacity(list.len());
    list.retain(|&item| {
        let new = !seen.contains(&item);
        seen.push(item);
        new
    });
}

/// Returns the receive size in version 2, in bytes.
///
/// # Errors
/// The requested size is not permitted.
pub fn inline_size(asked: u64) -> Result<u32, Failure> {
    match u32::try_from(asked) {
        Ok(size) if INLINE.contains(&size) => Ok(size),
        _ => {
            let (low, high) = (INLINE.start(), INLINE.end());
            let text = format!("--inline {asked}: not from {low} to {high}");
            Err(Failure::Usage(text))
        }
    }
}

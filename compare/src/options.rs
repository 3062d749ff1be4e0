//! What is to be measured, and how.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use rpcrdma_setup::Failure;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceName, Policy};

use crate::conveyance::Conveyance;

/// Sizes that receives can have in version 2, bytes: its least, and the most that private data can
/// say in version 1.
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
    /// All of them.
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

/// What is measured, and how. The default is what `rpcrdma compare` does without options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Device under RPC-over-RDMA; [`DeviceName::Sim`] counts in a simulation instead of measuring.
    pub device: DeviceName,
    /// How a verbs device offers memory to its peer.
    pub registration: Policy,
    /// Address of this machine that the servers listen on, the floor's included.
    pub address: IpAddr,
    /// What NFS is carried over.
    pub via: Vec<Conveyance>,
    /// What is measured.
    pub ops: Vec<OpName>,
    /// Sizes of READ and WRITE, bytes.
    pub sizes: Vec<u64>,
    /// Calls per latency figure, instead of as many as the time allows.
    pub count: Option<u32>,
    /// Time to spend on one figure.
    pub time: Duration,
    /// Delay of the link, each way. With none, round trips are measured with a millisecond, and all
    /// else without delay.
    pub delay: Duration,
    /// A shell command that has the network delay, instead of this program, by its argument.
    pub set_delay: Option<String>,
    /// Rate of the link, bits per second, each way.
    pub rate: Option<u64>,
    /// Bytes of the receives of both sides, in version 2.
    pub inline: u64,
    /// Whether iWARP frames have checksums.
    pub crc: bool,
    /// Whether both sides spin instead of sleeping.
    pub busy_poll: bool,
    /// Whether client and servers each get a processor of their own.
    pub pin: bool,
    /// Whether round trips are measured.
    pub round_trips: bool,
    /// Whether ratios to version 1 are to be exact, as those are by which predictions are checked:
    /// it takes longer where the machine is busy.
    pub exact: bool,
    /// What everything costs, by which ways to convey a message are chosen and predicted.
    pub costs: Option<CostsArg>,
    /// Whether what everything costs is measured even where no prediction takes it.
    pub save_costs: bool,
    /// Arguments that have this program call [`serve_child`](crate::serve_child) with the argument
    /// after them. Servers are processes of their own, which it starts so.
    pub child: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: DeviceName::Iwarp,
            registration: Policy(None),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            via: Conveyance::ALL.to_vec(),
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
    /// The same with what is listed twice listed once: it would be measured twice, and each row be
    /// there twice.
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

/// Bytes of receives, in version 2.
///
/// # Errors
/// They are asked for with another size than they can have.
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

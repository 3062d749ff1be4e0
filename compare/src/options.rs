//! The options of a comparison.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use rdma::trace::Trace;
use rdma_capture::Capture;
use rpcrdma_host::CongestionControl;
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::Tuning;
use rpcrdma_setup::congestion::check_congestion;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceName, Policy};
use rpcrdma_setup::units::show_size;

use crate::variant::{Receives, Variant};

/// The permitted sizes of messages without chunks in version 2, in bytes: those that private data
/// can express in version 1. Receives are never shorter than 4096 bytes in version 2
/// (version-two-01, section 2.3), so a smaller size limits only what is sent.
pub(crate) const INLINE: RangeInclusive<u32> = 1024..=262_144;

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
    /// The workloads of this name in the catalog of [`Options::tuning`]
    #[cfg_attr(feature = "clap", value(skip))]
    Added(&'static str),
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

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Getattr => "getattr",
            Self::Read => "read",
            Self::Write => "write",
            Self::Readdirplus => "readdirplus",
            Self::LongCall => "long-call",
            Self::LongBoth => "long-both",
            Self::Tree => "tree",
            Self::Added(name) => name,
        }
    }
}

/// The options of a comparison. The default is that of `rpcrdma compare` without options: what
/// answers in a minute what version 2 gains. [`Options::full`] measures everything.
#[derive(Clone, Debug)]
pub struct Options {
    /// Device under RPC-over-RDMA; [`DeviceName::Sim`] counts in a simulation instead of measuring.
    pub device: DeviceName,
    /// The method by which a verbs device registers memory for its peer.
    pub registration: Policy,
    /// The address of this machine that all servers listen on, including the TCP baseline.
    pub address: IpAddr,
    /// The other host whose [`serve_remote`](crate::serve_remote) starts all servers; `None` if they are
    /// processes of this machine.
    pub server: Option<SocketAddr>,
    /// The transports and variants to compare.
    pub via: Vec<Variant>,
    /// The operations to measure.
    pub ops: Vec<OpName>,
    /// The sizes of READ and WRITE, in bytes.
    pub sizes: Vec<u64>,
    /// Numbers of operations that each client has in flight. If there are any, or several clients or
    /// arrivals, rows have latencies and counts with these in flight, and are the only ones.
    pub in_flight: Vec<u32>,
    /// The numbers of clients, each with a connection.
    pub clients: Vec<u32>,
    /// Rates at which operations of all clients together begin, whether others have ended or not: so
    /// many in a second, at random times.
    pub arrivals: Vec<f64>,
    /// The number of calls per latency figure, rounded up to a multiple of the nine rounds. With
    /// several in flight, a client makes at least four times as many calls in each round. Round
    /// trips take at most 21 of them over each link, rounded up to a multiple of three. `None`: as
    /// many as the time allows.
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
    /// The size of the longest message without chunks in version 2, in bytes, and of both sides'
    /// receives if that is at least 4096.
    pub inline: u64,
    /// The lengths of receives, in bytes, that all variants have in turn, instead of their usual ones.
    pub receives: Vec<u32>,
    /// The selections for both ends of all variants, beside what distinguishes these.
    pub tuning: Tuning,
    /// Whether iWARP frames have CRCs.
    pub crc: bool,
    /// The congestion control of all TCP connections: of the iwarp device, of NFS over TCP, and of
    /// the baseline. `None`: `cubic`, or `reno` where this process may not choose that.
    pub congestion: Option<CongestionControl>,
    /// Whether both sides spin instead of sleeping.
    pub busy_poll: bool,
    /// Whether NULL is also measured spinning, and all figures are printed instead of the answer
    /// alone.
    pub full: bool,
    /// Whether latencies are predicted, for which costs that are not given are measured first.
    pub predict: bool,
    /// Whether the client and the servers are pinned to one processor each.
    pub pin: bool,
    /// Whether round trips are measured.
    pub round_trips: bool,
    /// Whether ratios to the baseline are measured exactly, as checking predictions requires. On a
    /// busy machine this takes longer.
    pub exact: bool,
    /// The costs by which transfer modes are chosen and latencies predicted.
    pub costs: Option<CostsArg>,
    /// Whether costs are measured even if no prediction needs them.
    pub save_costs: bool,
    /// The capture to which the traffic of the clients over RDMA is added.
    pub capture: Option<Capture>,
    /// The observer of calls, if they are traced: of the clients by the clock, and of all hosts of a
    /// simulation, with their own clocks.
    pub trace: Option<Trace>,
    /// The commit that this program was built from, for the conditions of the rows.
    pub commit: Option<String>,
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
            server: None,
            via: vec![
                Variant::Tcp,
                Variant::V1Inv,
                Variant::V1Long,
                Variant::V2Cont,
                Variant::V2DdpCont,
            ],
            ops: vec![OpName::Null, OpName::Read, OpName::Write],
            sizes: vec![8 << 10, 1 << 20],
            in_flight: Vec::new(),
            clients: vec![1],
            arrivals: Vec::new(),
            count: None,
            time: Duration::from_millis(500),
            delay: Duration::ZERO,
            set_delay: None,
            rate: None,
            inline: 4096,
            receives: Vec::new(),
            tuning: Tuning::default(),
            crc: false,
            congestion: None,
            busy_poll: false,
            full: false,
            predict: false,
            pin: true,
            round_trips: true,
            exact: false,
            costs: None,
            save_costs: false,
            capture: None,
            trace: None,
            commit: None,
            child: Vec::new(),
        }
    }
}

impl Options {
    /// Returns the options of `rpcrdma compare --full`: all variants, operations and figures.
    #[must_use]
    pub fn full() -> Self {
        Self {
            via: Variant::ALL.to_vec(),
            ops: OpName::ALL.to_vec(),
            sizes: vec![1 << 10, 4 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20],
            time: Duration::from_millis(200),
            full: true,
            predict: true,
            ..Self::default()
        }
    }

    /// Returns the lengths of receives: the first of [`Options::receives`], or the usual ones.
    ///
    /// # Errors
    /// A size is not permitted.
    pub(crate) fn receive_lengths(&self) -> Result<Receives, Failure> {
        match self.receives.first() {
            Some(&size) => Ok(Receives::Equal(size)),
            None => inline_size(self.inline).map(Receives::Usual),
        }
    }

    /// Returns whether a delay or rate is added to the link, by this program or by the network. There
    /// are no ratios to the TCP baseline then.
    pub(crate) fn slows(&self) -> bool {
        !self.delay.is_zero() || self.rate.is_some()
    }

    /// Checks that costs to be saved are this machine's own: over a link with an added delay or rate the file would
    /// have these too, and `costs` of a later comparison would add them once more. A network whose delay a command sets
    /// has none while costs are measured, unless `delay` is given.
    ///
    /// # Errors
    /// The options that contradict each other.
    pub(crate) fn check_costs(&self) -> Result<(), Failure> {
        if self.save_costs && self.slows() {
            let text =
                "--save-costs: not with --delay or --rate: the file has this machine's own costs";
            return Err(Failure::Usage(text.to_owned()));
        }
        match self.device {
            // The simulation has costs of its own.
            DeviceName::Sim => Ok(()),
            _ => CostsArg::load(self.costs.as_ref()).map(drop),
        }
    }

    /// Decides on the congestion control, which is never left to the system: its default differs
    /// between machines.
    ///
    /// # Errors
    /// The system does not have the one that was asked for, or this process may not choose it.
    pub(crate) fn decide_congestion(&mut self) -> Result<(), Failure> {
        if let Some(asked) = &self.congestion {
            return check_congestion(asked);
        }
        for name in ["cubic", "reno"] {
            let usual: CongestionControl = name.parse().map_err(Failure::Work)?;
            if usual.check().is_ok() {
                self.congestion = Some(usual);
                return Ok(());
            }
        }
        let text = "this system has neither cubic nor reno: choose its congestion control with --congestion";
        Err(Failure::Work(text.to_owned()))
    }

    /// Checks that nothing is listed twice: it would be measured twice and have each row twice.
    ///
    /// # Errors
    /// The option and the value that it names twice.
    pub(crate) fn check_distinct(&self) -> Result<(), Failure> {
        let twice = |option: &str, value: &dyn fmt::Display| {
            Err(Failure::Usage(format!("{option}: {value} is there twice")))
        };
        if let Some(via) = repeated(&self.via) {
            return twice("--via", &via.name());
        }
        if let Some(op) = repeated(&self.ops) {
            return twice("--ops", &op.name());
        }
        if let Some(size) = repeated(&self.receives) {
            return twice("--receives", &show_size(size.into()));
        }
        if let Some(calls) = repeated(&self.in_flight) {
            return twice("--in-flight", &calls);
        }
        if let Some(clients) = repeated(&self.clients) {
            return twice("--clients", &clients);
        }
        if let Some(rate) = repeated(&self.arrivals) {
            return twice("--arrivals", &rate);
        }
        match repeated(&self.sizes) {
            Some(size) => twice("--sizes", &show_size(size)),
            None => Ok(()),
        }
    }
}

/// Returns the first value that is in the list before.
fn repeated<T: Copy + PartialEq>(list: &[T]) -> Option<T> {
    let mut values = list.iter().enumerate();
    let again = values.find(|(index, value)| list[..*index].contains(value));
    again.map(|(_, value)| *value)
}

/// Returns whether receives can have this length: private data expresses it in steps of 1 KiB.
pub(crate) fn is_permitted(size: u32) -> bool {
    INLINE.contains(&size) && size.is_multiple_of(*INLINE.start())
}

/// Returns the size of the longest message without chunks in version 2, in bytes; receives have at
/// least 4096.
///
/// # Errors
/// The requested size is not permitted.
pub(crate) fn inline_size(asked: u64) -> Result<u32, Failure> {
    match u32::try_from(asked) {
        Ok(size) if is_permitted(size) => Ok(size),
        _ => {
            let (low, high) = (INLINE.start(), INLINE.end());
            let text = format!("--inline {asked}: not from {low} to {high} in steps of {low}");
            Err(Failure::Usage(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_costs_of_the_machine_itself_are_saved() {
        let is_refused = |delay, set_delay: Option<&str>, rate| {
            let options = Options {
                delay: Duration::from_millis(delay),
                set_delay: set_delay.map(str::to_owned),
                rate,
                save_costs: true,
                ..Options::default()
            };
            crate::Comparison::new(options).is_err()
        };
        assert!(!is_refused(0, None, None));
        assert!(!is_refused(0, Some("true"), None));
        assert!(is_refused(1, None, None));
        assert!(is_refused(1, Some("true"), None));
        assert!(is_refused(0, None, Some(1 << 30)));
    }

    #[test]
    fn receives_have_whole_kibibytes() {
        assert_eq!(inline_size(66_560).unwrap(), 66_560);
        for size in [0, 1000, 70_000, 262_145, 1 << 40] {
            let refused = inline_size(size).unwrap_err().to_string();
            assert!(
                refused.contains("1024 to 262144 in steps of 1024"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_delay_of_the_network_slows_the_link_as_well() {
        let options = |delay, set_delay: Option<&str>, rate| Options {
            delay: Duration::from_millis(delay),
            set_delay: set_delay.map(str::to_owned),
            rate,
            ..Options::default()
        };
        assert!(!options(0, None, None).slows());
        assert!(!options(0, Some("true"), None).slows());
        assert!(options(1, Some("true"), None).slows());
        assert!(options(1, None, None).slows());
        assert!(options(0, None, Some(1 << 30)).slows());
    }
}

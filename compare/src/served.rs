//! The requests and answers between the measuring process and the server processes that it starts.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rpcrdma_host::CongestionControl;
use rpcrdma_setup::Failure;
use serde::{Deserialize, Serialize};

use crate::run::{Phase, Preset};
use crate::variant::{Receives, Serves};

/// The request to suspend a server. It is not answered, like [`RESUME`].
pub(crate) const PAUSE: &str = "pause";
/// The request to continue a server.
pub(crate) const RESUME: &str = "resume";
/// The request for a [`Usage`](crate::usage::Usage) over the control channel.
pub(crate) const USAGE: &str = "usage";
/// The request for the number of calls of each NFS procedure that have arrived.
pub(crate) const PROCEDURES: &str = "procedures";

/// The request for the round trips of all calls that a gateway has passed on, by count. It ends counting.
pub(crate) const TRIPS: &str = "trips";

/// The task of a child process: its last argument, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// To serve.
    Serve(Served),
    /// To pass messages on.
    Relay(Relayed),
    /// To mount.
    Mount(Attach),
    /// To do a part of a preset of `--run` in the current directory.
    Preset(Preset, Phase),
}

/// The service that a child process must provide, with its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    /// The name of a transport or variant, or of the baseline.
    pub(crate) serves: String,
    /// The device under RPC-over-RDMA, by its name in options.
    pub(crate) device: String,
    /// The method by which the device registers memory, by its name in options.
    pub(crate) registration: String,
    /// The address to listen on.
    pub(crate) listen: IpAddr,
    /// The delay of everything that this side sends.
    pub(crate) delay: Duration,
    /// The rate at which this side can send, in bits per second.
    pub(crate) rate: Option<u64>,
    /// The lengths of receives.
    pub(crate) receives: Receives,
    /// Whether iWARP frames have CRCs.
    pub(crate) crc: bool,
    /// The congestion control of TCP connections.
    pub(crate) congestion: Option<String>,
    /// Whether to spin instead of sleeping.
    pub(crate) busy_poll: bool,
    /// The costs, in the form of the option.
    pub(crate) costs: Option<String>,
    /// The policy of granting and the settings of both ends.
    pub(crate) tuning: (String, String),
    /// The processor to pin the child to, if any.
    pub(crate) processor: Option<usize>,
}

impl Served {
    /// Returns the settings of the TCP baseline, which needs only the address and the congestion
    /// control.
    pub(crate) fn baseline(listen: IpAddr, congestion: Option<String>) -> Self {
        Self {
            serves: Serves::FLOOR.to_owned(),
            device: String::new(),
            registration: String::new(),
            listen,
            delay: Duration::ZERO,
            rate: None,
            receives: Receives::Usual(0),
            crc: false,
            congestion,
            busy_poll: false,
            costs: None,
            tuning: Default::default(),
            processor: None,
        }
    }
}

/// The end of a pair of gateways that listens by TCP, or that connects to the server by TCP. The other side of it is
/// RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PairEnd {
    /// The first gateway, which clients connect to.
    First,
    /// The last one, which connects to the server.
    Last,
}

/// The gateway that a child process must be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Relayed {
    /// The settings of the side with RPC-over-RDMA, and where to listen.
    pub(crate) between: Served,
    /// The gateway's position in the pair.
    pub(crate) end: PairEnd,
    /// The next gateway, or the server.
    pub(crate) to: SocketAddr,
    /// Whether the first gateway counts the round trips of calls.
    pub(crate) counts_trips: bool,
}

/// The mount that a process must provide.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attach {
    /// The name of the transport or variant.
    pub(crate) variant: String,
    /// The device under RPC-over-RDMA, by its name in options.
    pub(crate) device: String,
    /// The method by which the device registers memory, by its name in options.
    pub(crate) registration: String,
    /// The address of the server.
    pub(crate) server: SocketAddr,
    /// The delay of everything that this side sends.
    pub(crate) delay: Duration,
    /// The rate at which this side can send, in bits per second.
    pub(crate) rate: Option<u64>,
    /// The receive size in version 2, in bytes.
    pub(crate) inline: u64,
    /// Whether iWARP frames have CRCs.
    pub(crate) crc: bool,
    /// The congestion control of TCP connections.
    pub(crate) congestion: Option<String>,
    /// The costs, in the form of the option.
    pub(crate) costs: Option<String>,
    /// The policy of granting and the settings of both ends.
    pub(crate) tuning: (String, String),
    /// The mount options of the user.
    pub(crate) mount_options: String,
}

/// Writes an answer to the process that has started this one.
///
/// # Errors
/// The process that asked has ended.
pub(crate) fn answer(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(Failure::work)?;
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}

/// Returns the congestion control of a request.
///
/// # Errors
/// The name cannot be that of an algorithm.
pub(crate) fn congestion(name: Option<&String>) -> Result<Option<CongestionControl>, Failure> {
    let parsed = name.map(|name| name.parse()).transpose();
    parsed.map_err(Failure::Usage)
}

/// The first line of a child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    /// The address on which the child listens.
    pub(crate) address: SocketAddr,
}

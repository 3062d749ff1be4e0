//! Processes and connections that are measured together: one benchmark target for each transport or
//! variant.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nfs_binding::client::NfsUrl;
use rpc_transport::rdma::{Choice, RdmaClientOptions};
use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::Failure;
use rpcrdma_setup::access::{Access, LinkOptions};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceChoice, DeviceName};
use rpcrdma_setup::mount_options::{MountOptions, Proto};

use crate::benchmark_target::BenchTarget;
use crate::child::ChildProcess;
use crate::environment::Environment;
use crate::network::Network;
use crate::options::Options;
use crate::rows::{Conditions, Mode};
use crate::served::{Listening, Served, Task};
use crate::summary;
use crate::variant::Variant;

/// The export of a server process.
pub(crate) const EXPORT: &[u8] = b"/memory";

/// Starts the server of the TCP baseline, and returns the process and its address.
///
/// # Errors
/// The server does not start.
pub(crate) fn start_baseline(setting: &Setting<'_>) -> Result<(ChildProcess, SocketAddr), Failure> {
    let served = Served {
        processor: setting.processors.map(|(_, server)| server),
        ..Served::baseline(setting.options.address, congestion_name(setting.options))
    };
    let mut child = start_server("floor", setting.options, served)?;
    let listening: Listening = child.answer()?;
    Ok((child, listening.address))
}

/// Starts a server process, here or on the other host.
fn start_server(name: &str, options: &Options, served: Served) -> Result<ChildProcess, Failure> {
    let task = Task::Serve(served);
    match options.server {
        Some(host) => ChildProcess::start_on(host, name, &task),
        None => ChildProcess::start(name, &options.child, &task),
    }
}

/// Returns the name of the congestion control that servers use.
fn congestion_name(options: &Options) -> Option<String> {
    options.congestion.as_ref().map(ToString::to_string)
}

/// The conditions of a row that are not options: processors, congestion control, machine.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The processors of the client and of the servers.
    pub(crate) processors: Option<(usize, usize)>,
    /// The congestion control that the system granted to TCP connections.
    pub(crate) congestion: Option<&'a str>,
    /// The machine and the program.
    pub(crate) environment: &'a Environment,
}

/// Returns the conditions of the calls over one transport or variant. `registration` is how the
/// client's device registers memory.
///
/// # Errors
/// The receive size is not permitted, or the costs cannot be read.
pub(crate) fn conditions(
    options: &Options,
    surroundings: Surroundings<'_>,
    variant: Variant,
    registration: Option<&'static str>,
) -> Result<Conditions, Failure> {
    let Surroundings {
        processors,
        congestion,
        environment,
    } = surroundings;
    let rdma = variant.version().is_some();
    let framed = rdma && options.device == DeviceName::Iwarp;
    let over_tcp = !rdma || framed;
    let costs = options.costs.as_ref().filter(|_| rdma);
    Ok(Conditions {
        inline_bytes: variant.longest_inline(options.receive_lengths()?, &options.tuning),
        rate_bits_per_s: options.rate,
        crc: framed.then_some(options.crc),
        congestion_control: congestion.filter(|_| over_tcp).map(str::to_owned),
        registration,
        processor_requester: processors.map(|(client, _)| client),
        processor_responder: processors.map(|(_, server)| server),
        device_kind: rdma.then(|| summary::kind(&options.device)),
        loopback: over_tcp.then_some(options.server.is_none()),
        delayed_by: summary::delayed_by(options),
        costs: costs.map(given_costs).transpose()?,
        settings: summary::settings(options).filter(|_| rdma),
        environment: environment.clone(),
    })
}

/// Returns the costs of a list or a file as a list, in the order of their names.
fn given_costs(given: &CostsArg) -> Result<String, Failure> {
    let entries = given.entries();
    let mut entries = entries
        .map_err(|error| Failure::Usage(format!("--costs {error}")))?
        .entries;
    entries.sort_unstable();
    let list: Vec<String> = entries
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    Ok(list.join(","))
}

/// The settings that benchmark targets share.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Device, link rate and checksums.
    pub(crate) options: &'a Options,
    /// Sleeping or spinning.
    pub(crate) mode: Mode,
    /// The delay that this program adds to the link in each direction.
    pub(crate) delay: Duration,
    /// The network that makes the delay, if this program does not.
    pub(crate) network: Option<&'a Network>,
    /// The operations to perform, whose objects must be created.
    pub(crate) ops: &'a [Arc<dyn Workload>],
    /// The processors of the client and of the servers.
    pub(crate) processors: Option<(usize, usize)>,
    /// The congestion control that the system granted to TCP connections.
    pub(crate) congestion: Option<&'a str>,
    /// The machine and the program.
    pub(crate) environment: &'a Environment,
}

/// Starts a server for each transport or variant and connects to it.
///
/// # Errors
/// A server does not start, or cannot be reached.
pub(crate) fn start_targets(setting: &Setting<'_>) -> Result<Vec<BenchTarget>, Failure> {
    let via = setting.options.via.iter();
    via.map(|&variant| {
        let bench = bench(setting, variant)?;
        if setting.mode.is_busy() {
            // Only the target whose turn it is runs.
            bench.pause()?;
        }
        Ok(bench)
    })
    .collect()
}

/// Starts a server for one transport or variant and connects to it.
///
/// # Errors
/// The server does not start, or cannot be reached.
pub(crate) fn bench(setting: &Setting<'_>, variant: Variant) -> Result<BenchTarget, Failure> {
    let &Setting {
        options,
        mode,
        delay,
        ops,
        processors,
        ..
    } = setting;
    let served = served(options, variant, delay, mode.is_busy())?;
    let served = Served {
        processor: processors.map(|(_, server)| server),
        ..served
    };
    let mut child = start_server(variant.name(), options, served)?;
    let listening: Listening = child.answer()?;
    let access = access(options, variant, delay, mode.is_busy())?;
    let address = listening.address;
    let url = NfsUrl {
        server: address.ip().to_string(),
        port: Some(address.port()),
        path: EXPORT.to_vec(),
    };
    let mounted = access.mount(&url)?;
    let registration = mounted.reached.registration();
    let surroundings = Surroundings {
        processors,
        congestion: setting.congestion,
        environment: setting.environment,
    };
    let conditions = conditions(options, surroundings, variant, registration)?;
    let reached = (mounted, (access, url));
    BenchTarget::new(variant, options, child, reached, conditions, ops)
}

/// Returns what a server process has to provide for one transport or variant, on any processor.
///
/// # Errors
/// The receive size is not permitted.
pub(crate) fn served(
    options: &Options,
    variant: Variant,
    delay: Duration,
    busy_poll: bool,
) -> Result<Served, Failure> {
    Ok(Served {
        serves: variant.name().to_owned(),
        device: options.device.to_string(),
        registration: options.registration.to_string(),
        listen: options.address,
        delay,
        rate: options.rate,
        receives: options.receive_lengths()?,
        crc: options.crc,
        congestion: congestion_name(options),
        busy_poll,
        // The other host does not have the file.
        costs: match (&options.costs, options.server) {
            (Some(costs), Some(_)) => Some(given_costs(costs)?),
            (costs, _) => costs.as_ref().map(ToString::to_string),
        },
        tuning: options.tuning.words(),
        processor: None,
    })
}

/// Returns how a client reaches a server by one transport or variant.
///
/// # Errors
/// The receive size is not permitted, or the costs cannot be read.
pub(crate) fn access(
    options: &Options,
    variant: Variant,
    delay: Duration,
    busy_poll: bool,
) -> Result<Access, Failure> {
    let mut rdma = RdmaClientOptions::new(rpcrdma_protocols::base());
    if let Some(version) = variant.version() {
        rdma.version = Choice::Only(version);
        let receives = options.receive_lengths()?;
        variant.configure(&mut rdma.common, receives, &options.tuning);
        options.tuning.settings.apply_to_client(&mut rdma);
    }
    let costs = CostsArg::load(options.costs.as_ref())?;
    Ok(Access {
        mount: MountOptions {
            proto: match variant.version() {
                Some(_) => Proto::Rdma,
                None => Proto::Tcp,
            },
            ..MountOptions::default()
        },
        rdma,
        costs,
        device: DeviceChoice {
            name: options.device.clone(),
            registration: options.registration,
            address: None,
            capture: options.capture.clone(),
            ..DeviceChoice::default()
        },
        link: LinkOptions {
            delay,
            rate: options.rate,
            busy_poll,
            crc: options.crc,
            congestion: options.congestion.clone(),
        },
        give_up_after: None,
        trace: (options.trace.clone()).map(|trace| trace.labelled(variant.name())),
        answers: None,
        interrupt: None,
    })
}

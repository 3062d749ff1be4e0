//! Two gateways between a client and a server that speak TCP.

use std::time::Duration;

use nfs_binding::client::NfsUrl;
use rpcrdma_setup::Failure;

use crate::benchmark_target::BenchTarget;
use crate::child::ChildProcess;
use crate::options::Options;
use crate::served::{Listening, PairEnd, Relayed, Served, Task};
use crate::targets::{self, EXPORT, Setting, Surroundings};
use crate::variant::Variant;

/// Starts a server, two gateways before it with `variant` between them, and connects to the first one. The delay and the
/// rate of `setting` are those between the gateways. The first gateway has the client's processor, as on the client's
/// host. With `counts_trips` it counts the round trips of calls.
///
/// # Errors
/// A process does not start, or cannot be reached.
pub(super) fn start(
    setting: &Setting<'_>,
    variant: Variant,
    counts_trips: bool,
) -> Result<BenchTarget, Failure> {
    let options = setting.options;
    let near = Options {
        rate: None,
        ..options.clone()
    };
    let served = |options: &Options, variant, delay, processor| {
        let served = targets::served(options, variant, delay, false)?;
        Ok::<_, Failure>(Served {
            processor,
            ..served
        })
    };
    let [of_client, of_server] = match setting.processors {
        Some((client, server)) => [Some(client), Some(server)],
        None => [None, None],
    };
    let begin = |name: &str, task| {
        let mut child = ChildProcess::start(name, &options.child, &task)?;
        let Listening { address } = child.answer()?;
        Ok::<_, Failure>((child, address))
    };
    let server = served(&near, Variant::Tcp, Duration::ZERO, of_server)?;
    let (server, address) = begin("server behind gateways", Task::Serve(server))?;
    let relay = |end, processor, to, counts_trips| {
        let between = served(options, variant, setting.delay, processor)?;
        let relayed = Relayed {
            between,
            end,
            to,
            counts_trips,
        };
        begin("gateway", Task::Relay(relayed))
    };
    let (last, address) = relay(PairEnd::Last, of_server, address, false)?;
    let (first, address) = relay(PairEnd::First, of_client, address, counts_trips)?;
    let access = targets::access(&near, Variant::Tcp, Duration::ZERO, false)?;
    let url = NfsUrl {
        server: address.ip().to_string(),
        port: Some(address.port()),
        path: EXPORT.to_vec(),
    };
    let mounted = access.mount(&url)?;
    let surroundings = Surroundings {
        processors: setting.processors,
        congestion: setting.congestion,
        environment: setting.environment,
    };
    let conditions = targets::conditions(options, surroundings, variant, None)?;
    let reached = (mounted, (access, url));
    let bench = BenchTarget::new(variant, options, server, reached, conditions, setting.ops)?;
    Ok(bench.behind(vec![first, last]))
}

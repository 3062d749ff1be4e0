//! The `gateway` command: a relay between clients and a server, until a signal.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use nfs_binding::server::Privileges;
use rdma::{Clock, Counters, Pool};
use rdma_capture::Capture;
use rpc_transport::limits::{self, Limits};
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{ServerTransport, Stop, TcpClient, TcpOptions, TcpServer};
use rpcrdma_gateway::reduction::{Direction, ReducerOptions};
use rpcrdma_gateway::{Outgoing, Relay, RelayOptions};
use rpcrdma_protocols::{RoundTripFeatures, Side};
use rpcrdma_setup::access::{Access, CALLBACKS, LinkOptions};
use rpcrdma_setup::catalog::{Catalog, Features, Tuning};
use rpcrdma_setup::congestion::check_congestion;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceChoice, DeviceName, Resources};
use rpcrdma_setup::mount_options::{MountOptions, Proto};
use rpcrdma_setup::{Context, Failure, units};

use crate::args::{Crc, Endpoint, GatewayArgs};
use crate::capture;
use crate::interrupt;
use crate::listening;
use crate::output;
use crate::trace;

/// Bytes of a record over TCP beside the results of a reply: the RPC header with its verifier.
const RECORD_HEADER: u32 = 64 << 10;
/// The number of descriptors of each client: its connection and the one to the server.
const DESCRIPTORS: usize = 2;
/// The memory for receives of each side over RDMA, as `serve` has it for its clients.
const RECEIVE_MEMORY: usize = 512 << 20;

/// Passes messages on until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// An address cannot be used, the server is unknown, or a device cannot be opened.
pub(crate) fn run(args: &GatewayArgs, catalog: &Catalog) -> Result<(), Failure> {
    let tuning = args.accepting.tuning.tuning(catalog)?;
    let has_rdma_clients = args.listen.iter().any(|it| it.proto == Proto::Rdma);
    check(args, &tuning, has_rdma_clients)?;
    let server = address(&args.to)?;
    let mut access = access(args, catalog, &tuning)?;
    let rdma_sides = usize::from(has_rdma_clients) + usize::from(args.to.proto == Proto::Rdma);
    let limits = resources(args, rdma_sides)?;
    let receives = limits.receives / rdma_sides.max(1);
    access.rdma.max_receive_memory = receives;
    let pairs = limits.connections;
    let gateway = Gateway {
        args,
        tuning: &tuning,
        pool: Pool::keeping(limits.budget.limit() + limits.receives, limits.kept),
        capture: capture::create(&args.accepting.capture, capture::Clock::Real)?,
        limits,
        receives,
    };
    let trace = trace::create(&args.trace, Clock::monotonic())?;
    // Before any thread is started, because each thread has privileges of its own.
    drop_privileges(args, &access)?;
    trace::write_regularly()?;
    capture::write_regularly(gateway.capture.as_ref())?;
    access.device.capture = gateway.capture.clone();
    access.device.resources = gateway.device_resources();
    let (outgoing, pool) = gateway.outgoing(&access, server)?;
    let (incoming, listening, rdma) = gateway.incoming(&pool)?;
    let options = RelayOptions {
        reducer: ReducerOptions {
            max_reply: args.max_reply,
            ..ReducerOptions::default()
        },
        max_pairs: pairs,
        trace,
        ..RelayOptions::new(server)
    };
    let relay = Relay::new(options, Rc::clone(&outgoing));
    let mut relay = relay.context("cannot set up polling")?;
    relay.set_busy_poll(args.accepting.busy_poll);
    for transport in incoming {
        let added = relay.listen(transport);
        added.context("cannot set up polling")?;
    }
    if args.explain {
        relay.explain(Box::new(|direction, kind, treatment| {
            let to = direction_name(direction);
            // The gateway goes on if the reader has gone.
            let _ = output::line(format_args!("explain: {to}{kind}: {treatment}"));
        }));
    }
    let stop = stop_on_signal()?;
    for line in listening {
        say(format_args!("{line} to {}", args.to))?;
    }
    relay.run(&stop).map_err(Failure::work)?;
    let answered = relay.drain(args.accepting.drain.0).map_err(Failure::work)?;
    if !answered {
        tracing::warn!(limit = ?args.accepting.drain.0, "ending without answers to calls in progress");
    }
    report(&relay, &*outgoing.borrow(), rdma.as_deref());
    tracing::info!("ended by a signal");
    Ok(())
}

/// Checks that options have an effect.
fn check(args: &GatewayArgs, tuning: &Tuning, has_rdma_clients: bool) -> Result<(), Failure> {
    let accepting = &args.accepting;
    let to_rdma = args.to.proto == Proto::Rdma;
    if !has_rdma_clients {
        let of_clients = [
            ("--rpcrdma", accepting.rpcrdma.is_some()),
            ("--features", accepting.features.is_some()),
            ("--inline", accepting.inline.is_some()),
            ("--device", accepting.device.is_some()),
            ("--registration", accepting.registration.is_some()),
            ("--crc", accepting.crc.is_some()),
        ];
        let effect = "only for --listen rdma:ADDR (-o has options of --to rdma:SERVER)";
        refuse_first(&of_clients, effect)?;
    }
    if !args.options.is_empty() && !to_rdma {
        let text = args.options.join(",");
        return Err(Failure::Usage(format!(
            "-o {text}: only for --to rdma:SERVER (connections of clients have options of their own, see --help)"
        )));
    }
    if !has_rdma_clients && !to_rdma {
        let tuned = tuning.given();
        let of_rdma = [
            ("--capture", accepting.capture.capture.is_some()),
            ("--delay", accepting.delay.is_some()),
            ("--rate", accepting.rate.is_some()),
            ("--costs", accepting.costs.is_some()),
            (tuned.unwrap_or_default(), tuned.is_some()),
        ];
        let effect = "only for what passes over RDMA, with --listen rdma:ADDR or --to rdma:SERVER";
        refuse_first(&of_rdma, effect)?;
    }
    accepting.check_crc()?;
    if has_rdma_clients {
        tuning.check_for(Side::Server)?;
    }
    if let Some(congestion) = &args.accepting.congestion {
        check_congestion(congestion)?;
    }
    Ok(())
}

/// Returns an error for the first of these options that is given, and says where it has an effect.
fn refuse_first(options: &[(&str, bool)], effect: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::Usage(format!("{name}: {effect}"))),
        None => Ok(()),
    }
}

/// Returns the first address of the server. It is found once, when the gateway begins.
fn address(to: &Endpoint) -> Result<SocketAddr, Failure> {
    let mut found = (to.host.as_str(), to.port)
        .to_socket_addrs()
        .context(format_args!("--to {to}: cannot find the server"))?;
    let none = || Failure::Work(format!("--to {to}: the server has no address"));
    found.next().ok_or_else(none)
}

/// Returns the parameters of connections to the server.
fn access(args: &GatewayArgs, catalog: &Catalog, tuning: &Tuning) -> Result<Access, Failure> {
    let text = args.options.join(",");
    let (mut mount, overridden) = MountOptions::parse_and_note(catalog, &text)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    for note in overridden {
        output::remark(format_args!("-o {note}"));
    }
    let rest = MountOptions {
        rpcrdma: None,
        features: None,
        inline: None,
        device: None,
        registration: None,
        client_address: None,
        ..mount.clone()
    };
    if rest != MountOptions::default() {
        let text = format!(
            "-o {text}: only rpcrdma=, features=, inline=, device=, registration= and clientaddr= are \
             options of a gateway"
        );
        return Err(Failure::Usage(text));
    }
    mount.proto = args.to.proto;
    let (tuning, costs) = match args.to.proto {
        Proto::Rdma => (tuning.clone(), args.accepting.costs.as_ref()),
        // They are for the clients.
        Proto::Tcp => (Tuning::of(catalog.clone()), None),
    };
    Access::tuned(mount, link(args, Proto::Rdma), costs, &tuning)
}

/// Returns the simulated link of connections of one kind.
fn link(args: &GatewayArgs, proto: Proto) -> LinkOptions {
    let is_rdma = proto == Proto::Rdma;
    LinkOptions {
        delay: if is_rdma {
            args.accepting.delay().0
        } else {
            Default::default()
        },
        rate: args.accepting.rate.filter(|_| is_rdma).map(|rate| rate.0),
        busy_poll: args.accepting.busy_poll,
        crc: false,
        congestion: args.accepting.congestion.clone(),
    }
}

/// Returns the limits of the gateway. Raises the soft limit on file descriptors to the hard limit.
///
/// # Errors
/// There are too few descriptors or too little memory for the requested connections.
fn resources(args: &GatewayArgs, rdma_sides: usize) -> Result<Limits, Failure> {
    let (descriptors, raised) = limits::raise_descriptors();
    if let Err(error) = raised {
        tracing::warn!(%error, descriptors, "cannot raise the limit on open files");
    }
    let memory = match args.accepting.memory_limit {
        Some(memory) => usize::try_from(memory).unwrap_or(usize::MAX),
        None => limits::default_memory(),
    };
    let receives = RECEIVE_MEMORY.saturating_mul(rdma_sides);
    // There are no files to open.
    let left = limits::most_connections(descriptors);
    let by_descriptors = usize::try_from(left).unwrap_or(usize::MAX) / DESCRIPTORS;
    let wanted = args.connections.unwrap_or(by_descriptors.max(1));
    if wanted > by_descriptors.max(1) {
        return Err(Failure::Usage(format!(
            "--connections {wanted}: a limit of {descriptors} open files is enough for {by_descriptors}, with as many \
             to the server: raise it (`ulimit -n`)"
        )));
    }
    let limits = Limits::without_reply_cache(memory, receives, wanted);
    let connections = limits.connections;
    if args.connections.is_some() && connections < wanted {
        return Err(Failure::Usage(format!(
            "--connections {wanted}: the memory limit ({}) guarantees each its memory only up to {connections}: raise \
             --memory-limit",
            units::show_size(memory as u64),
        )));
    }
    let receives = limits.receives;
    tracing::info!(memory, receives, descriptors, connections, "limits");
    Ok(limits)
}

/// Drops the privileges that are of no use for passing messages on. Reserved ports are bound whenever a
/// client connects.
fn drop_privileges(args: &GatewayArgs, access: &Access) -> Result<(), Failure> {
    let is_verbs = |name: &DeviceName| matches!(name, DeviceName::Verbs(_));
    let privileges = Privileges {
        directories: false,
        locked_memory: is_verbs(&args.accepting.device()) || is_verbs(&access.device.name),
        low_ports: true,
    };
    let dropped = privileges.drop_others();
    dropped.context("cannot give up the privileges that a gateway does not need")
}

/// The parts from which transports are made.
struct Gateway<'a> {
    args: &'a GatewayArgs,
    tuning: &'a Tuning,
    limits: Limits,
    /// Bytes for the receives of each side over RDMA.
    receives: usize,
    /// The memory of all transports, unless a verbs device has its own.
    pool: Pool,
    capture: Option<Capture>,
}

/// Transports that clients connect to, the lines that say where, and the one over RDMA, if there is one.
type Incoming = (
    Vec<Rc<RefCell<dyn ServerTransport>>>,
    Vec<String>,
    Option<Rc<RefCell<RdmaServer>>>,
);

impl Gateway<'_> {
    fn device_resources(&self) -> Resources {
        Resources {
            memory: self.limits.budget.limit() + self.limits.receives,
            kept: self.limits.kept,
            connections: self.limits.accepted(),
        }
    }

    fn tcp(&self, pool: &Pool) -> TcpOptions {
        TcpOptions {
            pool: pool.clone(),
            budget: self.limits.budget.clone(),
            max_record: self.args.max_reply.saturating_add(RECORD_HEADER),
            callbacks: true,
            max_connections: self.limits.accepted(),
            ..link(self.args, Proto::Tcp).tcp()
        }
    }

    /// Returns the transport to the server, and the memory from which it sends without a copy.
    fn outgoing(
        &self,
        access: &Access,
        server: SocketAddr,
    ) -> Result<(Rc<RefCell<dyn Outgoing>>, Pool), Failure> {
        if self.args.to.proto == Proto::Tcp {
            let tcp = TcpClient::new(self.tcp(&self.pool));
            return Ok((Rc::new(RefCell::new(tcp)), self.pool.clone()));
        }
        let rdma = access.rdma_transport(server, Some(self.pool.clone()))?;
        let pool = rdma.device().pool().clone();
        Ok((Rc::new(RefCell::new(rdma)), pool))
    }

    fn incoming(&self, pool: &Pool) -> Result<Incoming, Failure> {
        let mut transports: Vec<Rc<RefCell<dyn ServerTransport>>> = Vec::new();
        let mut lines = Vec::new();
        let mut rdma: Option<Rc<RefCell<RdmaServer>>> = None;
        for endpoint in &self.args.listen {
            let host = (endpoint.host.as_str(), endpoint.port);
            for address in listening::addresses(host, format_args!("--listen {endpoint}"), "")? {
                let cannot_listen = |error: io::Error| {
                    let option = format!("--listen {}", endpoint.with_port("PORT"));
                    listening::failure(address, endpoint.proto, &error, &option, "")
                };
                let line = match endpoint.proto {
                    Proto::Tcp => {
                        let tcp = TcpServer::bind(address, self.tcp(pool));
                        let tcp = tcp.map_err(cannot_listen)?;
                        let line = format!("listening tcp {}", tcp.local_addr());
                        transports.push(Rc::new(RefCell::new(tcp)));
                        line
                    }
                    Proto::Rdma => {
                        let server = match &rdma {
                            Some(server) => Rc::clone(server),
                            None => {
                                let server =
                                    Rc::new(RefCell::new(self.rdma_server(pool, address)?));
                                transports
                                    .push(Rc::clone(&server) as Rc<RefCell<dyn ServerTransport>>);
                                rdma.insert(server).clone()
                            }
                        };
                        let mut server = server.borrow_mut();
                        let heard = server.listen(address);
                        let heard =
                            heard.map_err(|error| cannot_listen(listening::of_system(error)))?;
                        let name = &server.device().attributes().name;
                        format!("listening rdma {heard} {name}")
                    }
                };
                lines.push(line);
            }
        }
        Ok((transports, lines, rdma))
    }

    /// Returns the transport for clients over RDMA, which does not listen yet.
    fn rdma_server(&self, pool: &Pool, address: SocketAddr) -> Result<RdmaServer, Failure> {
        let args = self.args;
        let choice = DeviceChoice {
            name: args.accepting.device(),
            registration: args.accepting.registration(),
            address: Some(address.ip()).filter(|ip| !ip.is_unspecified()),
            resources: self.device_resources(),
            pool: Some(pool.clone()),
            capture: self.capture.clone(),
            ..DeviceChoice::default()
        };
        choice.check()?;
        let link = LinkOptions {
            crc: args.accepting.crc.is_none_or(Crc::is_on),
            ..link(args, Proto::Rdma)
        };
        let device = link.device(&choice)?.device;
        let all = || Features::from(RoundTripFeatures::ALL);
        let features = args.accepting.features.clone().unwrap_or_else(all);
        let mut options = RdmaServerOptions {
            versions: args.accepting.rpcrdma.clone().unwrap_or_default(),
            max_receive_memory: self.receives,
            max_connections: self.limits.accepted(),
            budget: self.limits.budget.clone(),
            ..RdmaServerOptions::new(self.tuning.protocols(&features))
        };
        if let Some(sizes) = args.accepting.inline {
            self.tuning.check_beside_inline("--inline")?;
            sizes.apply(&mut options.common);
        }
        self.tuning.apply_to_server(&mut options);
        options.common.callbacks = CALLBACKS;
        let costs = CostsArg::load(args.accepting.costs.as_ref())?;
        let costs = costs.on_link(link.delay, link.rate);
        options.common.costs = costs.or_of(&device.attributes().costs).model();
        Ok(RdmaServer::new(device, options))
    }
}

/// Writes a line to standard output. The gateway goes on if the reader has gone.
fn say(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    match output::line(text) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "",
        Direction::Backward => "callback ",
    }
}

/// Returns a number of calls in words.
fn counted(calls: u64) -> String {
    match calls {
        1 => "1 call".to_owned(),
        _ => format!("{calls} calls"),
    }
}

/// Logs what was passed on, and prints the report on kinds of calls if there is one.
fn report(relay: &Relay, outgoing: &dyn Outgoing, rdma: Option<&RefCell<RdmaServer>>) {
    let stats = relay.stats();
    tracing::info!(
        clients = stats.clients,
        calls = stats.calls,
        replies = stats.replies,
        callbacks = stats.backward_calls,
        repeated = stats.repeated,
        failed = stats.failed,
        misplaced = stats.misplaced,
        stray = stats.stray,
        replaced = stats.replaced,
        refused = stats.full,
        "passed on"
    );
    let to_server = outgoing.counters();
    let to_clients = rdma.map_or_else(Counters::default, |rdma| rdma.borrow().counters());
    tracing::info!(
        to_server = to_server.copied_bytes,
        to_clients = to_clients.copied_bytes,
        "bytes copied"
    );
    let Some(kinds) = relay.kinds() else {
        return;
    };
    for (direction, kind, treatment) in kinds.by_calls() {
        let to = direction_name(direction);
        let (calls, reply) = (counted(treatment.calls), treatment.longest_reply);
        let items = treatment.longest_items;
        let _ = output::line(format_args!(
            "explained: {calls} {to}{kind}: {treatment}; longest reply {reply} bytes with its header, and {items} apart"
        ));
    }
    if kinds.others() > 0 {
        let _ = output::line(format_args!(
            "explained: {} of further kinds",
            counted(kinds.others())
        ));
    }
}

/// Returns a handle that the first SIGINT, SIGTERM or SIGHUP stops. A second one ends the process at once.
fn stop_on_signal() -> Result<Stop, Failure> {
    let stop = Stop::new();
    let on_signal = stop.clone();
    interrupt::on_signals(move |signal| match on_signal.is_stopped() {
        false => on_signal.stop(),
        true => interrupt::die(signal),
    })?;
    Ok(stop)
}

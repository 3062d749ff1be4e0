//! The `serve` command: exports over RDMA and TCP, until a signal.

use std::env;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nfs_binding::fs::{DirectIoBytes, MemoryFs};
use nfs_binding::proto::{MOUNT_PROGRAM, NFS_PROGRAM, status_of};
use nfs_binding::server::{
    Export, ExportOptions, ExportSpec, HandleKey, IdentityPolicy, NfsServer, Privileges,
};
use rdma::{Attributes, Clock};
use rpc_transport::limits::{self, Limits};
use rpc_transport::rdma::RdmaServerOptions;
use rpc_transport::{ServerGroup, ServerOptions, Stop};
use rpcrdma_programs::callbacks::Orders;
use rpcrdma_programs::workload::Workload;
use rpcrdma_protocols::{RoundTripFeatures, Side};
use rpcrdma_setup::access::{CALLBACKS, LinkOptions};
use rpcrdma_setup::catalog::{Catalog, Features};
use rpcrdma_setup::congestion::check_congestion;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceChoice, DeviceName, Resources};
use rpcrdma_setup::mount_options::Proto;
use rpcrdma_setup::{Context, Failure, units};

use crate::args::{Crc, ServeArgs, note_other_delay};
use crate::capture;
use crate::interrupt;
use crate::listening;
use crate::metrics;
use crate::output;
use crate::trace;
use loops::{Plan, Sockets};
use rpcbind::Way;
use threads::{FEW_CONNECTIONS, ThreadCount};

mod loops;
mod rpcbind;
mod threads;

/// The path of the memory file system's export.
const MEMORY_PATH: &str = "/memory";

/// Serves until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// An export or an address cannot be used.
pub(crate) fn run(args: &ServeArgs, catalog: &Catalog) -> Result<(), Failure> {
    let tuning = args.accepting.tuning.tuning(catalog)?;
    tuning.check_for(Side::Server)?;
    let versions = args.accepting.rpcrdma.clone().unwrap_or_default();
    let all = || Features::from(RoundTripFeatures::ALL);
    let features = args.accepting.features.clone().unwrap_or_else(all);
    let protocols = tuning.protocols(&features);
    if args.accepting.features.is_some()
        && !features.is_none()
        && !protocols.has_extensions(|version| versions.contains(version))
    {
        let text = format!("--features {features}: version 2 is wanted for that, see --rpcrdma");
        return Err(Failure::Usage(text));
    }
    args.accepting.check_crc()?;
    if args.direct_io && args.exports.is_empty() {
        let text = "--direct-io: only for directories, and there is no --export";
        return Err(Failure::usage(text));
    }
    let wanted = ThreadCount::new(args, threads::processors())?;
    let link = LinkOptions {
        delay: args.accepting.delay().0,
        rate: args.accepting.rate.map(|rate| rate.0),
        busy_poll: args.accepting.busy_poll,
        crc: args.accepting.crc.is_none_or(Crc::is_on),
        congestion: args.accepting.congestion.clone(),
    };
    if let Some(congestion) = &args.accepting.congestion {
        check_congestion(congestion)?;
    }
    let (limits, loops, files) = limits(args, &wanted)?;
    match &wanted.single_reason {
        Some(why) => tracing::info!(why, "one thread serves all connections"),
        None => tracing::info!(threads = loops, "threads that serve connections"),
    }
    let key = key(args)?;
    let mut options = ServerOptions {
        workers: usize::from(args.workers),
        max_jobs: ServerOptions::default().max_jobs.div_ceil(loops),
        max_connections: limits.connections,
        reply_cache_bytes: limits.reply_cache,
        busy_poll: args.accepting.busy_poll,
        callbacks: args.callbacks,
        count_calls: args.metrics.metrics.is_some().then_some(status_of),
        ..ServerOptions::default()
    };
    let receives = limits.receives / loops;
    let mut rdma_options = RdmaServerOptions {
        versions,
        max_receive_memory: receives,
        max_connections: limits.accepted(),
        budget: limits.budget.clone(),
        give_back_after: Some(GIVE_BACK_AFTER),
        ..RdmaServerOptions::new(protocols)
    };
    let costs = CostsArg::load(args.accepting.costs.as_ref())?;
    let costs = costs.on_link(
        args.accepting.delay().0,
        args.accepting.rate.map(|rate| rate.0),
    );
    note_other_delay(args.accepting.delay(), &costs.model());
    if let Some(sizes) = args.accepting.inline {
        tuning.check_beside_inline("--inline")?;
        sizes.apply(&mut rdma_options.common);
    }
    tuning.apply_to_server(&mut rdma_options);
    if args.callbacks {
        rdma_options.common.callbacks = CALLBACKS;
    }
    let addresses = addresses(&args.listen)?;
    let mut device = DeviceChoice {
        name: args.accepting.device(),
        registration: args.accepting.registration(),
        // An unspecified address leaves the choice of a verbs device open.
        address: addresses.first().copied().filter(|ip| !ip.is_unspecified()),
        resources: Resources {
            memory: limits.budget.limit().saturating_add(receives),
            kept: limits.kept / 2 / loops,
            connections: limits.accepted(),
        },
        ..DeviceChoice::default()
    };
    device.check()?;
    device.capture = capture::create(&args.accepting.capture, capture::Clock::Real)?;
    options.trace = trace::create(&args.trace, Clock::monotonic())?;
    let is_software = args.accepting.device() == DeviceName::Iwarp;
    let port = is_software.then_some(args.port);
    if port == Some(args.tcp_port) && args.tcp_port != 0 {
        return Err(Failure::Usage(format!(
            "--port and --tcp-port are both {}: device iwarp runs over TCP as well, so each needs a port of its own",
            args.tcp_port
        )));
    }
    let congestion = args.accepting.congestion.as_ref();
    let listen = || Sockets::listen(&addresses, port, args.tcp_port, congestion);
    // Some ports and some congestion control algorithms are for privileged processes alone. (A
    // socket that has an algorithm can be given it again without privilege.) If none is asked for,
    // the ports are bound only after the exports have been opened.
    let is_privileged = |port: u16| (1..FIRST_UNPRIVILEGED_PORT).contains(&port);
    let early =
        congestion.is_some() || is_privileged(args.tcp_port) || port.is_some_and(is_privileged);
    let listening = early.then(listen).transpose()?;
    let metrics = metrics::listener(args.metrics.metrics)?;
    let rpcbind = rpcbind::way(args.rpcbind, &addresses, args.tcp_port)?;
    // This comes before any thread is started, because each thread has privileges of its own.
    drop_privileges(args, rpcbind)?;
    capture::write_regularly(device.capture.as_ref())?;
    trace::write_regularly()?;
    let (exports, places): (Vec<_>, Vec<_>) = exports(args, &key, files)?.into_iter().unzip();
    let described = exports.iter().zip(places);
    let described = described.map(|(export, place)| {
        let Export { path, options, .. } = export;
        format!("export {path} {options} {place}")
    });
    let exported: Vec<String> = described.collect();
    let direct = exports
        .iter()
        .filter(|export| export.backend.direct_io().is_some());
    let direct: Vec<_> = direct
        .map(|export| (export.path.clone(), Arc::clone(&export.backend)))
        .collect();
    let trusted = args.trusted.iter().copied();
    let policy = trusted.fold(
        IdentityPolicy::of_this_process(),
        IdentityPolicy::with_trusted_user,
    );
    let service = NfsServer::with_policy(exports, key, policy)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let sockets = match listening {
        Some(sockets) => sockets,
        None => listen()?,
    };
    let programs = programs(args, catalog)?;
    let plan = Plan {
        group: ServerGroup::new(loops, &options),
        options,
        service,
        orders: Orders::new(),
        programs,
        link,
        device,
        rdma: rdma_options,
        costs,
        limits,
        addresses,
        ports: (args.port, args.tcp_port),
        sockets,
        metrics,
        rpcbind,
        drain: args.accepting.drain.0,
    };
    let stop = stop_on_signal()?;
    plan.run(&stop, &exported)?;
    for (path, backend) in direct {
        if let Some(bytes) = backend.direct_io() {
            output::complain(format_args!("export {path}: {}", direct_io(bytes)));
        }
    }
    for (lock, times) in rpcrdma_host::contended_locks() {
        tracing::info!(lock, times, "a thread waited for another one");
    }
    tracing::info!("ended by a signal");
    Ok(())
}

/// Returns the programs to serve beside NFS.
fn programs(args: &ServeArgs, catalog: &Catalog) -> Result<Vec<Arc<dyn Workload>>, Failure> {
    let mut programs: Vec<Arc<dyn Workload>> = Vec::new();
    for name in &args.programs {
        let program = catalog.workload(name);
        let program = program.map_err(|error| Failure::Usage(format!("--program: {error}")))?;
        let is_there = programs.iter().any(|known| known.name() == name);
        if is_there || program.service().is_none() {
            let text = match is_there {
                true => format!("--program: {name} is there twice"),
                false => format!("--program {name}: its calls are of NFS, which is served anyway"),
            };
            return Err(Failure::Usage(text));
        }
        programs.push(Arc::clone(program));
    }
    distinct_numbers(&programs)?;
    Ok(programs)
}

/// Checks that each program has a number of its own: servers serve the first that has a number.
fn distinct_numbers(programs: &[Arc<dyn Workload>]) -> Result<(), Failure> {
    let nfs = [NFS_PROGRAM, MOUNT_PROGRAM];
    let mut known: Vec<(u32, &str)> = nfs.map(|prog| (prog, "NFS")).into();
    for program in programs {
        let service = program.service();
        let served = service.iter().flat_map(|it| it.programs());
        let own: Vec<(u32, &str)> = served.map(|it| (it.prog, program.name())).collect();
        for &(prog, name) in &own {
            if let Some((_, other)) = known.iter().find(|(taken, _)| *taken == prog) {
                return Err(Failure::Usage(format!(
                    "--program {name}: it has the program number {prog}, as {other} has"
                )));
            }
        }
        known.extend(own);
    }
    Ok(())
}

/// The first port that every user may bind, unless the administrator has lowered it.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Drops the privileges that are of no use for serving, now that the files of the command line are
/// open and ports that need privileges are bound.
fn drop_privileges(args: &ServeArgs, rpcbind: Option<Way>) -> Result<(), Failure> {
    let is_verbs = matches!(args.accepting.device(), DeviceName::Verbs(_));
    let privileges = Privileges {
        directories: !args.exports.is_empty(),
        locked_memory: is_verbs,
        // The connection manager binds the port later, when a loop listens, and rpcbind is called from
        // one when the server begins and ends.
        low_ports: is_verbs && args.port < FIRST_UNPRIVILEGED_PORT
            || rpcbind == Some(Way::Loopback),
    };
    let dropped = privileges.drop_others();
    dropped.context("cannot give up the privileges that serving does not need")
}

/// How long after the end of a connection free memory is returned to the system: not in the middle of
/// many ends, and well within a minute.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(10);

/// The minimum number of descriptors of a server. With fewer, it lacks them for the files of a call and for
/// asking who has connected.
const LEAST_DESCRIPTORS: u64 = 64;

/// Returns the limits of the server, the number of its loops, and the number of descriptors for
/// files. Raises the soft limit on file descriptors to the hard limit.
///
/// # Errors
/// There are too few descriptors for the requested threads, or too few descriptors or too little
/// memory for the requested connections.
fn limits(args: &ServeArgs, wanted: &ThreadCount) -> Result<(Limits, usize, u64), Failure> {
    let (descriptors, raised) = limits::raise_descriptors();
    if let Err(error) = raised {
        tracing::warn!(%error, descriptors, "cannot raise the limit on open files");
    }
    if descriptors < LEAST_DESCRIPTORS {
        return Err(Failure::Usage(format!(
            "a limit of {descriptors} open files is too low for a server: at least {LEAST_DESCRIPTORS} are needed \
             (`ulimit -n`)"
        )));
    }
    let memory = match args.accepting.memory_limit {
        Some(memory) => usize::try_from(memory).unwrap_or(usize::MAX),
        None => limits::default_memory(),
    };
    if let Some(here) = limits::memory_here().filter(|here| memory as u64 > *here) {
        output::remark(format_args!(
            "--memory-limit {} is more than the {} of memory here",
            units::show_size(memory as u64),
            units::show_size(here >> 20 << 20),
        ));
    }
    let wanted_receives = args.receive_memory.unwrap_or(ServeArgs::RECEIVE_MEMORY);
    let wanted_receives = usize::try_from(wanted_receives).unwrap_or(usize::MAX);
    let possible = Limits::new(memory, wanted_receives, usize::MAX);
    let receives = possible.receives;
    if let Some(wanted) = args
        .connections
        .filter(|wanted| *wanted > possible.connections)
    {
        return Err(Failure::Usage(format!(
            "--connections {wanted}: the memory limit ({}) guarantees each its memory only up to {}: raise \
             --memory-limit",
            units::show_size(memory as u64),
            possible.connections
        )));
    }
    // The default is meant to be lowered where there is little memory.
    if args.receive_memory.is_some() && receives < wanted_receives {
        output::remark(format_args!(
            "--receive-memory is lowered to about {}: receive buffers may take about 30 % of the \
             memory limit ({})",
            units::show_size(receives as u64 >> 20 << 20),
            units::show_size(memory as u64),
        ));
    }
    let loops = wanted.limited_by_descriptors(descriptors, args.connections)?;
    if loops < wanted.most {
        tracing::info!(
            loops,
            descriptors,
            "no more threads than there are descriptors for"
        );
    }
    let by_memory = wanted.limited_by_receive_memory(receives);
    if by_memory < loops {
        tracing::info!(
            loops = by_memory,
            receives,
            "no more threads than there is memory for receives for"
        );
    }
    let loops = loops.min(by_memory);
    let left = threads::descriptors_left(descriptors, loops);
    let by_descriptors = || limits::connections(left);
    let connections = args.connections.unwrap_or_else(by_descriptors);
    let files = match args.connections {
        Some(wanted) => limits::files_beside(wanted, left)
            .ok_or_else(|| too_many_connections(wanted, descriptors, left))?,
        None => limits::file_descriptors(left),
    };
    let limits = Limits::new(memory, wanted_receives, connections);
    let connections = limits.connections;
    let is_default = args.connections.is_none();
    if is_default && left < descriptors / 2 {
        output::remark(format_args!(
            "{loops} threads take {} of {descriptors} descriptors, which leaves {connections} connections: \
             raise the limit on open files (`ulimit -n`), or lower --threads",
            descriptors - left
        ));
    } else if is_default && limits::connections(left) < FEW_CONNECTIONS {
        let fewer = match loops {
            1 => "",
            _ => ", or use --threads 1",
        };
        output::remark(format_args!(
            "{descriptors} descriptors leave {connections} for connections: raise the limit on open files \
             (`ulimit -n`){fewer}"
        ));
    }
    tracing::info!(memory, receives, descriptors, connections, files, "limits");
    Ok((limits, loops, files))
}

/// Returns the error for more `--connections` than the file descriptors allow. `left` of the limit
/// of `descriptors` remain after those for threads.
fn too_many_connections(wanted: usize, descriptors: u64, left: u64) -> Failure {
    let possible = limits::most_connections(left);
    Failure::Usage(format!(
        "--connections {wanted}: a limit of {descriptors} open files is enough for {possible}: raise it (`ulimit -n`)"
    ))
}

/// Checks that the memory for receive buffers suffices for one connection.
fn enough_for_one(
    options: &RdmaServerOptions,
    device: &Attributes,
    loops: usize,
) -> Result<(), Failure> {
    let (given, least) = (
        options.max_receive_memory,
        options.least_receive_memory(device),
    );
    if given >= least {
        return Ok(());
    }
    let (share, advice) = match loops {
        1 => (String::new(), ""),
        _ => (
            format!(", divided among {loops} threads,"),
            " (or use fewer --threads)",
        ),
    };
    Err(Failure::Usage(format!(
        "--receive-memory{share} is {given} bytes: no RDMA connection could be made, as its receives take at \
         least {least} bytes here{advice}"
    )))
}

/// Returns the addresses of the `--listen` option.
fn addresses(listen: &str) -> Result<Vec<IpAddr>, Failure> {
    if let Ok(ip) = listen.parse() {
        return Ok(vec![ip]);
    }
    let hint = match listen.parse::<SocketAddr>() {
        Ok(_) => " (ports are given by --port and --tcp-port)",
        Err(_) => "",
    };
    let found = listening::addresses((listen, 0), format_args!("--listen {listen}"), hint)?;
    let mut addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// Returns the error of an address that cannot be listened on, with advice.
fn cannot_listen(address: SocketAddr, proto: Proto, error: io::Error) -> Failure {
    let (option, both) = match proto {
        Proto::Rdma => ("--port PORT", ", and --tcp-port where it has both"),
        Proto::Tcp => ("--tcp-port PORT", ", and --port where it has both"),
    };
    listening::failure(address, proto, &error, option, both)
}

/// Describes which way the data of an export took.
fn direct_io(bytes: DirectIoBytes) -> String {
    format!(
        "written directly: {} bytes from where they arrived, {} from a copy; {} through the page cache; \
         read directly: {} bytes; {} through the page cache",
        bytes.written_in_place,
        bytes.written_copied,
        bytes.written_buffered,
        bytes.read_direct,
        bytes.read_buffered
    )
}

/// Opens the requested exports, of a server with this number of descriptors for files. Returns with each where
/// its files are.
fn exports(
    args: &ServeArgs,
    key: &HandleKey,
    files: u64,
) -> Result<Vec<(Export, String)>, Failure> {
    // All exports share the descriptors for files equally. An open object can take two descriptors,
    // and one more for direct I/O.
    let each = 2 + u64::from(args.direct_io);
    let objects = files / each / args.exports.len().max(1) as u64;
    let most_open = usize::try_from(objects).ok();
    let mut exports = Vec::new();
    for text in &args.exports {
        let spec = ExportSpec::parse(text)
            .map_err(|error| Failure::Usage(format!("--export {text}: {error}")))?;
        for note in &spec.overridden {
            output::remark(format_args!("--export {text}: {note}"));
        }
        let directory = spec.directory.display().to_string();
        let export = spec
            .open(key, most_open, args.direct_io)
            .context(format_args!("cannot export {directory}"))?;
        let export = Export {
            // The path as in URLs, for a directory as well as for a name.
            path: format!("/{}", export.path.trim_start_matches('/')),
            ..export
        };
        exports.push((export, format!("from {directory}")));
    }
    if let Some(wanted) = &args.memory {
        for note in &wanted.overridden {
            output::remark(format_args!("--memory: {note}"));
        }
        let export = memory(wanted.size, wanted.options.clone())?;
        let size = units::show_amount(wanted.size).replace(".0 ", " ");
        exports.push((export, format!("in memory, at most {size}")));
    }
    if exports.is_empty() {
        let text = "nothing to export: add --export DIR, --export NAME=DIR or --memory";
        return Err(Failure::usage(text));
    }
    Ok(exports)
}

/// Creates an empty memory file system.
fn memory(limit: u64, options: ExportOptions) -> Result<Export, Failure> {
    let fs = MemoryFs::new(limit).context("cannot make a file system in memory")?;
    Ok(Export {
        path: MEMORY_PATH.to_owned(),
        backend: Arc::new(fs),
        options,
    })
}

/// Returns the key that authenticates file handles. With a stored key, handles stay valid after a
/// restart; a server that exports only memory needs none, because its content is lost then.
fn key(args: &ServeArgs) -> Result<HandleKey, Failure> {
    if let Some(file) = &args.handle_key {
        return HandleKey::load_or_create(file).context("--handle-key");
    }
    if args.exports.is_empty() {
        return HandleKey::random().map_err(Failure::work);
    }
    let Some(file) = default_key_file() else {
        let text = "no place for the key of file handles: set HOME, or use --handle-key FILE";
        return Err(Failure::work(text));
    };
    if let Some(directory) = file.parent() {
        let what = format!(
            "cannot make {} (use --handle-key FILE)",
            directory.display()
        );
        fs::create_dir_all(directory).context(what)?;
    }
    HandleKey::load_or_create(file).context("use --handle-key FILE")
}

/// Returns the default key file in the directory for program state (XDG Base Directory
/// Specification).
fn default_key_file() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local").join("state")))?;
    Some(state.join("rpcrdma").join("handle-key"))
}

/// Writes a line to standard output. The server continues if the reader has gone.
fn say(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    match output::line(text) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
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

#[cfg(test)]
mod tests {
    use std::future;

    use rpc_transport::{ProgramVersions, Request, Service, ServiceOutcome};
    use rpcrdma_programs::workload::{Prepare, Server};

    use super::*;

    /// A program with this name and number, of which no procedure is called.
    #[derive(Clone, Debug)]
    struct Numbered(&'static str, [ProgramVersions; 1]);

    impl Numbered {
        fn new(name: &'static str, prog: u32) -> Self {
            let (low, high) = (1, 1);
            Self(name, [ProgramVersions { prog, low, high }])
        }
    }

    impl Service for Numbered {
        fn programs(&self) -> &[ProgramVersions] {
            &self.1
        }

        fn call(&mut self, _: Request) -> ServiceOutcome {
            unreachable!("it is not called")
        }

        fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
            false
        }
    }

    impl Workload for Numbered {
        fn name(&self) -> &'static str {
            self.0
        }

        fn service(&self) -> Option<Box<dyn Service>> {
            Some(Box::new(self.clone()))
        }

        fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
            Box::pin(future::pending())
        }
    }

    #[test]
    fn programs_have_numbers_of_their_own() {
        let checked = |numbers: [u32; 2]| {
            let [a, b] = numbers;
            let programs = [Numbered::new("a", a), Numbered::new("b", b)];
            let programs = programs.map(|it| Arc::new(it) as Arc<dyn Workload>);
            distinct_numbers(&programs).map_err(|failure| failure.to_string())
        };
        checked([1 << 29, (1 << 29) + 1]).unwrap();
        let same = checked([7, 7]).unwrap_err();
        assert_eq!(same, "--program b: it has the program number 7, as a has");
        let nfs = checked([7, NFS_PROGRAM]).unwrap_err();
        assert!(nfs.ends_with("100003, as NFS has"), "{nfs}");
    }
}

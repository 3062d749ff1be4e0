//! `serve`: exports over RDMA and TCP, until a signal.

use std::cell::RefCell;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{DirectoryFs, MemoryFs};
use nfs_binding::server::{Export, ExportOptions, ExportSpec, HandleKey, NfsServer};
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{Server, ServerOptions, Service, Stop, TcpServer};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::ServeArgs;
use crate::failure::{Context, Failure};
use crate::output;
use crate::transport::{DEFAULT_DEVICE, LinkOptions};

/// Path of the export in memory.
const MEMORY_PATH: &str = "/memory";

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// An export or an address cannot be used.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let link = LinkOptions {
        delay: args.delay.0,
        rate: args.rate.map(|rate| rate.0),
        busy_poll: args.busy_poll,
        crc: args.crc.is_on(),
    };
    let options = ServerOptions {
        workers: usize::from(args.workers),
        busy_poll: args.busy_poll,
        ..ServerOptions::default()
    };
    let (exports, key) = (exports(args)?, key(args)?);
    let describe = |export: &Export| format!("export {} {}", export.path, export.options);
    let lines: Vec<String> = exports.iter().map(describe).collect();
    let service = NfsServer::new(exports, key).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut server = Server::new(Box::new(service), options).context("cannot start the server")?;

    let address = SocketAddr::new(args.listen, args.port);
    let mut rdma = RdmaServer::new(link.device(DEFAULT_DEVICE)?, RdmaServerOptions::default());
    let rdma_address = rdma
        .listen(address)
        .context(format_args!("cannot listen on {address} for RDMA"))?;
    let address = SocketAddr::new(args.listen, args.tcp_port);
    let tcp = TcpServer::bind(address, link.tcp())
        .context(format_args!("cannot listen on {address} for TCP"))?;
    let tcp_address = tcp.local_addr();
    for port in [
        Rc::new(RefCell::new(rdma)) as Rc<RefCell<dyn rpc_transport::ServerPort>>,
        Rc::new(RefCell::new(tcp)),
    ] {
        server.add_port(port).context("cannot set up polling")?;
    }

    let stop = stop_on_signal()?;
    for line in lines {
        say(format_args!("{line}"))?;
    }
    say(format_args!(
        "listening rdma {rdma_address} {DEFAULT_DEVICE}"
    ))?;
    say(format_args!("listening tcp {tcp_address}"))?;
    server.run(&stop);
    tracing::info!("ended by a signal");
    Ok(())
}

/// The exports that are asked for.
fn exports(args: &ServeArgs) -> Result<Vec<Export>, Failure> {
    let mut exports = Vec::new();
    for text in &args.exports {
        let spec = ExportSpec::parse(text)
            .map_err(|error| Failure::Usage(format!("--export {text}: {error}")))?;
        let options = DirectoryOptions {
            sync: spec.options.sync,
        };
        let directory = DirectoryFs::open(&spec.directory, options)
            .context(format_args!("cannot export {}", spec.directory.display()))?;
        exports.push(Export {
            // As it appears in URLs, whether it is a directory or a name.
            path: format!("/{}", spec.path.trim_start_matches('/')),
            backend: Arc::new(directory),
            options: spec.options,
        });
    }
    if let Some(limit) = args.memory {
        exports.push(memory(limit)?);
    }
    if exports.is_empty() {
        let text = "nothing to export: add --export DIR, --export NAME=DIR or --memory";
        return Err(Failure::usage(text));
    }
    Ok(exports)
}

/// An empty file system in memory.
fn memory(limit: u64) -> Result<Export, Failure> {
    let fs = MemoryFs::new(limit).context("cannot make a file system in memory")?;
    Ok(Export {
        path: MEMORY_PATH.to_owned(),
        backend: Arc::new(fs),
        options: ExportOptions::default(),
    })
}

/// NFS over one file system in memory of at most `limit` bytes, for measurements.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn memory_service(limit: u64) -> Result<Box<dyn Service>, Failure> {
    let key = HandleKey::random().map_err(Failure::work)?;
    let service = NfsServer::new(vec![memory(limit)?], key).map_err(Failure::work)?;
    Ok(Box::new(service))
}

/// The key that file handles are authenticated with. It has to stay the same for handles to
/// outlive the server; a file system in memory does not outlive it anyway.
fn key(args: &ServeArgs) -> Result<HandleKey, Failure> {
    if let Some(file) = &args.handle_key {
        return HandleKey::load_or_create(file).map_err(Failure::work);
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

/// Where state of programs belongs (XDG Base Directory Specification).
fn default_key_file() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local").join("state")))?;
    Some(state.join("rpcrdma").join("handle-key"))
}

/// Writes a line to standard output. A server does not end because nobody reads that.
fn say(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    match output::line(text) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}

/// Ends what runs with it when SIGINT or SIGTERM arrives.
fn stop_on_signal() -> Result<Stop, Failure> {
    let stop = Stop::new();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let on_signal = stop.clone();
    let wait = move || {
        if signals.forever().next().is_some() {
            on_signal.stop();
        }
    };
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(wait).context("cannot handle signals")?;
    Ok(stop)
}

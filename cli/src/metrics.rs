//! The endpoints for metrics, and the command `mountstats`.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nfs_binding::proto::status_of;
use nfs_mount::{MountEntry, Mounted, all_mounts};
use rpc_transport::limits::Limits;
use rpc_transport::{ServerGroup, TransportStatistics};
use rpcrdma_metrics::mount::{Asking, samples};
use rpcrdma_metrics::mountstats::{Header, show};
use rpcrdma_metrics::serve::ServerSamples;
use rpcrdma_metrics::{Endpoint, Format, Listener, NoAnswer, ask, listen, path_for};
use rpcrdma_setup::{Context, Failure};

use crate::args::MountstatsArgs;
use crate::output;

/// Where metrics are on an endpoint.
const METRICS: &str = "/metrics";
/// Where the statistics of a mount are, in the format of the kernel.
const MOUNTSTATS: &str = "/mountstats";

/// Listens for scrapers.
pub(crate) fn listener(address: Option<SocketAddr>) -> Result<Option<TcpListener>, Failure> {
    let bind = |address: SocketAddr| {
        let what = format_args!("cannot listen on {address} for metrics").to_string();
        TcpListener::bind(address).context(what)
    };
    address.map(bind).transpose()
}

/// Returns the line that says where metrics are.
pub(crate) fn where_they_are(listener: &TcpListener) -> Result<String, Failure> {
    let address = listener.local_addr();
    let address = address.context("cannot tell where a socket listens")?;
    Ok(format!("metrics http://{address}{METRICS}"))
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Answers scrapers of a server, until the endpoint is dropped.
pub(crate) fn of_server(
    listener: &TcpListener,
    group: &ServerGroup,
    limits: &Limits,
) -> Result<Endpoint, Failure> {
    let what = "cannot start the thread for metrics";
    let listener = listener.try_clone().context(what)?;
    let mut samples = ServerSamples::new(group.clone(), limits.clone(), now());
    let answer = move |path: &str, format: Format| match path {
        METRICS => Ok(samples.collect().to_text(format)?),
        _ => Err(NoAnswer::NotFound),
    };
    Endpoint::start(vec![Listener::Tcp(listener)], answer).context(what)
}

/// A mount's endpoint, whose socket is removed with it.
pub(crate) struct MountEndpoint {
    _endpoint: Endpoint,
    /// The socket, and the number of its file: another mount may have made its own of this name.
    socket: Option<(PathBuf, Option<u64>)>,
}

/// Returns the number of a file.
fn number(path: &Path) -> Option<u64> {
    path.symlink_metadata().ok().map(|found| found.ino())
}

impl Drop for MountEndpoint {
    fn drop(&mut self) {
        if let Some((socket, made)) = &self.socket
            && number(socket) == *made
            && let Err(error) = std::fs::remove_file(socket)
        {
            tracing::debug!(%error, socket = %socket.display(), "not removed");
        }
    }
}

/// Answers scrapers of a mount, and `mountstats`, until the endpoint is dropped. Without a place for the
/// socket of `mountstats`, the mount has none.
pub(crate) fn of_mount(
    listener: Option<TcpListener>,
    mounted: &Mounted,
    header: Header,
    transport: impl Fn() -> TransportStatistics + 'static,
) -> Result<MountEndpoint, Failure> {
    let mut listeners: Vec<Listener> = listener.map(Listener::Tcp).into_iter().collect();
    let uid = rustix::process::geteuid().as_raw();
    let path = entry_at(mounted.path()).map(|entry| socket_of(&entry, uid));
    let socket = path.and_then(|path| match listen(&path, uid) {
        Ok(socket) => {
            listeners.push(Listener::Unix(socket));
            let made = number(&path);
            Some((path, made))
        }
        Err(error) => {
            tracing::info!(path = %path.display(), %error, "no socket for `mountstats`");
            None
        }
    });
    let mut handle = mounted.observe(status_of, transport);
    let mut asking = Asking::new(move |within| handle.ask(within));
    let (started, begun) = (now(), Instant::now());
    let answer = move |path: &str, format: Format| match path {
        METRICS => {
            let (found, silent) = asking.get().ok_or(NoAnswer::Unavailable)?;
            Ok(samples(found, silent, started).to_text(format)?)
        }
        MOUNTSTATS => {
            // The format has no sign for statistics of earlier.
            let answer = asking.get().filter(|(_, silent)| !silent);
            let (found, _) = answer.ok_or(NoAnswer::Unavailable)?;
            let header = Header {
                age: begun.elapsed(),
                ..header.clone()
            };
            Ok(show(&header, found))
        }
        _ => Err(NoAnswer::NotFound),
    };
    let endpoint = Endpoint::start(listeners, answer);
    Ok(MountEndpoint {
        _endpoint: endpoint.context("cannot start the thread for metrics")?,
        socket,
    })
}

/// Returns the uppermost mount at a directory, if a program of this kind made it.
fn entry_at(path: &Path) -> Option<MountEntry> {
    let all = all_mounts().ok()?;
    let mut at = all.into_iter().rev().filter(|entry| entry.path == path);
    at.next().filter(MountEntry::is_ours)
}

/// Returns the path of the socket of a mount that user `uid` has made.
fn socket_of(entry: &MountEntry, uid: u32) -> PathBuf {
    let own = uid == rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| own && folder.is_absolute());
    path_for(uid, &entry.device, runtime.as_deref())
}

/// Prints the statistics of mounts in the format of `/proc/self/mountstats`.
///
/// # Errors
/// Nothing of this kind is mounted there, or its process does not answer.
pub(crate) fn mountstats(args: &MountstatsArgs) -> Result<(), Failure> {
    let mut text = String::new();
    for path in &args.mount_points {
        let entry = nfs_mount::mount_at(path).map_err(Failure::work)?;
        let uid = entry
            .options
            .iter()
            .find_map(|it| it.strip_prefix("user_id="));
        let uid = uid.and_then(|uid| uid.parse().ok()).unwrap_or(0);
        let socket = socket_of(&entry, uid);
        let asked = ask(&socket, uid, MOUNTSTATS);
        let what = format!(
            "{}: the mount does not answer at {}",
            path.display(),
            socket.display()
        );
        text.push_str(&asked.context(what)?);
    }
    output::bytes(text.as_bytes())
}

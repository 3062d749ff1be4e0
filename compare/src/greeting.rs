//! How a comparison and another host that has servers for it ([`crate::remote`]) begin.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rpcrdma_host::keep_alive;
use rpcrdma_setup::{Context, Failure};
use serde::{Deserialize, Serialize};

/// How long the other end may take to connect, to greet, or to say what it wants.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum length of a greeting or a task, bytes.
const MAX_LINE: u64 = 64 << 10;
/// A host's description of itself, the first line of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The version of its program.
    pub(crate) version: String,
    /// Machine, kernel and build, as a phrase.
    pub(crate) machine: String,
    /// The kind of its device under RPC-over-RDMA.
    pub(crate) device: String,
}

/// Connects to the host at `address`. Returns its greeting, and the connection.
///
/// # Errors
/// The host cannot be reached, or has another version of this program.
pub(crate) fn connect(address: SocketAddr) -> Result<(Greeting, BufReader<TcpStream>), Failure> {
    let what = || format!("compare-server at {address}");
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| {
        Failure::Work(format!(
            "{}: {error}; does `rpcrdma compare-server --listen {}` run there, and is no firewall in between?",
            what(),
            address.ip()
        ))
    })?;
    keep_alive(&stream).context(what())?;
    stream.set_nodelay(true).context(what())?;
    stream.set_read_timeout(Some(PATIENCE)).context(what())?;
    let mut stream = BufReader::new(stream);
    let line = bounded_line(&mut stream).context(what())?;
    let greeting: Greeting = serde_json::from_str(&line)
        .context(format_args!("{} does not greet as one does", what()))?;
    if greeting.version != env!("CARGO_PKG_VERSION") {
        return Err(Failure::Work(format!(
            "{} is of version {}, and this is {}: use one version on both hosts",
            what(),
            greeting.version,
            env!("CARGO_PKG_VERSION")
        )));
    }
    // Measurements take as long as they take.
    stream.get_ref().set_read_timeout(None).context(what())?;
    Ok((greeting, stream))
}

/// Asks the host at `address` what it is. `device` is the kind of the device here.
///
/// # Errors
/// The errors of [`connect`], or a device of another kind there.
pub(crate) fn describe(address: SocketAddr, device: &str) -> Result<String, Failure> {
    let (greeting, _) = connect(address)?;
    if greeting.device != device {
        return Err(Failure::Work(format!(
            "the device there is a {}, and the one here a {}: give both the same --device",
            greeting.device, device
        )));
    }
    Ok(greeting.machine)
}

/// Reads a line of limited length.
pub(crate) fn bounded_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(MAX_LINE).read_line(&mut line)?;
    Ok(line)
}

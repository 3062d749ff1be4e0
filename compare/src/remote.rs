//! Servers on another host: [`serve_remote`] runs there, and starts a server for each connection of a
//! [`Comparison`](crate::Comparison) with [`Options::server`](crate::Options::server).
//!
//! A connection begins with a [`Greeting`] of the host. Then it is what the standard input and output of a
//! local server process are: a task, an answer, and a line for each request and answer. The server ends
//! with its connection.

use std::io::{BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rpcrdma_host::keep_alive;
use rpcrdma_setup::device::{DeviceName, Policy};
use rpcrdma_setup::{Context, Failure};
use serde_json::Value;

use crate::child::ChildProcess;
use crate::environment::Environment;
use crate::greeting::{Greeting, PATIENCE, bounded_line};
use crate::served::{PAUSE, PROCEDURES, RESUME, Served, Task, USAGE};
use crate::summary;

/// The port at which [`serve_remote`] listens unless it is told otherwise.
pub const REMOTE_PORT: u16 = 20047;

/// The maximum number of servers at a time: more than a comparison of all variants has.
const MAX_SERVERS: usize = 256;

/// A host that serves comparisons of others.
#[derive(Clone, Debug)]
pub struct RemoteServer {
    /// The device under RPC-over-RDMA.
    pub device: DeviceName,
    /// How a verbs device registers memory for its peer.
    pub registration: Policy,
    /// The commit that the program was built from.
    pub commit: Option<String>,
    /// The arguments that let this program serve a task ([`serve_child`](crate::serve_child)).
    pub child: Vec<String>,
}

/// Serves everybody who connects to `listener` and is admitted, without end. `complain` is called with what
/// goes wrong with one of them.
///
/// # Errors
/// The listener fails.
pub fn serve_remote(
    listener: &TcpListener,
    server: &RemoteServer,
    admits: &(dyn Fn(IpAddr) -> bool + Sync),
    complain: &(dyn Fn(SocketAddr, Failure) + Sync),
) -> Result<(), Failure> {
    let environment = Environment::of_machine(server.commit.as_deref());
    let greeting = Greeting {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: format!("{environment}, {}", environment.program()),
        device: summary::kind(&server.device).to_owned(),
    };
    let servers = AtomicUsize::new(0);
    thread::scope(|scope| {
        loop {
            let (stream, peer) = listener.accept().context("cannot accept a connection")?;
            let (servers, greeting) = (&servers, &greeting);
            if !admits(peer.ip().to_canonical()) {
                complain(peer, Failure::work("it is not admitted (--client)"));
                continue;
            }
            if servers.fetch_add(1, Ordering::Relaxed) >= MAX_SERVERS {
                servers.fetch_sub(1, Ordering::Relaxed);
                complain(peer, Failure::work("too many servers run already"));
                continue;
            }
            let run = move || {
                if let Err(failure) = attend(stream, server, greeting) {
                    complain(peer, failure);
                }
                servers.fetch_sub(1, Ordering::Relaxed);
            };
            let thread = thread::Builder::new().name("client".into());
            drop(
                thread
                    .spawn_scoped(scope, run)
                    .context("cannot start a thread")?,
            );
        }
    })
}

/// Serves one connection to its end.
fn attend(stream: TcpStream, server: &RemoteServer, greeting: &Greeting) -> Result<(), Failure> {
    let lost = "the connection";
    keep_alive(&stream).context(lost)?;
    stream.set_nodelay(true).context(lost)?;
    stream.set_read_timeout(Some(PATIENCE)).context(lost)?;
    // The address by which the client has reached this host.
    let listen = stream.local_addr().context(lost)?.ip().to_canonical();
    let mut answers = stream.try_clone().context(lost)?;
    let mut orders = BufReader::new(stream);
    let mut say = |value: &Value| writeln!(answers, "{value}").context(lost);
    say(&serde_json::to_value(greeting).map_err(Failure::work)?)?;
    let line = bounded_line(&mut orders).context(lost)?;
    if line.is_empty() {
        // It only wanted to know what this is.
        return Ok(());
    }
    let Ok(Task::Serve(served)) = serde_json::from_str(&line) else {
        return Err(Failure::work("it wants what is no task of a server"));
    };
    orders.get_ref().set_read_timeout(None).context(lost)?;
    // A name would be that of a file of this host.
    if served
        .costs
        .as_ref()
        .is_some_and(|costs| !costs.contains('='))
    {
        return Err(Failure::work("its costs are no list"));
    }
    let served = Served {
        listen,
        device: server.device.to_string(),
        registration: server.registration.to_string(),
        // The numbers of processors are those of the other host.
        processor: None,
        ..served
    };
    let name = served.serves.clone();
    let mut child = ChildProcess::start(&name, &server.child, &Task::Serve(served))?;
    say(&child.answer::<Value>()?)?;
    loop {
        let line = bounded_line(&mut orders).context(lost)?;
        match line.trim_end() {
            "" => return Ok(()),
            PAUSE => child.pause()?,
            RESUME => child.resume()?,
            order @ (USAGE | PROCEDURES) => say(&child.ask::<Value>(order)?)?,
            _ => return Err(Failure::work("it makes a request that there is not")),
        }
    }
}

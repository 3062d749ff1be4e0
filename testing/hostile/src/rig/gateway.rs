//! A gateway in front of the server: clients reach it by RDMA and by TCP. It reaches the server by TCP or, where servers
//! are hostile, by RDMA.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use iwarp::{Iwarp, Options};
use rdma::Pool;
use rpc_transport::rdma::{CallbackOptions, Choice, RdmaClient, RdmaClientOptions, RdmaServer};
use rpc_transport::{ServerTransport, Stop, TcpClient, TcpOptions, TcpServer};
use rpcrdma_gateway::reduction::ReducerOptions;
use rpcrdma_gateway::{Outgoing, Relay, RelayOptions};

use super::switch::Switch;
use super::{CALLBACKS, CREDITS, Form, SEGMENT, SERVER, Timeouts, features};
use crate::{Wrong, wrong};

/// The time for which a gateway waits for a hostile server after the client has left.
const LINGER: Duration = Duration::from_secs(1);

/// The transport from a gateway to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// TCP, to this address.
    Tcp(SocketAddr),
    /// RDMA through a switch to this address, with the options of clients under attack. The flag says whether servers
    /// may call clients.
    Rdma(SocketAddr, bool),
}

/// A running gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    /// The address for RDMA.
    pub(super) address: SocketAddr,
    /// The address for TCP.
    pub(super) tcp: SocketAddr,
    /// The memory pool of all of its transports.
    pub(super) pool: Pool,
    /// The switch behind it, if it has one.
    pub(super) switch: Option<Switch>,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), Wrong>>>,
}

impl Gateway {
    /// Starts a gateway to this server, with the server's limits.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(timeouts: Timeouts, form: Form, to: To) -> Result<Self, Wrong> {
        let (to, switch) = match to {
            To::Tcp(_) => (to, None),
            To::Rdma(server, callbacks) => {
                let switch = Switch::start(server)?;
                (To::Rdma(switch.address, callbacks), Some(switch))
            }
        };
        let (pool, stop) = (Pool::new(SERVER.pool), Stop::new());
        let (ready, addresses) = mpsc::channel();
        let (its_pool, its_stop) = (pool.clone(), stop.clone());
        let thread = std::thread::spawn(move || match listen(&its_pool, timeouts, form, to) {
            Ok((mut relay, addresses)) => {
                ready.send(Ok(addresses)).map_err(wrong)?;
                relay.run(&its_stop).map_err(wrong)
            }
            Err(error) => ready.send(Err(error)).map_err(wrong),
        });
        let (address, tcp) = addresses.recv().map_err(wrong)??;
        Ok(Self {
            address,
            tcp,
            pool,
            switch,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns whether the gateway is still running. It ends or panics only because of a bug.
    pub(super) fn runs(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }
}

/// A gateway, with its addresses for RDMA and for TCP.
type Listening = (Relay, (SocketAddr, SocketAddr));

fn listen(pool: &Pool, timeouts: Timeouts, form: Form, to: To) -> Result<Listening, Wrong> {
    let (budget, progress) = (SERVER.budget(), timeouts.progress);
    let tcp = || SERVER.tcp(pool.clone(), budget.clone(), progress);
    let (server, outgoing): (_, Rc<RefCell<dyn Outgoing>>) = match to {
        To::Tcp(server) => (server, Rc::new(RefCell::new(TcpClient::new(tcp())))),
        To::Rdma(server, callbacks) => {
            let device = Iwarp::new(Options::default(), pool.clone()).map_err(wrong)?;
            let client = RdmaClient::new(Box::new(device), under_attack(form, callbacks));
            (server, Rc::new(RefCell::new(client)))
        }
    };
    let mut options = RelayOptions {
        reducer: ReducerOptions {
            max_reply: SERVER.message,
            ..ReducerOptions::default()
        },
        max_pairs: SERVER.connections,
        ..RelayOptions::new(server)
    };
    let callbacks = match to {
        To::Tcp(_) => false,
        To::Rdma(_, callbacks) => {
            options.linger = LINGER;
            callbacks
        }
    };
    let mut relay = Relay::new(options, outgoing).map_err(wrong)?;
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let options = TcpOptions { callbacks, ..tcp() };
    let listener = TcpServer::bind(anywhere, options).map_err(wrong)?;
    let tcp_address = listener.local_addr();
    relay
        .listen(Rc::new(RefCell::new(listener)))
        .map_err(wrong)?;
    let options = Options {
        setup_timeout: timeouts.setup,
        max_connections: SERVER.sockets,
        ..Options::default()
    };
    let device = Iwarp::new(options, pool.clone()).map_err(wrong)?;
    let mut port = RdmaServer::new(
        Box::new(device),
        SERVER.rdma(form, budget.clone(), progress),
    );
    let address = port.listen(anywhere).map_err(wrong)?;
    let port: Rc<RefCell<dyn ServerTransport>> = Rc::new(RefCell::new(port));
    relay.listen(port).map_err(wrong)?;
    Ok((relay, (address, tcp_address)))
}

/// Returns the options of a gateway's connections to hostile servers: those of the clients that cases are written for.
fn under_attack(form: Form, callbacks: bool) -> RdmaClientOptions {
    let protocols = rpcrdma_protocols::standard(&features(form));
    let mut options = RdmaClientOptions {
        version: Choice::Only(form.version()),
        ..RdmaClientOptions::new(protocols)
    };
    options.common.credits = CREDITS;
    options.common.max_segment = SEGMENT;
    if callbacks {
        options.common.callbacks = CallbackOptions {
            credits: CALLBACKS,
            chunks: false,
        };
    }
    options
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // If the thread had ended before, the case in which that happened has reported it.
            drop(thread.join());
        }
    }
}

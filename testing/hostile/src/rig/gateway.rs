//! A gateway in front of the server: clients reach it by RDMA and by TCP, and it reaches the server by TCP.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use iwarp::{Iwarp, Options};
use rdma::Pool;
use rpc_transport::rdma::RdmaServer;
use rpc_transport::{ServerTransport, Stop, TcpClient, TcpServer};
use rpcrdma_gateway::reduction::ReducerOptions;
use rpcrdma_gateway::{Relay, RelayOptions};

use super::{Form, SERVER, Timeouts};
use crate::{Wrong, wrong};

/// A running gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    /// The address for RDMA.
    pub(super) address: SocketAddr,
    /// The address for TCP.
    pub(super) tcp: SocketAddr,
    /// The memory pool of all of its transports.
    pub(super) pool: Pool,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), Wrong>>>,
}

impl Gateway {
    /// Starts a gateway to this server, with the server's limits.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(timeouts: Timeouts, form: Form, server: SocketAddr) -> Result<Self, Wrong> {
        let (pool, stop) = (Pool::new(SERVER.pool), Stop::new());
        let (ready, addresses) = mpsc::channel();
        let (its_pool, its_stop) = (pool.clone(), stop.clone());
        let thread = std::thread::spawn(move || match listen(&its_pool, timeouts, form, server) {
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

fn listen(
    pool: &Pool,
    timeouts: Timeouts,
    form: Form,
    server: SocketAddr,
) -> Result<Listening, Wrong> {
    let (budget, progress) = (SERVER.budget(), timeouts.progress);
    let tcp = || SERVER.tcp(pool.clone(), budget.clone(), progress);
    let outgoing = Rc::new(RefCell::new(TcpClient::new(tcp())));
    let options = RelayOptions {
        reducer: ReducerOptions {
            max_reply: SERVER.message,
            ..ReducerOptions::default()
        },
        max_pairs: SERVER.connections,
        ..RelayOptions::new(server)
    };
    let mut relay = Relay::new(options, outgoing).map_err(wrong)?;
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = TcpServer::bind(anywhere, tcp()).map_err(wrong)?;
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

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // If the thread had ended before, the case in which that happened has reported it.
            drop(thread.join());
        }
    }
}

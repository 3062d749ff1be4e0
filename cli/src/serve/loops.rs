//! The loops of a server: a thread with transports of its own for each.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use nfs_binding::server::NfsServer;
use rdma::Pool;
use rpc_transport::limits::Limits;
use rpc_transport::rdma::{RdmaServer, RdmaServerOptions};
use rpc_transport::{
    Server, ServerGroup, ServerOptions, ServerTransport, Service, Stop, TcpOptions, TcpServer,
};
use rpcrdma_host::{CongestionControl, LoopSeat};
use rpcrdma_programs::callbacks::Orders;
use rpcrdma_programs::workload::Workload;
use rpcrdma_programs::{Beside, Probe};
use rpcrdma_setup::access::LinkOptions;
use rpcrdma_setup::costs::Costs;
use rpcrdma_setup::device::DeviceChoice;
use rpcrdma_setup::mount_options::Proto;
use rpcrdma_setup::{Context, Failure};

use super::rpcbind::{Listening, Registration, Way};
use crate::metrics::{of_server, where_they_are};

use super::{cannot_listen, enough_for_one, say};
use crate::listening;

/// Listening sockets that all loops share. `rdma` is empty with verbs devices, whose loops share a
/// listener of the connection manager (`rdma_core::Options::seat`).
pub(super) struct Sockets {
    rdma: Vec<Arc<TcpListener>>,
    tcp: Vec<Arc<TcpListener>>,
}

impl Sockets {
    /// Listens on each address, on a port for the software RDMA device, if there is one, and on a port
    /// for TCP.
    pub(super) fn listen(
        addresses: &[IpAddr],
        port: Option<u16>,
        tcp_port: u16,
        congestion: Option<&CongestionControl>,
    ) -> Result<Self, Failure> {
        let listen = |port: u16, proto: Proto| {
            let socket = |ip: &IpAddr| {
                let address = SocketAddr::new(*ip, port);
                listening(address, congestion).map_err(|error| cannot_listen(address, proto, error))
            };
            addresses.iter().map(socket).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            rdma: match port {
                Some(port) => listen(port, Proto::Rdma)?,
                None => Vec::new(),
            },
            tcp: listen(tcp_port, Proto::Tcp)?,
        })
    }
}

fn listening(
    address: SocketAddr,
    congestion: Option<&CongestionControl>,
) -> io::Result<Arc<TcpListener>> {
    let socket = TcpListener::bind(address)?;
    if let Some(congestion) = congestion {
        congestion.set(&socket)?;
    }
    socket.set_nonblocking(true)?;
    Ok(Arc::new(socket))
}

/// The parts from which each loop of a server is made.
pub(super) struct Plan {
    pub(super) group: ServerGroup,
    pub(super) options: ServerOptions,
    pub(super) service: NfsServer,
    /// The orders for callbacks, which all loops share.
    pub(super) orders: Orders,
    /// The programs beside NFS, of which each loop has a service.
    pub(super) programs: Vec<Arc<dyn Workload>>,
    pub(super) link: LinkOptions,
    pub(super) device: DeviceChoice,
    pub(super) rdma: RdmaServerOptions,
    /// The costs by which transfers are planned, where the device's are not to be used.
    pub(super) costs: Costs,
    pub(super) limits: Limits,
    pub(super) addresses: Vec<IpAddr>,
    /// The ports for RDMA and for TCP.
    pub(super) ports: (u16, u16),
    pub(super) sockets: Sockets,
    /// Where scrapers of metrics connect.
    pub(super) metrics: Option<TcpListener>,
    /// The way to the rpcbind with which the server is registered.
    pub(super) rpcbind: Option<Way>,
    /// The time that calls in progress have to end when the server ends.
    pub(super) drain: Duration,
}

/// A loop that is ready to run, and where it listens.
struct Ready {
    server: Server,
    listening: Vec<Listening>,
}

impl Plan {
    /// Runs all loops, the first one on this thread, until `stop` is used or one of them fails.
    /// Prints `exported` and where the server listens as soon as all loops are ready.
    pub(super) fn run(&self, stop: &Stop, exported: &[String]) -> Result<(), Failure> {
        let (ready, others) = mpsc::channel();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for index in 1..self.group.loops() {
                let ready = ready.clone();
                let run = move || {
                    let _guard = StopOnEnd(stop);
                    let made = self.make(index);
                    // Nobody listens any more if the first loop has failed.
                    let _ = ready.send(made.is_ok());
                    drop(ready);
                    made.and_then(|made| self.serve(made.server, stop, None))
                };
                let thread = thread::Builder::new().name(format!("loop-{index}"));
                match thread.spawn_scoped(scope, run) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        stop.stop();
                        return Err(error).context("cannot start a thread");
                    }
                }
            }
            drop(ready);
            let guard = StopOnEnd(stop);
            let first = self.make(0).and_then(|made| {
                let (mut registration, mut metrics) = (None, None);
                // A loop that could not be made has the reason, which its thread returns.
                if others.iter().all(|ready| ready) {
                    registration = self.register(&made.listening)?;
                    for line in exported {
                        say(format_args!("{line}"))?;
                    }
                    if let Some(registration) = &registration {
                        say(format_args!("registered {registration} with rpcbind"))?;
                    }
                    if let Some(listener) = &self.metrics {
                        metrics = Some(of_server(listener, &self.group, &self.limits)?);
                        say(format_args!("{}", where_they_are(listener)?))?;
                    }
                    for listening in &made.listening {
                        say(format_args!("{listening}"))?;
                    }
                }
                let served = self.serve(made.server, stop, registration);
                drop(metrics);
                served
            });
            drop(guard);
            let mut result = first;
            for thread in threads {
                let other = thread.join().unwrap_or_else(|_| {
                    Err(Failure::Work("a thread of the server panicked".to_owned()))
                });
                result = result.and(other);
            }
            result
        })
    }

    /// Registers the server with rpcbind, if it is to be.
    fn register(&self, listening: &[Listening]) -> Result<Option<Registration>, Failure> {
        let Some(way) = self.rpcbind else {
            return Ok(None);
        };
        let added = self.programs.iter().filter_map(|it| it.service());
        let added = added.flat_map(|it| it.programs().to_vec());
        let programs: Vec<_> = self
            .service
            .programs()
            .iter()
            .copied()
            .chain(added)
            .collect();
        Registration::new(way, listening, &programs).map(Some)
    }

    /// Serves until `stop` is used, and then ends what has begun. No new client is to find the server by
    /// `registration` from then on.
    fn serve(
        &self,
        mut server: Server,
        stop: &Stop,
        registration: Option<Registration>,
    ) -> Result<(), Failure> {
        let ended = server.run(stop);
        drop(registration);
        ended.map_err(Failure::work)?;
        let answered = server.drain(self.drain).map_err(Failure::work)?;
        if !answered {
            tracing::warn!(limit = ?self.drain, "ending without answers to calls in progress");
        }
        Ok(())
    }

    /// Makes a loop with its device and its transports.
    fn make(&self, index: usize) -> Result<Ready, Failure> {
        let programs = self.programs.iter().filter_map(|it| it.service());
        let programs: Vec<Box<dyn Service>> = programs.collect();
        let nfs = self.service.clone();
        let service: Box<dyn Service> = match (self.options.callbacks, programs.is_empty()) {
            (true, true) => Box::new(Probe::with_orders(nfs, self.orders.clone())),
            (true, false) => {
                let probe = Probe::with_orders(nfs, self.orders.clone());
                Box::new(Beside::new(probe, programs))
            }
            (false, true) => Box::new(nfs),
            (false, false) => Box::new(Beside::new(nfs, programs)),
        };
        let server = Server::in_group(&self.group, index, service, self.options.clone());
        let mut server = server.context("cannot start the server")?;
        let seat = (self.group.loops() > 1).then(|| self.group.seat(index));
        let budget = self.limits.budget.part();
        let (rdma, mut listening) = self.rdma(seat.as_ref(), budget.clone())?;
        let mut transports: Vec<Rc<RefCell<dyn ServerTransport>>> = vec![rdma];
        let kept = self.limits.kept / 2 / self.group.loops();
        let options = TcpOptions {
            callbacks: self.options.callbacks,
            pool: Pool::keeping(self.limits.budget.limit(), kept),
            budget,
            max_connections: self.limits.accepted(),
            seat,
            ..self.link.tcp()
        };
        for (socket, &ip) in self.sockets.tcp.iter().zip(&self.addresses) {
            let address = SocketAddr::new(ip, self.ports.1);
            let tcp = socket
                .try_clone()
                .and_then(|socket| TcpServer::listening(socket, options.clone()))
                .map_err(|error| cannot_listen(address, Proto::Tcp, error))?;
            listening.push(Listening {
                proto: Proto::Tcp,
                address: tcp.local_addr(),
                device: None,
            });
            transports.push(Rc::new(RefCell::new(tcp)));
        }
        for transport in transports {
            let added = server.add_transport(transport);
            added.context("cannot set up polling")?;
        }
        Ok(Ready { server, listening })
    }

    /// Makes the RDMA transport of a loop. Returns it with where it listens.
    fn rdma(
        &self,
        seat: Option<&LoopSeat>,
        budget: rpcrdma_host::Budget,
    ) -> Result<(Rc<RefCell<RdmaServer>>, Vec<Listening>), Failure> {
        let choice = DeviceChoice {
            sockets: self.sockets.rdma.clone(),
            seat: seat.cloned(),
            ..self.device.clone()
        };
        let device = self.link.device(&choice)?.device;
        let attributes = device.attributes();
        let name = attributes.name.clone();
        let mut options = RdmaServerOptions {
            budget,
            ..self.rdma.clone()
        };
        options.common.costs = self.costs.clone().or_of(&attributes.costs).model();
        enough_for_one(&options, attributes, self.group.loops())?;
        let mut rdma = RdmaServer::new(device, options);
        let mut listening = Vec::new();
        for (at, &ip) in self.addresses.iter().enumerate() {
            let mut address = SocketAddr::new(ip, self.ports.0);
            if let Some(socket) = self.sockets.rdma.get(at) {
                address = socket
                    .local_addr()
                    .context("cannot tell where a socket listens")?;
            }
            let heard = rdma.listen(address).map_err(|error| {
                cannot_listen(address, Proto::Rdma, listening::of_system(error))
            })?;
            listening.push(Listening {
                proto: Proto::Rdma,
                address: heard,
                device: Some(name.clone()),
            });
        }
        Ok((Rc::new(RefCell::new(rdma)), listening))
    }
}

/// Stops all loops when it is dropped: a loop has ended, perhaps by a panic, and the others must not
/// go on without it. They would pass connections on to it, and wait for its replies.
struct StopOnEnd<'a>(&'a Stop);

impl Drop for StopOnEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use super::*;

    #[test]
    fn a_loop_that_panics_stops_the_others() {
        let stop = Stop::new();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut server =
                    Server::new(Box::new(Orders::new()), ServerOptions::default()).unwrap();
                server.run(&stop)
            });
            let panics = scope.spawn(|| {
                let _guard = StopOnEnd(&stop);
                resume_unwind(Box::new("a loop"));
            });
            assert!(panics.join().is_err());
            assert_eq!(other.join().unwrap(), Ok(()));
        });
    }
}

//! A client and a server, in the simulation or over the software iWARP device.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_util::future::try_join_all;
use iwarp::Iwarp;
use onc_rpc::Encoder;
use rdma::{Counters, Device, Pool, Time};
use rdma_sim::{Costs, Fabric, Faults, Host, Turn, attributes};
use rpc_transport::rdma::{
    Choice, Protocols, RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions, Version,
    Versions,
};
use rpc_transport::{
    Armed, Call, CallError, Client, ClientOptions, ProgramVersions, ReplyRoom, Request, Runtime,
    Server, ServerOptions, Service, ServiceOutcome, Stepped, Stop,
};

use crate::Outcome;

/// From the range that needs no assignment (RFC 5531, section 8.3).
const PROGRAM: ProgramVersions = ProgramVersions {
    prog: 0x4000_0b47,
    low: 1,
    high: 1,
};
/// The memory of each device, bytes.
const MEMORY: usize = 64 << 20;
/// The limit of virtual time.
const PATIENCE: Time = Time::from_nanos(100_000_000_000);

/// A program whose only procedure does nothing.
struct Null;

impl Service for Null {
    fn programs(&self) -> &[ProgramVersions] {
        &[PROGRAM]
    }

    fn call(&mut self, _: Request) -> ServiceOutcome {
        ServiceOutcome::Done(Ok(Encoder::new().finish()))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

/// The cost of a run, at both ends together.
pub(crate) struct Cost {
    pub(crate) sends: u64,
    pub(crate) interrupts: u64,
    pub(crate) time: Duration,
}

impl Cost {
    fn of(ends: [Counters; 2], time: Duration) -> Self {
        Self {
            sends: ends.iter().map(|end| end.sends).sum(),
            interrupts: ends.iter().map(|end| end.interrupts).sum(),
            time,
        }
    }
}

/// Two ends that accept `takes` messages in one transmission, with so many calls in flight.
pub(crate) struct Ends {
    pub(crate) version: Version,
    pub(crate) takes: u32,
    pub(crate) in_flight: u32,
}

impl Ends {
    fn protocols(&self) -> Protocols {
        batch::extend(rpcrdma_protocols::base(), self.takes)
    }

    fn client(&self, device: Box<dyn Device>) -> Rc<RefCell<RdmaClient>> {
        let mut options = RdmaClientOptions::new(self.protocols());
        options.version = Choice::Only(self.version);
        Rc::new(RefCell::new(RdmaClient::new(device, options)))
    }

    fn port(
        &self,
        device: Box<dyn Device>,
        listen: SocketAddr,
    ) -> Outcome<(RdmaServer, SocketAddr)> {
        let mut options = RdmaServerOptions::new(self.protocols());
        options.versions = Versions::only(self.version);
        let mut port = RdmaServer::new(device, options);
        let address = port.listen(listen)?;
        Ok((port, address))
    }

    /// Makes so many calls, of which each makes the next one when it is answered.
    async fn make(
        &self,
        runtime: &Runtime,
        server: SocketAddr,
        port: Rc<RefCell<RdmaClient>>,
        calls: u32,
    ) -> Result<(), CallError> {
        let client = Client::connect(runtime, server, port, ClientOptions::default()).await?;
        let flying = (0..self.in_flight).map(|_| async {
            for _ in 0..calls / self.in_flight {
                client.call(null()).await?;
            }
            Ok(())
        });
        try_join_all(flying).await.map(drop)
    }

    /// Makes calls in the simulation.
    pub(crate) fn simulated(&self, calls: u32) -> Outcome<Cost> {
        let fabric = Fabric::new(1, Costs::default(), Faults::default());
        let address = |host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 20049));
        let device = |host| {
            fabric.host(Host {
                address: address(host),
                attributes: attributes(),
                pool: Pool::new(MEMORY),
                interrupt: Duration::from_micros(2),
            })
        };
        let (of_server, of_client) = (device(1)?, device(2)?);
        let nodes = [of_server.node(), of_client.node()];
        let (port, _) = self.port(Box::new(of_server), address(1))?;
        let mut server =
            Server::simulated(Box::new(Null), ServerOptions::default(), fabric.clock());
        server.add_transport(Rc::new(RefCell::new(port)))?;
        let runtime = Runtime::simulated(fabric.clock(), 1);
        let client = self.client(Box::new(of_client));
        let mut work = pin!(self.make(&runtime, address(1), client, calls));
        runtime.wake();
        nodes
            .iter()
            .for_each(|&node| fabric.turn_at(node, Time::ZERO));
        while let Some(turn) = fabric.next(PATIENCE) {
            let deadline = match turn {
                Turn::Host(node) if node == nodes[0] => loop {
                    if !server.step()
                        && let Armed::Until(deadline) = server.arm()
                    {
                        break deadline;
                    }
                },
                Turn::Host(_) => match runtime.step(work.as_mut(), u32::MAX) {
                    Stepped::Done(done) => {
                        done?;
                        let counters = nodes.map(|node| fabric.counters(node));
                        return Ok(Cost::of(counters, fabric.now().since(Time::ZERO)));
                    }
                    Stepped::Idle(deadline) => deadline,
                    Stepped::Busy => Some(fabric.now()),
                },
                Turn::Alarm(_) => None,
            };
            if let (Turn::Host(node), Some(at)) = (turn, deadline) {
                fabric.turn_at(node, at);
            }
        }
        Err("the calls do not end".into())
    }

    /// Makes calls over the software iWARP device.
    pub(crate) fn over_iwarp(&self, calls: u32) -> Outcome<Cost> {
        let device = || Iwarp::new(iwarp::Options::default(), Pool::new(MEMORY)).map(Box::new);
        let (stop, (listening, address)) = (Stop::new(), mpsc::channel());
        thread::scope(|scope| {
            let serving = scope.spawn(|| -> Outcome<Counters> {
                let (port, address) = self.port(device()?, (Ipv4Addr::LOCALHOST, 0).into())?;
                let port = Rc::new(RefCell::new(port));
                let mut server = Server::new(Box::new(Null), ServerOptions::default())?;
                server.add_transport(Rc::clone(&port) as Rc<RefCell<_>>)?;
                listening.send(address)?;
                server.run(&stop)?;
                let counters = port.borrow().counters();
                Ok(counters)
            });
            let made = (|| -> Outcome<_> {
                let runtime = Runtime::new()?;
                let client = self.client(device()?);
                let port = Rc::clone(&client);
                let address = address.recv()?;
                let start = runtime.now();
                runtime.block_on(self.make(&runtime, address, port, calls))?;
                let counters = client.borrow().counters();
                Ok((counters, runtime.now().since(start)))
            })();
            stop.stop();
            let serving = serving.join().map_err(|_| "the server has panicked")?;
            let (client, time) = made?;
            Ok(Cost::of([serving?, client], time))
        })
    }
}

/// Returns a call that needs nothing.
fn null() -> Call {
    Call {
        prog: PROGRAM.prog,
        vers: PROGRAM.low,
        proc: 0,
        args: Encoder::new().finish(),
        reply: ReplyRoom::default(),
    }
}

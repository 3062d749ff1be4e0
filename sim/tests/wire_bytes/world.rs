//! One client and one server on a simulated network. Only the network takes time: work on a host
//! costs none, so the order of events follows from the bytes on the wire, and not from the number
//! of work requests, completions or interrupts.

use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rdma::{Pool, Time};
use rdma_sim::{Costs, Fabric, Faults, Host, NodeId, SimDevice, Turn, attributes};
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{
    Armed, Client, ClientOptions, ClientTransport, PollSource, Runtime, Server, ServerOptions,
    Stepped,
};
use rpcrdma_programs::Probe;
use rpcrdma_programs::callbacks::Answers;

use crate::service::Echoes;
use crate::wire_recorder::WireRecorder;

const SERVER: NodeId = NodeId(0);
/// The seed of the fabric and of the client's XIDs.
const SEED: u64 = 19;
/// The memory of each device, bytes.
const MEMORY: usize = 256 << 20;
/// The maximum number of turns of a loop before other hosts get their turn.
const TURNS: u32 = 10_000;
/// The limit of virtual time for an exchange.
const LIMIT: Time = Time::from_nanos(1_000_000_000_000);
/// The pause between two steps, which suffices for the work that the earlier one left.
const SETTLE: Duration = Duration::from_secs(5);

/// The options of both ends of an exchange.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) client: RdmaClientOptions,
    pub(crate) server: RdmaServerOptions,
    /// Whether the server calls the client.
    pub(crate) callbacks: bool,
}

/// The objects that the client's part of an exchange uses.
pub(crate) struct Desk {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) port: Rc<RefCell<RdmaClient>>,
    pub(crate) fabric: Fabric,
    recorder: Rc<RefCell<WireRecorder>>,
}

impl Desk {
    /// Begins a step after a pause.
    pub(crate) async fn step(&self, name: &str) {
        self.runtime.sleep(SETTLE).await;
        self.recorder.borrow_mut().step(name);
    }
}

fn costs() -> Costs {
    Costs {
        post: Duration::ZERO,
        completion: Duration::ZERO,
        register: Duration::ZERO,
        register_page: Duration::ZERO,
        invalidate: Duration::ZERO,
        invalidate_page: Duration::ZERO,
        // With 0, a connection would be given up as soon as it is created.
        detection: Duration::from_micros(1),
        ..Costs::default()
    }
}

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), 20049).into()
}

fn host(fabric: &Fabric, number: u8) -> SimDevice {
    let host = Host {
        address: address(number),
        attributes: attributes(),
        pool: Pool::new(MEMORY),
        interrupt: Duration::ZERO,
    };
    fabric.host(host).unwrap()
}

/// Runs an exchange, and returns the record of the wire.
///
/// # Panics
/// The exchange does not end.
pub(crate) fn exchange<F>(ends: &Ends, work: impl FnOnce(Desk) -> F) -> String
where
    F: Future<Output = ()>,
{
    let fabric = Fabric::new(SEED, costs(), Faults::default());
    let recorder = Rc::new(RefCell::new(WireRecorder::new(SERVER)));
    fabric.watch(Rc::clone(&recorder) as Rc<RefCell<_>>);
    recorder.borrow_mut().step("connect");

    let mut port = RdmaServer::new(Box::new(host(&fabric, 1)), ends.server.clone());
    port.listen(address(1)).unwrap();
    let options = ServerOptions {
        callbacks: ends.callbacks,
        ..ServerOptions::default()
    };
    let service = Box::new(Probe::new(Echoes));
    let mut server = Server::simulated(service, options, fabric.clock());
    server.add_transport(Rc::new(RefCell::new(port))).unwrap();

    let device = host(&fabric, 2);
    let node = device.node();
    let port = Rc::new(RefCell::new(RdmaClient::new(
        Box::new(device),
        ends.client.clone(),
    )));
    let runtime = Runtime::simulated(fabric.clock(), SEED);
    let life = async {
        let desk = Desk {
            client: connect(&runtime, Rc::clone(&port), ends.callbacks).await,
            runtime: runtime.clone(),
            port: Rc::clone(&port),
            fabric: fabric.clone(),
            recorder: Rc::clone(&recorder),
        };
        let client = desk.client.clone();
        work(desk).await;
        runtime.sleep(SETTLE).await;
        recorder.borrow_mut().step("close");
        drop(client);
    };
    let mut life: Option<Pin<Box<dyn Future<Output = ()> + '_>>> = Some(Box::pin(life));
    runtime.wake();
    fabric.turn_at(SERVER, fabric.now());
    fabric.turn_at(node, fabric.now());
    let mut until = LIMIT;
    while let Some(turn) = fabric.next(until) {
        match turn {
            Turn::Host(SERVER) => serve(&mut server, &fabric),
            Turn::Host(_) => {
                let stepped = match &mut life {
                    Some(life) => runtime.step(life.as_mut(), TURNS),
                    None => linger(&port, &fabric),
                };
                match stepped {
                    Stepped::Done(()) => {
                        life = None;
                        until = fabric.now() + SETTLE;
                        fabric.turn_at(node, fabric.now());
                    }
                    Stepped::Busy => fabric.turn_at(node, fabric.now()),
                    Stepped::Idle(Some(at)) => fabric.turn_at(node, at),
                    Stepped::Idle(None) => {}
                }
            }
            Turn::Alarm(_) => {}
        }
    }
    assert!(
        life.is_none(),
        "the exchange did not end:\n{}",
        recorder.borrow().text()
    );
    recorder.borrow().text()
}

async fn connect(runtime: &Runtime, port: Rc<RefCell<RdmaClient>>, callbacks: bool) -> Client {
    let port = port as Rc<RefCell<dyn ClientTransport>>;
    let options = ClientOptions::default();
    let client = match callbacks {
        false => Client::connect(runtime, address(1), port, options).await,
        true => {
            let answers = Box::new(Answers::new());
            Client::connect_with_callbacks(runtime, address(1), port, options, answers).await
        }
    };
    client.unwrap()
}

fn serve(server: &mut Server, fabric: &Fabric) {
    for _ in 0..TURNS {
        if server.step() {
            continue;
        }
        if let Armed::Until(deadline) = server.arm() {
            if let Some(at) = deadline {
                fabric.turn_at(SERVER, at);
            }
            return;
        }
    }
    fabric.turn_at(SERVER, fabric.now());
}

/// Polls the transport of a client that has ended, so that its connections end.
fn linger(port: &RefCell<RdmaClient>, fabric: &Fabric) -> Stepped<()> {
    let mut port = port.borrow_mut();
    for _ in 0..TURNS {
        if !port.poll(fabric.now()) && port.arm() {
            return Stepped::Idle(port.next_deadline());
        }
    }
    Stepped::Busy
}

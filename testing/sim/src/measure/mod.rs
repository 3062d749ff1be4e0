//! What a call costs when nothing goes wrong: counted on the way of its own reply.

mod calls;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nfs_binding::client::{Nfs3, RpcClient};
use nfs_binding::fs::FileSystem;
use rdma::{Counters, Pool, Time};
use rdma_sim::{Costs, Fabric, Faults, Host, NodeId, Path, Turn, attributes};
use rpc_transport::rdma::{
    Choice, Considered, CostModel, RdmaClientOptions, RdmaOptions, RdmaServer, RdmaServerOptions,
    Version,
};
use rpc_transport::{Client, ClientOptions, ClientPort};

use crate::client::{ClientHost, Counted, Desk, Tally, credential};
use crate::disk::Disk;
use crate::probe::Long;
use crate::server::ServerHost;

pub use self::calls::{CannotMeasure, Operation};
use self::calls::{failed, make, prepare};

const SERVER: NodeId = NodeId(0);
const CLIENT: NodeId = NodeId(1);
/// Memory of each device, bytes.
const MEMORY: usize = 64 << 20;
/// Long enough for whatever an earlier call left to do.
const PAUSE: Duration = Duration::from_secs(1);
/// Virtual time that everything together may take.
const LIMIT: Time = Time::from_nanos(1_000_000_000_000);

/// Where it is measured.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What things cost.
    pub costs: Costs,
    /// From an interrupt to its host's turn.
    pub interrupt: Duration,
    /// The client's side.
    pub requester: RdmaOptions,
    /// The server's.
    pub responder: RdmaOptions,
    /// What both speak.
    pub version: Version,
    /// What the ends go by when they choose how to convey a message, if that is not what everything
    /// costs here: for the same way at other costs.
    pub chosen_by: Option<CostModel>,
}

impl Setting {
    /// What the ends go by when they choose how to convey a message.
    #[must_use]
    pub fn model(&self) -> CostModel {
        if let Some(model) = self.chosen_by {
            return model;
        }
        let costs = &self.costs;
        CostModel {
            link_delay: costs.delay,
            rate: costs.rate,
            read_rate: costs.rate,
            write_rate: costs.rate,
            per_message: costs.post + costs.completion,
            registration: costs.register,
            registration_page: costs.register_page,
            invalidation: costs.invalidate,
            invalidation_wait: self.interrupt,
            interrupt: self.interrupt,
            read_turnaround: costs.read_response,
            // Simulated hosts take everything from where it came.
            copy_rate: CostModel::UNLIMITED,
            ..CostModel::default()
        }
    }
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            interrupt: Duration::from_micros(2),
            requester: RdmaClientOptions::default().common,
            responder: RdmaServerOptions::default().common,
            version: Version::One,
            chosen_by: None,
        }
    }
}

/// What one call cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// From the call to its results.
    pub latency: Duration,
    /// Round trips that its results had to wait for.
    pub round_trips: f64,
    /// Interrupts of the client that they had to wait for.
    pub requester_interrupts: u32,
    /// Interrupts of the server, likewise.
    pub responder_interrupts: u32,
    /// Regions that were registered before its results were there.
    pub registrations: u32,
    /// Local invalidations that they had to wait for.
    pub invalidations: u32,
    /// What the client's device did for it, waited for or not.
    pub requester: Counters,
    /// What the server's device did, likewise.
    pub responder: Counters,
}

/// What the client's host found.
#[derive(Default)]
struct Found {
    result: Option<Result<Both, CannotMeasure>>,
}

/// Makes a call in a simulation of its own, and says what it cost.
///
/// # Errors
/// The options do not allow the call.
pub fn measure(setting: &Setting, operation: Operation) -> Result<Measured, CannotMeasure> {
    both(setting, operation).map(|(measured, _)| measured)
}

/// Makes a call in a simulation of its own, and says in which ways it could be carried and which one
/// is taken, by the cost model of the requester's options.
///
/// # Errors
/// The options do not allow the call.
pub fn consider(setting: &Setting, operation: Operation) -> Result<Vec<Considered>, CannotMeasure> {
    both(setting, operation).map(|(_, considered)| considered)
}

type Both = (Measured, Vec<Considered>);

fn both(setting: &Setting, operation: Operation) -> Result<Both, CannotMeasure> {
    let fabric = Fabric::new(1, setting.costs.clone(), Faults::default());
    let address = |host: u8| -> SocketAddr { (Ipv4Addr::new(10, 0, 0, host), 20049).into() };
    let host = |number| Host {
        address: address(number),
        attributes: attributes(),
        pool: Pool::new(MEMORY),
        interrupt: setting.interrupt,
    };
    let disk = Disk::new(1, fabric.clock(), false, false);
    let disk = Arc::new(disk) as Arc<dyn FileSystem>;
    let options = RdmaServerOptions {
        common: RdmaOptions {
            costs: setting.model(),
            ..setting.responder.clone()
        },
        ..RdmaServerOptions::default()
    };
    let server = ServerHost::start(
        &fabric,
        host(1),
        address(1),
        options,
        disk,
        None,
        |device| Box::new(device),
    );
    let mut server = server.map_err(failed("a server"))?;
    let options = RdmaClientOptions {
        common: RdmaOptions {
            costs: setting.model(),
            ..setting.requester.clone()
        },
        version: Choice::Only(setting.version),
        ..RdmaClientOptions::default()
    };
    let found = Rc::new(RefCell::new(Found::default()));
    let (result, view) = (Rc::clone(&found), fabric.clone());
    let port = Rc::clone(&server.port);
    let client = ClientHost::start(
        &fabric,
        host(2),
        options,
        1,
        |device| Box::new(device),
        |desk| {
            Box::pin(async move {
                let measured = run(desk, &view, (address(1), port), operation).await;
                result.borrow_mut().result = Some(measured);
            })
        },
    );
    let mut client = client.map_err(failed("a client"))?;
    while !client.is_done()
        && let Some(turn) = fabric.next(LIMIT)
    {
        match turn {
            Turn::Host(SERVER) => {
                server.turn(&fabric);
            }
            Turn::Host(_) => client.turn(&fabric),
            Turn::Alarm(_) => {}
        }
    }
    let found = found.borrow_mut().result.take();
    found.unwrap_or_else(|| Err(failed("the call")("it did not end")))
}

async fn run(
    desk: Desk,
    fabric: &Fabric,
    (server, responder): (SocketAddr, Rc<RefCell<RdmaServer>>),
    operation: Operation,
) -> Result<Both, CannotMeasure> {
    let concrete = Rc::clone(&desk.port);
    let port = Rc::clone(&desk.port) as Rc<RefCell<dyn ClientPort>>;
    let options = ClientOptions {
        credential: credential(),
        ..ClientOptions::default()
    };
    let client = Client::connect(&desk.runtime, server, port, options).await;
    let client = client.map_err(failed("a connection"))?;
    let tally = Rc::new(Tally::default());
    let rpc = Counted::new(client, desk.under_way, Rc::clone(&tally));
    let nfs = Nfs3::new(rpc.clone());
    let file = prepare(&rpc, &nfs, operation).await?;
    let long = match operation {
        Operation::Long { call, reply } => Some(Long::new(call, reply)),
        _ => None,
    };
    // Once for what only a first call does, such as finding memory for the first time.
    make(&nfs, file, operation, long.as_ref()).await?;
    rpc.sleep(PAUSE).await;
    // Those of the devices, and what was copied on the way to them.
    let counters = || (concrete.borrow().counters(), responder.borrow().counters());
    let before = counters();
    fabric.set_path(CLIENT, Path::default());
    let start = fabric.now();
    make(&nfs, file, operation, long.as_ref()).await?;
    let path = fabric.path(CLIENT);
    let latency = fabric.now() - start;
    // What nobody waited for is done then, too.
    rpc.sleep(PAUSE).await;
    let after = counters();
    let sum = |counts: [u32; rdma_sim::MAX_NODES]| counts.iter().sum();
    let last = tally.last.borrow_mut().take();
    let considered = last.map_or_else(Vec::new, |call| {
        let (message, room) = call.into_message(0, credential());
        concrete.borrow_mut().considered_call(&message, &room)
    });
    let measured = Measured {
        latency,
        round_trips: path.round_trips(),
        requester_interrupts: path.interrupts[CLIENT.0],
        responder_interrupts: path.interrupts[SERVER.0],
        registrations: sum(path.registrations),
        invalidations: sum(path.invalidations),
        requester: since(before.0, after.0),
        responder: since(before.1, after.1),
    };
    Ok((measured, considered))
}

fn since(before: Counters, after: Counters) -> Counters {
    Counters {
        sends: after.sends - before.sends,
        sends_with_invalidate: after.sends_with_invalidate - before.sends_with_invalidate,
        rdma_reads: after.rdma_reads - before.rdma_reads,
        rdma_writes: after.rdma_writes - before.rdma_writes,
        receives: after.receives - before.receives,
        registrations: after.registrations - before.registrations,
        local_invalidations: after.local_invalidations - before.local_invalidations,
        remote_invalidations: after.remote_invalidations - before.remote_invalidations,
        interrupts: after.interrupts - before.interrupts,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        wire_bytes_sent: after.wire_bytes_sent - before.wire_bytes_sent,
        wire_bytes_received: after.wire_bytes_received - before.wire_bytes_received,
    }
}

//! Measures the cost of a call without faults, counted along the causal path of its reply.

mod calls;
mod copies;
mod grants;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nfs_binding::client::{Nfs3, RpcClient};
use rdma::{Counters, Pool, Time};
use rdma_sim::{Costs, Fabric, Faults, Host, NodeId, Path, Turn, attributes};
use rpc_transport::rdma::{
    Choice, ConsideredMode, CostModel, RdmaClientOptions, RdmaOptions, RdmaServer,
    RdmaServerOptions, Version, Versions,
};
use rpc_transport::{Client, ClientOptions, ClientTransport};
use rpcrdma_programs::Long;

use crate::client::{ClientHost, Counted, Desk, Tally, credential};
use crate::disk::Disk;
use crate::exports::Exports;
use crate::server::{ServerHost, Slice};

pub use self::calls::{CannotMeasure, Operation};
use self::calls::{failed, make, prepare};
pub use self::copies::{Cache, Copied, CopyCosts, CopyRate};
use self::grants::GrantCounter;
pub use self::grants::Grants;

const SERVER: NodeId = NodeId(0);
const CLIENT: NodeId = NodeId(1);
/// The memory of each device, bytes.
const MEMORY: usize = 64 << 20;
/// A pause that suffices for the work that an earlier call left.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of calls over which grants are counted: a grant is due when half of the credits of an
/// end are used up.
const GRANTED_CALLS: u32 = 128;
/// The limit of virtual time for the whole measurement.
const LIMIT: Time = Time::from_nanos(1_000_000_000_000);

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The simulated costs.
    pub costs: Costs,
    /// The time from an interrupt to the host's turn.
    pub interrupt: Duration,
    /// The costs of copies.
    pub copies: CopyCosts,
    /// The client's options.
    pub requester: RdmaOptions,
    /// The server's options.
    pub responder: RdmaOptions,
    /// The version that both ends use.
    pub version: Version,
    /// The cost model by which the ends choose transfer modes, if it differs from the simulated
    /// costs, to keep a mode when costs change.
    pub chosen_by: Option<CostModel>,
}

impl Setting {
    /// Returns the cost model by which the ends choose transfer modes.
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
            // One end posts messages while the other handles the completions of earlier ones. What
            // a message takes alone is counted with the call.
            per_message: costs.post.max(costs.completion),
            call: 2 * costs.post.min(costs.completion),
            registration: costs.register,
            registration_page: costs.register_page,
            invalidation: costs.invalidate,
            invalidation_wait: self.interrupt,
            interrupt: self.interrupt,
            read_turnaround: costs.read_response,
            copy_rate: self.copies.receiver_rate(),
            ..CostModel::default()
        }
    }
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            interrupt: Duration::from_micros(2),
            copies: CopyCosts::default(),
            requester: RdmaClientOptions::new(rpcrdma_protocols::base()).common,
            responder: RdmaServerOptions::new(rpcrdma_protocols::base()).common,
            version: Version::ONE,
            chosen_by: None,
        }
    }
}

/// The cost of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The time from the call to its results, copies included.
    pub latency: Duration,
    /// The copies of both ends that the results had to wait for.
    pub copied: Copied,
    /// The number of round trips that the results had to wait for.
    pub round_trips: f64,
    /// The number of the client's interrupts that the results had to wait for.
    pub requester_interrupts: u32,
    /// The number of the server's interrupts that the results had to wait for.
    pub responder_interrupts: u32,
    /// The number of regions that were registered before the results arrived.
    pub registrations: u32,
    /// The number of local invalidations that the results had to wait for.
    pub invalidations: u32,
    /// The messages that only grant credits, in a version that has them.
    pub grants: Option<Grants>,
    /// Bytes of the receives that the client promises the server at most.
    pub requester_receives: u64,
    /// Bytes of the receives that the server promises the client at most.
    pub responder_receives: u64,
    /// The counters of the client's device for this call, whether waited for or not.
    pub requester: Counters,
    /// The counters of the server's device for this call, whether waited for or not.
    pub responder: Counters,
}

/// The findings of the client host.
#[derive(Default)]
struct Found {
    result: Option<Result<Both, CannotMeasure>>,
}

/// Makes a call in a simulation of its own. Returns its cost.
///
/// # Errors
/// The options do not allow the call.
pub fn measure(setting: &Setting, operation: Operation) -> Result<Measured, CannotMeasure> {
    both(setting, operation).map(|(measured, _)| measured)
}

/// Makes a call in a simulation of its own. Returns all possible transfer modes, with the one that
/// is chosen by the cost model of the requester's options.
///
/// # Errors
/// The options do not allow the call.
pub fn consider(
    setting: &Setting,
    operation: Operation,
) -> Result<Vec<ConsideredMode>, CannotMeasure> {
    both(setting, operation).map(|(_, considered)| considered)
}

type Both = (Measured, Vec<ConsideredMode>);

fn both(setting: &Setting, operation: Operation) -> Result<Both, CannotMeasure> {
    let fabric = Fabric::new(1, setting.costs.clone(), Faults::default());
    let grants = Rc::new(RefCell::new(GrantCounter::default()));
    fabric.watch(Rc::clone(&grants) as Rc<RefCell<_>>);
    let address = |host: u8| -> SocketAddr { (Ipv4Addr::new(10, 0, 0, host), 20049).into() };
    let host = |number| Host {
        address: address(number),
        attributes: attributes(),
        pool: Pool::new(MEMORY),
        interrupt: setting.interrupt,
    };
    let disk = Disk::new(1, fabric.clock(), false, false);
    let exports = Exports::only(Arc::new(disk));
    let options = RdmaServerOptions {
        common: RdmaOptions {
            costs: setting.model(),
            ..setting.responder.clone()
        },
        // Receives are as long as this version needs them.
        versions: Versions::only(setting.version),
        ..RdmaServerOptions::new(rpcrdma_protocols::base())
    };
    let server = ServerHost::start(
        &fabric,
        vec![host(1)],
        &options,
        &exports,
        None,
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
        ..RdmaClientOptions::new(rpcrdma_protocols::base())
    };
    let version = setting.version;
    let found = Rc::new(RefCell::new(Found::default()));
    let (result, view) = (Rc::clone(&found), fabric.clone());
    let served = Served {
        address: address(1),
        port: Rc::clone(&server.loops[0].port),
        placed: Arc::clone(&server.loops[0].placed),
    };
    let copies = setting.copies;
    let client = ClientHost::start(
        &fabric,
        host(2),
        options,
        1,
        |device| Box::new(device),
        |desk| {
            Box::pin(async move {
                let counter = (version == Version::TWO_WG).then_some(grants);
                let measured = run(desk, &view, (served, copies), operation, counter).await;
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
                server.loops[0].turn(&fabric, Slice::default());
            }
            Turn::Host(_) => client.turn(&fabric),
            Turn::Alarm(_) => {}
        }
    }
    let found = found.borrow_mut().result.take();
    found.unwrap_or_else(|| Err(failed("the call")("it did not end")))
}

/// The server, as the client's workload needs it.
struct Served {
    address: SocketAddr,
    port: Rc<RefCell<RdmaServer>>,
    /// Whether bulk data of the last call arrived apart from the rest.
    placed: Arc<AtomicBool>,
}

async fn run(
    desk: Desk,
    fabric: &Fabric,
    (served, costs): (Served, CopyCosts),
    operation: Operation,
    grants: Option<Rc<RefCell<GrantCounter>>>,
) -> Result<Both, CannotMeasure> {
    let concrete = Rc::clone(&desk.port);
    let port = Rc::clone(&desk.port) as Rc<RefCell<dyn ClientTransport>>;
    let options = ClientOptions {
        credential: credential(),
        ..ClientOptions::default()
    };
    let client = Client::connect(&desk.runtime, served.address, port, options).await;
    let client = client.map_err(failed("a connection"))?;
    let tally = Rc::new(Tally::default());
    let rpc = Counted::new(client, desk.under_way, Rc::clone(&tally));
    let nfs = Nfs3::new(rpc.clone());
    let file = prepare(&rpc, &nfs, operation).await?;
    let long = match operation {
        Operation::Long { call, reply } => Some(Long::new(call, reply)),
        _ => None,
    };
    // The first call does additional work, such as allocating memory.
    make(&nfs, file, operation, long.as_ref()).await?;
    rpc.sleep(PAUSE).await;
    // The counters of the devices, and of copies on the way to them.
    let responder = &served.port;
    let counters = || (concrete.borrow().counters(), responder.borrow().counters());
    let copied = || {
        let (requester, responder) = (concrete.borrow(), responder.borrow());
        let before_sending = requester.assembled_bytes() + responder.assembled_bytes();
        let all = requester.counters().copied_bytes + responder.counters().copied_bytes;
        (before_sending, all - before_sending)
    };
    let (before, copied_before) = (counters(), copied());
    fabric.set_path(CLIENT, Path::default());
    let start = fabric.now();
    make(&nfs, file, operation, long.as_ref()).await?;
    let path = fabric.path(CLIENT);
    let unplaced = match operation {
        Operation::Read(len) if !tally.placed.get() => u64::from(len),
        Operation::Write(len) if !served.placed.load(Ordering::Relaxed) => u64::from(len),
        _ => 0,
    };
    let (before_sending, after_receiving) = copied();
    let copied = Copied {
        before_sending: before_sending - copied_before.0,
        after_receiving: after_receiving - copied_before.1 + unplaced,
        unplaced,
    };
    let latency = fabric.now() - start + costs.time(copied);
    // This also completes the work that the call did not wait for.
    rpc.sleep(PAUSE).await;
    let after = counters();
    let promised = (
        concrete.borrow().receive_memory(),
        responder.borrow().receive_memory(),
    );
    let sum = |counts: [u32; rdma_sim::MAX_NODES]| counts.iter().sum();
    let last = tally.last.borrow_mut().take();
    let mut granted = None;
    if let Some(counter) = grants {
        counter.borrow_mut().take(1);
        for _ in 0..GRANTED_CALLS {
            make(&nfs, file, operation, long.as_ref()).await?;
            rpc.sleep(PAUSE).await;
        }
        granted = Some(counter.borrow_mut().take(GRANTED_CALLS));
    }
    let considered = last.map_or_else(Vec::new, |call| {
        let (message, room) = call.into_message(0, credential());
        concrete.borrow_mut().considered_call(&message, &room)
    });
    let measured = Measured {
        latency,
        copied,
        round_trips: path.round_trips(),
        requester_interrupts: path.interrupts[CLIENT.0],
        responder_interrupts: path.interrupts[SERVER.0],
        registrations: sum(path.registrations),
        invalidations: sum(path.invalidations),
        grants: granted,
        requester_receives: promised.0,
        responder_receives: promised.1,
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

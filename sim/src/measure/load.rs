//! The cost of many operations, with several in flight, or at the times at which they arrive.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use nfs_binding::client::RpcClient;
use rdma::{Counters, Time};
use rdma_sim::{MAX_NODES, NodeId};
use rpc_transport::ConnectionId;
use rpc_transport::rdma::RdmaClient;
use rpcrdma_programs::workload::{Pace, Prepared, Server, Until, Workload, drive};

use super::copies::CopyCosts;
use super::copying::{Copies, CopyingClient, CopyingService};
use super::grants::Grants;
use super::setting::Setting;
use super::stage::{CannotMeasure, Connection, PAUSE, Stage, View, connect, failed, root, since};
use crate::client::{Counted, Desk};
use crate::server::Programs;

/// The maximum number of clients.
pub const MOST_CLIENTS: u32 = MAX_NODES as u32 - 1;
/// The time between two looks of a client at what others do.
const LOOK: Duration = Duration::from_millis(10);

/// The number of operations, and their pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The number of clients, each with a connection of its own: 1 to [`MOST_CLIENTS`].
    pub clients: u32,
    /// The pace of the operations of each client.
    pub pace: Pace,
    /// The number of operations of each client.
    pub operations: u64,
}

/// The cost of many operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The latency of each operation, in the order in which they ended.
    pub latencies: Vec<Duration>,
    /// The time from the first operation to the end of the last one.
    pub elapsed: Duration,
    /// The greatest number of credits that a connection took at the same time.
    pub credits: u32,
    /// The packets that the link lost and devices sent again.
    pub retransmissions: u64,
    /// The messages that only grant credits, for each operation, in a version that has them.
    pub grants: Option<Grants>,
    /// Bytes of the receives that each client promises the server at most.
    pub requester_receives: u64,
    /// Bytes of the receives that the server promises all clients at most.
    pub responder_receives: u64,
    /// Bytes that the receives of the server took at most, posted or with messages that were in use.
    pub receives_taken: u64,
    /// The counters of the clients' devices together.
    pub requester: Counters,
    /// The counters of the server's device.
    pub responder: Counters,
}

/// The state that the clients have in common.
struct Shared {
    clients: u32,
    /// The clients that are prepared, and those that have performed their operations.
    ready: Cell<u32>,
    done: Cell<u32>,
    /// The time at which all begin, once all are prepared.
    begin: Cell<Option<Time>>,
    /// The counters at that time, with the packets sent again.
    before: RefCell<Option<(Counters, Counters, u64)>>,
    ports: RefCell<Vec<Rc<RefCell<RdmaClient>>>>,
    latencies: RefCell<Vec<Duration>>,
    /// The time at which the last operation ended.
    end: Cell<Duration>,
    credits: Cell<u32>,
    found: RefCell<Option<Result<Loaded, CannotMeasure>>>,
    /// The bulk data of a call.
    items: Rc<Cell<u64>>,
}

/// Performs operations of a workload in a simulation of its own, after as many as are in flight that
/// do not count.
///
/// All calls are taken to have bulk data of one length: the server's copies of a call are those of
/// the call that was made last.
///
/// # Errors
/// The options do not allow the calls, there are too many clients, or operations arrive faster than
/// they end.
pub fn load(
    setting: &Setting,
    workload: &dyn Workload,
    load: &Load,
) -> Result<Loaded, CannotMeasure> {
    if !(1..=MOST_CLIENTS).contains(&load.clients) {
        let text = format!("their number is from 1 to {MOST_CLIENTS}");
        return Err(failed("clients")(text));
    }
    let shared = Rc::new(Shared::new(load.clients));
    let (costs, items) = (setting.copies, Rc::clone(&shared.items));
    let programs = Programs {
        before: Some(Box::new(move |served| {
            Box::new(CopyingService::new(served, costs, Rc::clone(&items)))
        })),
        ..Programs::default()
    };
    let mut stage = Stage::new(setting, workload, programs)?;
    let view = stage.view();
    for number in 0..load.clients {
        let (shared, view) = (Rc::clone(&shared), view.clone());
        stage.client(|desk| {
            shared.ports.borrow_mut().push(Rc::clone(&desk.port));
            Box::pin(async move {
                let client = Client {
                    shared: &shared,
                    view: &view,
                    load,
                    costs,
                    number,
                };
                if let Err(error) = client.run(desk, workload).await {
                    shared.fail(error);
                }
            })
        })?;
    }
    stage.run();
    let found = shared.found.borrow_mut().take();
    found.unwrap_or_else(|| Err(failed("the calls")("they did not end")))
}

impl Shared {
    fn new(clients: u32) -> Self {
        Self {
            clients,
            ready: Cell::new(0),
            done: Cell::new(0),
            begin: Cell::new(None),
            before: RefCell::new(None),
            ports: RefCell::default(),
            latencies: RefCell::default(),
            end: Cell::new(Duration::ZERO),
            credits: Cell::new(0),
            found: RefCell::new(None),
            items: Rc::default(),
        }
    }

    /// Notes the first error. Nobody waits for a client that has failed.
    fn fail(&self, error: CannotMeasure) {
        self.found.borrow_mut().get_or_insert(Err(error));
    }

    fn has_failed(&self) -> bool {
        self.found.borrow().is_some()
    }

    /// Returns the counters of all clients' devices, and of the server's, and the number of packets that
    /// were sent again.
    fn counters(&self, view: &View) -> (Counters, Counters, u64) {
        let ports = self.ports.borrow();
        let clients = ports.iter().map(|port| port.borrow().counters()).sum();
        let server = view.port.borrow().counters();
        (clients, server, view.fabric.retransmissions())
    }
}

/// Returns the greatest number of credits that a connection other than `others` took.
fn most_credits(port: &RdmaClient, others: &[ConnectionId]) -> u32 {
    let own = port.connections().filter(|conn| !others.contains(conn));
    let counters = own.filter_map(|conn| port.requester_counters(conn));
    let credits = counters.map(|counters| counters.most_in_flight);
    credits.max().unwrap_or(0)
}

/// One of the clients.
struct Client<'a> {
    shared: &'a Shared,
    view: &'a View,
    load: &'a Load,
    costs: CopyCosts,
    number: u32,
}

impl Client<'_> {
    async fn run(&self, desk: Desk, workload: &dyn Workload) -> Result<(), CannotMeasure> {
        let shared = self.shared;
        let prepared = {
            // On a connection of its own, so that what it takes does not count.
            let Connection { rpc, .. } = connect(&desk, self.view).await?;
            let directory = root(&rpc).await?;
            Prepared::new(workload, Server::new(&rpc, Some(directory), self.number)).await?
        };
        let others: Vec<ConnectionId> = desk.port.borrow().connections().collect();
        let Connection { rpc, .. } = connect(&desk, self.view).await?;
        let node = NodeId(self.number as usize + 1);
        let client = CopyingClient::new(
            &rpc,
            Rc::clone(&desk.port),
            Copies::new(&self.view.fabric, node, self.costs),
            Rc::clone(&shared.items),
        );
        // The first calls do additional work, such as allocating memory.
        let at_once = match self.load.pace {
            Pace::InFlight(calls) => u64::from(calls),
            Pace::Arrivals(_) => 1,
        };
        let warm_up = (Pace::InFlight(at_once as u32), Until::Count(at_once));
        let (now, seed) = (|| client.now(), u64::from(self.number));
        drive(&client, &prepared, warm_up, seed, &now, |_| ()).await?;
        self.begin_together(&rpc).await;
        let measured = (self.load.pace, Until::Count(self.load.operations));
        let record = |latency| shared.latencies.borrow_mut().push(latency);
        drive(&client, &prepared, measured, seed, &now, record).await?;
        shared.end.set(shared.end.get().max(now()));
        let credits = most_credits(&desk.port.borrow(), &others);
        shared.credits.set(shared.credits.get().max(credits));
        self.end_together(&rpc, &desk).await;
        Ok(())
    }

    /// Waits until all clients are prepared. Takes the counters if this is the first one to begin.
    async fn begin_together(&self, rpc: &Counted) {
        let shared = self.shared;
        shared.ready.set(shared.ready.get() + 1);
        if shared.ready.get() == shared.clients {
            shared.begin.set(Some(rpc.now() + PAUSE));
        }
        let begin = loop {
            match shared.begin.get() {
                Some(begin) => break begin,
                None if shared.has_failed() => return,
                None => rpc.sleep(LOOK).await,
            }
        };
        rpc.sleep(begin - rpc.now()).await;
        if shared.before.borrow().is_none() {
            *shared.before.borrow_mut() = Some(shared.counters(self.view));
            if let Some(grants) = &self.view.grants {
                grants.borrow_mut().take(1);
            }
        }
    }

    /// Waits until all clients have ended, and for the work that calls did not wait for. Puts the
    /// results together if this is the first one to go on.
    async fn end_together(&self, rpc: &Counted, desk: &Desk) {
        let shared = self.shared;
        shared.done.set(shared.done.get() + 1);
        while shared.done.get() < shared.clients && !shared.has_failed() {
            rpc.sleep(LOOK).await;
        }
        rpc.sleep(PAUSE).await;
        let before = shared.before.borrow_mut().take();
        let Some((before, begin)) = before.zip(shared.begin.get()) else {
            return;
        };
        let after = shared.counters(self.view);
        let latencies = shared.latencies.take();
        let grants = self.view.grants.as_ref();
        let loaded = Loaded {
            elapsed: shared.end.get().saturating_sub(begin - Time::ZERO),
            credits: shared.credits.get(),
            retransmissions: after.2 - before.2,
            grants: grants.map(|grants| grants.borrow_mut().take(latencies.len() as u64)),
            latencies,
            requester_receives: desk.port.borrow().receive_memory(),
            responder_receives: self.view.port.borrow().receive_memory(),
            receives_taken: self.view.port.borrow().receives_taken(),
            requester: since(before.0, after.0),
            responder: since(before.1, after.1),
        };
        shared.found.borrow_mut().get_or_insert(Ok(loaded));
    }
}

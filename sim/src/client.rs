//! A simulated client host.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use nfs_binding::client::RpcClient;
use onc_rpc::{AuthSys, Credential};
use rdma::{Clock, Device, DeviceError, Pool, Time};
use rdma_sim::{Fabric, Host, NodeId, SimDevice};
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, for_another_end};
use rpc_transport::{Call, CallError, Client, Reply, Runtime, Stepped};

/// The maximum number of turns of a client's loop before other hosts get their turn.
const TURNS: u32 = 10_000;

/// Returns the credential of all calls: root, so that permissions do not matter.
pub(crate) fn credential() -> Credential {
    Credential::Sys(AuthSys {
        machine_name: "sim".into(),
        ..AuthSys::default()
    })
}

/// The calls of all clients of a run: started and ended.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) ended: Cell<u64>,
    pub(crate) failed: Cell<u64>,
    /// The duration of the longest one.
    pub(crate) longest: Cell<Duration>,
    /// The number of replies whose bulk data arrived apart from the rest, and needed no copy.
    pub(crate) placed: Cell<u64>,
    /// The last call that was started.
    pub(crate) last: RefCell<Option<Call>>,
}

/// A client that counts its outstanding calls.
#[derive(Clone)]
pub(crate) struct Counted {
    client: Client,
    under_way: Rc<Cell<usize>>,
    tally: Rc<Tally>,
}

impl Counted {
    pub(crate) fn new(client: Client, under_way: Rc<Cell<usize>>, tally: Rc<Tally>) -> Self {
        Self {
            client,
            under_way,
            tally,
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.client.runtime().now()
    }
}

impl RpcClient for Counted {
    async fn call(&self, call: Call) -> Result<Reply, CallError> {
        self.under_way.set(self.under_way.get() + 1);
        *self.tally.last.borrow_mut() = Some(call.clone());
        let began = self.now();
        let result = self.client.call(call).await;
        let took = self.now() - began;
        self.tally.longest.set(self.tally.longest.get().max(took));
        self.under_way.set(self.under_way.get() - 1);
        self.tally.ended.set(self.tally.ended.get() + 1);
        if let Ok(reply) = &result {
            // An item that no decoder has used yet lies apart.
            let placed = reply.results().items_used().is_err();
            self.tally
                .placed
                .set(self.tally.placed.get() + u64::from(placed));
        }
        if result.is_err() {
            self.tally.failed.set(self.tally.failed.get() + 1);
        }
        result
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.client.runtime().sleep(duration)
    }
}

/// The objects that a client's workload uses.
pub(crate) struct Desk {
    pub(crate) runtime: Runtime,
    pub(crate) port: Rc<RefCell<RdmaClient>>,
    pub(crate) under_way: Rc<Cell<usize>>,
    /// The clock of the host's own work, for traces.
    pub(crate) clock: Clock,
}

/// The work of a client.
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A client host, from its start to its crash.
pub(crate) struct ClientHost<'a> {
    pub(crate) node: NodeId,
    pub(crate) pool: Pool,
    runtime: Runtime,
    /// The workload; `None` once it has completed.
    work: Option<Work<'a>>,
    pub(crate) under_way: Rc<Cell<usize>>,
    port: Rc<RefCell<RdmaClient>>,
}

impl<'a> ClientHost<'a> {
    pub(crate) fn start(
        fabric: &Fabric,
        host: Host,
        mut options: RdmaClientOptions,
        seed: u64,
        wrap: impl FnOnce(SimDevice) -> Box<dyn Device>,
        work: impl FnOnce(Desk) -> Work<'a>,
    ) -> Result<Self, DeviceError> {
        let pool = host.pool.clone();
        let device = fabric.host(host)?;
        let node = device.node();
        options.common.grants = for_another_end(&options.common.grants);
        let port = Rc::new(RefCell::new(RdmaClient::new(wrap(device), options)));
        let runtime = Runtime::simulated(fabric.clock(), seed);
        let under_way = Rc::new(Cell::new(0));
        let desk = Desk {
            runtime: runtime.clone(),
            port: Rc::clone(&port),
            under_way: Rc::clone(&under_way),
            clock: fabric.host_clock(node),
        };
        let work = work(desk);
        runtime.wake();
        fabric.turn_at(node, fabric.now());
        Ok(Self {
            node,
            pool,
            runtime,
            work: Some(work),
            under_way,
            port,
        })
    }

    /// Runs the host's turn.
    pub(crate) fn turn(&mut self, fabric: &Fabric) {
        let stepped = match &mut self.work {
            Some(work) => self.runtime.step(work.as_mut(), TURNS),
            None => {
                self.linger(fabric);
                return;
            }
        };
        match stepped {
            Stepped::Done(()) => {
                self.work = None;
                fabric.turn_at(self.node, fabric.now());
            }
            Stepped::Busy => fabric.turn_at(self.node, fabric.now()),
            Stepped::Idle(deadline) => {
                if let Some(at) = deadline {
                    fabric.turn_at(self.node, at);
                }
            }
        }
    }

    /// Polls the transport of a client that has ended, so that its connections end.
    fn linger(&self, fabric: &Fabric) {
        use rpc_transport::PollSource;
        let mut port = self.port.borrow_mut();
        for _ in 0..TURNS {
            let progress = port.poll(fabric.now());
            if !progress && port.arm() {
                if let Some(at) = port.next_deadline() {
                    fabric.turn_at(self.node, at);
                }
                return;
            }
        }
        fabric.turn_at(self.node, fabric.now());
    }

    pub(crate) fn is_done(&self) -> bool {
        self.work.is_none()
    }
}

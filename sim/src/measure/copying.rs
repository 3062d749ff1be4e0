//! Copies that take the processor's time while other calls are in flight.
//!
//! Each end spends the time of what it has copied since it last did: the server before it executes a
//! call, the client when a call has ended. What is copied to assemble a long message delays what its
//! sender does next, and not the message itself.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use nfs_binding::client::RpcClient;
use onc_rpc::Message;
use rdma::Time;
use rdma_sim::{Fabric, NodeId};
use rpc_transport::rdma::RdmaClient;
use rpc_transport::{
    Call, CallError, ProgramVersions, ReducedArguments, Reply, Request, Service, ServiceOutcome,
};

use super::copies::{Copied, CopyCosts};
use super::stage::bulk;
use crate::client::Counted;
use crate::server::Loop;

/// The copies of one host.
pub(super) struct Copies {
    fabric: Fabric,
    node: NodeId,
    costs: CopyCosts,
    /// The bytes that have been paid for: all, and those before sending.
    paid: Cell<(u64, u64)>,
}

impl Copies {
    pub(super) fn new(fabric: &Fabric, node: NodeId, costs: CopyCosts) -> Self {
        Self {
            fabric: fabric.clone(),
            node,
            costs,
            paid: Cell::new((0, 0)),
        }
    }

    /// Makes the host's processor busy for as long as its copies take, given how many bytes the
    /// transport has copied in all, and how many of these before sending, and so many of bulk data
    /// that were not placed. Returns the time.
    fn spend(&self, all: u64, assembled: u64, unplaced: u64) -> Duration {
        let (all_before, assembled_before) = self.paid.replace((all, assembled));
        let before_sending = assembled.saturating_sub(assembled_before);
        let copied = all
            .saturating_sub(all_before)
            .saturating_sub(before_sending);
        let time = self.costs.time(Copied {
            before_sending,
            after_receiving: copied + unplaced,
            unplaced,
        });
        self.fabric.work(self.node, time);
        time
    }
}

/// A client whose processor copies.
pub(super) struct CopyingClient<'a> {
    rpc: &'a Counted,
    port: Rc<RefCell<RdmaClient>>,
    copies: Copies,
    items: Rc<Cell<u64>>,
    /// The time at which the last copy ends.
    until: Cell<Time>,
}

impl<'a> CopyingClient<'a> {
    /// Adds the time of `copies` to a client. It stores the length of the bulk data of its calls in
    /// `items`, for the server.
    pub(super) fn new(
        rpc: &'a Counted,
        port: Rc<RefCell<RdmaClient>>,
        copies: Copies,
        items: Rc<Cell<u64>>,
    ) -> Self {
        let until = Cell::new(Time::ZERO);
        Self {
            rpc,
            port,
            copies,
            items,
            until,
        }
    }

    /// Returns the time at which the processor goes on.
    pub(super) fn now(&self) -> Duration {
        self.rpc.now().max(self.until.get()) - Time::ZERO
    }
}

impl RpcClient for CopyingClient<'_> {
    async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let (of_call, of_reply) = bulk(&call);
        self.items.set(of_call);
        let reply = self.rpc.call(call).await?;
        // An item that no decoder has used yet lies apart.
        let unplaced = match reply.results().items_used() {
            Ok(()) => of_reply,
            Err(_) => 0,
        };
        let (all, assembled) = {
            let port = self.port.borrow();
            (port.counters().copied_bytes, port.assembled_bytes())
        };
        let time = self.copies.spend(all, assembled, unplaced);
        self.until.set(self.rpc.now().max(self.until.get()) + time);
        Ok(reply)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.rpc.sleep(duration)
    }
}

/// A service whose server's processor copies.
pub(super) struct CopyingService {
    served: Loop,
    copies: Copies,
    items: Rc<Cell<u64>>,
}

impl CopyingService {
    /// Adds the time of copies to a server. `items` is the length of the bulk data of a call.
    pub(super) fn new(served: Loop, costs: CopyCosts, items: Rc<Cell<u64>>) -> Self {
        Self {
            copies: Copies::new(&served.fabric, served.node, costs),
            served,
            items,
        }
    }
}

impl Service for CopyingService {
    fn programs(&self) -> &[ProgramVersions] {
        self.served.service.programs()
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        let unplaced = match request.args().items_used() {
            Ok(()) => self.items.get(),
            Err(_) => 0,
        };
        let (all, assembled) = {
            let port = self.served.port.borrow();
            (port.counters().copied_bytes, port.assembled_bytes())
        };
        self.copies.spend(all, assembled, unplaced);
        self.served.service.call(request)
    }

    fn remember_reply(&self, prog: u32, vers: u32, proc: u32) -> bool {
        self.served.service.remember_reply(prog, vers, proc)
    }

    fn reduced_arguments(&self) -> ReducedArguments {
        self.served.service.reduced_arguments()
    }

    fn has_changed(&self, prog: u32, vers: u32, proc: u32, results: &Message) -> bool {
        self.served.service.has_changed(prog, vers, proc, results)
    }
}

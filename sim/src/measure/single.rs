//! The cost of a single call.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nfs_binding::client::RpcClient;
use rdma::Counters;
use rdma_sim::{MAX_NODES, NodeId, Path};
use rpc_transport::rdma::ConsideredMode;
use rpcrdma_programs::workload::{Prepared, Server, Workload};

use super::copies::{Copied, CopyCosts};
use super::grants::Grants;
use super::setting::Setting;
use super::stage::{
    CannotMeasure, Connection, PAUSE, SERVER, Stage, View, bulk, connect, failed, root, since,
};
use crate::client::{Desk, credential};
use crate::server::Programs;

const CLIENT: NodeId = NodeId(1);
/// The number of calls over which grants are counted: a grant is due when half of the credits of an
/// end are used up.
const GRANTED_CALLS: u32 = 128;

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

/// Performs an operation of a workload in a simulation of its own. Returns its cost.
///
/// # Errors
/// The options do not allow the call.
pub fn measure(setting: &Setting, workload: &dyn Workload) -> Result<Measured, CannotMeasure> {
    both(setting, workload).map(|(measured, _)| measured)
}

/// Performs an operation of a workload in a simulation of its own. Returns all possible transfer
/// modes of its last call, with the one that is chosen by the cost model of the requester's options.
///
/// # Errors
/// The options do not allow the call.
pub fn consider(
    setting: &Setting,
    workload: &dyn Workload,
) -> Result<Vec<ConsideredMode>, CannotMeasure> {
    both(setting, workload).map(|(_, considered)| considered)
}

type Both = (Measured, Vec<ConsideredMode>);

fn both(setting: &Setting, workload: &dyn Workload) -> Result<Both, CannotMeasure> {
    let found = Rc::new(RefCell::new(None));
    let mut stage = Stage::new(setting, workload, Programs::default())?;
    let (result, view, copies) = (Rc::clone(&found), stage.view(), setting.copies);
    stage.client(|desk| {
        Box::pin(async move {
            let measured = run(desk, &view, copies, workload).await;
            *result.borrow_mut() = Some(measured);
        })
    })?;
    stage.run();
    let found = found.borrow_mut().take();
    found.unwrap_or_else(|| Err(failed("the call")("it did not end")))
}

async fn run(
    desk: Desk,
    view: &View,
    costs: CopyCosts,
    workload: &dyn Workload,
) -> Result<Both, CannotMeasure> {
    let concrete = Rc::clone(&desk.port);
    let Connection { rpc, tally } = connect(&desk, view).await?;
    let directory = root(&rpc).await?;
    let server = Server::new(&rpc, Some(directory), 0);
    let prepared = Prepared::new(workload, server).await?;
    // The first call does additional work, such as allocating memory.
    prepared.perform(&rpc, 0).await?;
    rpc.sleep(PAUSE).await;
    // The counters of the devices, and of copies on the way to them.
    let responder = &view.port;
    let counters = || (concrete.borrow().counters(), responder.borrow().counters());
    let copied = || {
        let (requester, responder) = (concrete.borrow(), responder.borrow());
        let before_sending = requester.assembled_bytes() + responder.assembled_bytes();
        let all = requester.counters().copied_bytes + responder.counters().copied_bytes;
        (before_sending, all - before_sending)
    };
    let placed = || (view.placed.load(Ordering::Relaxed), tally.placed.get());
    let (before, copied_before, placed_before) = (counters(), copied(), placed());
    view.fabric.set_path(CLIENT, Path::default());
    let start = view.fabric.now();
    prepared.perform(&rpc, 1).await?;
    let path = view.fabric.path(CLIENT);
    let last = tally.last.borrow_mut().take();
    let (of_call, of_reply) = last.as_ref().map_or((0, 0), bulk);
    let apart = placed();
    let unplaced = match apart.0 == placed_before.0 {
        true => of_call,
        false => 0,
    } + match apart.1 == placed_before.1 {
        true => of_reply,
        false => 0,
    };
    let (before_sending, after_receiving) = copied();
    let copied = Copied {
        before_sending: before_sending - copied_before.0,
        after_receiving: after_receiving - copied_before.1 + unplaced,
        unplaced,
    };
    let latency = view.fabric.now() - start + costs.time(copied);
    // This also completes the work that the call did not wait for.
    rpc.sleep(PAUSE).await;
    let after = counters();
    let promised = (
        concrete.borrow().receive_memory(),
        responder.borrow().receive_memory(),
    );
    let sum = |counts: [u32; MAX_NODES]| counts.iter().sum();
    let mut granted = None;
    if let Some(counter) = &view.grants {
        counter.borrow_mut().take(1);
        for number in 0..GRANTED_CALLS {
            prepared.perform(&rpc, u64::from(number)).await?;
            rpc.sleep(PAUSE).await;
        }
        granted = Some(counter.borrow_mut().take(u64::from(GRANTED_CALLS)));
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

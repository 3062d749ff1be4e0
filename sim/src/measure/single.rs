//! The cost of a single call.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nfs_binding::client::RpcClient;
use rdma::{Counters, Time};
use rdma_sim::{COUNTED_NODES, NodeId, Path, Step, StepId};
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

pub(super) const CLIENT: NodeId = NodeId(1);
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
    perform(setting, workload).map(|performed| performed.measured)
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
    perform(setting, workload).map(|performed| performed.considered)
}

/// A call that was performed.
pub(super) struct Performed {
    pub(super) measured: Measured,
    considered: Vec<ConsideredMode>,
    /// The time at which the call began.
    pub(super) began: Time,
    /// The steps that took time since then, and the last step that the results had to wait for.
    pub(super) steps: Vec<Step>,
    pub(super) last: Option<StepId>,
    /// The copies of the client and of the server.
    pub(super) copied: [Copied; 2],
    /// Bytes of the bulk data of the call, and those that its reply may have.
    pub(super) bulk: (u64, u64),
}

/// Performs an operation of a workload in a simulation of its own.
pub(super) fn perform(
    setting: &Setting,
    workload: &dyn Workload,
) -> Result<Performed, CannotMeasure> {
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
) -> Result<Performed, CannotMeasure> {
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
    // Bytes that each end has copied before sending, and all that it has copied.
    let copied = || {
        let (requester, responder) = (concrete.borrow(), responder.borrow());
        [
            (
                requester.assembled_bytes(),
                requester.counters().copied_bytes,
            ),
            (
                responder.assembled_bytes(),
                responder.counters().copied_bytes,
            ),
        ]
    };
    let placed = || (view.placed.load(Ordering::Relaxed), tally.placed.get());
    let (before, copied_before, placed_before) = (counters(), copied(), placed());
    view.fabric.record_steps();
    view.fabric.set_path(CLIENT, Path::default());
    let start = view.fabric.now();
    prepared.perform(&rpc, 1).await?;
    let path = view.fabric.path(CLIENT);
    let last = tally.last.borrow_mut().take();
    let (of_call, of_reply) = last.as_ref().map_or((0, 0), bulk);
    let apart = placed();
    // The client copies what the reply has, and the server what the call has.
    let unplaced = [
        if apart.1 == placed_before.1 {
            of_reply
        } else {
            0
        },
        if apart.0 == placed_before.0 {
            of_call
        } else {
            0
        },
    ];
    let after = copied();
    let of_ends = [0, 1].map(|end| {
        let before_sending = after[end].0 - copied_before[end].0;
        Copied {
            before_sending,
            after_receiving: after[end].1 - copied_before[end].1 - before_sending + unplaced[end],
            unplaced: unplaced[end],
        }
    });
    let copied = of_ends[0] + of_ends[1];
    let latency = view.fabric.now() - start + costs.time(copied);
    // This also completes the work that the call did not wait for.
    rpc.sleep(PAUSE).await;
    let steps = view.fabric.take_steps();
    let after = counters();
    let promised = (
        concrete.borrow().receive_memory(),
        responder.borrow().receive_memory(),
    );
    let sum = |counts: [u32; COUNTED_NODES]| counts.iter().sum();
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
    Ok(Performed {
        measured,
        considered,
        began: start,
        steps,
        last: path.last,
        copied: of_ends,
        bulk: (of_call, of_reply),
    })
}

//! What the client's and the server's driver have in common.

use std::time::Duration;

use rdma::{
    ConnectError, Device, DeviceError, Disconnect, Failed, QpId, SendWr, Stag, Success, WorkError,
};

use super::link::{Done, Link};
use super::requester::{RegId, Requester, RequesterAction};
use super::responder::{ReadId, Responder};
use crate::Down;

/// How often something that waits for memory is tried again.
pub(crate) const RETRY: Duration = Duration::from_millis(1);
/// How long a connection that this side ends may take to end in order. What is registered for its
/// calls stays so meanwhile, and a peer that is gone would never answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// What a work request was for whose poster waits for its completion. Each end can have both: the
/// requester of one direction, the responder of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A registration that is being invalidated.
    Registration(RegId, Stag),
    /// An RDMA Read.
    Read(ReadId),
}

/// Takes back memory that the peer cannot reach any more. If that fails, only closing the
/// connection fences it off (RFC 8166, section 4.5.4).
pub(crate) fn reclaim(
    device: &mut dyn Device,
    qp: QpId,
    requester: &mut Requester,
    id: RegId,
    stag: Stag,
) {
    match device.reclaim(qp, stag) {
        Ok(region) => requester.reclaimed(id, region),
        Err(error) => {
            rdma::limited!(error, %stag, %error, "memory not reclaimed, closing the connection");
            device.abort(qp);
        }
    }
}

/// Something other than a receive is complete. Either end can have a requester and a responder.
#[inline(never)]
pub(crate) fn work_done(
    device: &mut dyn Device,
    qp: QpId,
    (requester, responder): (Option<&mut Requester>, Option<&mut Responder>),
    failure: &mut Option<WorkError>,
    (result, done): (Result<Success, Failed>, Done<Mark>),
) {
    match (result, done) {
        (Ok(Success::Invalidate), Done::Work(Mark::Registration(id, stag))) => {
            if let Some(requester) = requester {
                reclaim(device, qp, requester, id, stag);
            }
        }
        (Ok(Success::Read { sink }), Done::Work(Mark::Read(id))) => {
            if let Some(responder) = responder {
                responder.read_done(id, sink);
            }
        }
        (Ok(_), _) => {}
        (Err(failed), _) => {
            tracing::debug!(qp = qp.0, error = %failed.error, "work failed");
            note(failure, failed.error);
        }
    }
}

/// Does what a requester wants done with memory. What becomes of calls is its driver's to do.
#[inline(never)]
pub(crate) fn act_on_memory(
    device: &mut dyn Device,
    link: &mut Link<Mark>,
    requester: &mut Requester,
    action: RequesterAction,
) {
    let qp = link.qp();
    match action {
        RequesterAction::Register { id, region } => {
            let result = match device.register(qp, region) {
                Ok(segment) => Ok(segment),
                // The connection has ended, and the event that says so is on its way. It ends the call,
                // which is then sent again over another connection.
                Err((DeviceError::Unknown(_), _)) => return,
                Err((error, _)) => Err(error.to_string()),
            };
            requester.registered(id, result);
        }
        RequesterAction::Reserve { id, receives } => {
            let done = link.reserve(device, receives);
            requester.reserved(id, done);
        }
        RequesterAction::Release { receives } => link.release(receives),
        RequesterAction::Invalidate { id, stag } => {
            let wr = SendWr::Invalidate { stag };
            link.post(device, wr, Some(Mark::Registration(id, stag)));
        }
        RequesterAction::Reclaim { id, stag } => reclaim(device, qp, requester, id, stag),
        RequesterAction::Send { .. }
        | RequesterAction::Deliver { .. }
        | RequesterAction::Fail { .. } => {}
    }
}

/// The longest segment that the device and the options allow.
pub(crate) fn max_segment(device: &dyn Device, option: u32) -> u64 {
    let region = device.attributes().max_region as u64;
    region.min(u64::from(option)).max(1)
}

/// Keeps the first failure that is a cause and not a consequence.
pub(crate) fn note(failure: &mut Option<WorkError>, error: WorkError) {
    if error != WorkError::Flushed {
        failure.get_or_insert(error);
    }
}

/// Why a connection ended, in words.
pub(crate) fn end_reason(reason: &Disconnect, failure: Option<WorkError>) -> String {
    match failure {
        Some(failure) => format!("{reason} ({failure})"),
        None => reason.to_string(),
    }
}

/// Why a connection that was made is gone.
pub(crate) fn ended(reason: &Disconnect, failure: Option<WorkError>) -> Down {
    Down {
        reason: end_reason(reason, failure),
        retry: true,
        was_up: true,
    }
}

/// Why a connection was not made. `met`: that server was connected to before.
pub(crate) fn not_connected(error: &ConnectError, met: bool) -> Down {
    let retry = match error {
        ConnectError::Rejected { .. } => false,
        // The peer speaks another protocol; but one that was met before does not, and is more
        // likely to have been stopped in the middle of the set-up.
        ConnectError::Protocol(_) => met,
        _ => true,
    };
    Down {
        reason: error.to_string(),
        retry,
        was_up: false,
    }
}

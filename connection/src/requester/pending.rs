//! Calls that are not planned yet.

use onc_rpc::Message;
use rdma::trace::Wait;
use transfer_plan::{ChunkLimits, Limits, ReplyNeed};

use crate::ReplyRoom;

/// A call that has not been planned yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingCall {
    pub(super) xid: u32,
    pub(super) message: Message,
    pub(super) need: ReplyNeed,
    /// Whether the call must be one message of the base protocol, because an earlier plan failed:
    /// neither an extension nor, in the working group's version 2, continuation may be used.
    pub(super) base_only: bool,
    /// Whether the call may be executed more than once.
    pub(super) idempotent: bool,
    /// The chunks that the responder takes for this call, by the errors with which it has answered.
    pub(super) chunks: ChunkLimits,
    /// The number of times that the call was sent again because of an error.
    pub(super) repeats: u8,
    /// The reason why the call waits, as far as a trace has been told.
    pub(super) waits: Option<Wait>,
}

impl PendingCall {
    /// Returns a call whose reply needs this room.
    #[inline]
    pub(crate) fn new(xid: u32, message: Message, room: &ReplyRoom) -> Self {
        Self {
            xid,
            message,
            need: room.need(),
            base_only: false,
            idempotent: room.idempotent,
            chunks: ChunkLimits::default(),
            repeats: 0,
            waits: None,
        }
    }

    /// Returns the limits with which the call is planned, on a connection with these limits. `any`
    /// says whether the responder takes chunks at all.
    pub(super) fn limits(&self, connection: &Limits, any: bool) -> Limits {
        let mut chunks = connection.chunks.and(self.chunks);
        if !any {
            chunks.segments = 0;
        }
        Limits {
            chunks,
            ..*connection
        }
    }

    pub(super) fn base_only(self) -> Self {
        let base_only = true;
        Self { base_only, ..self }
    }
}

//! The plan of the last reply, kept for the next one.

use rpcrdma_extension::{ReplyCandidate, ReplyToPlan};
use transfer_plan::Shape;

/// The transfer mode of the last reply, as most replies of a connection are like the one before. It holds
/// for calls without write chunks, until the peer announces something.
#[derive(Debug)]
pub(crate) struct LastReply {
    pub(crate) shape: Shape,
    pub(crate) inline_send: u64,
    pub(crate) max_message: u64,
    pub(crate) candidate: ReplyCandidate,
}

impl LastReply {
    /// Returns whether the transfer mode would be planned for this reply as well.
    pub(crate) fn holds(&self, reply: &ReplyToPlan<'_>) -> bool {
        self.shape == *reply.shape
            && self.inline_send == reply.limits.inline_send
            && self.max_message == reply.limits.max_message
            && self.candidate.cost.transmissions <= reply.credits
    }
}

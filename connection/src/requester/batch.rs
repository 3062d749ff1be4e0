//! Several calls in one message (rtissues-01, section 4).
//!
//! Calls that were made before the driver asked for actions wait in `pending`. If an extension sends
//! several together, it is offered the first of them, as many as are small and have credits, before they are
//! started one by one. From then on each is a call like any other, with its own credit and outcome. It
//! keeps its message until it is answered, because an error about the batch sends it again by itself.

use onc_rpc::Message;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::{Batch, PeerError, Transmissions};
use smallvec::SmallVec;
use transfer_plan::needs_no_chunks;

use super::Requester;
use super::outstanding::{Outcome, Outstanding, SentBatch, Stage};
use super::pending::PendingCall;
use crate::group::Group;
use crate::shared::Shared;

impl Requester {
    /// Sends the first pending calls in one message, for which there is room in the send queue. Returns the
    /// number of calls that are to be started one by one before this is tried again, which is 0 if a
    /// message was sent.
    #[inline(never)]
    pub(super) fn send_batch(&mut self, shared: &mut Shared) -> usize {
        if self.pending.len() < 2 || !self.ready.is_empty() {
            return 1;
        }
        let most = shared.flow.unreserved_calls() as usize;
        let limits = &shared.limits;
        // What accompanies a call is for an extension that carries it alone.
        let is_small = |call: &&PendingCall| {
            !call.base_only
                && call.message.extras().is_empty()
                && call.message.items().is_empty()
                && needs_no_chunks(call.message.payload_len(), &call.need, limits)
        };
        let small = self.pending.iter().take_while(is_small).take(most);
        let messages: SmallVec<[&Message; 16]> = small.map(|call| &call.message).collect();
        let offered = messages.len();
        if offered < 2 {
            return 1;
        }
        let batch = shared.batch(Direction::Call, &messages);
        drop(messages);
        match batch {
            Some((by, batch)) => {
                self.send_together(shared, by, batch);
                0
            }
            None => offered,
        }
    }

    /// Sends the first calls in the message that the extension with number `by` has made of them.
    fn send_together(&mut self, shared: &mut Shared, by: usize, batch: Batch) {
        let Some(extensions) = shared.session.extensions_mut() else {
            return;
        };
        let is_taken = |xid: &u32| {
            let mut together = self.pending.iter().take(batch.count);
            self.by_xid.contains_key(xid) || together.any(|call| call.xid == *xid)
        };
        let mut xid = extensions.own_xid();
        while is_taken(&xid) {
            xid = extensions.own_xid();
        }
        let sent = SentBatch { xid, by };
        let mut traced = Vec::new();
        let calls: SmallVec<[PendingCall; 16]> = self.pending.drain(..batch.count).collect();
        for call in calls {
            let xid = call.xid;
            tracing::debug!(xid, batch = sent.xid, "call is sent with others");
            let key = self.calls.insert(Outstanding::batched(call, sent));
            self.by_xid.insert(xid, key);
            self.take_credits(shared, key);
            if shared.config.trace.is_some() {
                traced.push(xid);
            }
        }
        let group = Group::new(Transmissions::from_iter([batch.transmission]));
        group.send(shared, Direction::Call, xid, None);
        for xid in traced {
            shared.trace_queued(Direction::Call, xid);
        }
    }

    /// Handles an error about a message with this XID, if that carried several calls: each is sent again
    /// by itself, as none of them has been executed. Returns whether it was such a message.
    #[cold]
    pub(super) fn batch_refused(
        &mut self,
        shared: &mut Shared,
        xid: u32,
        error: PeerError,
    ) -> bool {
        let calls = self.calls.iter();
        let of_batch = calls.filter_map(|(key, call)| {
            let is_sent = matches!(call.stage, Stage::Sent(_));
            let batch = call.batch.filter(|batch| batch.xid == xid && is_sent)?;
            Some((key, batch.by))
        });
        let of_batch: Vec<(usize, usize)> = of_batch.collect();
        let Some(&(_, by)) = of_batch.first() else {
            return false;
        };
        let name = || shared.dialect.error_name(error);
        let calls = of_batch.len();
        rpcrdma_host::limited!(warn, xid, calls, error = %name(), "calls sent together refused, each is sent alone");
        let extensions = shared.session.extensions_mut();
        if let Some(batching) = extensions.and_then(|extensions| extensions.batching(by)) {
            batching.batch_refused(error);
        }
        // They go to the front of the queue one after the other.
        for (key, _) in of_batch.into_iter().rev() {
            let outcome = match self.calls[key].original() {
                Some(source) => Outcome::Again(Box::new(source.clone().base_only())),
                None => Outcome::Dropped,
            };
            self.end_answered(shared, key, None, outcome);
        }
        true
    }
}

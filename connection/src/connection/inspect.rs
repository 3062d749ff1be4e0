//! Queries of a connection's state, for its driver and its user.

use rpcrdma_chunks::Side;
use rpcrdma_extension::{AgreedFeatures, NotChanged, Property, ReceiveChange};
use rpcrdma_negotiation::VersionDecision;
use rpcrdma_v2_wg::Properties;
use transfer_plan::{ReplyNeed, Shape};

use super::{Connection, Phase};
use crate::features::features;
use crate::flow::FlowControl;
use crate::open::Open;
use crate::receives::EXTRA_RECEIVES;
use crate::requester::{LastReplies, Requester, RequesterCounters};
use crate::responder::{Responder, ResponderCounters};
use crate::{Config, ConsideredMode, Moved};

impl Connection {
    /// Returns the outcome of version negotiation and its reason.
    #[must_use]
    pub fn decision(&self) -> Option<VersionDecision> {
        self.decision
    }

    /// Returns the optional features that may be used at present, and why, once the version is
    /// known.
    #[must_use]
    pub fn features(&self) -> Option<AgreedFeatures> {
        let Phase::Open(open) = &self.phase else {
            return None;
        };
        let shared = &open.shared;
        Some(features(&shared.config, open.peer, &*shared.session))
    }

    /// Returns the properties of this end, and those of the peer once they have arrived, in the
    /// working group's version 2 (version-two-07, section 5).
    #[must_use]
    pub fn properties(&self) -> Option<(Properties, Option<Properties>)> {
        let (own, peer) = self.open()?.shared.session.announced()?;
        Some((decoded(own), peer.map(decoded)))
    }

    /// Returns every transfer mode that is possible at present for a call of these lengths, that of
    /// the base protocol first. The list is empty before the version is known.
    #[must_use]
    pub fn considered(&mut self, shape: &Shape, need: &ReplyNeed) -> Vec<ConsideredMode> {
        match &mut self.phase {
            Phase::Open(open) => match &mut open.requester {
                Some(requester) => requester.considered_modes(&mut open.shared, shape, need),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Replaces this end's receives by longer ones, of `size` bytes, as they are consumed, and
    /// announces the new size to the peer when all are replaced (xcharext-02, section 3.1).
    ///
    /// # Errors
    /// [`NotChanged`]: the reason why the size cannot be changed.
    pub fn raise_receive_size(&mut self, size: u32) -> Result<(), NotChanged> {
        self.change_receives(ReceiveChange::Raise(size))
    }

    /// Requests that the peer changes the size of its receives to `size` bytes (xcharext-02,
    /// section 3.1).
    ///
    /// # Errors
    /// [`NotChanged`]: the reason why the request cannot be sent.
    pub fn request_receive_size(&mut self, size: u32) -> Result<(), NotChanged> {
        self.change_receives(ReceiveChange::Request(size))
    }

    fn change_receives(&mut self, change: ReceiveChange) -> Result<(), NotChanged> {
        let open = self.open_mut();
        let extensions = open.and_then(|open| open.shared.session.extensions_mut());
        extensions
            .ok_or(NotChanged::NotSupported)?
            .change_receives(change)
    }

    /// Returns the counters of this end as a requester, if it makes calls.
    #[must_use]
    pub fn requester_counters(&self) -> Option<RequesterCounters> {
        match &self.phase {
            Phase::Ended(ended) => ended.requester,
            _ => Some(self.requester()?.counters),
        }
    }

    /// Returns the number of bytes of messages that the connection has copied. It never decreases.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        if let Phase::Ended(ended) = &self.phase {
            return ended.copied;
        }
        // The requester counts Long Calls that were joined into one piece, the session counts parts
        // of received messages.
        let requester = self.requester().map_or(0, |it| it.counters.copied_bytes);
        let open = self.open();
        requester + open.map_or(0, |open| open.shared.session.copied_bytes())
    }

    /// Returns the bytes of RPC messages that moved, and how.
    #[must_use]
    pub fn moved(&self) -> Moved {
        match &self.phase {
            Phase::Ended(ended) => ended.moved(),
            _ => self
                .open()
                .map_or_else(Moved::default, |open| open.shared.moved),
        }
    }

    /// Returns the number of credits of this end's own calls: those in use, and the most that the peer
    /// grants at present.
    #[must_use]
    pub fn own_credits(&self) -> (u32, u32) {
        self.flow()
            .map_or((0, 0), |flow| (flow.in_flight(), flow.limit()))
    }

    /// Returns the counters of this end as a responder, if it accepts calls and a message has
    /// arrived.
    #[must_use]
    pub fn responder_counters(&self) -> Option<ResponderCounters> {
        match &self.phase {
            Phase::Listening(listening) => Some(listening.counters),
            Phase::Ended(ended) => ended.responder,
            _ => Some(self.responder()?.counters),
        }
    }

    /// Returns the maximum number of messages that may arrive with credits of this end. At least as
    /// many receives must be posted before a message is sent.
    #[must_use]
    pub fn expected_messages(&self) -> u32 {
        if let Some(flow) = self.flow() {
            return flow.expected_messages();
        }
        self.config().map_or(0, |config| match config.role.side() {
            // Before the version is known, receives are those of the configuration.
            Side::Client => config.callbacks,
            Side::Server => config.credits,
        })
    }

    /// Returns how many messages may wait for a send-queue entry. A peer for which more wait keeps
    /// sending without receiving the answers, or ignores its credits. Its connection should be
    /// closed, so that it does not fill this end's memory.
    #[must_use]
    pub fn most_unsent_messages(&self) -> u32 {
        if let Some(open) = self.open() {
            let extensions = open.shared.session.extensions();
            return open
                .shared
                .flow
                .most_unsent_messages(extensions.map_or(0, |_| EXTRA_RECEIVES));
        }
        self.config()
            .map_or(u32::MAX, |config| match config.role.side() {
                Side::Client => config.credits + config.callbacks + EXTRA_RECEIVES,
                Side::Server => config.credits.saturating_sub(1),
            })
    }

    /// Returns whether calls, or replies, that are made before the next actions are taken may leave in
    /// one message. A driver then takes the actions of a turn of its owner at the end of it.
    #[must_use]
    #[inline]
    pub fn sends_together(&self) -> bool {
        matches!(&self.phase, Phase::Open(open) if open.batches)
    }

    /// Returns the number of this end's calls that have not ended. Their memory may be registered.
    #[must_use]
    pub fn unfinished_calls(&self) -> usize {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.pending.len(),
            Phase::Probing(probing) => probing.pending.len(),
            Phase::Ended(ended) => {
                ended.pending.len() + ended.last.as_ref().map_or(0, LastReplies::len)
            }
            Phase::Listening(_) | Phase::Open(_) => {
                self.requester().map_or(0, Requester::unfinished_calls)
            }
        }
    }

    /// Returns whether memory of this end's calls is registered, so that the peer may access it, or has not been
    /// reclaimed.
    #[must_use]
    pub fn has_registered_memory(&self) -> bool {
        self.requester()
            .is_some_and(Requester::has_registered_memory)
    }

    /// Returns the number of the peer's calls that have not been answered.
    #[must_use]
    pub fn unanswered_calls(&self) -> usize {
        self.responder().map_or(0, Responder::unanswered_calls)
    }

    /// Returns whether anything waits for memory. No event reports free memory, so the driver must
    /// call [`Connection::retry`].
    #[must_use]
    #[inline]
    pub fn waits_for_memory(&self) -> bool {
        self.calls_wait_for_memory() || self.responder().is_some_and(Responder::waits_for_memory)
    }

    /// Returns whether a reply of this end waits for credits of the peer (version-two-07, section 4.2.1).
    #[must_use]
    #[inline]
    pub fn replies_wait_for_credits(&self) -> bool {
        self.flow().is_some_and(FlowControl::replies_wait)
    }

    /// Returns whether replies of this end have not become actions that were taken: they wait for credits
    /// of the peer, for their maximum length, or for room in the send queue.
    #[must_use]
    pub fn has_unsent_replies(&self) -> bool {
        let actions = |open: &Open| !open.shared.actions.is_empty();
        self.open().is_some_and(actions)
            || self.replies_wait_for_credits()
            || self.responder().is_some_and(Responder::has_unsent_replies)
    }

    /// Returns the number of messages that had to wait for credits of the peer, and have left since.
    #[must_use]
    pub fn released_by_credits(&self) -> u64 {
        self.flow().map_or(0, FlowControl::released)
    }

    /// Returns whether a call of this end waits for memory.
    #[must_use]
    #[inline]
    pub fn calls_wait_for_memory(&self) -> bool {
        self.requester().is_some_and(Requester::waits_for_memory)
    }

    /// Returns whether a call of this end is in progress, which may release memory when it ends.
    #[must_use]
    pub fn has_calls_under_way(&self) -> bool {
        self.requester().is_some_and(Requester::has_calls_under_way)
    }

    /// Retries what waits for memory: calls of this end that need it for chunks, and calls of the
    /// peer that need it to be fetched or answered.
    pub fn retry(&mut self) {
        let Some(Open {
            shared,
            requester,
            responder,
            ..
        }) = self.open_mut()
        else {
            return;
        };
        if let Some(requester) = requester {
            requester.retry();
        }
        if let Some(responder) = responder {
            responder.retry(shared);
        }
    }

    /// Fails the first call that waits for memory, because no other call will release any.
    pub fn give_up_waiting(&mut self) {
        if let Some(open) = self.open_mut()
            && let Some(requester) = &mut open.requester
        {
            requester.give_up_waiting(&mut open.shared);
        }
    }

    fn open(&self) -> Option<&Open> {
        match &self.phase {
            Phase::Open(open) => Some(open),
            Phase::Probing(probing) => Some(&probing.open),
            Phase::Connecting(_) | Phase::Listening(_) | Phase::Ended(_) => None,
        }
    }

    /// Returns the number of messages sent that only granted credits, which only versions that count
    /// messages have (version-two-07, section 6.3.2).
    #[must_use]
    pub fn grants_sent(&self) -> u64 {
        match &self.phase {
            Phase::Ended(ended) => ended.grants_sent,
            _ => self.flow().map_or(0, FlowControl::grants_sent),
        }
    }

    fn flow(&self) -> Option<&FlowControl> {
        Some(&self.open()?.shared.flow)
    }

    fn requester(&self) -> Option<&Requester> {
        self.open()?.requester.as_ref()
    }

    fn responder(&self) -> Option<&Responder> {
        self.open()?.responder.as_ref()
    }

    fn config(&self) -> Option<&Config> {
        match &self.phase {
            Phase::Connecting(connecting) => Some(&connecting.config),
            Phase::Probing(probing) => Some(&probing.open.shared.config),
            Phase::Listening(listening) => Some(&listening.config),
            Phase::Open(open) => Some(&open.shared.config),
            Phase::Ended(_) => None,
        }
    }
}

/// Returns properties of version-two-07 as one value.
fn decoded(properties: Vec<Property>) -> Properties {
    let raw = |Property { id, value }| rpcrdma_v2_wg::Property { id, value };
    let raw: Vec<_> = properties.into_iter().map(raw).collect();
    let mut decoded = Properties::default();
    // Each of them was encoded from such a value.
    let _ = decoded.apply(&raw);
    decoded
}

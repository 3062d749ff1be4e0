//! Shared receive queues.
//!
//! A connection that is bound to a queue takes a receive from it when the header of a Send's first
//! segment has arrived; it holds at most one. If there is none, the connection
//! *waits*: it parses and reads no more, so that TCP makes the peer stop, and everything behind the
//! Send waits with it, Read Responses and Read Requests included. It goes on when a receive has
//! been posted, in the order in which connections began to wait.
//!
//! A connection that waits costs no processor time. Its socket may stay readable without a new
//! event, so `Conn::readable` remembers that, and neither the owner's poll loop nor the background
//! thread processes it again for that reason. A lost connection (reset, keep-alive) is noticed
//! at once. An orderly close is noticed only after the waiting data was read, because the FIN follows
//! it.

use super::conn::Conn;
use super::endpoint::{Endpoint, Out};
use super::fault::Ending;
use super::memory::{Memory, Receive};
use super::shared_queue::{Binding, MAX_SHARED_WR};
use super::state::{Slot, State};
use rdma::{
    DeviceError, Event, PostError, QpId, Scatter, SharedReceiveQueue, SharedReceivesId, Time, WrId,
};

impl Memory {
    /// Takes a receive from the shared receive queue for the message that begins. Returns false if
    /// there is none for this queue pair, which then waits, or if it is not bound to such a queue.
    #[inline(never)]
    pub(super) fn take_shared(&mut self, out: &mut Out<'_>) -> bool {
        let Some(binding) = &mut self.binding else {
            return false;
        };
        let Some(queue) = out.shared.get_mut(binding.queue) else {
            return false;
        };
        if binding.waits && queue.next() != Some(binding.qp) {
            return false;
        }
        let taken = queue.take(binding.qp);
        binding.waits = taken.is_none();
        if queue.take_low() {
            let id = binding.queue;
            out.events.push_back(Event::SharedReceivesLow { id });
        }
        let Some((id, buf)) = taken else {
            return false;
        };
        self.receives.push_back(Receive { id, buf });
        true
    }
}

impl Endpoint {
    /// Binds the queue pair to a shared receive queue.
    pub(super) fn bind(&mut self, queue: SharedReceivesId, head: Option<usize>) {
        self.memory.binding = Some(Binding {
            queue,
            qp: self.qp,
            head,
            waits: false,
        });
    }

    /// Returns whether a message waits for a receive, so that nothing may be read.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        let binding = self.memory.binding.as_ref();
        binding.is_some_and(|binding| binding.waits)
    }

    /// Goes on with the message that waits, and the received bytes behind it, if it is this queue
    /// pair's turn and there is a receive. [`Endpoint::is_waiting`] says whether it waits again.
    pub(super) fn resume(&mut self, out: &mut Out<'_>) -> Result<(), Ending> {
        let binding = self.memory.binding.as_ref();
        let queue = binding.and_then(|binding| out.shared.get(binding.queue));
        match queue.and_then(SharedReceiveQueue::next) {
            Some(qp) if qp == self.qp => self.received(0, out),
            _ => Ok(()),
        }
    }

    /// Stops waiting, because the stream has ended.
    pub(super) fn stop_waiting(&mut self, out: &mut Out<'_>) {
        if let Some(binding) = &mut self.memory.binding
            && std::mem::take(&mut binding.waits)
            && let Some(queue) = out.shared.get_mut(binding.queue)
        {
            queue.leave(self.qp);
        }
    }
}

impl State {
    pub(super) fn create_shared_receives(&mut self) -> SharedReceivesId {
        self.last_shared += 1;
        let id = SharedReceivesId(self.last_shared);
        let queue = SharedReceiveQueue::new(MAX_SHARED_WR, self.limits.scatter);
        self.shared.insert(id, queue);
        id
    }

    /// Posts a receive. Connections that wait for it go on in the next poll, or before the owner
    /// sleeps.
    pub(super) fn post_shared_receive(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let Some(queue) = self.shared.get_mut(receives) else {
            return Err((PostError::Unknown, receive));
        };
        let before = queue.head();
        queue.post(id, receive)?;
        let head = queue.head();
        if head != before {
            // The first receive of all: connections that were bound before it learn its structure.
            for (_, slot) in &mut self.slots {
                if let Slot::Conn(conn) = slot
                    && let Some(binding) = &mut conn.endpoint.memory.binding
                    && binding.queue == receives
                {
                    binding.head = head;
                }
            }
        }
        Ok(())
    }

    pub(super) fn arm_shared_receives(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        let queue = self.shared.get_mut(receives).ok_or(UNKNOWN)?;
        queue.arm(below);
        if queue.take_low() {
            let id = receives;
            self.events.push_back(Event::SharedReceivesLow { id });
        }
        Ok(())
    }

    pub(super) fn posted_shared_receives(&self, receives: SharedReceivesId) -> usize {
        let queue = self.shared.get(receives);
        queue.map_or(0, SharedReceiveQueue::len)
    }

    pub(super) fn withdraw_shared_receive(
        &mut self,
        receives: SharedReceivesId,
    ) -> Option<Scatter> {
        let queue = self.shared.get_mut(receives);
        let withdrawn = queue.and_then(SharedReceiveQueue::withdraw);
        withdrawn.map(|(_, receive)| receive)
    }

    /// Adds the queue pairs that hold a receive of the queue for a message that is incomplete.
    pub(super) fn receiving(&self, receives: SharedReceivesId, qps: &mut Vec<QpId>) {
        qps.extend(self.slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Conn(conn) => {
                let endpoint = &conn.endpoint;
                let holds = conn.owned && !endpoint.memory.receives.is_empty();
                (holds && endpoint.is_bound_to(receives)).then_some(endpoint.qp)
            }
            Slot::Listener(_) => None,
        }));
    }

    pub(super) fn destroy_shared_receives(
        &mut self,
        receives: SharedReceivesId,
    ) -> Result<(), DeviceError> {
        if self.shared.get(receives).is_none() {
            return Err(UNKNOWN);
        }
        let bound = |slot: &Slot| match slot {
            Slot::Conn(conn) => conn.owned && conn.endpoint.is_bound_to(receives),
            Slot::Listener(_) => false,
        };
        if self.slots.iter().any(|(_, slot)| bound(slot)) {
            return Err(DeviceError::Bound);
        }
        self.shared.remove(receives);
        self.events
            .retain(|event| !matches!(event, Event::SharedReceivesLow { id } if *id == receives));
        Ok(())
    }

    /// Returns the first buffer's length in the receives of a queue to which a queue pair is to be
    /// bound, as [`SharedReceiveQueue::head`] does.
    pub(super) fn shared_head(
        &self,
        receives: Option<SharedReceivesId>,
    ) -> Result<Option<usize>, DeviceError> {
        let queue = receives.map(|receives| self.shared.get(receives).ok_or(UNKNOWN));
        Ok(queue.transpose()?.and_then(SharedReceiveQueue::head))
    }

    /// Lets connections go on for whose messages there are receives now, in the order in which they
    /// began to wait.
    #[inline]
    pub(super) fn serve_waiting(&mut self, now: Time) {
        if self.next_waiting().is_some() {
            self.serve(now);
        }
    }

    #[cold]
    fn serve(&mut self, now: Time) {
        // One turn for each posted receive, so the loop ends. If a connection ends in its turn it takes
        // no receive; its event makes the owner poll again, and the next connection goes on then.
        let mut turns = self.shared.posted();
        while turns > 0
            && let Some(qp) = self.next_waiting()
        {
            turns -= 1;
            if let Some(index) = self.find(qp.0) {
                self.with(index, now, Conn::progress);
            }
        }
    }

    /// Returns a queue pair that can go on, if there is one.
    #[inline]
    pub(super) fn next_waiting(&self) -> Option<QpId> {
        self.shared.next()
    }
}

impl Endpoint {
    fn is_bound_to(&self, receives: SharedReceivesId) -> bool {
        let binding = self.memory.binding.as_ref();
        binding.is_some_and(|binding| binding.queue == receives)
    }
}

const UNKNOWN: DeviceError = DeviceError::Unknown("shared receive queue");

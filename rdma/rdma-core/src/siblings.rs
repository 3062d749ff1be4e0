//! Devices of one process that share a verbs context.
//!
//! librdmacm opens each RDMA device of the machine once for a process, so all `RdmaCore` of a
//! process on the same RDMA device, such as one for each loop of a server, have one context. They
//! are *siblings*, and each has a mailbox, because two things cannot be divided among them:
//!
//! - **Asynchronous events.** Whichever sibling reads an event puts it into the owner's mailbox. The
//!   ids of connections and shared receive queues, which events carry, name the owner.
//! - **Ports.** Only one identifier of the connection manager can listen on a port. Siblings with a
//!   [`LoopSeat`](rpcrdma_host::LoopSeat) of the same group that listen on the same address share one: the
//!   sibling that created it hands each connection request to the sibling with the fewest
//!   connections, and moves the request's identifier to that sibling's event channel
//!   (rdma_migrate_id), where its later events arrive.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};

use super::cm::{Depths, EventChannel, Id};
use super::context::{AsyncEvent, Context};
use rdma::{Interest, ListenerId, Poller};
use rpcrdma_host::{CountedMutex, LockCounter, LoopClaim, LoopSeat};

/// The siblings on each context, by the address of the `ibv_context`.
static CONTEXTS: Mutex<BTreeMap<usize, Weak<Siblings>>> = Mutex::new(BTreeMap::new());
/// Number of lower bits of an id that tell the objects of one device apart. The device's number is
/// above them.
const OBJECT_BITS: u32 = 40;

static CONTENDED: LockCounter = LockCounter::new("loops that share a verbs device");

/// A listener of one device.
pub(super) struct Listener {
    /// The identifier, or `None` if a sibling created it.
    pub(super) id: Option<Id>,
    /// The bound address, if the connection manager tells it.
    pub(super) address: Option<SocketAddr>,
}

/// A connection request that the program has not been told of.
pub(super) struct PendingRequest {
    pub(super) listener: ListenerId,
    pub(super) id: Id,
    pub(super) depths: Depths,
    pub(super) private_data: Bytes,
    /// The loop for which its connection counts, if there are several.
    pub(super) claim: Option<LoopClaim>,
}

/// The contents of a mailbox, in order of arrival.
#[derive(Default)]
struct Pending {
    events: Vec<AsyncEvent>,
    requests: Vec<PendingRequest>,
}

/// Events and connection requests for one sibling.
struct Mailbox {
    pending: CountedMutex<Pending>,
    /// An eventfd, written after something was put in. Poll loops watch it edge-triggered, so nobody
    /// reads it.
    wake: OwnedFd,
}

impl Mailbox {
    fn new() -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Arc::new(Self {
            pending: CountedMutex::new(&CONTENDED, Pending::default()),
            wake: eventfd(0, flags)?,
        }))
    }

    /// Puts something in, and wakes the owner.
    fn put(&self, put: impl FnOnce(&mut Pending)) {
        put(&mut self.pending.lock());
        if let Err(error) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot wake a loop");
        }
    }
}

/// A listener that siblings of one group share.
struct SharedListener {
    id: ListenerId,
    /// The address passed to [`Membership::listen`], whose port may be 0.
    wanted: SocketAddr,
    /// The bound address, with the actual port.
    address: Option<SocketAddr>,
}

struct Member {
    number: u64,
    mailbox: Arc<Mailbox>,
    cm: Arc<EventChannel>,
    seat: Option<LoopSeat>,
    /// The listeners that this device created and others can join.
    created: Vec<SharedListener>,
    listens_to: Vec<ListenerId>,
}

/// The devices of this process on one context.
struct Siblings(CountedMutex<Vec<Member>>);

impl Siblings {
    fn of(context: &Context) -> Arc<Self> {
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|_, siblings| siblings.strong_count() > 0);
        let siblings = contexts.entry(context.raw().addr()).or_default();
        siblings.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Self(CountedMutex::new(&CONTENDED, Vec::new())));
            *siblings = Arc::downgrade(&new);
            new
        })
    }
}

/// The sibling to which a connection request was assigned.
pub(super) struct Assignment {
    claim: LoopClaim,
    /// Its mailbox and its event channel, or `None` if it is this device.
    other: Option<(Arc<Mailbox>, Arc<EventChannel>)>,
}

/// A device's membership among its siblings, which ends when this is dropped.
pub(super) struct Membership {
    siblings: Arc<Siblings>,
    number: u64,
    seat: Option<LoopSeat>,
    mailbox: Arc<Mailbox>,
    /// A duplicate of the descriptor of the context's asynchronous events: epoll registers a
    /// descriptor only once, and one poll loop may run several siblings.
    events: OwnedFd,
    /// The poll loop that watches `events`, with the token of the device.
    poller: Option<Poller>,
    last_id: u64,
}

impl Membership {
    /// Joins the siblings of a context. Identifiers of connection requests that are handed to this
    /// device move to `cm`.
    ///
    /// # Errors
    /// The error of eventfd(2), or of duplicating a descriptor.
    pub(super) fn join(
        context: &Context,
        cm: &Arc<EventChannel>,
        seat: Option<LoopSeat>,
    ) -> io::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (siblings, mailbox) = (Siblings::of(context), Mailbox::new()?);
        let events = context.async_fd().try_clone_to_owned()?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        siblings.0.lock().push(Member {
            number,
            mailbox: Arc::clone(&mailbox),
            cm: Arc::clone(cm),
            seat: seat.clone(),
            created: Vec::new(),
            listens_to: Vec::new(),
        });
        Ok(Self {
            siblings,
            number,
            seat,
            mailbox,
            events,
            poller: None,
            last_id: 0,
        })
    }

    /// Has the poll loop watch the asynchronous events and the mailbox, with these tokens.
    ///
    /// # Errors
    /// The error of the poll loop.
    pub(super) fn watch(&mut self, poller: Poller, events: usize, mail: usize) -> io::Result<()> {
        poller.watch(self.events.as_fd(), events, Interest::Readable)?;
        let watched = poller.watch(self.mailbox.wake.as_fd(), mail, Interest::Readable);
        self.poller = Some(poller);
        watched
    }

    /// Returns an id that is unique in the process, for an object of this device whose asynchronous
    /// events carry it.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.number << OBJECT_BITS | self.last_id
    }

    /// Reads the context's pending asynchronous events, puts each into its owner's mailbox, and
    /// returns those of this device.
    ///
    /// Every event that the kernel queued before the call has been delivered when it returns, so that
    /// a limit of a shared receive queue that is set again afterwards does not get an older event.
    pub(super) fn take_async_events(&self, context: &Context) -> Vec<AsyncEvent> {
        // The lock is held until the events are in the mailboxes: a sibling that finds nothing to read
        // waits for it, and then finds them there.
        let members = self.siblings.0.lock();
        while let Some(event) = context.next_async_event() {
            tracing::debug!(?event, "asynchronous event");
            match event {
                // The device that reads it tells the others (`RdmaCore::device_gone`). The descriptor of
                // a removed device reports nothing new.
                AsyncEvent::DeviceFatal => {
                    self.mailbox.pending.lock().events.push(event);
                    break;
                }
                AsyncEvent::Port(port, up) => {
                    tracing::warn!(port, up, "port of the device changed");
                }
                AsyncEvent::Other(_) => {}
                AsyncEvent::QueuePair(id, _)
                | AsyncEvent::CompletionQueue(id)
                | AsyncEvent::SharedReceivesLow(id)
                | AsyncEvent::SharedReceivesFailed(id) => {
                    let owner = id >> OBJECT_BITS;
                    if owner == self.number {
                        self.mailbox.pending.lock().events.push(event);
                    } else if let Some(owner) = members.iter().find(|one| one.number == owner) {
                        owner.mailbox.put(|pending| pending.events.push(event));
                    }
                }
            }
        }
        drop(members);
        mem::take(&mut self.mailbox.pending.lock().events)
    }

    /// Tells the siblings that the device was removed.
    pub(super) fn device_gone(&self) {
        let members = self.siblings.0.lock();
        for sibling in members.iter().filter(|one| !self.is_own(one)) {
            let put = |pending: &mut Pending| pending.events.push(AsyncEvent::DeviceFatal);
            sibling.mailbox.put(put);
        }
    }

    /// Takes the connection requests that siblings have handed to this device.
    pub(super) fn take_requests(&self) -> Vec<PendingRequest> {
        mem::take(&mut self.mailbox.pending.lock().requests)
    }

    /// Joins the listener that a sibling of the same group has on the address `wanted`, or creates one
    /// with `make`.
    ///
    /// # Errors
    /// The error of `make`.
    pub(super) fn listen<E>(
        &mut self,
        wanted: SocketAddr,
        make: impl FnOnce() -> Result<Id, E>,
    ) -> Result<(ListenerId, Listener), E> {
        let new = ListenerId(self.new_id());
        // The lock is held during `make`, so that only one sibling creates the listener.
        let mut members = self.siblings.0.lock();
        let own = members.iter().find(|one| self.is_own(one));
        let known = own.and_then(|own| {
            let same_group = |one: &&Member| {
                let with =
                    |seat: &LoopSeat| self.seat.as_ref().is_some_and(|own| own.same_group(seat));
                one.seat.as_ref().is_some_and(with)
            };
            let created = members
                .iter()
                .filter(same_group)
                .flat_map(|one| &one.created);
            let mut created = created.filter(|known| !own.listens_to.contains(&known.id));
            let known = created.find(|known| known.wanted == wanted)?;
            Some((known.id, known.address))
        });
        let (listener, id, address) = match known {
            Some((listener, address)) => (listener, None, address),
            None => {
                let id = make()?;
                let address = id.local_address();
                (new, Some(id), address)
            }
        };
        if let Some(own) = members.iter_mut().find(|one| self.is_own(one)) {
            own.listens_to.push(listener);
            if id.is_some() {
                own.created.push(SharedListener {
                    id: listener,
                    wanted,
                    address,
                });
            }
        }
        Ok((listener, Listener { id, address }))
    }

    /// Ends the use of a listener by this device. If this device created it, no other can join it any
    /// more.
    pub(super) fn close_listener(&self, listener: ListenerId) {
        let mut members = self.siblings.0.lock();
        if let Some(own) = members.iter_mut().find(|one| self.is_own(one)) {
            own.listens_to.retain(|id| *id != listener);
            own.created.retain(|shared| shared.id != listener);
        }
    }

    /// Assigns a connection request that arrived at a listener to the sibling with the fewest
    /// connections. `None`: this device has no seat.
    pub(super) fn assign(&self, listener: ListenerId) -> Option<Assignment> {
        let members = self.siblings.0.lock();
        let listening = || {
            let all = members
                .iter()
                .filter(|one| one.listens_to.contains(&listener));
            all.filter_map(|one| Some((one, one.seat.as_ref()?)))
        };
        let (at, claim) = LoopSeat::claim_least_loaded(listening().map(|(_, seat)| seat))?;
        let chosen = listening().nth(at).map(|(one, _)| one);
        let chosen = chosen.filter(|one| !self.is_own(one));
        let other = chosen.map(|one| (Arc::clone(&one.mailbox), Arc::clone(&one.cm)));
        Some(Assignment { claim, other })
    }

    /// Hands a request to the sibling to which it was assigned. Returns it if that is this device, or
    /// if its identifier cannot move, so that this device has to take it.
    pub(super) fn hand_over(
        &self,
        mut request: PendingRequest,
        to: Option<Assignment>,
    ) -> Option<PendingRequest> {
        let Some(Assignment { claim, other }) = to else {
            return Some(request);
        };
        request.claim = Some(claim);
        let Some((mailbox, cm)) = other else {
            return Some(request);
        };
        // No event of the identifier can be missed before the sibling has it: the kernel discards those
        // of a connection that has not been accepted.
        if let Err(error) = request.id.migrate(&cm) {
            rpcrdma_host::limited!(warn, %error, "a connection request cannot be moved to another loop");
            let claim = LoopSeat::claim_least_loaded(self.seat.iter());
            request.claim = claim.map(|(_, claim)| claim);
            return Some(request);
        }
        mailbox.put(|pending| pending.requests.push(request));
        None
    }

    fn is_own(&self, member: &Member) -> bool {
        member.number == self.number
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.siblings.0.lock().retain(|member| !self.is_own(member));
        // Closing a duplicate does not end the registration with epoll, as the original stays open.
        if let Some(poller) = &self.poller
            && let Err(error) = poller.unwatch(self.events.as_fd())
        {
            tracing::debug!(%error, "descriptor of asynchronous events not deregistered");
        }
    }
}

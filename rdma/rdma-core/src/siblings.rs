//! Devices of one process that share a verbs context.
//!
//! librdmacm opens each RDMA device of the machine once for a process, so all `RdmaCore` of a
//! process on the same RDMA device, such as one for each loop of a server, have one context. They
//! are *siblings*, and each has a mailbox, because two things cannot be divided among them:
//!
//! - **Asynchronous events.** Whichever sibling reads an event puts it into all mailboxes. It names a
//!   connection or a shared receive queue by an id that is unique in the process, and only the owner
//!   of that acts on it.
//! - **Ports.** Only one identifier of the connection manager can listen on a port. Siblings with a
//!   [`LoopSeat`](rdma::LoopSeat) of the same group that listen on the same address share one: the
//!   sibling that created it hands each connection request to the sibling with the fewest
//!   connections, and moves the request's identifier to that sibling's event channel
//!   (rdma_migrate_id), where its later events arrive.
//!
//! Lock order: [`Siblings`], then a mailbox, then the choice of a loop (`LoopSeat`).

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};

use super::cm::{CmEvent, EventChannel, Id};
use super::context::{AsyncEvent, Context};
use rdma::{ListenerId, LoopClaim, LoopSeat};

/// The siblings on each context, by the address of the `ibv_context`.
static CONTEXTS: Mutex<BTreeMap<usize, Weak<Siblings>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    pub(super) event: CmEvent,
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
    pending: Mutex<Pending>,
    /// An eventfd, written after something was put in. Poll loops watch it edge-triggered, so nobody
    /// reads it.
    wake: OwnedFd,
}

impl Mailbox {
    fn new() -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Arc::new(Self {
            pending: Mutex::default(),
            wake: eventfd(0, flags)?,
        }))
    }

    fn wake(&self) {
        if let Err(error) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot wake a loop");
        }
    }
}

struct Member {
    mailbox: Arc<Mailbox>,
    cm: Arc<EventChannel>,
    seat: Option<LoopSeat>,
    listens_to: Vec<ListenerId>,
}

/// A listener that siblings of one group share.
struct SharedListener {
    id: ListenerId,
    /// The mailbox and the seat of the sibling that created it.
    creator: Arc<Mailbox>,
    seat: LoopSeat,
    /// The address passed to [`Membership::listen`], whose port may be 0.
    wanted: SocketAddr,
    /// The bound address, with the actual port.
    address: Option<SocketAddr>,
}

#[derive(Default)]
struct Group {
    members: Vec<Member>,
    listeners: Vec<SharedListener>,
}

/// The devices of this process on one context.
#[derive(Default)]
struct Siblings(Mutex<Group>);

impl Siblings {
    fn of(context: &Context) -> Arc<Self> {
        let mut contexts = lock(&CONTEXTS);
        contexts.retain(|_, siblings| siblings.strong_count() > 0);
        let siblings = contexts.entry(context.raw().addr()).or_default();
        siblings.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Self::default());
            *siblings = Arc::downgrade(&new);
            new
        })
    }
}

/// A device's membership among its siblings, which ends when this is dropped.
pub(super) struct Membership {
    siblings: Arc<Siblings>,
    mailbox: Arc<Mailbox>,
    /// A duplicate of the descriptor of the context's asynchronous events: epoll registers a
    /// descriptor only once, and one poll loop may run several siblings.
    events: OwnedFd,
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
        let (siblings, mailbox) = (Siblings::of(context), Mailbox::new()?);
        let events = context.async_fd().try_clone_to_owned()?;
        lock(&siblings.0).members.push(Member {
            mailbox: Arc::clone(&mailbox),
            cm: Arc::clone(cm),
            seat,
            listens_to: Vec::new(),
        });
        Ok(Self {
            siblings,
            mailbox,
            events,
        })
    }

    /// Returns the descriptor that is readable when there are asynchronous events, and the one that
    /// is when there is something in the mailbox.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.events.as_fd(), self.mailbox.wake.as_fd()]
    }

    /// Reads the context's pending asynchronous events, puts each into every sibling's mailbox, and
    /// empties this one's. The result may name objects of siblings, which the caller ignores.
    ///
    /// Every event that the kernel queued before the call has been delivered when it returns, so that
    /// a limit of a shared receive queue that is set again afterwards does not get an older event.
    pub(super) fn take_async_events(&self, context: &Context) -> Vec<AsyncEvent> {
        // The lock is held until the events are in the mailboxes: a sibling that finds nothing to read
        // waits for it, and then finds them there.
        let group = lock(&self.siblings.0);
        let mut read = Vec::new();
        while let Some(event) = context.next_async_event() {
            tracing::debug!(?event, "asynchronous event");
            read.push(event);
            if matches!(event, AsyncEvent::DeviceFatal) {
                // The descriptor of a removed device reports nothing new.
                break;
            }
        }
        if !read.is_empty() {
            for member in &group.members {
                lock(&member.mailbox.pending).events.extend(&read);
                if !self.is_own(member) {
                    member.mailbox.wake();
                }
            }
        }
        drop(group);
        mem::take(&mut lock(&self.mailbox.pending).events)
    }

    /// Takes the connection requests that siblings have handed to this one.
    pub(super) fn take_requests(&self) -> Vec<PendingRequest> {
        mem::take(&mut lock(&self.mailbox.pending).requests)
    }

    /// Joins the listener that a sibling of `seat`'s group has on the address `wanted`, or creates one
    /// with `make`, which returns it with its id.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn listen<E>(
        &self,
        wanted: SocketAddr,
        seat: Option<&LoopSeat>,
        make: impl FnOnce() -> Result<(ListenerId, Id), E>,
    ) -> Result<(ListenerId, Listener), E> {
        // The lock is held during `make`, so that only one sibling creates the listener.
        let mut group = lock(&self.siblings.0);
        let Group { members, listeners } = &mut *group;
        let mut own = members.iter_mut().find(|member| self.is_own(member));
        let known = listeners.iter().find(|known| {
            let shared = |seat: &LoopSeat| seat.same_group(&known.seat);
            let is_new = |own: &&mut Member| !own.listens_to.contains(&known.id);
            known.wanted == wanted && seat.is_some_and(shared) && own.as_ref().is_some_and(is_new)
        });
        let (listener, id, address) = match known {
            Some(known) => (known.id, None, known.address),
            None => {
                let (listener, id) = make()?;
                let address = id.local_address();
                listeners.extend(seat.map(|seat| SharedListener {
                    id: listener,
                    creator: Arc::clone(&self.mailbox),
                    seat: seat.clone(),
                    wanted,
                    address,
                }));
                (listener, Some(id), address)
            }
        };
        if let Some(own) = &mut own {
            own.listens_to.push(listener);
        }
        Ok((listener, Listener { id, address }))
    }

    /// Ends the use of a listener by this sibling. If this sibling created it, no other can join it
    /// any more.
    pub(super) fn close_listener(&self, listener: ListenerId) {
        let mut group = lock(&self.siblings.0);
        let own = group.members.iter_mut().filter(|one| self.is_own(one));
        own.for_each(|own| own.listens_to.retain(|id| *id != listener));
        group
            .listeners
            .retain(|shared| shared.id != listener || !self.created(shared));
    }

    /// Assigns a connection request to the sibling with the fewest connections. Returns the request if
    /// that is this one, or if the listener is not shared; otherwise hands it over, and returns `None`.
    ///
    /// # Errors
    /// The error of rdma_migrate_id(3). The request has been rejected.
    pub(super) fn assign(&self, mut request: PendingRequest) -> io::Result<Option<PendingRequest>> {
        let group = lock(&self.siblings.0);
        let members = || {
            let all = group.members.iter();
            all.filter(|member| member.listens_to.contains(&request.listener))
        };
        let seats = members().filter_map(|member| member.seat.as_ref());
        let Some((at, claim)) = LoopSeat::claim_least_loaded(seats) else {
            return Ok(Some(request));
        };
        let chosen = members().filter(|member| member.seat.is_some()).nth(at);
        let chosen = chosen.filter(|member| !self.is_own(member));
        request.claim = Some(claim);
        let Some(chosen) = chosen else {
            return Ok(Some(request));
        };
        // The mailbox stays locked until the request is in it. A sibling that gets an event of the
        // moved identifier first then finds the request in the mailbox (`RdmaCore::take_cm_events`).
        let mut pending = lock(&chosen.mailbox.pending);
        if let Err(error) = request.id.migrate(&chosen.cm) {
            let _ = request.id.reject(&[]);
            return Err(error);
        }
        pending.requests.push(request);
        drop(pending);
        chosen.mailbox.wake();
        Ok(None)
    }

    fn is_own(&self, member: &Member) -> bool {
        Arc::ptr_eq(&member.mailbox, &self.mailbox)
    }

    fn created(&self, listener: &SharedListener) -> bool {
        Arc::ptr_eq(&listener.creator, &self.mailbox)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut group = lock(&self.siblings.0);
        group.members.retain(|member| !self.is_own(member));
        group.listeners.retain(|shared| !self.created(shared));
    }
}

//! Devices of one process that share a verbs context.
//!
//! librdmacm opens each RDMA device of the machine once for a process, so all `RdmaCore` of a
//! process on the same RDMA device, such as one for each loop of a server, have one context. They
//! are *siblings*, and each has a mailbox, because two things cannot be divided among them:
//!
//! - **Asynchronous events.** Whichever sibling reads an event gives it to all, as the number of a
//!   connection or of a shared receive queue, which is unique in the process. The owner acts on it.
//! - **Ports.** Only one identifier can listen on a port. Siblings with a
//!   [`LoopSeat`](rdma::LoopSeat) of the same group that listen on the same address share one: the
//!   sibling that made it gives each connection request to the one with the fewest connections, with
//!   the request's identifier, whose later events arrive at the new owner (`rdma_migrate_id`).

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

/// The siblings of each context, by its address.
static CONTEXTS: Mutex<BTreeMap<usize, Weak<Siblings>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listening identifier, as one device sees it.
pub(super) struct Listener {
    /// The identifier, or `None` if it is a sibling's.
    pub(super) id: Option<Id>,
    pub(super) address: Option<SocketAddr>,
}

/// A connection request, and the loop for which its connection counts.
pub(super) struct Request {
    pub(super) listener: ListenerId,
    pub(super) id: Id,
    pub(super) event: CmEvent,
    pub(super) claim: Option<LoopClaim>,
}

/// The messages for one sibling, in order.
#[derive(Default)]
struct Letters {
    events: Vec<AsyncEvent>,
    requests: Vec<Request>,
}

/// The place where a sibling finds what others give to it.
struct Mailbox {
    letters: Mutex<Letters>,
    /// Signaled when there is a letter. It is watched edge-triggered, so that it need not be read.
    wake: OwnedFd,
}

impl Mailbox {
    fn new() -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Arc::new(Self {
            letters: Mutex::default(),
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

/// A listening identifier that several siblings use.
struct SharedListener {
    id: ListenerId,
    /// The seat of the device that made it.
    seat: LoopSeat,
    /// The address that was asked for.
    wanted: SocketAddr,
    /// The address with the port.
    address: Option<SocketAddr>,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    listeners: Vec<SharedListener>,
}

/// The devices of this process on one context.
#[derive(Default)]
struct Siblings(Mutex<State>);

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

/// A device's place among its siblings, which ends when this is dropped.
pub(super) struct Membership {
    siblings: Arc<Siblings>,
    mailbox: Arc<Mailbox>,
    /// A duplicate of the descriptor of the context's asynchronous events: a poll loop can watch a
    /// descriptor once, and may have several siblings.
    events: OwnedFd,
}

impl Membership {
    /// Joins the siblings of a context. The connection requests that `seat` is given arrive at `cm`.
    ///
    /// # Errors
    /// The error of the system that there is no descriptor for the mailbox or the events.
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

    /// Takes the context's asynchronous events, gives them to all siblings, and returns those of this
    /// one. Afterwards no event from before the call is on its way.
    pub(super) fn take_async_events(&self, context: &Context) -> Vec<AsyncEvent> {
        // Held until the events are in the mailboxes.
        let state = lock(&self.siblings.0);
        let mut read = Vec::new();
        while let Some(event) = context.next_async_event() {
            tracing::debug!(?event, "asynchronous event");
            read.push(event);
            if matches!(event, AsyncEvent::DeviceFatal) {
                // The descriptor of a removed device reports nothing new.
                break;
            }
        }
        for member in &state.members {
            if !read.is_empty() {
                lock(&member.mailbox.letters).events.extend(&read);
                if !Arc::ptr_eq(&member.mailbox, &self.mailbox) {
                    member.mailbox.wake();
                }
            }
        }
        drop(state);
        mem::take(&mut lock(&self.mailbox.letters).events)
    }

    /// Takes the connection requests that siblings have given to this one.
    pub(super) fn take_requests(&self) -> Vec<Request> {
        mem::take(&mut lock(&self.mailbox.letters).requests)
    }

    /// Listens on an address: with the identifier of a sibling of `seat`'s group that was asked to
    /// listen on the same, or else with the one that `make` returns with its number.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn listen<E>(
        &self,
        wanted: SocketAddr,
        seat: Option<&LoopSeat>,
        make: impl FnOnce() -> Result<(ListenerId, Id), E>,
    ) -> Result<(ListenerId, Listener), E> {
        // Held while the identifier is made, so that only one sibling makes it.
        let mut state = lock(&self.siblings.0);
        let State { members, listeners } = &mut *state;
        let mut own = members.iter_mut().find(|member| self.is_own(member));
        let known = listeners.iter().find(|known| {
            let shared = |seat: &LoopSeat| seat.is_with(&known.seat);
            let is_new = |own: &&mut Member| !own.listens_to.contains(&known.id);
            known.wanted == wanted && seat.is_some_and(shared) && own.as_ref().is_some_and(is_new)
        });
        let (number, listener) = match known {
            Some(known) => (
                known.id,
                Listener {
                    id: None,
                    address: known.address,
                },
            ),
            None => {
                let (number, id) = make()?;
                let address = id.local_address();
                listeners.extend(seat.map(|seat| SharedListener {
                    id: number,
                    seat: seat.clone(),
                    wanted,
                    address,
                }));
                (
                    number,
                    Listener {
                        id: Some(id),
                        address,
                    },
                )
            }
        };
        if let Some(own) = &mut own {
            own.listens_to.push(number);
        }
        Ok((number, listener))
    }

    /// Ends the use of a listener by this sibling, and for all if `is_made_here`.
    pub(super) fn close_listener(&self, listener: ListenerId, is_made_here: bool) {
        let mut state = lock(&self.siblings.0);
        for member in state
            .members
            .iter_mut()
            .filter(|member| self.is_own(member))
        {
            member.listens_to.retain(|id| *id != listener);
        }
        if is_made_here {
            state.listeners.retain(|shared| shared.id != listener);
        }
    }

    /// Returns a connection request if this sibling is to answer it, or gives it to the one with the
    /// fewest connections.
    ///
    /// # Errors
    /// The error of the system that prevents that. The request is lost then, and the peer is told.
    pub(super) fn place(&self, mut request: Request) -> io::Result<Option<Request>> {
        let state = lock(&self.siblings.0);
        let members = || {
            let all = state.members.iter();
            all.filter(|member| member.listens_to.contains(&request.listener))
        };
        let seats = members().filter_map(|member| member.seat.as_ref());
        let Some((at, claim)) = LoopSeat::claim_fewest(seats) else {
            return Ok(Some(request));
        };
        let chosen = members().filter(|member| member.seat.is_some()).nth(at);
        let chosen = chosen.filter(|member| !self.is_own(member));
        request.claim = Some(claim);
        let Some(chosen) = chosen else {
            return Ok(Some(request));
        };
        // Held until the request is there: whoever sees a later event of it finds it
        // (`RdmaCore::take_cm_events`).
        let mut letters = lock(&chosen.mailbox.letters);
        if let Err(error) = request.id.migrate(&chosen.cm) {
            let _ = request.id.reject(&[]);
            return Err(error);
        }
        letters.requests.push(request);
        drop(letters);
        chosen.mailbox.wake();
        Ok(None)
    }

    fn is_own(&self, member: &Member) -> bool {
        Arc::ptr_eq(&member.mailbox, &self.mailbox)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = lock(&self.siblings.0);
        state.members.retain(|member| !self.is_own(member));
    }
}

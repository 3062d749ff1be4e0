//! The RPC client, whose calls are futures.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rdma::{Poller, Time};
use slab::Slab;

use crate::client_state::ClientState;
use crate::poll_loop::{SourceId, earlier};
use crate::{
    Call, CallError, ClientOptions, ClientStats, ClientTransport, ClientTransportEvent,
    EncodedCredential, PollSource, ProcedureCounts, Reply, Runtime, Service, StatusOf,
};

mod callbacks;

use callbacks::{Callback, Callbacks};

/// An RPC client for one server. Clones refer to the same client; its connections are closed when
/// the last clone is dropped.
///
/// A client belongs to a [`Runtime`], whose `block_on` drives it.
#[derive(Clone)]
pub struct Client {
    shared: Rc<Shared>,
}

struct Shared {
    runtime: Runtime,
    source: RefCell<Option<SourceId>>,
    remote: SocketAddr,
    core: RefCell<Core>,
    /// The service that answers the server's calls, if this client accepts calls.
    callbacks: RefCell<Option<Callbacks>>,
}

struct Core {
    transport: Rc<RefCell<dyn ClientTransport>>,
    state: Option<ClientState>,
    calls: Slab<Slot>,
    /// Wakes the future that waits for the first connection.
    connecting: Option<Waker>,
    /// Wakers to call after the step. A waker is foreign code, so nothing may be borrowed when it
    /// runs.
    to_wake: Vec<Waker>,
    /// Calls from the server that have arrived. The service that answers them is foreign code too.
    called: VecDeque<Callback>,
    /// Whether a service for calls from the server exists.
    serves: bool,
    callbacks_taken: u64,
}

/// A call whose result its caller has not taken yet.
#[derive(Default)]
struct Slot {
    xid: u32,
    result: Option<Result<Reply, CallError>>,
    waker: Option<Waker>,
}

impl Client {
    /// Connects to `remote` over `transport`, which must not belong to another client. The caller
    /// may keep a handle to the transport to read its counters.
    ///
    /// # Errors
    /// [`CallError::Connect`] when the first attempt fails. It is repeated only while the server says that it
    /// has no room, for [`ClientOptions::connect_timeout`] at most.
    pub async fn connect(
        runtime: &Runtime,
        remote: SocketAddr,
        transport: Rc<RefCell<dyn ClientTransport>>,
        options: ClientOptions,
    ) -> Result<Self, CallError> {
        Self::connect_with(runtime, remote, transport, options, None).await
    }

    /// Connects a client that also accepts calls from its server over its connections (RFC 8167),
    /// which `service` answers. The transport must accept such calls
    /// ([`crate::rdma::CallbackOptions`], [`crate::TcpOptions::callbacks`]), and the client's upper
    /// layer must announce to the server's that it does (section 6).
    ///
    /// The runtime runs the service on its own thread, including its
    /// [`crate::ServiceOutcome::Later`] jobs. The service may start calls with the client, but must
    /// not wait for them. Lost connections are re-established at once, even if no call needs them
    /// (section 5.4).
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub async fn connect_with_callbacks(
        runtime: &Runtime,
        remote: SocketAddr,
        transport: Rc<RefCell<dyn ClientTransport>>,
        options: ClientOptions,
        service: Box<dyn Service>,
    ) -> Result<Self, CallError> {
        Self::connect_with(runtime, remote, transport, options, Some(service)).await
    }

    async fn connect_with(
        runtime: &Runtime,
        remote: SocketAddr,
        transport: Rc<RefCell<dyn ClientTransport>>,
        options: ClientOptions,
        service: Option<Box<dyn Service>>,
    ) -> Result<Self, CallError> {
        EncodedCredential::new(&options.credential)?;
        let system = |error: io::Error| CallError::Connect {
            server: remote.to_string(),
            reason: error.to_string(),
        };
        let first_xid = runtime.random().map_err(system)?;
        let shared = Rc::new(Shared {
            runtime: runtime.clone(),
            source: RefCell::new(None),
            remote,
            core: RefCell::new(Core {
                transport: Rc::clone(&transport),
                state: None,
                calls: Slab::new(),
                connecting: None,
                to_wake: Vec::new(),
                called: VecDeque::new(),
                serves: service.is_some(),
                callbacks_taken: 0,
            }),
            callbacks: RefCell::new(None),
        });
        let source = Rc::new(RefCell::new(Driver {
            shared: Rc::downgrade(&shared),
            transport: Rc::clone(&transport),
            to_wake: Vec::new(),
        }));
        *shared.source.borrow_mut() = Some(runtime.attach(source).map_err(system)?);
        let mut state = ClientState::new(
            remote,
            options,
            first_xid,
            &mut *transport.borrow_mut(),
            runtime.now(),
        );
        if let Some(service) = service {
            state.keep_connections();
            *shared.callbacks.borrow_mut() = Some(Callbacks::new(service));
        }
        shared.core.borrow_mut().state = Some(state);
        let client = Self { shared };
        std::future::poll_fn(|context| client.poll_connected(context)).await?;
        Ok(client)
    }

    fn poll_connected(&self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let mut core = self.shared.core.borrow_mut();
        match core.state.as_ref().and_then(ClientState::first_connect) {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                core.connecting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Starts a call at once. The call ends exactly once: with a reply, with an error, or when the
    /// future is dropped, which cancels the call.
    ///
    /// Calls that are made while the runtime polls its future leave together, as soon as that returns.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&self, call: Call) -> CallFuture {
        self.start(call, None)
    }

    /// Starts a call like [`Client::call`], with this credential instead of that of the options.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call_as(&self, call: Call, credential: &EncodedCredential) -> CallFuture {
        self.start(call, Some(credential))
    }

    fn start(&self, call: Call, credential: Option<&EncodedCredential>) -> CallFuture {
        let now = self.shared.runtime.now();
        let mut core = self.shared.core.borrow_mut();
        let Core {
            transport,
            state,
            calls,
            ..
        } = &mut *core;
        let key = calls.insert(Slot::default());
        match state {
            Some(state) => {
                let xid = state.start(call, credential, key, &mut *transport.borrow_mut(), now);
                calls[key].xid = xid;
                if !self.shared.runtime.will_poll() {
                    transport.borrow_mut().flush();
                }
            }
            None => calls[key].result = Some(Err(CallError::Closed)),
        }
        drop(core);
        CallFuture {
            shared: Rc::clone(&self.shared),
            key: Some(key),
        }
    }

    /// Returns the server's address.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.shared.remote
    }

    /// Returns the runtime that drives the client.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Counts the calls that end from now on, by procedure and result. `status` says how results begin.
    pub fn count_calls(&self, status: StatusOf) {
        if let Some(state) = &mut self.shared.core.borrow_mut().state {
            state.count_calls(status);
        }
    }

    /// Returns the counts of calls, if they are counted ([`Client::count_calls`]).
    #[must_use]
    pub fn procedures(&self) -> Vec<ProcedureCounts> {
        let core = self.shared.core.borrow();
        core.state
            .as_ref()
            .map_or_else(Vec::new, ClientState::procedures)
    }

    /// Returns the number of calls that have not ended.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.shared
            .core
            .borrow()
            .state
            .as_ref()
            .map_or(0, ClientState::pending)
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let core = self.shared.core.borrow();
        let stats = core.state.as_ref().map(ClientState::stats);
        ClientStats {
            callbacks: core.callbacks_taken,
            ..stats.unwrap_or_default()
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("remote", &self.shared.remote)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let now = self.runtime.now();
        let core = self.core.get_mut();
        if let Some(state) = &mut core.state {
            state.close(&mut *core.transport.borrow_mut(), now);
        }
        if let Some(source) = self.source.get_mut().take() {
            self.runtime.detach(source);
        }
    }
}

impl Core {
    fn step(&mut self, now: Time) -> bool {
        let Some(state) = &mut self.state else {
            return false;
        };
        let mut transport = self.transport.borrow_mut();
        let mut progress = transport.poll(now);
        while let Some(event) = transport.next_event() {
            progress = true;
            match event {
                ClientTransportEvent::Call {
                    conn,
                    token,
                    message,
                } if self.serves => {
                    self.callbacks_taken += 1;
                    self.called.push_back(Callback {
                        conn,
                        token,
                        message,
                    });
                }
                // Without a service, the client state drops calls from the server at once.
                event => state.handle(event, &mut *transport, now),
            }
        }
        state.poll(&mut *transport, now);
        drop(transport);
        while let Some((key, result)) = state.next_ended() {
            progress = true;
            if let Some(slot) = self.calls.get_mut(key) {
                slot.result = Some(result);
                self.to_wake.extend(slot.waker.take());
            }
        }
        if state.first_connect().is_some() {
            self.to_wake.extend(self.connecting.take());
        }
        progress
    }
}

/// The client's [`PollSource`] in the runtime's loop. It does not keep the client alive.
struct Driver {
    shared: Weak<Shared>,
    transport: Rc<RefCell<dyn ClientTransport>>,
    /// Reused to save allocations; empty between steps.
    to_wake: Vec<Waker>,
}

impl PollSource for Driver {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        self.transport.borrow_mut().attach(poller)
    }

    fn set_waker(&mut self, waker: Waker) {
        self.transport.borrow_mut().set_waker(waker);
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.transport.borrow_mut().ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false;
        };
        let mut core = shared.core.borrow_mut();
        let progress = core.step(now);
        std::mem::swap(&mut core.to_wake, &mut self.to_wake);
        drop(core);
        for waker in self.to_wake.drain(..) {
            waker.wake();
        }
        shared.serve_callbacks(now) || progress
    }

    fn flush(&mut self) {
        self.transport.borrow_mut().flush();
    }

    fn arm(&mut self) -> bool {
        self.transport.borrow_mut().arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        let shared = self.shared.upgrade()?;
        let core = shared.core.borrow();
        let transport = core.transport.borrow().next_deadline();
        earlier(transport, core.state.as_ref()?.next_deadline())
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.transport.borrow_mut().set_busy_poll(on);
    }
}

/// A call in progress. Dropping it cancels the call.
#[must_use = "dropping a call cancels it"]
pub struct CallFuture {
    shared: Rc<Shared>,
    /// `None` once the result was taken.
    key: Option<usize>,
}

impl Future for CallFuture {
    type Output = Result<Reply, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(key) = self.key else {
            return Poll::Ready(Err(CallError::Closed));
        };
        let mut core = self.shared.core.borrow_mut();
        if core.calls[key].result.is_some()
            && let Some(result) = core.calls.remove(key).result
        {
            drop(core);
            self.key = None;
            return Poll::Ready(result);
        }
        match &mut core.calls[key].waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let Some(key) = self.key else {
            return;
        };
        let mut core = self.shared.core.borrow_mut();
        let slot = core.calls.remove(key);
        if slot.result.is_none() {
            let Core {
                transport, state, ..
            } = &mut *core;
            if let Some(state) = state {
                state.cancel(slot.xid, &mut *transport.borrow_mut());
                if !self.shared.runtime.will_poll() {
                    transport.borrow_mut().flush();
                }
            }
        }
        drop(core);
    }
}

impl fmt::Debug for CallFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

//! One connection: its queue pair and completion queues, posted requests and registrations.
//!
//! Memory safety rests on the order in which a connection is torn down, which is implemented only
//! in `Conn::take_down`: the queue pair is moved to the error state, windows and registrations are
//! ended, the queue pair is destroyed, and then its completion queues. Only after that is the
//! memory of posted requests released. If the queue pair cannot be destroyed, that memory is never used
//! again (`Conn::remains`). Receives of a shared receive queue belong to that queue
//! (`shared.rs`).

use std::collections::VecDeque;
use std::ffi::c_uint;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::caps::Kind;
use super::cm::{Depths, Id, Sizes};
use super::context::{Context, CqContext, errno};
use super::memory::{Arenas, Domain};
use super::objects::{Channel, Cq, Mr, unsupported};
use super::queue::{Batch, Posted, Receive, Request, SendQueue, Work, work_error};
use super::regions::{Invalidation, Regions};
use super::shared_queue::SharedQueue;
use super::sys;
use rdma::{
    Completion, ConnectError, Counters, Disconnect, Event, Failed, QpId, SharedReceivesId, Stag,
    Success, Time, WorkError, WrId,
};
use rpcrdma_host::LoopClaim;

/// Maximum number of completions polled from a queue at once.
const AT_ONCE: usize = 16;
/// The device is given requests at the latest when there are this many, so that it begins with them while others are
/// still being posted.
const MOST_HELD: usize = 16;
/// Time for a queue pair in the error state to flush its requests. After that it is destroyed,
/// which is as safe but loses messages that had arrived.
const FLUSH: Duration = Duration::from_secs(1);

/// Returns the reason for ending a connection whose completion queue failed.
fn unreadable(error: &io::Error) -> Disconnect {
    Disconnect::Lost(format!("a completion queue cannot be used: {error}"))
}

/// The state of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// The address and the route are being resolved, or the connection request has been sent.
    Connecting {
        private_data: Bytes,
        depths: Depths,
        timeout: Duration,
        /// Other source ports that may be tried.
        ports: u32,
    },
    /// [`rdma::Device::prepare_accept`] was called; the peer requested these depths.
    Prepared(Depths),
    /// This side's answer is in flight.
    Accepting,
    Up,
    /// This side will end the connection when all posted requests are done.
    Draining,
    /// The queue pair is in the error state, or soon will be, and flushes its requests.
    Ending(End),
    /// The connection is over, and its registrations can be reclaimed.
    Over,
}

/// The reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Disconnected(Disconnect),
    NotMade(ConnectError),
}

impl Phase {
    /// Returns the end of a connection in this phase for a cause that can occur in any phase. An
    /// attempt to connect or to accept ends with [`Event::ConnectFailed`]
    /// ([`rdma::Device::connect`]), unless the program itself gives it up.
    fn end_for(&self, cause: Disconnect) -> End {
        if !matches!(self, Self::Connecting { .. } | Self::Accepting) {
            return End::Disconnected(cause);
        }
        End::NotMade(ConnectError::Protocol(match cause {
            // Nothing was lost yet.
            Disconnect::Lost(text) => text,
            cause => cause.to_string(),
        }))
    }
}

/// The destination of a connection's events and counts.
pub(super) struct EventSink<'a> {
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
}

/// The completion queues of a queue pair.
struct Queues {
    send: Cq,
    /// `None` if the queue pair is bound to a shared receive queue, which has one for all.
    receive: Option<Cq>,
}

/// The relation of a queue pair to its shared receive queue.
pub(super) struct Binding {
    pub(super) queue: SharedReceivesId,
    /// Number of the first receive that the queue pair may have taken and not completed. It
    /// completes receives in the order in which it takes them.
    pub(super) floor: u64,
    /// Whether the queue pair is in the error state and has completed what it took.
    pub(super) drained: bool,
    /// Whether the receives that the queue pair took complete before it reaches the error state, without an
    /// event (siw).
    pub(super) drains_at_once: bool,
}

/// A connection.
pub(super) struct Conn {
    pub(super) qp: QpId,
    pub(super) id: Option<Id>,
    queues: Option<Queues>,
    context: Arc<Context>,
    arenas: Arc<Arenas>,
    pub(super) domain: Arc<Domain>,
    /// Whether the protection domain is used by this connection only.
    pub(super) own_domain: bool,
    pub(super) regions: Regions,
    pub(super) phase: Phase,
    pub(super) sizes: Sizes,
    pub(super) sends: SendQueue,
    /// The requests among `sends` that this turn of the owner has posted and the device has not been given yet.
    pub(super) batch: Batch,
    /// Whether the connection is in the list of those with such requests.
    pub(super) holds: bool,
    /// The shared receive queue to which the queue pair is bound.
    pub(super) binding: Option<Binding>,
    /// The loop for which an accepted connection counts, if there are several.
    pub(super) claim: Option<LoopClaim>,
    receives: VecDeque<Receive>,
    /// Number of `receives` that are posted to the device, and the number of the oldest.
    posted_receives: usize,
    first_receive: u64,
    /// Invalidations to execute by a call after another request has completed.
    pub(super) deferred: Vec<(WrId, Stag, Invalidation)>,
    /// Completion flags, any of which indicates that the peer invalidated a handle.
    invalidated_flags: c_uint,
    /// Events that are held back until the connection is established or has failed.
    held: Vec<Event>,
    made: bool,
    /// Whether the queue pair could not be destroyed. The device may still use the memory of its requests.
    pub(super) remains: bool,
    /// Whether a request was refused because the send queue was full.
    pub(super) wants_room: bool,
    /// Time at which the connection fails unless the present step has ended.
    pub(super) deadline: Option<Time>,
    /// Whether its completion queues are scheduled to be polled.
    pub(super) hot: bool,
    comm_est_reported: bool,
    /// Whether requests have been flushed, which shows that the queue pair is in the error state.
    pub(super) in_error: bool,
    /// Whether a message or an acknowledgement has arrived since the last call of
    /// [`Conn::is_silent`].
    heard: bool,
}

impl Conn {
    pub(super) fn new(
        qp: QpId,
        id: Id,
        context: &Arc<Context>,
        arenas: &Arc<Arenas>,
        domain: Arc<Domain>,
        kind: Kind,
        phase: Phase,
    ) -> Self {
        Self {
            qp,
            id: Some(id),
            queues: None,
            context: Arc::clone(context),
            arenas: Arc::clone(arenas),
            domain,
            own_domain: false,
            regions: Regions::new(),
            phase,
            sizes: Sizes::default(),
            sends: SendQueue::default(),
            batch: Batch::default(),
            holds: false,
            binding: None,
            claim: None,
            receives: VecDeque::new(),
            posted_receives: 0,
            first_receive: 0,
            deferred: Vec::new(),
            invalidated_flags: match kind {
                // rxe uses the kernel's value of the flag, which is that of correct checksums in
                // the library.
                Kind::Rxe => sys::IBV_WC_WITH_INV | sys::IBV_WC_IP_CSUM_OK,
                _ => sys::IBV_WC_WITH_INV,
            },
            held: Vec::new(),
            made: false,
            remains: false,
            wants_room: false,
            deadline: None,
            hot: false,
            comm_est_reported: false,
            in_error: false,
            heard: true,
        }
    }

    /// Returns whether the peer has been silent since the last call and no request to it is outstanding.
    /// (An outstanding request would fail by itself if the peer were gone.)
    pub(super) fn is_silent(&mut self) -> bool {
        let heard = std::mem::replace(&mut self.heard, false);
        !heard && matches!(self.phase, Phase::Up) && !self.sends.awaits_peer()
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_) | Phase::Over)
    }

    /// Returns the number of receives that are posted or waiting to be posted.
    pub(super) fn receives(&self) -> usize {
        self.receives.len()
    }

    /// Frees the memory for more requests than are outstanding, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        self.sends.give_back() + rdma::shrink(&mut self.receives)
    }

    // ---- the queue pair ----

    /// Creates the queue pair, and posts the waiting receives. `shared` is the queue to which it is
    /// bound (`binding`), and must exist for as long as the queue pair (`RdmaCore::shared`).
    pub(super) fn make_queue_pair(
        &mut self,
        channel: &Arc<Channel>,
        mut sizes: Sizes,
        shared: Option<&SharedQueue>,
    ) -> io::Result<()> {
        let Some(id) = &self.id else {
            return Err(unsupported());
        };
        // The queues hold a completion for every request that the program may post, so they cannot
        // overflow: completions that were not taken count as outstanding.
        let new = |entries, receive| Cq::new(channel, entries, CqContext::new(self.qp, receive).0);
        let queues = Queues {
            send: new(sizes.max_send_wr, false)?,
            receive: match shared {
                None => Some(new(sizes.max_recv_wr, true)?),
                Some(_) => None,
            },
        };
        let receive = match (&queues.receive, shared) {
            (Some(receive), _) => receive,
            (None, Some(shared)) => shared.completions(),
            (None, None) => return Err(unsupported()),
        };
        if shared.is_some() {
            (sizes.max_recv_wr, sizes.max_recv_sge) = (0, 0);
        }
        let srq = shared.and_then(SharedQueue::srq);
        let create = |sizes: &mut Sizes| {
            let context = self.qp.0 as usize;
            id.create_queue_pair(context, &self.domain.pd, &queues.send, receive, srq, sizes)
        };
        let mut wanted = sizes;
        self.sizes = wanted;
        let made = create(&mut self.sizes);
        if let Err(error) = made {
            // Support for inline data differs most between devices, and it is only an optimisation.
            wanted.max_inline_data = 0;
            self.sizes = wanted;
            tracing::debug!(%error, "queue pair refused, trying without inline data");
            create(&mut self.sizes)?;
        }
        // Entries beyond the number requested are not used, and no longer data is sent inline.
        self.sizes.max_send_wr = wanted.max_send_wr;
        self.sizes.max_inline_data = self.sizes.max_inline_data.min(wanted.max_inline_data);
        self.queues = Some(queues);
        while self.posted_receives < self.receives.len() {
            self.post_next_receive()?;
        }
        Ok(())
    }

    fn queue_pair(&self) -> *mut sys::ibv_qp {
        let id = self.id.as_ref();
        id.map_or(ptr::null_mut(), Id::queue_pair)
    }

    /// Posts a receive, at once or when the queue pair has been created.
    ///
    /// # Errors
    /// The error of the device. The receive is kept as if posted, because the device may have
    /// accepted it.
    pub(super) fn post_receive(&mut self, receive: Receive) -> io::Result<()> {
        self.receives.push_back(receive);
        match self.queue_pair().is_null() {
            true => Ok(()),
            false => self.post_next_receive(),
        }
    }

    fn post_next_receive(&mut self) -> io::Result<()> {
        let qp = self.queue_pair();
        let post = self.context.ops().post_recv.ok_or_else(unsupported)?;
        let number = self.first_receive + self.posted_receives as u64;
        let Some(receive) = self.receives.get_mut(self.posted_receives) else {
            return Ok(());
        };
        let mut request = sys::ibv_recv_wr {
            wr_id: number,
            next: ptr::null_mut(),
            sg_list: receive.pieces.as_mut_ptr(),
            num_sge: receive.pieces.len() as i32,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is valid. The memory that the device may write from now on belongs
        // to the receive's `LocalBuffer`s. Nobody else can access them, and they stay in `receives`
        // until the completion of this request, or until the queue pair is destroyed (`take_down`).
        // The memory is registered in the queue pair's domain until its arena is released, which is
        // after that.
        let status = unsafe { post(qp, &mut request, &mut bad) };
        self.posted_receives += 1;
        errno(status)
    }

    /// Returns the number of requests for which the send queue has room.
    pub(super) fn room(&self) -> usize {
        (self.sizes.max_send_wr as usize).saturating_sub(self.sends.len())
    }

    /// Posts waiting window bindings as far as there is room, followed by `request`, whose gather
    /// elements are in the batch. The request is posted only if all bindings before it fit; returns
    /// whether it was. With `hold`, the device is given a request without bindings by the next call
    /// of [`Conn::ring`], with the others that were posted until then.
    ///
    /// # Errors
    /// The error of the device. Everything that should have been posted is kept as if it were,
    /// because some providers fail after accepting requests. The connection must end.
    pub(super) fn post(
        &mut self,
        request: Option<(Posted, Request)>,
        hold: bool,
    ) -> io::Result<bool> {
        let room = self.room();
        let wanted = self.regions.waiting() + usize::from(request.is_some());
        let binds = self.regions.waiting().min(room);
        let request = request.filter(|_| wanted <= room);
        let posts_request = request.is_some();
        let first = self.sends.next();
        let last = first + binds as u64;
        let batch = &mut self.batch;
        for (bind, number) in self.regions.post_binds(binds, first) {
            let wr = batch.add(number, sys::IBV_WR_BIND_MW);
            wr.bind_mw = sys::wr_bind_mw {
                mw: bind.mw,
                rkey: bind.rkey,
                bind_info: bind.info,
            };
            // The completion of the following request covers the binding. A binding without one is
            // signaled itself.
            if number + 1 < last || posts_request {
                wr.send_flags = 0;
            }
            self.sends.push(Posted::bind());
        }
        match request {
            Some((posted, request)) => {
                let wr = batch.add(self.sends.next(), request.opcode);
                wr.send_flags |= request.flags;
                wr.invalidate_rkey = request.invalidate.map_or(0, |stag| stag.0);
                // The library of siw takes the handle to invalidate from this field.
                let rkey = request.rkey.or(request.invalidate).map_or(0, |stag| stag.0);
                let remote_addr = request.offset;
                wr.wr.rdma = sys::wr_rdma { remote_addr, rkey };
                batch.end();
                self.sends.push(posted);
            }
            None => batch.abandon(),
        }
        if binds > 0 || !hold || self.batch.len() >= MOST_HELD {
            self.ring()?;
        }
        Ok(posts_request)
    }

    /// Gives the device the requests that it has not been given yet, with one call.
    ///
    /// # Errors
    /// The error of the device, as for [`Conn::post`].
    pub(super) fn ring(&mut self) -> io::Result<()> {
        if self.batch.len() == 0 {
            return Ok(());
        }
        let qp = self.queue_pair();
        let post = self.context.ops().post_send.ok_or_else(unsupported)?;
        if qp.is_null() {
            return Err(unsupported());
        }
        let first = self.batch.chain();
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is valid, and the requests and their lists are until the call
        // returns. Memory that the device reads or writes from now on belongs to the `Posted` of
        // each request, in `sends` until its completion, or until the queue pair is destroyed
        // (`take_down`); it is registered in the queue pair's domain for longer than that. Windows
        // are bound to memory that `regions` holds until they are freed or invalid.
        let result = errno(unsafe { post(qp, first, &mut bad) });
        if result.is_ok() {
            // SAFETY: `regions` owns the windows of the batch, and has freed none of them since they
            // were added to the batch, because bindings are posted as soon as they are added.
            unsafe { self.batch.rename_windows() };
        }
        self.batch.clear();
        result
    }

    // ---- completions ----

    /// Returns whether a completion of the send queue must wake the owner.
    fn awaits_sends(&self) -> bool {
        self.sends.is_awaited()
            || self.wants_room
            || !self.deferred.is_empty()
            || matches!(self.phase, Phase::Draining | Phase::Ending(_))
    }

    /// Arms the queues that are not armed. The caller must poll them once more afterwards.
    pub(super) fn arm(&mut self) {
        let awaits_sends = self.awaits_sends();
        if let Some(queues) = &mut self.queues {
            if let Some(receive) = queues.receive.as_mut().filter(|cq| !cq.is_armed()) {
                receive.arm();
            }
            if awaits_sends && !queues.send.is_armed() {
                queues.send.arm();
            }
        }
    }

    /// Returns whether the completion channel may hold an event that has not been read.
    pub(super) fn may_have_fired(&self) -> bool {
        let queues = self.queues.as_ref();
        queues.is_some_and(|queues| {
            let receive = queues.receive.as_ref();
            queues.send.may_have_fired() || receive.is_some_and(Cq::may_have_fired)
        })
    }

    /// Records that an event of one of the connection's queues was read from the completion
    /// channel.
    pub(super) fn fired(&mut self, receive: bool) {
        if let Some(queues) = &mut self.queues {
            match (receive, &mut queues.receive) {
                (true, Some(receive)) => receive.told(),
                (true, None) => {}
                (false, _) => queues.send.told(),
            }
        }
    }

    /// Polls the connection's completion queues and handles their completions. Returns the reason
    /// if the connection must end.
    pub(super) fn reap(&mut self, out: &mut EventSink<'_>) -> Option<Disconnect> {
        let mut room = [sys::ibv_wc::default(); AT_ONCE];
        let mut cause = None;
        loop {
            let queues = self.queues.as_mut()?;
            let done = match queues.send.poll(&mut room) {
                Ok(done) => done,
                Err(error) => return Some(unreadable(&error)),
            };
            let more = done.len() == AT_ONCE;
            self.heard |= !done.is_empty();
            for wc in done {
                self.sent(wc, out, &mut cause);
            }
            if !more {
                break;
            }
        }
        self.do_deferred(out, &mut cause);
        while let Some(receive) = self.queues.as_mut().and_then(|all| all.receive.as_mut()) {
            let done = match receive.poll(&mut room) {
                Ok(done) => done,
                Err(error) => return Some(unreadable(&error)),
            };
            let more = done.len() == AT_ONCE;
            self.heard |= !done.is_empty();
            for wc in done {
                self.received(wc, out, &mut cause);
            }
            if !more {
                break;
            }
        }
        cause
    }

    fn tell(&mut self, out: &mut EventSink<'_>, event: Event) {
        match self.made {
            true => out.events.push_back(event),
            false => self.held.push(event),
        }
    }

    fn tell_held(&mut self, out: &mut EventSink<'_>) {
        self.made = true;
        out.events.extend(self.held.drain(..));
    }

    fn complete(&mut self, out: &mut EventSink<'_>, id: WrId, result: Result<Success, Failed>) {
        let qp = self.qp;
        self.tell(out, Event::Completion(Completion { qp, id, result }));
    }

    /// Handles a completion of the send queue.
    fn sent(&mut self, wc: &sys::ibv_wc, out: &mut EventSink<'_>, cause: &mut Option<Disconnect>) {
        if let Some(posted) = self.sends.complete(wc.wr_id) {
            if wc.status == sys::IBV_WC_SUCCESS {
                self.send_succeeded(posted, out, cause);
            } else {
                self.in_error = true;
                note(cause, self.why(wc.status));
                self.send_failed(posted, work_error(wc.status), out);
            }
        }
        self.wants_room = false;
    }

    fn send_succeeded(
        &mut self,
        posted: Posted,
        out: &mut EventSink<'_>,
        cause: &mut Option<Disconnect>,
    ) {
        let success = match posted.work {
            Work::Bind | Work::Probe => return,
            Work::Send => Success::Send,
            Work::Write => Success::Write,
            Work::Read(local, mr) => {
                if let Some(Err(error)) = mr.map(Mr::deregister) {
                    // The peer may still write the sink, so nobody may ever read or reuse it.
                    std::mem::forget(local);
                    note(
                        cause,
                        Disconnect::Lost(format!("sink not deregistered: {error}")),
                    );
                    let error = WorkError::LocalProtection;
                    let failed = Failed { error, buf: None };
                    return self.complete(out, posted.id, Err(failed));
                }
                let sink = local.finish(usize::MAX, &mut out.counters.copied_bytes);
                out.counters.wire_bytes_received += sink.len() as u64;
                Success::Read { sink }
            }
            Work::Invalidate(stag) => {
                self.regions.ended(stag);
                Success::Invalidate
            }
        };
        if posted.signaled {
            self.complete(out, posted.id, Ok(success));
        }
    }

    fn send_failed(&mut self, posted: Posted, error: WorkError, out: &mut EventSink<'_>) {
        let buf = match posted.work {
            Work::Bind | Work::Probe => return,
            Work::Read(local, mr) => match mr.map(Mr::deregister) {
                Some(Err(_)) => {
                    std::mem::forget(local);
                    None
                }
                _ => Some(local.give_back().into()),
            },
            _ => None,
        };
        self.complete(out, posted.id, Err(Failed { error, buf }));
    }

    /// Completes a request of a queue pair that remains. Its memory is never used again.
    #[cold]
    fn send_lost(&mut self, posted: Posted, out: &mut EventSink<'_>) {
        let (id, is_own) = (posted.id, matches!(posted.work, Work::Bind | Work::Probe));
        std::mem::forget(posted);
        if !is_own {
            let (error, buf) = (WorkError::Flushed, None);
            self.complete(out, id, Err(Failed { error, buf }));
        }
    }

    /// Handles a completion of the queue pair's own receive queue.
    fn received(
        &mut self,
        wc: &sys::ibv_wc,
        out: &mut EventSink<'_>,
        cause: &mut Option<Disconnect>,
    ) {
        // Receives complete in order.
        if wc.wr_id != self.first_receive || self.posted_receives == 0 {
            return;
        }
        let Some(receive) = self.receives.pop_front() else {
            return;
        };
        self.first_receive += 1;
        self.posted_receives -= 1;
        self.receive_done(receive, wc, out, cause);
    }

    /// Completes a receive of a shared receive queue.
    pub(super) fn shared_receive_done(
        &mut self,
        receive: Receive,
        wc: &sys::ibv_wc,
        out: &mut EventSink<'_>,
        cause: &mut Option<Disconnect>,
    ) {
        self.heard = true;
        if let Some(binding) = &mut self.binding {
            binding.floor = binding.floor.max(wc.wr_id + 1);
        }
        self.receive_done(receive, wc, out, cause);
    }

    fn receive_done(
        &mut self,
        receive: Receive,
        wc: &sys::ibv_wc,
        out: &mut EventSink<'_>,
        cause: &mut Option<Disconnect>,
    ) {
        if wc.status != sys::IBV_WC_SUCCESS {
            self.in_error = true;
            // rxe reports a message longer than the receive as an operation error of the receive.
            let status = match wc.status {
                sys::IBV_WC_LOC_QP_OP_ERR => sys::IBV_WC_LOC_LEN_ERR,
                status => status,
            };
            let error = work_error(status);
            note(cause, self.why(status));
            let id = receive.id;
            let buf = Some(receive.give_back());
            return self.complete(out, id, Err(Failed { error, buf }));
        }
        let counters = &mut *out.counters;
        let len = wc.byte_len as usize;
        let id = receive.id;
        let buf = receive.finish(len, &mut counters.copied_bytes);
        counters.receives += 1;
        counters.wire_bytes_received += u64::from(wc.byte_len);
        let named =
            (wc.wc_flags & self.invalidated_flags != 0).then_some(Stag(wc.invalidated_rkey));
        let invalidated = named.filter(|&stag| self.regions.ended(stag));
        counters.remote_invalidations += u64::from(invalidated.is_some());
        let success = Success::Receive { buf, invalidated };
        if matches!(self.phase, Phase::Accepting) && !self.comm_est_reported {
            self.comm_est_reported = true;
            if let Some(id) = &self.id {
                id.communicating();
            }
        }
        self.complete(out, id, Ok(success));
    }

    /// Executes the deferred invalidations that are due.
    pub(super) fn do_deferred(&mut self, out: &mut EventSink<'_>, cause: &mut Option<Disconnect>) {
        while let Some(at) = self
            .deferred
            .iter()
            .position(|(.., ending)| ending.is_due(self.sends.first()))
        {
            let (id, stag, _) = self.deferred.remove(at);
            self.invalidate_now(id, stag, out, cause);
        }
    }

    /// Invalidates a handle by a call, and completes the program's request for it.
    pub(super) fn invalidate_now(
        &mut self,
        id: WrId,
        stag: Stag,
        out: &mut EventSink<'_>,
        cause: &mut Option<Disconnect>,
    ) {
        let result = match self.regions.end(&self.arenas, &self.domain, stag) {
            Ok(()) => Ok(Success::Invalidate),
            Err(error) => {
                note(
                    cause,
                    Disconnect::Lost(format!("{stag} not invalidated: {error}")),
                );
                let error = WorkError::LocalProtection;
                Err(Failed { error, buf: None })
            }
        };
        self.complete(out, id, result);
    }

    /// Returns the reason for which a failed request ends the connection, or `None` if the request
    /// was only flushed.
    fn why(&self, status: i32) -> Option<Disconnect> {
        let text = self.status_text(status);
        match status {
            sys::IBV_WC_WR_FLUSH_ERR => None,
            sys::IBV_WC_LOC_LEN_ERR => Some(Disconnect::PeerError(
                "a message longer than its receive buffer".to_owned(),
            )),
            sys::IBV_WC_REM_ACCESS_ERR | sys::IBV_WC_REM_OP_ERR | sys::IBV_WC_REM_INV_REQ_ERR => {
                Some(Disconnect::Terminated(text))
            }
            _ => Some(Disconnect::Lost(text)),
        }
    }

    fn status_text(&self, status: i32) -> String {
        // SAFETY: any number is allowed, and the answer is a constant string.
        let text = unsafe {
            let text = (self.context.libraries().verbs.ibv_wc_status_str)(status);
            std::ffi::CStr::from_ptr(text)
        };
        text.to_string_lossy().into_owned()
    }

    // ---- beginning and ending ----

    /// Records that the connection is established.
    pub(super) fn established(&mut self, private_data: Bytes, out: &mut EventSink<'_>) {
        if matches!(self.phase, Phase::Connecting { .. }) {
            self.set_receiver_timer();
        }
        self.phase = Phase::Up;
        self.deadline = None;
        let qp = self.qp;
        out.events
            .push_back(Event::Established { qp, private_data });
        self.tell_held(out);
    }

    /// Lets the peer try again soon when a message finds no receive in the shared receive queue.
    /// Without effect on iWARP, where that ends the connection.
    pub(super) fn set_receiver_timer(&self) {
        if let (Some(id), Some(_)) = (&self.id, &self.binding)
            && !self.context.is_iwarp()
            && let Err(error) = id.set_receiver_timer()
        {
            tracing::warn!(%error, "peers wait long when the shared receive queue is empty");
        }
    }

    /// Moves the queue pair to the error state, before its shared receive queue is polled for the
    /// last time.
    pub(super) fn fail(&self) {
        if let Some(id) = &self.id
            && let Err(error) = id.fail_queue_pair()
        {
            tracing::debug!(%error, "queue pair not moved to the error state");
        }
    }

    /// Starts to end the connection because of an error, in whatever phase it is.
    pub(super) fn lose(&mut self, cause: Disconnect, now: Time) {
        self.end(self.phase.end_for(cause), false, now);
    }

    /// Starts to end the connection. `orderly` means that requests in flight may still complete.
    pub(super) fn end(&mut self, end: End, orderly: bool, now: Time) {
        if self.is_ending() {
            return;
        }
        // What was posted completes, or is flushed, like everything before it. If the device refuses it, the end of the
        // connection completes it.
        if let Err(error) = self.ring() {
            tracing::debug!(qp = self.qp.0, %error, "requests not posted at the end");
        }
        let Some(id) = &self.id else {
            return;
        };
        let was_made = matches!(self.phase, Phase::Up | Phase::Draining);
        // If the call fails, the connection no longer exists.
        let disconnected = was_made && orderly && id.disconnect().is_ok();
        if !disconnected {
            match (id.fail_queue_pair(), &mut self.binding) {
                (Ok(()), Some(binding)) => binding.drained |= binding.drains_at_once,
                (Ok(()), None) => {}
                (Err(error), _) => {
                    tracing::debug!(%error, "queue pair not moved to the error state");
                }
            }
            if was_made {
                let _ = id.disconnect();
            }
        }
        self.phase = Phase::Ending(end);
        // The owner may not have polled for long.
        self.deadline = Some(now.max(Time::now()) + FLUSH);
    }

    /// Returns whether all posted requests have completed, and all receives that the queue pair
    /// took from a shared receive queue.
    pub(super) fn is_flushed(&self) -> bool {
        let drained = self.binding.as_ref().is_none_or(|one| one.drained);
        let drained = drained || self.queue_pair().is_null();
        self.sends.is_empty() && self.posted_receives == 0 && drained
    }

    /// Ends the connection for good, after [`Conn::take_down`]: completes all requests and reports
    /// the last event. `taken` are receives that the queue pair took from the shared receive queue
    /// without completing them.
    pub(super) fn finish(&mut self, taken: Vec<Receive>, out: &mut EventSink<'_>) {
        let Phase::Ending(end) = &self.phase else {
            return;
        };
        let end = end.clone();
        self.phase = Phase::Over;
        self.deadline = None;
        self.tell_held(out);
        // The device completes nothing any more, so the remaining requests are completed here.
        while let Some(posted) = self.sends.give_up() {
            match self.remains {
                true => self.send_lost(posted, out),
                false => self.send_failed(posted, WorkError::Flushed, out),
            }
        }
        for (id, ..) in std::mem::take(&mut self.deferred) {
            let (error, buf) = (WorkError::Flushed, None);
            self.complete(out, id, Err(Failed { error, buf }));
        }
        for receive in taken.into_iter().chain(std::mem::take(&mut self.receives)) {
            let id = receive.id;
            let buf = match self.remains {
                true => {
                    std::mem::forget(receive);
                    None
                }
                false => Some(receive.give_back()),
            };
            let error = WorkError::Flushed;
            self.complete(out, id, Err(Failed { error, buf }));
        }
        self.posted_receives = 0;
        let qp = self.qp;
        out.events.push_back(match end {
            End::Disconnected(reason) => Event::Disconnected { qp, reason },
            End::NotMade(error) => Event::ConnectFailed { qp, error },
        });
    }

    /// Releases the device's resources of this connection in the order described at the top of this
    /// module. Returns the identifier, which may still have to notify the peer.
    pub(super) fn take_down(&mut self) -> Option<Id> {
        self.batch.clear();
        self.fail();
        let id = self.id.take();
        self.regions.release(&self.arenas, &self.domain);
        if let Some(id) = &id
            && let Err(error) = id
                .destroy_queue_pair()
                .or_else(|error| self.context.forgiven(error))
        {
            tracing::error!(%error, "queue pair not destroyed: its memory is never used again");
            self.remains = true;
        }
        self.queues = None;
        if self.own_domain {
            self.own_domain = false;
            if !self.remains {
                self.arenas.leave(&self.domain);
            }
        }
        id
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        drop(self.take_down());
        while let Some(posted) = self.sends.give_up() {
            if self.remains {
                std::mem::forget(posted);
                continue;
            }
            if let Work::Read(local, Some(mr)) = posted.work
                && mr.deregister().is_err()
            {
                // The peer may still write the sink, so its memory is never reused.
                std::mem::forget(local);
            }
        }
        if self.remains {
            std::mem::forget(std::mem::take(&mut self.receives));
        }
    }
}

/// Records the first cause only.
fn note(cause: &mut Option<Disconnect>, why: impl Into<Option<Disconnect>>) {
    if cause.is_none() {
        *cause = why.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> [(Phase, bool); 5] {
        let depths = Depths {
            inbound: 1,
            outbound: 1,
        };
        let connecting = Phase::Connecting {
            private_data: Bytes::new(),
            depths,
            timeout: Duration::from_secs(1),
            ports: 0,
        };
        [
            (connecting, true),
            (Phase::Accepting, true),
            (Phase::Prepared(depths), false),
            (Phase::Up, false),
            (Phase::Draining, false),
        ]
    }

    #[test]
    fn an_error_makes_an_attempt_to_connect_fail() {
        let peer = || Disconnect::PeerError("bad".into());
        let lost = || Disconnect::Lost("no memory".into());
        let not_made = |text: &str| End::NotMade(ConnectError::Protocol(text.into()));
        for (phase, attempt) in phases() {
            let expected = match attempt {
                true => [not_made("peer error: bad"), not_made("no memory")],
                false => [End::Disconnected(peer()), End::Disconnected(lost())],
            };
            let ends = [phase.end_for(peer()), phase.end_for(lost())];
            assert_eq!(ends, expected, "{phase:?}");
        }
    }
}

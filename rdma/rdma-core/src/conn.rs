//! One connection: its queue pair with queues, and what is posted and registered.
//!
//! The order in which a connection comes down is what makes it memory-safe, and it is here alone
//! (`Conn::take_down`): the queue pair goes to the error state, windows and registrations are
//! ended, the queue pair is destroyed, then its completion queues; only after that is memory given
//! up that requests held.

use std::collections::VecDeque;
use std::ffi::c_uint;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::caps::Kind;
use super::cm::{Depths, Id, Sizes};
use super::context::{Context, errno};
use super::memory::{Arenas, Domain};
use super::objects::{Channel, Cq, Mr, unsupported};
use super::queue::{Batch, Posted, Receive, Request, SendQueue, Work, work_error};
use super::regions::{Ending, Regions};
use super::sys;
use rdma::{
    Completion, ConnectError, Counters, Disconnect, Event, Failed, QpId, Stag, Success, Time,
    WorkError, WrId,
};

/// Completions taken at once.
const AT_ONCE: usize = 16;
/// How long a queue pair in error may take to give back what is posted. After that it is destroyed,
/// which is as good, but loses messages that had arrived.
const FLUSH: Duration = Duration::from_secs(1);

/// Why a connection ends whose completions cannot be had.
fn unreadable(error: &io::Error) -> Disconnect {
    Disconnect::Lost(format!("a completion queue cannot be used: {error}"))
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Phase {
    /// The way to the peer is looked for, and then the peer asked.
    Connecting {
        private_data: Bytes,
        depths: Depths,
        timeout: Duration,
    },
    /// [`rdma::Device::prepare_accept`] was called, with what the peer asks for.
    Prepared(Depths),
    /// Our answer is on its way.
    Accepting,
    Up,
    /// This side ends it when all that is posted has gone out.
    Draining,
    /// The queue pair is in error, or soon will be, and gives back what is posted.
    Ending(End),
    /// It is over: what was registered can be reclaimed.
    Over,
}

/// How a connection ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    Disconnected(Disconnect),
    NotMade(ConnectError),
}

/// Where a connection's news go.
pub(super) struct Out<'a> {
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
}

/// What a completion queue is known by in its channel: its queue pair, and which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub(super) usize);

impl Mark {
    fn new(qp: QpId, receive: bool) -> Self {
        // As many queue pairs as half an address space has bytes.
        Self((qp.0 as usize) << 1 | usize::from(receive))
    }

    pub(super) fn qp(self) -> QpId {
        QpId((self.0 >> 1) as u64)
    }

    pub(super) fn is_receive(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A queue pair's completion queues.
struct Queues {
    send: Cq,
    receive: Cq,
}

/// A connection.
pub(super) struct Conn {
    pub(super) qp: QpId,
    pub(super) id: Option<Id>,
    queues: Option<Queues>,
    context: Arc<Context>,
    arenas: Arc<Arenas>,
    pub(super) domain: Arc<Domain>,
    /// The domain is not shared with others.
    pub(super) own_domain: bool,
    pub(super) regions: Regions,
    pub(super) phase: Phase,
    pub(super) sizes: Sizes,
    pub(super) sends: SendQueue,
    receives: VecDeque<Receive>,
    /// Of the receives, those that the device has, and the number of the oldest.
    posted_receives: usize,
    first_receive: u64,
    /// Invalidations to do by a call once a request is done.
    pub(super) deferred: Vec<(WrId, Stag, Ending)>,
    /// Flags of a completion, any of which says that the peer invalidated a handle.
    invalidated_flags: c_uint,
    /// Events that wait until the connection is made, or is not.
    held: Vec<Event>,
    made: bool,
    /// A request was refused for want of room.
    pub(super) wants_room: bool,
    /// When to give up what is going on.
    pub(super) deadline: Option<Time>,
    /// Its queues are to be looked at.
    pub(super) hot: bool,
    told_communicating: bool,
    /// Requests came back that were flushed: the queue pair is in error.
    pub(super) in_error: bool,
    /// Something has arrived, or has been acknowledged, since this was last asked.
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
            receives: VecDeque::new(),
            posted_receives: 0,
            first_receive: 0,
            deferred: Vec::new(),
            invalidated_flags: match kind {
                // It has the kernel's number for the flag, which in the library is that of correct
                // checksums.
                Kind::Rxe => sys::IBV_WC_WITH_INV | sys::IBV_WC_IP_CSUM_OK,
                _ => sys::IBV_WC_WITH_INV,
            },
            held: Vec::new(),
            made: false,
            wants_room: false,
            deadline: None,
            hot: false,
            told_communicating: false,
            in_error: false,
            heard: true,
        }
    }

    /// Whether the peer has given no sign of life since the last time, and is not waited for either:
    /// a request that is under way ends in any case.
    pub(super) fn is_silent(&mut self) -> bool {
        let heard = std::mem::replace(&mut self.heard, false);
        !heard && matches!(self.phase, Phase::Up) && self.sends.is_empty()
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_) | Phase::Over)
    }

    /// Receives that are posted, or will be.
    pub(super) fn receives(&self) -> usize {
        self.receives.len()
    }

    // ---- the queue pair ----

    /// Makes the queue pair, and posts the receives that wait for it.
    pub(super) fn make_queue_pair(
        &mut self,
        channel: &Arc<Channel>,
        sizes: Sizes,
    ) -> io::Result<()> {
        let Some(id) = &self.id else {
            return Err(unsupported());
        };
        // What the program may post fits, and so overflows nothing: completions that were not
        // taken count as posted.
        let queues = Queues {
            send: Cq::new(channel, sizes.max_send_wr, Mark::new(self.qp, false).0)?,
            receive: Cq::new(channel, sizes.max_recv_wr, Mark::new(self.qp, true).0)?,
        };
        self.sizes = sizes;
        let made = id.create_queue_pair(
            &self.domain.pd,
            &queues.send,
            &queues.receive,
            &mut self.sizes,
        );
        if let Err(error) = made {
            // Inline data is what devices differ in most, and it is only an optimisation.
            self.sizes = Sizes {
                max_inline_data: 0,
                ..sizes
            };
            tracing::debug!(%error, "queue pair refused, trying without inline data");
            id.create_queue_pair(
                &self.domain.pd,
                &queues.send,
                &queues.receive,
                &mut self.sizes,
            )?;
        }
        // What the device gave beyond what was asked for is not counted on.
        self.sizes.max_send_wr = sizes.max_send_wr;
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

    /// Posts a receive, now or when there is a queue pair.
    ///
    /// # Errors
    /// The device refuses it. The receive stays here, as if posted: nobody knows what it has kept.
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
        // SAFETY: the queue pair is valid. The memory that the device may write from now on is
        // the landings', which nobody else can reach, and which stay in `receives` until the
        // completion of this request, or until the queue pair is destroyed (`take_down`). It is
        // registered in the queue pair's domain, until its arena is released, which is after that.
        let status = unsafe { post(qp, &mut request, &mut bad) };
        self.posted_receives += 1;
        errno(status)
    }

    /// Requests that there is room for.
    pub(super) fn room(&self) -> usize {
        (self.sizes.max_send_wr as usize).saturating_sub(self.sends.len())
    }

    /// Posts the windows to be bound, as far as there is room, and `request` behind them, whose
    /// pieces are in the batch: if all windows fit before it, which is told.
    ///
    /// # Errors
    /// The device refuses it. All that was to be posted is here, as if it were: some providers fail
    /// after they took it. The connection has to end.
    pub(super) fn post(
        &mut self,
        batch: &mut Batch,
        request: Option<(Posted, Request)>,
    ) -> io::Result<bool> {
        let room = self.room();
        let wanted = self.regions.waiting() + usize::from(request.is_some());
        let binds = self.regions.waiting().min(room);
        let request = request.filter(|_| wanted <= room);
        let posts_request = request.is_some();
        let first = self.sends.next();
        let last = first + binds as u64;
        for (bind, number) in self.regions.post_binds(binds, first) {
            let wr = batch.add(number, sys::IBV_WR_BIND_MW);
            wr.bind_mw = sys::wr_bind_mw {
                mw: bind.mw,
                rkey: bind.rkey,
                bind_info: bind.info,
            };
            // The request that follows says that it is done; without one it has to itself.
            if number + 1 < last || posts_request {
                wr.send_flags = 0;
            }
            self.sends.push(Posted::bind());
        }
        if let Some((posted, request)) = request {
            let wr = batch.add(self.sends.next(), request.opcode);
            wr.send_flags |= request.flags;
            wr.invalidate_rkey = request.invalidate.map_or(0, |stag| stag.0);
            // The library of siw takes the handle to invalidate from here.
            let rkey = request.rkey.or(request.invalidate).map_or(0, |stag| stag.0);
            let remote_addr = request.offset;
            wr.wr.rdma = sys::wr_rdma { remote_addr, rkey };
            self.sends.push(posted);
        }
        if binds > 0 || posts_request {
            self.ring(batch)?;
        }
        Ok(posts_request)
    }

    /// Hands the batch to the device.
    fn ring(&mut self, batch: &mut Batch) -> io::Result<()> {
        let qp = self.queue_pair();
        let post = self.context.ops().post_send.ok_or_else(unsupported)?;
        if qp.is_null() {
            return Err(unsupported());
        }
        let first = batch.chain();
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is valid, and the requests and their lists are until the call
        // returns. Memory that the device reads or writes from now on belongs to the `Posted` of
        // each request, in `sends` until its completion, or until the queue pair is destroyed
        // (`take_down`); it is registered in the queue pair's domain for longer than that. Windows
        // are bound to memory that `regions` holds until they are freed or invalid.
        errno(unsafe { post(qp, first, &mut bad) })?;
        // SAFETY: the windows of the batch are `regions`', which frees none without need, and none
        // between their being listed and this.
        unsafe { batch.rename_windows() };
        Ok(())
    }

    // ---- completions ----

    /// Whether a completion of the send queue has to wake somebody.
    fn awaits_sends(&self) -> bool {
        self.sends.is_awaited()
            || self.wants_room
            || !self.deferred.is_empty()
            || matches!(self.phase, Phase::Draining | Phase::Ending(_))
    }

    /// Arms what is not armed. Look once more afterwards.
    pub(super) fn arm(&mut self) {
        let awaits_sends = self.awaits_sends();
        if let Some(queues) = &mut self.queues {
            if !queues.receive.is_armed() {
                queues.receive.arm();
            }
            if awaits_sends && !queues.send.is_armed() {
                queues.send.arm();
            }
        }
    }

    /// Whether there may be an event in the channel that was not taken.
    pub(super) fn may_have_fired(&self) -> bool {
        let queues = self.queues.as_ref();
        queues.is_some_and(|q| q.send.may_have_fired() || q.receive.may_have_fired())
    }

    /// An event of one of its queues was taken from the channel.
    pub(super) fn fired(&mut self, receive: bool) {
        if let Some(queues) = &mut self.queues {
            match receive {
                true => queues.receive.told(),
                false => queues.send.told(),
            }
        }
    }

    /// Takes completions. Gives why the connection has to end, if it has to.
    pub(super) fn reap(&mut self, out: &mut Out<'_>) -> Option<Disconnect> {
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
        while let Some(queues) = self.queues.as_mut() {
            let done = match queues.receive.poll(&mut room) {
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

    fn tell(&mut self, out: &mut Out<'_>, event: Event) {
        match self.made {
            true => out.events.push_back(event),
            false => self.held.push(event),
        }
    }

    fn tell_held(&mut self, out: &mut Out<'_>) {
        self.made = true;
        out.events.extend(self.held.drain(..));
    }

    fn complete(&mut self, out: &mut Out<'_>, id: WrId, result: Result<Success, Failed>) {
        let qp = self.qp;
        self.tell(out, Event::Completion(Completion { qp, id, result }));
    }

    /// A completion of the send queue.
    fn sent(&mut self, wc: &sys::ibv_wc, out: &mut Out<'_>, cause: &mut Option<Disconnect>) {
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
        out: &mut Out<'_>,
        cause: &mut Option<Disconnect>,
    ) {
        let success = match posted.work {
            Work::Bind | Work::Probe => return,
            Work::Send => Success::Send,
            Work::Write => Success::Write,
            Work::Read(landing, mr) => {
                if let Some(Err(error)) = mr.map(Mr::deregister) {
                    // The peer may still write the sink: nobody else ever reads it.
                    std::mem::forget(landing);
                    note(
                        cause,
                        Disconnect::Lost(format!("sink not deregistered: {error}")),
                    );
                    let error = WorkError::LocalProtection;
                    let failed = Failed { error, buf: None };
                    return self.complete(out, posted.id, Err(failed));
                }
                let sink = landing.finish(usize::MAX, &mut out.counters.copied_bytes);
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

    fn send_failed(&mut self, posted: Posted, error: WorkError, out: &mut Out<'_>) {
        let buf = match posted.work {
            Work::Bind | Work::Probe => return,
            Work::Read(landing, mr) => match mr.map(Mr::deregister) {
                Some(Err(_)) => {
                    std::mem::forget(landing);
                    None
                }
                _ => Some(landing.give_back().into()),
            },
            _ => None,
        };
        self.complete(out, posted.id, Err(Failed { error, buf }));
    }

    /// A completion of the receive queue.
    fn received(&mut self, wc: &sys::ibv_wc, out: &mut Out<'_>, cause: &mut Option<Disconnect>) {
        // They come in order.
        if wc.wr_id != self.first_receive || self.posted_receives == 0 {
            return;
        }
        let Some(receive) = self.receives.pop_front() else {
            return;
        };
        self.first_receive += 1;
        self.posted_receives -= 1;
        if wc.status != sys::IBV_WC_SUCCESS {
            self.in_error = true;
            // What rxe calls a message longer than the buffer: an operation error of the receive.
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
        if matches!(self.phase, Phase::Accepting) && !self.told_communicating {
            self.told_communicating = true;
            if let Some(id) = &self.id {
                id.communicating();
            }
        }
        self.complete(out, id, Ok(success));
    }

    /// Does the invalidations that are due.
    pub(super) fn do_deferred(&mut self, out: &mut Out<'_>, cause: &mut Option<Disconnect>) {
        while let Some(at) = self
            .deferred
            .iter()
            .position(|(.., ending)| ending.is_due(self.sends.first()))
        {
            let (id, stag, _) = self.deferred.remove(at);
            self.invalidate_now(id, stag, out, cause);
        }
    }

    /// Ends a handle's validity by a call, and completes the request for it.
    pub(super) fn invalidate_now(
        &mut self,
        id: WrId,
        stag: Stag,
        out: &mut Out<'_>,
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

    /// Why a failed request ends the connection; nothing for one that was only flushed.
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

    /// The connection is made.
    pub(super) fn established(&mut self, private_data: Bytes, out: &mut Out<'_>) {
        self.phase = Phase::Up;
        self.deadline = None;
        let qp = self.qp;
        out.events
            .push_back(Event::Established { qp, private_data });
        self.tell_held(out);
    }

    /// Starts ending the connection: `orderly` when what is in flight need not be hurried.
    pub(super) fn end(&mut self, end: End, orderly: bool, now: Time) {
        if self.is_ending() {
            return;
        }
        let Some(id) = &self.id else {
            return;
        };
        let was_made = matches!(self.phase, Phase::Up | Phase::Draining);
        // A failure to disconnect means that there is no connection any more.
        let disconnected = was_made && orderly && id.disconnect().is_ok();
        if !disconnected {
            if let Err(error) = id.fail_queue_pair() {
                tracing::debug!(%error, "queue pair not put in error");
            }
            if was_made {
                let _ = id.disconnect();
            }
        }
        self.phase = Phase::Ending(end);
        self.deadline = Some(now + FLUSH);
    }

    /// Whether all that was posted has come back.
    pub(super) fn is_flushed(&self) -> bool {
        self.sends.is_empty() && self.posted_receives == 0
    }

    /// Ends it for good: everything comes back, and the last event is told. Gives the identifier,
    /// which may still have something to say to the peer.
    pub(super) fn finish(&mut self, out: &mut Out<'_>) -> Option<Id> {
        let Phase::Ending(end) = &self.phase else {
            return None;
        };
        let end = end.clone();
        self.phase = Phase::Over;
        let id = self.take_down();
        self.deadline = None;
        self.tell_held(out);
        // The device gives nothing back any more: what is left comes back here.
        while let Some(posted) = self.sends.give_up() {
            self.send_failed(posted, WorkError::Flushed, out);
        }
        for (id, ..) in std::mem::take(&mut self.deferred) {
            let (error, buf) = (WorkError::Flushed, None);
            self.complete(out, id, Err(Failed { error, buf }));
        }
        for receive in std::mem::take(&mut self.receives) {
            let id = receive.id;
            let (error, buf) = (WorkError::Flushed, Some(receive.give_back()));
            self.complete(out, id, Err(Failed { error, buf }));
        }
        self.posted_receives = 0;
        let qp = self.qp;
        out.events.push_back(match end {
            End::Disconnected(reason) => Event::Disconnected { qp, reason },
            End::NotMade(error) => Event::ConnectFailed { qp, error },
        });
        id
    }

    /// Takes from the device all that it has of this connection's, in the order that the module's
    /// documentation gives.
    fn take_down(&mut self) -> Option<Id> {
        let id = self.id.take();
        if let Some(id) = &id
            && let Err(error) = id.fail_queue_pair()
        {
            tracing::debug!(%error, "queue pair not put in error");
        }
        self.regions.release(&self.arenas, &self.domain);
        if let Some(id) = &id {
            id.destroy_queue_pair();
        }
        self.queues = None;
        if self.own_domain {
            self.own_domain = false;
            self.arenas.leave(&self.domain);
        }
        id
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        drop(self.take_down());
        while let Some(posted) = self.sends.give_up() {
            if let Work::Read(landing, Some(mr)) = posted.work
                && mr.deregister().is_err()
            {
                // The peer may still write the sink.
                std::mem::forget(landing);
            }
        }
    }
}

/// Keeps the first cause.
fn note(cause: &mut Option<Disconnect>, why: impl Into<Option<Disconnect>>) {
    if cause.is_none() {
        *cause = why.into();
    }
}

//! Connections of a device, on the thread that owns it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdma::{
    AcceptOptions, Completion, ConnectOptions, ConnectRequest, Device, Disconnect, Event, Failed,
    Poller, PostError, QpId, Region, RemoteSegment, RequestId, Scatter, SendWr, Stag, Success,
    Time, WorkError, WrId,
};
use rpc_transport::PollSource;
use rpcrdma_conform::stream::Gone;
use rpcrdma_conform::wire::ddp::ReadRequest;
use rpcrdma_conform::wire::v1::{self, Segment};
use rpcrdma_setup::device::AnyDevice;

use super::inbox::{Came, Inbox};
use super::offered::{Kind, Memory, Offered, filler};
use super::requests::Requests;

/// The receives of a connection. No case is answered by more messages at once.
const RECEIVES: usize = 128;
/// The RDMA Reads that either end may have outstanding.
const READS: u32 = 16;
/// The longest time in which a connection that nobody uses any more may end in order.
const LEAVING: Duration = Duration::from_secs(2);

/// Facts about a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The longest private data, bytes.
    pub(super) max_private_data: usize,
    /// Whether Sends of other ends can invalidate its memory.
    pub(super) remote_invalidation: bool,
}

/// A connection.
struct End {
    inbox: Arc<Inbox>,
    offered: Offered,
    /// The length of its receives, bytes.
    receive: usize,
    /// Whether this end offers memory: it is the client.
    offers: bool,
    /// The number of the next work request.
    next: u64,
    /// RDMA Reads, with the handle of their sink in the script.
    reads: HashMap<u64, u32>,
    /// Invalidations, with the script's handle.
    invalidations: HashMap<u64, (u32, Stag)>,
    /// Requests that wait for room in the send queue.
    waiting: VecDeque<(WrId, SendWr)>,
    /// Whether the connection has ended.
    is_over: bool,
    /// The error of a request of this end that the other end's device refused.
    refused: Option<WorkError>,
    /// The time at which a connection that nobody uses any more is aborted.
    leaves: Option<Time>,
}

impl End {
    fn new(inbox: Arc<Inbox>, receive: usize, offers: bool) -> Self {
        Self {
            inbox,
            offered: Offered::default(),
            receive,
            offers,
            next: 1,
            reads: HashMap::new(),
            invalidations: HashMap::new(),
            waiting: VecDeque::new(),
            is_over: false,
            refused: None,
            leaves: None,
        }
    }

    fn id(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        id
    }
}

/// The device and its connections.
pub(super) struct Ends {
    device: AnyDevice,
    events: VecDeque<Event>,
    ends: HashMap<QpId, End>,
    /// The requests of clients, if this end listens.
    requests: Option<Arc<Requests>>,
    now: Time,
}

impl Ends {
    pub(super) fn new(device: AnyDevice) -> Self {
        Self {
            device,
            events: VecDeque::new(),
            ends: HashMap::new(),
            requests: None,
            now: Time::now(),
        }
    }

    pub(super) fn facts(&self) -> Facts {
        let attributes = self.device.attributes();
        Facts {
            max_private_data: attributes.max_private_data,
            remote_invalidation: attributes.remote_invalidation,
        }
    }

    // ---- connections ----

    /// Begins a connection to a server.
    pub(super) fn connect(
        &mut self,
        remote: SocketAddr,
        private: Bytes,
        (receive, timeout): (usize, Duration),
        inbox: Arc<Inbox>,
    ) -> Result<QpId, String> {
        let attributes = self.device.attributes();
        let options = ConnectOptions {
            private_data: private,
            inbound_reads: READS.min(attributes.max_inbound_reads),
            outbound_reads: READS.min(attributes.max_outbound_reads),
            timeout,
            shared_receives: None,
        };
        let qp = self.device.connect(remote, &options);
        let qp = qp.map_err(|error| error.to_string())?;
        self.ends.insert(qp, End::new(inbox, receive, true));
        let posted = self.post_receives(qp);
        if posted.is_err() {
            self.remove(qp);
        }
        posted.map(|()| qp)
    }

    /// Listens, and returns the address.
    pub(super) fn listen(
        &mut self,
        address: SocketAddr,
        requests: Arc<Requests>,
    ) -> Result<SocketAddr, String> {
        let listener = self.device.listen(address);
        let listener = listener.map_err(|error| error.to_string())?;
        let address = self.device.local_address(listener);
        self.requests = Some(requests);
        address.map_err(|error| error.to_string())
    }

    /// Accepts a connection of a client.
    pub(super) fn accept(
        &mut self,
        request: RequestId,
        private: Bytes,
        receive: usize,
        inbox: Arc<Inbox>,
    ) -> Result<QpId, String> {
        let qp = self.device.prepare_accept(request, None);
        let qp = qp.map_err(|error| error.to_string())?;
        self.ends.insert(qp, End::new(inbox, receive, false));
        let attributes = self.device.attributes();
        let options = AcceptOptions {
            private_data: private,
            inbound_reads: READS.min(attributes.max_inbound_reads),
            outbound_reads: READS.min(attributes.max_outbound_reads),
        };
        let accepted = self.post_receives(qp).and_then(|()| {
            let accepted = self.device.accept(qp, &options);
            accepted.map_err(|error| error.to_string())
        });
        if accepted.is_err() {
            self.remove(qp);
        }
        accepted.map(|()| qp)
    }

    /// Rejects a connection of a client.
    pub(super) fn reject(&mut self, request: RequestId) {
        // An error means that the client has gone.
        drop(self.device.reject(request, &[]));
    }

    fn post_receives(&mut self, qp: QpId) -> Result<(), String> {
        let count = RECEIVES.min(self.device.attributes().max_recv_wr);
        for _ in 0..count {
            self.post_receive(qp)?;
        }
        Ok(())
    }

    fn post_receive(&mut self, qp: QpId) -> Result<(), String> {
        let Some(end) = self.ends.get_mut(&qp) else {
            return Ok(());
        };
        let buf = self.device.pool().alloc(end.receive);
        let buf = buf.map_err(|error| error.to_string())?;
        let id = WrId(end.id());
        let posted = self.device.post_receive(qp, id, Scatter::new(buf, []));
        posted.map_err(|(error, _)| error.to_string())
    }

    /// Ends a connection, by an abort or in order. Nobody uses it any more.
    pub(super) fn leave(&mut self, qp: QpId, aborts: bool) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        if end.is_over {
            self.remove(qp);
            return;
        }
        end.leaves = Some(self.now + LEAVING);
        // A script that goes on to the next case does not wait for the rest of a flood.
        match aborts || !end.waiting.is_empty() {
            true => self.device.abort(qp),
            false => self.device.disconnect(qp),
        }
    }

    /// Ends a connection that a script may still look at.
    pub(super) fn end(&mut self, qp: QpId) {
        if self.ends.get(&qp).is_some_and(|it| !it.is_over) {
            self.device.abort(qp);
        }
    }

    /// Takes the time for what is done from now on.
    pub(super) fn begin(&mut self, now: Time) {
        self.now = now;
    }

    /// Ends all connections. Returns whether none is left.
    pub(super) fn leave_all(&mut self) -> bool {
        let left: Vec<QpId> = self.ends.keys().copied().collect();
        for qp in left {
            if self.ends.get(&qp).is_some_and(|it| it.leaves.is_none()) {
                self.leave(qp, true);
            }
        }
        self.ends.is_empty()
    }

    fn remove(&mut self, qp: QpId) {
        self.ends.remove(&qp);
        self.device.destroy(qp);
    }

    // ---- what scripts do ----

    /// Sends a message of a script. `invalidate` is a handle of the other end.
    pub(super) fn send(&mut self, qp: QpId, message: &[u8], invalidate: Option<u32>) {
        self.guard(qp, message);
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let message = match end.offers {
            true => end.offered.outgoing(message),
            false => Bytes::copy_from_slice(message),
        };
        let request = SendWr::Send {
            gather: [message].into_iter().collect(),
            invalidate: invalidate.map(Stag),
        };
        let id = end.id();
        self.post(qp, id, request);
    }

    /// Registers one byte for each handle in the chunk lists of a version 1 message that the script does not offer. The
    /// other end may invalidate any of these handles (RFC 8797, section 4.1), and the device would end the connection
    /// if it did not know the handle. The offset in the message stays the script's, outside of that byte, so that the
    /// other end can access nothing by it.
    fn guard(&mut self, qp: QpId, message: &[u8]) {
        let offers = self.ends.get(&qp).is_some_and(|it| it.offers);
        let is_possible = offers && self.device.attributes().remote_invalidation;
        let is_first = message.get(4..8) == Some(&1_u32.to_be_bytes());
        let parsed = v1::parse(message).filter(|_| is_possible && is_first);
        let Some(v1::Message::Rpc(header, _)) = parsed else {
            return;
        };
        let reads = header.reads.iter().map(|(_, segment)| segment);
        for segment in reads.chain(header.writes.iter().chain(&header.reply).flatten()) {
            let Some(end) = self.ends.get_mut(&qp) else {
                return;
            };
            if end.offered.has_handle(segment.handle) {
                continue;
            }
            // From the pool, as not all devices can register a constant. If this fails, the message keeps the script's
            // handle.
            let octet = self.device.pool().concat(&[Bytes::from_static(&[0])]);
            let Ok(octet) = octet else {
                return;
            };
            let region = Region::RemoteRead(octet.freeze());
            match self.device.register(qp, region) {
                Ok(real) => {
                    let named = RemoteSegment {
                        length: segment.length,
                        offset: segment.offset,
                        ..real
                    };
                    end.offered.add(*segment, named, Kind::Guard);
                }
                Err((error, _)) => tracing::warn!(%error, "a handle without memory has no guard"),
            }
        }
    }

    /// Writes to memory of the other end.
    pub(super) fn write(&mut self, qp: QpId, handle: u32, offset: u64, bytes: Bytes) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let id = end.id();
        let request = SendWr::Write {
            gather: [bytes].into_iter().collect(),
            stag: Stag(handle),
            offset,
        };
        self.post(qp, id, request);
    }

    /// Reads memory of the other end.
    pub(super) fn read(&mut self, qp: QpId, request: &ReadRequest) {
        let sink = self.device.pool().alloc(request.length as usize);
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let Ok(sink) = sink else {
            return fail(end);
        };
        let id = end.id();
        end.reads.insert(id, request.sink);
        let request = SendWr::Read {
            sink,
            stag: Stag(request.source),
            offset: request.source_offset,
        };
        self.post(qp, id, request);
    }

    /// Offers memory, with its content if it is to be read.
    pub(super) fn offer(
        &mut self,
        qp: QpId,
        segment: Segment,
        content: Option<&Bytes>,
    ) -> Result<(), String> {
        let Some(end) = self.ends.get_mut(&qp) else {
            return Err("the connection has ended".into());
        };
        // Nothing can be done with memory of nothing, and a device need not register it.
        if segment.length == 0 || end.offered.has(&segment) || end.is_over {
            return Ok(());
        }
        let cannot = |why: &dyn std::fmt::Display| {
            format!("the device cannot offer {} bytes: {why}", segment.length)
        };
        let pool = self.device.pool();
        let region = match content {
            Some(content) => {
                let buf = pool.concat(std::slice::from_ref(content));
                Region::RemoteRead(buf.map_err(|it| cannot(&it))?.freeze())
            }
            None => {
                let buf = pool.alloc(segment.length as usize);
                let mut buf = buf.map_err(|it| cannot(&it))?;
                for (at, octet) in buf.iter_mut().enumerate() {
                    *octet = filler(at);
                }
                Region::RemoteWrite(buf)
            }
        };
        match self.device.register(qp, region) {
            Ok(real) => {
                let kind = match content {
                    Some(_) => Kind::Source,
                    None => Kind::Room,
                };
                end.offered.add(segment, real, kind);
                Ok(())
            }
            Err((error, _)) => Err(cannot(&error)),
        }
    }

    /// Takes back a room. Its content is put into the inbox once the handle is invalid. Returns whether anything was
    /// registered for it: a room of no bytes, or one of a connection that had ended, is not, and nobody can have written
    /// to it.
    pub(super) fn take_back(&mut self, qp: QpId, handle: u32) -> Result<bool, String> {
        let end = self.ends.get_mut(&qp);
        let end = end.ok_or("the connection is gone")?;
        let is_over = end.is_over;
        let Some(memory) = end.offered.of_script(handle) else {
            return Ok(false);
        };
        if memory.kind != Kind::Room {
            return Err("the device offers this memory to RDMA Reads alone".into());
        }
        let stag = memory.real.stag;
        if memory.is_taken_back || is_over {
            self.taken_back(qp, handle, stag);
            return Ok(true);
        }
        let id = end.id();
        end.invalidations.insert(id, (handle, stag));
        self.post(qp, id, SendWr::Invalidate { stag });
        Ok(true)
    }

    /// Puts the content of a room into the inbox after its handle became invalid.
    fn taken_back(&mut self, qp: QpId, handle: u32, stag: Stag) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        // The other end may have invalidated it before: then its content is there already.
        let is_there = |it: &Memory| it.content.is_some();
        let mut why = "the device has not returned it".to_owned();
        if !end.offered.of_script(handle).is_some_and(is_there) {
            match self.device.reclaim(qp, stag) {
                Ok(region) => drop(end.offered.taken_back(stag, &region)),
                Err(error) => why = error.to_string(),
            }
        }
        let memory = end.offered.of_script(handle);
        let content = memory.and_then(|it| it.content.clone()).ok_or(why);
        end.inbox
            .change(|it| drop(it.rooms.insert(handle, content)));
    }

    /// Posts a request behind those that wait.
    fn post(&mut self, qp: QpId, id: u64, request: SendWr) {
        if let Some(end) = self.ends.get_mut(&qp) {
            end.waiting.push_back((WrId(id), request));
        }
        self.post_waiting(qp);
    }

    /// Posts requests while there is room.
    fn post_waiting(&mut self, qp: QpId) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let before = end.waiting.len();
        while let Some((id, request)) = end.waiting.pop_front() {
            match self.device.post_send(qp, id, request, true) {
                Ok(()) => {}
                Err((PostError::QueueFull, request)) => {
                    end.waiting.push_front((id, request));
                    break;
                }
                Err(_) => {
                    end.waiting.clear();
                    fail(end);
                }
            }
        }
        let after = end.waiting.len();
        if before > 1 || after > 0 {
            end.inbox.change(|it| it.unsent = after);
        }
    }

    // ---- what happens ----

    fn happened(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => self.requested(request),
            Event::Established { qp, private_data } => {
                if let Some(end) = self.ends.get(&qp) {
                    let private = private_data.to_vec();
                    end.inbox.change(|it| it.set_up = Some(Ok(private)));
                }
            }
            Event::ConnectFailed { qp, error } => {
                if let Some(end) = self.ends.remove(&qp) {
                    let why = error.to_string();
                    end.inbox.change(|it| {
                        it.set_up = Some(Err(why));
                        it.end = Some(Gone::Closed);
                    });
                }
            }
            Event::Disconnected { qp, reason } => self.disconnected(qp, reason),
            Event::Completion(completion) => self.completed(completion),
            Event::SharedReceivesLow { .. } => {}
            Event::Removed => {
                let text = "the device was removed";
                for end in self.ends.values() {
                    end.inbox
                        .change(|it| it.end = Some(Gone::Refused(text.into())));
                }
            }
        }
    }

    fn requested(&mut self, request: ConnectRequest) {
        match &self.requests {
            Some(requests) => requests.add(request.request, request.private_data),
            None => self.reject(request.request),
        }
    }

    fn disconnected(&mut self, qp: QpId, reason: Disconnect) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        end.is_over = true;
        end.waiting.clear();
        if end.leaves.is_some() {
            return self.remove(qp);
        }
        let refused = end.refused;
        let gone = match reason {
            Disconnect::PeerError(why) => Gone::Refused(why),
            Disconnect::Terminated(why) => Gone::Terminated(why),
            // Some adapters give no reason for the end. The refused request is the only one.
            _ if refused.is_some() => {
                let why = refused.map(|it| it.to_string());
                Gone::Terminated(why.unwrap_or_default())
            }
            Disconnect::Lost(_) => Gone::Reset,
            _ => Gone::Closed,
        };
        // The handles are invalid now, so rooms that were asked for are taken back at once.
        let asked: Vec<(u32, Stag)> = end.invalidations.drain().map(|(_, it)| it).collect();
        for (handle, stag) in asked {
            self.taken_back(qp, handle, stag);
        }
        if let Some(end) = self.ends.get(&qp) {
            end.inbox.change(|it| {
                it.unsent = 0;
                it.end.get_or_insert(gone);
            });
        }
    }

    fn completed(&mut self, completion: Completion) {
        let Completion { qp, id, result } = completion;
        match result {
            Ok(Success::Receive { buf, invalidated }) => {
                self.received(qp, &buf, invalidated);
                drop(buf);
                if let Err(error) = self.post_receive(qp)
                    && let Some(end) = self.ends.get(&qp).filter(|it| !it.is_over)
                {
                    tracing::warn!(%error, "a receive was not posted");
                    fail(end);
                }
            }
            Ok(Success::Read { sink }) => {
                if let Some(end) = self.ends.get_mut(&qp)
                    && let Some(handle) = end.reads.remove(&id.0)
                {
                    let bytes = sink.to_vec();
                    end.inbox.change(|it| it.add(Came::Response(handle, bytes)));
                }
            }
            Ok(Success::Invalidate) => {
                let end = self.ends.get_mut(&qp);
                if let Some((handle, stag)) = end.and_then(|it| it.invalidations.remove(&id.0)) {
                    self.taken_back(qp, handle, stag);
                }
            }
            Ok(Success::Send | Success::Write) => {}
            Err(Failed { error, .. }) => {
                let is_refusal =
                    matches!(error, WorkError::RemoteAccess | WorkError::RemoteOperation);
                if let Some(end) = self.ends.get_mut(&qp)
                    && is_refusal
                {
                    end.refused.get_or_insert(error);
                }
            }
        }
        self.post_waiting(qp);
    }

    fn received(&mut self, qp: QpId, buf: &Scatter, invalidated: Option<Stag>) {
        let Some(end) = self.ends.get_mut(&qp) else {
            return;
        };
        let handle = invalidated.map(|stag| {
            let region = self.device.reclaim(qp, stag).ok();
            let handle = region.and_then(|it| end.offered.taken_back(stag, &it));
            handle.unwrap_or(stag.0)
        });
        let message = end.offered.incoming(buf.to_vec());
        end.inbox
            .change(|it| it.add(Came::Message(message, handle)));
    }
}

/// Notes that a request or a receive could not be posted.
fn fail(end: &End) {
    end.inbox.change(|it| it.failed = true);
}

impl PollSource for Ends {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        self.device.attach(poller)
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.device.ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.now = now;
        self.device.poll(now, &mut self.events);
        let mut progress = false;
        while let Some(event) = self.events.pop_front() {
            progress = true;
            self.happened(event);
        }
        let is_late = |it: &End| it.leaves.is_some_and(|until| until <= now);
        let late = self.ends.iter().filter(|(_, it)| is_late(it));
        let late: Vec<QpId> = late.map(|(qp, _)| *qp).collect();
        for qp in late {
            self.device.abort(qp);
            self.remove(qp);
            progress = true;
        }
        progress
    }

    fn arm(&mut self) -> bool {
        self.device.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        let leaving = self.ends.values().filter_map(|it| it.leaves);
        leaving.chain(self.device.next_deadline()).min()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.device.set_busy_poll(on);
    }
}

#[cfg(test)]
mod tests;

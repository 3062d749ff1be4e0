//! A device behind a link with a delay and a rate.

mod line;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;

use self::line::{Line, Parcel, Phase};
use super::Shaper;
use super::forward::forward;
use crate::{
    AcceptOptions, ConnectError, ConnectOptions, ConnectRequest, Device, DeviceError, Event,
    ListenerId, PostError, QpId, RequestId, SendWr, Time, WrId,
};

/// Adds a link to a device: what this side sends, it sends later.
///
/// Both sides of a connection wrap their devices with the same delay. Sends, Writes, Read
/// requests, the answer to a connection request and the orderly end are held here for one delay,
/// in order. Two things that the peer sends without its middleware having a say are held on
/// arrival instead: the answer to an RDMA Read, and a connection request (a queue pair has to be
/// there at once, so that receives can be posted to it). So a Send and its answer take two delays,
/// one round trip, and so do an RDMA Read and the making of a connection.
///
/// Receives are not delayed. Local invalidations are not either: a Send or Write before one has
/// left this device as far as the model goes, it only has not arrived. An abortive end takes
/// effect at once, and flushes what is on its way.
///
/// All connections share the two directions of the link, as they would a network port.
///
/// Nothing here looks at a clock: what is posted leaves at the next [`Device::poll`], which
/// [`Device::arm`] and [`Device::next_deadline`] ask for.
#[derive(Debug)]
pub struct Linked<D> {
    device: D,
    outbound: Shaper,
    inbound: Shaper,
    /// Of the last poll.
    now: Time,
    lines: BTreeMap<QpId, Line>,
    /// Queue pairs whose parcels leave at the next poll, one entry for each, in order.
    leaving: VecDeque<QpId>,
    /// Connection requests on their way here.
    requests: VecDeque<(Time, ConnectRequest)>,
    /// Connection requests that have arrived and are not answered.
    unanswered: BTreeSet<RequestId>,
    /// Rejections on their way to the peer.
    rejections: VecDeque<(Option<Time>, RequestId, Bytes)>,
    /// Events of the device inside that are being looked at.
    inner: VecDeque<Event>,
}

impl<D: Device> Linked<D> {
    /// Puts `device` behind a link that is like `link` in both directions.
    #[must_use]
    pub fn new(device: D, link: Shaper) -> Self {
        Self {
            device,
            outbound: link.clone(),
            inbound: link,
            now: Time::ZERO,
            lines: BTreeMap::new(),
            leaving: VecDeque::new(),
            requests: VecDeque::new(),
            unanswered: BTreeSet::new(),
            rejections: VecDeque::new(),
            inner: VecDeque::new(),
        }
    }

    fn check_private_data(&self, len: usize) -> Result<(), DeviceError> {
        let max = self.attributes().max_private_data;
        if len > max {
            return Err(DeviceError::PrivateDataTooLong { len, max });
        }
        Ok(())
    }

    /// What was handed in since the last poll leaves now.
    fn leave(&mut self) {
        for qp in self.leaving.drain(..) {
            if let Some(line) = self.lines.get_mut(&qp) {
                line.stamp(self.now, &mut self.outbound);
            }
        }
        for (due, _, private_data) in &mut self.rejections {
            let bytes = private_data.len() as u64;
            due.get_or_insert_with(|| self.outbound.release(self.now, bytes));
        }
    }

    /// Hands what has arrived to the device inside. Returns whether there was anything.
    fn release(&mut self, events: &mut VecDeque<Event>) -> bool {
        let mut any = false;
        while let Some((Some(due), ..)) = self.rejections.front()
            && *due <= self.now
            && let Some((_, request, private_data)) = self.rejections.pop_front()
        {
            // The peer may have given up meanwhile; then nobody waits for the answer.
            let _ = self.device.reject(request, &private_data);
            any = true;
        }
        let mut refused = Vec::new();
        for line in self.lines.values_mut() {
            match line.release(self.now, &mut self.device) {
                Ok(released) => any |= released,
                Err(error) => refused.push((line.qp, error)),
            }
        }
        for (qp, error) in refused {
            self.destroy(qp);
            let error = ConnectError::Protocol(error.to_string());
            events.push_back(Event::ConnectFailed { qp, error });
        }
        any
    }

    /// Polls the device inside, and holds back what is late in coming.
    fn collect(&mut self, events: &mut VecDeque<Event>) {
        self.device.poll(self.now, &mut self.inner);
        while let Some(event) = self.inner.pop_front() {
            match event {
                Event::ConnectRequest(request) => {
                    let bytes = request.private_data.len() as u64;
                    let due = self.inbound.release(self.now, bytes);
                    self.requests.push_back((due, request));
                }
                Event::Completion(completion) => match self.lines.get_mut(&completion.qp) {
                    Some(line) => {
                        line.complete(self.now, &mut self.inbound, completion, events);
                    }
                    None => events.push_back(Event::Completion(completion)),
                },
                Event::Established { qp, private_data } => {
                    if let Some(line) = self.lines.get_mut(&qp)
                        && line.phase != Phase::Closing
                    {
                        line.phase = Phase::Up;
                    }
                    events.push_back(Event::Established { qp, private_data });
                }
                Event::ConnectFailed { qp, error } => {
                    if let Some(mut line) = self.lines.remove(&qp) {
                        line.flush(events);
                    }
                    events.push_back(Event::ConnectFailed { qp, error });
                }
                Event::Disconnected { qp, reason } => {
                    if let Some(line) = self.lines.get_mut(&qp) {
                        line.flush(events);
                    }
                    events.push_back(Event::Disconnected { qp, reason });
                }
                Event::Removed => events.push_back(Event::Removed),
            }
        }
    }

    fn push(&mut self, qp: QpId, parcel: Parcel) {
        if let Some(line) = self.lines.get_mut(&qp) {
            line.push(parcel);
            self.leaving.push_back(qp);
        }
    }
}

impl<D: Device> Device for Linked<D> {
    forward!(self => self.device;
        attributes pool counters attach ready set_busy_poll listen local_address carrier register
        reclaim post_receive);

    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.now = self.now.max(now);
        self.leave();
        self.release(events);
        self.collect(events);
        // Polling may have made room for what the device had none for; when it has not, the device
        // will ask to be polled again.
        while self.release(events) {
            self.collect(events);
        }
        for line in self.lines.values_mut() {
            line.deliver(self.now, events);
        }
        while let Some((due, _)) = self.requests.front()
            && *due <= self.now
            && let Some((_, request)) = self.requests.pop_front()
        {
            self.unanswered.insert(request.request);
            events.push_back(Event::ConnectRequest(request));
        }
    }

    fn arm(&mut self) -> bool {
        let leaving = !self.leaving.is_empty();
        let answering = self.rejections.iter().any(|(due, ..)| due.is_none());
        !leaving && !answering && self.device.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        let leaving = (!self.leaving.is_empty()).then_some(self.now);
        let rejection = self.rejections.front();
        let rejection = rejection.map(|(due, ..)| due.unwrap_or(self.now));
        let request = self.requests.front().map(|(due, _)| *due);
        let lines = self.lines.values().filter_map(Line::next_deadline);
        lines
            .chain(leaving)
            .chain(rejection)
            .chain(request)
            .chain(self.device.next_deadline())
            .min()
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.requests.retain(|(_, request)| {
            let keep = request.listener != listener;
            if !keep {
                // Nobody above has heard of it; the peer may have given up.
                let _ = self.device.reject(request.request, &[]);
            }
            keep
        });
        self.device.close_listener(listener);
    }

    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        let qp = self.device.connect(remote, options)?;
        self.lines.insert(qp, Line::new(qp));
        Ok(qp)
    }

    fn prepare_accept(&mut self, request: RequestId) -> Result<QpId, DeviceError> {
        self.unanswered.remove(&request);
        let qp = self.device.prepare_accept(request)?;
        self.lines.insert(qp, Line::new(qp));
        Ok(qp)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        self.check_private_data(options.private_data.len())?;
        let line = self.lines.get_mut(&qp);
        let line = line.filter(|line| line.phase == Phase::New);
        line.ok_or(DeviceError::Unknown("queue pair"))?.phase = Phase::Accepting;
        self.push(qp, Parcel::Accept(options.clone()));
        Ok(())
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        self.check_private_data(private_data.len())?;
        if !self.unanswered.remove(&request) {
            return Err(DeviceError::Unknown("connection request"));
        }
        let private_data = Bytes::copy_from_slice(private_data);
        self.rejections.push_back((None, request, private_data));
        Ok(())
    }

    fn disconnect(&mut self, qp: QpId) {
        let Some(line) = self.lines.get_mut(&qp) else {
            return self.device.disconnect(qp);
        };
        match line.phase {
            Phase::New => {
                line.phase = Phase::Closing;
                self.device.disconnect(qp);
            }
            Phase::Accepting | Phase::Up => {
                line.phase = Phase::Closing;
                self.push(qp, Parcel::Disconnect);
            }
            Phase::Closing => {}
        }
    }

    fn abort(&mut self, qp: QpId) {
        if let Some(line) = self.lines.get_mut(&qp) {
            line.cut();
        }
        self.device.abort(qp);
    }

    fn destroy(&mut self, qp: QpId) {
        self.lines.remove(&qp);
        self.device.destroy(qp);
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let (room, elements) = {
            let limits = self.device.attributes();
            (limits.max_send_wr, limits.max_gather)
        };
        let Some(line) = self.lines.get_mut(&qp) else {
            return Err((PostError::Unknown, wr));
        };
        if line.phase != Phase::Up {
            return Err((PostError::NotConnected, wr));
        }
        if line.outstanding() >= room {
            return Err((PostError::QueueFull, wr));
        }
        match &wr {
            SendWr::Invalidate { .. } => {
                self.device.post_send(qp, id, wr, signaled)?;
                line.expect_completion();
                return Ok(());
            }
            SendWr::Send { gather, .. } | SendWr::Write { gather, .. }
                if gather.len() > elements =>
            {
                return Err((PostError::TooManyElements, wr));
            }
            SendWr::Send { .. } | SendWr::Write { .. } | SendWr::Read { .. } => {}
        }
        self.push(qp, Parcel::Work { id, wr, signaled });
        Ok(())
    }
}

//! A device behind a link with a delay and a rate.

mod traffic;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;

use self::traffic::{InFlight, Phase, QpTraffic};
use super::Shaper;
use crate::{
    AcceptOptions, ConnectError, ConnectOptions, ConnectRequest, Device, DeviceError, Event,
    ListenerId, PostError, QpId, RequestId, SendWr, SharedReceivesId, Time, WrId,
};

/// Adds a link to a device: what this side sends is delayed.
///
/// Both sides of a connection wrap their devices with the same delay. Sends, Writes, Read requests,
/// the answer to a connection request and the graceful end are held here for one delay, in order.
/// Two items from the peer bypass its middleware and are held on arrival instead: the response to
/// an RDMA Read, and a connection request (its queue pair must exist at once, so that receives can
/// be posted to it). So a Send and its answer take two delays, which is one round trip, and so do
/// an RDMA Read and the establishment of a connection.
///
/// Receives are not delayed, nor are local invalidations: in the model, a Send or Write posted
/// before an invalidation has left this device and is only in flight. An abort takes effect at
/// once, and flushes the items in flight.
///
/// All connections share the two directions of the link, as they would share a network port.
///
/// No method reads a clock: requests are sent at the next [`Device::poll`], which [`Device::arm`]
/// and [`Device::next_deadline`] ask for.
#[derive(Debug)]
pub struct Linked<D> {
    device: D,
    outbound: Shaper,
    inbound: Shaper,
    /// Time of the last poll.
    now: Time,
    traffic: BTreeMap<QpId, QpTraffic>,
    /// Queue pairs whose items are sent at the next poll, one entry for each item, in order.
    leaving: VecDeque<QpId>,
    /// Connection requests in flight to this side.
    requests: VecDeque<(Time, ConnectRequest)>,
    /// Connection requests that have arrived and are not answered.
    unanswered: BTreeSet<RequestId>,
    /// Rejections in flight to the peer.
    rejections: VecDeque<(Option<Time>, RequestId, Bytes)>,
    /// Events of the inner device that are being handled.
    inner: VecDeque<Event>,
}

impl<D: Device> Linked<D> {
    /// Puts `device` behind a link with the properties of `link` in both directions.
    #[must_use]
    pub fn new(device: D, link: Shaper) -> Self {
        Self {
            device,
            outbound: link.clone(),
            inbound: link,
            now: Time::ZERO,
            traffic: BTreeMap::new(),
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

    /// Puts the requests posted since the last poll on the link.
    fn leave(&mut self) {
        for qp in self.leaving.drain(..) {
            if let Some(traffic) = self.traffic.get_mut(&qp) {
                traffic.stamp(self.now, &mut self.outbound);
            }
        }
        for (due, _, private_data) in &mut self.rejections {
            let bytes = private_data.len() as u64;
            due.get_or_insert_with(|| self.outbound.release(self.now, bytes));
        }
    }

    /// Passes what has arrived to the inner device. Returns whether there was anything.
    fn release(&mut self, events: &mut VecDeque<Event>) -> bool {
        let mut any = false;
        while let Some((Some(due), ..)) = self.rejections.front()
            && *due <= self.now
            && let Some((_, request, private_data)) = self.rejections.pop_front()
        {
            // The peer may have given up meanwhile; then the rejection is not needed.
            let _ = self.device.reject(request, &private_data);
            any = true;
        }
        let mut refused = Vec::new();
        for traffic in self.traffic.values_mut() {
            match traffic.release(self.now, &mut self.device) {
                Ok(released) => any |= released,
                Err(error) => refused.push((traffic.qp, error)),
            }
        }
        for (qp, error) in refused {
            self.destroy(qp);
            let error = ConnectError::Protocol(error.to_string());
            events.push_back(Event::ConnectFailed { qp, error });
        }
        any
    }

    /// Polls the inner device, and delays events that would arrive later.
    fn collect(&mut self, events: &mut VecDeque<Event>) {
        self.device.poll(self.now, &mut self.inner);
        while let Some(event) = self.inner.pop_front() {
            match event {
                Event::ConnectRequest(request) => {
                    let bytes = request.private_data.len() as u64;
                    let due = self.inbound.release(self.now, bytes);
                    self.requests.push_back((due, request));
                }
                Event::Completion(completion) => match self.traffic.get_mut(&completion.qp) {
                    Some(traffic) => {
                        traffic.complete(self.now, &mut self.inbound, completion, events);
                    }
                    None => events.push_back(Event::Completion(completion)),
                },
                Event::Established { qp, private_data } => {
                    if let Some(traffic) = self.traffic.get_mut(&qp)
                        && traffic.phase != Phase::Closing
                    {
                        traffic.phase = Phase::Up;
                    }
                    events.push_back(Event::Established { qp, private_data });
                }
                Event::ConnectFailed { qp, error } => {
                    if let Some(mut traffic) = self.traffic.remove(&qp) {
                        traffic.flush(events);
                    }
                    events.push_back(Event::ConnectFailed { qp, error });
                }
                Event::Disconnected { qp, reason } => {
                    if let Some(traffic) = self.traffic.get_mut(&qp) {
                        traffic.flush(events);
                    }
                    events.push_back(Event::Disconnected { qp, reason });
                }
                other @ (Event::SharedReceivesLow { .. } | Event::Removed) => {
                    events.push_back(other);
                }
            }
        }
    }

    fn push(&mut self, qp: QpId, item: InFlight) {
        if let Some(traffic) = self.traffic.get_mut(&qp) {
            traffic.push(item);
            self.leaving.push_back(qp);
        }
    }
}

impl<D: Device> Device for Linked<D> {
    crate::forward!(self => self.device;
        attributes pool counters attach ready set_busy_poll flush listen local_address carrier ending
        give_back register reclaim post_receive shared_receives);

    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.now = self.now.max(now);
        self.leave();
        self.release(events);
        self.collect(events);
        // Polling may have made room for requests that the device had refused. If not, the device
        // will ask to be polled again.
        while self.release(events) {
            self.collect(events);
        }
        for traffic in self.traffic.values_mut() {
            traffic.deliver(self.now, events);
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
        let traffic = self.traffic.values().filter_map(QpTraffic::next_deadline);
        traffic
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
                // The owner has not seen the request, and the peer may have given up.
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
        self.traffic.insert(qp, QpTraffic::new(qp));
        Ok(qp)
    }

    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        let qp = self.device.prepare_accept(request, receives)?;
        self.unanswered.remove(&request);
        self.traffic.insert(qp, QpTraffic::new(qp));
        Ok(qp)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        self.check_private_data(options.private_data.len())?;
        let traffic = self.traffic.get_mut(&qp);
        let traffic = traffic.filter(|traffic| traffic.phase == Phase::New);
        traffic.ok_or(DeviceError::Unknown("queue pair"))?.phase = Phase::Accepting;
        self.push(qp, InFlight::Accept(options.clone()));
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
        let Some(traffic) = self.traffic.get_mut(&qp) else {
            return self.device.disconnect(qp);
        };
        match traffic.phase {
            Phase::New => {
                traffic.phase = Phase::Closing;
                self.device.disconnect(qp);
            }
            Phase::Accepting | Phase::Up => {
                traffic.phase = Phase::Closing;
                self.push(qp, InFlight::Disconnect);
            }
            Phase::Closing => {}
        }
    }

    fn abort(&mut self, qp: QpId) {
        if let Some(traffic) = self.traffic.get_mut(&qp) {
            traffic.cut();
        }
        self.device.abort(qp);
    }

    fn destroy(&mut self, qp: QpId) {
        self.traffic.remove(&qp);
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
        let Some(traffic) = self.traffic.get_mut(&qp) else {
            return Err((PostError::Unknown, wr));
        };
        if traffic.phase != Phase::Up {
            return Err((PostError::NotConnected, wr));
        }
        if traffic.outstanding() >= room {
            return Err((PostError::QueueFull, wr));
        }
        match &wr {
            SendWr::Invalidate { .. } => {
                self.device.post_send(qp, id, wr, signaled)?;
                traffic.expect_completion();
                return Ok(());
            }
            SendWr::Send { gather, .. } | SendWr::Write { gather, .. }
                if gather.len() > elements =>
            {
                return Err((PostError::TooManyElements, wr));
            }
            SendWr::Send { .. } | SendWr::Write { .. } | SendWr::Read { .. } => {}
        }
        self.push(qp, InFlight::Work { id, wr, signaled });
        Ok(())
    }
}

//! Arrival of packets.

use bytes::Bytes;

use super::queue_pair::{Arrival, Packet, Progress};
use super::state::{State, Stream, What};
use super::steps::before;
use super::{Access, End, FabricEvent, Path, StepKind};
use rdma::{
    Completion, Disconnect, Event, Failed, Region, SharedReceiveQueue, Stag, Success, WorkError,
};

impl State {
    /// Handles the arrival of a packet at `to`. `number` is that of the work request to which it
    /// belongs.
    pub(super) fn arrive(&mut self, to: End, number: u64, packet: Packet, path: Path) {
        let Some(qp) = self.qp(to).filter(|qp| qp.is_up() && !qp.cut) else {
            return;
        };
        let from = qp.peer;
        if self.may_lose(to) {
            return;
        }
        let len = match &packet {
            Packet::Message { bytes, .. }
            | Packet::Write { bytes, .. }
            | Packet::ReadResponse { bytes } => bytes.len(),
            _ => 0,
        };
        let framed = self.costs.framed(len) as u64;
        self.node(to.node).counters.wire_bytes_received += framed;
        self.show_received(to, &packet);
        let Some(from) = from else { return };
        let arrival = Arrival {
            from,
            number,
            packet,
            path,
        };
        self.arrived(to, arrival);
    }

    /// Executes a packet that has arrived.
    pub(super) fn execute(&mut self, to: End, arrival: Arrival) {
        let Arrival {
            from,
            number,
            packet,
            path,
        } = arrival;
        match packet {
            Packet::Message { bytes, invalidate } => {
                self.message(to, from, number, &bytes, invalidate, path);
            }
            Packet::Write { access, bytes } => self.write(to, from, number, access, &bytes),
            Packet::ReadRequest { access } => self.read(to, from, number, access, path),
            Packet::ReadResponse { bytes } => self.response(to, number, &bytes, path),
            Packet::Fin => {
                self.transmit(to, 0, 0, Packet::FinAck, path);
                self.end(to, Disconnect::Remote);
            }
            Packet::FinAck => self.end(to, Disconnect::Local),
            Packet::Reset => self.end(to, Disconnect::Lost("reset".to_owned())),
        }
    }

    /// Refuses a request of the peer. Both ends fail, each with its own error.
    fn refuse(&mut self, here: End, there: End, number: u64, error: WorkError, why: &str) {
        let at = self.now + self.link(here.node).delay;
        if let Some(entry) = self.qp(there).and_then(|qp| qp.entry(number)) {
            entry.refused = true;
        }
        let reason = Disconnect::Terminated(why.to_owned());
        let what = What::Failed {
            at: there,
            number,
            error,
            reason,
        };
        self.at(at, what);
        self.end(here, Disconnect::PeerError(why.to_owned()));
    }

    fn message(
        &mut self,
        to: End,
        from: End,
        number: u64,
        bytes: &Bytes,
        invalidate: Option<Stag>,
        path: Path,
    ) {
        let operation = WorkError::RemoteOperation;
        if let Some(stag) = invalidate {
            let memory = self.qp(to).and_then(|qp| qp.memory.get_mut(&stag));
            match memory.filter(|memory| memory.valid) {
                Some(memory) => memory.valid = false,
                None => {
                    let why = "Send With Invalidate of an invalid handle";
                    return self.refuse(to, from, number, operation, why);
                }
            }
            self.note(&FabricEvent::Invalidated(to, stag, true));
            self.node(to.node).counters.remote_invalidations += 1;
        }
        let Some((id, mut buf)) = self.qp(to).and_then(|qp| qp.receives.pop_front()) else {
            self.note(&FabricEvent::Overrun(to));
            return self.refuse(to, from, number, operation, "no receive");
        };
        let left = self.receives_left(to);
        let result = if buf.fill(bytes) {
            self.node(to.node).counters.receives += 1;
            let invalidated = invalidate;
            Ok(Success::Receive { buf, invalidated })
        } else {
            self.note(&FabricEvent::TooLong(to, bytes.len()));
            Err(Failed {
                error: WorkError::LocalLength,
                buf: Some(buf),
            })
        };
        self.note(&FabricEvent::Arrived(to, bytes.len(), left));
        let short = result.is_err();
        let completion = Completion {
            qp: to.qp,
            id,
            result,
        };
        self.tell(to, Stream::Receive, Event::Completion(completion), path);
        if short {
            self.refuse(to, from, number, operation, "the receive is too short");
        }
    }

    /// Returns the number of receives that are left for messages to an end.
    fn receives_left(&self, end: End) -> usize {
        let node = &self.nodes[end.node.0];
        let qp = node.qps.get(&end.qp);
        match qp.and_then(|qp| qp.shared) {
            Some(shared) => node.shared.get(&shared).map_or(0, SharedReceiveQueue::len),
            None => qp.map_or(0, |qp| qp.receives.len()),
        }
    }

    fn write(&mut self, to: End, from: End, number: u64, access: Access, bytes: &Bytes) {
        let memory = self
            .qp(to)
            .and_then(|qp| qp.memory.get_mut(&access.stag))
            .and_then(|memory| Some((memory.allows(&access)?, &mut memory.region)));
        let Some((start, Region::RemoteWrite(buf))) = memory else {
            return self.refuse_access(to, from, number, access);
        };
        buf[start..start + bytes.len()].copy_from_slice(bytes);
        self.note(&FabricEvent::Accessed(to, access));
    }

    fn read(&mut self, to: End, from: End, number: u64, access: Access, path: Path) {
        let memory = self
            .qp(to)
            .and_then(|qp| qp.memory.get(&access.stag))
            .and_then(|memory| Some((memory.allows(&access)?, &memory.region)));
        let Some((start, Region::RemoteRead(source))) = memory else {
            return self.refuse_access(to, from, number, access);
        };
        let bytes = source.slice(start..start + access.len);
        self.note(&FabricEvent::Accessed(to, access));
        let late = self.random.duration(self.faults.late_read);
        let response = self.costs.read_response;
        let crossing = self.cross(to, bytes.len());
        // The response is transmitted when the device has it ready. Sends posted before that go
        // first; reads of one connection are answered in order.
        let now = self.now;
        let Some(qp) = self.qp(to) else { return };
        let left = qp.answered.max(now + response + late) + crossing.sending;
        qp.answered = left + crossing.again;
        qp.responded = qp.responded.max(left + crossing.travel);
        let arrival = qp.responded;
        let begun = before(left, crossing.sending);
        let kind = StepKind::ReadResponse(bytes.len());
        let path = self.stepped(path.crossed(), to.node, (begun, arrival), kind);
        let packet = Packet::ReadResponse { bytes };
        self.show_sent(left, to, &packet);
        self.node(to.node).counters.wire_bytes_sent += crossing.bytes;
        let what = What::Arrive {
            to: from,
            number,
            packet,
            path,
        };
        self.at(arrival, what);
    }

    fn refuse_access(&mut self, to: End, from: End, number: u64, access: Access) {
        self.note(&FabricEvent::Refused(to, access));
        let error = WorkError::RemoteAccess;
        self.refuse(to, from, number, error, "access refused");
    }

    fn response(&mut self, to: End, number: u64, bytes: &Bytes, path: Path) {
        let Some(qp) = self.qp(to) else { return };
        qp.reading = qp.reading.saturating_sub(1);
        let Some(entry) = qp.entry(number) else {
            return;
        };
        entry.path = path;
        entry.progress = match std::mem::replace(&mut entry.progress, Progress::Started) {
            Progress::Reading(mut sink) => {
                sink.copy_from_slice(bytes);
                Progress::Read(sink)
            }
            other => other,
        };
        self.note(&FabricEvent::Fetched(to, bytes.len()));
        self.done(to, number);
    }
}

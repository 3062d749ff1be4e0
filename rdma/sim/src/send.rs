//! Send queues: requests are started and retired in order.

use bytes::{Bytes, BytesMut};

use super::queue_pair::{Packet, Progress};
use super::state::{State, Stream, What};
use super::steps::before;
use super::{Access, End, FabricEvent, Path, StepKind};
use rdma::{Completion, Disconnect, Event, Failed, SendWr, Stag, Success, Time, WorkError};

impl State {
    /// Starts the requests that can be started.
    pub(super) fn pump(&mut self, end: End) {
        loop {
            let now = self.now;
            let Some(qp) = self.qp(end).filter(|qp| qp.is_up()) else {
                return;
            };
            let number = qp.first + qp.started as u64;
            let (reading, max) = (qp.reading, qp.max_reading);
            let Some(entry) = qp.queue.get_mut(qp.started) else {
                return;
            };
            if entry.posted > now {
                // The processor is not done with posting the request; it is examined again then.
                let posted = entry.posted;
                if qp.look.replace(posted) != Some(posted) {
                    self.at(posted, What::Pump(end));
                }
                return;
            }
            if matches!(entry.progress, Progress::Waiting(SendWr::Read { .. })) && reading >= max {
                return;
            }
            let path = entry.path;
            let progress = std::mem::replace(&mut entry.progress, Progress::Started);
            let Progress::Waiting(wr) = progress else {
                entry.progress = progress;
                return;
            };
            qp.started += 1;
            self.start(end, number, wr, path);
        }
    }

    fn start(&mut self, end: End, number: u64, wr: SendWr, path: Path) {
        let at = match wr {
            SendWr::Send { gather, invalidate } => {
                let bytes = concat(&gather);
                let packet = Packet::Message { bytes, invalidate };
                self.send(end, number, packet, path)
            }
            SendWr::Write {
                gather,
                stag,
                offset,
            } => {
                let bytes = concat(&gather);
                let access = Access {
                    write: true,
                    stag,
                    offset,
                    len: bytes.len(),
                };
                self.send(end, number, Packet::Write { access, bytes }, path)
            }
            SendWr::Read { sink, stag, offset } => {
                let access = Access {
                    write: false,
                    stag,
                    offset,
                    len: sink.len(),
                };
                if let Some(qp) = self.qp(end) {
                    qp.reading += 1;
                    if let Some(entry) = qp.entry(number) {
                        entry.progress = Progress::Reading(sink);
                    }
                }
                self.transmit(end, number, 0, Packet::ReadRequest { access }, path);
                None
            }
            SendWr::Invalidate { stag } => Some(self.now + self.invalidate(end, number, stag)),
        };
        if let Some(at) = at {
            self.at(at, What::Done(end, number));
        }
    }

    /// Transmits the packet of a Send or Write. Returns the time at which the request is done, or
    /// `None` if it waits for an acknowledgement that a lost connection cannot deliver.
    fn send(&mut self, end: End, number: u64, packet: Packet, path: Path) -> Option<Time> {
        let len = match &packet {
            Packet::Message { bytes, .. } | Packet::Write { bytes, .. } => bytes.len(),
            _ => 0,
        };
        let sent = match packet {
            Packet::Write { .. } => Progress::Written,
            _ => Progress::Sent,
        };
        let cut = self.qp(end).is_some_and(|qp| qp.cut);
        let (left, arrived) = self.transmit(end, number, len, packet, path);
        if let Some(entry) = self.qp(end).and_then(|qp| qp.entry(number)) {
            entry.progress = sent;
        }
        match self.costs.acknowledged {
            true if cut => None,
            true => Some(arrived + self.delay_back(end)),
            false => Some(left),
        }
    }

    fn invalidate(&mut self, end: End, number: u64, stag: Stag) -> std::time::Duration {
        let path = self.nodes[end.node.0].path;
        let Some(qp) = self.qp(end) else {
            return std::time::Duration::ZERO;
        };
        let Some(memory) = qp.memory.get_mut(&stag).filter(|memory| memory.valid) else {
            let reason = Disconnect::PeerError("invalidation of an invalid handle".to_owned());
            self.refused(end, number, WorkError::LocalProtection, reason);
            return std::time::Duration::ZERO;
        };
        memory.valid = false;
        let len = memory.region.len();
        let (took, now) = (self.costs.invalidating(len), self.now);
        let path = path.invalidated(end.node);
        let path = self.stepped(
            path,
            end.node,
            (now, now + took),
            StepKind::Invalidation(len),
        );
        if let Some(entry) = self.qp(end).and_then(|qp| qp.entry(number)) {
            entry.progress = Progress::Invalidated;
            entry.path = path;
        }
        self.note(&FabricEvent::Invalidated(end, stag, false));
        took
    }

    /// Puts a packet on the wire. Returns the time when its last bit leaves, and the time when it
    /// arrives.
    pub(super) fn transmit(
        &mut self,
        end: End,
        number: u64,
        len: usize,
        packet: Packet,
        path: Path,
    ) -> (Time, Time) {
        let crossing = self.cross(end, len);
        let late = self.random.duration(self.faults.late_arrival);
        let now = self.now;
        let node = self.node(end.node);
        node.counters.wire_bytes_sent += crossing.bytes;
        let left = node.sending.max(now) + crossing.sending;
        node.sending = left + crossing.again;
        self.show_sent(left, end, &packet);
        let arrival = left + crossing.travel + late;
        let Some(qp) = self.qp(end) else {
            return (left, arrival);
        };
        qp.arrival = qp.arrival.max(arrival);
        let arrival = qp.arrival;
        if let Some(to) = qp.peer.filter(|_| !qp.cut) {
            let mut path = path.crossed();
            if let Some(kind) = packet.step() {
                let begun = before(left, crossing.sending);
                path = self.stepped(path, end.node, (begun, arrival), kind);
            }
            let what = What::Arrive {
                to,
                number,
                packet,
                path,
            };
            self.at(arrival, what);
        }
        (left, arrival)
    }

    /// Marks a request as done. It is retired when all requests before it are done.
    pub(super) fn done(&mut self, end: End, number: u64) {
        let acknowledged = self.costs.acknowledged;
        let Some(qp) = self.qp(end).filter(|qp| qp.is_up()) else {
            return;
        };
        let cut = qp.cut;
        if let Some(entry) = qp.entry(number) {
            let local = matches!(entry.progress, Progress::Invalidated);
            if acknowledged && !local && (cut || entry.refused || entry.held) {
                return;
            }
            entry.done = true;
        }
        while let Some(qp) = self.qp(end)
            && qp.queue.front().is_some_and(|entry| entry.done)
            && let Some(entry) = qp.queue.pop_front()
        {
            qp.first += 1;
            qp.started -= 1;
            if !entry.signaled {
                qp.silent += 1;
                continue;
            }
            qp.slots -= 1 + qp.silent;
            qp.silent = 0;
            let success = match entry.progress {
                Progress::Read(sink) => Success::Read { sink },
                Progress::Invalidated => Success::Invalidate,
                Progress::Written => Success::Write,
                _ => Success::Send,
            };
            let completion = Completion {
                qp: end.qp,
                id: entry.id,
                result: Ok(success),
            };
            self.tell(end, Stream::Send, Event::Completion(completion), entry.path);
        }
        self.pump(end);
        self.close_when_drained(end);
    }

    /// Fails a request and its connection.
    pub(super) fn refused(&mut self, end: End, number: u64, error: WorkError, reason: Disconnect) {
        let Some(qp) = self.qp(end).filter(|qp| qp.is_up()) else {
            return;
        };
        let index = number.checked_sub(qp.first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| qp.queue.remove(index)) {
            qp.started = qp.started.saturating_sub(1);
            let path = entry.path;
            let buf = entry.progress.memory();
            let completion = Completion {
                qp: end.qp,
                id: entry.id,
                result: Err(Failed { error, buf }),
            };
            self.tell(end, Stream::Send, Event::Completion(completion), path);
        }
        self.end(end, reason);
    }
}

fn concat(gather: &[Bytes]) -> Bytes {
    if let [only] = gather {
        return only.clone();
    }
    let mut all = BytesMut::new();
    for piece in gather {
        all.extend_from_slice(piece);
    }
    all.freeze()
}

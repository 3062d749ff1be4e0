//! The delayed traffic of one queue pair.

use std::collections::VecDeque;
use std::time::Duration;

use crate::middleware::Shaper;
use crate::{
    AcceptOptions, Completion, Device, DeviceError, Event, Failed, PostError, QpId, SendWr,
    Success, Time, WorkError, WrId,
};

/// Length in bytes of an RDMA Read Request's own header (RFC 5040, section 4.4), which is all that
/// such a request puts on the link.
const READ_REQUEST: u64 = 28;

/// Time after which a request that the inner device refused is posted again, if no completion is to come.
pub(super) const RETRY: Duration = Duration::from_millis(1);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requested by this side, or by the peer and not answered yet.
    New,
    /// This side's answer is in flight.
    Accepting,
    /// Established.
    Up,
    /// No more requests can be posted.
    Closing,
}

/// An item to pass to the inner device after it has crossed the link.
#[derive(Debug)]
pub(super) enum InFlight {
    /// A Send, a Write or a Read request.
    Work {
        id: WrId,
        wr: SendWr,
        signaled: bool,
    },
    /// The answer to a connection request.
    Accept(AcceptOptions),
    /// The graceful end of the connection.
    Disconnect,
}

impl InFlight {
    /// Returns the number of bytes that the item puts on the link.
    fn bytes(&self) -> u64 {
        match self {
            Self::Work { wr, .. } => match wr {
                SendWr::Send { gather, .. } | SendWr::Write { gather, .. } => {
                    gather.iter().map(|piece| piece.len() as u64).sum()
                }
                SendWr::Read { .. } => READ_REQUEST,
                SendWr::Invalidate { .. } => 0,
            },
            Self::Accept(options) => options.private_data.len() as u64,
            Self::Disconnect => 0,
        }
    }
}

/// The delayed traffic of one queue pair, in both directions.
#[derive(Debug)]
pub(super) struct QpTraffic {
    pub(super) qp: QpId,
    pub(super) phase: Phase,
    /// Items in flight to the peer, in order, with their arrival times.
    in_flight: VecDeque<(Option<Time>, InFlight)>,
    /// Number of items at the front that have an arrival time.
    stamped: usize,
    /// Whether the inner device had no room for the first item. Its time has passed, and it is
    /// posted when the device has made progress.
    blocked: bool,
    /// Time at which the first item is posted again if no completion is to come: the device may have had no
    /// memory for a copy ([`PostError::QueueFull`]).
    retry_at: Option<Time>,
    /// Completions of the send queue in flight to this side, in the device's order.
    answers: VecDeque<(Time, Completion)>,
    /// Number of requests at the inner device that are certain to complete and have not been
    /// delivered.
    signaled: usize,
}

impl QpTraffic {
    pub(super) fn new(qp: QpId) -> Self {
        Self {
            qp,
            phase: Phase::New,
            in_flight: VecDeque::new(),
            stamped: 0,
            blocked: false,
            retry_at: None,
            answers: VecDeque::new(),
            signaled: 0,
        }
    }

    /// Returns the number of work requests that are known to be outstanding. Unsignaled requests at
    /// the inner device are not counted: only the device knows them, and reports when its queue is
    /// full.
    pub(super) fn outstanding(&self) -> usize {
        self.in_flight.len() + self.signaled
    }

    /// Counts a request that the inner device accepted and that is certain to complete.
    pub(super) fn expect_completion(&mut self) {
        self.signaled += 1;
    }

    /// Sends an item over the link. [`QpTraffic::stamp`] must follow.
    pub(super) fn push(&mut self, item: InFlight) {
        self.in_flight.push_back((None, item));
    }

    /// Computes the arrival time of the first item without one.
    pub(super) fn stamp(&mut self, now: Time, outbound: &mut Shaper) {
        if let Some((due, item)) = self.in_flight.get_mut(self.stamped) {
            *due = Some(outbound.release(now, item.bytes()));
            self.stamped += 1;
        }
    }

    /// Passes the items that have crossed the link by now to the device. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// [`DeviceError`] if the device refused to accept the connection.
    pub(super) fn release(
        &mut self,
        now: Time,
        device: &mut impl Device,
    ) -> Result<bool, DeviceError> {
        (self.blocked, self.retry_at) = (false, None);
        let mut any = false;
        while let Some((Some(due), _)) = self.in_flight.front()
            && *due <= now
            && let Some((due, item)) = self.in_flight.pop_front()
        {
            match item {
                InFlight::Work { id, wr, signaled } => {
                    let completes = signaled || matches!(wr, SendWr::Read { .. });
                    if let Err((error, wr)) = device.post_send(self.qp, id, wr, signaled) {
                        // If the queue is full, there will be room later. If the queue pair is not
                        // connected, the device's event that reports it is still to come and
                        // flushes this item.
                        let item = InFlight::Work { id, wr, signaled };
                        self.in_flight.push_front((due, item));
                        self.blocked = true;
                        self.retry_at = (error == PostError::QueueFull).then(|| now + RETRY);
                        break;
                    }
                    self.signaled += usize::from(completes);
                }
                InFlight::Accept(options) => {
                    self.stamped -= 1;
                    device.accept(self.qp, &options)?;
                    any = true;
                    continue;
                }
                InFlight::Disconnect => device.disconnect(self.qp),
            }
            self.stamped -= 1;
            any = true;
        }
        Ok(any)
    }

    /// Handles a completion from the device, and delays it if its data would arrive later.
    pub(super) fn complete(
        &mut self,
        now: Time,
        inbound: &mut Shaper,
        completion: Completion,
        events: &mut VecDeque<Event>,
    ) {
        let due = match &completion.result {
            // The peer's device answers without middleware, so the delay of its answer is added
            // here.
            Ok(Success::Read { sink }) => inbound.release(now, sink.len() as u64),
            Ok(Success::Receive { .. }) => return events.push_back(Event::Completion(completion)),
            Ok(_) => now,
            // The connection is ending.
            Err(_) => {
                self.deliver_all(events);
                return events.push_back(Event::Completion(completion));
            }
        };
        // Completions of a send queue are in order: none may overtake that of an RDMA Read.
        let due = self.answers.back().map_or(due, |(last, _)| due.max(*last));
        self.answers.push_back((due, completion));
        self.deliver(now, events);
    }

    /// Delivers the completions that have arrived by now.
    pub(super) fn deliver(&mut self, now: Time, events: &mut VecDeque<Event>) {
        while let Some((due, _)) = self.answers.front()
            && *due <= now
            && let Some((_, completion)) = self.answers.pop_front()
        {
            self.signaled = self.signaled.saturating_sub(1);
            events.push_back(Event::Completion(completion));
        }
    }

    fn deliver_all(&mut self, events: &mut VecDeque<Event>) {
        let answers = self.answers.drain(..);
        events.extend(answers.map(|(_, completion)| Event::Completion(completion)));
    }

    /// Completes the remaining requests after the connection has ended and the device has completed
    /// its own. That includes unsignaled requests, because they have failed.
    pub(super) fn flush(&mut self, events: &mut VecDeque<Event>) {
        self.phase = Phase::Closing;
        self.deliver_all(events);
        self.signaled = 0;
        self.stamped = 0;
        for (_, item) in self.in_flight.drain(..) {
            let InFlight::Work { id, wr, .. } = item else {
                continue;
            };
            let buf = match wr {
                SendWr::Read { sink, .. } => Some(sink.into()),
                SendWr::Send { .. } | SendWr::Write { .. } | SendWr::Invalidate { .. } => None,
            };
            let error = WorkError::Flushed;
            events.push_back(Event::Completion(Completion {
                qp: self.qp,
                id,
                result: Err(Failed { error, buf }),
            }));
        }
    }

    /// Drops the items in flight to the peer, because the connection is aborted.
    pub(super) fn cut(&mut self) {
        self.phase = Phase::Closing;
        for (due, _) in &mut self.in_flight {
            *due = None;
        }
        // They have no arrival time, and count as if they had one, so that they never get one.
        self.stamped = self.in_flight.len();
    }

    /// Returns the time of the next arrival.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let item = self.in_flight.front().filter(|_| !self.blocked);
        let item = item.and_then(|(due, _)| *due);
        let answer = self.answers.front().map(|(due, _)| *due);
        let retry = self.retry_at.filter(|_| self.signaled == 0);
        item.into_iter().chain(answer).chain(retry).min()
    }
}

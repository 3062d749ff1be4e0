//! One queue pair's traffic that is on its way.

use std::collections::VecDeque;

use crate::middleware::Shaper;
use crate::{
    AcceptOptions, Completion, Device, DeviceError, Event, Failed, QpId, SendWr, Success, Time,
    WorkError, WrId,
};

/// Bytes of an RDMA Read Request's own header (RFC 5040, section 4.4): all that such a request
/// puts on the link.
const READ_REQUEST: u64 = 28;

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Asked for by this side, or by the peer and not answered yet.
    New,
    /// Our answer is on its way.
    Accepting,
    /// Established.
    Up,
    /// Nothing more can be posted.
    Closing,
}

/// What goes to the peer once it has crossed the link.
#[derive(Debug)]
pub(super) enum Parcel {
    /// A Send, a Write or a Read request.
    Work {
        id: WrId,
        wr: SendWr,
        signaled: bool,
    },
    /// The answer to a connection request.
    Accept(AcceptOptions),
    /// The orderly end.
    Disconnect,
}

impl Parcel {
    /// Bytes that it puts on the link.
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

/// Traffic of one queue pair, in both directions.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) qp: QpId,
    pub(super) phase: Phase,
    /// On its way to the peer, in order.
    parcels: VecDeque<(Option<Time>, Parcel)>,
    /// Of those, from the front, how many have their time.
    stamped: usize,
    /// The device inside had no room for the first parcel: its time has passed, and it goes when
    /// the device has made progress.
    blocked: bool,
    /// Completions of the send queue on their way here, in the device's order.
    answers: VecDeque<(Time, Completion)>,
    /// Requests with the device inside that will certainly complete, and have not here.
    signaled: usize,
}

impl Line {
    pub(super) fn new(qp: QpId) -> Self {
        Self {
            qp,
            phase: Phase::New,
            parcels: VecDeque::new(),
            stamped: 0,
            blocked: false,
            answers: VecDeque::new(),
            signaled: 0,
        }
    }

    /// Work requests that are known to be outstanding. Unsignaled ones that the device inside has
    /// are not: it alone knows, and says when its queue is full.
    pub(super) fn outstanding(&self) -> usize {
        self.parcels.len() + self.signaled
    }

    /// The device inside took a request that certainly completes.
    pub(super) fn expect_completion(&mut self) {
        self.signaled += 1;
    }

    /// Sends something over the link; [`Line::stamp`] must follow.
    pub(super) fn push(&mut self, parcel: Parcel) {
        self.parcels.push_back((None, parcel));
    }

    /// Gives the first parcel that has no time yet its time.
    pub(super) fn stamp(&mut self, now: Time, outbound: &mut Shaper) {
        if let Some((due, parcel)) = self.parcels.get_mut(self.stamped) {
            *due = Some(outbound.release(now, parcel.bytes()));
            self.stamped += 1;
        }
    }

    /// Hands to the device what has crossed the link by now. Returns whether there was anything.
    ///
    /// # Errors
    /// The device refused to accept the connection.
    pub(super) fn release(
        &mut self,
        now: Time,
        device: &mut impl Device,
    ) -> Result<bool, DeviceError> {
        self.blocked = false;
        let mut any = false;
        while let Some((Some(due), _)) = self.parcels.front()
            && *due <= now
            && let Some((due, parcel)) = self.parcels.pop_front()
        {
            match parcel {
                Parcel::Work { id, wr, signaled } => {
                    let completes = signaled || matches!(wr, SendWr::Read { .. });
                    if let Err((_, wr)) = device.post_send(self.qp, id, wr, signaled) {
                        // Full: there will be room. Not connected (any more): the device's event
                        // that says so is still to come, and flushes this.
                        let parcel = Parcel::Work { id, wr, signaled };
                        self.parcels.push_front((due, parcel));
                        self.blocked = true;
                        break;
                    }
                    self.signaled += usize::from(completes);
                }
                Parcel::Accept(options) => {
                    self.stamped -= 1;
                    device.accept(self.qp, &options)?;
                    any = true;
                    continue;
                }
                Parcel::Disconnect => device.disconnect(self.qp),
            }
            self.stamped -= 1;
            any = true;
        }
        Ok(any)
    }

    /// Takes a completion from the device, now; what is late in coming is held back.
    pub(super) fn complete(
        &mut self,
        now: Time,
        inbound: &mut Shaper,
        completion: Completion,
        events: &mut VecDeque<Event>,
    ) {
        let due = match &completion.result {
            // The peer's device answers without middleware: the answer's way is added here.
            Ok(Success::Read { sink }) => inbound.release(now, sink.len() as u64),
            Ok(Success::Receive { .. }) => return events.push_back(Event::Completion(completion)),
            Ok(_) => now,
            // The connection is ending.
            Err(_) => {
                self.deliver_all(events);
                return events.push_back(Event::Completion(completion));
            }
        };
        // A send queue's completions come in order: none overtakes a Read's.
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

    /// The connection has ended, and the device has completed everything it had: completes the
    /// rest. Unsignaled requests too, because they have failed.
    pub(super) fn flush(&mut self, events: &mut VecDeque<Event>) {
        self.phase = Phase::Closing;
        self.deliver_all(events);
        self.signaled = 0;
        self.stamped = 0;
        for (_, parcel) in self.parcels.drain(..) {
            let Parcel::Work { id, wr, .. } = parcel else {
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

    /// The connection is being cut: what is on its way to the peer never gets there.
    pub(super) fn cut(&mut self) {
        self.phase = Phase::Closing;
        for (due, _) in &mut self.parcels {
            *due = None;
        }
        // Without a time, and past the place where times are given.
        self.stamped = self.parcels.len();
    }

    /// When something of it arrives.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let parcel = self.parcels.front().filter(|_| !self.blocked);
        let parcel = parcel.and_then(|(due, _)| *due);
        let answer = self.answers.front().map(|(due, _)| *due);
        parcel.into_iter().chain(answer).min()
    }
}

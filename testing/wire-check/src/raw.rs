//! Sends messages that this project's clients would not send, with the bare device.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Poll};
use rdma::{ConnectOptions, Device, Event, QpId, SendWr, Success, Time, WrId};
use rpc_transport::MioReadiness;
use smallvec::smallvec;

use crate::error::Error;

/// The time-out of each wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size of a receive buffer in bytes: the inline threshold of a peer without private data (RFC
/// 8166, section 3.3.2).
const INLINE: usize = 1024;

/// A device and its poll loop.
pub(crate) struct Raw {
    device: Box<dyn Device>,
    poll: Poll,
    wakes: Events,
    events: VecDeque<Event>,
}

impl Raw {
    /// Wraps a device that is used nowhere else.
    pub(crate) fn new(mut device: Box<dyn Device>) -> Result<Self, Error> {
        let system = Error::ours::<io::Error>("a poll loop for the bare device");
        let poll = Poll::new().map_err(&system)?;
        let poller = MioReadiness::poller(poll.registry(), 0).map_err(&system)?;
        device.attach(poller).map_err(&system)?;
        Ok(Self {
            device,
            poll,
            wakes: Events::with_capacity(16),
            events: VecDeque::new(),
        })
    }

    /// Connects, sends each message after the previous one was answered, and closes the connection.
    /// Returns the answers.
    pub(crate) fn exchange(
        &mut self,
        server: SocketAddr,
        messages: &[Bytes],
    ) -> Result<Vec<Bytes>, Error> {
        let options = ConnectOptions {
            private_data: Bytes::new(),
            inbound_reads: 1,
            outbound_reads: 1,
            timeout: PATIENCE,
            shared_receives: None,
        };
        let connected = self.device.connect(server, &options);
        let qp = connected.map_err(Error::ours("connecting the bare device"))?;
        self.wait(|event| matches!(event, Event::Established { .. }).then_some(()))?;
        let mut answers = Vec::new();
        for message in messages {
            self.send(qp, message.clone())?;
            answers.push(self.wait(|event| match event {
                Event::Completion(completion) => match completion.result {
                    Ok(Success::Receive { buf, .. }) => Some(buf.into_first().freeze()),
                    _ => None,
                },
                _ => None,
            })?);
        }
        self.device.disconnect(qp);
        self.wait(|event| matches!(event, Event::Disconnected { .. }).then_some(()))?;
        self.device.destroy(qp);
        Ok(answers)
    }

    fn send(&mut self, qp: QpId, message: Bytes) -> Result<(), Error> {
        const WHAT: &str = "posting to the bare device";
        let buf = self.device.pool().alloc(INLINE);
        let buf = buf.map_err(Error::ours(WHAT))?;
        let posted = self.device.post_receive(qp, WrId(0), buf.into());
        posted.map_err(|(error, _)| Error::ours(WHAT)(error))?;
        let send = SendWr::Send {
            gather: smallvec![message],
            invalidate: None,
        };
        let posted = self.device.post_send(qp, WrId(1), send, false);
        posted.map_err(|(error, _)| Error::ours(WHAT)(error))
    }

    /// Waits for the first event for which `wanted` returns a value.
    fn wait<T>(&mut self, mut wanted: impl FnMut(Event) -> Option<T>) -> Result<T, Error> {
        let deadline = Time::now() + PATIENCE;
        loop {
            let now = Time::now();
            self.device.poll(now, &mut self.events);
            while let Some(event) = self.events.pop_front() {
                if let Event::ConnectFailed { error, .. } = &event {
                    return Err(Error::ours("connecting the bare device")(error));
                }
                if let Some(found) = wanted(event) {
                    return Ok(found);
                }
            }
            if now > deadline {
                return Err(Error::ours("waiting for the server")("no answer in time"));
            }
            if !self.device.arm() {
                continue;
            }
            let next = self
                .device
                .next_deadline()
                .unwrap_or(deadline)
                .min(deadline);
            let polled = self.poll.poll(&mut self.wakes, Some(next.since(now)));
            polled.map_err(Error::ours("waiting for the server"))?;
            for wake in &self.wakes {
                self.device.ready(wake.token().0, wake.is_read_closed());
            }
        }
    }
}

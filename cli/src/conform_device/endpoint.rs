//! One end of a connection on a device, as a script uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdma::QpId;
use rpcrdma_conform::endpoint::Endpoint;
use rpcrdma_conform::peer::{Heard, Placed};
use rpcrdma_conform::stream::{Gone, Meanwhile, PATIENCE};
use rpcrdma_conform::wire::ddp::ReadRequest;
use rpcrdma_conform::wire::v1::Segment;

use super::ends::Ends;
use super::inbox::{Came, Inbox, State};
use super::offered::written;
use super::turning::Turning;

/// The interval at which a waiting script does other work.
const GLANCE: Duration = Duration::from_millis(20);
/// The requests that may wait for room in the send queue before the script waits as well.
const MOST_UNSENT: usize = 256;
/// The reason of everything that fails after the thread of the device has ended.
pub(super) const GONE: &str = "the device is gone";

/// The end of a connection.
#[derive(Debug)]
pub(super) struct DeviceEnd {
    turning: Arc<Turning>,
    qp: QpId,
    inbox: Arc<Inbox>,
    sent: u32,
    patience: Duration,
    deadline: Option<Instant>,
    stop: Option<Arc<AtomicBool>>,
    /// Whether this end has ended the connection.
    ended: bool,
    aborts: bool,
}

impl DeviceEnd {
    /// Creates the end of a connection that is being set up.
    pub(super) fn new(turning: &Arc<Turning>, qp: QpId, inbox: Arc<Inbox>) -> Self {
        Self {
            turning: Arc::clone(turning),
            qp,
            inbox,
            sent: 0,
            patience: PATIENCE,
            deadline: None,
            stop: None,
            ended: false,
            aborts: false,
        }
    }

    /// Sets the flag that ends waits, except that of [`Endpoint::is_readable`], which its caller ends.
    pub(super) fn stop_by(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    /// Waits until the connection is set up, and returns the private data of the other end's answer.
    ///
    /// # Errors
    /// The reason why it is not set up.
    pub(super) fn set_up(&self, patience: Duration) -> Result<Vec<u8>, String> {
        let until = Instant::now() + patience;
        while !self.inbox.wait(GLANCE, |it| it.set_up.is_some()) {
            if self.is_stopped() || Instant::now() > until {
                return Err("no answer in time".into());
            }
        }
        let answer = self.inbox.state().set_up.take();
        answer.unwrap_or_else(|| Err("no answer".into()))
    }

    fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|it| it.load(Ordering::Acquire))
    }

    fn is_late(&self) -> bool {
        self.is_stopped() || self.deadline.is_some_and(|it| Instant::now() > it)
    }

    /// Waits until at most [`MOST_UNSENT`] requests wait for the send queue. If that takes too long, the connection
    /// counts as failed.
    fn await_room(&self) {
        let until = Instant::now() + self.patience;
        let has_room = |state: &State| state.unsent <= MOST_UNSENT;
        while !self.inbox.wait(GLANCE, has_room) {
            if self.is_late() || Instant::now() > until {
                self.inbox.change(|it| it.failed = true);
                return;
            }
        }
    }

    fn post(&mut self, message: &[u8], invalidate: Option<u32>) {
        if self.ended {
            return;
        }
        self.sent = self.sent.wrapping_add(1);
        let (qp, message) = (self.qp, message.to_vec());
        self.turning
            .ask(move |ends| ends.send(qp, &message, invalidate));
        self.await_room();
    }

    fn offered(&mut self, segment: Segment, content: Option<Bytes>) -> Result<(), String> {
        let qp = self.qp;
        let offer = move |ends: &mut Ends| ends.offer(qp, segment, content.as_ref());
        let offered = self.turning.ask(offer);
        offered.unwrap_or_else(|| Err(GONE.into()))
    }
}

impl Endpoint for DeviceEnd {
    fn send(&mut self, message: &[u8]) {
        self.post(message, None);
    }

    fn send_invalidating(&mut self, handle: u32, message: &[u8]) {
        self.post(message, Some(handle));
    }

    fn sent(&self) -> u32 {
        self.sent
    }

    fn offer(&mut self, segment: Segment, content: &[u8]) -> Result<(), String> {
        self.offered(segment, Some(Bytes::copy_from_slice(content)))
    }

    fn room(&mut self, segment: Segment) -> Result<(), String> {
        self.offered(segment, None)
    }

    fn written(&mut self, handle: u32, expected: usize) -> Result<Option<Vec<u8>>, String> {
        let cannot = |why: &str| format!("what was written to {handle:#x} cannot be seen: {why}");
        let qp = self.qp;
        let asked = self.turning.ask(move |ends| ends.take_back(qp, handle));
        let is_registered = asked.ok_or_else(|| cannot(GONE))?;
        if !is_registered.map_err(|why| cannot(&why))? {
            return Ok(Some(Vec::new()));
        }
        let until = Instant::now() + self.patience;
        while !self.inbox.wait(GLANCE, |it| it.rooms.contains_key(&handle)) {
            if self.is_stopped() || Instant::now() > until {
                return Err(cannot("the device did not give the memory back in time"));
            }
        }
        let content = self.inbox.state().rooms.remove(&handle);
        let content = content.unwrap_or_else(|| Err("it is not there".into()));
        let content = content.map_err(|why| cannot(&why))?;
        Ok(Some(written(&content, expected)))
    }

    fn placed(&mut self) -> Vec<Placed> {
        Vec::new()
    }

    fn write(&mut self, handle: u32, offset: u64, bytes: &[u8]) {
        let (qp, bytes) = (self.qp, Bytes::copy_from_slice(bytes));
        self.turning
            .ask(move |ends| ends.write(qp, handle, offset, bytes));
        self.await_room();
    }

    fn read(&mut self, request: &ReadRequest) {
        let (qp, request) = (self.qp, *request);
        self.turning.ask(move |ends| ends.read(qp, &request));
    }

    fn respond(&mut self, _: &ReadRequest, _: &[u8]) {
        // The device itself answers Read Requests, so [`Heard::Read`] never comes.
    }

    fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Heard, Gone> {
        let start = Instant::now();
        loop {
            if self.ended {
                return Err(Gone::Closed);
            }
            if self.is_late() {
                return Err(Gone::Late);
            }
            let mut state = self.inbox.state();
            match state.next() {
                Some(Came::Message(bytes, invalidate)) => {
                    return Ok(Heard::Message { bytes, invalidate });
                }
                Some(Came::Response(stag, payload)) => {
                    return Ok(Heard::Response {
                        stag,
                        payload,
                        last: true,
                    });
                }
                None => {}
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            drop(state);
            let came = self.inbox.wait(GLANCE, State::is_readable);
            if !came && (start.elapsed() > self.patience || !meanwhile()) {
                return Err(Gone::Late);
            }
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.inbox.state().is_readable()
    }

    fn is_readable(&mut self, goes_on: Meanwhile<'_>) -> bool {
        while !self.inbox.wait(GLANCE, State::is_readable) {
            if !goes_on() {
                return false;
            }
        }
        true
    }

    fn has_failed(&self) -> bool {
        let state = self.inbox.state();
        // What can still be heard explains the failure better.
        state.failed && !state.is_readable()
    }

    fn is_invalidated_by_peers(&self) -> bool {
        self.turning.facts.remote_invalidation
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    fn end(&mut self) {
        self.ended = true;
        let qp = self.qp;
        self.turning.post(move |ends| ends.end(qp));
    }

    fn reset_on_close(&mut self) {
        self.aborts = true;
    }
}

impl Drop for DeviceEnd {
    fn drop(&mut self) {
        let (qp, aborts) = (self.qp, self.aborts);
        self.turning.post(move |ends| ends.leave(qp, aborts));
    }
}

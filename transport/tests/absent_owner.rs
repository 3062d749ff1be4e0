//! Tests that a program may compute after [`Runtime::block_on`]: the background thread of its
//! software iWARP device then serves the peers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{Iwarp, Options};
use rdma::{
    AcceptOptions, Completion, ConnectOptions, Device, Event, Poller, Pool, Region, RemoteSegment,
    SendWr, Success, Time, WrId,
};
use rpc_transport::{PollSource, Runtime};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for the background thread to park because the owner waits.
const WAIT: Duration = Duration::from_millis(50);
const CONTENT: &[u8] = b"read while the owner computes";

/// A device as the source of a poll loop.
struct Source {
    device: Iwarp,
    events: VecDeque<Event>,
}

impl PollSource for Source {
    fn attach(&mut self, poller: Poller) -> std::io::Result<()> {
        self.device.attach(poller)
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.device.ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.device.poll(now, &mut self.events);
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty() && self.device.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.device.next_deadline()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.device.set_busy_poll(on);
    }
}

fn device() -> Iwarp {
    Iwarp::new(Options::default(), Pool::new(1 << 20)).unwrap()
}

/// Drives the runtime until the source has an event.
fn next(runtime: &Runtime, source: &Rc<RefCell<Source>>) -> Event {
    let next = poll_fn(|context| {
        match source.borrow_mut().events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                // The runtime polls sources after the future; it must come back to this one.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    });
    let next = runtime.timeout(PATIENCE, next);
    runtime.block_on(next).expect("an event")
}

/// Connects to `address`, reads each segment that it is told, and returns what it has read.
fn read_segments(address: SocketAddr, segments: &Receiver<RemoteSegment>, read: &Sender<Vec<u8>>) {
    let mut device = device();
    let options = ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: PATIENCE,
        shared_receives: None,
    };
    let qp = device.connect(address, &options).unwrap();
    let mut events = VecDeque::new();
    let mut next = |device: &mut Iwarp| {
        let start = Instant::now();
        loop {
            device.poll(Time::now(), &mut events);
            if let Some(event) = events.pop_front() {
                return Some(event);
            }
            if start.elapsed() > PATIENCE {
                return None;
            }
            thread::sleep(Duration::from_micros(100));
        }
    };
    assert!(matches!(next(&mut device), Some(Event::Established { .. })));
    while let Ok(RemoteSegment { stag, offset, .. }) = segments.recv() {
        let sink = device.pool().alloc(CONTENT.len()).unwrap();
        let wr = SendWr::Read { sink, stag, offset };
        device.post_send(qp, WrId(1), wr, true).unwrap();
        let Some(Event::Completion(Completion {
            result: Ok(Success::Read { sink }),
            ..
        })) = next(&mut device)
        else {
            return;
        };
        if read.send(sink.to_vec()).is_err() {
            return;
        }
    }
}

/// Checks that a peer's RDMA Read is answered after `wait` has used the runtime, while its thread
/// blocks elsewhere.
fn is_served_after(wait: impl Fn(&Runtime)) {
    let runtime = Runtime::new().unwrap();
    let source = Rc::new(RefCell::new(Source {
        device: device(),
        events: VecDeque::new(),
    }));
    runtime.attach(Rc::clone(&source) as Rc<_>).unwrap();
    let listener = {
        let device = &mut source.borrow_mut().device;
        let listener = device.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        device.local_address(listener).unwrap()
    };
    let (segment, segments) = mpsc::channel();
    let (reads, read) = mpsc::channel();
    let peer = thread::spawn(move || read_segments(listener, &segments, &reads));
    let Event::ConnectRequest(request) = next(&runtime, &source) else {
        panic!("no request")
    };
    let qp = {
        let device = &mut source.borrow_mut().device;
        let qp = device.prepare_accept(request.request, None).unwrap();
        let options = AcceptOptions {
            private_data: Bytes::new(),
            inbound_reads: 1,
            outbound_reads: 1,
        };
        device.accept(qp, &options).unwrap();
        qp
    };
    assert!(matches!(next(&runtime, &source), Event::Established { .. }));
    let region = Region::RemoteRead(Bytes::from_static(CONTENT));
    let registered = source.borrow_mut().device.register(qp, region).unwrap();
    wait(&runtime);
    segment.send(registered).unwrap();
    // The owner's thread is blocked here and does not poll.
    assert_eq!(read.recv_timeout(PATIENCE).unwrap(), CONTENT);
    drop(segment);
    peer.join().unwrap();
}

#[test]
fn peers_are_served_after_a_sleep() {
    is_served_after(|runtime| runtime.block_on(runtime.sleep(WAIT)));
}

#[test]
fn peers_are_served_after_another_thread_has_woken_the_future() {
    is_served_after(|runtime| {
        let slot = Arc::new(Mutex::new((false, None::<Waker>)));
        let other = Arc::clone(&slot);
        let thread = thread::spawn(move || {
            thread::sleep(WAIT);
            let mut slot = other.lock().unwrap();
            slot.0 = true;
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
        });
        runtime.block_on(poll_fn(|context| {
            let mut slot = slot.lock().unwrap();
            slot.1 = Some(context.waker().clone());
            match slot.0 {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        thread.join().unwrap();
    });
}

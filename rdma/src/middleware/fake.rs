//! Two devices in one process with no link between them: a posted request takes effect at the peer
//! at once. Time passes only in the middleware around them. Only for tests of this crate
//! (`mod.rs`), which may panic.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    AcceptOptions, Attributes, Carrier, ClassCosts, Completion, ConnectError, ConnectOptions,
    ConnectRequest, Counters, Device, DeviceError, Disconnect, Event, Failed, ListenerId, Poller,
    Pool, PostError, QpId, Region, RemoteSegment, RequestId, Scatter, SendWr, SharedReceiveQueue,
    SharedReceives, SharedReceivesId, Stag, Success, Time, WhenEmpty, WorkError, WrId,
};

/// Send queue limit of every fake device.
pub(crate) const MAX_SEND_WR: usize = 4;

/// The state that both devices of a pair access.
#[derive(Default)]
struct Side {
    events: VecDeque<Event>,
    receives: VecDeque<(WrId, Scatter)>,
    shared: Option<SharedReceiveQueue>,
    /// Whether the queue pair is bound to the shared receive queue.
    bound: bool,
    qp: Option<QpId>,
    up: bool,
    /// Number of further requests that the send queue accepts; `None` is unlimited.
    room: Option<usize>,
    /// Kinds of the requests posted, in order.
    posted: Vec<&'static str>,
    refuse_accept: bool,
}

impl Side {
    fn down(&mut self, reason: Disconnect) {
        let Some(qp) = self.qp.filter(|_| self.up) else {
            return;
        };
        self.up = false;
        for (id, buf) in self.receives.drain(..) {
            let (error, buf) = (WorkError::Flushed, Some(buf));
            let result = Err(Failed { error, buf });
            let completion = Completion { qp, id, result };
            self.events.push_back(Event::Completion(completion));
        }
        self.events.push_back(Event::Disconnected { qp, reason });
    }
}

/// One device of a pair, with at most one connection to the other one.
pub(crate) struct Fake {
    sides: [Rc<RefCell<Side>>; 2],
    attributes: Attributes,
    pool: Pool,
}

/// A handle to control a fake device that is wrapped in middleware.
pub(crate) struct Script(Rc<RefCell<Side>>);

impl Script {
    /// Returns the kinds of the requests posted so far, in order.
    pub(crate) fn posted(&self) -> Vec<&'static str> {
        self.0.borrow().posted.clone()
    }

    /// Sets the number of further requests that the send queue accepts.
    pub(crate) fn set_room(&self, room: usize) {
        self.0.borrow_mut().room = Some(room);
    }

    /// Makes the next accept fail because the peer is gone.
    pub(crate) fn refuse_accept(&self) {
        self.0.borrow_mut().refuse_accept = true;
    }
}

/// Creates a pair of devices.
pub(crate) fn pair() -> (Fake, Fake) {
    let a = Rc::new(RefCell::new(Side::default()));
    let b = Rc::new(RefCell::new(Side::default()));
    let fake = |sides| Fake {
        sides,
        attributes: Attributes {
            name: "fake".into(),
            max_send_wr: MAX_SEND_WR,
            max_recv_wr: 16,
            max_gather: 2,
            max_scatter: 4,
            max_region: 1 << 20,
            max_inbound_reads: 4,
            max_outbound_reads: 4,
            costs: ClassCosts::default(),
            max_private_data: 16,
            remote_invalidation: true,
            shared_receives: Some(SharedReceives {
                max_wr: 16,
                when_empty: WhenEmpty::EndsConnection,
            }),
            keeps_credentials: false,
        },
        pool: Pool::new(1 << 20),
    };
    (fake([a.clone(), b.clone()]), fake([b, a]))
}

/// Creates a connected pair, the client first, and returns it with the client's queue pair. The
/// server has `receives` receives posted.
pub(crate) fn connected(receives: u64) -> (Fake, Fake, QpId) {
    let (mut client, mut server) = pair();
    let qp = client.connect(anywhere(), &connect_options()).unwrap();
    let peer = server.prepare_accept(RequestId(1), None).unwrap();
    for id in 0..receives {
        let buf = server.pool().alloc(1).unwrap();
        server.post_receive(peer, WrId(id), buf.into()).unwrap();
    }
    server.accept(peer, &accept_options(b"")).unwrap();
    (client, server, qp)
}

/// Returns an address for fake devices to connect to.
pub(crate) fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 1).into()
}

pub(crate) fn connect_options() -> ConnectOptions {
    ConnectOptions {
        private_data: Bytes::new(),
        inbound_reads: 1,
        outbound_reads: 1,
        timeout: Duration::from_secs(1),
        shared_receives: None,
    }
}

pub(crate) fn accept_options(private_data: &'static [u8]) -> AcceptOptions {
    AcceptOptions {
        private_data: Bytes::from_static(private_data),
        inbound_reads: 1,
        outbound_reads: 1,
    }
}

impl Fake {
    pub(crate) fn script(&self) -> Script {
        Script(Rc::clone(&self.sides[0]))
    }

    fn happen(&self, side: usize, event: Event) {
        self.sides[side].borrow_mut().events.push_back(event);
    }

    fn bind(&self, receives: Option<SharedReceivesId>) {
        let mut side = self.sides[0].borrow_mut();
        side.bound = receives.is_some();
        assert!(!side.bound || side.shared.is_some(), "the queue exists");
    }

    /// Takes a receive for a message to `side`.
    fn take(&self, side: usize) -> (WrId, Scatter) {
        let mut side = self.sides[side].borrow_mut();
        let Side {
            receives,
            shared,
            bound,
            events,
            ..
        } = &mut *side;
        let taken = match shared {
            Some(shared) if *bound => shared.take(QpId(0)),
            _ => receives.pop_front(),
        };
        if shared.as_mut().is_some_and(SharedReceiveQueue::take_low) {
            let id = SharedReceivesId(1);
            events.push_back(Event::SharedReceivesLow { id });
        }
        taken.expect("a receive is posted")
    }

    fn complete(&self, side: usize, id: WrId, success: Success) {
        let qp = self.sides[side].borrow().qp.unwrap();
        let result = Ok(success);
        self.happen(side, Event::Completion(Completion { qp, id, result }));
    }
}

impl Device for Fake {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn set_busy_poll(&mut self, _: bool) {}

    fn poll(&mut self, _: Time, events: &mut VecDeque<Event>) {
        events.append(&mut self.sides[0].borrow_mut().events);
    }

    fn arm(&mut self) -> bool {
        self.sides[0].borrow().events.is_empty()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn listen(&mut self, _: SocketAddr) -> Result<ListenerId, DeviceError> {
        Ok(ListenerId(1))
    }

    fn local_address(&self, _: ListenerId) -> Result<SocketAddr, DeviceError> {
        Err(DeviceError::Unknown("listener"))
    }

    fn carrier(&self, _: QpId) -> Carrier {
        Carrier::Device
    }

    fn close_listener(&mut self, _: ListenerId) {}

    fn connect(&mut self, peer: SocketAddr, options: &ConnectOptions) -> Result<QpId, DeviceError> {
        self.bind(options.shared_receives);
        self.sides[0].borrow_mut().qp = Some(QpId(1));
        let request = ConnectRequest {
            listener: ListenerId(1),
            request: RequestId(1),
            peer,
            private_data: options.private_data.clone(),
        };
        self.happen(1, Event::ConnectRequest(request));
        Ok(QpId(1))
    }

    fn prepare_accept(
        &mut self,
        _: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        self.bind(receives);
        self.sides[0].borrow_mut().qp = Some(QpId(2));
        Ok(QpId(2))
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        if self.sides[0].borrow().refuse_accept {
            return Err(DeviceError::Unknown("queue pair"));
        }
        for side in &self.sides {
            side.borrow_mut().up = true;
        }
        let private_data = Bytes::new();
        self.happen(0, Event::Established { qp, private_data });
        let qp = self.sides[1].borrow().qp.unwrap();
        let private_data = options.private_data.clone();
        self.happen(1, Event::Established { qp, private_data });
        Ok(())
    }

    fn reject(&mut self, _: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        let private_data = Bytes::copy_from_slice(private_data);
        let error = ConnectError::Rejected { private_data };
        let qp = self.sides[1].borrow().qp.unwrap();
        self.happen(1, Event::ConnectFailed { qp, error });
        Ok(())
    }

    fn disconnect(&mut self, _: QpId) {
        self.sides[0].borrow_mut().down(Disconnect::Local);
        self.sides[1].borrow_mut().down(Disconnect::Remote);
    }

    fn abort(&mut self, _: QpId) {
        let lost = Disconnect::Lost("reset".into());
        self.sides[0].borrow_mut().down(Disconnect::Local);
        self.sides[1].borrow_mut().down(lost);
    }

    fn destroy(&mut self, _: QpId) {
        self.abort(QpId(0));
        self.sides[0].borrow_mut().receives.clear();
        self.sides[0].borrow_mut().events.clear();
    }

    fn register(
        &mut self,
        _: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        if region.len() > self.attributes.max_region {
            return Err((DeviceError::Limit("region"), region));
        }
        Ok(RemoteSegment {
            stag: Stag(1),
            length: region.len() as u32,
            offset: 0,
        })
    }

    fn reclaim(&mut self, _: QpId, _: Stag) -> Result<Region, DeviceError> {
        Err(DeviceError::Unknown("handle"))
    }

    fn post_receive(
        &mut self,
        _: QpId,
        id: WrId,
        buf: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        self.sides[0].borrow_mut().receives.push_back((id, buf));
        Ok(())
    }

    fn create_shared_receives(&mut self) -> Result<SharedReceivesId, DeviceError> {
        self.sides[0].borrow_mut().shared = Some(SharedReceiveQueue::new(16, 4));
        Ok(SharedReceivesId(1))
    }

    fn post_shared_receive(
        &mut self,
        _: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        match &mut self.sides[0].borrow_mut().shared {
            Some(shared) => shared.post(id, receive),
            None => Err((PostError::Unknown, receive)),
        }
    }

    fn arm_shared_receives(
        &mut self,
        _: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        match &mut self.sides[0].borrow_mut().shared {
            Some(shared) => shared.arm(below),
            None => return Err(DeviceError::Unknown("shared receive queue")),
        }
        Ok(())
    }

    fn posted_shared_receives(&self, _: SharedReceivesId) -> usize {
        let side = self.sides[0].borrow();
        side.shared.as_ref().map_or(0, SharedReceiveQueue::len)
    }

    fn withdraw_shared_receive(&mut self, _: SharedReceivesId) -> Option<Scatter> {
        let mut side = self.sides[0].borrow_mut();
        let withdrawn = side.shared.as_mut().and_then(SharedReceiveQueue::withdraw);
        withdrawn.map(|(_, receive)| receive)
    }

    fn receiving(&self, _: SharedReceivesId, _: &mut Vec<QpId>) {}

    fn destroy_shared_receives(&mut self, _: SharedReceivesId) -> Result<(), DeviceError> {
        let destroyed = self.sides[0].borrow_mut().shared.take();
        destroyed
            .map(drop)
            .ok_or(DeviceError::Unknown("shared receive queue"))
    }

    fn post_send(
        &mut self,
        _: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        {
            let mut side = self.sides[0].borrow_mut();
            if !side.up {
                return Err((PostError::NotConnected, wr));
            }
            match &mut side.room {
                Some(0) => return Err((PostError::QueueFull, wr)),
                Some(room) => *room -= 1,
                None => {}
            }
            side.posted.push(match &wr {
                SendWr::Send { .. } => "send",
                SendWr::Write { .. } => "write",
                SendWr::Read { .. } => "read",
                SendWr::Invalidate { .. } => "invalidate",
            });
        }
        let success = match wr {
            SendWr::Send { gather, invalidate } => {
                let (receive, mut buf) = self.take(1);
                let message = gather.concat();
                assert!(buf.fill(&message), "the receive is long enough");
                let invalidated = invalidate;
                self.complete(1, receive, Success::Receive { buf, invalidated });
                Success::Send
            }
            SendWr::Write { .. } => Success::Write,
            SendWr::Read { sink, .. } => {
                self.complete(0, id, Success::Read { sink });
                return Ok(());
            }
            SendWr::Invalidate { .. } => {
                self.complete(0, id, Success::Invalidate);
                return Ok(());
            }
        };
        if signaled {
            self.complete(0, id, success);
        }
        Ok(())
    }
}

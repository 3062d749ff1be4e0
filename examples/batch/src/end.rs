//! One end of a connection over the simulated device, with the minimum that shows an extension at
//! work: it replaces `rpcrdma-connection`, without plans, memory and credits.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use batch::Batch;
use bytes::Bytes;
use onc_rpc::{CALL, Message, REPLY};
use rdma::{AcceptOptions, ConnectOptions, Device, Event, Pool, QpId, SendWr, Success, Time, WrId};
use rdma_sim::{Fabric, Host, NodeId, SimDevice, attributes};
use rpcrdma_ext_xchar::{BackwardSupport, Config, Exchange, Registry};
use rpcrdma_extension::{Action, Extensions, Transferred};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Chunks, Direction, Header, Side};

/// The size of receive buffers, and so of transmissions, bytes.
const RECEIVE: u32 = 4096;
/// The number of posted receives: for credits, and for messages that take none.
const RECEIVES: u64 = 32;
const CREDITS: u32 = 28;
/// The time from an interrupt to the host's turn.
const INTERRUPT: Duration = Duration::from_micros(2);
/// The XID of the first call.
const FIRST_XID: u32 = 0x1000;

pub(crate) struct End {
    fabric: Fabric,
    device: SimDevice,
    side: Side,
    qp: Option<QpId>,
    extensions: Extensions,
    /// RPC messages that wait to be sent.
    waiting: VecDeque<Bytes>,
    started: bool,
    answered: u32,
    last_reply: Time,
}

fn address(side: Side) -> SocketAddr {
    let host = match side {
        Side::Client => 1,
        Side::Server => 2,
    };
    (Ipv4Addr::new(10, 0, 0, host), 20049).into()
}

/// Returns a NULL call without a credential, or its reply: the words of RFC 5531, section 9.
fn rpc(xid: u32, direction: Direction) -> Bytes {
    let words: &[u32] = match direction {
        Direction::Call => &[xid, CALL, 2, 100_003, 3, 0, 0, 0, 0, 0],
        Direction::Reply => &[xid, REPLY, 0, 0, 0, 0],
    };
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

impl End {
    pub(crate) fn new(fabric: &Fabric, side: Side, takes: u32) -> Self {
        let host = Host {
            address: address(side),
            attributes: attributes(),
            pool: Pool::new(1 << 20),
            interrupt: INTERRUPT,
        };
        let exchange = Exchange::new(Config {
            registry: Registry::default(),
            receive_size: RECEIVE,
            max_receive_size: RECEIVE,
            max_send: RECEIVE,
            accept_invalidation: false,
            can_invalidate: false,
            backward: BackwardSupport::None,
        });
        let list: Vec<Box<dyn rpcrdma_extension::Extension>> =
            vec![Box::new(exchange), Box::new(Batch::new(takes))];
        Self {
            device: fabric.host(host).expect("a host of its own"),
            fabric: fabric.clone(),
            side,
            qp: None,
            // XIDs of messages without RPC count down from here.
            extensions: Extensions::new(side, u32::MAX, list).expect("operations of their own"),
            waiting: VecDeque::new(),
            started: false,
            answered: 0,
            last_reply: Time::from_nanos(0),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.device.node()
    }

    /// Returns the number of replies that arrived.
    pub(crate) fn answered(&self) -> u32 {
        self.answered
    }

    /// Returns the time at which the last reply arrived.
    pub(crate) fn last_reply(&self) -> Time {
        self.last_reply
    }

    pub(crate) fn listen(&mut self) {
        self.device.listen(address(self.side)).expect("a free port");
    }

    pub(crate) fn connect(&mut self) {
        let options = ConnectOptions {
            private_data: Bytes::new(),
            inbound_reads: 1,
            outbound_reads: 1,
            timeout: Duration::from_secs(1),
            shared_receives: None,
        };
        let qp = self.device.connect(address(Side::Server), &options);
        self.qp = Some(qp.expect("a connection"));
    }

    /// Makes `count` calls at once.
    pub(crate) fn call(&mut self, count: u32) {
        let xids = FIRST_XID..FIRST_XID + count;
        self.waiting
            .extend(xids.map(|xid| rpc(xid, Direction::Call)));
        self.flush();
    }

    /// Handles the events of its device until there are no more.
    pub(crate) fn turn(&mut self) {
        let mut events = VecDeque::new();
        loop {
            self.device.poll(self.fabric.now(), &mut events);
            if events.is_empty() && self.device.arm() {
                return;
            }
            for event in events.drain(..) {
                self.event(event);
            }
            // Calls that arrived together are answered together.
            self.flush();
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => {
                let qp = self.device.prepare_accept(request.request, None);
                let qp = qp.expect("a connection");
                self.qp = Some(qp);
                self.post_receives();
                let options = AcceptOptions {
                    private_data: Bytes::new(),
                    inbound_reads: 1,
                    outbound_reads: 1,
                };
                self.device.accept(qp, &options).expect("a connection");
            }
            Event::Established { .. } if self.side == Side::Client => {
                self.post_receives();
                self.extensions.connected(None);
                self.started = true;
                self.act();
            }
            Event::Completion(completion) => {
                if let Ok(Success::Receive { buf, .. }) = completion.result {
                    self.post_receive(completion.id.0);
                    let pieces = buf.into_iter().map(|piece| piece.freeze());
                    let pieces: Vec<Bytes> = pieces.filter(|piece| !piece.is_empty()).collect();
                    self.received(&pieces);
                }
            }
            _ => {}
        }
    }

    fn received(&mut self, pieces: &[Bytes]) {
        let (header, at) = Header::decode(&pieces[0]).expect("a header");
        if !self.started {
            self.extensions.connected(Some(operations::heard(&header)));
            self.started = true;
        }
        match operations::route(&mut self.extensions, &header, pieces, at) {
            Routed::Base => self.rpc_message(header.xid, header.direction()),
            Routed::Taken => {}
            other => panic!("{header:?}: {other:?}"),
        }
        self.act();
    }

    /// Performs the actions that the extensions request.
    fn act(&mut self) {
        while let Some(action) = self.extensions.next_action() {
            match action {
                Action::Send(operation) => {
                    self.send(vec![operations::header(operation, CREDITS).encode()]);
                }
                Action::Transferred { transferred, .. } => match transferred {
                    Transferred::Call(call) => {
                        self.transferred(call.xid, Direction::Call, &call.message)
                    }
                    Transferred::Reply(reply) => {
                        self.transferred(reply.xid, Direction::Reply, &reply.message);
                    }
                    // This extension has no other reports.
                    _ => {}
                },
                _ => {}
            }
        }
    }

    fn transferred(&mut self, xid: u32, direction: Direction, message: &Message) {
        assert_eq!(message.payload_len(), rpc(xid, direction).len() as u64);
        self.rpc_message(xid, direction);
    }

    /// Answers a call, or counts a reply.
    fn rpc_message(&mut self, xid: u32, direction: Direction) {
        match direction {
            Direction::Call => self.waiting.push_back(rpc(xid, Direction::Reply)),
            Direction::Reply => {
                self.answered += 1;
                self.last_reply = self.fabric.now();
            }
        }
    }

    /// Sends the waiting messages: together if the peer accepts that, one by one otherwise.
    fn flush(&mut self) {
        let direction = match self.side {
            Side::Client => Direction::Call,
            Side::Server => Direction::Reply,
        };
        while !self.waiting.is_empty() {
            let waiting = &mut self.waiting;
            let together = self
                .extensions
                .with(|batch: &mut Batch, _| batch.gather(direction, waiting, RECEIVE as usize));
            if let Some((operation, payload)) = together.flatten() {
                let header = operations::header(operation, CREDITS).encode();
                self.send(vec![header, payload]);
            } else if let Some(message) = self.waiting.pop_front() {
                let xid = message
                    .first_chunk()
                    .map_or(0, |xid| u32::from_be_bytes(*xid));
                let header = Header {
                    xid,
                    credits: CREDITS,
                    body: Body::Msg(direction, Chunks::default()),
                };
                self.send(vec![header.encode(), message]);
            }
        }
    }

    fn send(&mut self, gather: Vec<Bytes>) {
        let wr = SendWr::Send {
            gather: gather.into_iter().collect(),
            invalidate: None,
        };
        let qp = self.qp.expect("a connection");
        self.device.post_send(qp, WrId(0), wr, false).expect("room");
    }

    fn post_receives(&mut self) {
        (0..RECEIVES).for_each(|id| self.post_receive(id));
    }

    fn post_receive(&mut self, id: u64) {
        let buf = self.device.pool().alloc(RECEIVE as usize).expect("memory");
        let qp = self.qp.expect("a connection");
        let posted = self.device.post_receive(qp, WrId(id), buf.into());
        posted.map_err(|(error, _)| error).expect("room");
    }
}

//! Connection set-up, with peers of every kind and without a peer.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iwarp::{CrcPolicy, Options};
use rdma::{
    ConnectError, ConnectOptions, Device, DeviceError, Disconnect, Event, QpId, SendWr, Stag,
    Success, WorkError, WrId,
};
use rpcrdma_host::LoopSeat;

use crate::node::{
    Node, PATIENCE, Pair, accept_options, connect_options, next, request, send, success,
};
use crate::raw::{
    Got, READ_REQUEST, READ_RESPONSE, REPLY, REQUEST, Raw, TERMINATE, WRITE, fpdu, frame, idle,
    read_request, tagged, untagged,
};

/// The ready-to-receive message: an RDMA Write without payload. Its STag is 1, because some
/// hardware ends the connection on STag 0.
fn nothing() -> Vec<u8> {
    tagged(WRITE, true, 1, 0, b"")
}

/// A node that connects to a raw listener.
struct Caller {
    node: Node,
    qp: QpId,
    raw: Raw,
}

impl Caller {
    fn new(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut node = Node::new(options);
        let address = listener.local_addr().unwrap();
        let qp = node.device.connect(address, &connect_options()).unwrap();
        node.receive(qp, 1, 64);
        idle(&mut node);
        let raw = Raw::over(listener.accept().unwrap().0);
        Self { node, qp, raw }
    }

    /// Checks the request, and sends a reply.
    fn answer(&mut self, reply: &[u8]) {
        let (flags, revision, private) = self.raw.read_frame(REQUEST, &mut self.node);
        assert_eq!((flags & !0x40, revision), (0x10, 2));
        // IRD 16, ORD 16, and no peer-to-peer set-up, in which Linux's siw loses messages.
        assert_eq!(private[..4], [0, 16, 0, 16]);
        assert_eq!(private[4..], *b"hello");
        self.raw.write(reply);
    }

    /// Checks that the node's connection is established and that it has sent the ready-to-receive
    /// message.
    fn established(&mut self) -> Bytes {
        match self.node.next() {
            Event::Established { qp, private_data } => {
                assert_eq!(qp, self.qp);
                assert_eq!(self.raw.read_fpdu(&mut self.node), Got::Ulpdu(nothing()));
                private_data
            }
            event => panic!("{event:?}"),
        }
    }

    /// Checks that the receive completes before the failure, and that all memory is free.
    fn failed(mut self) -> ConnectError {
        let completion = self.node.next_completion();
        let failed = completion.result.unwrap_err();
        assert_eq!((completion.id, failed.error), (WrId(1), WorkError::Flushed));
        drop(failed);
        match self.node.next() {
            Event::ConnectFailed { qp, error } => {
                assert_eq!(qp, self.qp);
                assert_eq!(self.node.pool.in_use(), 0);
                let buf = self.node.pool.alloc(1).unwrap();
                assert!(
                    self.node
                        .device
                        .post_receive(qp, WrId(1), buf.into())
                        .is_err()
                );
                error
            }
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn initiator_with_a_plain_responder() {
    // Like Linux's server: IRD and ORD 16, no peer-to-peer set-up.
    let mut caller = Caller::new(Options::default());
    caller.answer(&frame(REPLY, 0x10, 2, &[0, 16, 0, 16, b'o', b'k']));
    assert_eq!(caller.established(), b"ok"[..]);
    caller.node.send(caller.qp, 2, b"first");
    let first = crate::raw::send(1, b"first");
    assert_eq!(caller.raw.read_fpdu(&mut caller.node), Got::Ulpdu(first));
}

/// RFC 5044 has no IRD and ORD in set-up frames.
#[test]
fn initiator_with_a_responder_that_answers_in_revision_1() {
    for (flags, crc) in [(0x00, false), (0x40, true)] {
        let mut caller = Caller::new(Options::default());
        caller.answer(&frame(REPLY, flags, 1, b"ok"));
        caller.raw.crc = crc;
        assert_eq!(caller.established(), b"ok"[..]);
        caller.node.send(caller.qp, 2, b"first");
        let first = crate::raw::send(1, b"first");
        assert_eq!(caller.raw.read_fpdu(&mut caller.node), Got::Ulpdu(first));
    }
}

/// Regression test: a responder of revision 1 is told no limit of RDMA Reads, and was held to the one
/// that the initiator would have offered in revision 2.
#[test]
fn a_responder_of_revision_1_may_have_as_many_reads_as_the_device_takes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Node::new(Options::default());
    let address = listener.local_addr().unwrap();
    let options = ConnectOptions {
        inbound_reads: 2,
        ..connect_options()
    };
    let qp = node.device.connect(address, &options).unwrap();
    node.receive(qp, 1, 64);
    let mut raw = Raw::over(listener.accept().unwrap().0);
    let (_, _, private) = raw.read_frame(REQUEST, &mut node);
    assert_eq!(private[..4], [0, 2, 0, 16]);
    raw.write(&frame(REPLY, 0x00, 1, b""));
    let mut caller = Caller { node, qp, raw };
    caller.established();
    // The responses cannot be sent, because the peer does not read.
    let big = vec![0xcc; 64 << 20];
    let region = rdma::Region::RemoteRead(caller.node.bytes(&big));
    let segment = caller.node.device.register(qp, region).unwrap();
    for msn in 1..=100 {
        let request = read_request(msn, 5, 64 << 20, segment.stag.0, segment.offset);
        caller.raw.send_ulpdu(&request);
        idle(&mut caller.node);
    }
    assert!(caller.node.events.is_empty(), "{:?}", caller.node.events);
}

/// Regression test: a draining connection made room for peers, but not for a connection of its own
/// device.
#[test]
fn a_connection_that_only_drains_makes_room_for_an_own_one() {
    let mut node = Node::new(Options {
        max_connections: 1,
        ..Options::default()
    });
    let (mut over, qp) = Raw::set_up(&mut node, false);
    node.device.disconnect(qp);
    assert!(matches!(node.next(), Event::Disconnected { .. }));
    node.device.destroy(qp);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = listener.local_addr().unwrap();
    node.device.connect(remote, &connect_options()).unwrap();
    let mut raw = Raw::over(listener.accept().unwrap().0);
    raw.read_frame(REQUEST, &mut node);
    assert!(matches!(over.read_fpdu(&mut node), Got::End | Got::Reset));
}

/// Refuses a connection.
type Refusal = fn(&mut Raw);

/// Sends FIN.
fn shut(raw: &mut Raw) {
    raw.socket.shutdown(std::net::Shutdown::Write).unwrap();
}

/// RFC 5044, section 7.1.1: "If the MPA receiver cannot interoperate with the received version,
/// then it MUST close the connection". It may have rejected the connection before.
#[test]
fn initiator_tries_revision_1_when_a_responder_refuses_revision_2() {
    // Whether the responder has read the Request Frame before, and how it refuses.
    let refusals: [(bool, Refusal); 4] = [
        (true, shut),
        (true, |raw| {
            let socket = socket2::SockRef::from(&raw.socket);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        }),
        (true, |raw| raw.write(&frame(REPLY, 0x20, 1, b""))),
        // The initiator learns of the connection and of its end at once.
        (false, shut),
    ];
    for (reads, refuse) in refusals {
        for accepts in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut node = Node::new(Options::default());
            let address = listener.local_addr().unwrap();
            let qp = node.device.connect(address, &connect_options()).unwrap();
            node.receive(qp, 1, 64);
            let mut first = Raw::over(listener.accept().unwrap().0);
            if reads {
                let (flags, revision, _) = first.read_frame(REQUEST, &mut node);
                assert_eq!((flags, revision), (0x10, 2));
            }
            refuse(&mut first);
            drop(first);
            listener.set_nonblocking(true).unwrap();
            let start = Instant::now();
            let second = loop {
                idle(&mut node);
                match listener.accept() {
                    Ok((socket, _)) => break socket,
                    Err(_) => assert!(start.elapsed() < PATIENCE, "no second connection"),
                }
            };
            second.set_nonblocking(false).unwrap();
            let mut raw = Raw::over(second);
            let request = raw.read_frame(REQUEST, &mut node);
            assert_eq!(request, (0x00, 1, b"hello".to_vec()));
            if !accepts {
                drop(raw);
                let completion = node.next_completion();
                assert_eq!(completion.id, WrId(1));
                let failed = node.next();
                let Event::ConnectFailed { error, .. } = failed else {
                    panic!("{failed:?}");
                };
                assert!(matches!(error, ConnectError::Protocol(_)), "{error:?}");
                continue;
            }
            raw.write(&frame(REPLY, 0x00, 1, b"ok"));
            let mut caller = Caller { node, qp, raw };
            assert_eq!(caller.established(), b"ok"[..]);
            // The receive that was posted before the first attempt is still there.
            caller.raw.send_ulpdu(&crate::raw::send(1, b"hello"));
            let completion = caller.node.next_completion();
            assert_eq!(completion.id, WrId(1));
            assert!(completion.result.is_ok());
        }
    }
}

#[test]
fn initiator_with_a_responder_in_peer_to_peer_set_up_unasked() {
    let mut caller = Caller::new(Options::default());
    caller.answer(&frame(REPLY, 0x10, 2, &[0x80, 16, 0x80, 16]));
    assert_eq!(caller.established(), b""[..]);
}

/// Returns whether the peer receives nothing for this time.
fn is_silent(caller: &mut Caller, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        idle(&mut caller.node);
        if caller.raw.socket.peek(&mut [0]).is_ok() {
            return false;
        }
    }
    true
}

/// Linux's siw may have missed the first message, and looks again when another one arrives.
#[test]
fn initiator_repeats_the_ready_to_receive_message_three_times() {
    for crc in [false, true] {
        let mut caller = Caller::new(Options::default());
        let flags = 0x10 | u8::from(crc) << 6;
        caller.answer(&frame(REPLY, flags, 2, &[0, 16, 0, 16]));
        caller.raw.crc = crc;
        // The connection cannot have been established before this time.
        let start = Instant::now();
        caller.established();
        for at in [250, 1000, 4000].map(Duration::from_millis) {
            assert_eq!(
                caller.raw.read_fpdu(&mut caller.node),
                Got::Ulpdu(nothing())
            );
            assert!(start.elapsed() >= at, "too early: {:?}", start.elapsed());
        }
        assert_eq!(caller.node.device.next_deadline(), None);
        assert!(is_silent(&mut caller, Duration::from_millis(300)));
        // None of the messages consumed a receive or had a number.
        caller.node.send(caller.qp, 2, b"first");
        let first = crate::raw::send(1, b"first");
        assert_eq!(caller.raw.read_fpdu(&mut caller.node), Got::Ulpdu(first));
    }
}

#[test]
fn initiator_does_not_repeat_it_to_a_responder_that_has_sent() {
    let read = read_request(1, 9, 0, 0, 0);
    for said in [&crate::raw::send(1, b"hello"), &nothing(), &read] {
        let mut caller = Caller::new(Options::default());
        caller.answer(&frame(REPLY, 0x10, 2, &[0, 16, 0, 16]));
        caller.established();
        caller.raw.send_ulpdu(said);
        if said == &read {
            let Got::Ulpdu(response) = caller.raw.read_fpdu(&mut caller.node) else {
                panic!("no answer")
            };
            assert_eq!(response[1] & 0x0f, 2, "an RDMA Read Response");
        }
        assert!(is_silent(&mut caller, Duration::from_millis(400)));
        assert_eq!(caller.node.device.next_deadline(), None);
    }
}

#[test]
fn initiator_accepts_an_fpdu_directly_behind_the_reply() {
    // The reply arrives in pieces, with a first FPDU directly behind it.
    let mut caller = Caller::new(Options::default());
    let mut bytes = frame(REPLY, 0x50, 2, &[0, 16, 0, 16, b'o', b'k']);
    bytes.extend(fpdu(&crate::raw::send(1, b"already"), true));
    caller.answer(&bytes[..7]);
    idle(&mut caller.node);
    caller.raw.write(&bytes[7..21]);
    idle(&mut caller.node);
    caller.raw.write(&bytes[21..]);
    caller.raw.crc = true;
    assert_eq!(caller.established(), b"ok"[..]);
    match caller.node.next_completion().result.unwrap() {
        Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), *b"already"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn crc_if_either_side_asks() {
    // This side asks for a CRC and the responder does not.
    let mut caller = Caller::new(Options {
        crc: CrcPolicy::Request,
        ..Options::default()
    });
    caller.answer(&frame(REPLY, 0x10, 2, &[0, 16, 0, 16]));
    caller.raw.crc = true;
    caller.established();
    caller.node.send(caller.qp, 2, b"first");
    let first = crate::raw::send(1, b"first");
    assert_eq!(caller.raw.read_fpdu(&mut caller.node), Got::Ulpdu(first));
}

#[test]
fn replies_that_do_not_establish_a_connection() {
    let protocol = |text: &str| ConnectError::Protocol(text.into());
    let cases: [(Vec<u8>, ConnectError); 6] = [
        (
            frame(REPLY, 0x30, 2, &[0, 0, 0, 0, b'n', b'o']),
            ConnectError::Rejected {
                private_data: Bytes::from_static(b"no"),
            },
        ),
        (
            frame(REPLY, 0x90, 2, &[0, 16, 0, 16]),
            protocol("the peer requires markers"),
        ),
        (
            frame(REPLY, 0x00, 2, b""),
            protocol("the peer answers with MPA revision 2"),
        ),
        (
            frame(REQUEST, 0x10, 2, &[0, 16, 0, 16]),
            protocol("not an MPA Reply frame"),
        ),
        (
            b"HTTP/1.1 400 Bad Request".to_vec(),
            protocol("not an MPA Reply frame"),
        ),
        (
            frame(REPLY, 0x10, 2, &[0; 513]),
            protocol("513 bytes of private data"),
        ),
    ];
    for (reply, error) in cases {
        let mut caller = Caller::new(Options::default());
        caller.answer(&reply);
        assert_eq!(caller.failed(), error);
    }
}

#[test]
fn replies_with_a_terminate_of_their_own() {
    // RFC 6581, sections 9.1 and 9.2: an ORD above this side's IRD; a ready-to-receive message that
    // this side does not support.
    for (private, code, text) in [
        ([0, 16, 1, 0], 0x06, "MPA: insufficient IRD"),
        (
            [0x80, 16, 0x40, 16],
            0x07,
            "MPA: no matching ready-to-receive option",
        ),
    ] {
        // The Terminate has a CRC if either side asked for CRCs (RFC 5044, section 7.1.1).
        for (policy, flags, crc) in [
            (CrcPolicy::IfAsked, 0x10, false),
            (CrcPolicy::IfAsked, 0x50, true),
            (CrcPolicy::Request, 0x10, true),
        ] {
            let mut caller = Caller::new(Options {
                crc: policy,
                ..Options::default()
            });
            caller.answer(&frame(REPLY, flags, 2, &private));
            caller.raw.crc = crc;
            let heard = caller.raw.expect_terminate(&mut caller.node);
            assert_eq!((heard.0, heard.1, heard.2), (0x20, code, 0));
            assert_eq!(caller.failed(), ConnectError::Protocol(text.into()));
        }
    }
}

#[test]
fn a_peer_that_closes_or_is_silent() {
    let caller = Caller::new(Options::default());
    caller
        .raw
        .socket
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    assert!(matches!(caller.failed(), ConnectError::Protocol(_)));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Node::new(Options::default());
    let options = ConnectOptions {
        timeout: Duration::from_millis(100),
        ..connect_options()
    };
    let start = Instant::now();
    let remote = listener.local_addr().unwrap();
    let qp = node.device.connect(remote, &options).unwrap();
    match node.next() {
        Event::ConnectFailed { qp: of, error } => {
            assert_eq!((of, error), (qp, ConnectError::TimedOut));
        }
        event => panic!("{event:?}"),
    }
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(node.device.next_deadline(), None);
}

#[test]
fn connecting_without_a_listener_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut node = Node::new(Options::default());
    let qp = node.device.connect(address, &connect_options()).unwrap();
    match node.next() {
        Event::ConnectFailed { qp: of, error } => {
            assert_eq!((of, error), (qp, ConnectError::Refused));
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn private_data_has_a_limit() {
    let mut node = Node::new(Options::default());
    let mut options = connect_options();
    options.private_data = vec![0; 509].into();
    let (_, address) = node.listen();
    match node.device.connect(address, &options) {
        Err(DeviceError::PrivateDataTooLong { len: 509, max: 508 }) => {}
        other => panic!("{other:?}"),
    }
    // The longest private data is accepted.
    options.private_data = vec![7; 508].into();
    let mut accept = accept_options();
    accept.private_data = vec![8; 508].into();
    Pair::connect(node, Node::new(Options::default()), &options, &accept).finish();
}

#[test]
fn rejection_with_a_reason() {
    let (mut client, mut server) = (Node::new(Options::default()), Node::new(Options::default()));
    let (_, address) = server.listen();
    client.device.connect(address, &connect_options()).unwrap();
    let request = request(&mut server, &mut client);
    server.device.reject(request.request, b"not today").unwrap();
    assert!(server.device.reject(request.request, b"").is_err());
    assert!(server.device.prepare_accept(request.request, None).is_err());
    match next(&mut client, &mut server) {
        Event::ConnectFailed { error, .. } => assert_eq!(
            error,
            ConnectError::Rejected {
                private_data: Bytes::from_static(b"not today")
            }
        ),
        event => panic!("{event:?}"),
    }
}

// ---- responder ----

/// Returns a raw initiator whose connection was accepted.
fn accepted(private: &[u8], flags: u8, revision: u8) -> (Node, Raw, QpId, (u8, u8, Vec<u8>)) {
    let mut node = Node::new(Options::default());
    let (_, address) = node.listen();
    let mut raw = Raw::connect(address);
    raw.write(&frame(REQUEST, flags, revision, private));
    let (request, _) = raw.wait_request(&mut node);
    let qp = node.device.prepare_accept(request, None).unwrap();
    node.device.accept(qp, &accept_options()).unwrap();
    let reply = raw.read_frame(REPLY, &mut node);
    (node, raw, qp, reply)
}

#[test]
fn responder_to_revision_1() {
    let (mut node, mut raw, qp, reply) = accepted(b"old", 0x40, 1);
    assert_eq!(reply, (0x40, 1, b"welcome".to_vec()));
    raw.crc = true;
    assert!(matches!(node.next(), Event::Established { .. }));
    node.receive(qp, 1, 64);
    raw.send_ulpdu(&crate::raw::send(1, b"call"));
    assert!(node.next_completion().result.is_ok());
    node.send(qp, 2, b"reply");
    let first = crate::raw::send(1, b"reply");
    assert_eq!(raw.read_fpdu(&mut node), Got::Ulpdu(first));
}

#[test]
fn responder_depths() {
    // The peer's ORD limits this side's IRD, and its IRD this side's ORD. Each that is 0x3fff, left
    // to upper layers, is answered with 0x3fff (RFC 6581, section 9.1). An ORD of 0 may grow.
    for (theirs, ours) in [
        ([0, 128, 0, 0], [0, 1, 0, 16]),
        ([0, 4, 0, 3], [0, 3, 0, 4]),
        ([0x3f, 0xff, 0x3f, 0xff], [0x3f, 0xff, 0x3f, 0xff]),
        ([0x3f, 0xff, 0, 3], [0, 3, 0x3f, 0xff]),
        ([0, 4, 0x3f, 0xff], [0x3f, 0xff, 0, 4]),
    ] {
        let (_, _, _, reply) = accepted(&theirs, 0x10, 2);
        assert_eq!(reply.2[..4], ours, "{theirs:?}");
    }
}

/// IRD and ORD that the initiator leaves to upper layers leave this side's unchanged.
#[test]
fn responder_keeps_its_depths_if_the_initiator_sets_none() {
    let (mut node, mut raw, qp, _) = accepted(&[0x3f, 0xff, 0x3f, 0xff], 0x10, 2);
    raw.send_ulpdu(&nothing());
    assert!(matches!(node.next(), Event::Established { .. }));
    // The IRD is 16, and so many Reads are answered together.
    let reads: Vec<u8> = (1..=16)
        .flat_map(|msn| fpdu(&read_request(msn, 9, 0, 0, 0), false))
        .collect();
    raw.write(&reads);
    for _ in 0..16 {
        let Got::Ulpdu(response) = raw.read_fpdu(&mut node) else {
            panic!("no answer")
        };
        assert_eq!(response[1] & 0x0f, READ_RESPONSE);
    }
    // The ORD is 16, and so many Reads are sent before one is answered.
    for id in 0..17 {
        let sink = node.pool.alloc(1).unwrap();
        let read = SendWr::Read {
            sink,
            stag: Stag(7),
            offset: 0,
        };
        node.device.post_send(qp, WrId(id), read, true).unwrap();
    }
    for _ in 0..16 {
        let Got::Ulpdu(request) = raw.read_fpdu(&mut node) else {
            panic!("no Read")
        };
        assert_eq!(request[1] & 0x0f, READ_REQUEST);
    }
    for _ in 0..20 {
        idle(&mut node);
    }
    let nothing = raw.socket.peek(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn responder_waits_for_the_first_fpdu() {
    // RFC 5044, section 7.1.2, rule 4: nothing is sent before an FPDU was received.
    let (mut node, mut raw, qp, _) = accepted(&[0, 4, 0, 4], 0x10, 2);
    assert!(matches!(node.next(), Event::Established { .. }));
    node.receive(qp, 1, 64);
    node.send(qp, 2, b"eager");
    for _ in 0..20 {
        idle(&mut node);
    }
    assert!(node.events.is_empty());
    let mut byte = [0];
    let nothing = raw.socket.peek(&mut byte).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    raw.send_ulpdu(&crate::raw::send(1, b"call"));
    let first = crate::raw::send(1, b"eager");
    assert_eq!(raw.read_fpdu(&mut node), Got::Ulpdu(first));
}

#[test]
fn responder_takes_every_ready_to_receive_message() {
    let write = tagged(WRITE, true, 0, 0, b"");
    let read = read_request(1, 9, 0, 0, 0);
    let nothing = crate::raw::send(1, b"");
    // The kinds that the initiator supports, the kind that the responder chooses, and the message
    // that the initiator sends.
    let cases: [([u8; 4], [u8; 4], &[u8]); 6] = [
        ([0xc0, 4, 0xc0, 4], [0x80, 4, 0x80, 4], &write),
        // An initiator that names no kind is asked for a Write.
        ([0x80, 4, 0, 4], [0x80, 4, 0x80, 4], &write),
        ([0xc0, 4, 0x40, 4], [0x80, 4, 0x40, 4], &read),
        ([0xc0, 4, 0, 4], [0xc0, 4, 0, 4], &[]),
        ([0xc0, 4, 0, 4], [0xc0, 4, 0, 4], &nothing),
        (
            [0x80, 4, 0x80, 4],
            [0x80, 4, 0x80, 4],
            &crate::raw::send(1, b"a call is as good"),
        ),
    ];
    for (theirs, ours, rtr) in cases {
        let (mut node, mut raw, qp, reply) = accepted(&theirs, 0x10, 2);
        assert_eq!(reply.2[..4], ours);
        node.receive(qp, 1, 64);
        for _ in 0..10 {
            idle(&mut node);
        }
        assert!(node.events.is_empty(), "not established before the message");
        raw.send_ulpdu(rtr);
        let mut events = Vec::from([node.next()]);
        if rtr.len() > 18 && rtr[1] != 0x40 | READ_REQUEST {
            events.push(node.next());
        }
        let is_up = |event: &Event| matches!(event, Event::Established { .. });
        assert!(events.iter().any(is_up), "{events:?}");
        // An agreed ready-to-receive message without payload consumes no receive.
        let msn = if rtr == &nothing[..] || events.len() == 2 {
            2
        } else {
            1
        };
        if events.len() == 2 {
            node.receive(qp, 1, 64);
        }
        raw.send_ulpdu(&crate::raw::send(msn, b"call"));
        match node.next_completion().result.unwrap() {
            Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), *b"call"),
            other => panic!("{other:?}"),
        }
    }
}

/// Messages that arrive in one read with the ready-to-receive message are reported after the
/// connection, because the program does not know the connection before.
#[test]
fn establishment_is_reported_before_messages_of_the_same_read() {
    let rtr = fpdu(&tagged(WRITE, true, 0, 0, b""), false);
    let call = |msn, text| fpdu(&crate::raw::send(msn, text), false);
    let bad = fpdu(&crate::raw::send(7, b"out of order"), false);
    // The bytes in one piece; the number of calls in them; whether the connection survives.
    let cases = [
        (call(1, b"one"), 1, true),
        ([&rtr[..], &call(1, b"one")].concat(), 1, true),
        (
            [&rtr[..], &call(1, b"one"), &call(2, b"two")].concat(),
            2,
            true,
        ),
        ([&rtr[..], &call(1, b"one"), &bad].concat(), 1, false),
        ([&rtr[..], &bad].concat(), 0, false),
    ];
    for (bytes, calls, lives) in cases {
        let (mut node, mut raw, qp, _) = accepted(&[0x80, 4, 0x80, 4], 0x10, 2);
        for id in 0..3 {
            node.receive(qp, id, 64);
        }
        // Less than any MSS: one segment, and so one read.
        assert!(bytes.len() < 536);
        raw.write(&bytes);
        let first = node.next();
        assert!(
            matches!(first, Event::Established { qp: of, .. } if of == qp),
            "{first:?}"
        );
        for id in 0..calls {
            let completion = node.next_completion();
            assert_eq!(completion.id, WrId(id));
            let result = completion.result.unwrap();
            assert!(matches!(result, Success::Receive { .. }), "{result:?}");
        }
        if lives {
            idle(&mut node);
            assert!(node.events.is_empty());
        } else {
            for id in calls..3 {
                let completion = node.next_completion();
                assert_eq!(completion.id, WrId(id));
                assert!(completion.result.is_err());
            }
            assert!(matches!(node.next(), Event::Disconnected { .. }));
        }
    }
}

#[test]
fn responder_times_out_without_a_ready_to_receive_message() {
    // With a kind that the initiator offers, and without any.
    for theirs in [[0x80, 4, 0x80, 4], [0x80, 4, 0, 4]] {
        let mut node = Node::new(Options {
            setup_timeout: Duration::from_millis(100),
            ..Options::default()
        });
        let (_, address) = node.listen();
        let mut raw = Raw::connect(address);
        raw.write(&frame(REQUEST, 0x10, 2, &theirs));
        let (request, _) = raw.wait_request(&mut node);
        let qp = node.device.prepare_accept(request, None).unwrap();
        node.device.accept(qp, &accept_options()).unwrap();
        match node.next() {
            Event::ConnectFailed { qp: of, error } => {
                assert_eq!((of, error), (qp, ConnectError::TimedOut));
            }
            event => panic!("{event:?}"),
        }
        raw.read_frame(REPLY, &mut node);
        let end = raw.read_fpdu(&mut node);
        assert!(matches!(end, Got::End | Got::Reset), "{end:?}");
        assert_eq!(node.device.next_deadline(), None);
    }
}

/// An initiator that cannot send the chosen message says so in a Terminate (RFC 6581, section 9.2).
#[test]
fn responder_whose_choice_the_initiator_does_not_support() {
    let (mut node, mut raw, qp, _) = accepted(&[0x80, 4, 0, 4], 0x10, 2);
    let no_matching_rtr = [0x20, 0x07, 0, 0];
    raw.send_ulpdu(&untagged(TERMINATE, true, 0, (2, 1, 0), &no_matching_rtr));
    match node.next() {
        Event::ConnectFailed { qp: of, error } => {
            let ConnectError::Protocol(text) = error else {
                panic!("{error:?}")
            };
            assert_eq!(of, qp);
            assert!(
                text.contains("no matching ready-to-receive option"),
                "{text}"
            );
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn requests_that_are_refused() {
    let mut node = Node::new(Options::default());
    let (_, address) = node.listen();
    // Markers: the reply is a rejection. Its fields answer those of the request as in an acceptance
    // (RFC 6581, sections 9.1 and 9.2).
    for (theirs, ours) in [
        ([0, 4, 0, 4], [0, 0, 0, 0]),
        ([0x3f, 0xff, 0, 4], [0, 0, 0x3f, 0xff]),
        ([0x80, 4, 0x40, 4], [0x80, 0, 0x40, 0]),
        ([0x80, 4, 0, 4], [0x80, 0, 0x80, 0]),
    ] {
        let mut raw = Raw::connect(address);
        raw.write(&frame(REQUEST, 0x90, 2, &theirs));
        let (flags, revision, private) = raw.read_frame(REPLY, &mut node);
        assert_eq!((flags, revision, &private[..]), (0x30, 2, &ours[..]));
        assert_eq!(raw.read_fpdu(&mut node), Got::End);
    }
    // Not a request of a known revision: no answer.
    for bytes in [
        frame(REPLY, 0x10, 2, &[0, 4, 0, 4]),
        frame(REQUEST, 0x10, 3, &[0, 4, 0, 4]),
        frame(REQUEST, 0x00, 0, b""),
        frame(REQUEST, 0x10, 2, b"123"),
        frame(REQUEST, 0x10, 2, &[0; 600]),
        b"GET / HTTP/1.1\r\n".to_vec(),
        // FPDUs before the reply.
        [frame(REQUEST, 0x10, 2, &[0, 4, 0, 4]), vec![0; 24]].concat(),
    ] {
        let mut raw = Raw::connect(address);
        raw.write(&bytes);
        let end = raw.read_fpdu(&mut node);
        assert!(matches!(end, Got::End | Got::Reset), "{end:?}");
    }
    assert!(node.events.is_empty());
}

#[test]
fn half_open_peers_are_few_and_short_lived() {
    let mut node = Node::new(Options {
        setup_timeout: Duration::from_millis(300),
        ..Options::default()
    });
    let (_, address) = node.listen();
    let mut silent: Vec<Raw> = Vec::new();
    for _ in 0..260 {
        silent.push(Raw::connect(address));
        idle(&mut node);
    }
    // The oldest was closed to make room, and a peer that sends its request is served.
    assert_eq!(silent[0].read_fpdu(&mut node), Got::End);
    let mut raw = Raw::connect(address);
    raw.write(&frame(REQUEST, 0x10, 2, &[0, 4, 0, 4]));
    raw.wait_request(&mut node);
    // The time of the others has expired.
    assert_eq!(silent[259].read_fpdu(&mut node), Got::End);
}

/// A request that any responder accepts.
fn plain_request() -> Vec<u8> {
    frame(REQUEST, 0x10, 2, &[0, 4, 0, 4])
}

#[test]
fn half_open_peers_keep_nobody_out_at_the_limit() {
    let mut node = Node::new(Options {
        max_connections: 3,
        ..Options::default()
    });
    let (_established, _) = Raw::set_up(&mut node, false);
    let (_, address) = node.listen();
    let mut silent: Vec<Raw> = Vec::new();
    for _ in 0..2 {
        silent.push(Raw::connect(address));
        idle(&mut node);
    }
    let mut raw = Raw::connect(address);
    raw.write(&plain_request());
    raw.wait_request(&mut node);
    // The oldest was closed to make room, and the other one can go on.
    assert_eq!(silent[0].read_fpdu(&mut node), Got::End);
    silent[1].write(&plain_request());
    silent[1].wait_request(&mut node);
    // Peers that have sent a request are not closed for others.
    let mut late = Raw::connect(address);
    late.write(&plain_request());
    assert!(matches!(late.read_fpdu(&mut node), Got::End | Got::Reset));
    assert!(node.events.is_empty());
}

/// Regression test: a connection that was over, except that its peer did not close it, took the
/// place of another one for two seconds.
#[test]
fn a_connection_that_only_drains_makes_room_for_another_one() {
    let mut node = Node::new(Options {
        max_connections: 1,
        ..Options::default()
    });
    let (mut over, qp) = Raw::set_up(&mut node, false);
    node.device.disconnect(qp);
    assert!(matches!(node.next(), Event::Disconnected { .. }));
    node.device.destroy(qp);
    let (_, address) = node.listen();
    let mut raw = Raw::connect(address);
    raw.write(&plain_request());
    raw.wait_request(&mut node);
    assert!(matches!(over.read_fpdu(&mut node), Got::End | Got::Reset));
}

/// The request has arrived before the device looks at either connection.
#[test]
fn a_peer_whose_request_was_not_read_yet_is_not_closed_for_another_one() {
    let mut node = Node::new(Options {
        max_connections: 1,
        ..Options::default()
    });
    let (_, address) = node.listen();
    let mut first = Raw::connect(address);
    idle(&mut node);
    let mut second = Raw::connect(address);
    first.write(&plain_request());
    first.wait_request(&mut node);
    assert!(matches!(second.read_fpdu(&mut node), Got::End | Got::Reset));
}

/// The half-open connection that makes room belongs to another loop than the one that has room for it.
#[test]
fn half_open_peers_of_one_loop_keep_nobody_out_of_the_others() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let socket = Arc::new(socket);
    let seats = LoopSeat::all(2);
    let mut nodes: Vec<Node> = Vec::new();
    for seat in &seats {
        let mut node = Node::new(Options {
            max_connections: 2,
            sockets: vec![Arc::clone(&socket)],
            seat: Some(seat.clone()),
            ..Options::default()
        });
        node.device.listen(address).unwrap();
        nodes.push(node);
    }
    /// Steps the loops until one has a request. Returns its index.
    fn requested(nodes: &mut [Node]) -> usize {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            nodes.iter_mut().for_each(idle);
            let mut events = nodes.iter_mut().map(|node| node.events.pop_front());
            if let Some(at) = events.position(|event| event.is_some()) {
                return at;
            }
        }
        panic!("no request");
    }
    let mut honest = Raw::connect(address);
    honest.write(&plain_request());
    let full = requested(&mut nodes);
    let mut silent = Raw::connect(address);
    let start = Instant::now();
    while seats[1 - full].connections() == 0 {
        assert!(start.elapsed() < PATIENCE, "not accepted");
        nodes.iter_mut().for_each(idle);
    }
    // The loop without a half-open connection sees this one first.
    let mut next = Raw::connect(address);
    next.write(&plain_request());
    idle(&mut nodes[full]);
    assert_eq!(requested(&mut nodes), 1 - full);
    assert_eq!(silent.read_fpdu(&mut nodes[1 - full]), Got::End);
    assert_eq!(seats[0].connections_of_all(), 2);
}

/// More connections than are accepted in one turn, all of them made before the device polls.
#[test]
fn a_crowd_of_initiators_is_served_to_the_last() {
    const CROWD: usize = 100;
    let mut node = Node::new(Options::default());
    let (_, address) = node.listen();
    // From here on the listener is checked when an event reports it, and there is one event for
    // all.
    node.step(Duration::ZERO);
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let mut raw = Raw::connect(address);
            raw.write(&frame(REQUEST, 0x10, 2, &[0, 4, 0, 4]));
            raw
        })
        .collect();
    let mut requests = std::collections::HashSet::new();
    while requests.len() < CROWD {
        match node.next() {
            Event::ConnectRequest(request) => assert!(requests.insert(request.request)),
            event => panic!("{event:?}"),
        }
    }
    drop(crowd);
}

#[test]
fn connections_have_a_limit() {
    let mut node = Node::new(Options {
        max_connections: 2,
        ..Options::default()
    });
    let (_first, _) = Raw::set_up(&mut node, false);
    let (_second, qp) = Raw::set_up(&mut node, false);
    let (_, address) = node.listen();
    let mut third = Raw::connect(address);
    assert!(matches!(third.read_fpdu(&mut node), Got::End | Got::Reset));
    match node.device.connect(address, &connect_options()) {
        Err(DeviceError::Limit(_)) => {}
        other => panic!("{other:?}"),
    }
    node.device.destroy(qp);
    Raw::set_up(&mut node, false);
}

#[test]
fn listeners_come_and_go() {
    let mut node = Node::new(Options::default());
    let (first, address) = node.listen();
    let (second, other) = node.listen();
    assert_ne!(address, other);
    node.device.close_listener(first);
    assert!(node.device.local_address(first).is_err());
    assert!(std::net::TcpStream::connect(address).is_err());
    let mut raw = Raw::connect(other);
    raw.write(&frame(REQUEST, 0x10, 2, &[0, 4, 0, 4]));
    match node.next() {
        Event::ConnectRequest(request) => assert_eq!(request.listener, second),
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_peer_that_leaves_before_it_is_accepted() {
    let mut node = Node::new(Options::default());
    let (_, address) = node.listen();
    let mut raw = Raw::connect(address);
    raw.write(&frame(REQUEST, 0x10, 2, &[0, 4, 0, 4]));
    let (request, _) = raw.wait_request(&mut node);
    drop(raw);
    let qp = node.device.prepare_accept(request, None).unwrap();
    node.receive(qp, 1, 64);
    for _ in 0..5 {
        idle(&mut node);
    }
    node.device.accept(qp, &accept_options()).unwrap();
    assert!(matches!(node.next(), Event::Established { .. }));
    assert!(node.next_completion().result.is_err());
    assert!(matches!(
        node.next(),
        Event::Disconnected {
            reason: Disconnect::Remote | Disconnect::Lost(_),
            ..
        }
    ));
}

#[test]
fn either_side_may_send_first() {
    let mut pair = Pair::default();
    let Pair {
        client,
        server,
        c,
        s,
    } = &mut pair;
    client.receive(*c, 1, 64);
    server.send(*s, 2, b"me first");
    assert!(matches!(success(server, client, 2), Success::Send));
    assert!(matches!(
        success(client, server, 1),
        Success::Receive { .. }
    ));
    pair.finish();
}

#[test]
fn sends_with_solicited_event_are_received_like_others() {
    let (mut raw_node, mut raw, qp, _) = accepted(&[0, 4, 0, 4], 0x10, 2);
    assert!(matches!(raw_node.next(), Event::Established { .. }));
    let region = rdma::Region::RemoteWrite(raw_node.buf(&[0; 10]));
    let segment = raw_node.device.register(qp, region).unwrap();
    raw_node.receive(qp, 1, 64);
    raw_node.receive(qp, 2, 64);
    let solicited = untagged(crate::raw::SEND_SOLICITED, true, 0, (0, 1, 0), b"one");
    raw.send_ulpdu(&solicited);
    let stag = segment.stag.0;
    let opcode = crate::raw::SEND_SOLICITED_INVALIDATE;
    raw.send_ulpdu(&untagged(opcode, true, stag, (0, 2, 0), b"two"));
    for (text, expected) in [(&b"one"[..], None), (b"two", Some(segment.stag))] {
        match raw_node.next_completion().result.unwrap() {
            Success::Receive { buf, invalidated } => {
                assert_eq!((&buf.to_vec()[..], invalidated), (text, expected));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(raw_node.device.counters().remote_invalidations, 1);
}

#[test]
fn posting_before_and_after_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Node::new(Options::default());
    let remote = listener.local_addr().unwrap();
    let qp = node.device.connect(remote, &connect_options()).unwrap();
    let message = node.bytes(b"x");
    let (error, wr) = node
        .device
        .post_send(qp, WrId(1), send(message), true)
        .unwrap_err();
    assert_eq!(error, rdma::PostError::NotConnected);
    assert!(matches!(wr, SendWr::Send { .. }));
    drop(wr);
    node.receive(qp, 1, 64);
    // Aborted before the connection is established.
    node.device.abort(qp);
    assert!(node.next_completion().result.is_err());
    match node.next() {
        Event::Disconnected { reason, .. } => assert_eq!(reason, Disconnect::Local),
        event => panic!("{event:?}"),
    }
    node.device.destroy(qp);
    let buf = node.pool.alloc(1).unwrap();
    let (error, _) = node
        .device
        .post_receive(qp, WrId(1), buf.into())
        .unwrap_err();
    assert_eq!(error, rdma::PostError::Unknown);
    assert_eq!(node.pool.in_use(), 0);
}

#[test]
fn a_connection_that_cannot_be_made_closes_no_half_open_peer() {
    let mut node = Node::new(Options {
        max_connections: 1,
        ..Options::default()
    });
    let (_, address) = node.listen();
    let mut waiting = Raw::connect(address);
    idle(&mut node);
    // TCP has no multicast: the system refuses at once.
    let remote = "224.0.0.1:1".parse().unwrap();
    let qp = node.device.connect(remote, &connect_options()).unwrap();
    match node.next() {
        Event::ConnectFailed { qp: of, .. } => assert_eq!(of, qp),
        event => panic!("{event:?}"),
    }
    waiting.write(&plain_request());
    waiting.wait_request(&mut node);
}

#[test]
fn a_request_that_came_in_time_is_taken_by_an_owner_that_was_away() {
    let mut node = Node::new(Options {
        setup_timeout: Duration::from_millis(100),
        ..Options::default()
    });
    let (_, address) = node.listen();
    let mut raw = Raw::connect(address);
    idle(&mut node);
    raw.write(&plain_request());
    std::thread::sleep(Duration::from_millis(200));
    raw.wait_request(&mut node);
}

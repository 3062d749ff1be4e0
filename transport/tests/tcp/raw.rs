//! Tests with raw TCP clients that do what the project's client never does.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use onc_rpc::{Message, record};
use rpc_transport::{
    PollLoop, Runtime, ServerOptions, ServerTransport, ServerTransportEvent, TcpOptions, TcpServer,
};

use crate::service::*;

fn null(xid: u32) -> Vec<u8> {
    called(xid, call(NULL, Message::default()))
}

pub(crate) fn framed(record: &[u8]) -> Vec<u8> {
    let mut out = record::header(record.len() as u64).unwrap().to_vec();
    out.extend(record);
    out
}

pub(crate) fn raw(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    let limit = Some(Duration::from_secs(10));
    socket.set_read_timeout(limit).unwrap();
    socket
}

fn read_reply(socket: &mut TcpStream) -> u32 {
    let mut reply = [0; 28];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [0x80, 0, 0, 24]);
    u32::from_be_bytes(reply[4..8].try_into().unwrap())
}

pub(crate) fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn calls_in_pieces_and_in_fragments_are_understood() {
    let server = Running::start();
    let mut socket = raw(server.address);
    for byte in framed(&null(1)) {
        socket.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(read_reply(&mut socket), 1);
    let mut fragments = Vec::new();
    for piece in null(2).chunks(3) {
        fragments.extend((piece.len() as u32).to_be_bytes());
        fragments.extend(piece);
    }
    fragments.extend(0x8000_0000_u32.to_be_bytes());
    socket.write_all(&fragments).unwrap();
    assert_eq!(read_reply(&mut socket), 2);
    // Several records at once, the last one torn.
    let many: Vec<u8> = (3..9).flat_map(|xid| framed(&null(xid))).collect();
    let (first, rest) = many.split_at(many.len() - 10);
    socket.write_all(first).unwrap();
    for xid in 3..8 {
        assert_eq!(read_reply(&mut socket), xid);
    }
    socket.write_all(rest).unwrap();
    assert_eq!(read_reply(&mut socket), 8);
}

#[test]
fn garbage_and_oversize_records_close_their_own_connection_only() {
    let server = Running::with(
        ([127, 0, 0, 1], 0).into(),
        Default::default(),
        TcpOptions {
            max_record: 1 << 16,
            ..TcpOptions::default()
        },
        ServerOptions::default(),
    );
    let mut good = raw(server.address);
    good.write_all(&framed(&null(1))).unwrap();
    assert_eq!(read_reply(&mut good), 1);
    let mut a_reply = null(1);
    a_reply[7] = 1;
    let bad: [&[u8]; 5] = [
        &framed(b"GET / HTTP/1.1\r\n\r\n"),
        b"GET / HTTP/1.1\r\n\r\n",
        &framed(&a_reply),
        &0x8001_0001_u32.to_be_bytes(),
        &0x8000_0000_u32.to_be_bytes(),
    ];
    for bytes in bad {
        let mut socket = raw(server.address);
        socket.write_all(bytes).unwrap();
        assert!(is_closed(&mut socket), "{bytes:?}");
    }
    good.write_all(&framed(&null(2))).unwrap();
    assert_eq!(read_reply(&mut good), 2);
    assert_eq!(server.stop().garbage, 2);
}

#[test]
fn a_client_that_leaves_right_after_its_call_is_noticed() {
    let server = Running::with(
        ([127, 0, 0, 1], 0).into(),
        Default::default(),
        TcpOptions {
            max_connections: 2,
            ..TcpOptions::default()
        },
        ServerOptions::default(),
    );
    let runtime = Runtime::new().unwrap();
    let (client, _) = connect(&runtime, server.address, options()).unwrap();
    let mut leaving = raw(server.address);
    leaving.write_all(&framed(&null(1))).unwrap();
    assert_eq!(read_reply(&mut leaving), 1);
    // While the server looks elsewhere, a call and the end of the stream arrive: it gets one notice
    // for both, and no other.
    let stall = client.call(number(STALL, 200));
    runtime.block_on(runtime.sleep(Duration::from_millis(20)));
    leaving.write_all(&framed(&null(2))).unwrap();
    leaving.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(runtime.block_on(stall).is_ok());
    assert!(is_closed(&mut leaving), "the server closes in turn");
    let (another, _) = connect(&runtime, server.address, options()).unwrap();
    let null = another.call(call(NULL, Message::default()));
    assert!(runtime.block_on(null).is_ok(), "its place is free");
}

/// Regression test: calls of a connection that had ended stayed in the queue of a server that takes no events, so
/// a client that connected again and again could fill its memory.
#[test]
fn calls_that_the_owner_has_not_taken_go_with_their_connection() {
    let port = TcpServer::bind(([127, 0, 0, 1], 0).into(), TcpOptions::default()).unwrap();
    let address = port.local_addr();
    let port = Rc::new(RefCell::new(port));
    let mut poll_loop = PollLoop::new().unwrap();
    poll_loop.set_busy_poll(true);
    poll_loop.add(Rc::clone(&port) as _).unwrap();
    let mut leaving = raw(address);
    leaving.write_all(&framed(&null(1)).repeat(3)).unwrap();
    leaving.shutdown(std::net::Shutdown::Write).unwrap();
    leaving.set_nonblocking(true).unwrap();
    let start = Instant::now();
    while !is_closed(&mut leaving) {
        let now = poll_loop.clock().now();
        poll_loop.turn(now);
        assert!(start.elapsed() < Duration::from_secs(10), "it stays");
    }
    let mut port = port.borrow_mut();
    let events: Vec<_> = std::iter::from_fn(|| port.next_event()).collect();
    let [
        ServerTransportEvent::Connected { conn, .. },
        ServerTransportEvent::Disconnected { conn: gone, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(conn, gone);
}

/// A retransmission over the same connection replaces the first call in all counters and limits.
#[test]
fn a_call_that_is_sent_twice_is_done_and_counted_once() {
    let tcp = TcpOptions {
        max_calls: 2,
        ..TcpOptions::default()
    };
    let server = Running::with(
        ([127, 0, 0, 1], 0).into(),
        Default::default(),
        tcp,
        ServerOptions::default(),
    );
    let mut socket = raw(server.address);
    for round in 1..=3_u32 {
        let call = called(round, number(COUNT, 50));
        socket.write_all(&framed(&call).repeat(2)).unwrap();
        let mut reply = [0; 32];
        socket.read_exact(&mut reply).unwrap();
        let words: Vec<u32> = reply
            .chunks_exact(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!((words[1], words[7]), (round, round), "XID and count");
    }
    let stats = server.stop();
    assert_eq!((stats.jobs, stats.joined), (3, 3));
}

/// Regression test: the last of the system calls that one turn of a connection has completed a record, which
/// was not delivered before the client sent more.
#[test]
fn a_record_that_the_last_read_of_a_turn_completes_is_answered() {
    const FRAGMENT: usize = 8996;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // All of the record is there when it is first read.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1 << 20).unwrap();
    let server = Running::listening(listener, TcpOptions::default());
    // The first read takes the staging area's 8,192 bytes, and each of the others what completes a fragment
    // and 8,192 bytes of the next. So the number of fragments is that of the reads, or one less.
    for fragments in 28..36 {
        let mut socket = raw(server.address);
        let stall = called(1, number(STALL, 50));
        socket.write_all(&framed(&stall)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        let mut record = called(2, echo(vec![0; FRAGMENT * 40].into()));
        record.truncate(FRAGMENT * fragments - 400);
        let mut wire = Vec::new();
        let mut pieces = record.chunks(FRAGMENT).peekable();
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { 1 << 31 } else { 0 };
            wire.extend((piece.len() as u32 | last).to_be_bytes());
            wire.extend(piece);
        }
        socket.write_all(&wire).unwrap();
        assert_eq!(read_reply(&mut socket), 1);
        // Its arguments are cut off, which the reply says.
        assert_eq!(read_reply(&mut socket), 2, "of {fragments} fragments");
    }
}

/// A client that receives slowly and sends more calls meanwhile gets all replies and then the end of the stream, not
/// a reset, which could discard replies.
#[test]
fn a_connection_is_closed_in_order_after_its_last_reply_has_left() {
    const REPLIES: usize = 4;
    const LEN: usize = 8 << 20;
    let port = TcpServer::bind(([127, 0, 0, 1], 0).into(), TcpOptions::default()).unwrap();
    let address = port.local_addr();
    let port = Rc::new(RefCell::new(port));
    let mut poll_loop = PollLoop::new().unwrap();
    poll_loop.set_busy_poll(true);
    poll_loop.add(Rc::clone(&port) as _).unwrap();
    let mut client = raw(address);
    client.set_nonblocking(true).unwrap();
    for xid in 0..REPLIES {
        client.write_all(&framed(&null(xid as u32))).unwrap();
    }
    let (mut answered, mut of) = (0, None);
    let start = Instant::now();
    let mut turn = || {
        assert!(start.elapsed() < Duration::from_secs(20), "no end");
        let now = poll_loop.clock().now();
        poll_loop.turn(now);
        now
    };
    while answered < REPLIES {
        let now = turn();
        let mut port = port.borrow_mut();
        while let Some(event) = port.next_event() {
            if let ServerTransportEvent::Call { conn, token, .. } = event {
                let reply = Message::from_payload(pattern(answered, LEN));
                port.reply(conn, token, Some(reply), now);
                (answered, of) = (answered + 1, Some(conn));
            }
        }
    }
    let of = of.unwrap();
    let now = turn();
    assert!(!port.borrow_mut().finish(of, now), "replies are queued");
    client.write_all(&framed(&null(99)).repeat(100)).unwrap();
    let (mut received, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        let now = turn();
        let mut port = port.borrow_mut();
        port.finish(of, now);
        while let Some(event) = port.next_event() {
            if let ServerTransportEvent::Call { conn, token, .. } = event {
                port.reply(conn, token, None, now);
            }
        }
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => received += n,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(received, REPLIES * (LEN + 4));
    assert!(port.borrow_mut().finish(of, now));
    drop(client);
    loop {
        turn();
        match port.borrow_mut().next_event() {
            None => {}
            Some(ServerTransportEvent::Disconnected { conn, .. }) => break assert_eq!(conn, of),
            Some(ServerTransportEvent::Call { .. }) => {}
            Some(event) => panic!("{event:?}"),
        }
    }
}

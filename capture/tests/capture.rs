//! Captures of connections between simulated and iWARP devices, read back with the parser of
//! `pcap-parser` and followed as TCP receivers do.

mod reader;
mod stage;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma::middleware::Shaper;
use rdma::{Carrier, Frame, QpId, Tap, Time};
use rdma_capture::{Capture, LEAST_SIZE, Limits, Origin, Reconstructed, Stopped};

use reader::{File, Stream};
use stage::{Call, Exchange, exchange};

/// Creates a capture that must not stop.
fn create(path: &Path, limits: Limits, epoch: u64) -> Capture {
    let on_stop = Box::new(|why: &Stopped| panic!("{why}"));
    Capture::create(path, limits, epoch, on_stop).expect("a new file")
}

/// Captures what `show` shows a tap.
fn captured(limits: Limits, origin: Origin, show: impl FnOnce(&mut dyn Tap)) -> File {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.pcapng");
    let capture = create(&path, limits, 0);
    show(&mut capture.tap("test", origin));
    drop(capture);
    File::read(&path)
}

const CARRIER: [&str; 2] = ["10.0.0.1:1000", "10.0.0.2:20049"];

fn stream<'a>(ends: [&str; 2], pieces: &'a [&'a [u8]]) -> Frame<'a> {
    let [local, peer] = ends.map(|end| end.parse().expect("an address"));
    let carrier = Carrier::Tcp { local, peer };
    Frame::Stream { carrier, pieces }
}

/// A set-up frame without private data, and FPDUs with ULPDUs of these lengths.
fn iwarp_stream(key: &[u8; 16], ulpdus: &[u16]) -> Vec<u8> {
    let mut bytes = key.to_vec();
    bytes.extend_from_slice(&[0, 1, 0, 0]);
    for &ulpdu in ulpdus {
        let fpdu = (2 + usize::from(ulpdu)).next_multiple_of(4) + 4;
        bytes.extend_from_slice(&ulpdu.to_be_bytes());
        bytes.extend((2..fpdu).map(|at| (at * 31 + usize::from(ulpdu)) as u8));
    }
    bytes
}

#[test]
fn streams_of_both_ip_versions_come_back_byte_for_byte() {
    for ends in [CARRIER, ["[::1]:1000", "[::1]:20049"]] {
        let request = iwarp_stream(b"MPA ID Req Frame", &[0, 18, 3000, 65535, 17]);
        let reply = iwarp_stream(b"MPA ID Rep Frame", &[1, 2, 3, 40000]);
        let file = captured(Limits::default(), Origin::Stream, |tap| {
            let at = Time::from_nanos;
            tap.received(
                at(5),
                QpId(1),
                stream(ends, &[&request[..7], &request[7..50]]),
            );
            tap.sent(at(6), QpId(1), stream(ends, &[&reply]));
            tap.received(at(7), QpId(1), stream(ends, &[&request[50..]]));
            tap.ended(at(8), QpId(1));
        });
        let [connection] = &file.connections()[..] else {
            panic!("not one connection");
        };
        // The peer sent the request, so it comes first: it sent the SYN.
        assert_eq!(connection.bytes, [request, reply]);
        assert_eq!(connection.ports, [20049, 1000]);
        assert!(connection.closed);
        assert_eq!(connection.times.first(), Some(&5));
        assert_eq!(connection.times.last(), Some(&8));
    }
}

#[test]
fn each_connection_is_a_stream_of_its_own_also_with_the_same_addresses() {
    let bytes = iwarp_stream(b"MPA ID Req Frame", &[20]);
    let file = captured(Limits::default(), Origin::Stream, |tap| {
        for qp in [1, 2] {
            tap.sent(Time::ZERO, QpId(qp), stream(CARRIER, &[&bytes]));
            tap.ended(Time::ZERO, QpId(qp));
        }
        tap.sent(
            Time::ZERO,
            QpId(3),
            stream(["10.0.0.1:1001", CARRIER[1]], &[&bytes]),
        );
    });
    let connections = file.connections();
    assert_eq!(connections.len(), 3);
    assert!(
        connections
            .iter()
            .all(|connection| connection.bytes[0] == bytes)
    );
    assert_ne!(
        connections[0].first, connections[1].first,
        "the same sequence numbers"
    );
    let closed: Vec<bool> = connections
        .iter()
        .map(|connection| connection.closed)
        .collect();
    assert_eq!(closed, [true, true, false]);
}

#[test]
fn connections_whose_addresses_are_gone_have_a_port_each() {
    let requests = [20, 30].map(|ulpdu| iwarp_stream(b"MPA ID Req Frame", &[ulpdu]));
    let file = captured(Limits::default(), Origin::Stream, |tap| {
        for (qp, request) in (1..).zip(&requests) {
            let carrier = Carrier::Ended;
            let pieces = &[&request[..]];
            tap.received(Time::ZERO, QpId(qp), Frame::Stream { carrier, pieces });
        }
    });
    let [one, two] = &file.connections()[..] else {
        panic!("not two connections");
    };
    assert_eq!([&one.bytes[0], &two.bytes[0]], [&requests[0], &requests[1]]);
    // The initiator's port comes first.
    assert_ne!(one.ports[0], two.ports[0]);
    assert_eq!(one.ports[1], two.ports[1]);
}

#[test]
fn long_streams_in_one_direction_are_acknowledged() {
    let bytes = iwarp_stream(b"MPA ID Req Frame", &[60000; 40]);
    let file = captured(Limits::default(), Origin::Stream, |tap| {
        tap.sent(Time::ZERO, QpId(1), stream(CARRIER, &[&bytes]));
    });
    let unacknowledged = file.connections()[0].unacknowledged;
    assert!(unacknowledged < 512 << 10, "{unacknowledged}");
}

#[test]
fn a_shortened_packet_says_its_length_and_keeps_its_beginning() {
    let bytes = iwarp_stream(b"MPA ID Req Frame", &[40000]);
    let show = |tap: &mut dyn Tap| {
        tap.sent(Time::ZERO, QpId(1), stream(CARRIER, &[&bytes]));
    };
    let whole = captured(Limits::default(), Origin::Stream, show);
    let limits = Limits {
        snap: 256,
        ..Limits::default()
    };
    let short = captured(limits, Origin::Stream, show);
    assert_eq!(short.snap, 256);
    assert_eq!(short.packets.len(), whole.packets.len());
    for (short, whole) in short.packets.iter().zip(&whole.packets) {
        assert_eq!(short.length, whole.bytes.len());
        assert_eq!(short.bytes, whole.bytes[..whole.bytes.len().min(256)]);
    }
}

#[test]
fn a_full_file_is_whole_and_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.pcapng");
    let told = Arc::new(Mutex::new(Vec::new()));
    let said = Arc::clone(&told);
    let on_stop = Box::new(move |why: &Stopped| said.lock().unwrap().push(why.to_string()));
    let limits = Limits {
        size: LEAST_SIZE,
        ..Limits::default()
    };
    let capture = Capture::create(&path, limits, 0, on_stop).unwrap();
    let mut tap = capture.tap("test", Origin::Stream);
    let bytes = iwarp_stream(b"MPA ID Req Frame", &[100; 100]);
    tap.sent(Time::ZERO, QpId(1), stream(CARRIER, &[&bytes]));
    tap.sent(Time::ZERO, QpId(2), stream(CARRIER, &[&bytes]));
    assert_eq!(told.lock().unwrap().len(), 1, "{told:?}");
    assert!(told.lock().unwrap()[0].contains("4096 bytes"), "{told:?}");
    // What there is can be read while the program goes on.
    let length = std::fs::metadata(&path).unwrap().len();
    assert!((3000..=LEAST_SIZE).contains(&length), "{length}");
    assert!(File::read(&path).packets.len() > 5);
    drop((tap, capture));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
}

#[test]
fn a_finished_file_takes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("finished.pcapng");
    let capture = create(&path, Limits::default(), 0);
    let mut tap = capture.tap("test", Origin::Stream);
    let bytes = iwarp_stream(b"MPA ID Req Frame", &[100]);
    tap.sent(Time::ZERO, QpId(1), stream(CARRIER, &[&bytes]));
    assert!(capture.try_finish());
    let complete = File::read(&path).packets.len();
    assert_eq!(complete, 5, "three of the handshake, the request, an FPDU");
    tap.sent(Time::ZERO, QpId(1), stream(CARRIER, &[&bytes]));
    tap.ended(Time::ZERO, QpId(1));
    capture.flush(Time::ZERO);
    drop((tap, capture));
    assert_eq!(File::read(&path).packets.len(), complete);
}

#[test]
fn an_existing_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "precious").unwrap();
    let on_stop = || Box::new(|_: &Stopped| {});
    let refused = Capture::create(&path, Limits::default(), 0, on_stop());
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::AlreadyExists
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let missing = folder.path().join("no").join("file");
    let refused = Capture::create(&missing, Limits::default(), 0, on_stop());
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn times_are_those_of_the_device_with_one_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.pcapng");
    let epoch = 1_700_000_000_000_000_000;
    let capture = create(&path, Limits::default(), epoch);
    let mut tap = capture.tap("test", Origin::Stream);
    let bytes = iwarp_stream(b"MPA ID Req Frame", &[]);
    tap.sent(
        Time::from_nanos(123_456_789),
        QpId(1),
        stream(CARRIER, &[&bytes]),
    );
    drop((tap, capture));
    let file = File::read(&path);
    assert_eq!(file.resolution, 9);
    assert_eq!(file.packets[0].time, epoch + 123_456_789);
    assert!(
        file.packets[0]
            .comment
            .contains("those that the device sent and received")
    );
}

/// The calls whose traffic is captured: all ways of moving data, in both directions.
fn calls() -> Vec<Call> {
    let long = 20_000;
    vec![
        Call::default(),
        Call {
            offered: vec![5, long],
            ..Call::default()
        },
        Call {
            filled: vec![(long, long), (7, 3), (9, 0)],
            ..Call::default()
        },
        Call {
            offered: vec![1],
            filled: vec![(100, 100)],
            invalidate: true,
        },
    ]
}

/// A tap in a simulated device shows what the peer does. Middleware concludes the same from what
/// its side sees, at the requester and at the responder.
#[test]
fn what_is_reconstructed_is_what_a_tap_sees() {
    for side in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let [shown, concluded] = ["shown", "concluded"].map(|name| folder.path().join(name));
        let (first, second) = (
            create(&shown, Limits::default(), 0),
            create(&concluded, Limits::default(), 0),
        );
        let tap = Box::new(first.tap("sim", Origin::Messages));
        let wrap =
            |device| Reconstructed::new(device, second.tap("sim", Origin::Reconstructed), None);
        exchange(Exchange { side, tap }, wrap, &calls());
        drop((first, second));
        let (shown, concluded) = (File::read(&shown), File::read(&concluded));
        assert!(shown.packets[0].comment.contains("simulated"));
        assert!(concluded.packets[0].comment.contains("reconstructed"));
        let ([shown], [concluded]) = (&shown.connections()[..], &concluded.connections()[..])
        else {
            panic!("not one connection each");
        };
        for direction in [0, 1] {
            let messages = |connection: &Stream| connection.messages(direction);
            assert!(messages(shown).len() > 6);
            assert_eq!(messages(shown), messages(concluded), "side {side}");
        }
        assert!(shown.closed && concluded.closed);
    }
}

/// An FPDU of a message, DDP's header and a payload with this byte. The CRC is not right.
fn fpdu(opcode: u8, fill: u8) -> Vec<u8> {
    let ulpdu = 18 + 100u16;
    let mut bytes = ulpdu.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0x41, 0x40 | opcode]);
    bytes.resize((2 + usize::from(ulpdu)).next_multiple_of(4) + 4, fill);
    bytes
}

/// Two ends of a link of a millisecond, each with the times of the other's frames at its device:
/// the connection's set-up, and a call with an RDMA Read before its reply.
#[test]
fn each_end_of_a_delayed_link_has_its_own_times() {
    const MS: u64 = 1_000_000;
    const SEND: u8 = 3;
    let [request, reply] =
        [b"MPA ID Req Frame", b"MPA ID Rep Frame"].map(|key| iwarp_stream(key, &[]));
    let [call, answer] = [fpdu(SEND, 1), fpdu(SEND, 2)];
    let [read, response] = [fpdu(1, 3), fpdu(2, 4)];
    // The end that sends, 0 for the client; the time in milliseconds at which the device sends, and
    // the times at which the ends of the link have it.
    let frames = [
        (&request, 0, 0, [0, 1]),
        (&reply, 1, 2, [2, 1]),
        (&call, 0, 13, [12, 13]),
        (&read, 1, 14, [14, 13]),
        (&response, 0, 14, [14, 15]),
        (&answer, 1, 16, [16, 15]),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    for end in [0, 1] {
        let path = folder.path().join(end.to_string());
        let capture = create(&path, Limits::default(), 0);
        let link = Shaper::new(Duration::from_nanos(MS), None);
        let mut tap = capture.tap("test", Origin::Stream).behind(link);
        assert!(capture.is_empty());
        for (bytes, from, at, _) in frames {
            for part in [&bytes[..5], &bytes[5..]] {
                let (pieces, ends) = ([part], [CARRIER[end], CARRIER[1 - end]]);
                let (frame, at) = (stream(ends, &pieces), Time::from_nanos(at * MS));
                match from == end {
                    true => tap.sent(at, QpId(1), frame),
                    false => tap.received(at, QpId(1), frame),
                }
            }
            assert!(!capture.is_empty());
        }
        // The answer can still be preceded, unless a delay has passed.
        capture.flush(Time::from_nanos(16 * MS));
        let early = File::read(&path).packets.len();
        capture.flush(Time::from_nanos(17 * MS));
        let later = File::read(&path).packets.len();
        assert_eq!(later, 3 + frames.len(), "and the handshake");
        assert!(early < later || end == 1, "{end}");
        tap.ended(Time::from_nanos(18 * MS), QpId(1));
        drop(tap);
        drop(capture);
        let file = File::read(&path);
        let [connection] = &file.connections()[..] else {
            panic!("not one connection");
        };
        assert!(connection.closed);
        let mut wanted: Vec<u64> = frames.iter().map(|frame| frame.3[end] * MS).collect();
        wanted.sort_unstable();
        assert_eq!(connection.times[3..9], wanted, "{end}");
        assert_eq!(connection.times[9..], [18 * MS; 3]);
        assert_eq!(
            connection.bytes[0],
            [&request[..], &call, &response].concat()
        );
        assert_eq!(connection.bytes[1], [&reply[..], &read, &answer].concat());
    }
}

/// A response that the device sends before an earlier posted message that the link holds back comes
/// after that in the file, as on the link.
#[test]
fn what_overtakes_a_delayed_message_below_the_link_does_not_above_it() {
    let request = iwarp_stream(b"MPA ID Req Frame", &[]);
    let reply = iwarp_stream(b"MPA ID Rep Frame", &[]);
    let (response, call) = (fpdu(2, 1), fpdu(3, 2));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.pcapng");
    let capture = create(&path, Limits::default(), 0);
    let link = Shaper::new(Duration::from_nanos(100), None);
    let mut tap = capture.tap("test", Origin::Stream).behind(link);
    let at = Time::from_nanos;
    tap.sent(at(1000), QpId(1), stream(CARRIER, &[&request]));
    tap.received(at(1100), QpId(1), stream(CARRIER, &[&reply]));
    tap.sent(at(2000), QpId(1), stream(CARRIER, &[&response]));
    tap.sent(at(2050), QpId(1), stream(CARRIER, &[&call]));
    // The end of the capture writes what waits.
    assert!(capture.try_finish());
    drop(tap);
    let file = File::read(&path);
    let [connection] = &file.connections()[..] else {
        panic!("not one connection");
    };
    assert_eq!(
        connection.bytes[0],
        [&request[..], &call, &response].concat()
    );
    assert_eq!(connection.times[3..], [1000, 1100, 1950, 2000]);
}

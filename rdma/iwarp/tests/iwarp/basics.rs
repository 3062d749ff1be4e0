//! The basic operations of a connection.

use bytes::Bytes;
use iwarp::{CrcPolicy, Options};
use rdma::{Carrier, Device, Disconnect, Region, Scatter, SendWr, Success, WorkError, WrId};
use smallvec::SmallVec;

use crate::node::{Pair, disconnected, failure, success};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn options(crc: CrcPolicy, mss_limit: Option<u16>) -> Options {
    Options {
        crc,
        mss_limit,
        ..Options::default()
    }
}

/// Tests every operation, with lengths around the boundaries of segments and staging.
fn everything(mut pair: Pair) {
    for len in [
        0, 1, 2, 3, 4, 100, 2026, 2027, 2048, 2049, 4096, 65_453, 65_474, 200_001,
    ] {
        let data = pattern(len);
        let Pair {
            client,
            server,
            c,
            s,
        } = &mut pair;
        // Sends in both directions.
        server.receive(*s, 1, len + 5);
        client.send(*c, 2, &data);
        assert!(matches!(success(client, server, 2), Success::Send));
        match success(server, client, 1) {
            Success::Receive { buf, invalidated } => {
                assert_eq!(buf.to_vec(), data);
                assert_eq!(invalidated, None);
            }
            other => panic!("{other:?}"),
        }
        client.receive(*c, 3, len);
        server.send(*s, 4, &data);
        assert!(matches!(success(server, client, 4), Success::Send));
        match success(client, server, 3) {
            Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), data),
            other => panic!("{other:?}"),
        }
        // An RDMA Write and a Send With Invalidate.
        let region = Region::RemoteWrite(client.buf(&vec![0xee; len + 2]));
        let segment = client.device.register(*c, region).unwrap();
        assert_eq!(segment.length as usize, len + 2);
        client.receive(*c, 5, 16);
        let half = len / 2;
        let write = SendWr::Write {
            gather: SmallVec::from_iter([
                server.bytes(&data[..half]),
                Bytes::new(),
                server.bytes(&data[half..]),
            ]),
            stag: segment.stag,
            offset: segment.offset + 1,
        };
        server.post(*s, 6, write);
        let send = SendWr::Send {
            gather: SmallVec::from_iter([server.bytes(b"done")]),
            invalidate: Some(segment.stag),
        };
        server.post(*s, 7, send);
        assert!(matches!(success(server, client, 6), Success::Write));
        assert!(matches!(success(server, client, 7), Success::Send));
        match success(client, server, 5) {
            Success::Receive { buf, invalidated } => {
                assert_eq!(buf.to_vec(), *b"done");
                assert_eq!(invalidated, Some(segment.stag));
            }
            other => panic!("{other:?}"),
        }
        match client.device.reclaim(*c, segment.stag).unwrap() {
            Region::RemoteWrite(buf) => {
                assert_eq!(buf[1..=len], data);
                assert_eq!(buf[0], 0xee);
            }
            other => panic!("{other:?}"),
        }
        // An RDMA Read, then a local invalidation.
        let segment = client
            .device
            .register(*c, Region::RemoteRead(client.bytes(&data)))
            .unwrap();
        let sink = server.pool.alloc(len - half).unwrap();
        let read = SendWr::Read {
            sink,
            stag: segment.stag,
            offset: segment.offset + half as u64,
        };
        server.post(*s, 8, read);
        match success(server, client, 8) {
            Success::Read { sink } => assert_eq!(sink[..], data[half..]),
            other => panic!("{other:?}"),
        }
        assert!(client.device.reclaim(*c, segment.stag).is_err());
        client.post(*c, 9, SendWr::Invalidate { stag: segment.stag });
        assert!(matches!(success(client, server, 9), Success::Invalidate));
        match client.device.reclaim(*c, segment.stag).unwrap() {
            Region::RemoteRead(bytes) => assert_eq!(bytes, data),
            other => panic!("{other:?}"),
        }
    }
    // A graceful end.
    pair.server.receive(pair.s, 10, 64);
    pair.client.device.disconnect(pair.c);
    let Pair { client, server, .. } = &mut pair;
    assert_eq!(disconnected(client, server), Disconnect::Local);
    assert_eq!(failure(server, client, 10).error, WorkError::Flushed);
    assert_eq!(disconnected(server, client), Disconnect::Remote);
    pair.finish();
}

#[test]
fn every_operation() {
    everything(Pair::default());
}

#[test]
fn every_operation_with_crc_asked_for_by_one_side() {
    let plain = || options(CrcPolicy::IfAsked, None);
    let asks = || options(CrcPolicy::Request, None);
    everything(Pair::new(plain(), asks()));
    everything(Pair::new(asks(), plain()));
}

#[test]
fn every_operation_in_small_segments() {
    let client = options(CrcPolicy::Request, Some(536));
    everything(Pair::new(client, options(CrcPolicy::IfAsked, Some(1460))));
}

/// Data for the second and later buffers of a receive is read from the socket directly into place,
/// however it is divided into segments and whatever precedes it.
#[test]
fn data_behind_the_first_buffer_of_a_receive_is_never_copied() {
    const HEAD: usize = 1024;
    const TARGET: usize = 64 << 10;
    // TCP's own MSS grows when it likes, and the message under way then has longer segments than its
    // receiver predicted, and is copied once.
    for (mss_limit, crc) in [
        (Some(16_384), false),
        (Some(1460), true),
        (Some(536), false),
    ] {
        let crc = if crc {
            CrcPolicy::Request
        } else {
            CrcPolicy::IfAsked
        };
        let both = options(crc, mss_limit);
        let mut pair = Pair::new(both.clone(), both);
        let Pair {
            client,
            server,
            c,
            s,
        } = &mut pair;
        // No two in a row are equal: if a read ended right behind the second one, a third of that length would be
        // predicted, and its data copied if it were another.
        let lengths = [
            TARGET,
            4096,
            1,
            0,
            TARGET - 1,
            100,
            8192,
            8191,
            60_000,
            1000,
            30_001,
            TARGET,
        ];
        for id in 0..lengths.len() as u64 {
            let rest = vec![server.buf(&vec![0xee; TARGET])];
            let receive = Scatter::new(server.buf(&[0xee; HEAD]), rest);
            server.device.post_receive(*s, WrId(id), receive).unwrap();
        }
        let before = server.device.counters().copied_bytes;
        // Sent together, so that one read covers the end of a message and the start of the next.
        let messages = lengths.map(|len| pattern(HEAD + len));
        for (id, message) in messages.iter().enumerate() {
            client.send(*c, id as u64, message);
        }
        for (id, message) in messages.iter().enumerate() {
            match success(server, client, id as u64) {
                Success::Receive { buf, .. } => assert_eq!(buf.to_vec(), *message, "{id}"),
                other => panic!("{other:?}"),
            }
            assert!(matches!(success(client, server, id as u64), Success::Send));
        }
        let copied = server.device.counters().copied_bytes - before;
        let heads = (lengths.len() * HEAD) as u64;
        assert!(copied <= heads, "{copied} of {heads} bytes, {mss_limit:?}");
        pair.finish();
    }
}

/// With the TCP addresses the system can be asked which user is at the other end.
#[test]
fn the_carrier_of_an_established_connection_is_its_tcp_addresses() {
    let Pair {
        mut client,
        mut server,
        c,
        s,
    } = Pair::new(Options::default(), Options::default());
    let (Carrier::Tcp { local, peer }, there) =
        (client.device.carrier(c), server.device.carrier(s))
    else {
        panic!("a connection without a socket");
    };
    assert_eq!(
        there,
        Carrier::Tcp {
            local: peer,
            peer: local
        }
    );
    assert_ne!(local.port(), peer.port());
    client.device.abort(c);
    disconnected(&mut server, &mut client);
    assert_eq!(server.device.carrier(s), Carrier::Ended);
    server.device.destroy(s);
    assert_eq!(server.device.carrier(s), Carrier::Ended);
}

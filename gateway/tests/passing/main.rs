//! Tests of gateways between a client and a server that the test plays, by the bytes of every record.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compounds;
mod listeners;
mod nfs;
mod open_callbacks;
mod round_trips;
mod support;
mod traced;

use std::net::TcpListener;
use std::time::Duration;

use rpcrdma_gateway::RelayOptions;

use support::{Chain, Gateway, Over, Raw, call, local, reply, system_error};

/// The lengths of arguments and results: inline, too long for that, in chunks, and of several messages.
const LENGTHS: [usize; 6] = [0, 4, 900, 5000, 70_000, 1 << 20];

fn listener() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind(local()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn everywhere() -> Vec<Over> {
    let mut all = Over::all_rdma();
    all.insert(0, Over::Tcp);
    all
}

/// A client and a server that are connected through gateways.
struct Ends {
    client: Raw,
    server: Raw,
    listener: TcpListener,
    chain: Chain,
}

fn ends(between: Over) -> Ends {
    ends_apart(between, Duration::ZERO)
}

/// Returns the ends of [`ends`], with a delay in each direction between the two gateways.
fn ends_apart(between: Over, delay: Duration) -> Ends {
    let (listener, address) = listener();
    let chain = Chain::delayed(between, address, delay);
    let mut client = Raw::connect(chain.address());
    // The version between the gateways is found with the first call.
    client.send(&call(1, 0));
    let mut server = Raw::accept(&listener);
    server.expect(&call(1, 0));
    server.send(&reply(1, 0));
    client.expect(&reply(1, 0));
    Ends {
        client,
        server,
        listener,
        chain,
    }
}

impl Ends {
    /// Ends the client, and waits until the server sees that.
    fn end(mut self) -> Vec<support::Rest> {
        drop(self.client);
        assert_eq!(self.server.receive(), None);
        drop(self.server);
        self.chain.end()
    }
}

#[test]
fn every_byte_of_calls_and_replies_arrives_whatever_is_between() {
    for between in everywhere() {
        let mut ends = ends(between);
        let mut xid = 0xffff_fff0_u32;
        for args in LENGTHS {
            for results in LENGTHS {
                xid = xid.wrapping_add(1);
                ends.client.send(&call(xid, args));
                ends.server.expect(&call(xid, args));
                ends.server.send(&reply(xid, results));
                ends.client.expect(&reply(xid, results));
            }
        }
        let count = 1 + (LENGTHS.len() * LENGTHS.len()) as u64;
        for rest in ends.end() {
            let stats = rest.stats;
            assert_eq!(
                (stats.clients, stats.calls, stats.replies),
                (1, count, count),
                "{between:?}"
            );
            assert_eq!(
                (stats.failed, stats.stray, stats.repeated),
                (0, 0, 0),
                "{between:?}"
            );
        }
    }
}

/// Of a message of 1 MiB, what is copied is its beginning, which comes with the header of its record, on either side.
#[test]
fn bulk_data_is_not_copied() {
    const COUNT: u64 = 20;
    for between in everywhere() {
        let mut ends = ends(between);
        for xid in 2..2 + COUNT as u32 {
            ends.client.send(&call(xid, 1 << 20));
            ends.server.expect(&call(xid, 1 << 20));
            ends.server.send(&reply(xid, 1 << 20));
            ends.client.expect(&reply(xid, 1 << 20));
        }
        for rest in ends.end() {
            assert!(rest.copied < COUNT * (1 << 17), "{between:?}: {rest:?}");
        }
    }
}

#[test]
fn replies_may_come_in_any_order_and_many_calls_are_under_way() {
    for between in everywhere() {
        let mut ends = ends(between);
        for xid in 10..40 {
            ends.client.send(&call(xid, 100));
        }
        let mut arrived = Vec::new();
        for _ in 10..40 {
            let record = ends.server.receive().unwrap();
            arrived.push(u32::from_be_bytes(record[..4].try_into().unwrap()));
        }
        assert_eq!(arrived, (10..40).collect::<Vec<_>>(), "in their order");
        for xid in arrived.into_iter().rev() {
            ends.server.send(&reply(xid, 2000));
            ends.client.expect(&reply(xid, 2000));
        }
        ends.end();
    }
}

#[test]
fn calls_of_the_server_come_back_on_the_same_connections() {
    for between in everywhere() {
        let mut ends = ends(between);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            // An XID that a call of the client has at the same time.
            let xid = 50 + n as u32;
            ends.client.send(&call(xid, 8));
            ends.server.expect(&call(xid, 8));
            ends.server.send(&call(xid, len));
            ends.client.expect(&call(xid, len));
            ends.client.send(&reply(xid, len));
            ends.server.expect(&reply(xid, len));
            ends.server.send(&reply(xid, 16));
            ends.client.expect(&reply(xid, 16));
        }
        for rest in ends.end() {
            let stats = rest.stats;
            let count = LENGTHS.len() as u64;
            assert_eq!(
                (stats.backward_calls, stats.backward_replies),
                (count, count),
                "{between:?}"
            );
        }
    }
}

#[test]
fn a_repeated_call_is_passed_when_the_first_is_answered() {
    for between in everywhere() {
        let mut ends = ends(between);
        let (first, second) = (call(5, 8), call(5, 12));
        ends.client.send(&first);
        ends.server.expect(&first);
        ends.client.send(&second);
        ends.client.send(&second);
        // Another call passes meanwhile, which shows that the repeated ones are held.
        ends.client.send(&call(6, 0));
        ends.server.expect(&call(6, 0));
        for (answered, next) in [(20, true), (24, true), (28, false)] {
            ends.server.send(&reply(5, answered));
            ends.client.expect(&reply(5, answered));
            if next {
                ends.server.expect(&second);
            }
        }
        ends.server.send(&reply(6, 0));
        ends.client.expect(&reply(6, 0));
        let rests = ends.end();
        assert_eq!(rests[0].stats.repeated, 2, "each is counted once");
        assert_eq!(rests.last().unwrap().stats.calls, 5);
    }
}

#[test]
fn the_end_of_the_server_comes_after_its_replies() {
    for between in everywhere() {
        let mut ends = ends(between);
        for xid in 10..20 {
            ends.client.send(&call(xid, 4));
            ends.server.expect(&call(xid, 4));
        }
        for xid in 10..15 {
            ends.server.send(&reply(xid, 60_000));
        }
        drop(ends.server);
        for xid in 10..15 {
            ends.client.expect(&reply(xid, 60_000));
        }
        assert_eq!(ends.client.receive(), None, "{between:?}");
        drop(ends.client);
        ends.chain.end();
    }
}

#[test]
fn the_end_of_the_client_comes_after_its_calls_are_answered() {
    for between in everywhere() {
        let mut ends = ends(between);
        ends.client.send(&call(10, 60_000));
        ends.server.expect(&call(10, 60_000));
        ends.server.send(&call(3, 8));
        ends.client.expect(&call(3, 8));
        drop(ends.client);
        // Another client comes meanwhile, and has a connection of its own.
        let mut other = Raw::connect(ends.chain.address());
        other.send(&call(10, 4));
        let mut others = Raw::accept(&ends.listener);
        others.expect(&call(10, 4));
        others.send(&reply(10, 0));
        other.expect(&reply(10, 0));
        ends.server.send(&reply(10, 70_000));
        assert_eq!(ends.server.receive(), None, "{between:?}");
        drop(other);
        assert_eq!(others.receive(), None);
        ends.chain.end();
    }
}

/// Either side is lost after so many records in each direction, at the boundary of a record or within one. Whatever
/// was answered arrives, the other side ends, and nothing is left.
#[test]
fn a_loss_of_either_side_at_any_moment_leaves_nothing_behind() {
    const CALLS: u32 = 5;
    for between in everywhere() {
        let (listener, address) = listener();
        let chain = Chain::of(between, address);
        for answered in 0..=CALLS {
            for (loses_client, cut) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let mut client = Raw::connect(chain.address());
                // Only its answer grants credits for others (RFC 8166, section 3.3.3).
                client.send(&call(1000, 0));
                let mut server = Raw::accept(&listener);
                server.expect(&call(1000, 0));
                server.send(&reply(1000, 0));
                client.expect(&reply(1000, 0));
                let len = |xid: u32| 9000 * (xid as usize % 3);
                let calls: Vec<_> = (1..=CALLS).map(|xid| call(xid, len(xid))).collect();
                for call in &calls {
                    client.send(call);
                }
                // Short ones may overtake those in chunks.
                server.expect_all(calls);
                for xid in 1..=answered {
                    server.send(&reply(xid, 9000 * (xid as usize % 2)));
                }
                if cut {
                    let lost = if loses_client {
                        &mut client
                    } else {
                        &mut server
                    };
                    lost.cut(&call(99, 30_000));
                }
                if loses_client {
                    drop(client);
                    // Unanswered calls keep the connection, so the server may answer them.
                    for xid in answered + 1..=CALLS {
                        server.send(&reply(xid, 4));
                    }
                    assert_eq!(server.receive(), None, "{between:?}");
                } else {
                    drop(server);
                    let replies = (1..=answered).map(|xid| reply(xid, 9000 * (xid as usize % 2)));
                    client.expect_all(replies.collect());
                    assert_eq!(client.receive(), None, "{between:?}");
                }
            }
        }
        drop(listener);
        chain.end();
    }
}

#[test]
fn a_server_that_cannot_be_reached_ends_the_client() {
    let (listener, address) = listener();
    drop(listener);
    for between in everywhere() {
        let chain = Chain::of(between, address);
        let mut client = Raw::connect(chain.address());
        client.send(&call(1, 0));
        assert_eq!(client.receive(), None, "{between:?}");
        drop(client);
        chain.end();
    }
}

#[test]
fn a_reply_that_nobody_asked_for_is_dropped() {
    for between in everywhere() {
        let mut ends = ends(between);
        ends.server.send(&reply(99, 8));
        ends.client.send(&call(98, 8));
        ends.server.expect(&call(98, 8));
        ends.server.send(&reply(98, 8));
        ends.server.send(&reply(98, 8));
        ends.client.expect(&reply(98, 8));
        ends.client.send(&call(97, 8));
        ends.server.expect(&call(97, 8));
        ends.server.send(&reply(97, 8));
        ends.client.expect(&reply(97, 8));
        let rests = ends.end();
        assert_eq!(rests.last().unwrap().stats.stray, 2, "{between:?}");
    }
}

#[test]
fn a_client_that_sends_no_calls_is_closed() {
    for garbage in [&[][..], &[1, 2, 3], &[0; 8], &reply(4, 8), &call(5, 6)] {
        let mut ends = ends(Over::Tcp);
        ends.client.send(garbage);
        if garbage.len() == 8 {
            // It begins as a call does. The server refuses it.
            ends.server.expect(garbage);
            drop(ends.server);
            assert_eq!(ends.client.receive(), None);
        } else {
            assert_eq!(ends.client.receive(), None);
            assert_eq!(ends.server.receive(), None);
        }
        drop(ends.client);
        ends.chain.end();
    }
}

#[test]
fn a_reply_of_a_length_that_xdr_does_not_have_is_an_error() {
    for between in everywhere() {
        let mut ends = ends(between);
        for len in [1, 5001, 70_002] {
            ends.client.send(&call(3, 0));
            ends.server.expect(&call(3, 0));
            ends.server.send(&reply(3, len));
            ends.client.expect(&system_error(3));
        }
        ends.end();
    }
}

#[test]
fn a_client_that_asks_for_tls_is_told_that_there_is_none() {
    let mut ends = ends(Over::Tcp);
    let words = [9, 0, 2, 100_003, 4, 0, 7, 0, 0, 0];
    let probe: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    ends.client.send(&probe);
    // MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
    let refusal: Vec<u8> = [9, 1, 1, 1, 1]
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    ends.client.expect(&refusal);
    ends.client.send(&call(3, 0));
    ends.server.expect(&call(3, 0));
    ends.server.send(&reply(3, 0));
    ends.client.expect(&reply(3, 0));
    ends.end();
}

#[test]
fn a_record_that_is_too_long_ends_the_pair() {
    // A record longer than may be is not even received.
    let long = (1u32 << 31 | 0x7fff_ffff).to_be_bytes();
    for from_server in [false, true] {
        let mut ends = ends(Over::Tcp);
        let by = if from_server {
            &mut ends.server
        } else {
            &mut ends.client
        };
        std::io::Write::write_all(&mut by.0, &long).unwrap();
        assert_eq!(ends.client.receive(), None);
        assert_eq!(ends.server.receive(), None);
        drop(ends.client);
        ends.chain.end();
    }
}

#[test]
fn a_reply_longer_than_its_room_is_an_error_to_the_client() {
    let (listener, address) = listener();
    let between = Over::all_rdma()[0];
    let last = Gateway::start(between, Over::Tcp, address);
    let mut options = RelayOptions::new(last.address);
    options.reducer.max_reply = 8000;
    let first = Gateway::start_with(Over::Tcp, between, options);
    let mut client = Raw::connect(first.address);
    client.send(&call(1, 0));
    let mut server = Raw::accept(&listener);
    server.expect(&call(1, 0));
    server.send(&reply(1, 9000));
    client.expect(&system_error(1));
    // The connection goes on.
    client.send(&call(2, 0));
    server.expect(&call(2, 0));
    server.send(&reply(2, 7000));
    client.expect(&reply(2, 7000));
    drop(client);
    assert_eq!(server.receive(), None);
    assert_eq!(first.end().stats.failed, 1);
    last.end();
}

#[test]
fn a_repeated_call_that_is_not_answered_ends_the_pair_in_time() {
    let (listener, address) = listener();
    let mut options = RelayOptions::new(address);
    options.repeated_after = Duration::from_millis(50);
    let gateway = Gateway::start_with(Over::Tcp, Over::Tcp, options);
    let mut client = Raw::connect(gateway.address);
    client.send(&call(1, 0));
    let mut server = Raw::accept(&listener);
    server.expect(&call(1, 0));
    client.send(&call(1, 0));
    assert_eq!(client.receive(), None);
    assert_eq!(server.receive(), None);
    drop(client);
    let rest = gateway.end();
    assert_eq!((rest.pairs, rest.in_use), (0, 0));
}

#[test]
fn a_server_that_calls_without_end_is_left() {
    let (listener, address) = listener();
    let mut options = RelayOptions::new(address);
    options.max_backward = 10;
    let gateway = Gateway::start_with(Over::Tcp, Over::Tcp, options);
    let mut client = Raw::connect(gateway.address);
    client.send(&call(1, 0));
    let mut server = Raw::accept(&listener);
    server.expect(&call(1, 0));
    server.send(&call(1, 0));
    client.expect(&call(1, 0));
    for xid in 2..=11 {
        server.send(&call(xid, 0));
    }
    // Those that had not left are taken back.
    let mut passed = 1;
    while let Some(record) = client.receive() {
        passed += 1;
        assert!(record == call(passed, 0) && passed <= 10);
    }
    assert_eq!(server.receive(), None);
    gateway.end();
}

/// A client that returns from the same address has the same port at the server, also while the server has not
/// answered its last call.
#[test]
fn a_client_that_returns_is_known_to_the_server_by_its_port() {
    let (listener, address) = listener();
    let gateway = Gateway::start(Over::Tcp, Over::Tcp, address);
    let port = TcpListener::bind(local())
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for answered in [true, false, true] {
        let mut client = Raw::connect_from(port, gateway.address);
        client.send(&call(1, 0));
        let mut server = Raw::accept(&listener);
        assert_eq!(server.0.peer_addr().unwrap().port(), port);
        server.expect(&call(1, 0));
        if answered {
            server.send(&reply(1, 0));
            client.expect(&reply(1, 0));
        }
        // Reset, so that this end has nothing in TIME_WAIT.
        drop(client);
    }
    gateway.end();
}

#[test]
fn a_stopped_gateway_answers_what_it_has_passed_on() {
    for between in everywhere() {
        let mut ends = ends(between);
        ends.client.send(&call(7, 0));
        ends.server.expect(&call(7, 0));
        let Ends {
            mut client,
            mut server,
            chain,
            ..
        } = ends;
        let stopping = std::thread::spawn(move || chain.end());
        server.send(&reply(7, 5000));
        client.expect(&reply(7, 5000));
        assert_eq!(client.receive(), None);
        drop(client);
        stopping.join().unwrap();
    }
}

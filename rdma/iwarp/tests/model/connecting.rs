//! Tests of connections that are established, refused, rejected or abandoned.

use std::net::SocketAddr;

use rdma::{ConnectError, Event, QpId, WorkError};

use super::world::{CLIENT, SERVER, World, accept_options, connect_options};

fn failed(world: &mut World, qp: QpId) -> ConnectError {
    world.wait(CLIENT, |event| match event {
        Event::ConnectFailed { qp: one, error } if *one == qp => Some(error.clone()),
        _ => None,
    })
}

#[test]
fn private_data_goes_both_ways() {
    let mut world = World::new();
    let address = world.address;
    let options = connect_options(b"what the client says");
    let client = world.device(CLIENT).connect(address, &options).unwrap();
    let request = world.requested();
    assert_eq!(request.listener, world.listener);
    assert!(!request.peer.ip().is_unspecified());
    // InfiniBand's connection manager pads it.
    assert!(request.private_data.starts_with(b"what the client says"));
    let server = world
        .device(SERVER)
        .prepare_accept(request.request, None)
        .unwrap();
    let options = accept_options(b"what the server says");
    world.device(SERVER).accept(server, &options).unwrap();
    let answer = world.established(CLIENT, client);
    assert!(answer.starts_with(b"what the server says"));
    assert!(world.established(SERVER, server).is_empty());
    world.close([client, server]);
    world.assert_nothing_held();
}

#[test]
fn a_rejection_says_why() {
    let mut world = World::new();
    let address = world.address;
    let client = world
        .device(CLIENT)
        .connect(address, &connect_options(b""))
        .unwrap();
    world.post_receives(CLIENT, client, 2, 100);
    let request = world.requested().request;
    world.device(SERVER).reject(request, b"not today").unwrap();
    let (_, flushed) = world.completed(CLIENT, client);
    let failure = flushed.unwrap_err();
    assert_eq!(
        (failure.error, failure.buf.unwrap().len()),
        (WorkError::Flushed, 100)
    );
    match failed(&mut world, client) {
        ConnectError::Rejected { private_data } => assert!(private_data.starts_with(b"not today")),
        other => panic!("{other:?}"),
    }
    assert!(
        world.device(SERVER).prepare_accept(request, None).is_err(),
        "it was answered"
    );
    world.assert_nothing_held();
}

#[test]
fn a_connection_without_a_listener_is_refused() {
    let mut world = World::new();
    let listener = world.listener;
    let address: SocketAddr = world.address;
    world.device(SERVER).close_listener(listener);
    let client = world
        .device(CLIENT)
        .connect(address, &connect_options(b""))
        .unwrap();
    assert_eq!(failed(&mut world, client), ConnectError::Refused);
}

#[test]
fn a_request_that_nobody_answers_is_given_up() {
    let mut world = World::new();
    let address = world.address;
    let mut options = connect_options(b"");
    options.timeout = std::time::Duration::from_millis(300);
    let client = world.device(CLIENT).connect(address, &options).unwrap();
    let request = world.requested().request;
    assert_eq!(failed(&mut world, client), ConnectError::TimedOut);
    // Frees the server's resources, whether it has been notified or not.
    if let Ok(server) = world.device(SERVER).prepare_accept(request, None) {
        world.device(SERVER).destroy(server);
    }
    world.assert_nothing_held();
}

#[test]
fn a_message_can_come_with_the_connection() {
    let mut world = World::new();
    for _ in 0..10 {
        let address = world.address;
        let client = world
            .device(CLIENT)
            .connect(address, &connect_options(b""))
            .unwrap();
        world.post_receives(CLIENT, client, 1, 64);
        let request = world.requested().request;
        let server = world.device(SERVER).prepare_accept(request, None).unwrap();
        world.post_receives(SERVER, server, 1, 64);
        world
            .device(SERVER)
            .accept(server, &accept_options(b""))
            .unwrap();
        world.established(CLIENT, client);
        // Sent at once, when the server may not have been notified yet.
        world.message(CLIENT, [client, server], b"first");
        let events = &world.sides[SERVER].events;
        let established = |event: &Event| matches!(event, Event::Established { .. });
        assert!(
            events.iter().any(established),
            "told before the message: {events:?}"
        );
        world.established(SERVER, server);
        world.close([client, server]);
    }
    world.assert_nothing_held();
}

#[test]
fn many_connections_at_once() {
    let mut world = World::new();
    let all: Vec<_> = (0..20).map(|_| world.connected(3, 64)).collect();
    for &qps in &all {
        world.message(CLIENT, qps, b"there");
        world.message(SERVER, qps, b"and back");
    }
    for qps in all {
        world.close(qps);
    }
    world.assert_nothing_held();
}

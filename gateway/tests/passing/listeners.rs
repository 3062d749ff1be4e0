//! Gateways with several listeners, and their limit on clients.

use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rpc_transport::{Stop, TcpClient, TcpOptions, TcpServer};
use rpcrdma_gateway::{Relay, RelayOptions, RelayStats};

use crate::listener;
use crate::support::{Raw, call, local, reply};

/// A gateway from two ports over TCP to a server over TCP.
struct Two {
    ports: [SocketAddr; 2],
    stop: Stop,
    thread: JoinHandle<(RelayStats, usize)>,
}

impl Two {
    fn start(options: RelayOptions) -> Self {
        let stop = Stop::new();
        let stopped = stop.clone();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let outgoing = TcpClient::new(TcpOptions::default());
            let mut relay = Relay::new(options, Rc::new(RefCell::new(outgoing))).unwrap();
            let ports = [(); 2].map(|()| {
                let port = TcpServer::bind(local(), TcpOptions::default()).unwrap();
                let address = port.local_addr();
                relay.listen(Rc::new(RefCell::new(port))).unwrap();
                address
            });
            tell.send(ports).unwrap();
            relay.run(&stopped).unwrap();
            relay.drain(Duration::from_secs(5)).unwrap();
            (relay.stats(), relay.pairs())
        });
        Self {
            ports: told.recv().unwrap(),
            stop,
            thread,
        }
    }

    /// Ends it. Nothing may be left.
    fn end(self) -> RelayStats {
        self.stop.stop();
        let (stats, pairs) = self.thread.join().unwrap();
        assert_eq!(pairs, 0);
        stats
    }
}

/// Makes a call, and returns the connection by which the server got it.
fn first_call(client: &mut Raw, xid: u32, listener: &TcpListener) -> Raw {
    client.send(&call(xid, 0));
    let mut server = Raw::accept(listener);
    server.expect(&call(xid, 0));
    server.send(&reply(xid, 0));
    client.expect(&reply(xid, 0));
    server
}

#[test]
fn a_client_may_connect_from_one_port_to_several_listeners() {
    let (listener, address) = listener();
    let gateway = Two::start(RelayOptions::new(address));
    let [one, other] = gateway.ports;
    let mut bystander = Raw::connect(other);
    let mut bystanders = first_call(&mut bystander, 1, &listener);
    let port = TcpListener::bind(local())
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut clients = [one, other].map(|to| Raw::connect_from(port, to));
    let mut servers = [0, 1].map(|n| first_call(&mut clients[n], 2, &listener));
    for (client, server) in clients.iter_mut().zip(&mut servers) {
        client.send(&call(3, 8));
        server.expect(&call(3, 8));
        server.send(&reply(3, 8));
        client.expect(&reply(3, 8));
    }
    bystander.send(&call(4, 8));
    bystanders.expect(&call(4, 8));
    bystanders.send(&reply(4, 8));
    bystander.expect(&reply(4, 8));
    drop((clients, bystander));
    for mut server in servers.into_iter().chain([bystanders]) {
        assert_eq!(server.receive(), None);
    }
    assert_eq!(gateway.end().clients, 3);
}

/// Idle clients do not keep others out, and those that work stay.
#[test]
fn a_client_beyond_the_limit_replaces_one_that_is_idle() {
    let (listener, address) = listener();
    let options = RelayOptions {
        max_pairs: 2,
        fresh: Duration::ZERO,
        ..RelayOptions::new(address)
    };
    let gateway = Two::start(options);
    let [one, other] = gateway.ports;
    let mut first = Raw::connect(one);
    let mut first_server = first_call(&mut first, 1, &listener);
    let mut silent = Raw::connect(other);
    let mut silent_server = Raw::accept(&listener);
    // It comes in place of the one that has made no call.
    let mut second = Raw::connect(other);
    let mut second_server = first_call(&mut second, 2, &listener);
    assert_eq!((silent.receive(), silent_server.receive()), (None, None));
    // The one that called first has a call in progress, so the other one has to go.
    first.send(&call(3, 0));
    first_server.expect(&call(3, 0));
    let mut third = Raw::connect(one);
    let mut third_server = first_call(&mut third, 4, &listener);
    assert_eq!((second.receive(), second_server.receive()), (None, None));
    // If all have calls in progress, nobody goes.
    third.send(&call(5, 0));
    third_server.expect(&call(5, 0));
    assert_eq!(Raw::connect(other).receive(), None);
    first_server.send(&reply(3, 0));
    first.expect(&reply(3, 0));
    third_server.send(&reply(5, 0));
    third.expect(&reply(5, 0));
    drop((first, third));
    assert_eq!(
        (first_server.receive(), third_server.receive()),
        (None, None)
    );
    let stats = gateway.end();
    assert_eq!((stats.clients, stats.replaced, stats.full), (4, 2, 1));
}

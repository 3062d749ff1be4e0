//! Addresses that cases connect to.
#![allow(
    clippy::unwrap_used,
    reason = "a test may panic; the lint exempts test functions, but not their helpers"
)]

mod common;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma_conform::cases;
use rpcrdma_conform::dialect::Dialect;
use rpcrdma_conform::judge::{Selection, judge};
use rpcrdma_conform::run::Server;
use rpcrdma_conform::watch::{Watch, Watcher};

use common::Served;

/// The other ends of all connections, and the number of connections that have ended.
#[derive(Clone, Default)]
struct Others(Arc<Mutex<(HashSet<SocketAddr>, usize)>>);

impl Watch for Others {
    fn bytes(&mut self, _: u64, ends: [SocketAddr; 2], _: bool, _: &[u8]) {
        self.0.lock().unwrap().0.insert(ends[1]);
    }

    fn ended(&mut self, _: u64) {
        self.0.lock().unwrap().1 += 1;
    }

    fn packets(&self) -> u64 {
        0
    }
}

#[test]
fn all_connections_are_to_the_server_s_address() {
    let served = Served::start(4096);
    let cases = cases::all(&served.ground());
    let others = Others::default();
    let server = Server {
        address: served.address,
        patience: Duration::from_secs(30),
        watcher: Some(Watcher::new(Box::new(others.clone()))),
        dial: None,
    };
    let selection = Selection {
        only: vec![Dialect::One.group().into()],
        ..Selection::default()
    };
    let report = judge(&cases, &selection, &server, &mut |_| true);
    assert_eq!(report.status(true), 0);
    let found = others.0.lock().unwrap();
    assert_eq!(found.0, HashSet::from([served.address]));
    assert!(found.1 >= report.entries.len(), "{}", found.1);
}

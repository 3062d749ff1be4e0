//! A policy of granting that shares its credits among the connections of a server: one that waits gets
//! more as soon as another one needs less.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::sync::{Arc, Mutex};

use rdma_support::{Pair, message, open, reply, room, speaking};
use rpc_transport::rdma::{
    AskAgain, Choice, Demand, GrantEvent, GrantPolicy, MakeGrantPolicy, Version, Versions,
};
use rpc_transport::{ConnectionId, PollSource, ServerTransport};
use rpcrdma_connection::Side;

/// The credits of each of two connections, if both are busy.
const HALF: u32 = 4;

/// The connections with calls in progress, and the handles of all.
#[derive(Debug, Default)]
struct All {
    busy: Vec<bool>,
    again: Vec<AskAgain>,
    /// How often a policy was asked again.
    asked_again: usize,
}

/// Grants [`HALF`] while another connection has calls in progress, and twice as much otherwise.
#[derive(Clone, Debug, Default)]
struct Halves(Arc<Mutex<All>>);

#[derive(Debug)]
struct Half(Halves, usize);

impl GrantPolicy for Half {
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32 {
        let Self(Halves(all), own) = self;
        let mut all = all.lock().unwrap();
        all.asked_again += usize::from(matches!(event, GrantEvent::AskedAgain));
        let was_busy = std::mem::replace(&mut all.busy[*own], demand.calls > 0);
        if was_busy && demand.calls == 0 {
            all.again.iter().for_each(AskAgain::ask);
        }
        let mut others = all.busy.iter().enumerate();
        match others.any(|(at, busy)| at != *own && *busy) {
            true => HALF,
            false => 2 * HALF,
        }
    }

    fn set_ask_again(&mut self, again: AskAgain) {
        self.0.0.lock().unwrap().again.push(again);
    }
}

impl Halves {
    fn ask_all(&self) {
        self.0.lock().unwrap().again.iter().for_each(AskAgain::ask);
    }

    fn asked_again(&self) -> usize {
        self.0.lock().unwrap().asked_again
    }
}

impl MakeGrantPolicy for Halves {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        let mut all = self.0.lock().unwrap();
        all.busy.push(false);
        Box::new(Half(self.clone(), all.busy.len() - 1))
    }
}

fn held(pair: &Pair, conn: ConnectionId) -> usize {
    pair.held.iter().filter(|(at, ..)| *at == conn).count()
}

fn submit(pair: &mut Pair, conn: ConnectionId, xids: std::ops::Range<u32>) {
    for xid in xids {
        pair.submit(conn, message(xid, 0, &[]), &room(0, &[]));
    }
    pair.settle();
}

/// Answers the oldest call that the server has of a connection.
fn answer_one(pair: &mut Pair, conn: ConnectionId) {
    let at = pair.held.iter().position(|(of, ..)| *of == conn).unwrap();
    let (conn, token, call) = pair.held.remove(at);
    let answer = reply(open(&call).0, 0, &[]);
    pair.server.reply(conn, token, Some(answer), pair.now());
}

/// A client has as many calls in progress as it was granted beside a busy one. When that one is idle, the
/// server grants more without a reply, and before it sleeps.
#[test]
fn a_client_that_waits_is_granted_more_when_another_one_is_idle() {
    let version = Version::TWO_WG;
    let (client, mut server) = speaking(Choice::Only(version), Versions::only(version));
    let halves = Halves::default();
    server.common.grants = Arc::new(halves.clone());
    let (world, mut pair) = Pair::fake_with(client, server, rdma_support::fabric::attributes());
    let one = pair.connect();
    let busy = pair.server_up[0];
    submit(&mut pair, one, 1..2);
    let other = pair.connect();
    let waiting = pair.server_up[1];
    submit(&mut pair, other, 1..20);
    assert_eq!(held(&pair, waiting), HALF as usize);
    let granted = pair.server.grants_sent();
    answer_one(&mut pair, busy);
    assert!(
        !pair.server.arm(),
        "a policy is to be asked before the server sleeps"
    );
    pair.settle();
    assert_eq!(pair.server.grants_sent(), granted + 1);
    assert_eq!(held(&pair, waiting), 2 * HALF as usize);
    while !pair.held.is_empty() {
        let (conn, ..) = pair.held[0];
        answer_one(&mut pair, conn);
        pair.settle();
    }
    assert_eq!(pair.ended.len(), 20);
    // Regression test: what connections had counted was forgotten with them.
    let counted = pair.server.statistics().grants_sent;
    assert!(counted > granted);
    world.borrow_mut().lose_all();
    pair.until(|pair| pair.server_down.len() == 2);
    assert_eq!(pair.server.statistics().grants_sent, counted);
}

/// Handles outlive their connections, which are not asked any more.
#[test]
fn a_connection_that_has_ended_is_not_asked() {
    let version = Version::TWO_WG;
    let (client, mut server) = speaking(Choice::Only(version), Versions::only(version));
    let halves = Halves::default();
    server.common.grants = Arc::new(halves.clone());
    let (_world, mut pair) = Pair::fake_with(client, server, rdma_support::fabric::attributes());
    let conn = pair.connect();
    submit(&mut pair, conn, 1..2);
    halves.ask_all();
    pair.settle();
    assert_eq!(halves.asked_again(), 1, "the connection is there");
    let at_server = pair.server_up[0];
    pair.server.close(at_server);
    halves.ask_all();
    pair.settle();
    halves.ask_all();
    pair.settle();
    assert_eq!(halves.asked_again(), 1);
    assert!(pair.server.arm(), "nothing is left to do");
}

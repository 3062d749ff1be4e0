//! A client of a run with relays.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use onc_rpc::Message;
use rdma::Time;
use rdma_sim::{Fabric, NodeId, Random};
use rpc_transport::{ClientTransport, ClientTransportEvent, ConnectionId};

use super::callbacks::Callbacks;
use super::calls::{Exchange, is_system_error};
use crate::server::STEPS;

/// The maximum number of calls of a client that are not answered.
const MOST_OUTSTANDING: usize = 8;
/// The maximum pause of a client before it connects again.
const PAUSE: Duration = Duration::from_millis(2);

/// The state of a call at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// To be made, or made again.
    Waiting,
    /// Made on the present connection.
    Made,
    /// Answered: the reply has arrived.
    Answered,
}

/// The rules of a client.
#[derive(Clone)]
pub(super) struct Rules {
    /// The number of items of a call that it holds apart.
    pub(super) max_items: usize,
    /// Whether a call may be answered with SYSTEM_ERR. It is made again.
    pub(super) may_be_refused: bool,
    /// The calls of the server, if there are any.
    pub(super) callbacks: Option<Callbacks>,
    /// The maximum time that it takes for one.
    pub(super) longest: Duration,
}

/// A call of the server that is to be answered.
struct Owed {
    at: Time,
    conn: ConnectionId,
    token: u64,
    index: usize,
}

/// A client that makes calls again over another connection until each is answered.
pub(super) struct Caller {
    pub(super) node: NodeId,
    /// Its number.
    client: usize,
    port: Box<dyn ClientTransport>,
    rules: Rules,
    relay: SocketAddr,
    random: Random,
    exchanges: Vec<Exchange>,
    progress: Vec<Progress>,
    /// Number of times that each call was made.
    made: Vec<u64>,
    conn: Option<ConnectionId>,
    is_connected: bool,
    /// Time of the next attempt to connect, if there is no connection.
    again: Time,
    /// Time until which it makes no calls, as one was refused.
    refused_until: Time,
    /// The number of connections that were established.
    pub(super) connections: u64,
    /// Whether a connection has ended since somebody last looked.
    pub(super) has_lost: bool,
    /// The indexes of the calls of the server that have arrived.
    pub(super) called: BTreeSet<usize>,
    /// Callbacks that are to be answered.
    owed: Vec<Owed>,
    /// Violations found, not yet reported.
    pub(super) wrong: Vec<String>,
}

impl Caller {
    pub(super) fn new(
        (client, node): (usize, NodeId),
        (port, rules): (Box<dyn ClientTransport>, Rules),
        relay: SocketAddr,
        exchanges: Vec<Exchange>,
        random: Random,
    ) -> Self {
        Self {
            node,
            client,
            port,
            rules,
            relay,
            random,
            progress: vec![Progress::Waiting; exchanges.len()],
            made: vec![0; exchanges.len()],
            exchanges,
            conn: None,
            is_connected: false,
            again: Time::ZERO,
            refused_until: Time::ZERO,
            connections: 0,
            has_lost: false,
            called: BTreeSet::new(),
            owed: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Returns the indexes of the calls that are answered.
    pub(super) fn answered(&self) -> BTreeSet<usize> {
        let each = self.progress.iter().enumerate();
        let answered = each.filter(|(_, progress)| **progress == Progress::Answered);
        answered.map(|(index, _)| index).collect()
    }

    /// Returns how often the call with this index was made.
    pub(super) fn made(&self, index: usize) -> u64 {
        self.made[index]
    }

    /// Returns whether its present connection is established.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Returns whether all calls are answered.
    pub(super) fn is_done(&self) -> bool {
        self.progress.iter().all(|it| *it == Progress::Answered)
    }

    /// Closes the connection, with what is outstanding on it.
    pub(super) fn close(&mut self, fabric: &Fabric) {
        if let Some(conn) = self.conn.take() {
            self.port.close(conn);
            self.ended(fabric.now());
            fabric.turn_at(self.node, fabric.now());
        }
    }

    pub(super) fn turn(&mut self, fabric: &Fabric) {
        let now = fabric.now();
        for _ in 0..STEPS {
            let mut progress = self.port.poll(now);
            while let Some(event) = self.port.next_event() {
                progress = true;
                self.handle(event, now);
            }
            if self.conn.is_none() && now >= self.again && !self.is_done() {
                self.conn = Some(self.port.open(self.relay, 1, now));
                progress = true;
            }
            progress |= self.make_calls(now);
            progress |= self.answer_calls(now);
            if progress {
                self.port.flush();
            } else if self.port.arm() {
                let again = (self.conn.is_none() && !self.is_done()).then_some(self.again);
                let owed = self.owed.iter().map(|owed| owed.at);
                let refused = Some(self.refused_until).filter(|until| *until > now);
                let next = self.port.next_deadline().into_iter();
                let next = next.chain(again).chain(refused);
                if let Some(at) = next.chain(owed).min() {
                    fabric.turn_at(self.node, at);
                }
                return;
            }
        }
        fabric.turn_at(self.node, now);
    }

    /// Makes calls on an established connection. Returns whether there were any to make.
    fn make_calls(&mut self, now: Time) -> bool {
        let may_call = self.is_connected && now >= self.refused_until;
        let Some(conn) = self.conn.filter(|_| may_call) else {
            return false;
        };
        let made = self.progress.iter().filter(|it| **it == Progress::Made);
        let room = MOST_OUTSTANDING.saturating_sub(made.count());
        let each = self.progress.iter().enumerate();
        let waiting = each.filter(|(_, progress)| **progress == Progress::Waiting);
        let next: Vec<usize> = waiting.map(|(index, _)| index).take(room).collect();
        for &index in &next {
            self.progress[index] = Progress::Made;
            self.made[index] += 1;
            let exchange = self.exchanges[index];
            let most = self.rules.max_items;
            let (call, room) = (exchange.call(most), exchange.room(most));
            self.port.submit(conn, exchange.xid, call, &room, now);
        }
        !next.is_empty()
    }

    /// Answers calls of the server that are due. Returns whether there were any.
    fn answer_calls(&mut self, now: Time) -> bool {
        let due: Vec<Owed> = self.owed.extract_if(.., |owed| owed.at <= now).collect();
        let Some(callbacks) = &self.rules.callbacks else {
            return false;
        };
        for owed in &due {
            let reply = callbacks.nth(self.client, owed.index).reply();
            self.port.reply(owed.conn, owed.token, Some(reply), now);
        }
        !due.is_empty()
    }

    /// Handles a call of the server, which must be one to this client, and none that has come before.
    fn called(&mut self, conn: ConnectionId, token: u64, message: &Message, now: Time) {
        let Some(callbacks) = &self.rules.callbacks else {
            return self.wrong.push("the server calls".to_owned());
        };
        let index = match Exchange::origin(message) {
            Some((client, index)) if client == self.client => index,
            other => return self.wrong.push(format!("a callback of {other:?}")),
        };
        if !callbacks.nth(self.client, index).is_call(message) {
            self.wrong.push(format!("callback {index} was changed"));
        }
        if !self.called.insert(index) {
            self.wrong.push(format!("callback {index} twice"));
        }
        let at = now + self.random.duration(self.rules.longest);
        self.owed.push(Owed {
            at,
            conn,
            token,
            index,
        });
    }

    fn handle(&mut self, event: ClientTransportEvent, now: Time) {
        match event {
            ClientTransportEvent::Connected(_) => {
                self.connections += 1;
                self.is_connected = true;
            }
            ClientTransportEvent::Reply { xid, message, .. } => {
                let index = Exchange::index(xid).filter(|index| *index < self.exchanges.len());
                let Some(index) = index else {
                    let what = format!("a reply with XID {xid:#x}, which no call has");
                    return self.wrong.push(what);
                };
                if self.rules.may_be_refused && is_system_error(&message) {
                    self.progress[index] = Progress::Waiting;
                    self.refused_until = now + PAUSE;
                    return;
                }
                if !self.exchanges[index].is_reply(&message) {
                    let error = is_system_error(&message);
                    let what = if error { "SYSTEM_ERR" } else { "another reply" };
                    self.wrong.push(format!("{what} to call {index}"));
                }
                if self.progress[index] != Progress::Made {
                    let what = format!("a reply to call {index}, which waits for none");
                    self.wrong.push(what);
                }
                self.progress[index] = Progress::Answered;
            }
            ClientTransportEvent::Failed { xid, error, .. } => {
                self.wrong.push(format!("call {xid:#x} failed: {error}"));
            }
            ClientTransportEvent::Call {
                conn,
                token,
                message,
            } => self.called(conn, token, &message, now),
            ClientTransportEvent::Disconnected { .. } => {
                self.conn = None;
                self.ended(now);
            }
        }
    }

    /// Handles the end of a connection, or of the attempt to make one.
    fn ended(&mut self, now: Time) {
        self.has_lost |= std::mem::take(&mut self.is_connected);
        // Its calls have ended with the connection.
        self.owed.clear();
        self.again = now + self.random.duration(PAUSE);
        for progress in &mut self.progress {
            if *progress == Progress::Made {
                *progress = Progress::Waiting;
            }
        }
    }
}

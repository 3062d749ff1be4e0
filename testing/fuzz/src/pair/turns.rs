//! The events of the transports, and the checks at the end of a run.

use rpc_transport::{CallError, ClientTransportEvent, PollSource, ServerTransportEvent};

use super::*;

/// The maximum number of turns until no more events arise: a message needs one at each end.
const TURNS: usize = 24;
/// The maximum number of [`Run::settle`] until every call has ended: receives are replaced, and
/// memory and credits are released.
const ROUNDS: usize = 12 * MOST_CALLS;

impl Run {
    /// Handles the client's events. Returns whether there were any.
    pub(super) fn client_turn(&mut self) -> bool {
        self.client.poll(self.now);
        let mut any = false;
        while let Some(event) = self.client.next_event() {
            any = true;
            match event {
                ClientTransportEvent::Connected(conn) => {
                    if let Some(known) = self.conn.as_mut().filter(|(known, _)| *known == conn) {
                        known.1 = true;
                    }
                    self.introduced(conn);
                }
                ClientTransportEvent::Reply { xid, message, .. } => {
                    self.ended(false, xid, Ok(&message));
                }
                ClientTransportEvent::Failed { xid, error, .. } => {
                    self.ended(false, xid, Err(&error))
                }
                ClientTransportEvent::Call {
                    conn,
                    token,
                    message,
                } => self.back.held.push((conn, token, message)),
                ClientTransportEvent::Disconnected { conn, lost } => {
                    // Versions that do not go together, or nobody heard of each other in time.
                    let strangers = !lost.retry || self.now > Time::ZERO;
                    assert!(self.is_troubled() || strangers, "it ended: {lost}");
                    self.gone(conn);
                }
            }
        }
        any
    }

    /// Records the credits of a new connection: in version 2 the server has granted them, in
    /// version 1 its first reply will (RFC 8166, section 3.3.3).
    fn introduced(&mut self, conn: ConnectionId) {
        let action = self.client.decision(conn).map(|decision| decision.action);
        let settled =
            [Version::TWO, Version::TWO_WG].map(|version| Some(VersionAction::Use(version)));
        if settled.contains(&action) {
            let credits = if self.groups { 1 } else { self.forward.credits };
            self.forward.granted.insert(conn, credits);
        }
    }

    /// Records that the client's connection has ended.
    fn gone(&mut self, conn: ConnectionId) {
        if self.conn.is_some_and(|(known, _)| known == conn) {
            self.conn = None;
        }
        self.back.held.retain(|(at, ..)| *at != conn);
        for made in self.forward.made.values_mut() {
            made.over |= made.conn == conn;
        }
    }

    pub(super) fn server_turn(&mut self) -> bool {
        self.server.poll(self.now);
        let mut any = false;
        while let Some(event) = self.server.next_event() {
            any = true;
            match event {
                ServerTransportEvent::Connected { conn, .. } => self.server_conn = Some(conn),
                ServerTransportEvent::Call {
                    conn,
                    token,
                    message,
                } => self.forward.held.push((conn, token, message)),
                ServerTransportEvent::Reply { xid, message, .. } => {
                    self.ended(true, xid, Ok(&message))
                }
                ServerTransportEvent::Failed { xid, error, .. } => {
                    self.ended(true, xid, Err(&error))
                }
                ServerTransportEvent::Disconnected { conn, .. } => {
                    if self.server_conn == Some(conn) {
                        self.server_conn = None;
                    }
                    self.forward.held.retain(|(at, ..)| *at != conn);
                    for made in self.back.made.values_mut() {
                        made.over |= made.conn == conn;
                    }
                }
                ServerTransportEvent::Lost { reason } => {
                    panic!("nobody removes a device: {reason}")
                }
            }
        }
        any
    }

    fn ended(&mut self, back: bool, xid: u32, outcome: Result<&Message, &CallError>) {
        let honest = !self.is_troubled();
        let calls = if back {
            &mut self.back
        } else {
            &mut self.forward
        };
        calls.over(xid);
        let made = calls.made.get(&xid).expect("a call that was made");
        match outcome {
            Err(error) => assert!(!honest || made.may_fail, "call {xid:#x} failed: {error}"),
            Ok(reply) => {
                assert_eq!(onc_rpc::peek_xid(reply), Some(xid));
                assert!(reply.stream_len() <= 2 * u64::from(MAX_MESSAGE));
                if honest && !made.may_fail {
                    let same = is_message(reply, REPLY, xid, made.words, &made.items);
                    assert!(same, "another's reply");
                }
            }
        }
    }

    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..TURNS {
            let any = self.server_turn() | self.client_turn();
            quiet = if any { 0 } else { quiet + 1 };
            if quiet > 4 {
                return;
            }
        }
    }

    /// Closes the client's connection, and with it ends its calls.
    pub(super) fn close(&mut self) {
        if let Some((conn, _)) = self.conn.take() {
            self.troubled = true;
            self.client.close(conn);
            self.gone(conn);
        }
    }

    /// Completes all outstanding work without errors, checks that every call has ended, and ends
    /// the connections.
    pub(super) fn finish(&mut self) {
        self.ballast = [Vec::new(), Vec::new()];
        self.world.borrow_mut().stalled = None;
        self.world.borrow_mut().tamper = None;
        for _ in 0..ROUNDS {
            self.settle();
            let held = self.forward.held.len() + self.back.held.len();
            while !self.forward.held.is_empty() {
                self.answer(false, 0, Answer::Echo);
            }
            while !self.back.held.is_empty() {
                self.answer(true, 0, Answer::Echo);
            }
            if held == 0 && self.waiting().next().is_none() {
                break;
            }
            self.now = self.now + Duration::from_millis(2);
        }
        self.check();
        if !self.is_troubled() {
            let open: Vec<u32> = self.waiting().collect();
            assert!(open.is_empty(), "calls {open:#x?} never ended");
        }
        self.close();
        for _ in 0..4 {
            self.settle();
            // Longer than anybody waits for the end of a connection.
            self.now = self.now + Duration::from_secs(8);
        }
        assert_eq!(self.server_conn, None, "the server keeps a connection");
        assert_eq!(self.client.connections().count(), 0);
        assert!(self.forward.held.is_empty() && self.back.held.is_empty());
        for node in [CLIENT, SERVER] {
            let left = self.world.borrow().reachable(node);
            assert!(left.is_empty(), "{left:?} stays in reach");
        }
    }

    /// Returns the XIDs of the calls of both directions that have not ended but must end.
    fn waiting(&self) -> impl Iterator<Item = u32> {
        self.forward.waiting().chain(self.back.waiting())
    }
}

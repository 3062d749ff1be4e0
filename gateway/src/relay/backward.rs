//! Calls from server to client (RFC 8167, RFC 8881).

use onc_rpc::{CALL, Message, peek_start};
use rdma::Time;
use rpc_transport::{CallError, ConnectionId};

use super::Relay;
use super::forward::{is_xdr, prepared, refusal, system_error};
use crate::calls::{Arrived, Ended, Passed};
use crate::reduction::Direction;

impl Relay {
    /// Handles a call of the server.
    pub(super) fn server_called(
        &mut self,
        conn: ConnectionId,
        token: u64,
        message: Message,
        now: Time,
    ) {
        let Some(&key) = self.by_server.get(&conn) else {
            return;
        };
        let pair = &mut self.pairs[key];
        pair.replied_to_server = false;
        let start = peek_start(&message).filter(|_| is_xdr(&message) && pair.client.is_some());
        let Some((xid, CALL)) = start else {
            return self.outgoing.borrow_mut().reply(conn, token, None, now);
        };
        if pair.backward.outstanding() >= self.options.max_backward {
            return self.leave_server(
                key,
                "the server goes on calling, and its calls are not answered",
                now,
            );
        }
        let call = Arrived {
            xid,
            token,
            message,
        };
        match pair.backward.contains(xid) {
            true => {
                self.stats.repeated += 1;
                pair.backward.hold(call, now);
            }
            false => {
                pair.traced.arrived_back(xid);
                self.pass_back(key, call, now);
            }
        }
        self.set_timer(key);
    }

    fn pass_back(&mut self, key: usize, call: Arrived, now: Time) {
        let pair = &mut self.pairs[key];
        let (Some(client), Some(server)) = (pair.client, pair.server) else {
            return;
        };
        let xid = call.xid;
        let reduced = pair.reducer.call(Direction::Backward, call.message);
        if let Some(refusal) = refusal(xid, &reduced) {
            self.stats.misplaced += 1;
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.reply(server, call.token, Some(refusal), now);
            return pair.traced.answered_back(xid);
        }
        if let Some(kinds) = &mut self.kinds {
            let call = (&reduced.message, &reduced.room);
            kinds.called(Direction::Backward, &reduced.kind, call, || {
                Some("from server to client".to_owned())
            });
        }
        pair.traced.passed_back(xid, &reduced);
        let mut transport = self.incoming[pair.transport].borrow_mut();
        match transport.call(client, xid, reduced.message, &reduced.room, now) {
            Ok(()) => {
                self.stats.backward_calls += 1;
                let passed = Passed {
                    token: call.token,
                    remembered: reduced.remembered,
                    kind: self.kinds.is_some().then_some(reduced.kind),
                    reserved: 0,
                };
                pair.backward.pass(xid, passed, now);
            }
            Err(error) => {
                self.stats.failed += 1;
                rpcrdma_host::limited!(
                    warn, client = %pair.address(), xid, %error, "call of the server answered with SYSTEM_ERR"
                );
                let mut outgoing = self.outgoing.borrow_mut();
                outgoing.reply(server, call.token, Some(system_error(xid)), now);
                pair.traced.replied_back(xid, true);
                pair.traced.answered_back(xid);
            }
        }
    }

    /// Passes the client's reply to a call of the server on, or says that there is none.
    pub(super) fn client_replied(
        &mut self,
        at: (usize, ConnectionId),
        xid: u32,
        result: Result<Message, CallError>,
        now: Time,
    ) {
        let Some(key) = self.key_of(at) else {
            return;
        };
        let pair = &mut self.pairs[key];
        let Some(Ended { passed, held }) = pair.backward.end(xid) else {
            self.stats.stray += 1;
            return;
        };
        let mut failed = false;
        let reply = match prepared(&mut pair.reducer, passed.remembered, result) {
            Ok(reply) => {
                self.stats.backward_replies += 1;
                reply
            }
            Err(error) => {
                self.stats.failed += 1;
                rpcrdma_host::limited!(
                    warn, client = %pair.address(), xid, error, "call of the server answered with SYSTEM_ERR"
                );
                failed = true;
                system_error(xid)
            }
        };
        pair.traced.replied_back(xid, failed);
        if let (Some(kinds), Some(kind)) = (&mut self.kinds, &passed.kind) {
            kinds.replied(Direction::Backward, kind, &reply);
        }
        if let Some(server) = pair.server {
            pair.replied_to_server = true;
            let mut outgoing = self.outgoing.borrow_mut();
            outgoing.reply(server, passed.token, Some(reply), now);
            pair.traced.answered_back(xid);
        }
        let mut held = held.into_iter();
        if let Some(next) = held.next() {
            self.pairs[key].traced.arrived_back(xid);
            self.pass_back(key, next, now);
        }
        for later in held {
            match self.pairs[key].backward.contains(xid) {
                true => self.pairs[key].backward.hold(later, now),
                // The one before could not be passed.
                false => self.pass_back(key, later, now),
            }
        }
        self.set_timer(key);
    }
}

//! Calls from client to server.

use onc_rpc::{AcceptStatus, AuthStat, CALL, Decoder, Message, ReplyBody, ReplyHeader, peek_start};
use rdma::Time;
use rpc_transport::{CallError, ConnectionId};

use super::Relay;
use crate::calls::{Arrived, Ended, Passed};
use crate::pair::{Ready, reply_bytes};
use crate::reduction::{Direction, ReducedCall, Reducer, RememberedCall, WholeReason};

/// Returns the reply that says that a call could not be passed on, or its reply. It has no verifier.
pub(super) fn system_error(xid: u32) -> Message {
    Message::from_payload(ReplyHeader::accepted(xid, AcceptStatus::SystemErr).encode())
}

/// Returns the refusal of a call in which the requester has put into a chunk what is not DDP-eligible (RFC 8166,
/// section 6.1), or `None` if it has not.
pub(super) fn refusal(xid: u32, call: &ReducedCall) -> Option<Message> {
    let misplaced = call.kind.whole == Some(WholeReason::Misplaced);
    let refusal = || ReplyHeader::accepted(xid, AcceptStatus::GarbageArgs).encode();
    misplaced.then(|| Message::from_payload(refusal()))
}

/// The flavor of the credential by which a client asks whether the rest of its connection may be encrypted
/// (RFC 9289, section 4.1).
const AUTH_TLS: u32 = 7;

/// Returns whether a call asks for TLS on its connection.
fn asks_for_tls(call: &Message) -> bool {
    let mut words = Decoder::new(call);
    let before = (0..6).all(|_| words.u32().is_ok());
    before && words.u32() == Ok(AUTH_TLS)
}

/// Returns whether the length of a message is one that XDR has (RFC 4506, section 3). Chunks could not carry
/// another one.
pub(super) fn is_xdr(message: &Message) -> bool {
    message.stream_len().is_multiple_of(4)
}

/// Prepares a reply, or says why it cannot be passed on.
pub(super) fn prepared(
    reducer: &mut Reducer,
    remembered: RememberedCall,
    result: Result<Message, CallError>,
) -> Result<Message, String> {
    let reply = result.map_err(|error| error.to_string())?;
    if !is_xdr(&reply) {
        return Err("its length is not one of XDR".to_owned());
    }
    let reduced = reducer.reply(remembered, reply);
    reduced.map_err(|error| error.to_string())
}

impl Relay {
    /// Handles a message of a client that is not a reply to a call of the server.
    pub(super) fn called(
        &mut self,
        at: (usize, ConnectionId),
        token: u64,
        message: Message,
        now: Time,
    ) {
        let Some(key) = self.key_of(at) else {
            return;
        };
        let start = peek_start(&message).filter(|_| is_xdr(&message));
        let Some((xid, CALL)) = start else {
            self.stats.garbage += 1;
            return self.refuse_client(key, "a message on it was not a call", now);
        };
        let pair = &mut self.pairs[key];
        // Of calls with one XID, only the first is traced until it is answered.
        let is_first = !pair.forward.contains(xid);
        if pair.server.is_none() || self.draining {
            // Its client makes it again over another connection.
            let mut transport = self.incoming[pair.transport].borrow_mut();
            return transport.reply(at.1, token, None, now);
        }
        if asks_for_tls(&message) {
            // What follows the server's consent is no RPC, and could not pass. So nobody consents.
            let body = ReplyBody::AuthError(AuthStat::BAD_CRED);
            let refusal = Message::from_payload(ReplyHeader { xid, body }.encode());
            let mut transport = self.incoming[pair.transport].borrow_mut();
            return transport.reply(at.1, token, Some(refusal), now);
        }
        (pair.has_called, pair.used) = (true, now);
        if is_first {
            pair.traced.arrived(xid);
            if pair.ready.is_some() {
                // It waits behind one that does.
                pair.traced.waits_for_memory(xid);
            }
        }
        pair.waiting.push_back(Arrived {
            xid,
            token,
            message,
        });
        self.pass_on(key, now);
    }

    /// Passes calls of a client on, in their order, while there is memory for their replies.
    pub(super) fn pass_on(&mut self, key: usize, now: Time) {
        let pair = &mut self.pairs[key];
        let Some(server) = pair.server else {
            return;
        };
        loop {
            let mut has_waited = true;
            let ready = match pair.ready.take() {
                Some(ready) => ready,
                None => {
                    has_waited = false;
                    let Some(call) = pair.waiting.pop_front() else {
                        break;
                    };
                    if pair.forward.contains(call.xid) {
                        self.stats.repeated += 1;
                        pair.forward.hold(call, now);
                        continue;
                    }
                    let Arrived {
                        xid,
                        token,
                        message,
                    } = call;
                    let max_items = self.outgoing.borrow().max_items(server);
                    pair.reducer.set_max_items(max_items);
                    let reduced = pair.reducer.call(Direction::Forward, message);
                    if let Some(refusal) = refusal(xid, &reduced) {
                        self.stats.misplaced += 1;
                        let transport = &self.incoming[pair.transport];
                        if let Some(client) = pair.client {
                            let mut transport = transport.borrow_mut();
                            transport.reply(client, token, Some(refusal), now);
                            pair.traced.answered(xid);
                        }
                        let next = pair.forward.next_of(xid);
                        next.into_iter().for_each(|it| pair.waiting.push_front(it));
                        continue;
                    }
                    Ready {
                        xid,
                        token,
                        reduced,
                    }
                }
            };
            let reserved = reply_bytes(&ready.reduced.room);
            if !pair.reserve(reserved) {
                if !has_waited {
                    self.stats.waited += 1;
                    pair.traced.waits_for_memory(ready.xid);
                }
                pair.ready = Some(ready);
                break;
            }
            let Ready {
                xid,
                token,
                reduced,
            } = ready;
            let mut outgoing = self.outgoing.borrow_mut();
            if let Some(kinds) = &mut self.kinds {
                let (message, room) = (&reduced.message, &reduced.room);
                kinds.called(Direction::Forward, &reduced.kind, (message, room), || {
                    outgoing.plan(server, message, room)
                });
            }
            tracing::trace!(client = %pair.origin.address, xid, kind = %reduced.kind, "call");
            self.stats.calls += 1;
            pair.traced.passed(xid, &reduced);
            let passed = Passed {
                token,
                remembered: reduced.remembered,
                kind: self.kinds.is_some().then_some(reduced.kind),
                reserved,
            };
            pair.forward.pass(xid, passed, now);
            outgoing.submit(server, xid, reduced.message, &reduced.room, now);
        }
        self.set_timer(key);
    }

    /// Passes the server's reply to a call on, or says that there is none.
    pub(super) fn replied(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        result: Result<Message, CallError>,
        now: Time,
    ) {
        let Some(&key) = self.by_server.get(&conn) else {
            return;
        };
        let pair = &mut self.pairs[key];
        let Some(Ended { passed, mut held }) = pair.forward.end(xid) else {
            self.stats.stray += 1;
            rpcrdma_host::limited!(warn, client = %pair.address(), xid, "dropped a reply that nobody waits for");
            return;
        };
        pair.release(passed.reserved);
        pair.replied_to_server = false;
        let mut failed = false;
        let reply = match prepared(&mut pair.reducer, passed.remembered, result) {
            Ok(reply) => {
                self.stats.replies += 1;
                reply
            }
            Err(error) => {
                self.stats.failed += 1;
                rpcrdma_host::limited!(
                    warn, client = %pair.address(), xid, error, "call answered with SYSTEM_ERR"
                );
                failed = true;
                system_error(xid)
            }
        };
        pair.traced.replied(xid, failed);
        if let (Some(kinds), Some(kind)) = (&mut self.kinds, &passed.kind) {
            kinds.replied(Direction::Forward, kind, &reply);
        }
        if let Some(client) = pair.client {
            let reply = pair.charged(reply);
            let mut transport = self.incoming[pair.transport].borrow_mut();
            transport.reply(client, passed.token, Some(reply), now);
            pair.traced.answered(xid);
        } else {
            pair.traced.dropped(xid);
        }
        if self.draining {
            // Their client makes them again over another connection.
            let mut transport = self.incoming[pair.transport].borrow_mut();
            if let Some(client) = pair.client {
                for call in held {
                    transport.reply(client, call.token, None, now);
                }
            }
        } else if let Some(next) = held.pop_front() {
            pair.forward.follow(xid, held);
            pair.traced.arrived(xid);
            pair.waiting.push_front(next);
        }
        self.pass_on(key, now);
        self.close_if_done(key, now);
    }
}

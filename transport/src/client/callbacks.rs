//! A client's service for the server's calls (RFC 8167).

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::BytesMut;
use onc_rpc::{CallHeader, Cursor, Message};
use verbs::{Pool, Time};

use super::Shared;
use crate::dispatch::{Verdict, answer, judge};
use crate::workers::catch;
use crate::{ConnId, Outcome, Request, Service};

/// A call of the server's that waits for its turn.
pub(super) struct Callback {
    pub(super) conn: ConnId,
    pub(super) token: u64,
    pub(super) message: Message,
}

/// A client's service, and what is asked of it. No replies are remembered: a server does not send a
/// call twice over one connection, and there is nothing in a callback's header by which a call over
/// another could be known for the same.
pub(super) struct Callbacks {
    service: Box<dyn Service>,
    waiting: VecDeque<Callback>,
}

impl Callbacks {
    pub(super) fn new(service: Box<dyn Service>) -> Self {
        Self {
            service,
            waiting: VecDeque::new(),
        }
    }

    /// The answer to one call; nothing if it was no call.
    fn serve(&mut self, message: Message, pool: Pool, server: SocketAddr) -> Option<Message> {
        let mut room = BytesMut::new();
        match judge(&message, self.service.programs()) {
            Verdict::Execute { header, args, .. } => {
                let xid = header.xid;
                let request = request(server, header, pool, message, args);
                let service = &mut self.service;
                let reply = catch(|| Ok(service.call(request)));
                let reply = match reply.unwrap_or_else(|denial| Outcome::Done(Err(denial))) {
                    Outcome::Done(reply) => reply,
                    // A client has no workers.
                    Outcome::Later(job) => catch(job),
                };
                Some(answer(xid, reply, &mut room))
            }
            Verdict::Answer(header) => {
                tracing::debug!(xid = header.xid, answer = ?header.body, "callback refused");
                Some(Message::from_payload(header.encode()))
            }
            Verdict::Disconnect(reason) => {
                tracing::warn!(reason, "no answer to what is no call");
                None
            }
        }
    }
}

fn request(
    server: SocketAddr,
    header: CallHeader,
    pool: Pool,
    message: Message,
    args: Cursor,
) -> Request {
    let CallHeader {
        prog,
        vers,
        proc,
        cred,
        ..
    } = header;
    Request::new(server, prog, vers, proc, cred, pool, message, args)
}

impl Shared {
    /// Answers the calls that wait. Nothing is borrowed meanwhile but the service: it may use the
    /// client. Returns whether there were any.
    pub(super) fn serve_callbacks(&self, now: Time) -> bool {
        // A service that drives the runtime itself is in here already.
        let Ok(mut callbacks) = self.callbacks.try_borrow_mut() else {
            return false;
        };
        let Some(callbacks) = &mut *callbacks else {
            return false;
        };
        std::mem::swap(&mut callbacks.waiting, &mut self.core.borrow_mut().called);
        let any = !callbacks.waiting.is_empty();
        while let Some(callback) = callbacks.waiting.pop_front() {
            let pool = self.core.borrow().port.borrow().pool().clone();
            let reply = callbacks.serve(callback.message, pool, self.remote);
            let core = self.core.borrow();
            let mut port = core.port.borrow_mut();
            port.reply(callback.conn, callback.token, reply, now);
        }
        any
    }
}

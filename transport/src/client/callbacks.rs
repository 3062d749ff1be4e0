//! The client's service for calls from the server (RFC 8167).

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::BytesMut;
use onc_rpc::Message;
use rdma::{Pool, Time};

use super::Shared;
use crate::dispatch::{Disposition, answer, dispatch, error_of};
use crate::workers::catch;
use crate::{ConnectionId, Request, Service};

/// A call from the server that waits to be executed.
pub(super) struct Callback {
    pub(super) conn: ConnectionId,
    pub(super) token: u64,
    pub(super) message: Message,
}

/// A client's service and the calls queued for it. There is no reply cache: a server does not
/// retransmit a call over the same connection, and the header of a callback carries nothing that
/// would identify a retransmission over another connection.
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

    /// Executes one call and returns its reply, or `None` if the message is no call.
    fn serve(&mut self, message: Message, pool: Pool, server: SocketAddr) -> Option<Message> {
        let mut room = BytesMut::new();
        match dispatch(&message, self.service.programs()) {
            Disposition::Execute { header, args, .. } => {
                let xid = header.xid;
                let request = Request::new(server, header, pool, message, args);
                let service = &mut self.service;
                // A client has no worker threads.
                let reply = catch(|| service.call(request).complete());
                Some(answer(xid, reply, &mut room))
            }
            Disposition::Answer(header) => {
                tracing::debug!(xid = header.xid, answer = %error_of(&header.body), "callback refused");
                Some(Message::from_payload(header.encode()))
            }
            Disposition::Disconnect(reason) => {
                rpcrdma_host::limited!(warn, reason, "dropped a message that is not a call");
                None
            }
        }
    }
}

impl Shared {
    /// Answers the queued calls. Only the service is borrowed meanwhile, so it may use the client.
    /// Returns whether there were any calls.
    pub(super) fn serve_callbacks(&self, now: Time) -> bool {
        // A service that drives the runtime itself is already borrowed here.
        let Ok(mut callbacks) = self.callbacks.try_borrow_mut() else {
            return false;
        };
        let Some(callbacks) = &mut *callbacks else {
            return false;
        };
        std::mem::swap(&mut callbacks.waiting, &mut self.core.borrow_mut().called);
        let any = !callbacks.waiting.is_empty();
        while let Some(callback) = callbacks.waiting.pop_front() {
            let pool = self.core.borrow().transport.borrow().pool().clone();
            let reply = callbacks.serve(callback.message, pool, self.remote);
            let core = self.core.borrow();
            let mut transport = core.transport.borrow_mut();
            transport.reply(callback.conn, callback.token, reply, now);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::time::Duration;

    use rdma::Clock;

    use super::*;
    use crate::script::{FIRST, Script};
    use crate::{Client, ClientOptions, ClientTransportEvent, Runtime};

    /// Regression test, found by fuzzing: the calls were queued for a service that did not exist.
    #[test]
    fn a_client_without_a_service_ends_the_calls_of_its_server() {
        let runtime = Runtime::simulated(Clock::simulated(), 1);
        let mut script = Script {
            pool: Some(Pool::new(1 << 16)),
            ..Script::default()
        };
        // The server calls as soon as it is connected.
        script
            .events
            .push_back(ClientTransportEvent::Connected(FIRST));
        for token in 0..3 {
            script.events.push_back(ClientTransportEvent::Call {
                conn: FIRST,
                token,
                message: Message::from_payload(vec![0; 4].into()),
            });
        }
        let transport = Rc::new(RefCell::new(script));
        let remote = SocketAddr::from(([10, 0, 0, 1], 2049));
        let shared = Rc::clone(&transport);
        let mut connected = pin!(async {
            let client = Client::connect(&runtime, remote, shared, ClientOptions::default()).await;
            let client = client.expect("it is up at once");
            runtime.sleep(Duration::from_secs(1)).await;
            drop(client);
        });
        runtime.wake();
        let _ = runtime.step(connected.as_mut(), 100);
        assert_eq!(transport.borrow().replied, [0, 1, 2]);
    }
}

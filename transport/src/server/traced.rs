//! Events of calls that a server's connections do not see ([`rdma::trace`]).

use rdma::trace::{End, Event, Tracer};

use super::*;
use crate::workers::Job;

/// The observer of a connection's calls.
#[derive(Clone)]
pub(super) struct Traced {
    tracer: Tracer,
    /// Whether the transport traces only what the server itself sees: when a call is executed and answered.
    plain: bool,
}

/// Returns the observer of a new connection's calls, if calls are traced.
pub(super) fn connection(
    transport: &dyn ServerTransport,
    conn: ConnectionId,
    peer: SocketAddr,
    trace: Option<&Trace>,
) -> Option<Traced> {
    if let Some(tracer) = transport.tracer(conn) {
        let plain = false;
        return Some(Traced { tracer, plain });
    }
    Some(Traced {
        tracer: trace?.open(End::Responder, peer),
        plain: true,
    })
}

impl Server {
    /// Executes a call, and records what its service does.
    #[cold]
    pub(super) fn execute_traced(
        &mut self,
        call: &Running,
        request: Request,
        traced: &Traced,
        now: Time,
    ) {
        let (xid, tracer) = (request.xid, &traced.tracer);
        if traced.plain {
            tracer.record(xid, Event::Arrived);
        }
        let handed = Event::Handed {
            program: request.prog,
            version: u16::try_from(request.vers).unwrap_or(u16::MAX),
            procedure: request.proc,
        };
        tracer.record(xid, handed);
        let outcome = observed(self.ask_service(request), xid, tracer.clone());
        self.act_on(outcome, call, now);
    }

    /// Records that a call is answered, on a connection whose transport does not.
    #[cold]
    pub(super) fn trace_end(&mut self, origin: Origin, xid: u32) {
        let traced = self.peer_of(origin).and_then(|it| it.traced.as_ref());
        if let Some(traced) = traced.filter(|traced| traced.plain) {
            traced.tracer.record(xid, Event::Replied);
        }
    }
}

/// Has the rest of a service's work recorded.
fn observed(outcome: ServiceOutcome, xid: u32, tracer: Tracer) -> ServiceOutcome {
    match outcome {
        ServiceOutcome::Done(reply) => {
            tracer.record(xid, Event::Done);
            ServiceOutcome::Done(reply)
        }
        ServiceOutcome::Later(job) => {
            tracer.record(xid, Event::Deferred);
            ServiceOutcome::Later(Box::new(move || worked(job, xid, &tracer)))
        }
        ServiceOutcome::Attempt(attempt) => ServiceOutcome::Attempt(Box::new(move || {
            tracer.record(xid, Event::Begun);
            match attempt() {
                Attempted::Done(reply) => {
                    tracer.record(xid, Event::Done);
                    Attempted::Done(reply)
                }
                Attempted::Later(job) => {
                    tracer.record(xid, Event::Deferred);
                    Attempted::Later(Box::new(move || worked(job, xid, &tracer)))
                }
            }
        })),
    }
}

fn worked(job: Job, xid: u32, tracer: &Tracer) -> ServiceReply {
    tracer.record(xid, Event::Begun);
    let reply = job();
    tracer.record(xid, Event::Done);
    reply
}

//! Names of errors in logs and in the errors of calls: those of the version that the connection
//! speaks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma_connection::{CallError, ReplyRoom};
use rpcrdma_negotiation::Version;
use rpcrdma_v2_wg::{Body, Chunks, ErrorBody, ReadSegment, Segment};
use support::{Endpoint, Pair, WgPeer, configs_with, message, room};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects all fields of log events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Begins to collect what this thread logs.
fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let guard = tracing::subscriber::set_default(log.clone());
    // Another test may have met the same events first, when nobody listened.
    tracing::callsite::rebuild_interest_cache();
    (log, guard)
}

/// Returns the error of the only call that has finished.
fn failed(end: &mut Endpoint) -> CallError {
    let (_, result) = end.finished.pop().unwrap();
    result.unwrap_err()
}

#[test]
fn a_refused_transfer_mode_is_logged_by_the_name_of_its_error() {
    let (log, _guard) = logged();
    // A call of two messages, which is refused.
    let mut peer = WgPeer::client(|client| {
        client.costs.registration = Duration::from_secs(1);
    });
    peer.end.call(message(1, 1500, &[]), &ReplyRoom::default());
    assert!(peer.take().len() > 1);
    let _ = log.take();
    peer.send_error(1, ErrorBody::InvalidHeaderType);
    let text = log.take();
    assert!(text.contains("error=RDMA2_ERR_INVAL_HTYPE"), "{text}");
}

#[test]
fn a_call_that_the_responder_refuses_is_logged_by_the_name_of_its_error() {
    let (log, _guard) = logged();
    // A message in a call chunk that does not begin with the XID of the header.
    let mut peer = WgPeer::server(|_| {});
    let segment = Segment {
        handle: 1,
        length: 64,
        offset: 0,
    };
    let chunks = Chunks {
        reads: vec![ReadSegment {
            position: 0,
            segment,
        }],
        ..Chunks::default()
    };
    let body = Body::Call {
        external: true,
        inv_handle: 0,
        chunks,
    };
    peer.send(7, body, &[]);
    let _ = log.take();
    let read = peer.end.reads.remove(0);
    peer.end.read_done(read);
    peer.end.run();
    assert_eq!(peer.errors(), [(7, ErrorBody::BadXdr)]);
    let text = log.take();
    assert!(text.contains("error=RDMA2_ERR_BAD_XDR"), "{text}");
}

#[test]
fn the_error_of_a_call_has_the_name_of_its_version() {
    let names = [
        (Version::ONE, "ERR_CHUNK"),
        (Version::TWO, "RDMA2_ERR_BAD_HEADER"),
    ];
    for (version, name) in names {
        let mut pair = Pair::echoing(configs_with(version, |_, _| {}));
        // The reply is longer than the room that the call offers for it.
        pair.answer_with(|call| Some(support::reply(support::open(call).0, 9000, &[])));
        let error = pair.call(message(1, 1, &[]), &room(1, &[])).unwrap_err();
        assert!(matches!(error, CallError::Chunk(_)), "{error:?}");
        let expected = format!("the responder answered with {name}: ");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let errors = [
        (ErrorBody::BadXdr, "RDMA2_ERR_BAD_XDR: "),
        (
            ErrorBody::ReadChunks { max: 3 },
            "RDMA2_ERR_READ_CHUNKS (at most 3): ",
        ),
        (
            ErrorBody::WriteResource {
                chunk: 0,
                needed: 0,
            },
            "RDMA2_ERR_WRITE_RESOURCE (chunk 0 needs 0 bytes): ",
        ),
    ];
    for (error, name) in errors {
        let mut peer = WgPeer::client(|_| {});
        peer.end.call(message(1, 1, &[]), &room(1, &[]));
        let _ = peer.take();
        peer.send_error(1, error);
        let error = failed(&mut peer.end).to_string();
        let expected = format!("the responder answered with {name}");
        assert!(error.starts_with(&expected), "{error}");
    }
    let mut peer = WgPeer::client(|_| {});
    peer.end.call(message(1, 1, &[]), &room(1, &[]));
    let _ = peer.take();
    peer.send_error(1, ErrorBody::System);
    let error = failed(&mut peer.end).to_string();
    assert!(error.ends_with("(RDMA2_ERR_SYSTEM)"), "{error}");
}

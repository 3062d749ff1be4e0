//! The samples of transports.

use rpc_transport::TransportStatistics;

use crate::families::{
    BAD_MESSAGES, CHUNKS, CONNECTIONS, COPIED, CREDITS_LIMIT, CREDITS_USED, GRANTED, GRANTS,
    LONG_CALLS, MOVED, OPERATIONS, RECEIVE_MEMORY, RECEIVES, REGISTERED, SYSTEM_CALLS, UNANSWERED,
    WAITING, WAKEUPS, WIRE,
};
use crate::samples::Samples;

/// Adds the statistics of a transport.
pub(crate) fn add(samples: &mut Samples, found: &TransportStatistics) {
    let name = if found.is_rdma { "rdma" } else { "tcp" };
    for (kind, count) in &found.connections {
        samples.add(&CONNECTIONS, &[name, kind.version, &kind.features], *count);
    }
    let counters = &found.counters;
    samples.add(&WIRE, &[name, "sent"], counters.wire_bytes_sent);
    samples.add(&WIRE, &[name, "received"], counters.wire_bytes_received);
    samples.add(&COPIED, &[name], counters.copied_bytes);
    samples.add(&WAKEUPS, &[name], counters.interrupts);
    samples.add(&SYSTEM_CALLS, &[name], counters.system_calls);
    if !found.is_rdma {
        return;
    }
    for (direction, moved) in [
        ("sent", found.moved.sent),
        ("received", found.moved.received),
    ] {
        for (way, bytes) in [
            ("inline", moved.inline),
            ("chunk", moved.chunk),
            ("placed", moved.placed),
            ("continued", moved.continued),
        ] {
            samples.add(&MOVED, &[direction, way], bytes);
        }
    }
    for (operation, count) in [
        (
            "send",
            counters
                .sends
                .saturating_sub(counters.sends_with_invalidate),
        ),
        ("send_with_invalidate", counters.sends_with_invalidate),
        ("receive", counters.receives),
        ("read", counters.rdma_reads),
        ("write", counters.rdma_writes),
        ("register", counters.registrations),
        ("invalidate", counters.local_invalidations),
        ("invalidated_by_peer", counters.remote_invalidations),
    ] {
        samples.add(&OPERATIONS, &[operation], count);
    }
    let requester = &found.requester;
    samples.add(&CHUNKS, &["read"], requester.read_segments);
    samples.add(&CHUNKS, &["write"], requester.write_segments);
    samples.add(&CHUNKS, &["reply"], requester.reply_segments);
    samples.add(&REGISTERED, &[], requester.registered_bytes);
    samples.add(&LONG_CALLS, &[], requester.long_calls);
    let discarded = found.responder.discarded + requester.discarded;
    samples.add(&BAD_MESSAGES, &["answered"], found.responder.errors_sent);
    samples.add(&BAD_MESSAGES, &["discarded"], discarded);
    samples.add(&BAD_MESSAGES, &["unknown_xid"], requester.unknown_xid);
    samples.add(&BAD_MESSAGES, &["cancelled"], requester.cancelled_replies);
    samples.add(&GRANTS, &[], found.grants_sent);
    samples.add(&GRANTED, &[], found.granted_credits);
    samples.add(&CREDITS_USED, &[], found.own_credits.0);
    samples.add(&CREDITS_LIMIT, &[], found.own_credits.1);
    samples.add(&UNANSWERED, &[], found.unanswered);
    samples.add(&WAITING, &["memory"], found.waiting_for_memory);
    samples.add(&WAITING, &["send_queue"], found.send_queues_full);
    samples.add(&RECEIVES, &["own"], found.own_receives);
    samples.add(&RECEIVES, &["shared"], found.shared_receives);
    samples.add(&RECEIVE_MEMORY, &[], found.receive_bytes);
}

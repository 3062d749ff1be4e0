//! All metrics: names, kinds, units, labels and meanings. `docs/metrics.md` lists them; a test compares.

use crate::samples::Family;
use crate::samples::Kind::{Counter, Gauge, Histogram};
use crate::samples::Unit::{Bytes, Seconds};

/// Returns the unit of a family.
macro_rules! unit {
    () => {
        None
    };
    ($unit:ident) => {
        Some($unit)
    };
}

macro_rules! families {
    ($($constant:ident = $kind:ident $stem:literal $(in $unit:ident)? [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $constant: Family = Family {
                stem: concat!("rpcrdma_", $stem),
                kind: $kind,
                unit: unit!($($unit)?),
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// All families, in the order of the documentation.
        pub static ALL: &[&Family] = &[$(&$constant),*];
    };
}

families! {
    START = Gauge "start_time" in Seconds []
        "When the process began, in seconds since 1970.";

    SERVER_CALLS = Counter "server_calls" ["program", "version", "procedure", "result"]
        "Calls that were executed, by their results: ok, the name of a status, or that of an RPC error.";
    SERVER_TIMES = Histogram "server_call_duration" in Seconds ["program", "version", "procedure"]
        "Time from when a thread took a whole call, also if it was held, to when its reply was handed to the device or socket.";
    SERVER_RECEIVED = Counter "server_calls_received" []
        "Calls that arrived, of all kinds, with those that are not executed.";
    SERVER_REFUSED = Counter "server_calls_refused" ["reason"]
        "Calls that were refused before a program saw them.";
    SERVER_JOBS = Counter "server_jobs" []
        "Calls that were passed to worker threads.";
    SERVER_RUNNING = Gauge "server_jobs_running" []
        "Calls that worker threads execute, or that wait for one.";
    SERVER_HELD = Gauge "server_calls_held" []
        "Calls that wait because there are as many jobs as there may be.";
    SERVER_CALLBACKS = Counter "server_callbacks" ["end"]
        "Calls to clients: started, and answered with results.";
    SERVER_CLOSED = Counter "server_connections_closed" ["reason"]
        "Connections that the server closed: idle ones, some to make room, and those with a message that is no call.";
    SERVER_MOST = Gauge "server_connections_limit" []
        "The maximum number of connections, of all transports.";
    CACHE_HITS = Counter "server_reply_cache_hits" ["call"]
        "Retransmissions of calls that were done, answered from the reply cache, or that were still in progress.";
    CACHE_ENTRIES = Gauge "server_reply_cache_entries" []
        "Replies in the reply cache.";
    CACHE_ENTRIES_LIMIT = Gauge "server_reply_cache_entries_limit" []
        "The maximum number of replies in the reply cache.";
    MEMORY = Gauge "server_memory" in Bytes ["use"]
        "Memory for calls and replies beyond what each connection is guaranteed, for receives, and for cached replies.";
    MEMORY_LIMIT = Gauge "server_memory_limit" in Bytes ["use"]
        "The limits of these: that of calls includes what connections are guaranteed.";
    LOOPS = Gauge "server_loops" []
        "Threads that serve connections.";
    SILENT = Gauge "server_loops_silent" []
        "Threads that have not answered this scrape in time. Their last answers are shown.";
    LOCK_WAITS = Counter "lock_waits" ["lock"]
        "Times that a thread had to wait for another one, by the purpose of the lock.";

    CLIENT_CALLS = Counter "client_calls" ["program", "version", "procedure", "result"]
        "Calls that have ended, by their results: ok, the name of a status or of an RPC error, or no_reply.";
    CLIENT_TIMES = Histogram "client_call_duration" in Seconds ["program", "version", "procedure"]
        "Time from the start of a call to its end, with waiting and retransmissions.";
    CLIENT_PENDING = Gauge "client_calls_pending" []
        "Calls that have not ended.";
    CLIENT_RETRANSMISSIONS = Counter "client_retransmissions" []
        "Calls that were sent again.";
    CLIENT_RECONNECTS = Counter "client_reconnects" []
        "Connections that were established again after a loss.";
    CLIENT_OVERDUE = Counter "client_connections_overdue" []
        "Connections that were closed because a reply was overdue.";
    CLIENT_STRAY = Counter "client_stray_replies" []
        "Replies without a waiting call.";
    CLIENT_MESSAGES = Counter "client_messages" in Bytes ["direction"]
        "Bytes of RPC messages, without the framing of the transport.";

    CONNECTIONS = Gauge "connections" ["transport", "version", "features"]
        "Connections, by version of RPC-over-RDMA and by features that spare round trips.";
    MOVED = Counter "moved" in Bytes ["direction", "way"]
        "Bytes of RPC messages over RDMA: inline, in chunks, placed by Sends, or continued in several Sends.";
    OPERATIONS = Counter "rdma_operations" ["operation"]
        "What was posted to the device or done by it: Sends, RDMA Reads and Writes, registrations, invalidations.";
    CHUNKS = Counter "chunk_segments" ["list"]
        "Segments of chunks that calls offered, each with a registration.";
    REGISTERED = Counter "registered" in Bytes []
        "Bytes of these segments, whether or not they were used.";
    LONG_CALLS = Counter "long_calls" []
        "Calls whose whole message was in a chunk.";
    BAD_MESSAGES = Counter "bad_messages" ["what"]
        "Messages of RPC-over-RDMA that were answered with an error, discarded, or are replies to no call.";
    GRANTS = Counter "grants_sent" []
        "Messages that only granted credits.";
    GRANTED = Gauge "credits_granted" []
        "Messages that peers may send at present, on all connections.";
    CREDITS_LIMIT = Gauge "credits_limit" []
        "Credits that peers grant to calls of this end, on all connections.";
    CREDITS_USED = Gauge "credits_used" []
        "Credits that calls of this end use.";
    UNANSWERED = Gauge "calls_unanswered" []
        "Calls of peers over RDMA that have arrived and are not answered.";
    WAITING = Gauge "connections_waiting" ["for"]
        "RDMA connections on which something waits for memory, or for room in the send queue.";
    RECEIVES = Gauge "receives" ["kind"]
        "Receives that connections have for themselves, and those that are posted for all.";
    RECEIVE_MEMORY = Gauge "receives_memory" in Bytes []
        "Memory of receives, with those whose messages are in use.";
    WIRE = Counter "wire" in Bytes ["transport", "direction"]
        "Bytes with all framing, where the device or the socket counts them.";
    COPIED = Counter "copied" in Bytes ["transport"]
        "Bytes that were copied in user space.";
    WAKEUPS = Counter "wakeups" ["transport"]
        "Waits that ended because of the device or a socket.";
    SYSTEM_CALLS = Counter "system_calls" ["purpose"]
        "System calls that moved bytes, or found none, by transport, and those that waited for events.";

    MOUNT_SILENT = Gauge "mount_silent" []
        "1 if the mount has not answered this scrape in time. Its last answer is shown.";
    MOUNT_REQUESTS = Counter "mount_requests" ["request"]
        "Requests of the kernel, by their names in FUSE.";
    MOUNT_NAMES = Counter "mount_names" ["from"]
        "Names that the kernel looked up: answered from memory, or the server was asked for them or their attributes.";
    MOUNT_ATTRIBUTES = Counter "mount_attributes" ["from"]
        "Attributes that the kernel asked for, answered from memory or by the server.";
    MOUNT_READ = Counter "mount_read" in Bytes ["from"]
        "Bytes read by programs and the page cache, from what was read ahead, from what was written, or by the server.";
    MOUNT_WRITTEN = Counter "mount_written" in Bytes []
        "Bytes that programs and the page cache wrote.";
    MOUNT_UNSAVED = Gauge "mount_unsaved" in Bytes []
        "Written bytes that are not on the server's stable storage.";
    MOUNT_UNSAVED_LIMIT = Gauge "mount_unsaved_limit" in Bytes []
        "The maximum of these, at which programs wait.";
    MOUNT_UNSAVED_FILES = Gauge "mount_unsaved_files" []
        "Files with such bytes.";
    MOUNT_OBJECTS = Gauge "mount_objects" []
        "Files and directories that the mount knows.";
    MOUNT_OPEN = Gauge "mount_open_files" []
        "Open files.";
    MOUNT_COPIED = Counter "mount_copied" in Bytes []
        "Bytes of file data that the mount copied.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let mut names = BTreeSet::new();
        for family in ALL {
            assert!(
                names.insert(family.query_name()),
                "{} is there twice",
                family.stem
            );
            let stem = family.stem;
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(stem.chars().all(plain), "{stem}");
            for ending in ["_total", "_bytes", "_seconds", "_count", "_sum", "_bucket"] {
                assert!(!stem.ends_with(ending), "{stem}");
            }
            assert_eq!(
                family.kind == Histogram,
                stem.ends_with("duration"),
                "{stem}"
            );
            assert!(
                family.help.ends_with('.') && family.help.len() <= 120,
                "{stem}"
            );
            assert!(family.labels.iter().all(|label| label.chars().all(plain)));
        }
    }
}

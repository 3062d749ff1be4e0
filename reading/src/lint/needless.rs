//! Needless costs: chunks, registrations and round trips that other settings avoid.

use super::Lint;
use crate::call::{Call, Connection, List, Outcome, Version};
use rpcrdma_chunks::Side;

/// Something that costs needlessly.
#[derive(Debug, PartialEq, Eq)]
pub struct Advice {
    /// Its name.
    pub id: &'static str,
    /// Document and section.
    pub section: &'static str,
    /// Description, as a sentence.
    pub sentence: &'static str,
    /// Settings that avoid it.
    pub instead: &'static str,
}

/// Longest transport headers of calls without chunks, in bytes: version-two-01 and version-two-07 have
/// 32, version 1 has 28.
fn header_len(version: Version) -> u64 {
    match version {
        Version::One => 28,
        Version::Two | Version::TwoWg => 32,
    }
}

/// A write chunk is much too long if it is at least this many bytes longer than what is returned, and
/// [`MUCH`] times as long.
const LONG: u64 = 16_384;
const MUCH: u64 = 4;

const LONGER_REQUESTS: &str = "longer receives at the server: `serve --inline SIZE` and `-o inline=SIZE`; \
     Linux: /proc/sys/sunrpc/svc_rdma/max_req_size at the server, and rdma_max_inline_write at the client";
const LONGER_REPLIES: &str = "longer receives at the client: `-o inline=SIZE` and `serve --inline SIZE`; \
     Linux: /proc/sys/sunrpc/rdma_max_inline_read at the client, and svc_rdma/max_req_size at the server";

macro_rules! advice {
    ($($name:ident = $id:literal, $section:literal, $sentence:literal, $instead:expr;)*) => {
        $(
            static $name: Advice = Advice {
                id: $id,
                section: $section,
                sentence: $sentence,
                instead: $instead,
            };
        )*

        /// All of them.
        pub(super) static ALL: &[&Advice] = &[$(&$name),*];
    };
}

advice! {
    READ_CHUNK = "read_chunk_not_needed", "RFC 8166, 3.5.2",
        "A read chunk carries what would have fitted inline",
        "a client that sends as much inline as the server takes: `-o inline=SIZE`; Linux: \
         /proc/sys/sunrpc/rdma_max_inline_write";
    REPLY_CHUNK = "reply_chunk_not_used", "RFC 8166, 3.5.3",
        "A reply chunk was registered, and the reply came inline",
        LONGER_REPLIES;
    WRITE_CHUNK = "write_chunk_not_used", "RFC 8166, 3.4.6",
        "A write chunk was registered, and nothing was written into it",
        LONGER_REPLIES;
    WRITE_TOO_LONG = "write_chunk_too_long", "RFC 8166, 3.4.6",
        "A write chunk was more than four times as long as what was returned",
        "smaller requests: `-o rsize=SIZE`; Linux: the mount option rsize=";
    THRESHOLD = "threshold_not_used", "RFC 8797, 4.2",
        "An end takes longer messages than the other sends",
        "the same size at both ends: `-o inline=SIZE` and `serve --inline SIZE`; Linux: \
         /proc/sys/sunrpc/rdma_max_inline_write and rdma_max_inline_read, and svc_rdma/max_req_size";
    NO_PRIVATE_DATA = "default_threshold", "RFC 8166, 3.3.3; RFC 8797, 5.1",
        "An end announces no size, so that messages to it have at most 1024 bytes",
        "RFC 8797's private data, which this project and Linux send";
    NO_INVALIDATION = "no_remote_invalidation", "RFC 8797, 4.1",
        "The requester had to invalidate its registrations itself, with an interrupt of its own",
        "Send With Invalidate: both ends of this project and Linux use it with `registration=per-call`, \
         or memory windows, where the device has it";
    SEVERAL = "registrations_per_chunk", "RFC 8166, 3.4.4",
        "A chunk takes several registrations",
        "longer segments: a device that registers more pages at a time, or `-o rsize=SIZE,wsize=SIZE`";
    CREDITS = "credits_used_up", "RFC 8166, 3.3.1",
        "A call took the last credit, so that the next one has to wait",
        "more credits: `serve --credits N`; Linux: /proc/sys/sunrpc/svc_rdma/max_requests at the server, \
         rdma_slot_table_entries at the client";
    READ_TURNS = "reads_one_after_another", "RFC 8166, 3.4.5",
        "The responder waited for one RDMA Read before it began the next, a round trip each",
        "more RDMA Reads at a time: depends on the device; Linux: svc_rdma/max_outbound_read_requests";
    LONG_CALL = "long_call", "RFC 8166, 3.5.3",
        "A whole RPC message had to be fetched by RDMA Read",
        LONGER_REQUESTS;
}

impl Lint {
    pub(super) fn needless(&mut self, connection: &Connection, call: &Call) {
        self.of_connection(connection, call);
        let place = (call.started, Some(call.xid));
        let id = call.connection;
        let receiver = match call.caller {
            Side::Client => 1,
            Side::Server => 0,
        };
        let takes = connection.receive_size[receiver].map(u64::from);
        let has_reads = call
            .segments
            .iter()
            .any(|it| matches!(it.list, List::Read(_)));
        if has_reads && let (Some(takes), Some(length)) = (takes, call.call_length) {
            let other = call
                .segments
                .iter()
                .filter(|it| !matches!(it.list, List::Read(_)));
            let mut lists = 0;
            let mut before = None;
            for segment in other {
                // A new chunk has its number of segments, and one of the write list a word before it.
                lists += match segment.list {
                    list if before == Some(list) => 0,
                    List::Reply => 4,
                    _ => 8,
                };
                lists += 16;
                before = Some(segment.list);
            }
            let inline = header_len(call.version) + lists + length;
            if inline <= takes {
                let detail = format!("{inline} bytes inline, where {takes} are taken");
                self.advise(&READ_CHUNK, id, place, detail);
            } else if call.segments.iter().any(|it| it.list == List::Read(0)) {
                let detail = format!("{inline} bytes, where {takes} are taken inline");
                self.advise(&LONG_CALL, id, place, detail);
            }
        }
        if call.outcome == Outcome::Replied {
            self.returned(call);
        }
        if call.read_turns() > 1 {
            let detail = format!("{} times", call.read_turns());
            self.advise(&READ_TURNS, id, place, detail);
        }
        if let Some(granted) = call.granted.filter(|granted| *granted > 1)
            && call.outstanding + 1 >= granted
        {
            self.advise(&CREDITS, id, place, format!("{granted} granted"));
        }
    }

    fn of_connection(&mut self, connection: &Connection, call: &Call) {
        if call.version != Version::One || !connection.is_set_up {
            return;
        }
        let place = (connection.began, None);
        for (end, name) in ["client", "server"].into_iter().enumerate() {
            let Some(own) = connection.private_data[end] else {
                if self.is_first(connection, if end == 0 { "no data 0" } else { "no data 1" }) {
                    self.advise(
                        &NO_PRIVATE_DATA,
                        connection.id,
                        place,
                        format!("the {name}"),
                    );
                }
                continue;
            };
            let Some(other) = connection.private_data[1 - end] else {
                continue;
            };
            if own.send_size() < other.receive_size()
                && self.is_first(connection, if end == 0 { "size 0" } else { "size 1" })
            {
                let (sends, takes) = (own.send_size(), other.receive_size());
                let detail = format!("the {name} sends up to {sends} of {takes} bytes");
                self.advise(&THRESHOLD, connection.id, place, detail);
            }
        }
    }

    /// Returns whether this is said of the connection for the first time.
    fn is_first(&mut self, connection: &Connection, what: &'static str) -> bool {
        self.told.insert((connection.id, what))
    }

    fn returned(&mut self, call: &Call) {
        let place = (call.started, Some(call.xid));
        let id = call.connection;
        let mut lists: Vec<List> = call.segments.iter().map(|it| it.list).collect();
        lists.sort_unstable();
        lists.dedup();
        for list in lists {
            let chunk = || call.segments.iter().filter(|it| it.list == list);
            let offered: u64 = chunk().map(|it| u64::from(it.length)).sum();
            let moved: u64 = chunk().map(|it| it.moved).sum();
            let returned: u64 = chunk().filter_map(|it| it.returned).map(u64::from).sum();
            let used = moved.max(returned);
            let detail = format!("{used} of {offered} bytes");
            match list {
                List::Reply if used == 0 => self.advise(&REPLY_CHUNK, id, place, detail),
                List::Write(_) if used == 0 && offered > 0 => {
                    self.advise(&WRITE_CHUNK, id, place, detail);
                }
                List::Write(_) if used * MUCH < offered && offered - used >= LONG => {
                    self.advise(&WRITE_TOO_LONG, id, place, detail);
                }
                _ => {}
            }
            let count = chunk().count();
            if count > 1 {
                self.advise(&SEVERAL, id, place, format!("{count} for {offered} bytes"));
            }
        }
        let registrations = call.registrations();
        let is_invalidated = call.messages.iter().any(|it| it.invalidates.is_some());
        if registrations > 0 && !is_invalidated {
            let detail = format!("{registrations} registrations");
            self.advise(&NO_INVALIDATION, id, place, detail);
        }
    }
}

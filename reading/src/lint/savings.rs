//! The work of the calls of a capture, and the work that they would have taken with longer receives,
//! with messages continued in several receives, and with data placed by Sends.
//!
//! A reply is planned for before its length is known. So a call counts as one without chunks only if
//! the longest reply that its chunks provide for would be taken inline as well.

use std::collections::HashMap;

use rpcrdma_chunks::Side;
use serde::Serialize;
use transfer_plan::{CostModel, Effort};

use crate::call::{Call, Connection, ConnectionId, List, OperationKind, Outcome};

/// Lengths of receives that are tried, in bytes.
const SIZES: [u64; 6] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
/// The longest header of a message without chunks, in bytes, and of the first and each further part
/// of one in several parts (version-two-07, and rtrext-00 with a list of items).
const HEADER: u64 = 32;
const PART_HEADER: u64 = 64;
/// Page size in bytes, for the cost of registration.
const PAGE: u64 = 4096;
/// Part of the calls with chunks, in percent, that the suggested length of receives covers.
const COVERED: u64 = 90;
/// Receives that an end has for one connection where its credits are not known.
const USUAL_RECEIVES: u64 = 32;

/// Work that calls take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Round trips that replies had to wait for.
    pub round_trips: u64,
    /// Interrupts of both ends that replies had to wait for.
    pub interrupts: u64,
    /// Registrations of the requester.
    pub registrations: u64,
    /// RDMA Reads and Writes.
    pub operations: u64,
    /// Estimated time in nanoseconds, by the cost model.
    pub nanoseconds: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.round_trips += other.round_trips;
        self.interrupts += other.interrupts;
        self.registrations += other.registrations;
        self.operations += other.operations;
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }
}

/// Another way of moving the same calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alternative {
    /// Its name: `longer receives`, `continuation`, `placement`.
    pub name: &'static str,
    /// Settings that select it.
    pub set: String,
    /// Length of each receive in bytes.
    pub receive: u64,
    /// Number of calls that would have been moved in this way.
    pub calls: u64,
    /// Work of all calls together, those that stay as they are included.
    pub counts: Counts,
    /// Memory for receives at both ends of all connections, in bytes.
    pub memory: u64,
}

/// The work that calls took, and that of other ways of moving them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Savings {
    /// Number of calls that are counted: those with a reply, of which nothing is missing.
    pub calls: u64,
    /// Work that they took.
    pub counts: Counts,
    /// Memory for receives at both ends of all connections, in bytes, as far as sizes are known.
    pub memory: u64,
    /// The other ways.
    pub alternatives: Vec<Alternative>,
}

/// The sums for one way.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    counts: Counts,
    calls: u64,
}

#[derive(Debug)]
struct Ends {
    receives: u64,
    sizes: [u64; 2],
}

#[derive(Debug)]
pub(super) struct Collector {
    costs: CostModel,
    calls: u64,
    counts: Counts,
    longer: [Sum; SIZES.len()],
    placed: [Sum; SIZES.len()],
    continued: Sum,
    /// Calls with chunks.
    chunked: u64,
    connections: HashMap<ConnectionId, Ends>,
}

impl Collector {
    pub(super) fn new(costs: &CostModel) -> Self {
        Self {
            costs: *costs,
            calls: 0,
            counts: Counts::default(),
            longer: Default::default(),
            placed: Default::default(),
            continued: Sum::default(),
            chunked: 0,
            connections: HashMap::new(),
        }
    }

    fn counts(&self, effort: &Effort, operations: u64) -> Counts {
        let waits = effort.turnarounds + effort.waits;
        let time = self.costs.estimate(effort);
        Counts {
            round_trips: 1 + waits,
            // One of the server for the call and one of the client for the reply, one for each RDMA Read
            // that the server waits for, and one for the client's invalidations.
            interrupts: 2 + waits + u64::from(effort.invalidations > 0),
            registrations: effort.registrations,
            operations,
            nanoseconds: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn add(&mut self, connection: &Connection, call: &Call) {
        if call.outcome != Outcome::Replied || call.is_incomplete {
            return;
        }
        let (Some(to_server), Some(to_client)) = (call.call_length, call.reply_length) else {
            return;
        };
        let ends = self.connections.entry(connection.id).or_insert(Ends {
            receives: 0,
            sizes: [0; 2],
        });
        ends.receives = ends.receives.max(call.granted.map_or(0, u64::from));
        ends.sizes = connection
            .receive_size
            .map(|size| size.map_or(0, u64::from));
        let receive = match call.caller {
            Side::Client => [ends.sizes[1], ends.sizes[0]],
            Side::Server => ends.sizes,
        };
        self.calls += 1;
        let observed = observed(call);
        let counts = self.counts(&observed, call.operations.len() as u64);
        self.counts.add(&counts);
        self.chunked += u64::from(!call.segments.is_empty());
        // The longest reply that the call provides for.
        let offered = |wanted: fn(List) -> bool| -> u64 {
            let segments = call.segments.iter().filter(|it| wanted(it.list));
            segments.map(|it| u64::from(it.length)).sum()
        };
        let written = offered(|list| matches!(list, List::Write(_)));
        let most = offered(|list| list == List::Reply).max(to_client) + written;
        let items = bulk(call);
        for (index, size) in SIZES.into_iter().enumerate() {
            let fits = HEADER + to_server <= size && HEADER + most <= size;
            let lengths = (to_server, to_client);
            let plain = inline(lengths, items, 0, 1, 1);
            let placed = inline(lengths, 0, items, 1, 1);
            let better = |effort: &Effort| {
                let other = self.counts(effort, 0);
                let is_better = fits && other.nanoseconds < counts.nanoseconds;
                if is_better { (other, 1) } else { (counts, 0) }
            };
            let (longer, placed) = (better(&plain), better(&placed));
            for (sum, (counts, calls)) in [
                (&mut self.longer[index], longer),
                (&mut self.placed[index], placed),
            ] {
                sum.counts.add(&counts);
                sum.calls += calls;
            }
        }
        // In parts of the receives that there are, or of the default of both versions 2.
        let part = |size: u64| size.max(4096) - PART_HEADER;
        let parts = (
            to_server.div_ceil(part(receive[0])),
            most.div_ceil(part(receive[1])),
        );
        let sends = to_client.div_ceil(part(receive[1]));
        let effort = inline(
            (to_server, to_client),
            items,
            0,
            parts.0.max(1),
            sends.max(1),
        );
        let other = self.counts(&effort, 0);
        let credits = u64::from(call.granted.unwrap_or(u32::MAX));
        let is_better = other.nanoseconds < counts.nanoseconds && parts.0.max(parts.1) <= credits;
        let (counts, calls) = if is_better { (other, 1) } else { (counts, 0) };
        self.continued.counts.add(&counts);
        self.continued.calls += calls;
    }

    pub(super) fn savings(&self) -> Savings {
        let memory = |size: Option<u64>| {
            let each = |ends: &Ends| {
                let receives = if ends.receives == 0 {
                    USUAL_RECEIVES
                } else {
                    ends.receives
                };
                let sizes = ends.sizes.map(|own| own.max(size.unwrap_or(0)));
                receives.saturating_mul(sizes[0].saturating_add(sizes[1]))
            };
            self.connections
                .values()
                .map(each)
                .fold(0, u64::saturating_add)
        };
        // The shortest receives that nearly all calls fit which any receives would help.
        let most = self.longer.last().map_or(0, |sum| sum.calls);
        let enough = |sums: &[Sum; SIZES.len()]| {
            let most = sums.last().map_or(0, |sum| sum.calls);
            sums.iter()
                .position(|sum| sum.calls * 100 >= most * COVERED)
                .unwrap_or(0)
        };
        let mut alternatives = Vec::new();
        if most > 0 {
            let index = enough(&self.longer);
            let (size, sum) = (SIZES[index], self.longer[index]);
            alternatives.push(Alternative {
                name: "longer receives",
                set: format!(
                    "-o inline={size} and serve --inline {size}; Linux: rdma_max_inline_read, \
                     rdma_max_inline_write and svc_rdma/max_req_size, up to 65536"
                ),
                receive: size,
                calls: sum.calls,
                counts: sum.counts,
                memory: memory(Some(size)),
            });
        }
        if self.continued.calls > 0 {
            alternatives.push(Alternative {
                name: "continuation",
                set: "-o rpcrdma=2,features=cont at both ends (version 2)".into(),
                receive: 4096,
                calls: self.continued.calls,
                counts: self.continued.counts,
                memory: memory(Some(4096)),
            });
        }
        if self.placed.last().is_some_and(|sum| sum.calls > 0) {
            let index = enough(&self.placed);
            let (size, sum) = (SIZES[index], self.placed[index]);
            alternatives.push(Alternative {
                name: "placement",
                set: format!("-o rpcrdma=2,features=ddp,inline={size} at both ends (version 2)"),
                receive: size,
                calls: sum.calls,
                counts: sum.counts,
                memory: memory(Some(size)),
            });
        }
        Savings {
            calls: self.calls,
            counts: self.counts,
            memory: memory(None),
            alternatives,
        }
    }
}

/// Returns the bytes of bulk items of a call and its reply that chunks moved or Sends placed.
fn bulk(call: &Call) -> u64 {
    let chunks = call.segments.iter().map(|segment| match segment.list {
        List::Read(0) | List::Reply => 0,
        List::Read(_) => u64::from(segment.length),
        List::Write(_) => u64::from(segment.returned.unwrap_or(0)),
    });
    chunks.sum::<u64>() + call.placed
}

/// Returns the work that a call took.
fn observed(call: &Call) -> Effort {
    let sent = call.messages.iter().map(|it| it.octets).sum::<u64>();
    let moved = |kind| -> u64 {
        let operations = call.operations.iter().filter(|it| it.kind == kind);
        operations.map(|it| it.octets).sum()
    };
    let (read, written) = (moved(OperationKind::Read), moved(OperationKind::Write));
    let of = |side| call.messages.iter().filter(|it| it.from == side).count() as u64;
    let other = match call.caller {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    };
    let (calls, replies) = (of(call.caller), of(other));
    let registrations = u64::from(call.registrations());
    let remote = call
        .messages
        .iter()
        .filter(|it| it.invalidates.is_some())
        .count() as u64;
    let pages = call
        .segments
        .iter()
        .map(|it| u64::from(it.length).div_ceil(PAGE))
        .sum();
    Effort {
        explicit: call.operations.len() as u64,
        turnarounds: call.read_turns().into(),
        waits: (call.round_trips() - 1 - call.read_turns()).into(),
        bytes: sent + read + written,
        read_bytes: read,
        write_bytes: written,
        registrations,
        pages,
        invalidations: registrations - remote.min(registrations),
        placed: u64::from(call.placed > 0),
        ..Effort::of((calls, sent), (replies, 0))
    }
}

/// Returns the work of a call without chunks, in so many Sends.
fn inline(
    (to_server, to_client): (u64, u64),
    unplaced: u64,
    placed: u64,
    calls: u64,
    replies: u64,
) -> Effort {
    let call = to_server + calls * HEADER;
    let reply = to_client + replies * HEADER;
    Effort {
        unplaced,
        placed: u64::from(placed > 0),
        ..Effort::of((calls, call), (replies, reply))
    }
}

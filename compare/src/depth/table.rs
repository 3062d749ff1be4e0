//! The tables.

use crate::rows::Row;
use crate::table::{
    AGAINST, CLIENTS, COPIED, CPU, CREDITS, GRANTS, INTERRUPTS, INVALIDATIONS, MIB_PER_S, OP,
    OPS_PER_S, P50, P99, P999, PACE, READS, RECEIVES, REGISTRATIONS, RESENT, SENDS, SIZE,
    SYSTEM_CALLS, VIA, WIRE, WRITES, with_columns,
};

/// Formats the rows as three tables, with a remark on how to read them.
pub(crate) fn tables(rows: &[Row]) -> Vec<String> {
    let times = [
        OP, SIZE, VIA, CLIENTS, PACE, P50, P99, P999, AGAINST, OPS_PER_S, MIB_PER_S, CPU,
    ];
    let messages = [
        OP,
        SIZE,
        VIA,
        CLIENTS,
        PACE,
        CREDITS,
        SENDS,
        READS,
        WRITES,
        REGISTRATIONS,
        INVALIDATIONS,
        GRANTS,
        RESENT,
    ];
    let ([interrupts_c, interrupts_s], [calls_c, calls_s]) = (INTERRUPTS, SYSTEM_CALLS);
    let work = [
        OP,
        SIZE,
        VIA,
        CLIENTS,
        PACE,
        interrupts_c,
        interrupts_s,
        calls_c,
        calls_s,
        COPIED,
        WIRE,
        RECEIVES,
    ];
    let mut parts: Vec<String> = [&times[..], &messages, &work]
        .map(|columns| with_columns(rows, columns))
        .to_vec();
    let arrive = rows.iter().any(|row| row.arrivals_per_s.is_some());
    let several = rows.iter().any(|row| row.clients != rows[0].clients);
    let clients = rows.iter().find_map(|row| row.clients).unwrap_or(1);
    let clients = match clients {
        _ if several => "Each client".to_owned(),
        1 => "One client".to_owned(),
        clients => format!("Each of {clients} clients"),
    };
    let pace = match arrive {
        true => format!(
            "{clients} begins operations at random times, whether others have ended or not, and\n\
             their latency counts from these; per s: those of all clients."
        ),
        false => format!("{clients} has so many operations in flight."),
    };
    let remark = format!(
        "{pace}\nreceives: what those of the server took at most. credits: the most that a connection took \
         at a\ntime. Other counts are per operation, of both sides, as in `rpcrdma compare --help`."
    );
    parts.push(remark);
    parts
}

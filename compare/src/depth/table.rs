//! The tables.

use rpcrdma_setup::columns::Table;

use crate::rows::Row;
use crate::table::{against, count, number, op, ratio, size};

/// Formats the rows as two tables, with a remark on how to read them.
pub(crate) fn tables(rows: &[Row]) -> Vec<String> {
    let arrive = rows.iter().any(|row| row.arrivals_per_s.is_some());
    let pace = match arrive {
        true => "per s",
        false => "in flight",
    };
    let against = against(rows);
    let mut times = Table::new(
        3,
        [
            "op", "size", "via", pace, "p50 µs", "p99 µs", "p99.9", &against, "ops/s", "MiB/s",
            "CPU µs",
        ],
    )
    .narrow();
    let mut counts = Table::new(
        3,
        [
            "op", "size", "via", pace, "credits", "Sends", "Reads", "Writes", "reg", "inv",
            "intr c", "intr s", "GRANTs", "copied B", "wire B",
        ],
    )
    .narrow();
    for row in rows {
        let pace = || match (row.in_flight, row.arrivals_per_s) {
            (Some(calls), _) => calls.to_string(),
            (None, rate) => number(rate),
        };
        times.push([
            op(row),
            size(row),
            row.conveyance.into(),
            pace(),
            number(row.p50_us),
            number(row.p99_us),
            number(row.p999_us),
            ratio(row.beside_baseline()),
            number(row.ops_per_s),
            number(row.mib_per_s),
            number(row.cpu_us),
        ]);
        counts.push([
            op(row),
            size(row),
            row.conveyance.into(),
            pace(),
            row.credits
                .map_or_else(|| "-".to_owned(), |credits| credits.to_string()),
            count(row.sends),
            count(row.rdma_reads),
            count(row.rdma_writes),
            count(row.registrations),
            count(row.invalidations),
            number(row.interrupts_requester),
            number(row.interrupts_responder),
            count(row.grants),
            number(row.copied_bytes),
            number(row.wire_bytes),
        ]);
    }
    let clients = rows.iter().find_map(|row| row.clients).unwrap_or(1);
    let clients = match clients {
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
        "{pace}\ncredits: the most that a connection took at a time. Other counts are per operation, \
         of both\nsides, as in `rpcrdma compare --help`."
    );
    vec![times.render(), counts.render(), remark]
}

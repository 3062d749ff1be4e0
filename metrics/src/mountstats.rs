//! The format of Linux's `/proc/self/mountstats`, version 1.1, for tools that read it.
//!
//! Where Linux counts something that this mount does not have, the value is 0. Times are milliseconds, as
//! in the kernel. Some counters mean a little else here:
//!
//! | counter | here |
//! |---|---|
//! | read and write pages of `events` | requests of the kernel, which may be for many pages |
//! | read and write pages of `bytes` | bytes / 4096, rounded up, O_DIRECT included |
//! | pull-up | bytes copied to send a message, in this process |
//! | memory regions allocated | registrations |
//!
//! The file system's type is that of Linux (`nfs`), because tools look for it.

use std::fmt::Write as _;
use std::time::Duration;

use nfs_binding::proto::{NFS_PROGRAM, NFS_VERSION, nfs};
use nfs_mount::{MountStatistics, RequestKind};
use rpc_transport::ProcedureCounts;

/// The description of what is mounted, for the first lines.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// The source, as in the table of mounts.
    pub source: String,
    /// The directory.
    pub directory: String,
    /// The options in use, separated by commas.
    pub options: String,
    /// The credential's flavor: 1 for AUTH_SYS.
    pub flavor: u32,
    /// The time for which it has been mounted.
    pub age: Duration,
    /// The number of bytes of which the server wants WRITEs to be a multiple.
    pub write_multiple: u32,
    /// The largest READDIR, bytes.
    pub list: u32,
}

/// Encodes what separates words in the format.
fn word(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' => {
                let _ = write!(out, "\\{:03o}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

fn numbers(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    numbers.join(" ")
}

/// Returns the statistics of a mount in the format of the kernel.
#[must_use]
pub fn show(header: &Header, found: &MountStatistics) -> String {
    use RequestKind as Kind;
    const PAGE: u64 = 4096;
    let of = |kind: Kind| found.requests(kind);
    let Header {
        source,
        directory,
        options,
        flavor,
        age,
        write_multiple,
        list,
    } = header;
    let events = [
        of(Kind::Getattr),
        0,
        0,
        0,
        of(Kind::Open) + of(Kind::Create),
        of(Kind::Lookup),
        of(Kind::Access),
        of(Kind::Write),
        0,
        of(Kind::Read),
        0,
        of(Kind::Write),
        of(Kind::Readdir) + of(Kind::Readdirplus),
        of(Kind::Setattr),
        of(Kind::Flush),
        of(Kind::Fsync),
        0,
        of(Kind::Release),
        0,
        0,
        0,
        found.hidden,
        0,
        0,
        found.delays,
        0,
        0,
    ];
    let read = found.read_ahead + found.read_back + found.read_fetched;
    let bytes = [
        read.saturating_sub(found.read_direct),
        found.written.saturating_sub(found.written_direct),
        found.read_direct,
        found.written_direct,
        found.server_read,
        found.server_written,
        read.div_ceil(PAGE),
        found.written.div_ceil(PAGE),
    ];
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{text}");
    };
    line(format_args!(
        "device {} mounted on {} with fstype nfs statvers=1.1",
        word(source),
        word(directory)
    ));
    line(format_args!("\topts:\t{}", word(options)));
    line(format_args!("\tage:\t{}", age.as_secs()));
    line(format_args!(
        "\tcaps:\tcaps=0x0,wtmult={write_multiple},dtsize={list},bsize=0,namlen=255"
    ));
    line(format_args!(
        "\tsec:\tflavor={flavor},pseudoflavor={flavor}"
    ));
    line(format_args!("\tevents:\t{} ", numbers(&events)));
    line(format_args!("\tbytes:\t{} ", numbers(&bytes)));
    line(format_args!(
        "\tRPC iostats version: 1.1  p/v: {NFS_PROGRAM}/{NFS_VERSION} (nfs)"
    ));
    line(format_args!("\txprt:\t{}", xprt(found)));
    line(format_args!("\tper-op statistics"));
    for (number, name) in nfs::NAMES.iter().enumerate() {
        line(format_args!("\t{name:>12}: {}", per_op(found, number)));
    }
    out.push('\n');
    out
}

/// Returns the line of the transport: `rdma`, or `tcp` with the values that TCP's line has.
fn xprt(found: &MountStatistics) -> String {
    let client = &found.client;
    let sent = client.calls + client.retransmissions;
    let connects = client.reconnects + 1;
    let transport = &found.transport;
    // Port, binds, connects, time to connect, idle time, sends, receives, unknown XIDs, requests in
    // flight, backlog.
    let common = [
        0,
        0,
        connects,
        0,
        0,
        sent,
        client.replies,
        client.stray_replies,
        0,
        0,
    ];
    if !transport.is_rdma {
        // The maximum of slots, and the use of queues.
        return format!("tcp {} {}", numbers(&common), numbers(&[0, 0, 0]));
    }
    let (requester, counters) = (&transport.requester, &transport.counters);
    let rdma = [
        requester.read_segments,
        requester.write_segments,
        requester.reply_segments,
        // Linux counts here neither read chunks nor what was used of the others.
        requester.offered_bytes,
        transport.moved.received.chunk,
        requester.copied_bytes,
        0,
        0,
        0,
        requester.discarded,
        requester.long_calls,
        0,
        0,
        counters.registrations,
        counters.local_invalidations,
        0,
        0,
    ];
    format!("rdma {} {}", numbers(&common), numbers(&rdma))
}

/// Returns the values of a procedure: calls, transmissions, time-outs, bytes sent and received, the times
/// of waiting to be sent, of waiting for the reply and of both, and errors.
fn per_op(found: &MountStatistics, number: usize) -> String {
    let is_it = |counts: &&ProcedureCounts| {
        counts.program == (NFS_PROGRAM, NFS_VERSION)
            && counts.procedure.is_some_and(|it| it as usize == number)
    };
    let Some(counts) = found.procedures.iter().find(is_it) else {
        return numbers(&[0; 9]);
    };
    let millis = |nanos: u64| nanos / 1_000_000;
    let client = &counts.client;
    numbers(&[
        counts.calls(),
        client.transmissions,
        client.timeouts,
        client.sent_bytes,
        client.received_bytes,
        millis(client.queue_nanos),
        millis(client.round_trip_nanos),
        millis(counts.latency.nanos),
        counts.failed(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_end_a_line_or_another_word() {
        assert_eq!(word("nfs://h/a b\n\\"), "nfs://h/a\\040b\\012\\134");
    }

    #[test]
    fn lines_have_as_many_values_as_linux_writes() {
        let mut found = MountStatistics::default();
        let count = |found: &MountStatistics, start: &str| {
            let text = show(&Header::default(), found);
            let mut lines = text.lines().map(str::trim);
            let line = lines.find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().count() - 1
        };
        assert_eq!(count(&found, "events:"), 27);
        assert_eq!(count(&found, "bytes:"), 8);
        assert_eq!(count(&found, "xprt:"), 14);
        assert_eq!(count(&found, "GETATTR:"), 9);
        found.transport.is_rdma = true;
        assert_eq!(count(&found, "xprt:"), 28);
        assert_eq!(found.requests(RequestKind::Read), 0);
    }
}

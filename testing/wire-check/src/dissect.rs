//! Decodes a capture with tshark.

use std::path::Path;
use std::process::Command;

use crate::columns::{Columns, Direction};
use crate::error::Error;

const TOOL: &str = "tshark";

/// The fields that are checked in both directions, even if they must not occur in one.
pub(crate) const CHECKED: &[&str] = &[
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_rdma.inval_stag",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.srcstag",
    "iwarp_rdma.srcto",
    "rpcordma.xid",
    "rpcordma.version",
    "rpcordma.flow_control",
    "rpcordma.msg_type",
    "rpcordma.reads_count",
    "rpcordma.writes_count",
    "rpcordma.reply_count",
    "rpcordma.position",
    "rpcordma.segment_count",
    "rpcordma.rdma_handle",
    "rpcordma.rdma_length",
    "rpcordma.rdma_offset",
    "rpcordma.errcode",
    "rpcordma.vers_low",
    "rpcordma.vers_high",
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.state_accept",
    "nfs.procedure_v3",
    "nfs.status3",
    "nfs.name",
    "nfs.count3",
    "nfs.offset3",
    "nfs.readdirplus.entry.name",
];

/// The other fields: those from which columns are derived, and those that are looked at elsewhere.
const FURTHER: &[&str] = &[
    "iwarp_mpa.key.req",
    "iwarp_mpa.key.rep",
    "iwarp_mpa.rev",
    "iwarp_mpa.crc_flag",
    "iwarp_mpa.marker_flag",
    "iwarp_mpa.privatedata",
    "iwarp_mpa.ulpdulength",
    "iwarp_ddp.tagged_flag",
    "iwarp_ddp.last_flag",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_rdma.opcode",
    "rpc.program",
    "rpc.procedure",
    "_ws.malformed",
    "_ws.expert.message",
];

/// The separator between several values of one field in one packet. It occurs in no name used here.
const AGGREGATOR: char = '|';

/// Decodes `file`, in which the server has `port`, with no options except the fields to print.
pub(crate) fn dissect(file: &Path, port: u16) -> Result<Columns, Error> {
    let mut command = Command::new(TOOL);
    command.arg("-r").arg(file).args(["-T", "fields"]);
    command.args(["-E", "occurrence=a", "-E", "separator=/t"]);
    command.args(["-E", &format!("aggregator={AGGREGATOR}")]);
    command.args(["-e", "tcp.dstport"]);
    let fields = || CHECKED.iter().chain(FURTHER);
    for field in fields() {
        command.args(["-e", field]);
    }
    let mut columns = Columns::default();
    for line in run(&mut command)?.0.lines() {
        let mut cells = line.split('\t');
        let direction = match cells.next().map(str::parse::<u16>) {
            Some(Ok(to)) if to == port => Direction::Call,
            _ => Direction::Reply,
        };
        for (field, cell) in fields().zip(cells) {
            let values = cell.split(AGGREGATOR).filter(|value| !value.is_empty());
            for value in values {
                columns.push(direction, field, normal(value));
            }
        }
    }
    Ok(columns)
}

/// Returns how many frames have a good CRC32c, and how many a bad one. Only tshark's text output
/// shows that.
pub(crate) fn checksums(file: &Path) -> Result<(usize, usize), Error> {
    let mut command = Command::new(TOOL);
    command.arg("-r").arg(file).args(["-O", "iwarp_mpa"]);
    let (text, _) = run(&mut command)?;
    let count = |what| text.matches(what).count();
    Ok((count("(Good CRC32)"), count("(Bad CRC32")))
}

/// Returns the number of packets about which tshark complains: by its analysis of TCP, or because a
/// checksum of IP or TCP is wrong.
pub(crate) fn complaints(file: &Path) -> Result<usize, Error> {
    let mut command = Command::new(TOOL);
    command.arg("-r").arg(file);
    command.args(["-o", "tcp.check_checksum:TRUE"]);
    command.args(["-o", "ip.check_checksum:TRUE"]);
    // 0 is "bad".
    let complaint = "tcp.analysis.flags || tcp.checksum.status == 0 || ip.checksum.status == 0";
    command.args(["-Y", complaint, "-T", "fields", "-e", "frame.number"]);
    Ok(run(&mut command)?.0.lines().count())
}

/// Runs tshark. Returns its output, and what it said on standard error.
pub(crate) fn run(command: &mut Command) -> Result<(String, String), Error> {
    let output = command.output();
    let output = output.map_err(|source| Error::Start { tool: TOOL, source })?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(Error::Tool { tool: TOOL, said });
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

/// Converts a number to decimal, in whatever format tshark prints the field.
fn normal(value: &str) -> String {
    let hex = value.strip_prefix("0x");
    match hex.map(|digits| u64::from_str_radix(digits, 16)) {
        Some(Ok(number)) => number.to_string(),
        _ => value.to_owned(),
    }
}

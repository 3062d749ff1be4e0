//! Checks what the dissector shows of a capture that was made elsewhere, on RoCE: for instance in
//! the lab, with Linux's peers.
//!
//! The Sends are taken from the packets here, and read by the codecs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::Wireshark;
use super::exchange::{WG_MESSAGE, marked, said_of};
use super::fields::{self, Codecs};
use crate::Report;
use crate::error::Error;

/// The UDP port of RoCE.
const ROCE_PORT: u16 = 4791;
/// Bytes of the headers of a capture file and of a packet in it.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Bytes of the base transport header, and of the checksum at the end of a packet.
const BASE: usize = 12;
const CHECKSUM: usize = 4;

/// A direction of a connection: both addresses, and the queue pair.
type Way = (Vec<u8>, u32);

/// Makes the checks.
pub(crate) fn check(file: &Path, report: &mut Report) -> Result<(), Error> {
    let (wireshark, codecs) = (Wireshark::new(), Codecs::new()?);
    let bytes = fs::read(file).map_err(Error::ours("a capture"))?;
    let sends = sends(&bytes);
    // The peers have other connections too, such as those for callbacks of NFSv4.0, from any reserved port: tshark takes
    // some of these for another protocol.
    let filter = format!("udp.port == {ROCE_PORT}");
    let layers = wireshark.layers_with(
        file,
        "rpcrdma1 rpcrdma2 rpc _ws.malformed",
        &["-Y", &filter],
    )?;

    let mut wrong = Vec::new();
    let messages = layers
        .iter()
        .filter(|layer| layer.protocol.starts_with("rpcrdma"));
    let mut shown: Vec<_> = messages.map(|layer| codecs.shown(layer)).collect();
    shown.retain(|fields| fields.first().is_some_and(|field| field.name == "rdma_xid"));
    if shown.len() != sends.len() {
        wrong.push(format!(
            "{} were sent, {} are shown",
            sends.len(),
            shown.len()
        ));
    }
    let is_wg = sends.iter().any(|bytes| is_wg(bytes));
    for (n, (bytes, shown)) in sends.iter().zip(&shown).enumerate() {
        let xdr = match bytes.get(4..8) {
            Some([0, 0, 0, 1]) => "rpcrdma1_xprt_hdr",
            _ if is_wg => WG_MESSAGE,
            _ => "rpcrdma2_xprt_hdr",
        };
        let problem = fields::difference(&said_of(&codecs, xdr, bytes), shown);
        wrong.extend(problem.map(|problem| format!("message {n}: {problem}")));
    }
    report.count("headers as the codecs say", sends.len(), &wrong);

    let lines = || layers.iter().flat_map(|layer| &layer.lines);
    let times = lines().filter(|line| {
        let (protocol, name) = line.name.split_once('.').unwrap_or_default();
        protocol.starts_with("rpcrdma") && name == "time"
    });
    let times = times.count();
    let rpc = |kind: &str| {
        let types = lines().filter(|line| line.name == "rpc.msgtyp");
        types.filter(|line| line.show == kind).count()
    };
    let (calls, replies) = (rpc("0"), rpc("1"));
    let mut wrong = Vec::new();
    for (what, count) in [("calls", calls), ("replies", replies), ("times", times)] {
        if count != calls || calls == 0 {
            wrong.push(format!("{count} {what}, {calls} calls"));
        }
    }
    report.count("calls with replies, whole", calls, &wrong);
    let wrong: Vec<_> = marked(&layers).into_iter().collect();
    report.count("packets, nothing marked", layers.len(), &wrong);
    Ok(())
}

/// Returns whether a message is of the working group's version 2: header types from 6 to 13 are
/// (version-two-07, section 6.1). All connections of a capture have the same version 2.
fn is_wg(bytes: &[u8]) -> bool {
    let of_two = bytes.get(4..8) == Some(&[0, 0, 0, 2]);
    of_two && matches!(bytes.get(12..16), Some([0, 0, 0, 6..=13]))
}

/// Returns the Sends of a capture, in the order in which they are complete.
fn sends(file: &[u8]) -> Vec<Vec<u8>> {
    // Ethernet, or IP without anything before it.
    let before_ip = match file.get(20) {
        Some(1) => 14,
        _ => 0,
    };
    let (mut partial, mut whole) = (HashMap::<Way, Vec<u8>>::new(), Vec::new());
    // The packets seen, by direction and number: a sender may send a packet again.
    let mut seen = HashSet::new();
    let mut at = FILE_HEADER;
    while let Some(header) = file.get(at..at + PACKET_HEADER) {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        at += PACKET_HEADER;
        let packet = file.get(at..at + length).unwrap_or(&[]);
        at += length;
        let Some((key, number, opcode, data)) = packet.get(before_ip..).and_then(roce) else {
            continue;
        };
        // First, middle, last and only, some with four bytes of immediate data or a handle before
        // the payload (InfiniBand architecture specification, section 9.2.1).
        let (skip, is_first, is_last) = match opcode {
            0 => (0, true, false),
            1 => (0, false, false),
            2 => (0, false, true),
            4 => (0, true, true),
            3 | 22 => (4, false, true),
            5 | 23 => (4, true, true),
            _ => continue,
        };
        if !seen.insert((key.clone(), number)) {
            continue;
        }
        let message = partial.entry(key.clone()).or_default();
        if is_first {
            message.clear();
        }
        message.extend(data.get(skip..).unwrap_or(&[]));
        if is_last {
            whole.extend(partial.remove(&key));
        }
    }
    whole
}

/// Returns the direction, the number, the opcode, and what follows the base header.
fn roce(ip: &[u8]) -> Option<(Way, u32, u8, &[u8])> {
    const UDP: u8 = 17;
    let start = usize::from(ip.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    let udp = ip.get(start..total)?;
    let port = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    if *ip.get(9)? != UDP || port != ROCE_PORT {
        return None;
    }
    let packet = udp.get(8..)?;
    let base = packet.get(..BASE)?;
    let pad = usize::from(base[1] >> 4 & 3);
    let queue_pair = u32::from_be_bytes([0, base[5], base[6], base[7]]);
    let number = u32::from_be_bytes([0, base[9], base[10], base[11]]);
    let data = packet.get(BASE..packet.len().checked_sub(CHECKSUM + pad)?)?;
    let way = (ip.get(12..20)?.to_vec(), queue_pair);
    Some((way, number, base[0], data))
}

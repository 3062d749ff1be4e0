//! Checks what the dissector shows of real connections: all procedures, by both versions and with
//! all features, over the iwarp device.
//!
//! The headers must be those that the codecs read from the Sends that were posted. RPC, NFS and
//! MOUNT below them must be what tshark shows of the same calls over TCP. Nothing may be marked.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use rdma::middleware::Posted;
use rpc_transport::rdma::Version;
use rpcrdma_protocols::RoundTripFeatures;

use super::fields::{self, Codecs, Field, Said, Shown};
use super::frames::End;
use super::pdml::{Layer, Line};
use super::{Wireshark, roce};
use crate::Report;
use crate::capture::Capture;
use crate::columns::Direction;
use crate::error::Error;
use crate::own::{self, Own};
use crate::scenario::{Form, Seen, Stage};

/// The XDR type of headers of the working group's version 2.
pub(super) const WG_MESSAGE: &str = "rpcrdma2wg_msg";
/// The XDR type of headers of its placement extension.
pub(super) const PLACED_MESSAGE: &str = "rpcrdma2_placed_msg";

/// The protocols above RPC-over-RDMA.
const UPPER: [&str; 3] = ["rpc", "nfs", "mount"];

/// The protocols whose layers are compared.
const PROTOCOLS: &str = "rpcrdma1 rpcrdma2 rpc nfs mount tcp _ws.malformed";

/// Fields above RPC-over-RDMA that differ between two exchanges of the same calls: XIDs, frames,
/// times, handles (which are random), the number of the file system (an export in memory is another
/// one in each server), TCP's record marks, and free memory, which depends on how the server
/// allocated it. Whatever contains one of these.
const VOLATILE: &[&str] = &[
    "xid", "frame", "time", "fh", "handle", "verf", "verifier", "fraglen", "lastfrag", "hash",
    "fbytes", "abytes", "ffiles", "afiles", "fsid",
];

/// Makes the checks for every version and set of features.
pub(super) fn check(
    wireshark: &Wireshark,
    codecs: &Codecs,
    folder: &Path,
    report: &mut Report,
) -> Result<(), Error> {
    let over_tcp = upper(&record(wireshark, folder, Form::Tcp, "tcp")?.layers);
    let forms = [
        (Version::ONE, "none", "v1"),
        (Version::TWO, "none", "v2"),
        (Version::TWO, "ddp", "v2-ddp"),
        (Version::TWO, "cont", "v2-cont"),
        (Version::TWO, "ddp+cont", "v2-ddp-cont"),
        (Version::TWO_WG, "none", "wg"),
        (Version::TWO_WG, "ddp", "wg-ddp"),
    ];
    for (version, features, name) in forms {
        let features: RoundTripFeatures = features.parse().map_err(Error::ours("features"))?;
        let recorded = record(wireshark, folder, Form::Rdma(version, features), name)?;
        compare(codecs, &over_tcp, &recorded, name, report);
        // What the devices capture themselves shows the same.
        let mut recorded = recorded;
        for file in std::mem::take(&mut recorded.own) {
            let layers = wireshark.layers_of(file.path(), PROTOCOLS)?;
            recorded = Recorded { layers, ..recorded };
            let name = format!("{name}, {}", file.name());
            compare(codecs, &over_tcp, &recorded, &name, report);
        }
        let file = folder.join(format!("{name}-roce.pcap"));
        roce::transcode(&recorded.file, recorded.port, &file)?;
        let layers =
            wireshark.layers_of(&file, "rpcrdma1 rpcrdma2 rpc nfs mount ip _ws.malformed")?;
        let recorded = Recorded { layers, ..recorded };
        compare(
            codecs,
            &over_tcp,
            &recorded,
            &format!("{name} on RoCE"),
            report,
        );
    }
    Ok(())
}

/// Compares what is shown of an exchange.
fn compare(
    codecs: &Codecs,
    over_tcp: &[Line],
    recorded: &Recorded,
    name: &str,
    report: &mut Report,
) {
    let mut add = |what: &str, problem: Option<String>| {
        let mark = if problem.is_none() { "ok" } else { "WRONG" };
        let problem = problem.map_or(String::new(), |problem| format!("\n      {problem}"));
        report.add(
            mark == "ok",
            format!("{mark:<6}dissector: {name}: {what}{problem}"),
        );
    };
    for direction in [Direction::Call, Direction::Reply] {
        let (count, problem) = headers(codecs, recorded, direction);
        add(&format!("{count} headers, {direction}"), problem);
    }
    let (count, problem) = pairs(codecs, recorded);
    add(&format!("{count} calls matched to replies"), problem);
    add("nothing is marked", marked(&recorded.layers));
    let below = upper(&recorded.layers);
    let problem = differ(over_tcp, &below);
    add(
        &format!("{} lines of RPC and NFS as over TCP", below.len()),
        problem,
    );
}

/// A captured exchange.
struct Recorded {
    /// The XDR type of its headers.
    xdr: &'static str,
    seen: Vec<Seen>,
    layers: Vec<Layer>,
    port: u16,
    file: PathBuf,
    /// The captures that the devices wrote themselves.
    own: Vec<own::File>,
}

fn record(wireshark: &Wireshark, folder: &Path, form: Form, name: &str) -> Result<Recorded, Error> {
    let file = folder.join(format!("{name}.pcap"));
    let own = match form {
        Form::Tcp => None,
        Form::Rdma(..) => Some(Own::create(folder, name)?),
    };
    let stage = Stage::set(form, own.as_ref())?;
    let port = stage.address().port();
    let capture = Capture::start(port, &file)?;
    let scenario = stage.play_all();
    capture.stop()?;
    let seen = scenario?.seen;
    // TCP's server has a port that tshark knows no protocol for.
    let decode = format!("tcp.port=={port},rpc");
    let options: &[&str] = match form {
        Form::Tcp => &["-d", &decode],
        Form::Rdma(..) => &[],
    };
    let layers = wireshark.layers_with(&file, PROTOCOLS, options)?;
    Ok(Recorded {
        xdr: match form {
            Form::Rdma(Version::ONE, _) => "rpcrdma1_xprt_hdr",
            Form::Rdma(Version::TWO_WG, _) => WG_MESSAGE,
            _ => "rpcrdma2_xprt_hdr",
        },
        seen,
        layers,
        port,
        file,
        own: own.map_or(Ok(Vec::new()), |own| own.finish())?,
    })
}

/// Returns the layers of the dissector in one direction.
fn ours(recorded: &Recorded, direction: Direction) -> Vec<&Layer> {
    let mut current = direction;
    let mut found = Vec::new();
    for layer in &recorded.layers {
        if layer.protocol == "ip" {
            let mut lines = layer.lines.iter();
            let from = lines.find(|line| line.name == "ip.src");
            let client = End::Client.address().map(|byte| byte.to_string()).join(".");
            let is_call = from.is_some_and(|from| from.show == client);
            current = if is_call {
                Direction::Call
            } else {
                Direction::Reply
            };
        } else if layer.protocol == "tcp" {
            let mut lines = layer.lines.iter();
            let to = lines.find(|line| line.name == "tcp.dstport");
            let is_call = to.is_some_and(|to| to.show == recorded.port.to_string());
            current = if is_call {
                Direction::Call
            } else {
                Direction::Reply
            };
        } else if layer.protocol.starts_with("rpcrdma") && current == direction {
            found.push(layer);
        }
    }
    found
}

/// Returns what the codecs say of the Sends in one direction.
fn said(codecs: &Codecs, recorded: &Recorded, direction: Direction) -> Vec<Vec<Field>> {
    let sends = recorded
        .seen
        .iter()
        .filter(|seen| seen.direction == direction);
    let sends = sends.filter_map(|seen| match &seen.posted {
        Posted::Send { gather, .. } => Some(Bytes::from(gather.concat())),
        _ => None,
    });
    sends
        .map(|bytes| said_of(codecs, recorded.xdr, &bytes))
        .collect()
}

/// Returns what the codecs say of a message of this type; nothing if they refuse it. Headers of the
/// placement extension are among those of [`WG_MESSAGE`].
pub(super) fn said_of(codecs: &Codecs, xdr: &str, bytes: &[u8]) -> Vec<Field> {
    let first = codecs.constant("RDMA2_CALL_PLACED_MIDDLE");
    let placed = first..=codecs.constant("RDMA2_REPLY_PLACED");
    let number = bytes.get(12..).and_then(|rest| rest.first_chunk());
    let number = number.map(|number| u32::from_be_bytes(*number));
    let xdr = match number {
        Some(number) if xdr == WG_MESSAGE && placed.contains(&number) => PLACED_MESSAGE,
        _ => xdr,
    };
    match codecs.header(xdr, bytes) {
        Said::Fields(fields) => fields,
        Said::Refused => Vec::new(),
    }
}

fn headers(codecs: &Codecs, recorded: &Recorded, direction: Direction) -> (usize, Option<String>) {
    let said = said(codecs, recorded, direction);
    let mut shown: Vec<_> = ours(recorded, direction)
        .into_iter()
        .map(|layer| codecs.shown(layer))
        .collect();
    // Others are RDMA Reads and Writes, and parts of Sends.
    shown.retain(|fields| fields.first().is_some_and(|field| field.name == "rdma_xid"));
    let count = said.len();
    if shown.len() != count || count == 0 {
        let problem = format!("{count} were sent, {} are shown", shown.len());
        return (count, Some(problem));
    }
    let mut pairs = said.iter().zip(&shown).enumerate();
    let problem = pairs.find_map(|(n, (said, shown))| {
        let problem = fields::difference(said, shown)?;
        Some(format!("message {n}: {problem}"))
    });
    (count, problem)
}

/// Checks that as many calls have a reply, and replies a call and a time, as calls were sent.
fn pairs(codecs: &Codecs, recorded: &Recorded) -> (usize, Option<String>) {
    let xmtreq = Shown::Number(u64::from(codecs.constant("ROPT_XMTREQ")));
    let placed = u64::from(codecs.constant("RDMA2_CALL_PLACED"));
    let is_call = |fields: &Vec<Field>| {
        let of = |name: &str| {
            fields
                .iter()
                .find(|field| field.name == name)
                .map(|field| &field.value)
        };
        // RDMA2_CALL_EXTERNAL, RDMA2_CALL_INLINE and RDMA2_CALL_PLACED: each call of the working
        // group's version has one of them.
        let is_call = match of("rdma_htype") {
            Some(Shown::Number(number)) => matches!(number, 8 | 10) || *number == placed,
            _ => false,
        };
        match (of("rdma_proc"), of("rdma_opttype")) {
            (Some(Shown::Number(0 | 1)), _) => true,
            (_, Some(operation)) => *operation == xmtreq,
            _ => is_call,
        }
    };
    let calls = said(codecs, recorded, Direction::Call)
        .iter()
        .filter(|f| is_call(f))
        .count();
    let count = |direction, name: &str| {
        let layers = ours(recorded, direction);
        let lines = layers.iter().flat_map(|layer| &layer.lines);
        let named = lines.filter(|line| line.name.split_once('.').is_some_and(|(_, n)| n == name));
        named.count()
    };
    let found = [
        ("response_in", count(Direction::Call, "response_in")),
        ("request_in", count(Direction::Reply, "request_in")),
        ("time", count(Direction::Reply, "time")),
    ];
    let wrong = found.iter().find(|(_, count)| *count < calls || calls == 0);
    (
        calls,
        wrong.map(|(name, count)| format!("{name} is there {count} times")),
    )
}

/// Returns the first expert item of the dissector, or what tshark calls malformed.
pub(super) fn marked(layers: &[Layer]) -> Option<String> {
    layers.iter().find_map(|layer| {
        let is_mark = |line: &&Line| line.name.contains(".rule.") || line.name == "_ws.malformed";
        let line = layer.lines.iter().find(is_mark);
        let name = line.map(|line| line.name.as_str());
        let name =
            name.or_else(|| (layer.protocol == "_ws.malformed").then_some("_ws.malformed"))?;
        Some(format!("packet {}: {name}", layer.packet))
    })
}

/// Returns the lines of RPC and above.
fn upper(layers: &[Layer]) -> Vec<Line> {
    let layers = layers
        .iter()
        .filter(|layer| UPPER.contains(&layer.protocol.as_str()));
    let lines = layers.flat_map(|layer| layer.lines.iter());
    let lines = lines.filter(|line| {
        let is_field = UPPER
            .iter()
            .any(|name| line.name.split('.').next() == Some(name));
        is_field && !VOLATILE.iter().any(|part| line.name.contains(part))
    });
    lines.cloned().collect()
}

fn differ(over_tcp: &[Line], over_rdma: &[Line]) -> Option<String> {
    let same = |a: &Line, b: &Line| (&a.name, &a.show, &a.value) == (&b.name, &b.show, &b.value);
    let at = over_tcp
        .iter()
        .zip(over_rdma)
        .position(|(a, b)| !same(a, b));
    let at = match at {
        Some(at) => at,
        None if over_tcp.len() == over_rdma.len() && !over_tcp.is_empty() => return None,
        None => over_tcp.len().min(over_rdma.len()),
    };
    let show = |lines: &[Line]| {
        lines.get(at).map_or("nothing".to_owned(), |line| {
            let value: String = line.value.chars().take(40).collect();
            format!(
                "{} {} ({value})",
                line.name,
                line.show.chars().take(60).collect::<String>()
            )
        })
    };
    Some(format!(
        "line {at}: {} over TCP, {} here",
        show(over_tcp),
        show(over_rdma)
    ))
}

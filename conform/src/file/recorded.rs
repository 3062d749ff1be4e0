//! Case files that are written from recorded exchanges.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use super::Vocabularies;
use super::line::Error;
use super::value::{PROCEDURES, RESULTS};
use crate::dialect::Dialect;
use crate::fields::{Decoded, Leaf, decode, shortest};
use crate::vocabulary::{FIXED, HeaderType, Vocabulary};
use crate::wire::{Reader, rpc, v1, wg};

/// The most exchanges that are in progress, and the most messages of one.
const MOST_EXCHANGES: usize = 4096;
const MOST_MESSAGES: usize = 64;
/// The most cases that are written.
const MOST_CASES: usize = 64;
/// NFS version 3's READ, WRITE and COMMIT, which are of files.
const OF_FILES: [u32; 3] = [6, 7, 21];
/// Procedures of NFS version 3 whose first result is the same for any folder or file.
const SAME_ANYWHERE: [u32; 8] = [1, 4, 6, 7, 18, 19, 20, 21];

/// A message that was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The number of its last packet.
    pub packet: u64,
    /// The connection.
    pub connection: u32,
    /// The version.
    pub dialect: Dialect,
    /// Whether the client sent it.
    pub from_client: bool,
    /// The octets, from the header on.
    pub octets: Vec<u8>,
}

/// The number of messages, and of whole exchanges, that are not in the cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Exchanges like one that is a case already.
    pub alike: u64,
    /// Messages of no exchange that a case can have: without a reply, from server to client, whose RPC message is in
    /// memory, or with credentials that another client cannot have.
    pub others: u64,
}

/// Exchanges that have been recorded.
#[derive(Debug)]
pub struct Recording {
    vocabularies: Vocabularies,
    open: HashMap<(u32, u32), Vec<Recorded>>,
    whole: Vec<Vec<Recorded>>,
    seen: HashSet<Vec<String>>,
    /// File handles that READ, WRITE or COMMIT had.
    of_files: HashSet<Vec<u8>>,
    left: Left,
}

/// An RPC call that can be made again.
struct Call<'a> {
    program: u32,
    version: u32,
    procedure: u32,
    arguments: &'a [u8],
}

impl Recording {
    /// Begins a recording.
    #[must_use]
    pub fn new(vocabularies: Vocabularies) -> Self {
        Self {
            vocabularies,
            open: HashMap::new(),
            whole: Vec::new(),
            seen: HashSet::new(),
            of_files: HashSet::new(),
            left: Left::default(),
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// An XDR file has an error.
    pub fn take(&mut self, message: Recorded) -> Result<(), Error> {
        let vocabulary = self.vocabularies.of(message.dialect)?;
        let mut from = Reader(&message.octets);
        let words = [from.word(), from.word(), from.word(), from.word()];
        let [Some(xid), _, _, Some(number)] = words else {
            self.left.others += 1;
            return Ok(());
        };
        let is_of_connection =
            message.dialect == Dialect::Wg && (wg::GRANT..=wg::CONNPROP_FINAL).contains(&number);
        let Some((header, _)) = decoded(&vocabulary, &message.octets) else {
            self.left.others += 1;
            return Ok(());
        };
        if is_of_connection {
            return Ok(());
        }
        let key = (message.connection, xid);
        if message.from_client {
            let known = self.open.get(&key).map_or(0, Vec::len);
            if known >= MOST_MESSAGES || (known == 0 && self.open.len() >= MOST_EXCHANGES) {
                self.left.others += 1;
                return Ok(());
            }
            self.open.entry(key).or_default().push(message);
            return Ok(());
        }
        let Some(exchange) = self.open.get_mut(&key).filter(|it| !it.is_empty()) else {
            self.left.others += 1;
            return Ok(());
        };
        if header.name.ends_with("_MIDDLE") && exchange.len() < MOST_MESSAGES {
            exchange.push(message);
            return Ok(());
        }
        let Some(mut exchange) = self.open.remove(&key) else {
            return Ok(());
        };
        exchange.push(message);
        self.ended(&vocabulary, exchange);
        Ok(())
    }

    /// Keeps an exchange unless there is one like it.
    fn ended(&mut self, vocabulary: &Vocabulary, exchange: Vec<Recorded>) {
        let calls = exchange.iter().take_while(|it| it.from_client);
        let payload: Vec<u8> = calls.flat_map(|it| payload_of(vocabulary, it)).collect();
        let Some(call) = call_of(&payload) else {
            self.left.others += exchange.len() as u64;
            return;
        };
        if let (true, Some((handle, _))) = (OF_FILES.contains(&call.procedure), handle_of(&call)) {
            self.of_files.insert(handle.to_vec());
        }
        let mut shape = vec![format!(
            "{} {} {}",
            call.program, call.version, call.procedure
        )];
        for message in &exchange {
            if let Some((header, fields)) = decoded(vocabulary, &message.octets) {
                let places = fields.fields.into_iter().map(|(place, _)| place);
                shape.push(format!("{} {}", header.name, message.from_client));
                shape.extend(places);
            }
        }
        if self.whole.len() >= MOST_CASES || !self.seen.insert(shape) {
            self.left.alike += 1;
            return;
        }
        self.whole.push(exchange);
    }

    /// Returns a file with a case for each kind of exchange, and what is not in it. `document` begins their addresses,
    /// and `source` says where they come from.
    ///
    /// # Errors
    /// An XDR file has an error.
    pub fn written(&self, document: &str, source: &str) -> Result<(String, Left), Error> {
        let mut out = format!(
            "# Recorded: {source}. Handles of memory and of files, XIDs and credentials are those of the one who \
             replays it.\n"
        );
        for (at, exchange) in self.whole.iter().enumerate() {
            let Some(first) = exchange.first() else {
                continue;
            };
            let vocabulary = self.vocabularies.of(first.dialect)?;
            self.case(&vocabulary, document, at + 1, exchange, &mut out);
        }
        let mut left = self.left;
        left.others += self.open.values().map(|it| it.len() as u64).sum::<u64>();
        Ok((out, left))
    }

    /// Returns the number of cases.
    #[must_use]
    pub fn cases(&self) -> usize {
        self.whole.len()
    }

    fn case(
        &self,
        vocabulary: &Arc<Vocabulary>,
        document: &str,
        number: usize,
        exchange: &[Recorded],
        out: &mut String,
    ) {
        let (calls, replies): (Vec<_>, Vec<_>) = exchange.iter().partition(|it| it.from_client);
        let payload: Vec<u8> = calls
            .iter()
            .flat_map(|it| payload_of(vocabulary, it))
            .collect();
        let (Some(call), Some(last)) = (call_of(&payload), replies.last()) else {
            return;
        };
        let Some((reply, fields)) = decoded(vocabulary, &last.octets) else {
            return;
        };
        let name = procedure(&call);
        let packet = calls.first().map_or(0, |it| it.packet);
        let dialect = vocabulary.dialect();
        // Writing to a String does not fail, here and below.
        let _ = write!(
            out,
            "\ncase {document}/0/{number} robustness\nspeaks {}\nsends {name}, as in packet {packet}\nexpects {}, as \
             in packet {}\n\n",
            dialect.group(),
            reply.name,
            last.packet
        );
        let mut memory = Memory::default();
        let mut messages = String::new();
        let mut sent = 0;
        for message in &calls {
            let Some((header, fields)) = decoded(vocabulary, &message.octets) else {
                continue;
            };
            let _ = writeln!(
                messages,
                "    --- {} {}>",
                header.name,
                dashes(&header.name)
            );
            let (is_first, is_only) = (sent == 0, calls.len() == 1);
            // Positions move with the length of credentials and handles, unless the octets are the recorded ones.
            let end = is_only.then_some(fields.rest.len());
            memory.fields(vocabulary, &header, &fields, end, &mut messages);
            let part = fields.rest;
            sent += part.len();
            if is_first && is_only {
                let _ = writeln!(messages, "          rpc = {}", self.call(&call));
            } else if !part.is_empty() {
                // A part: its octets, with the XID and the credential of the recorded call.
                let xid = if is_first { "{xid} " } else { "" };
                let octets = if is_first {
                    part.get(4..).unwrap_or_default()
                } else {
                    &part[..]
                };
                let _ = writeln!(messages, "          rpc = {xid}{}", hex(octets));
            }
        }
        out.push_str(&memory.lines);
        out.push_str(&messages);
        let _ = writeln!(out, "    <-- {} {}-", reply.name, dashes(&reply.name));
        match reply.number {
            v1::ERROR => {
                for (place, leaf) in fields.fields.iter().skip(FIXED.len() + 1) {
                    if let Leaf::Number(number) = leaf {
                        let place = shortest(vocabulary, &reply, place);
                        let _ = writeln!(out, "          {place} = {number}");
                    }
                }
            }
            _ => {
                let whole: Vec<u8> = replies
                    .iter()
                    .flat_map(|it| payload_of(vocabulary, it))
                    .collect();
                if let Some(result) = result(&call, calls.len() == 1, &whole) {
                    let _ = writeln!(out, "          rpc = reply {result}");
                }
                self.alternative(vocabulary, &reply, &memory, out);
            }
        }
    }

    /// Writes the other form of a reply, whose length depends on what the server has, where the call allows both.
    fn alternative(
        &self,
        vocabulary: &Vocabulary,
        reply: &HeaderType,
        memory: &Memory,
        out: &mut String,
    ) {
        let forms = match vocabulary.dialect() {
            Dialect::One => ["RDMA_MSG", "RDMA_NOMSG"],
            Dialect::Two => ["RDMA2_MSG", "RDMA2_NOMSG"],
            Dialect::Wg => ["RDMA2_REPLY_INLINE", "RDMA2_REPLY_EXTERNAL"],
        };
        if memory.has_reply_chunk && forms.contains(&reply.name.as_str()) {
            for form in forms.into_iter().filter(|it| *it != reply.name) {
                let _ = writeln!(out, " or <-- {form} {}-", dashes(form));
            }
        }
    }

    /// Returns the value of `rpc` for a call.
    fn call(&self, call: &Call<'_>) -> String {
        let mut text = format!("call {}", procedure(call));
        let mut rest = call.arguments;
        if let Some((handle, after)) = handle_of(call) {
            let name = match self.of_files.contains(handle) {
                true => "{file}",
                false => "{folder}",
            };
            let _ = write!(text, " {name}");
            rest = after;
        }
        if !rest.is_empty() {
            let _ = write!(text, " {}", hex(rest));
        }
        text
    }
}

/// Memory that a recorded call offers, in lines of a case.
#[derive(Default)]
struct Memory {
    lines: String,
    /// The names of memory, by handle, offset and length.
    names: BTreeMap<[u64; 3], String>,
    has_reply_chunk: bool,
}

impl Memory {
    /// Writes the fields of a message that is sent, without those that a replay sets by itself. Positions are written
    /// as distances from `end`, the length of the RPC message behind the header, if there is one.
    fn fields(
        &mut self,
        vocabulary: &Vocabulary,
        header: &HeaderType,
        decoded: &Decoded,
        end: Option<usize>,
        out: &mut String,
    ) {
        let number = |place: &str| match decoded.get(place) {
            Some(Leaf::Number(number)) => Some(*number),
            _ => None,
        };
        let mut handles: HashMap<u64, String> = HashMap::new();
        let mut later = Vec::new();
        for (place, leaf) in &decoded.fields {
            let [xid, version, credit] = FIXED;
            let is_own = [xid, version, vocabulary.selector()].contains(&place.as_str())
                || (place == credit && vocabulary.dialect() == Dialect::Wg);
            if is_own {
                continue;
            }
            if let Some((segment, field)) = place.rsplit_once('.') {
                let at = ["rdma_handle", "rdma_length", "rdma_offset"];
                let numbers = at.map(|name| number(&format!("{segment}.{name}")));
                if let ([Some(handle), Some(length), Some(offset)], true) =
                    (numbers, at.contains(&field))
                {
                    if field == "rdma_handle" {
                        let name = self.name([handle, offset, length], segment);
                        handles.insert(handle, name.clone());
                        let segment = match shortest(vocabulary, header, place).rsplit_once('.') {
                            Some((short, _)) => short.to_owned(),
                            None => segment.to_owned(),
                        };
                        let _ = writeln!(out, "          {segment} = memory {name}");
                    }
                    continue;
                }
            }
            let short = shortest(vocabulary, header, place);
            match leaf {
                Leaf::Number(number) if place == "rdma_inv_handle" && *number != 0 => {
                    later.push(*number);
                }
                Leaf::Number(number) => {
                    let is_position = place.ends_with("rdma_position") && *number > 0;
                    let end = end.filter(|_| is_position);
                    let value = match end.and_then(|end| distance(*number, end)) {
                        None => number.to_string(),
                        Some(0) => "end".to_owned(),
                        Some(distance) => format!("end{distance:+}"),
                    };
                    let _ = writeln!(out, "          {short} = {value}");
                }
                Leaf::Octets(octets) if octets.is_empty() => {}
                Leaf::Octets(octets) => {
                    let _ = writeln!(out, "          {short} = {}", hex(octets));
                }
                // The elements say how many there are.
                Leaf::Count(_) => {}
            }
        }
        for handle in later {
            if let Some(name) = handles.get(&handle) {
                let _ = writeln!(out, "          rdma_inv_handle = handle {name}");
            }
        }
    }

    fn name(&mut self, memory: [u64; 3], place: &str) -> String {
        let [_, _, length] = memory;
        let is_read = place.starts_with("rdma_reads") || place.starts_with("rdma_call");
        self.has_reply_chunk |= place.contains("reply");
        let next = format!("m{}", self.names.len() + 1);
        if let Some(known) = self.names.get(&memory) {
            return known.clone();
        }
        let verb = if is_read { "offer" } else { "room" };
        let _ = writeln!(self.lines, "{verb} {next} {length} octets");
        self.names.insert(memory, next.clone());
        next
    }
}

/// Returns the dashes after a name, so that arrows end below each other.
fn dashes(name: &str) -> String {
    "-".repeat(36_usize.saturating_sub(name.len()).max(2))
}

/// Returns how far a position is behind the end of the octets, if that can be written.
fn distance(position: u64, end: usize) -> Option<i32> {
    let (position, end) = (i64::try_from(position).ok()?, i64::try_from(end).ok()?);
    i32::try_from(position.checked_sub(end)?).ok()
}

fn decoded(vocabulary: &Vocabulary, message: &[u8]) -> Option<(HeaderType, Decoded)> {
    let number = Reader(message.get(12..)?).word()?;
    let header = vocabulary.header_of(number)?;
    let decoded = decode(vocabulary, &header, message).ok()?;
    Some((header, decoded))
}

fn payload_of(vocabulary: &Vocabulary, message: &Recorded) -> Vec<u8> {
    decoded(vocabulary, &message.octets).map_or_else(Vec::new, |(_, it)| it.rest)
}

/// Returns a call with AUTH_NONE or AUTH_SYS, which the one who replays it can make.
fn call_of(payload: &[u8]) -> Option<Call<'_>> {
    let mut from = Reader(payload);
    let (_, kind, version) = (from.word()?, from.word()?, from.word()?);
    if (kind, version) != (rpc::CALL, 2) {
        return None;
    }
    let (program, version, procedure) = (from.word()?, from.word()?, from.word()?);
    for _ in 0..2 {
        let flavor = from.word()?;
        let length = from.word()? as usize;
        from.take(length.checked_next_multiple_of(4)?)?;
        if flavor > 1 {
            return None;
        }
    }
    Some(Call {
        program,
        version,
        procedure,
        arguments: from.0,
    })
}

/// Returns the file handle that begins the arguments of a procedure of NFS version 3, and the other arguments.
fn handle_of<'a>(call: &Call<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let is_nfs = (call.program, call.version) == (rpc::NFS, 3) && call.procedure != 0;
    let mut from = Reader(call.arguments);
    let length = from.word().filter(|it| is_nfs && *it <= 64)? as usize;
    let handle = from.take(length)?;
    from.take(length.wrapping_neg() % 4)?;
    Some((handle, from.0))
}

fn procedure(call: &Call<'_>) -> String {
    let Call {
        program,
        version,
        procedure,
        ..
    } = call;
    let named = PROCEDURES.get(*procedure as usize);
    match (*program, *version, named) {
        (rpc::NFS, 3, Some(name)) => format!("NFS 3 {name}"),
        (rpc::NFS, ..) => format!("NFS {version} {procedure}"),
        (rpc::MOUNT, ..) => format!("MOUNT {version} {procedure}"),
        _ => format!("{program} {version} {procedure}"),
    }
}

/// Returns the result of a call that was accepted, with its first word where that is the same at any server. Calls in
/// several messages have the recorded handles, which another server does not know.
fn result(call: &Call<'_>, in_one_message: bool, reply: &[u8]) -> Option<String> {
    // A server may lack any other program.
    if !matches!((call.program, call.version), (rpc::NFS | rpc::MOUNT, 3)) {
        return None;
    }
    let mut from = Reader(reply);
    let [_, kind, accepted] = [from.word()?, from.word()?, from.word()?];
    if (kind, accepted) != (rpc::REPLY, 0) {
        return None;
    }
    let _flavor = from.word()?;
    let length = from.word()? as usize;
    from.take(length.checked_next_multiple_of(4)?)?;
    let status = from.word()?;
    let status = match RESULTS.get(status as usize) {
        Some(name) => (*name).to_owned(),
        None => status.to_string(),
    };
    let is_same = in_one_message
        && (call.program, call.version) == (rpc::NFS, 3)
        && SAME_ANYWHERE.contains(&call.procedure);
    Some(match (from.word(), is_same) {
        (None, _) => status,
        (Some(first), true) => format!("{status} {first} ..."),
        (Some(_), false) => format!("{status} ..."),
    })
}

fn hex(octets: &[u8]) -> String {
    let words = octets.chunks(4).map(|word| {
        let digits = word.iter().map(|byte| format!("{byte:02x}"));
        format!("x{}", digits.collect::<String>())
    });
    words.collect::<Vec<_>>().join(" ")
}

//! The text of a case.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::Recorded;
use super::call::{Call, call_of, handle_of, procedure, result};
use crate::dialect::Dialect;
use crate::fields::{Decoded, Leaf, decode, shortest};
use crate::vocabulary::{FIXED, HeaderType, Vocabulary};
use crate::wire::{Reader, v1};

/// The fields of a segment.
const OF_SEGMENT: [&str; 3] = ["rdma_handle", "rdma_length", "rdma_offset"];

/// Returns the case of an exchange, if it has a call and a reply. `of_files` has file handles that are those of files.
pub(super) fn case(
    vocabulary: &Vocabulary,
    of_files: &HashSet<Vec<u8>>,
    address: &str,
    exchange: &[Recorded],
) -> Option<String> {
    let (calls, replies): (Vec<_>, Vec<_>) = exchange.iter().partition(|it| it.from_client);
    let payload: Vec<u8> = calls
        .iter()
        .flat_map(|it| payload_of(vocabulary, it))
        .collect();
    let (call, first, last) = (call_of(&payload)?, calls.first()?, replies.last()?);
    let (reply, fields) = decoded(vocabulary, &last.octets)?;
    let mut out = String::new();
    // Writing to a String does not fail, here and below.
    let _ = write!(
        out,
        "\ncase {address} robustness\nspeaks {}\nsends {}, as in packet {}\nexpects {}, as in packet {}\n\n",
        vocabulary.dialect().group(),
        procedure(&call),
        first.packet,
        reply.name,
        last.packet
    );
    let mut memory = Memory::default();
    let mut messages = String::new();
    let mut sent = 0;
    for message in &calls {
        let (header, fields) = decoded(vocabulary, &message.octets)?;
        let dashes = dashes(&header.name);
        let _ = writeln!(messages, "    --- {} {dashes}>", header.name);
        let (is_first, is_only) = (sent == 0, calls.len() == 1);
        // Positions move with the length of credentials and handles, unless the octets are the recorded ones.
        let end = is_only.then_some(fields.rest.len());
        memory.fields(vocabulary, header, &fields, end, &mut messages);
        let part = fields.rest;
        sent += part.len();
        if is_first && is_only {
            let rpc = call_text(&call, of_files);
            let _ = writeln!(messages, "          rpc = {rpc}");
        } else if !part.is_empty() {
            // A part: its octets, with the XID of the case.
            let whole = part.split_at_checked(4).filter(|_| is_first);
            let text = match whole {
                Some((_, [])) => "{xid}".to_owned(),
                Some((_, octets)) => format!("{{xid}} {}", hex(octets)),
                None => hex(&part),
            };
            let _ = writeln!(messages, "          rpc = {text}");
        }
    }
    out.push_str(&memory.lines);
    out.push_str(&messages);
    let _ = writeln!(out, "    <-- {} {}-", reply.name, dashes(&reply.name));
    if reply.number == v1::ERROR {
        for (place, leaf) in fields.fields.iter().skip(FIXED.len() + 1) {
            if let Leaf::Number(number) = leaf {
                let place = shortest(vocabulary, reply, place);
                let _ = writeln!(out, "          {place} = {number}");
            }
        }
        return Some(out);
    }
    let whole: Vec<u8> = replies
        .iter()
        .flat_map(|it| payload_of(vocabulary, it))
        .collect();
    if let Some(result) = result(&call, calls.len() == 1, &whole) {
        let _ = writeln!(out, "          rpc = reply {result}");
    }
    if memory.has_reply_chunk {
        alternative(vocabulary.dialect(), reply, &mut out);
    }
    Some(out)
}

/// Writes the other form of a reply, whose length depends on what the server has. The call allows both.
fn alternative(dialect: Dialect, reply: &HeaderType, out: &mut String) {
    let forms = match dialect {
        Dialect::One => ["RDMA_MSG", "RDMA_NOMSG"],
        Dialect::Two => ["RDMA2_MSG", "RDMA2_NOMSG"],
        Dialect::Wg => ["RDMA2_REPLY_INLINE", "RDMA2_REPLY_EXTERNAL"],
    };
    if forms.contains(&reply.name.as_str()) {
        for form in forms.into_iter().filter(|it| *it != reply.name) {
            let _ = writeln!(out, " or <-- {form} {}-", dashes(form));
        }
    }
}

/// Returns the value of `rpc` for a call.
fn call_text(call: &Call<'_>, of_files: &HashSet<Vec<u8>>) -> String {
    let mut text = format!("call {}", procedure(call));
    let mut rest = call.arguments;
    if let Some((handle, after)) = handle_of(call) {
        text.push_str(match of_files.contains(handle) {
            true => " {file}",
            false => " {folder}",
        });
        rest = after;
    }
    if !rest.is_empty() {
        let _ = write!(text, " {}", hex(rest));
    }
    text
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
        let numbers = decoded
            .fields
            .iter()
            .filter_map(|(place, leaf)| match leaf {
                Leaf::Number(number) => Some((place.as_str(), *number)),
                _ => None,
            });
        let numbers: HashMap<&str, u64> = numbers.collect();
        let mut handles: HashMap<u64, String> = HashMap::new();
        let mut later = Vec::new();
        for (place, leaf) in &decoded.fields {
            let [xid, version, credit] = FIXED;
            let is_own = [xid, version, vocabulary.selector()].contains(&place.as_str())
                || (place == credit && vocabulary.dialect() == Dialect::Wg);
            if is_own {
                continue;
            }
            if let Some((segment, field)) = place.rsplit_once('.')
                && OF_SEGMENT.contains(&field)
            {
                let number = |name| numbers.get(&*format!("{segment}.{name}")).copied();
                if let [Some(handle), Some(length), Some(offset)] = OF_SEGMENT.map(number) {
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

/// Returns the header type of a message and its fields, if it can be decoded.
pub(super) fn decoded<'a>(
    vocabulary: &'a Vocabulary,
    message: &[u8],
) -> Option<(&'a HeaderType, Decoded)> {
    let number = Reader(message.get(12..)?).word()?;
    let header = vocabulary.header_of(number)?;
    let decoded = decode(vocabulary, header, message).ok()?;
    Some((header, decoded))
}

/// Returns the octets behind the header of a message.
pub(super) fn payload_of(vocabulary: &Vocabulary, message: &Recorded) -> Vec<u8> {
    decoded(vocabulary, &message.octets).map_or_else(Vec::new, |(_, it)| it.rest)
}

fn hex(octets: &[u8]) -> String {
    let words = octets.chunks(4).map(|word| {
        let digits = word.iter().map(|byte| format!("{byte:02x}"));
        format!("x{}", digits.collect::<String>())
    });
    words.collect::<Vec<_>>().join(" ")
}

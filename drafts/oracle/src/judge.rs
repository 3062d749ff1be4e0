//! Decides whether the crates and the C program agree.

use std::collections::BTreeMap;

use bytes::Bytes;
use rpcrdma_v1::limits::MIN_HEADER_LEN;
use serde_json::Value;

use crate::kind::{Kind, Read, Refused};
use crate::program::Answer;

/// A kind of agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Both accept, and every field and byte is the same.
    Accepted,
    /// Both accept, but a subset of characteristics has zero words at its end, which the crates do
    /// not send (xcharext-02, section 2.1: missing words count as zero).
    Shortened,
    /// Both reject.
    Refused,
    /// A rule beyond XDR forbids the value, which XDR alone accepts.
    Stricter(Refused),
}

/// The reason why the two sides disagree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// The C program rejects what the crates accept.
    #[error("accepted here as {0}, refused by the C program")]
    OnlyHere(String),
    /// The crates reject what the C program accepts, and no rule beyond XDR is the reason.
    #[error("refused here ({0:?}), accepted by the C program as {1}")]
    OnlyThere(Refused, String),
    /// The fields have different values.
    #[error("here {0}, in C {1}")]
    Values(String, String),
    /// The two sides consume different numbers of bytes.
    #[error("{0} bytes used here, {1} in C")]
    Lengths(usize, usize),
    /// The value is encoded in different ways.
    #[error("encoded again as {0} here, as {1} in C")]
    Encodings(String, String),
}

/// Formats bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares how both sides decode these bytes.
///
/// # Errors
/// [`Disagreement`].
pub fn judge(
    kind: &Kind,
    bytes: &Bytes,
    here: Result<Read, Refused>,
    there: &Answer,
) -> Result<Agreement, Disagreement> {
    // The C program ignores bytes behind a value. If these are not payload, they are an error.
    let is_whole = kind.may_be_followed(bytes) || there.used == bytes.len();
    let accepted = there.accepted && is_whole;
    // The C library accepts some invalid encodings, and encodes their values correctly.
    let is_loose = accepted && there.again != bytes[..there.used];
    match here {
        Ok(read) if accepted => compare(bytes, &read, there),
        Ok(read) => Err(Disagreement::OnlyHere(read.json)),
        Err(_) if !accepted => Ok(Agreement::Refused),
        Err(refused) => {
            let is_rule = match refused {
                Refused::Form => false,
                Refused::Boolean | Refused::RoundUp => is_loose,
                Refused::Version => bytes.get(4..8) != Some(&[0, 0, 0, version(kind)]),
                Refused::Retired => matches!(bytes.get(12..16), Some([0, 0, 0, 2 | 3])),
                Refused::Short => bytes.len() < MIN_HEADER_LEN,
                Refused::Limit => true,
                Refused::Rule => breaks_rule(&there.json),
                Refused::Level => there.json.parse::<u32>().is_ok_and(|level| level > 3),
            };
            match is_rule {
                true => Ok(Agreement::Stricter(refused)),
                false => Err(Disagreement::OnlyThere(refused, there.json.clone())),
            }
        }
    }
}

/// Returns whether a header of the working group's version 2 or its placement extension, as the C
/// program shows it, breaks one of the rules for the fields of a single header.
fn breaks_rule(json: &str) -> bool {
    let Ok(message) = serde_json::from_str::<Value>(json) else {
        return false;
    };
    let header = &message["rdma_hdr"];
    let reply_chunk = &header["rdma_reply_external"]["rdma_reply"];
    if header["rdma_htype"] == 11 && reply_chunk.is_null() {
        return true;
    }
    let is_external = header["rdma_htype"] == 8;
    let placed = &header["rdma_call_placed"];
    let call = match is_external {
        true => &header["rdma_call_external"],
        false if placed.is_object() => placed,
        false => &header["rdma_call_inline"],
    };
    let positions = |list: &str| -> Vec<u64> {
        let entries = call[list].as_array().into_iter().flatten();
        let position = |entry: &Value| entry["rdma_entry"]["rdma_position"].as_u64();
        entries.filter_map(position).collect()
    };
    let (call_chunk, reads) = (positions("rdma_call"), positions("rdma_reads"));
    let wrong_call_chunk =
        call_chunk.iter().any(|position| *position != 0) || is_external && call_chunk.is_empty();
    let handle = call["rdma_inv_handle"].as_u64().unwrap_or(0);
    let is_of_no_chunk = handle != 0 && !has_handle(call, handle);
    let wrong_chunks = !placed.is_object() && breaks_chunk_rule(call, is_external);
    wrong_call_chunk || reads.contains(&0) || !reads.is_sorted() || is_of_no_chunk || wrong_chunks
}

/// Returns whether the chunks of a call break a rule that a receiver checks: segments end within
/// the address space, positions are multiples of four, an item has a length of 32 bits, items do
/// not overlap, and a call chunk has a whole number of words, and reaches every item.
fn breaks_chunk_rule(call: &Value, is_external: bool) -> bool {
    let wide = |value: &Value| value.as_str().and_then(|digits| digits.parse::<u64>().ok());
    let mut segments = Vec::new();
    targets(call, &mut segments);
    let leaves = |segment: &&Value| {
        let (offset, length) = (
            wide(&segment["rdma_offset"]),
            segment["rdma_length"].as_u64(),
        );
        offset
            .unwrap_or(0)
            .checked_add(length.unwrap_or(0))
            .is_none()
    };
    if segments.iter().any(leaves) {
        return true;
    }
    let chunks = |list: &str| {
        let mut chunks: BTreeMap<u64, u64> = BTreeMap::new();
        for entry in call[list].as_array().into_iter().flatten() {
            let entry = &entry["rdma_entry"];
            let length = entry["rdma_target"]["rdma_length"].as_u64();
            let position = entry["rdma_position"].as_u64().unwrap_or(0);
            *chunks.entry(position).or_default() += length.unwrap_or(0);
        }
        chunks
    };
    let payload: u64 = chunks("rdma_call").values().sum();
    let is_no_payload = payload == 0 || !payload.is_multiple_of(4) || payload > u64::from(u32::MAX);
    let (mut end, mut before) = (0, 0);
    for (position, length) in chunks("rdma_reads") {
        let is_beyond = is_external && position.saturating_sub(before) > payload;
        if position % 4 != 0 || length > u64::from(u32::MAX) || position < end || is_beyond {
            return true;
        }
        let length = length.next_multiple_of(4);
        (end, before) = (position + length, before + length);
    }
    is_external && is_no_payload
}

/// Collects the segments within this value.
fn targets<'a>(within: &'a Value, segments: &mut Vec<&'a Value>) {
    match within {
        Value::Array(values) => values.iter().for_each(|value| targets(value, segments)),
        Value::Object(fields) if fields.contains_key("rdma_handle") => segments.push(within),
        Value::Object(fields) => fields.values().for_each(|value| targets(value, segments)),
        _ => {}
    }
}

/// Returns whether a segment within this value has the handle.
fn has_handle(within: &Value, handle: u64) -> bool {
    match within {
        Value::Array(values) => values.iter().any(|value| has_handle(value, handle)),
        Value::Object(fields) => {
            fields.get("rdma_handle").and_then(Value::as_u64) == Some(handle)
                || fields.values().any(|value| has_handle(value, handle))
        }
        _ => false,
    }
}

fn version(kind: &Kind) -> u8 {
    match kind.xdr {
        "rpcrdma1_xprt_hdr" => 1,
        _ => 2,
    }
}

fn compare(bytes: &Bytes, here: &Read, there: &Answer) -> Result<Agreement, Disagreement> {
    if here.used != there.used {
        return Err(Disagreement::Lengths(here.used, there.used));
    }
    let encodings = || Disagreement::Encodings(hex(&here.again), hex(&there.again));
    if there.again != bytes[..there.used] || !here.is_stable {
        return Err(encodings());
    }
    if here.again == there.again {
        return match here.json == there.json {
            true => Ok(Agreement::Accepted),
            false => Err(Disagreement::Values(here.json.clone(), there.json.clone())),
        };
    }
    // In C, the zero words are part of the value.
    match shortened(&there.json) == here.json {
        true => Ok(Agreement::Shortened),
        false => Err(encodings()),
    }
}

/// Returns the JSON without zeros at the end of arrays of numbers, which represent subsets.
fn shortened(json: &str) -> String {
    let mut json = json.to_owned();
    loop {
        let shorter = json.replace(",0]", "]").replace("[0]", "[]");
        if shorter == json {
            return json;
        }
        json = shorter;
    }
}

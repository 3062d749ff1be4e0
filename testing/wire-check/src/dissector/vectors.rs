//! Checks that the dissector shows each vector of `drafts/vectors` as the codecs say.

use std::fs;
use std::path::Path;

use serde_json::Value;
use xdr_oracle::list::{Role, codes};

use super::exchange::{PLACED_MESSAGE, WG_MESSAGE};
use super::fields::{self, Codecs, Field};
use super::frames::{End, Frames, Iwarp};
use super::{Wireshark, root};
use crate::error::Error;

/// The rules whose violation makes a message one that decoders refuse.
const FORM: &[&str] = &[
    "form",
    "boolean",
    "round_up",
    "short",
    "version",
    "retired",
    "header_type",
    "property_value",
    "read_order",
    "position_zero",
    "body_chunk",
    "inv_handle",
];

/// The rule that decoders of the working group's version 2 check as well: nothing follows a header of
/// an EXTERNAL type. In other versions, a decoder leaves that to its caller.
const TWO_PAYLOADS: &str = "two_payloads";

/// The field that holds the fields of an extension's header type.
const HEADER_FIELDS: &str = "rdma_fields";

/// Header types of the working group's version 2 (version-two-07, section 6.1).
const GRANT: u32 = 5;
const CONNPROP_FINAL: u32 = 7;

/// One vector in the capture.
struct Placed {
    /// The file's name and the vector's number in it.
    name: String,
    /// The packet that has it.
    packet: usize,
    vector: Value,
    /// The type of its value.
    xdr: String,
    /// The field of a message that holds the value, if it is no message.
    within: Option<&'static str>,
}

/// Puts all vectors into a capture. Returns the differences, and how many vectors there are.
pub(super) fn check(
    wireshark: &Wireshark,
    codecs: &Codecs,
    folder: &Path,
) -> Result<(usize, Vec<String>), Error> {
    let mut frames = Frames::new();
    let placed = place(codecs, &mut frames)?;
    let file = folder.join("vectors.pcap");
    frames.write(&file).map_err(Error::ours("a capture"))?;
    let layers = wireshark.layers(&file)?;
    let mut wrong = Vec::new();
    for vector in &placed {
        let mut of = layers.iter().filter(|layer| layer.packet == vector.packet);
        let problem = match (of.next(), of.next()) {
            (Some(layer), None) => {
                let (shown, rules) = (codecs.shown(layer), fields::rules(layer));
                vector.problem(codecs, &shown, &rules)
            }
            (None, _) => Some("not shown".to_owned()),
            _ => Some("shown twice".to_owned()),
        };
        wrong.extend(problem.map(|problem| format!("{}: {problem}", vector.name)));
    }
    Ok((placed.len(), wrong))
}

impl Placed {
    fn problem(&self, codecs: &Codecs, shown: &[Field], rules: &[String]) -> Option<String> {
        let mut broken = rules.iter().filter(|rule| FORM.contains(&rule.as_str()));
        if self.vector["accept"] != true {
            let two_payloads =
                self.xdr == WG_MESSAGE && rules.iter().any(|rule| rule == TWO_PAYLOADS);
            return match self.vector["reason"].as_str() {
                Some(reason) if broken.next().is_none() && !two_payloads => {
                    Some(format!("not marked, but refused for {reason}"))
                }
                _ => None,
            };
        }
        let value = &self.vector["value"];
        let said = match self.within {
            None => codecs.header_fields(&self.xdr, value),
            Some(HEADER_FIELDS) => codecs.header_fields(&self.xdr, value),
            Some(_) => codecs.value_fields(&self.xdr, value, 0),
        };
        let mut found = shown;
        let inner;
        if let Some(holder) = self.within {
            // The lines below the field that holds the value.
            let Some(at) = shown.iter().position(|field| field.name == holder) else {
                return Some(format!("no {holder}"));
            };
            let depth = shown[at].depth;
            let below = shown[at + 1..]
                .iter()
                .take_while(|field| field.depth > depth);
            inner = below
                .map(|field| Field {
                    depth: field.depth - depth - 1,
                    ..field.clone()
                })
                .collect::<Vec<_>>();
            found = &inner;
        }
        let nested = said.iter().any(|field| field.is_opaque);
        fields::difference(&said, found).or_else(|| {
            // Content that codecs refuse, in a header that they accept, is marked.
            (broken.next().is_some() != nested).then(|| format!("rules {rules:?}"))
        })
    }
}

fn place(codecs: &Codecs, frames: &mut Frames) -> Result<Vec<Placed>, Error> {
    let folder = root().join("drafts/vectors");
    let files = fs::read_dir(&folder).map_err(Error::ours("drafts/vectors"))?;
    let mut files: Vec<_> = files
        .filter_map(Result::ok)
        .map(|file| file.path())
        .collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let mut placed = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(Error::ours("a file of vectors"))?;
        let content: Value =
            serde_json::from_str(&text).map_err(Error::ours("a file of vectors"))?;
        let xdr = content["type"].as_str().unwrap_or("");
        let none = Vec::new();
        for (n, vector) in content["vectors"]
            .as_array()
            .unwrap_or(&none)
            .iter()
            .enumerate()
        {
            let bytes = unhex(vector["bytes"].as_str().unwrap_or(""))
                .ok_or_else(|| Error::ours("a vector")("not hexadecimal"))?;
            let is_property = codes(Role::Property).any(|code| code.of == xdr);
            let is_header = codes(Role::HeaderType).any(|code| code.of == xdr);
            if is_property && bytes.is_empty() {
                // No value, and in a list of properties none is needed.
                continue;
            }
            let (message, within) = message(codecs, xdr, &bytes)?;
            let number = placed.len() as u16;
            let mut connection = Iwarp::open(frames, number, [&[], &[]]);
            // After a good message, whatever comes belongs to this protocol.
            let first = match xdr {
                "rpcrdma1_xprt_hdr" => error(1),
                WG_MESSAGE | PLACED_MESSAGE => words(&[0, 2, 2, GRANT]),
                _ if is_property || is_header => words(&[0, 2, 2, GRANT]),
                _ => error(2),
            };
            connection.send(frames, End::Server, &first, None);
            connection.send(frames, End::Client, &message, None);
            placed.push(Placed {
                name: format!("{} {n}", content["kind"].as_str().unwrap_or("?")),
                packet: frames.last(),
                vector: vector.clone(),
                xdr: xdr.to_owned(),
                within,
            });
        }
    }
    Ok(placed)
}

/// Returns a message that holds a vector's bytes, and the field that they are in.
fn message(
    codecs: &Codecs,
    xdr: &str,
    bytes: &[u8],
) -> Result<(Vec<u8>, Option<&'static str>), Error> {
    if xdr.ends_with("_xprt_hdr") || matches!(xdr, WG_MESSAGE | PLACED_MESSAGE) {
        return Ok((bytes.to_vec(), None));
    }
    let find = |role| codes(role).find(|code| code.of == xdr);
    let find = |role| find(role).map(|code| code.value);
    if let Some(operation) = find(Role::Operation) {
        return Ok((optional(operation, bytes), Some("rdma_optinfo")));
    }
    if let Some(number) = find(Role::HeaderType) {
        let prefix = words(&[0x0101, 2, 1, number]);
        return Ok(([&prefix[..], bytes].concat(), Some(HEADER_FIELDS)));
    }
    if let Some(which) = find(Role::Property) {
        let mut properties = words(&[0x0101, 2, 1, CONNPROP_FINAL, 1, which]);
        opaque(&mut properties, bytes);
        return Ok((properties, Some("rdma_data")));
    }
    let which = find(Role::Characteristic);
    let which = which.ok_or_else(|| Error::ours("a vector")(format!("{xdr} is nowhere")))?;
    // One characteristic, and none that may not change.
    let mut info = words(&[1, which]);
    opaque(&mut info, bytes);
    info.extend(words(&[0]));
    let initxch = codecs.constant("ROPT_INITXCH");
    Ok((optional(initxch, &info), Some("xchv_data")))
}

/// Encodes words.
pub(super) fn words(all: &[u32]) -> Vec<u8> {
    all.iter().copied().flat_map(u32::to_be_bytes).collect()
}

/// Appends opaque data.
pub(super) fn opaque(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(words(&[bytes.len() as u32]));
    to.extend(bytes);
    to.resize(to.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

/// Encodes a message with an operation.
pub(super) fn optional(operation: u32, info: &[u8]) -> Vec<u8> {
    let mut message = words(&[0x0101, 2, 1, 5, 0, operation]);
    opaque(&mut message, info);
    message
}

/// Encodes an error that reports the versions 1 to 2.
fn error(version: u32) -> Vec<u8> {
    words(&[1, version, 1, 4, 1, 1, 2])
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dissector::fields::Shown;

    #[test]
    fn numbers_and_data_differ() {
        let field = |value| Field {
            depth: 0,
            name: "f".into(),
            value,
            is_opaque: false,
        };
        let (one, two) = ([field(Shown::Number(1))], [field(Shown::Number(2))]);
        assert_eq!(fields::difference(&one, &one), None);
        for (said, shown) in [(&one[..], &two[..]), (&one, &[]), (&[], &one)] {
            assert!(fields::difference(said, shown).is_some());
        }
        let (both, turned) = ([&one[..], &two].concat(), [&two[..], &one].concat());
        assert!(fields::difference(&both, &turned).is_some());
    }
}

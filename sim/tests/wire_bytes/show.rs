//! Formats messages as lines of text.

use std::fmt::Write;

use bytes::Bytes;
use rpcrdma_v1::HeaderError;

/// The number of payload bytes that are printed; the rest is described by its length and a digest.
const SHOWN: usize = 64;

/// Computes FNV-1a.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Formats bytes as XDR words.
pub(crate) fn words(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let gap = if at % 4 == 0 { " " } else { "" };
        // Writing to a String does not fail.
        let _ = write!(text, "{gap}{byte:02x}");
    }
    text
}

/// Formats a message: its type, its complete transport header, and its payload.
pub(crate) fn message(bytes: &Bytes) -> String {
    let (kind, header) = kind(bytes);
    let (header, payload) = bytes.split_at(header.min(bytes.len()));
    let (shown, rest) = payload.split_at(payload.len().min(SHOWN));
    let mut text = format!("{kind}:{}", words(header));
    if !shown.is_empty() {
        let _ = write!(text, " |{}", words(shown));
    }
    if !rest.is_empty() {
        let _ = write!(text, " + {} bytes {:016x}", rest.len(), digest(rest));
    }
    text
}

/// Returns the name of a message's type, and the length of its header.
fn kind(bytes: &Bytes) -> (String, usize) {
    match rpcrdma_v1::Header::decode(bytes) {
        Ok((header, len)) => {
            let name = match header.body {
                rpcrdma_v1::Body::Msg(_) => "MSG",
                rpcrdma_v1::Body::NoMsg(_) => "NOMSG",
                rpcrdma_v1::Body::Error(_) => "ERROR",
            };
            return (format!("v1 {name}"), len);
        }
        Err(HeaderError::Version { .. }) => {}
        Err(error) => return (format!("v1 unreadable, {error}"), bytes.len()),
    }
    match rpcrdma_v2::Header::decode(bytes) {
        Ok((header, len)) => {
            let name = match header.body {
                rpcrdma_v2::Body::Msg(..) => "MSG".to_owned(),
                rpcrdma_v2::Body::NoMsg(..) => "NOMSG".to_owned(),
                rpcrdma_v2::Body::Error(_) => "ERROR".to_owned(),
                rpcrdma_v2::Body::Optional(optional) => format!("OPTIONAL {}", optional.opttype),
            };
            (format!("v2 {name}"), len)
        }
        Err(error) => (format!("v2 unreadable, {error}"), bytes.len()),
    }
}

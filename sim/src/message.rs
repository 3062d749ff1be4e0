//! Decodes messages on the wire, independently of the engine that sent them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use rdma::Scatter;
use rpcrdma_chunks::limits::MIN_HEADER_LEN;
use rpcrdma_chunks::{Chunks, Reader, Segment};
use rpcrdma_ext_continuation::{Request, XMTCONT, XMTREQ, XMTRESP};
use rpcrdma_ext_send_ddp::Location;
use rpcrdma_v2::{Body, Direction};
use rpcrdma_v2_wg::EXPERIMENTAL;
use rpcrdma_v2_wg::limits::PREFIX_LEN;

/// The range of `rdma_credit` in a header of either version (RFC 8166, section 4.2; version-two-01,
/// section 4.2.1).
pub(crate) const CREDITS: Range<usize> = 8..12;
/// The maximum length of a header, bytes.
const LONGEST_HEADER: usize = 8192;
/// The number of bytes after the header that determine the meaning of a message.
const TELLING: usize = 64;

/// A segment of memory that a call offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) segment: Segment,
    /// Whether the responder may write to the memory; otherwise it may read it.
    pub(crate) write: bool,
    /// Whether the reply may invalidate the handle. The working group's version 2 names the handle
    /// in each call; in other versions, both ends agree once for all handles.
    pub(crate) may_be_invalidated: bool,
}

/// The rules for the meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Credits count calls: version 1, and version 2 of 2016.
    Calls,
    /// Credits count Sends: the working group's version 2.
    Sends,
}

/// The meaning of a message to the requester that sends or receives it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A call, which offers memory. Takes a credit, where credits count calls.
    Call(Vec<Offered>),
    /// A further transmission of a call: takes a credit as well (rtrext-00, section 4.3).
    Continued,
    /// A message that grants this many credits, and returns one if it answers a call.
    Answer(u32),
    /// Neither a call nor an answer to one: an unknown message, or an operation of an extension. In
    /// the working group's version 2 also grants, properties, and all parts of a message but the
    /// last; `sends.rs` checks their credits.
    Nothing,
    /// A message of an extension or a version that this does not know, and that may carry RPC
    /// messages.
    Unknown,
}

/// Returns the beginning of a message that is sent, whose header is in the first piece.
pub(crate) fn sent(gather: &[Bytes]) -> Option<Bytes> {
    match gather {
        [] => None,
        [only] => Some(only.clone()),
        // A header whose beginning was replaced is in two pieces.
        [first, ..] if first.len() < MIN_HEADER_LEN => {
            Some(joined(gather.iter().map(|piece| &piece[..])))
        }
        [first, rest @ ..] => {
            let mut start = BytesMut::from(&first[..first.len().min(LONGEST_HEADER)]);
            let end = start.len() + TELLING;
            // The last part of a continued message can be a few bytes of an item and its padding.
            for piece in rest {
                let room = end - start.len();
                start.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            Some(start.freeze())
        }
    }
}

/// Returns the beginning of a message that was received.
pub(crate) fn taken(receive: &Scatter) -> Bytes {
    joined(receive.pieces().map(|piece| &piece[..]))
}

fn joined<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut start = BytesMut::new();
    for piece in pieces {
        let room = LONGEST_HEADER - start.len();
        start.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    start.freeze()
}

/// Returns the XID and meaning of a message (RFC 8166, section 3.3.1; in version 2 with its
/// direction, version-two-01, section 4.2.2; or by its header type, version-two-07, section 6.1).
pub(crate) fn read(message: &Bytes, rules: Rules) -> Result<(u32, Meaning), String> {
    if rules == Rules::Sends {
        return meaning_wg(message);
    }
    match rpcrdma_v1::Header::decode(message) {
        Ok((header, at)) => {
            let xid = header.xid;
            return Ok((xid, meaning_1(header, &message[at..])));
        }
        Err(rpcrdma_v1::HeaderError::Version { .. }) => {}
        Err(error) => return Err(error.to_string()),
    }
    let (header, at) = match rpcrdma_v2::Header::decode(message) {
        Ok(decoded) => decoded,
        // A program's own version: the headers of all of this project's have been tried.
        Err(rpcrdma_v2::HeaderError::Version { xid, .. }) => return Ok((xid, Meaning::Unknown)),
        Err(error) => return Err(error.to_string()),
    };
    let (xid, direction, credits) = (header.xid, header.direction(), header.credits);
    let meaning = match (header.body, direction) {
        (Body::Optional(optional), _)
            if message.len() > at && ![XMTREQ, XMTRESP, XMTCONT].contains(&optional.opttype) =>
        {
            Meaning::Unknown
        }
        (Body::Msg(_, chunks) | Body::NoMsg(_, chunks), Direction::Call) => {
            Meaning::Call(offers(&chunks))
        }
        (Body::Optional(optional), Direction::Call) => match optional.opttype {
            XMTREQ => {
                let request = Request::decode(&optional.info);
                Meaning::Call(offers_of(&request.map_err(|error| error.to_string())?))
            }
            XMTCONT => Meaning::Continued,
            _ => Meaning::Nothing,
        },
        (_, Direction::Reply) => Meaning::Answer(credits),
        (_, Direction::Call) => Meaning::Nothing,
    };
    Ok((xid, meaning))
}

/// Determines the meaning in version 1, where the direction is in the payload or follows from the
/// chunk that contains the payload.
fn meaning_1(header: rpcrdma_v1::Header, payload: &[u8]) -> Meaning {
    use rpcrdma_v1::Body;
    let answer = Meaning::Answer(header.credits);
    match header.body {
        Body::Error(_) => answer,
        Body::NoMsg(chunks) if chunks.reads.is_empty() => answer,
        Body::NoMsg(chunks) => Meaning::Call(offers(&chunks)),
        Body::Msg(chunks) => match payload.get(4..8) {
            Some([0, 0, 0, 0]) => Meaning::Call(offers(&chunks)),
            Some([0, 0, 0, 1]) => answer,
            _ => Meaning::Nothing,
        },
    }
}

/// Determines the meaning in the working group's version 2.
fn meaning_wg(message: &Bytes) -> Result<(u32, Meaning), String> {
    use rpcrdma_v2_wg::Body;
    if let Some(placed) = placed(message) {
        return placed;
    }
    let prefix = rpcrdma_v2_wg::Prefix::peek(message);
    if let Some(prefix) = prefix.filter(|prefix| EXPERIMENTAL.contains(&prefix.header_type)) {
        return Ok((prefix.xid, Meaning::Unknown));
    }
    let decoded = rpcrdma_v2_wg::Header::decode(message);
    let (header, _) = decoded.map_err(|error| error.to_string())?;
    let meaning = match header.body {
        Body::Call {
            chunks, inv_handle, ..
        } => Meaning::Call(offers_with(&chunks, inv_handle)),
        Body::Reply { .. } | Body::Error(_) => Meaning::Answer(header.credit),
        // The last part of a continued message has the chunks, and it answers the call.
        Body::Middle { .. } | Body::Grant | Body::Properties { .. } => Meaning::Nothing,
    };
    Ok((header.xid, meaning))
}

/// Determines the meaning of a message whose items are placed by Sends, or returns `None` for a
/// message of the base protocol.
fn placed(message: &Bytes) -> Option<Result<(u32, Meaning), String>> {
    use rpcrdma_ext_wg_ddp::{CallPlaced, header_type};
    let prefix = rpcrdma_v2_wg::Prefix::peek(message)?;
    let meaning = match prefix.header_type {
        header_type::CALL_PLACED => {
            let mut rest = Reader::new(message.get(PREFIX_LEN..)?);
            CallPlaced::decode(&mut rest)
                .map(|call| Meaning::Call(offers_with(&call.chunks, call.inv_handle)))
                .map_err(|error| error.to_string())
        }
        header_type::REPLY_PLACED => Ok(Meaning::Answer(prefix.credit)),
        header_type::CALL_PLACED_MIDDLE | header_type::REPLY_PLACED_MIDDLE => Ok(Meaning::Nothing),
        _ => return None,
    };
    Some(meaning.map(|meaning| (prefix.xid, meaning)))
}

/// Returns the offers of a call that names the handle to be invalidated; zero if there is none.
fn offers_with(chunks: &Chunks, inv_handle: u32) -> Vec<Offered> {
    let mut offered = offers(chunks);
    for offer in &mut offered {
        offer.may_be_invalidated = inv_handle != 0 && offer.segment.handle == inv_handle;
    }
    offered
}

fn offers(chunks: &Chunks) -> Vec<Offered> {
    let offered = |write| {
        move |segment: &Segment| Offered {
            segment: *segment,
            write,
            may_be_invalidated: true,
        }
    };
    let reads = chunks.reads.iter().map(|read| &read.segment);
    let writes = chunks.writes.iter().chain(&chunks.reply).flatten();
    let reads = reads.map(offered(false));
    reads.chain(writes.map(offered(true))).collect()
}

/// Returns the offers of a call that consists of operations (rtrext-00, sections 7.3 and 7.4).
fn offers_of(request: &Request) -> Vec<Offered> {
    let mut all = Vec::new();
    for item in &request.items {
        if let Location::Explicit(segments) = &item.location {
            let offered = |&segment: &Segment| Offered {
                segment,
                write: false,
                may_be_invalidated: true,
            };
            all.extend(segments.iter().map(offered));
        }
    }
    let directed = request.directions.iter().flat_map(|set| &set.items);
    for chunk in directed.filter_map(|item| item.to.chunk()) {
        let offered = |&segment: &Segment| Offered {
            segment,
            write: true,
            may_be_invalidated: true,
        };
        all.extend(chunk.iter().map(offered));
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Regression test: messages of a program's own version were reported as unreadable headers.
    #[test]
    fn messages_of_a_version_of_somebody_elses_are_unknown() {
        let words = [7u32, 3, 10, 0, 0, 0, 0, 0];
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let meaning = read(&message.into(), Rules::Calls);
        assert_eq!(meaning, Ok((7, Meaning::Unknown)));
        let short = Bytes::copy_from_slice(&[0; 4]);
        assert!(read(&short, Rules::Calls).is_err());
    }

    /// Regression test: of the payload, only the first piece was seen, which can be less than a word. (Seed
    /// 141738 of the working group's version 2 was reported as a violation.)
    #[test]
    fn the_beginning_of_a_message_that_is_sent_goes_on_through_short_pieces() {
        let pieces = [&[1; 44][..], &[2; 3], &[0; 1], &[3; 100]].map(Bytes::copy_from_slice);
        assert_eq!(sent(&pieces[..3]).unwrap(), pieces[..3].concat());
        let start = sent(&pieces).unwrap();
        assert_eq!(start.len(), 44 + TELLING);
        assert_eq!(start, pieces.concat()[..44 + TELLING]);
    }
}

//! The rules for calls and replies that have arrived completely (sections 4.6.4, 5.2.5 and 7.3).

use onc_rpc::{Message, Segments, total_len};
use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_v2_wg::{Answer, Body, ErrorBody, Header, ReverseSupport, check_call, check_payload};

use super::super::{CallHeader, Incoming, Plain, Receiver, ReplyBody, ReplyHeader};
use super::errors::bad_message;

/// Refuses a call at an end that takes none, and a reply at an end that makes no calls. Returns
/// `None` for any other message.
pub(super) fn refuse_unwanted_direction(
    direction: Option<Direction>,
    xid: u32,
    receiver: &Receiver,
) -> Option<Incoming> {
    Some(match direction? {
        Direction::Call if !receiver.takes_calls => {
            // A client tells its server by a property (section 5.2.5).
            let answer = Answer::new(xid, ErrorBody::InvalidHeaderType);
            let reason = "a call from the server, which was told that none are taken";
            bad_message(Direction::Call, Some(answer), reason)
        }
        Direction::Reply if !receiver.makes_calls => {
            let reason = "a reply to a server that makes no calls";
            bad_message(Direction::Reply, None, reason)
        }
        _ => return None,
    })
}

/// Checks that a call to a client, or a part of one, needs no more support than the client has
/// announced (sections 4.6.4 and 5.2.5). A reply chunk alone is no error: it stays unused.
///
/// # Errors
/// The error to answer with.
pub(super) fn limit_to_announced(
    body: &mut Body,
    announced: ReverseSupport,
) -> Result<(), ErrorBody> {
    if announced == ReverseSupport::General {
        return Ok(());
    }
    match body {
        Body::Middle { .. } if announced < ReverseSupport::Continued => {
            Err(ErrorBody::InvalidHeaderType)
        }
        // The call chunk of an external call is a read chunk, too (section 4.5.1.2).
        Body::Call { chunks, .. } if !chunks.reads.is_empty() => {
            Err(ErrorBody::ReadChunks { max: 0 })
        }
        Body::Call { chunks, .. } if !chunks.writes.is_empty() => {
            Err(ErrorBody::WriteChunks { max: 0 })
        }
        Body::Call { chunks, .. } => {
            chunks.reply = None;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns a call or a reply whose payload is complete. A call with more than `most` segments, or
/// one that breaks a rule, is refused.
pub(super) fn rpc_message(
    header: Header,
    direction: Direction,
    payload: Segments,
    receiver: &Receiver,
    most: u32,
) -> Incoming {
    let (xid, credits) = (header.xid, header.credit);
    let max = match direction {
        Direction::Call => receiver.max_call,
        Direction::Reply => u64::MAX,
    };
    let plain = Plain { xid, credits };
    if has_no_chunks(&header.body)
        && let Some(plain) = plain.matching(direction, &payload, max)
    {
        return Incoming::Plain(direction, plain, payload);
    }
    match header.body {
        Body::Reply { external, chunks } => Incoming::Reply(ReplyHeader {
            xid,
            granted: credits,
            body: ReplyBody::Reply {
                chunks,
                long: external,
            },
            payload,
        }),
        body => checked_call(xid, credits, body, payload, receiver.max_call, most),
    }
}

/// Returns whether the body is that of a call or a reply without chunks.
fn has_no_chunks(body: &Body) -> bool {
    match body {
        Body::Call {
            external, chunks, ..
        }
        | Body::Reply { external, chunks } => !external && chunks.is_empty(),
        _ => false,
    }
}

fn checked_call(
    xid: u32,
    requested: u32,
    body: Body,
    payload: Segments,
    max_call: u64,
    most: u32,
) -> Incoming {
    let answered = |error: Option<ErrorBody>, reason: &dyn std::fmt::Display| {
        let answer = error.map(|error| Answer::new(xid, error));
        bad_message(Direction::Call, answer, reason)
    };
    let handle = match &body {
        Body::Call { inv_handle, .. } => Some(*inv_handle).filter(|&handle| handle != 0),
        _ => None,
    };
    // Section 7.3.3.
    let segments = body.chunks().map_or(0, segments);
    if segments > most as usize {
        let reason = format!("{segments} segments, where {most} are accepted");
        return answered(Some(ErrorBody::Segments { max: most }), &reason);
    }
    let chunks = match check_call(body, total_len(&payload), max_call) {
        Ok(chunks) => chunks,
        Err(violation) => return answered(violation.error(), &violation),
    };
    let message = Message::without_items(payload);
    // A payload in a chunk is checked when it has been fetched.
    if chunks.payload.is_none()
        && let Err(violation) = check_payload(xid, Direction::Call, &message)
    {
        return answered(violation.error(), &violation);
    }
    Incoming::Call(CallHeader {
        xid,
        requested,
        chunks,
        handle,
        payload: message.into_payload(),
    })
}

fn segments(chunks: &Chunks) -> usize {
    let written = chunks.writes.iter().chain(&chunks.reply);
    chunks.reads.len() + written.map(|chunk| chunk.len()).sum::<usize>()
}

//! Replies: where their parts are placed (RFC 8166, 3.4.6, 3.5.3, 4.3.2 and 4.3.3).

use super::call::{Call, total};
use super::nfs::Results;
use crate::wire::rpc;
use crate::wire::v1::{self, Header, Segment};

/// Handle, offset and bytes of an RDMA Write.
pub(super) type Place = (u32, u64, Vec<u8>);

/// A reply with the RDMA Writes before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The RDMA Writes.
    pub(super) places: Vec<Place>,
    /// The message.
    pub(super) message: Vec<u8>,
}

/// A reply whose chunks are filled.
#[derive(Debug)]
pub(super) struct Placed {
    /// The RDMA Writes.
    pub(super) places: Vec<Place>,
    /// The header, with the chunks as they are returned.
    pub(super) header: Header,
    /// The RPC message behind the header. With RDMA_NOMSG, it is in the Reply chunk, and nothing is here.
    pub(super) payload: Vec<u8>,
}

/// Returns the reply to a call, whose message is at most `threshold` bytes long. A reply for which the call has no
/// room is ERR_CHUNK (RFC 8166, 4.5.3).
pub(super) fn answer(call: &Call, results: &Results, credits: u32, threshold: usize) -> Answer {
    let encoded = |placed: Placed| {
        let Placed {
            places,
            mut header,
            payload,
        } = placed;
        header.credits = credits;
        let message = header.with(&payload);
        Answer { places, message }
    };
    let inline = placed_reply(call, results, false).map(encoded);
    match inline {
        Some(answer) if answer.message.len() <= threshold => answer,
        Some(_) => placed_reply(call, results, true).map_or_else(|| refusal(call), encoded),
        None => refusal(call),
    }
}

/// Places the results of a call: data in the first Write chunk, if there is one, and all else inline, or in the Reply
/// chunk if `long`. Returns `None` if a chunk is too short, or missing.
pub(super) fn placed_reply(call: &Call, results: &Results, long: bool) -> Option<Placed> {
    let xid = call.xid();
    let mut header = Header {
        writes: unused(&call.header.writes),
        reply: call.header.reply.as_deref().map(empty),
        ..v1::header(xid)
    };
    let mut places = Vec::new();
    let mut payload = rpc::accepted(xid, results.accepted, &results.head);
    if let Some(data) = &results.data {
        match call.header.writes.first().filter(|it| !it.is_empty()) {
            Some(offered) if total(offered) < data.len() as u64 => return None,
            Some(offered) => header.writes[0] = placed(offered, data, &mut places),
            None => {
                payload.extend(data);
                payload.resize(payload.len().next_multiple_of(4), 0);
            }
        }
    }
    if long {
        let offered = call.header.reply.as_ref();
        let offered = offered.filter(|it| total(*it) >= payload.len() as u64)?;
        header.reply = Some(placed(offered, &payload, &mut places));
        header.procedure = v1::NOMSG;
        payload = Vec::new();
    }
    Some(Placed {
        places,
        header,
        payload,
    })
}

/// Returns the chunks as a reply without data in them has them: each segment of length zero.
pub(super) fn unused(chunks: &[Vec<Segment>]) -> Vec<Vec<Segment>> {
    chunks.iter().map(|chunk| empty(chunk)).collect()
}

fn empty(chunk: &[Segment]) -> Vec<Segment> {
    let empty = chunk.iter().map(|it| Segment { length: 0, ..*it });
    empty.collect()
}

fn refusal(call: &Call) -> Answer {
    Answer {
        places: Vec::new(),
        message: v1::error(call.header.xid, 1, &[v1::ERR_CHUNK]),
    }
}

/// Returns a chunk with what is in each segment, after adding the RDMA Writes that fill it.
pub(super) fn placed(offered: &[Segment], bytes: &[u8], places: &mut Vec<Place>) -> Vec<Segment> {
    let mut left = bytes;
    let mut filled = Vec::new();
    for segment in offered {
        let (now, later) = left.split_at(left.len().min(segment.length as usize));
        if !now.is_empty() {
            places.push((segment.handle, segment.offset, now.to_vec()));
        }
        filled.push(Segment {
            length: now.len() as u32,
            ..*segment
        });
        left = later;
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v1::{Message, parse, segment};

    fn results(data: usize) -> Results {
        Results {
            accepted: 0,
            head: vec![0; 100],
            data: Some(vec![5; data]),
        }
    }

    fn call(writes: Vec<Vec<Segment>>, reply: Option<Vec<Segment>>) -> Call {
        let header = Header {
            writes,
            reply,
            ..v1::header(7)
        };
        Call::new(header, rpc::null(7).bytes()).unwrap()
    }

    #[test]
    fn a_chunk_is_filled_in_order_and_returned_with_what_is_in_it() {
        let chunk = vec![segment(1, 10, 0), segment(2, 10, 64), segment(3, 10, 0)];
        let answer = answer(&call(vec![chunk], None), &results(15), 8, 4096);
        let lengths: Vec<usize> = answer.places.iter().map(|it| it.2.len()).collect();
        assert_eq!(lengths, [10, 5]);
        let Some(Message::Rpc(header, payload)) = parse(&answer.message) else {
            panic!("{answer:?}");
        };
        let returned: Vec<u32> = header.writes[0].iter().map(|it| it.length).collect();
        assert_eq!((returned, payload.len()), (vec![10, 5, 0], 124));
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let short = vec![segment(1, 10, 0)];
        let refused = v1::error(7, 1, &[v1::ERR_CHUNK]);
        let of_data = answer(&call(vec![short.clone()], None), &results(15), 8, 4096);
        assert_eq!(of_data.message, refused);
        let of_reply = answer(&call(vec![], Some(short)), &results(5000), 8, 4096);
        assert_eq!(of_reply.message, refused);
        let none = answer(&call(vec![], None), &results(5000), 8, 4096);
        assert_eq!(none.message, refused);
        let long = vec![segment(1, 8000, 0)];
        let taken = answer(&call(vec![], Some(long)), &results(5000), 8, 4096);
        assert_eq!(taken.places[0].2.len(), 24 + 100 + 5000);
    }
}

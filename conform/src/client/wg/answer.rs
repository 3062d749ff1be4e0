//! Replies of version-two-07: where their parts are placed, and in how many messages they come (sections 6.3.8 to 6.3.10
//! and 6.6).

use crate::client::answer::{Place, Placed, placed_reply, unused};
use crate::client::call::{Call, total};
use crate::client::nfs::Results;
use crate::wire::wg;

/// A reply with the RDMA Writes before it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) struct Answers {
    /// The RDMA Writes.
    pub(in crate::client) places: Vec<Place>,
    /// The messages.
    pub(in crate::client) messages: Vec<Vec<u8>>,
}

/// Returns the reply to a call, in messages of at most `longest` bytes. If `inline`, no chunk is used. A reply that fits
/// neither a message nor a Reply chunk is continued (section 6.6.4). If a Write chunk is too short for its data, the
/// reply is RDMA2_ERR_WRITE_RESOURCE; if its header is too long for a message, RDMA2_ERR_REPLY_RESOURCE (section 7.3.4).
pub(in crate::client) fn answers(
    call: &Call,
    results: &Results,
    longest: usize,
    inline: bool,
) -> Answers {
    let refused = |words: &[u32]| Answers {
        places: Vec::new(),
        messages: vec![wg::error(call.header.xid, words)],
    };
    let mut stripped = call.clone();
    if inline {
        stripped.header.writes.clear();
    }
    let Some(mut plain) = placed_reply(&stripped, results, false) else {
        let needed = results.data.as_ref().map_or(0, Vec::len);
        return refused(&[wg::ERR_WRITE_RESOURCE, 1, needed as u32]);
    };
    if inline {
        plain.header.writes = unused(&call.header.writes);
    }
    let needed = plain.payload.len();
    let mut answers = encoded(plain, longest);
    let room = call.header.reply.as_ref().map(total);
    if answers.messages.len() != 1
        && !inline
        && room >= Some(needed as u64)
        && let Some(long) = placed_reply(call, results, true)
    {
        answers = encoded(long, longest);
    }
    match answers.messages.is_empty() {
        true => refused(&[wg::ERR_REPLY_RESOURCE, needed as u32]),
        false => answers,
    }
}

fn encoded(placed: Placed, longest: usize) -> Answers {
    let Placed {
        places,
        header,
        payload,
    } = placed;
    Answers {
        places,
        messages: wg::reply_within(&header, &payload, longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;
    use crate::wire::v1::{self, Header, Segment, segment};

    fn answers_to(writes: Vec<Vec<Segment>>, reply: Option<Vec<Segment>>, inline: bool) -> Answers {
        let header = Header {
            writes,
            reply,
            ..v1::header(7)
        };
        let call = Call::new(header, rpc::null(7).bytes()).unwrap();
        let results = Results {
            accepted: 0,
            head: vec![0; 100],
            data: Some(vec![5; 8000]),
        };
        answers(&call, &results, 4096, inline)
    }

    fn types(answers: &Answers) -> Vec<Option<u32>> {
        answers.messages.iter().map(|it| wg::htype(it)).collect()
    }

    #[test]
    fn a_reply_is_continued_where_no_chunk_takes_it() {
        let parts = [wg::REPLY_MIDDLE, wg::REPLY_INLINE].map(Some);
        let continued = answers_to(vec![], None, false);
        assert_eq!(types(&continued), parts);
        let short = Some(vec![segment(1, 100, 0)]);
        assert_eq!(types(&answers_to(vec![], short, false)), parts);
        let chunk = vec![segment(1, 8000, 0)];
        let inline = answers_to(vec![chunk.clone()], Some(chunk.clone()), true);
        assert_eq!(types(&inline), parts);
        assert!(inline.places.is_empty());
        let placed = answers_to(vec![chunk], None, false);
        assert_eq!(types(&placed), [Some(wg::REPLY_INLINE)]);
        assert_eq!(placed.places[0].2.len(), 8000);
        let long = answers_to(vec![], Some(vec![segment(1, 9000, 0)]), false);
        assert_eq!(types(&long), [Some(wg::REPLY_EXTERNAL)]);
        let refused = answers_to(vec![vec![segment(1, 10, 0)]], None, false);
        assert_eq!(
            refused.messages,
            [wg::error(7, &[wg::ERR_WRITE_RESOURCE, 1, 8000])]
        );
    }
}

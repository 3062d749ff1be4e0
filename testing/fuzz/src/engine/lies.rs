//! Messages that no honest peer sends.

use super::*;

impl Run {
    pub(super) fn lying_call(&mut self, lie: &LyingCall) {
        let handle = |n: u16| u32::from(n % 7);
        let segment = |n: u16| Segment {
            handle: handle(n),
            length: u32::from(n >> 3),
            offset: if n.is_multiple_of(5) {
                u64::MAX - 4000
            } else {
                u64::from(n)
            },
        };
        let reads = lie
            .reads
            .iter()
            .filter(|(_, n)| *n != 0)
            .map(|(position, n)| ReadSegment {
                position: if lie.long && position % 2 == 0 {
                    0
                } else {
                    u32::from(*position)
                },
                segment: segment(*n),
            });
        let chunk = |n: &u16| {
            [segment(*n), segment(n.rotate_left(5))]
                .into_iter()
                .collect()
        };
        let chunks = Chunks {
            reads: reads.collect(),
            writes: lie.writes.iter().filter(|n| **n != 0).map(chunk).collect(),
            reply: Some(&lie.reply).filter(|n| **n != 0).map(chunk),
        };
        let body = if lie.long {
            Body::NoMsg(chunks)
        } else {
            Body::Msg(chunks)
        };
        let xid = u32::from(lie.xid);
        let header = Header {
            xid,
            credits: u32::from(lie.credits),
            body,
        };
        let mut bytes = BytesMut::from(&header.encode()[..]);
        if !lie.long {
            bytes.extend_from_slice(&xid.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(lie.payload), 0);
        }
        self.calls.push_back(bytes.freeze());
    }

    pub(super) fn lying_reply(&mut self, lie: &LyingReply) {
        let at = usize::from(lie.which).checked_rem(self.offered.len());
        let Some((&xid, offered)) = at.and_then(|at| self.offered.iter().nth(at)) else {
            return;
        };
        let mut lengths = lie.lengths.iter().cycle();
        let mut place = |chunk: &rpcrdma_v1::WriteChunk| {
            let shorter = |segment: &Segment| {
                let length = match lengths.next() {
                    Some(0) | None => segment.length,
                    Some(n) => u32::from(n - 1),
                };
                Segment { length, ..*segment }
            };
            chunk.iter().map(shorter).collect()
        };
        let mut chunks = Chunks {
            reads: Vec::new(),
            writes: offered.writes.iter().map(&mut place).collect(),
            reply: offered.reply.as_ref().map(&mut place),
        };
        match lie.more {
            1 => chunks.writes.clear(),
            2 => chunks.reply = None,
            3 => chunks.writes.extend(chunks.reply.clone()),
            4 => chunks.reply = chunks.writes.first().cloned(),
            5 => chunks.reads = offered.reads.clone(),
            _ => {}
        }
        let xid = xid.wrapping_add(u32::from(lie.other));
        let body = match (lie.error, lie.long) {
            (1, _) => Body::Error(rpcrdma_v1::ErrorBody::Chunk),
            (2, _) => Body::Error(rpcrdma_v1::ErrorBody::Version { low: 2, high: 2 }),
            (_, true) => Body::NoMsg(chunks),
            (_, false) => Body::Msg(chunks),
        };
        let header = Header {
            xid,
            credits: u32::from(lie.credits),
            body,
        };
        let mut bytes = BytesMut::from(&header.encode()[..]);
        if !lie.long && lie.error == 0 {
            bytes.extend_from_slice(&xid.to_be_bytes());
            let words = usize::from(lie.payload % 32);
            if words > 0 {
                bytes.extend_from_slice(&REPLY.to_be_bytes());
                bytes.resize(bytes.len() + 4 * (words - 1), 0);
            }
        }
        let stags = self.memory.keys();
        let invalidate = usize::from(lie.invalidate);
        let invalidate = stags
            .rev()
            .nth(invalidate)
            .filter(|_| lie.invalidate < 8)
            .map(|stag| Stag(*stag));
        self.replies
            .push_back(Posted::Send(bytes.freeze(), invalidate));
    }
}

pub(super) fn flip(bytes: &mut Bytes, at: u8, bits: u8) {
    let mut flipped = BytesMut::from(&bytes[..]);
    let len = flipped.len();
    if let Some(byte) = usize::from(at)
        .checked_rem(len)
        .and_then(|at| flipped.get_mut(at))
    {
        *byte ^= bits;
    }
    *bytes = flipped.freeze();
}

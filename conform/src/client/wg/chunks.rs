//! Chunks in the headers of calls (version-two-07, 4.5 and 6.3).

use crate::client::rules::{Findings, Rule};
use crate::wire::Reader;
use crate::wire::v1::{self, Header, Segment};
use crate::wire::wg::{CALL_EXTERNAL, PREFIX};

/// Looks at the positions of Read chunks, and at the Call chunk. Returns whether they are right.
pub(super) fn call_chunk(
    findings: &mut Findings,
    htype: u32,
    header: &Header,
    message: &[u8],
) -> bool {
    let mut from = Reader(message.get(PREFIX + 4..).unwrap_or_default());
    let mut count = 0;
    while htype == CALL_EXTERNAL && from.word() == Some(1) {
        count += 1;
        from.word();
        v1::take(&mut from);
    }
    let (call, items) = header.reads.split_at(header.reads.len().min(count));
    let kept = call.iter().all(|(position, _)| *position == 0) && items.iter().all(|it| it.0 != 0);
    if !header.reads.is_empty() {
        findings.look(Rule::CallChunk, kept, || {
            let positions = |reads: &[(u32, Segment)]| reads.iter().map(|it| it.0).collect();
            let (call, items): (Vec<u32>, Vec<u32>) = (positions(call), positions(items));
            format!("positions {call:?} in the Call chunk, and {items:?} in the Read list")
        });
    }
    kept
}

/// Returns all segments of a header.
pub(super) fn segments(header: &Header) -> impl Iterator<Item = &Segment> {
    let written = header.writes.iter().chain(&header.reply).flatten();
    let read = header.reads.iter().map(|(_, segment)| segment);
    read.chain(written)
}

/// Returns what two calls have in common if they are sent in the same way: the header without handles, offsets and
/// credits.
pub(in crate::client) fn form(header: &Header) -> Header {
    let bare = |it: &Segment| v1::segment(0, it.length, 0);
    let chunk = |it: &Vec<Segment>| it.iter().map(bare).collect();
    Header {
        reads: header.reads.iter().map(|it| (it.0, bare(&it.1))).collect(),
        writes: header.writes.iter().map(chunk).collect(),
        reply: header.reply.as_ref().map(chunk),
        ..header.clone()
    }
}

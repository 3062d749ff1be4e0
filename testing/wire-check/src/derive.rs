//! Derives columns from several of tshark's fields: messages, which tshark shows segment by
//! segment.

use crate::columns::{Columns, Direction};

/// The opcodes of RDMAP messages without Read Responses, whose position among the others the device
/// chooses.
pub(crate) const MESSAGES: &str = "RDMAP messages";
/// The STag of each RDMA Write.
pub(crate) const WRITE_STAG: &str = "RDMA Write STag";
/// The tagged offset of each RDMA Write.
pub(crate) const WRITE_OFFSET: &str = "RDMA Write offset";
/// The bytes of each RDMA Write.
pub(crate) const WRITE_LENGTH: &str = "RDMA Write length";
/// The bytes of each RDMA Read Response.
pub(crate) const READ_RESPONSE_BYTES: &str = "RDMA Read Response length";

/// The opcode of an RDMA Write (RFC 5040, section 4.3).
pub(crate) const WRITE: u64 = 0;
/// The opcode of an RDMA Read Response.
const READ_RESPONSE: u64 = 2;
/// The opcode of a Send.
pub(crate) const SEND: u64 = 3;
/// The opcode of a Send With Invalidate.
pub(crate) const SEND_WITH_INVALIDATE: u64 = 4;

/// The bytes of DDP and RDMAP headers in a tagged segment (RFC 5041, section 4.1).
const TAGGED_HEADER: u64 = 14;

/// A message whose last segment has not arrived.
struct Partial {
    stag: u64,
    start: u64,
    next: u64,
}

/// Adds the derived columns. Returns inconsistencies.
pub(crate) fn derive(columns: &mut Columns, direction: Direction) -> Vec<String> {
    let mut problems = Vec::new();
    let of = |field| columns.numbers(direction, field);
    let (opcodes, lengths) = (of("iwarp_rdma.opcode"), of("iwarp_mpa.ulpdulength"));
    let (last, tagged) = (of("iwarp_ddp.last_flag"), of("iwarp_ddp.tagged_flag"));
    let (stags, offsets) = (of("iwarp_ddp.stag"), of("iwarp_ddp.tagged_offset"));
    let frames = opcodes.len();
    if [lengths.len(), last.len(), tagged.len()] != [frames; 3] {
        problems.push(format!(
            "{direction}: {frames} opcodes, other fields more or fewer"
        ));
    }
    let (mut partial, mut memory) = (None, stags.into_iter().zip(offsets));
    for (((opcode, length), last), tagged) in opcodes.into_iter().zip(lengths).zip(last).zip(tagged)
    {
        if tagged == 0 {
            if last == 1 {
                columns.push(direction, MESSAGES, opcode);
            }
            continue;
        }
        let Some((stag, offset)) = memory.next() else {
            problems.push(format!(
                "{direction}: a tagged segment without STag and offset"
            ));
            continue;
        };
        let message = partial.get_or_insert(Partial {
            stag,
            start: offset,
            next: offset,
        });
        if (message.stag, message.next) != (stag, offset) {
            problems.push(format!("{direction}: a message goes on at another place"));
        }
        message.next = offset + length.saturating_sub(TAGGED_HEADER);
        if last == 0 {
            continue;
        }
        let bytes = message.next - message.start;
        match opcode {
            WRITE => {
                columns.push(direction, MESSAGES, opcode);
                columns.push(direction, WRITE_STAG, stag);
                columns.push(direction, WRITE_OFFSET, message.start);
                columns.push(direction, WRITE_LENGTH, bytes);
            }
            READ_RESPONSE => columns.push(direction, READ_RESPONSE_BYTES, bytes),
            other => problems.push(format!("{direction}: a tagged message with opcode {other}")),
        }
        partial = None;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment: opcode, length without the header, last flag, and for tagged ones STag and
    /// offset.
    type Segment = (u64, u64, bool, Option<(u64, u64)>);

    fn derived(segments: &[Segment]) -> (Columns, Vec<String>) {
        const AT: Direction = Direction::Call;
        let mut columns = Columns::default();
        for (opcode, length, last, place) in segments {
            columns.push(AT, "iwarp_rdma.opcode", opcode);
            columns.push(AT, "iwarp_mpa.ulpdulength", length + TAGGED_HEADER);
            columns.push(AT, "iwarp_ddp.last_flag", u8::from(*last));
            columns.push(AT, "iwarp_ddp.tagged_flag", u8::from(place.is_some()));
            if let Some((stag, offset)) = place {
                columns.push(AT, "iwarp_ddp.stag", stag);
                columns.push(AT, "iwarp_ddp.tagged_offset", offset);
            }
        }
        let problems = derive(&mut columns, AT);
        (columns, problems)
    }

    #[test]
    fn segments_join_to_messages() {
        let (columns, problems) = derived(&[
            (SEND, 100, true, None),
            (WRITE, 1000, false, Some((7, 5000))),
            (WRITE, 24, true, Some((7, 6000))),
            (READ_RESPONSE, 8, true, Some((9, 0))),
            (SEND_WITH_INVALIDATE, 100, true, None),
        ]);
        assert!(problems.is_empty(), "{problems:?}");
        let of = |field| columns.numbers(Direction::Call, field);
        assert_eq!(of(MESSAGES), [SEND, WRITE, SEND_WITH_INVALIDATE]);
        let write = [of(WRITE_STAG), of(WRITE_OFFSET), of(WRITE_LENGTH)];
        assert_eq!(write, [[7], [5000], [1024]]);
        assert_eq!(of(READ_RESPONSE_BYTES), [8]);
    }

    #[test]
    fn a_hole_in_a_message_is_a_problem() {
        let hole = derived(&[
            (WRITE, 1000, false, Some((7, 5000))),
            (WRITE, 24, true, Some((7, 6001))),
        ]);
        assert_eq!(hole.1.len(), 1);
        let other_memory = derived(&[
            (WRITE, 1000, false, Some((7, 5000))),
            (WRITE, 24, true, Some((8, 6000))),
        ]);
        assert_eq!(other_memory.1.len(), 1);
    }
}

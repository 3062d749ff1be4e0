//! Damage to bytes that were read ahead into the regions of predicted RDMA Writes.

use super::*;

/// Length in bytes of what is written to the region of each answer.
const RESULT: usize = 300;
/// Number of answers that are read together.
const COUNT: usize = 16;
/// Lengths in bytes of the FPDUs of an RDMA Write and of the Send behind it, neither of which needs padding.
const WRITE: usize = mpa::LENGTH_FIELD + ddp::TAGGED + RESULT + mpa::CRC_FIELD;
const ANSWER: usize = WRITE + mpa::LENGTH_FIELD + ddp::UNTAGGED + REPLY + mpa::CRC_FIELD;
/// Offsets in bytes of the fields of an RDMA Write from the beginning of its FPDU.
const STAG: usize = mpa::LENGTH_FIELD + 2;
const OFFSET: usize = STAG + 4;

/// A change to an RDMA Write, whose FPDU begins at `at`.
type Damage = fn(bytes: &mut Vec<u8>, at: usize);

/// Outcome of a change with CRCs, and without: an error of this code, or none.
type Expected = (Option<Code>, Option<Code>);

const CASES: [(&str, Damage, Expected); 7] = [
    (
        "STag",
        |bytes, at| bytes[at + STAG] ^= 1,
        (Some(Code::CRC), Some(Code::TAGGED_STAG)),
    ),
    (
        "offset",
        |bytes, at| bytes[at + OFFSET] ^= 0x20,
        (Some(Code::CRC), Some(Code::TAGGED_BOUNDS)),
    ),
    (
        "length: more than the region has",
        |bytes, at| bytes[at] ^= 4,
        (Some(Code::CRC), Some(Code::TAGGED_BOUNDS)),
    ),
    // The CRC field is zero without CRCs, and taken for the length of the next FPDU.
    (
        "length: one word less",
        |bytes, at| bytes[at + 1] -= 4,
        (Some(Code::CRC), Some(Code::STREAM_CATASTROPHIC)),
    ),
    (
        "length: none",
        |bytes, at| bytes[at..at + 2].fill(0),
        (
            Some(Code::STREAM_CATASTROPHIC),
            Some(Code::STREAM_CATASTROPHIC),
        ),
    ),
    (
        "CRC",
        |bytes, at| bytes[at + WRITE - 1] ^= 1,
        (Some(Code::CRC), None),
    ),
    // No damage: in front of the Send before it, a short RDMA Write to the region of the next one. It lies in a gap, and
    // other bytes where its payload belongs.
    (
        "another",
        |bytes, at| {
            let next = at + ANSWER;
            if next < bytes.len() {
                let len = 8;
                let mut another = bytes[next..next + OFFSET + 8 + len].to_vec();
                another[..2].copy_from_slice(&((ddp::TAGGED + len) as u16).to_be_bytes());
                another[OFFSET + 8..].fill(0xee);
                let crc = crc32c::crc32c(&another);
                another.extend_from_slice(&crc.to_le_bytes());
                let before = at.saturating_sub(ANSWER - WRITE);
                bytes.splice(before..before, another);
            }
        },
        (None, None),
    ),
];

/// Answers before the damaged RDMA Write complete as always, and nothing behind it does. All memory comes back.
#[test]
fn damage_to_predicted_writes_is_found() {
    for (name, damage, expected) in CASES {
        for (crc, shared) in [(false, false), (false, true), (true, false), (true, true)] {
            for damaged in [0, 1, 7, COUNT - 4] {
                let case = format!("{name}, crc {crc}, shared {shared}, answer {damaged}");
                let code = match crc {
                    true => expected.0,
                    false => expected.1,
                };
                found(damage, code, (crc, shared), damaged, &case);
            }
        }
    }
}

/// Checks one case.
fn found(damage: Damage, code: Option<Code>, ways: (bool, bool), damaged: usize, case: &str) {
    let (crc, shared) = ways;
    let mut model = Model::new(crc, 1, 4000);
    if shared {
        model = model.bound();
    }
    let group = [RESULT; COUNT];
    for _ in 0..80 {
        model.answer_together(&group);
    }
    assert_eq!(model.answer_together(&group), (1, COUNT * REPLY), "{case}");
    model.answers(&group, false);
    model.receive_all_owed();
    let mut bytes = model.one.take(usize::MAX).expect("answers");
    assert_eq!(bytes.len(), COUNT * ANSWER);
    damage(&mut bytes, damaged * ANSWER);
    let ended = code.map(|_| Ended::PeerError);
    assert_eq!(model.two.put(&bytes).err(), ended, "{case}");
    if let Some(code) = code {
        let terminate = model.two.take(usize::MAX).expect("a Terminate");
        let said = &terminate[mpa::LENGTH_FIELD + ddp::UNTAGGED..];
        let code = [code.layer << 4 | code.kind, code.code];
        assert_eq!(said[..2], code, "{case}");
    }
    let answered = completed(&mut model, case);
    let whole = match code {
        Some(_) => damaged,
        None => COUNT,
    };
    assert_eq!(answered, whole, "{case}");
    model.two.end();
    for (stag, _) in std::mem::take(&mut model.results) {
        assert!(model.two.reclaim(stag).is_ok(), "{case}");
    }
    assert!(accounted(model), "{case}");
}

/// Checks the answers that have completed, and returns how many these are. Other events stay.
fn completed(model: &mut Model, case: &str) -> usize {
    let mut answered = 0;
    for event in std::mem::take(&mut model.two.events) {
        let Event::Completion(completion) = event else {
            panic!("{case}: {event:?}")
        };
        let Ok(Success::Receive { buf, invalidated }) = completion.result else {
            model.two.events.push_back(Event::Completion(completion));
            continue;
        };
        answered += 1;
        assert!(Some(buf.to_vec()) == model.sent.pop_front(), "{case}");
        let (stag, written) = model.results.pop_front().expect("what arrives was posted");
        assert_eq!(invalidated, Some(stag), "{case}");
        let Ok(Region::RemoteWrite(buf)) = model.two.reclaim(stag) else {
            panic!("{case}: the region is gone");
        };
        assert!(buf[..written.len()] == written, "{case}: {answered}");
    }
    answered
}

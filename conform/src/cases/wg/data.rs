//! Data of NFS calls and replies (version-two-07, sections 4.5, 6.5 and 6.6): by chunks, as those of version 1, and in
//! several messages.

use super::{FIRST, error, reply, row};
use crate::case::{Case, Ground, Level, Step, memory, opening};
use crate::cases::nfs::{self, compared, opaque_words, overlaid, stored};
use crate::cases::{content, data, inline};
use crate::dialect::Dialect;
use crate::expect::{Expect, success};
use crate::wire::v1::{self, Header, Segment};
use crate::wire::wg::{
    self, CALL_MIDDLE, ERR_REPLY_RESOURCE, ERR_WRITE_RESOURCE, VERSION, introduction,
};

/// The address of the plain READ by a Write chunk.
const FIRST_READ: &str = "rpcrdma2-07/4.5.2.1/1";
/// The address of the plain WRITE by a Read chunk.
const FIRST_WRITE: &str = "rpcrdma2-07/4.5.1/40";
/// The address of the plain READ without chunks that takes several messages.
const FIRST_CONTINUED: &str = "rpcrdma2-07/6.6.4/1";

/// Cases of version 1 whose calls and replies are the same but for their headers: the address there, and the section
/// and number here.
const TRANSLATED: [(&str, &str, u32); 24] = [
    ("rfc8166/4.3.2/1", "version-two-07, 4.5.2.1", 1),
    ("rfc8166/3.4.5/20", "version-two-07, 4.5.1", 40),
    ("rfc8166/3.4.6/10", "version-two-07, 4.5.2.1", 2),
    ("rfc8166/3.4.6/11", "version-two-07, 4.5.2.1", 3),
    ("rfc8166/3.4.6/12", "version-two-07, 4.5.2.1", 4),
    ("rfc8166/3.4.6.2/1", "version-two-07, 4.5.2.4", 1),
    ("rfc8166/3.4.6.2/2", "version-two-07, 4.5.2.4", 2),
    ("rfc8166/4.3.2.2/1", "version-two-07, 4.5.2.1", 5),
    ("rfc8166/4.3.2.2/2", "version-two-07, 4.5.2.1", 6),
    ("rfc8166/4.3.2.3/1", "version-two-07, 4.5.2", 1),
    ("rfc8166/3.5.3/10", "version-two-07, 6.6.3", 10),
    ("rfc8166/3.5.3/11", "version-two-07, 6.6.3", 11),
    ("rfc8166/3.5.3/12", "version-two-07, 6.6.3", 12),
    ("rfc8166/3.4.5/21", "version-two-07, 4.5.1", 41),
    ("rfc8166/3.4.5.2/1", "version-two-07, 4.5.3.1", 1),
    ("rfc8166/3.4.5.2/3", "version-two-07, 4.5.3.1", 2),
    ("rfc8166/3.5.3/20", "version-two-07, 6.3.5", 20),
    ("rfc8166/3.5.3/21", "version-two-07, 6.3.5", 21),
    ("rfc8166/3.5.3/22", "version-two-07, 6.3.5", 22),
    ("rfc8166/3.5.1/1", "version-two-07, 6.6.1", 1),
    ("rfc8166/3.5.1/2", "version-two-07, 6.6.1", 2),
    ("rfc8166/3.5.1/3", "version-two-07, 6.6.1", 3),
    ("rfc8166/3.5.1/4", "version-two-07, 6.6.1", 4),
    ("rfc8166/3.5.1/10", "version-two-07, 6.6.1", 10),
];

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    [
        translated(ground),
        continued(ground),
        short(ground),
        parts(ground),
        handles(ground),
    ]
    .concat()
}

fn translated(ground: &Ground) -> Vec<Case> {
    let of_first = [data::cases(ground), inline::cases(ground)].concat();
    let one = |(address, section, number): (&str, &'static str, u32)| {
        let case = of_first.iter().find(|it| it.address() == address)?;
        let mut case = Case {
            section: section.into(),
            number,
            script: steps(&case.script),
            ..case.clone()
        };
        match section {
            // An unused chunk may come back with its segments, or without any (errata-07, 47).
            "version-two-07, 4.5.2.1" => case.script.iter_mut().for_each(also_without_segments),
            // A Reply chunk may be used, and so may "another means" (6.6.4; errata-07, 40).
            "version-two-07, 6.6.3" => case.level = Level::Should,
            _ => {}
        }
        let case = case.speaking(Dialect::Wg);
        let address = case.address();
        let base = match section {
            _ if address == FIRST_READ || address == FIRST_WRITE => FIRST,
            "version-two-07, 4.5.2.1" | "version-two-07, 4.5.2.4" => FIRST_READ,
            // They write into the file, by a Read chunk, and look at it, by a Write chunk.
            _ => FIRST_WRITE,
        };
        Some(case.needs(base))
    };
    TRANSLATED.into_iter().filter_map(one).collect()
}

/// Allows that the unused Write chunks of a reply are returned without their segments.
fn also_without_segments(step: &mut Step) {
    let Step::Expect(allowed) = step else {
        return;
    };
    let others = allowed.iter().filter_map(|expected| match expected {
        Expect::Reply(reply) => {
            let mut other = reply.clone();
            for chunk in other.writes.iter_mut().flatten() {
                if chunk.iter().all(|segment| segment.length == 0) {
                    chunk.clear();
                }
            }
            (other != *reply).then_some(Expect::Reply(other))
        }
        _ => None,
    });
    let others: Vec<Expect> = others.collect();
    allowed.extend(others);
}

/// Translates the steps of a case of version 1.
fn steps(script: &[Step]) -> Vec<Step> {
    let mut steps = Vec::new();
    for step in script {
        match step {
            Step::Connect(_) => steps.extend(opening(Dialect::Wg)),
            Step::Send(message) => steps.push(Step::Send(wg::from_first(message))),
            other => steps.push(other.clone()),
        }
    }
    steps
}

/// Returns the steps that write data into the file by a Read chunk.
fn written(ground: &Ground, data: &[u8]) -> Vec<Step> {
    steps(&stored(ground, 0, data))
}

/// Replies without chunks that are longer than a message.
fn continued(ground: &Ground) -> Vec<Case> {
    const SECTION: &str = "version-two-07, 6.6.4";
    let read = |seed, length: u32| {
        let data = nfs::data(ground, seed, length as usize);
        let (xid, message) = nfs::read(ground, 0, length, &[], None);
        let mut steps = written(ground, &data);
        let whole = success(xid, &[0]).ends(&opaque_words(&data)).returning(&[]);
        steps.extend([Step::Send(wg::from_first(&message)), reply(whole)]);
        steps
    };
    let row = |number, sends: &str, steps| {
        let case = row(
            SECTION,
            number,
            sends,
            "the data, in several messages",
            steps,
        );
        case.level(Level::Should).needs(FIRST_WRITE)
    };
    let sized = |number, size: u32| {
        let data = nfs::data(ground, 300 + number, 6000);
        let (xid, message) = nfs::read(ground, 0, 6000, &[], None);
        let whole = success(xid, &[0]).ends(&opaque_words(&data)).returning(&[]);
        let mut steps = opening(Dialect::Wg);
        steps[1] = Step::Send(introduction(&wg::set(&[(2, size)])));
        steps.extend(written(ground, &data));
        steps.extend([Step::Send(wg::from_first(&message)), reply(whole)]);
        let sends = format!("READ of 6000 bytes without a chunk by a client that receives {size}");
        let expects = "the data, in messages that are no longer than that";
        let case = crate::case::case("version-two-07, 5.2.2", number, sends, expects, steps);
        let case = case.speaking(Dialect::Wg).needs(FIRST_CONTINUED);
        // Section 5.2.2 has no MUST, and 6.6.4 allows an error where continuation is not possible.
        case.level(Level::Should)
    };
    let counted = [read(302, 9000), vec![Step::Counted]].concat();
    let counts = super::row(
        "version-two-07, 6.3.9",
        1,
        "READ of 9000 bytes without a chunk",
        "messages that tell how many bytes follow each of them",
        counted,
    );
    vec![
        row(1, "READ of 6000 bytes without a chunk", read(300, 6000)),
        row(2, "READ of 12001 bytes without a chunk", read(301, 12_001)).needs(FIRST_CONTINUED),
        // The field may count this message or not (errata-07, 35).
        counts.level(Level::Should).needs(FIRST_CONTINUED),
        sized(1, 1024),
        sized(2, 2048),
    ]
}

/// Chunks without room for the reply.
fn short(ground: &Ground) -> Vec<Case> {
    const LEN: u32 = 8192;
    let case = |number, sends: &str, writes: &[&[Segment]], long: Option<Segment>, other| {
        let data = nfs::data(ground, 310 + number, LEN as usize);
        let reply_chunk = long.map(|segment| [segment]);
        let chunk = reply_chunk.as_ref().map(<[Segment; 1]>::as_slice);
        let (xid, message) = nfs::read(ground, 0, LEN, writes, chunk);
        let rooms = writes.concat().into_iter().chain(long);
        let mut steps = written(ground, &data);
        steps.extend(rooms.map(Step::Room));
        let whole = success(xid, &[0]).ends(&opaque_words(&data));
        let errors = [other, ERR_REPLY_RESOURCE];
        let mut allowed = vec![Expect::Reply(whole)];
        allowed.extend(errors.map(|code| match code {
            ERR_WRITE_RESOURCE => Expect::Error(xid, VERSION, vec![Some(code), None, None]),
            _ => Expect::Error(xid, VERSION, vec![Some(code), None]),
        }));
        steps.extend([Step::Send(wg::from_first(&message)), Step::Expect(allowed)]);
        let expects = "the data, in several messages, or an error that the chunk is too short, and no RDMA Write beyond it";
        let section = "version-two-07, 6.6.4";
        row(section, number, sends, expects, steps).needs(FIRST_WRITE)
    };
    let (room, empty) = (memory(0, LEN - 1), memory(0, 0));
    vec![
        case(
            10,
            "READ of 8192 bytes by a Write chunk of 8191",
            &[&[room]],
            None,
            ERR_WRITE_RESOURCE,
        ),
        case(
            11,
            "READ of 8192 bytes by a Write chunk of empty segments",
            &[&[empty; 4]],
            None,
            ERR_WRITE_RESOURCE,
        ),
        case(
            12,
            "READ of 8192 bytes by a Reply chunk of 8191",
            &[],
            Some(room),
            ERR_REPLY_RESOURCE,
        ),
    ]
}

/// A call in several messages with its data, and one with a Read chunk in its last message, whose position counts in
/// the whole call (errata-07, 34).
fn parts(ground: &Ground) -> Vec<Case> {
    let cut = |message: &[u8], cuts: &[usize]| {
        let (mut at, mut steps) = (0, Vec::new());
        let xid = message
            .first_chunk()
            .map_or(0, |it| u32::from_be_bytes(*it));
        for cut in cuts {
            let remaining = (message.len() - cut) as u32;
            let part = wg::message(xid, CALL_MIDDLE, &[remaining], &message[at..*cut]);
            steps.push(Step::Send(part));
            at = *cut;
        }
        (steps, message[at..].to_vec())
    };
    let inline = {
        let data = content(320, 6001);
        let before = content(321, 6004);
        let (xid, message) = nfs::whole_write(ground, 0, &data);
        let mut steps = written(ground, &before);
        let (first, last) = cut(&message, &[3000, 6000]);
        steps.extend(first);
        steps.extend([Step::Send(wg::call(xid, &last)), reply(success(xid, &[0]))]);
        steps.extend(self::steps(&compared(ground, 0, &overlaid(&before, &data))));
        steps
    };
    let chunk = {
        let data = content(322, 8192);
        let segment = memory(0, 8192);
        let (xid, message) = nfs::write(ground, 0, 8192, &[segment]);
        let mut steps = written(ground, &content(323, 8192));
        if let Some(v1::Message::Rpc(header, payload)) = v1::parse(&message) {
            let (first, last) = cut(&payload, &[40]);
            steps.push(Step::Offer(segment, data.clone()));
            steps.extend(first);
            steps.push(Step::Send(wg::call_with(&header, 0, &last)));
        }
        steps.push(reply(success(xid, &[0])));
        steps.extend(self::steps(&compared(ground, 0, &data)));
        steps
    };
    let bytes = "the file has these bytes";
    vec![
        row(
            "version-two-07, 6.6.2",
            1,
            "WRITE of 6001 bytes in three messages",
            bytes,
            inline,
        )
        // One reading of `rdma_remaining` (errata-07, 35).
        .level(Level::Should)
        .needs(FIRST_WRITE),
        row(
            "version-two-07, 6.6.2.1",
            1,
            "WRITE in two messages, with its data in a Read chunk of the second",
            bytes,
            chunk,
        )
        .level(Level::Should)
        .needs(FIRST_WRITE),
    ]
}

/// Calls that name a handle for remote invalidation. Every case checks that no other is invalidated.
fn handles(ground: &Ground) -> Vec<Case> {
    let data = content(330, 4096);
    let (source, room) = (memory(0, 4096), memory(1, 4096));
    let naming = |message: &[u8], handle| match v1::parse(message) {
        Some(v1::Message::Rpc(header, payload)) => wg::call_with(&header, handle, &payload),
        _ => message.to_vec(),
    };
    let (write_xid, write) = nfs::write(ground, 0, 4096, &[source]);
    let (read_xid, read) = nfs::read(ground, 0, 4096, &[&[room]], None);
    let steps = vec![
        Step::Offer(source, data.clone()),
        Step::Send(naming(&write, source.handle)),
        reply(success(write_xid, &[0])),
        Step::Room(room),
        Step::Send(naming(&read, room.handle)),
        reply(success(read_xid, &[0])),
        Step::Holds(room.handle, data),
    ];
    let sends = "WRITE and READ that name the handles of their chunks for invalidation";
    let expects = "replies that invalidate these handles, or none";
    let errors = {
        let xid = ground.xid();
        let header = Header {
            writes: vec![vec![room]],
            ..v1::header(xid)
        };
        let mut message = wg::call_with(&header, room.handle, &[]);
        message.extend([0; 8]);
        vec![
            Step::Room(room),
            Step::Send(message),
            Step::Expect(vec![error(xid, &[wg::ERR_BAD_XDR])]),
        ]
    };
    vec![
        row("version-two-07, 6.5", 1, sends, expects, steps).needs(FIRST_WRITE),
        row(
            "version-two-07, 6.5",
            2,
            "a call of another XID that names a handle for invalidation",
            "RDMA2_ERROR with BAD_XDR, by a plain Send",
            errors,
        )
        .needs(super::FIRST_BAD_XDR),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_that_is_translated_exists() {
        let all = translated(&Ground::without_files(7));
        assert_eq!(all.len(), TRANSLATED.len());
        let is_translated = |case: &Case| {
            let mut sent = case.script.iter().filter_map(|step| match step {
                Step::Send(message) => wg::htype(message),
                _ => None,
            });
            sent.all(|htype| (wg::CONNPROP_FINAL..=wg::CALL_INLINE).contains(&htype))
        };
        let rest: Vec<_> = all.iter().filter(|it| !is_translated(it)).collect();
        assert!(rest.is_empty(), "{rest:?}");
    }
}

//! Two endpoints without sockets: all work completes, however the stream is divided, and no bytes
//! cause harm.

mod damage;

use std::collections::VecDeque;

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen, quickcheck};
use smallvec::SmallVec;

use super::harness::{Ended, SetUp, Side};
use super::terminate::Code;
use super::{ddp, mpa};
use rdma::{Event, Region, RemoteSegment, Scatter, SendWr, Stag, Success, WorkError, WrId};

const REGION: usize = 3000;
const RECEIVE: usize = 1200;
/// Length of the first buffer of receives with several.
const HEAD: usize = 100;
/// Lengths of Sends that come often, so that several in a row are alike. 300, 600 and 611 are a little longer than
/// [`HEAD`], and 612 is just not.
const USUAL: [usize; 7] = [60, 300, 600, 611, 612, 700, RECEIVE];
/// Length of the region of an answer, and lengths of what is written to it.
const ROOM: usize = 900;
const RESULTS: [usize; 3] = [ROOM, 300, 20];
/// Length of the Send behind it.
const REPLY: usize = 60;

/// Posts a receive of one buffer, or of three.
fn receive(side: &mut Side, id: u64, parts: bool) {
    let receive = match parts {
        false => side.buf(RECEIVE, 0).into(),
        true => Scatter::new(
            side.buf(HEAD, 0),
            [side.buf(HEAD, 0), side.buf(RECEIVE - 2 * HEAD, 0)],
        ),
    };
    side.receive(id, receive)
        .expect("a stream that is open takes receives");
}

/// Ends the stream, if it has not ended, and returns the errors of the requests that failed.
fn failures(side: &mut Side) -> Vec<WorkError> {
    side.end();
    let errors = side.events.drain(..).filter_map(|event| match event {
        Event::Completion(completion) => completion.result.err().map(|failed| failed.error),
        _ => None,
    });
    errors.collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    /// This number of Sends of this length.
    Sends(u8, usize),
    /// This number of answers: for each, a region of its own to which so much is written, and a Send that invalidates
    /// it. The regions are used in the order of registration, or in the opposite order.
    Answers {
        count: u8,
        len: usize,
        turned: bool,
    },
    Write {
        at: usize,
        len: usize,
    },
    Read {
        at: usize,
        len: usize,
    },
    /// With a shared receive queue: post a receive, if a message without one was sent.
    Receive,
    /// Post a receive for each of them.
    Receives,
    /// Transfer at most this number of bytes.
    Pass {
        forth: bool,
        most: usize,
    },
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        let at = usize::arbitrary(g) % REGION;
        let len = usize::arbitrary(g) % (REGION - at);
        let results = RESULTS[usize::arbitrary(g) % RESULTS.len()];
        match u8::arbitrary(g) % 10 {
            0 if bool::arbitrary(g) => Self::Send(usize::arbitrary(g) % (RECEIVE + 1)),
            0 => Self::Send(USUAL[usize::arbitrary(g) % USUAL.len()]),
            1 => Self::Write { at, len },
            2 => Self::Read { at, len },
            3 if bool::arbitrary(g) => Self::Receive,
            3 => Self::Receives,
            4 => Self::Sends(
                u8::arbitrary(g) % 6,
                USUAL[usize::arbitrary(g) % USUAL.len()],
            ),
            5 => Self::Answers {
                count: u8::arbitrary(g) % 6,
                len: results,
                turned: u8::arbitrary(g).is_multiple_of(8),
            },
            6 => Self::Pass {
                forth: true,
                most: 1 + usize::arbitrary(g) % 20_000,
            },
            _ => Self::Pass {
                forth: bool::arbitrary(g),
                most: 1 + usize::arbitrary(g) % 700,
            },
        }
    }
}

/// One side uses the other's memory, and the model computes the expected result.
struct Model {
    one: Side,
    two: Side,
    target: RemoteSegment,
    source: RemoteSegment,
    /// Contents of the region, as far as it was written. The rest is undefined.
    written: Vec<Option<u8>>,
    data: Vec<u8>,
    expected: VecDeque<(WrId, Vec<u8>)>,
    sent: VecDeque<Vec<u8>>,
    /// Contents written to the regions that Sends invalidate.
    results: VecDeque<(Stag, Vec<u8>)>,
    posted: u64,
    /// Whether receives have several buffers.
    parts: bool,
    /// With a shared receive queue, the number of messages for which no receive was posted yet.
    owed: Option<u64>,
}

impl Model {
    fn new(crc: bool, reads: usize, max_ulpdu: usize) -> Self {
        let side = |wait_for_peer| {
            let set_up = SetUp {
                crc,
                reads,
                wait_for_peer,
                empty_rtr: false,
                max_ulpdu,
            };
            Side::new(&set_up, 1 << 26)
        };
        let (one, mut two) = (side(false), side(true));
        let data: Vec<u8> = (0..REGION).map(|i| (i * 31 + i / 256) as u8).collect();
        let target = Region::RemoteWrite(two.buf(REGION, 0));
        let target = two.register(target);
        let mut source = two.buf(REGION, 0);
        source.copy_from_slice(&data);
        let source = two.register(Region::RemoteRead(source.freeze()));
        Self {
            one,
            two,
            target,
            source,
            written: vec![None; REGION],
            data,
            expected: VecDeque::new(),
            sent: VecDeque::new(),
            results: VecDeque::new(),
            posted: 0,
            parts: false,
            owed: None,
        }
    }

    /// Gives the receives several buffers if `parts` is true.
    fn with_parts(mut self, parts: bool) -> Self {
        self.parts = parts;
        self
    }

    /// Lets the side whose memory is used take its receives from a shared receive queue.
    fn bound(mut self) -> Self {
        self.two = self.two.bound();
        self.owed = Some(0);
        self
    }

    /// Posts a receive if the shared receive queue lacks one, and lets the side go on.
    fn receive_owed(&mut self) {
        if let Some(owed @ 1..) = &mut self.owed {
            *owed -= 1;
            receive(&mut self.two, self.posted, self.parts);
            self.two.resume().expect("what waited is in order");
        }
    }

    /// Posts a receive for each message that lacks one.
    fn receive_all_owed(&mut self) {
        while self.owed > Some(0) {
            self.receive_owed();
        }
    }

    /// Sends messages of these lengths together. Returns how many reads they took, and how many bytes of them were
    /// copied on arrival.
    fn pass_together(&mut self, lengths: &[usize]) -> (usize, usize) {
        for len in lengths {
            self.step(Step::Send(*len));
        }
        self.pass_all()
    }

    /// Sends answers with results of these lengths together, and returns the same.
    fn answer_together(&mut self, lengths: &[usize]) -> (usize, usize) {
        self.answers(lengths, false);
        self.pass_all()
    }

    /// Transfers everything that was posted, and returns how many reads it took, and how many bytes of it were copied on
    /// arrival.
    fn pass_all(&mut self) -> (usize, usize) {
        self.receive_all_owed();
        let before = (self.two.reads, self.two.counters.copied_bytes);
        let most = usize::MAX;
        self.step(Step::Pass { forth: true, most });
        assert!(self.sent.is_empty(), "all have arrived");
        let copied = self.two.counters.copied_bytes - before.1;
        (self.two.reads - before.0, copied as usize)
    }

    /// Posts a Send.
    fn send(&mut self, len: usize, invalidate: Option<Stag>) {
        self.posted += 1;
        let id = self.posted;
        match &mut self.owed {
            None => receive(&mut self.two, id, self.parts),
            Some(owed) => *owed += 1,
        }
        let buf = self.one.buf(len, id as u8);
        self.sent.push_back(buf.to_vec());
        let bytes = buf.freeze();
        let gather = SmallVec::from_iter([bytes.slice(..len / 3), bytes.slice(len / 3..)]);
        let wr = SendWr::Send { gather, invalidate };
        let posted = self.one.post(id, wr);
        posted.expect("a stream that is open takes work");
    }

    /// Posts answers: results of these lengths, each with a Send behind it.
    fn answers(&mut self, lengths: &[usize], turned: bool) {
        let mut regions: Vec<RemoteSegment> = Vec::new();
        for _ in lengths {
            let region = Region::RemoteWrite(self.two.buf(ROOM, 0));
            regions.push(self.two.register(region));
        }
        if turned {
            regions.reverse();
        }
        for (region, len) in regions.into_iter().zip(lengths) {
            self.posted += 1;
            let buf = self.one.buf(*len, self.posted as u8);
            self.results.push_back((region.stag, buf.to_vec()));
            let wr = SendWr::Write {
                gather: SmallVec::from_iter([buf.freeze()]),
                stag: region.stag,
                offset: region.offset,
            };
            let posted = self.one.post(self.posted, wr);
            posted.expect("a stream that is open takes work");
            self.send(REPLY, Some(region.stag));
        }
    }

    fn step(&mut self, step: Step) {
        self.posted += 1;
        let id = self.posted;
        match step {
            Step::Sends(count, len) => {
                for _ in 0..count {
                    self.step(Step::Send(len));
                }
            }
            Step::Send(len) => self.send(len, None),
            Step::Answers { count, len, turned } => {
                self.answers(&vec![len; usize::from(count)], turned);
            }
            Step::Write { at, len } => {
                self.written[at..at + len].fill(Some(id as u8));
                let bytes: Bytes = self.one.buf(len, id as u8).freeze();
                let wr = SendWr::Write {
                    gather: SmallVec::from_iter([bytes]),
                    stag: self.target.stag,
                    offset: self.target.offset + at as u64,
                };
                self.one
                    .post(id, wr)
                    .expect("a stream that is open takes work");
            }
            Step::Read { at, len } => {
                self.expected
                    .push_back((WrId(id), self.data[at..at + len].to_vec()));
                let wr = SendWr::Read {
                    sink: self.one.buf(len, 0),
                    stag: self.source.stag,
                    offset: self.source.offset + at as u64,
                };
                self.one
                    .post(id, wr)
                    .expect("a stream that is open takes work");
            }
            Step::Receive => self.receive_owed(),
            Step::Receives => self.receive_all_owed(),
            Step::Pass { forth, most } => {
                if forth && most % 5 == 0 && most < usize::MAX {
                    // The MSS of the path changes now and then.
                    self.one.set_max_ulpdu(128 + most);
                }
                let (from, to) = match forth {
                    true => (&mut self.one, &mut self.two),
                    false => (&mut self.two, &mut self.one),
                };
                let bytes = from.take(most).expect("what was posted can be sent");
                to.put(&bytes)
                    .expect("what the other side sent is in order");
            }
        }
        self.check();
    }

    /// Checks that completed requests have the expected results, in the expected order.
    fn check(&mut self) {
        for event in self.one.events.drain(..) {
            let Event::Completion(completion) = event else {
                panic!("{event:?}")
            };
            if let Success::Read { sink } =
                completion.result.expect("nothing fails on a good stream")
            {
                let (id, data) = self.expected.pop_front().expect("what arrives was posted");
                assert_eq!(completion.id, id);
                assert!(sink[..] == data);
            }
        }
        for event in std::mem::take(&mut self.two.events) {
            let Event::Completion(completion) = event else {
                panic!("{event:?}")
            };
            match completion.result.expect("nothing fails on a good stream") {
                Success::Receive { buf, invalidated } => {
                    assert!(
                        buf.to_vec() == self.sent.pop_front().expect("what arrives was posted")
                    );
                    let Some(stag) = invalidated else { continue };
                    let result = self.results.pop_front();
                    let (region, written) = result.expect("what arrives was posted");
                    assert_eq!(stag, region);
                    let Ok(Region::RemoteWrite(buf)) = self.two.reclaim(stag) else {
                        panic!("the region is gone");
                    };
                    assert!(buf[..written.len()] == written);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn finish(mut self) {
        loop {
            // A message waits exactly if it has no receive; each may need one turn.
            let waited = self.two.is_waiting();
            assert!(!waited || self.owed > Some(0), "a receive is there");
            self.receive_owed();
            let forth = self
                .one
                .take(usize::MAX)
                .expect("what was posted can be sent");
            self.two
                .put(&forth)
                .expect("what the other side sent is in order");
            let back = self
                .two
                .take(usize::MAX)
                .expect("what was posted can be sent");
            self.one
                .put(&back)
                .expect("what the other side sent is in order");
            self.check();
            if forth.is_empty() && back.is_empty() && !waited && self.owed.unwrap_or(0) == 0 {
                break;
            }
        }
        assert_eq!(self.two.shared_receives(), 0, "each message took one");
        assert!(
            self.expected.is_empty() && self.sent.is_empty(),
            "something is missing"
        );
        assert!(failures(&mut self.one).is_empty() && failures(&mut self.two).is_empty());
        match self.two.reclaim(self.target.stag) {
            Ok(Region::RemoteWrite(buf)) => {
                let mut bytes = buf.iter().zip(&self.written);
                assert!(bytes.all(|(is, written)| written.is_none_or(|byte| *is == byte)));
            }
            _ => panic!("the region is gone"),
        }
        let pools = [self.one.pool.clone(), self.two.pool.clone()];
        drop(self);
        assert!(pools.iter().all(|pool| pool.in_use() == 0));
    }
}

/// After two messages of one length, the next takes a single read, and only its part in the first
/// buffer is copied, in one segment or several, from a shared receive queue or not. One of another
/// length ends the prediction.
#[test]
fn a_message_like_those_before_it_takes_one_read_and_one_short_copy() {
    for (shared, crc, max_ulpdu) in [(false, false, 1500), (false, true, 400), (true, false, 400)] {
        let mut model = Model::new(crc, 1, max_ulpdu).with_parts(true);
        if shared {
            model = model.bound();
        }
        let mut pass = |len: usize| {
            model.step(Step::Send(len));
            model.receive_owed();
            let before = (model.two.reads, model.two.counters.copied_bytes);
            model.step(Step::Pass {
                forth: true,
                most: 9999,
            });
            assert!(model.sent.is_empty(), "it has arrived");
            let copied = model.two.counters.copied_bytes - before.1;
            (model.two.reads - before.0, copied as usize)
        };
        for _ in 0..2 {
            let (reads, copied) = pass(RECEIVE);
            assert!(reads > 1 && copied == HEAD, "{reads} {copied}");
        }
        for _ in 0..3 {
            assert_eq!(pass(RECEIVE), (1, HEAD));
        }
        assert_eq!(pass(60), (1, 60));
        let (reads, _) = pass(RECEIVE);
        assert!(reads > 1, "{reads}");
        // A shorter message than was predicted, with another behind it: what lies in the wrong place
        // is moved.
        pass(RECEIVE);
        pass(RECEIVE);
        for len in [300, 700, 60] {
            model.step(Step::Send(len));
        }
        model.finish();
    }
}

/// Messages that are a little longer than the first buffer, and come one by one, are read and copied as a whole. Those
/// that arrive together are read into their places.
#[test]
fn messages_that_are_a_little_longer_than_the_first_buffer_take_one_read_and_one_copy() {
    // Longer than those that are read in bursts.
    let little = HEAD + 500;
    for (shared, crc) in [(false, false), (false, true), (true, false)] {
        let mut model = Model::new(crc, 1, 4000).with_parts(true);
        if shared {
            model = model.bound();
        }
        for _ in 0..2 {
            let (reads, copied) = model.pass_together(&[little]);
            assert!(reads > 1 && copied == HEAD, "{reads} {copied}");
        }
        for _ in 0..3 {
            assert_eq!(model.pass_together(&[little]), (1, little));
        }
        // Of a longer one instead, a part is copied, once.
        let (_, copied) = model.pass_together(&[RECEIVE]);
        assert!((HEAD..HEAD + 600).contains(&copied), "{copied}");
        model.pass_together(&[RECEIVE]);
        assert_eq!(model.pass_together(&[RECEIVE]), (1, HEAD));
        let group = [little; 16];
        for _ in 0..6 {
            model.pass_together(&group);
        }
        if shared {
            assert_eq!(model.pass_together(&group), (1, HEAD));
        }
        model.finish();
    }
}

/// Sends of one length that arrive together take one read, in the receives of a shared receive queue, and only the part
/// of one of them in its first buffer is copied. Nothing is read ahead while they arrive one by one.
#[test]
fn messages_like_those_before_them_that_arrive_together_take_one_read() {
    for crc in [false, true] {
        let mut model = Model::new(crc, 1, 4000).with_parts(true).bound();
        for _ in 0..2 {
            model.pass_together(&[RECEIVE]);
        }
        for _ in 0..3 {
            assert_eq!(model.pass_together(&[RECEIVE]), (1, HEAD));
        }
        let group = [RECEIVE; 16];
        let reads: Vec<usize> = (0..5).map(|_| model.pass_together(&group).0).collect();
        assert!(reads[0] > 2 && reads[1] <= 2, "{reads:?}");
        assert_eq!(reads[2..], [1, 1, 1]);
        assert_eq!(model.pass_together(&group), (1, HEAD));
        // Whatever is among them instead is not lost, and the prediction comes back.
        for other in [300, 60, HEAD, HEAD + 1, RECEIVE - 1, 0] {
            let (before, after) = (vec![RECEIVE; 3], vec![RECEIVE; 4]);
            model.pass_together(&[before, vec![other], after].concat());
            model.pass_together(&group);
        }
        for _ in 0..5 {
            model.pass_together(&group);
        }
        assert_eq!(model.pass_together(&group), (1, HEAD));
        model.finish();
    }
}

/// Results that are written to regions in the order of registration, with a Send behind each, take one read, and only
/// the Sends are copied: several that arrive together, and one alone.
#[test]
fn answers_like_those_before_them_take_one_read() {
    for (shared, crc) in [(false, false), (false, true), (true, false)] {
        let mut model = Model::new(crc, 1, 4000);
        if shared {
            model = model.bound();
        }
        for _ in 0..4 {
            let (reads, copied) = model.answer_together(&[ROOM]);
            assert!(reads == 1 && copied == ROOM + REPLY, "{reads} {copied}");
        }
        assert_eq!(
            model.answer_together(&[ROOM]),
            (1, REPLY),
            "no more is copied"
        );
        let group = [ROOM; 16];
        let reads: Vec<usize> = (0..5).map(|_| model.answer_together(&group).0).collect();
        assert!(reads[0] > 1, "{reads:?}");
        assert_eq!(reads[3..], [1, 1]);
        assert_eq!(model.answer_together(&group), (1, 16 * REPLY));
        assert_eq!(model.answer_together(&group[..3]), (1, 3 * REPLY));
        model.finish();
    }
}

/// Whatever comes instead of a predicted RDMA Write, nothing is lost, and the prediction comes back. Of short results in
/// a row, some are in the gaps, and begin regions that were read into.
#[test]
fn other_answers_than_predicted_are_placed() {
    let group = [300; 16];
    for crc in [false, true] {
        let mut model = Model::new(crc, 8, 4000).bound();
        let warm = |model: &mut Model| {
            for _ in 0..80 {
                model.answer_together(&group);
            }
            assert_eq!(model.answer_together(&group), (1, 16 * REPLY));
        };
        warm(&mut model);
        for other in [0, 1, 20, 299, 301, ROOM] {
            for some in [1, 2, 9] {
                let others = vec![other; some];
                model.answer_together(&[&group[..5], &others, &group].concat());
            }
            warm(&mut model);
        }
        // Not in the order of registration.
        for _ in 0..3 {
            model.answers(&group, true);
            model.pass_all();
        }
        warm(&mut model);
        // Other messages among them, and before them.
        model.answers(&group[..5], false);
        for len in [REPLY, 1, RECEIVE] {
            model.step(Step::Send(len));
            model.step(Step::Write { at: 5, len: 70 });
            model.step(Step::Read { at: 7, len: 80 });
            model.answers(&group[..5], false);
        }
        model.pass_all();
        warm(&mut model);
        model.pass_together(&[REPLY]);
        model.finish();
    }
}

/// While a Send among predicted RDMA Writes waits for a receive, the program may take back a region that other bytes were
/// read into.
#[test]
fn regions_are_the_programs_while_a_message_waits() {
    let mut model = Model::new(false, 1, 4000).bound();
    for _ in 0..9 {
        model.answer_together(&[300; 16]);
    }
    model.answers(&[300; 4], false);
    let unused = Region::RemoteWrite(model.two.buf(ROOM, 0));
    let unused = model.two.register(unused).stag;
    model.step(Step::Send(RECEIVE));
    let bytes = model.one.take(usize::MAX).expect("answers");
    model.receive_owed();
    model.receive_owed();
    model.two.put(&bytes).expect("what was sent is in order");
    assert!(model.two.is_waiting());
    model.check();
    let invalidate = SendWr::Invalidate { stag: unused };
    model
        .two
        .post(0, invalidate)
        .expect("a stream that is open takes work");
    assert!(model.two.take(usize::MAX).is_ok_and(|sent| sent.is_empty()));
    model.two.events.clear();
    assert!(model.two.reclaim(unused).is_ok());
    model.receive_all_owed();
    model.check();
    // That was no wrong prediction, so the next ones are right as soon as ever.
    let copied: Vec<usize> = (0..6).map(|_| model.answer_together(&[300]).1).collect();
    let (before, predicted) = copied.split_at(4);
    assert!(
        before.iter().all(|copied| *copied == 300 + REPLY),
        "{copied:?}"
    );
    assert!(
        predicted.iter().all(|copied| *copied == REPLY),
        "{copied:?}"
    );
    model.finish();
}

/// Short messages that arrive together take one read after the first time, whatever the first buffers of receives
/// hold. Of a long one that comes instead, no more is copied than such a read takes, and nothing of the next.
#[test]
fn short_messages_that_arrive_together_take_one_read() {
    for parts in [false, true] {
        let mut model = Model::new(false, 1, 4000).with_parts(parts).bound();
        let group = [60; 40];
        let (first, _) = model.pass_together(&group);
        assert!(first > 1, "{first}");
        for _ in 0..3 {
            assert_eq!(model.pass_together(&group), (1, 40 * 60));
        }
        // A single one does not tell that a burst is over, and two tell nothing either.
        assert_eq!(model.pass_together(&[60]), (1, 60));
        let (_, copied) = model.pass_together(&[RECEIVE]);
        let usual = match parts {
            true => HEAD,
            false => RECEIVE,
        };
        assert_eq!(copied, usual);
        model.pass_together(&group);
        let (_, copied) = model.pass_together(&[700]);
        assert_eq!(copied, 700, "a burst was expected");
        let (_, copied) = model.pass_together(&[RECEIVE]);
        assert_eq!(copied, usual);
        model.finish();
    }
}

/// A Send that is like those before it, but has another sequence number, is in no receive. With a wrong
/// CRC, that is the error, as the number may be what was damaged.
#[test]
fn a_send_with_a_wrong_number_is_not_the_predicted_one() {
    // The number's last byte is behind the length and the first 12 bytes of the header.
    let number = mpa::LENGTH_FIELD + ddp::UNTAGGED - 5;
    for (crc, code) in [(true, Code::CRC), (false, Code::MSN_RANGE)] {
        let mut model = Model::new(crc, 1, 4000).with_parts(true).bound();
        for _ in 0..2 {
            model.step(Step::Send(RECEIVE));
            model.receive_owed();
            model.step(Step::Pass {
                forth: true,
                most: 9999,
            });
        }
        model.step(Step::Send(RECEIVE));
        model.receive_owed();
        let mut bytes = model.one.take(usize::MAX).expect("a Send");
        bytes[number] ^= 1;
        assert_eq!(model.two.put(&bytes), Err(Ended::PeerError));
        let terminate = model.two.take(usize::MAX).expect("a Terminate");
        let said = &terminate[mpa::LENGTH_FIELD + ddp::UNTAGGED..];
        assert_eq!(said[..2], [code.layer << 4 | code.kind, code.code]);
        assert!(accounted(model));
    }
}

quickcheck! {
    fn all_requests_complete_as_expected(
        steps: Vec<Step>, crc: bool, parts: bool, reads: u8, max: u16
    ) -> bool {
        let max_ulpdu = 128 + usize::from(max) % 1500;
        let mut model = Model::new(crc, 1 + usize::from(reads % 5), max_ulpdu).with_parts(parts);
        for step in steps {
            model.step(step);
        }
        model.finish();
        true
    }

    /// With a shared receive queue, messages wait for receives and nothing is lost, whatever is
    /// behind them.
    fn messages_wait_for_shared_receives(
        steps: Vec<Step>, crc: bool, parts: bool, reads: u8, max: u16
    ) -> bool {
        let max_ulpdu = 128 + usize::from(max) % 1500;
        let model = Model::new(crc, 1 + usize::from(reads % 5), max_ulpdu).with_parts(parts);
        let mut model = model.bound();
        for step in steps {
            model.step(step);
        }
        model.finish();
        true
    }

    /// A valid stream with some flipped bits that arrives in pieces causes no panic.
    fn flipped_bits_do_no_harm(
        steps: Vec<Step>, crc: bool, ways: (bool, bool), flips: Vec<(u16, u8)>, piece: u8
    ) -> bool {
        let (shared, parts) = ways;
        let mut model = Model::new(crc, 3, 700).with_parts(parts);
        if shared {
            model = model.bound();
        }
        for step in steps.into_iter().filter(|step| !matches!(step, Step::Pass { .. })) {
            model.step(step);
        }
        let mut bytes = model.one.take(usize::MAX).expect("what was posted can be sent");
        let harmless = flips.is_empty() || bytes.is_empty();
        for (at, bit) in flips {
            if !bytes.is_empty() {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= 1 << (bit % 8);
            }
        }
        let mut result = Ok(());
        for piece in bytes.chunks(1 + usize::from(piece) * 64) {
            result = result.and_then(|()| model.two.put(piece));
        }
        // A CRC detects any single flip. (Two flips may undo each other.)
        assert!(!harmless || result.is_ok());
        accounted(model)
    }

    fn any_bytes_do_no_harm(pieces: Vec<Vec<u8>>, crc: bool, shared: bool) -> bool {
        let mut model = Model::new(crc, 3, 700);
        if shared {
            model = model.bound();
        }
        for id in 0..4 {
            receive(&mut model.two, id, false);
        }
        let mut result = Ok(());
        for piece in &pieces {
            result = result.and_then(|()| model.two.put(piece));
        }
        accounted(model)
    }
}

/// Checks that every receive has ended exactly once and all memory has been released.
fn accounted(mut model: Model) -> bool {
    let failed = failures(&mut model.two).len();
    let left = model.two.shared_receives();
    let ended = model.two.counters.receives as usize + failed + left == model.two.receives;
    let pools = [model.one.pool.clone(), model.two.pool.clone()];
    drop(model);
    ended && pools.iter().all(|pool| pool.in_use() == 0)
}

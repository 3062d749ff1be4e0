//! Two ends that change their receive sizes while calls are in flight, in any order. No message may
//! be longer than the receive that it consumes, and every call must be answered.

mod common;

use std::collections::VecDeque;

use common::{config, property};
use quickcheck::quickcheck;
use rpcrdma_ext_xchar::{Config, Exchange};
use rpcrdma_extension::{Action, Calls, Extensions};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Chunks, Direction, Header, Side};

/// A message in flight: its header and its length.
#[derive(Clone, Debug)]
struct Sent {
    header: Header,
    len: u32,
    /// For a call: the maximum length of a reply for which the call offers no chunk.
    reply_room: u32,
}

/// The part of an engine that its extensions need.
#[derive(Debug)]
struct End {
    extensions: Extensions,
    /// Sizes of posted receives, in the order in which messages consume them.
    receives: VecDeque<u32>,
    receive_size: u32,
    /// Number of posted receives that are older than the current size.
    old: usize,
    next_xid: u32,
    /// XIDs of outstanding calls.
    calls: Vec<u32>,
    /// Calls for which an extension waits, and their XIDs.
    awaited: Vec<(Calls, Vec<u32>)>,
    /// Calls received, with the room for their replies.
    to_answer: Vec<(u32, u32)>,
    out: VecDeque<Sent>,
    answered: usize,
    /// Length of the longest message received.
    longest: u32,
}

impl End {
    fn new(side: Side, config: Config) -> Self {
        let receive_size = config.receive_size;
        let mut end = Self {
            extensions: common::end(side, config),
            receives: [receive_size; 12].into(),
            receive_size,
            old: 0,
            next_xid: 5000,
            calls: Vec::new(),
            awaited: Vec::new(),
            to_answer: Vec::new(),
            out: VecDeque::new(),
            answered: 0,
            longest: 0,
        };
        if side == Side::Client {
            end.extensions.connected(None);
            end.act();
        }
        end
    }

    fn act(&mut self) {
        while let Some(action) = self.extensions.next_action() {
            match action {
                Action::Send(op) => {
                    let header = operations::header(op, 8);
                    let len = header.encoded_len() as u32;
                    self.out.push_back(Sent {
                        header,
                        len,
                        reply_room: 0,
                    });
                }
                Action::ReplaceReceives { size } => {
                    self.receive_size = size;
                    self.old = self.receives.len();
                }
                Action::AwaitReplies(Calls::Earlier) if self.calls.is_empty() => {
                    self.extensions.replies_arrived(Calls::Earlier);
                }
                Action::AwaitReplies(Calls::Earlier) => {
                    self.awaited.push((Calls::Earlier, self.calls.clone()));
                }
                Action::AwaitReplies(Calls::Next) => {
                    self.awaited.push((Calls::Next, vec![self.next_xid]));
                }
                Action::LimitsChanged => {}
                Action::Transferred { .. } => panic!("nothing is transferred"),
            }
        }
    }

    fn call(&mut self) {
        let limits = self.extensions.limits();
        if self.calls.len() == 4 {
            return;
        }
        let xid = self.next_xid;
        self.next_xid += 1;
        self.calls.push(xid);
        self.out.push_back(Sent {
            header: Header {
                xid,
                credits: 8,
                body: Body::Msg(Direction::Call, Chunks::default()),
            },
            len: limits.inline_send,
            reply_room: limits.inline_receive,
        });
    }

    /// Answers the oldest call with the longest reply that fits.
    fn answer(&mut self) {
        let limits = self.extensions.limits();
        let Some(&(xid, room)) = self.to_answer.first() else {
            return;
        };
        if room > limits.inline_send {
            match limits.reply_last_resort {
                None => return,
                Some(most) => assert!(room <= most, "a reply of {room} fits nowhere: {limits:?}"),
            }
        }
        self.to_answer.remove(0);
        self.out.push_back(Sent {
            header: Header {
                xid,
                credits: 8,
                body: Body::Msg(Direction::Reply, Chunks::default()),
            },
            len: room,
            reply_room: 0,
        });
    }

    fn receive(&mut self, message: &Sent, side: Side) {
        let receive = self.receives.pop_front().expect("a receive");
        let len = message.len;
        assert!(len <= receive, "{len} bytes met {receive}: {message:?}");
        self.longest = self.longest.max(len);
        self.receives.push_back(self.receive_size);
        let header = &message.header;
        if side == Side::Server && self.longest == len && !self.extensions.all_know_peer() {
            self.extensions.connected(Some(operations::heard(header)));
        }
        let routed = common::deliver(&mut self.extensions, header);
        if self.old > 0 {
            self.old -= 1;
            if self.old == 0 {
                self.extensions.receives_replaced(self.receive_size);
            }
        }
        match (routed, header.direction()) {
            (Routed::Taken, _) => {}
            (Routed::Base, Direction::Call) => {
                self.to_answer.push((header.xid, message.reply_room));
            }
            (Routed::Base, Direction::Reply) => self.replied(header.xid),
            other => panic!("{other:?}"),
        }
        self.act();
    }

    fn replied(&mut self, xid: u32) {
        self.calls.retain(|&call| call != xid);
        self.answered += 1;
        for at in (0..self.awaited.len()).rev() {
            let (which, calls) = &mut self.awaited[at];
            calls.retain(|&call| call != xid);
            if calls.is_empty() {
                let which = *which;
                self.awaited.remove(at);
                self.extensions.replies_arrived(which);
            }
        }
    }

    /// Tries to change sizes as requested; changes that are not possible are skipped.
    fn resize(&mut self, how: u8, size: u32) {
        let _ = self
            .extensions
            .with(|exchange: &mut Exchange, out| match how {
                0 => exchange.raise_receive_size(size, out),
                _ => exchange.request(vec![property(1, &[size])], out),
            });
        self.act();
    }
}

fn deliver(ends: &mut [End; 2], to: usize) -> bool {
    let Some(message) = ends[1 - to].out.pop_front() else {
        return false;
    };
    ends[to].receive(&message, [Side::Client, Side::Server][to]);
    true
}

fn settled_pair() -> [End; 2] {
    let config = Config {
        max_receive_size: 64 << 10,
        ..config()
    };
    let client = End::new(Side::Client, config.clone());
    let mut ends = [client, End::new(Side::Server, config)];
    while deliver(&mut ends, 1) || deliver(&mut ends, 0) {}
    ends
}

fn run(steps: &[u16]) -> [End; 2] {
    let mut ends = settled_pair();
    for step in steps {
        let at = usize::from(step & 1);
        let size = u32::from(step >> 5) % 20 * 4096;
        match step >> 1 & 15 {
            0..=6 => {
                deliver(&mut ends, at);
            }
            7..=9 => ends[at].call(),
            10..=12 => ends[at].answer(),
            13 => ends[at].resize(0, size),
            _ => ends[at].resize(1, size),
        }
    }
    // Completes everything that can be completed without new calls.
    loop {
        let before: usize = ends.iter().map(|end| end.answered).sum();
        while deliver(&mut ends, 0) || deliver(&mut ends, 1) {}
        ends.iter_mut().for_each(End::answer);
        let idle = ends.iter().all(|end| end.out.is_empty());
        let after: usize = ends.iter().map(|end| end.answered).sum();
        if idle && before == after {
            return ends;
        }
    }
}

quickcheck! {
    fn xchar_s3_1_nothing_is_lost_while_sizes_change(steps: Vec<u16>) -> bool {
        let ends = run(&steps);
        ends.iter().all(|end| end.calls.is_empty() && end.to_answer.is_empty())
    }
}

/// A long run of random schedules, with fixed seeds.
#[test]
fn nothing_is_lost_over_long_schedules() {
    let (mut resized, mut calls) = (0, 0);
    for seed in 1..=200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u16
        };
        let steps: Vec<u16> = (0..2000).map(|_| next()).collect();
        let ends = run(&steps);
        for end in &ends {
            assert!(end.calls.is_empty(), "seed {seed}: {:?}", end.calls);
            resized += usize::from(end.longest > 16 << 10);
            calls += end.answered;
        }
    }
    // The schedules must have exercised enough changes and calls.
    assert!(resized > 300 && calls > 40_000, "{resized} {calls}");
}

#[test]
fn both_ends_come_to_the_same_limits() {
    let mut ends = settled_pair();
    ends[0].resize(0, 40 << 10);
    ends[1].resize(1, 60 << 10);
    for _ in 0..60 {
        ends.iter_mut().for_each(End::call);
        while deliver(&mut ends, 0) || deliver(&mut ends, 1) {}
        for end in &mut ends {
            (0..4).for_each(|_| end.answer());
        }
        while deliver(&mut ends, 0) || deliver(&mut ends, 1) {}
    }
    let limits = [0, 1].map(|at: usize| ends[at].extensions.limits());
    assert_eq!(limits[0].inline_receive, limits[1].inline_send);
    assert_eq!(limits[1].inline_receive, limits[0].inline_send);
    // The client was raising its own size, so it could not do what the server asked meanwhile.
    assert_eq!(limits[0].inline_receive, 40 << 10);
}

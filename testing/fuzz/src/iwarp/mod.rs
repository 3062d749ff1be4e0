//! One end of an iwarp stream against a peer that sends what it likes, cut as TCP likes.
//!
//! The peer's frames are nearly right, so that they get far: sequence numbers, offsets and handles
//! are those that fit unless the script says otherwise, CRCs are right unless a bit is flipped.

mod peer;
mod program;
mod script;
mod tcp;

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use iwarp::ddp::{Header, HeaderView, Placement, TAGGED, UNTAGGED};
use iwarp::harness::{Ended, SetUp, Side};
use iwarp::mpa::{CRC_FIELD, LENGTH_FIELD, padding};
use iwarp::rdmap::{Opcode, READ_REQUEST, ReadRequest};
use iwarp::terminate::Terminate;
use rdma::{Buf, Event as DeviceEvent, Region, RemoteSegment, SendWr, Stag, Success, WrId};
use smallvec::SmallVec;

pub use self::script::Script;
use self::script::{Event, Frame, Kind};

/// Bytes around all memory that is handed out; nobody may touch them.
const GUARD: usize = 16;
const GUARD_BYTE: u8 = 0xee;
/// Requests of either kind, and registrations, in one run.
const MOST: usize = 24;

/// Registered memory, as far as the peer knows and wrote it.
struct Registered {
    segment: RemoteSegment,
    writable: bool,
    /// What a readable region holds everywhere.
    fill: u8,
    content: Vec<Option<u8>>,
    reclaimed: bool,
}

/// A Read Request that the peer made.
struct Asked {
    sink: (u32, u64),
    len: usize,
    fill: u8,
    done: usize,
}

struct Run {
    side: Side,
    set_up: SetUp,
    ended: Option<Ended>,
    next: u64,
    /// Requests and receives that have not completed.
    pending: HashSet<u64>,
    guards: Vec<Buf>,
    regions: Vec<Registered>,
    /// Bytes of the peer's that TCP has not handed over; and how many it has.
    inbound: VecDeque<u8>,
    sent: u64,
    arrived: u64,
    /// The peer's numbers.
    msn: [u32; 3],
    message: Vec<u8>,
    /// Messages it completed, in order, that no receive has brought.
    messages: VecDeque<Vec<u8>>,
    /// Its Writes: where in the stream they end, and what they wrote.
    writes: VecDeque<(u64, usize, usize, Vec<u8>)>,
    asked: VecDeque<Asked>,
    /// Reads of ours that the peer knows: sink, length, what it has sent.
    answers: VecDeque<(u32, usize, Vec<u8>)>,
    answered: VecDeque<Vec<u8>>,
    /// Where a flipped bit ends that a CRC must find.
    damage: Option<u64>,
    /// It sent something whose meaning is not modelled.
    wild: bool,
    /// Bytes of ours that are not a whole FPDU yet.
    outbound: Vec<u8>,
    largest_ulpdu: usize,
    /// What we posted to be sent, in order; and the message that is arriving there.
    posted: VecDeque<Vec<u8>>,
    leaving: Vec<u8>,
    terminates: usize,
}

/// Carries a script out and checks what it came to.
pub fn run(script: Script) {
    let max_ulpdu = 128 + 8 * usize::from(script.max_ulpdu);
    let set_up = SetUp {
        crc: script.crc,
        reads: 1 + usize::from(script.reads % 4),
        wait_for_peer: script.wait_for_peer,
        empty_rtr: script.empty_rtr,
        max_ulpdu,
    };
    let side = Side::new(&set_up, 1 << 22);
    let pool = side.pool.clone();
    let mut run = Run {
        side,
        set_up,
        ended: None,
        next: 0,
        pending: HashSet::new(),
        guards: Vec::new(),
        regions: Vec::new(),
        inbound: VecDeque::new(),
        sent: 0,
        arrived: 0,
        msn: [1; 3],
        message: Vec::new(),
        messages: VecDeque::new(),
        writes: VecDeque::new(),
        asked: VecDeque::new(),
        answers: VecDeque::new(),
        answered: VecDeque::new(),
        damage: None,
        wild: false,
        outbound: Vec::new(),
        largest_ulpdu: max_ulpdu,
        posted: VecDeque::new(),
        leaving: Vec::new(),
        terminates: 0,
    };
    for event in script.events {
        if run.ended.is_some() {
            break;
        }
        run.happen(event);
        run.look();
    }
    run.finish();
    drop(run);
    assert_eq!(pool.in_use(), 0, "memory is lost");
}

impl Run {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.pending.insert(self.next);
        self.next
    }

    /// Memory with guards around it.
    fn memory(&mut self, len: usize, fill: u8) -> Buf {
        let mut left = self.side.buf(len + 2 * GUARD, GUARD_BYTE);
        let mut middle = left.split_off(GUARD);
        let right = middle.split_off(len);
        middle.fill(fill);
        self.guards.extend([left, right]);
        middle
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Receive(len) if self.side.receives < MOST => {
                let buf = self.memory(2 * usize::from(len), 0);
                let id = self.id();
                self.side.receive(id, buf).expect("the queue has room");
            }
            Event::Register { writable, len } if self.regions.len() < MOST => {
                self.register(writable, 4 * usize::from(len));
            }
            Event::Send { len, invalidate } => {
                let invalidate = invalidate.map(|_| Stag(7));
                let (bytes, gather) = self.gather(len);
                self.post(SendWr::Send { gather, invalidate }, Some(bytes));
            }
            Event::Write { len } => {
                let (bytes, gather) = self.gather(len);
                let wr = SendWr::Write {
                    gather,
                    stag: Stag(9),
                    offset: 1 << 40,
                };
                self.post(wr, Some(bytes));
            }
            Event::Read { len } if self.pending.len() < MOST => {
                let sink = self.memory(3 * usize::from(len), 0);
                self.post(
                    SendWr::Read {
                        sink,
                        stag: Stag(11),
                        offset: 5,
                    },
                    None,
                );
            }
            Event::Invalidate(which) => {
                let valid = self.pick(which).map(|at| self.regions[at].segment.stag);
                if let Some(stag) = valid {
                    self.post(SendWr::Invalidate { stag }, None);
                }
            }
            Event::Reclaim(which) => {
                if let Some(at) = self.pick(which) {
                    self.reclaim(at);
                }
            }
            Event::Frame(frame) => self.frame(&frame),
            Event::Raw(bytes) => {
                self.wild = true;
                self.inbound.extend(bytes);
                self.sent += bytes.len() as u64;
            }
            Event::Arrive(most) => self.arrive(usize::from(most)),
            Event::Leave(most) => self.leave(usize::from(most)),
            Event::MaxUlpdu(max) => {
                let max = 128 + 8 * usize::from(max);
                self.largest_ulpdu = self.largest_ulpdu.max(max);
                self.side.set_max_ulpdu(max);
            }
            Event::Receive(_) | Event::Register { .. } | Event::Read { .. } => {}
        }
    }
}

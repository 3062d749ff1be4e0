//! Fuzzes one end of an iWARP connection against a peer that sends arbitrary frames, which TCP
//! delivers in arbitrary pieces.
//!
//! The peer's frames are almost valid, so that they are not rejected early: sequence numbers,
//! offsets and handles are valid unless the script changes them, and CRCs are valid unless a bit is
//! flipped.

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

/// The number of guard bytes before and after each buffer, which must never change.
const GUARD: usize = 16;
const GUARD_BYTE: u8 = 0xee;
/// The maximum number of send-queue requests, of receives and of registrations in one run.
const MOST: usize = 24;

/// Registered memory, and the bytes that the peer wrote to it.
struct Registered {
    segment: RemoteSegment,
    writable: bool,
    /// The value of every byte of a readable region.
    fill: u8,
    content: Vec<Option<u8>>,
    reclaimed: bool,
}

/// A Read Request of the peer.
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
    /// The work requests that have not completed.
    pending: HashSet<u64>,
    guards: Vec<Buf>,
    regions: Vec<Registered>,
    /// Bytes from the peer that TCP has not delivered yet. `sent` and `arrived` count the bytes
    /// that the peer sent and that TCP delivered.
    inbound: VecDeque<u8>,
    sent: u64,
    arrived: u64,
    /// The next message sequence number of the peer, by queue.
    msn: [u32; 3],
    message: Vec<u8>,
    /// The peer's complete messages that no receive completion has reported yet, in order.
    messages: VecDeque<Vec<u8>>,
    /// The peer's RDMA Writes: the stream position at which each ends, the region, the offset, and
    /// the data.
    writes: VecDeque<(u64, usize, usize, Vec<u8>)>,
    asked: VecDeque<Asked>,
    /// Our RDMA Reads that the peer has received: sink STag, length, and the data that it has sent
    /// for them.
    answers: VecDeque<(u32, usize, Vec<u8>)>,
    answered: VecDeque<Vec<u8>>,
    /// The stream position at the end of a frame with a flipped bit, which the CRC must detect.
    damage: Option<u64>,
    /// Whether the peer has sent something that the model does not cover.
    wild: bool,
    /// Our outgoing bytes that do not form a whole FPDU yet.
    outbound: Vec<u8>,
    largest_ulpdu: usize,
    /// Our posted Sends, and an empty entry for each RDMA Read, that have not arrived completely,
    /// in order. `leaving` is the part of the first one that has arrived.
    posted: VecDeque<Vec<u8>>,
    leaving: Vec<u8>,
    terminates: usize,
}

/// Executes a script and checks the result.
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

    /// Returns a buffer of `len` bytes between guard bytes.
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

//! A script that is being performed: its connection, and what is known of it.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use super::passed::Passed;
use super::server::{Failed, Server};
use crate::case::{End, Step};
use crate::cases::content;
use crate::characteristics::BothEnds;
use crate::connection_wg::ConnectionWg;
use crate::dialect::Dialect;
use crate::endpoint::{Dial, Endpoint, SetUp, Wanted};
use crate::exchange::Exchange;
use crate::expect::{Expect, Received, success};
use crate::memory::Memory;
use crate::octets::Octets;
use crate::private_data::{receive_size, send_size, settings};
use crate::wire::{rpc, v1, v2, wg};

/// The XID of the call that shows that a connection lives.
pub(super) const LAST: u32 = 0x600d_600d;
/// The longest time of one step, in terms of the wait for one message. Messages that are not for the script, such as
/// RDMA2_GRANT, could come without end.
const STEP: u32 = 8;

/// Something that the script has to look at.
pub(super) enum Event {
    /// A message, and the octets of its last part.
    Message(Received, Vec<u8>),
    /// The end of the connection.
    Ended(String),
    /// Nothing came in time.
    Silence,
}

pub(super) struct Play<'a> {
    pub(super) server: &'a Server,
    pub(super) dialect: Dialect,
    pub(super) peer: Option<Box<dyn Endpoint>>,
    pub(super) memory: Memory,
    /// The longest message that the server receives in version 1, bytes.
    pub(super) receive: usize,
    /// Whether this client said that it supports remote invalidation, in version 1.
    pub(super) invalidates: bool,
    /// The handles in the chunk lists of messages that were sent on this connection.
    pub(super) named: HashSet<u32>,
    /// The handles of rooms that were taken back from the server.
    pub(super) collected: HashSet<u32>,
    /// State of this connection in the working group's version 2.
    pub(super) wg: ConnectionWg,
    /// The characteristics of this connection's ends, in version 2 of 2016.
    pub(super) ends: BothEnds,
    /// Messages that came before the script looked for them, and perhaps the end of the connection: while a message
    /// waited for credits, or before it was sent. Expectations take these first.
    pub(super) waiting: VecDeque<Event>,
    /// Messages that scripts do not look at, unless they name them.
    pub(super) passed: Passed,
    /// The last RPC message with its transport header.
    pub(super) last: Option<v1::Header>,
    pub(super) exchange: Exchange,
}

pub(super) fn deviation(what: impl std::fmt::Display) -> Failed {
    Failed::Deviation(what.to_string())
}

impl<'a> Play<'a> {
    pub(super) fn new(server: &'a Server, dialect: Dialect) -> Self {
        Self {
            server,
            dialect,
            peer: None,
            memory: Memory::default(),
            receive: receive_size(&[]),
            invalidates: false,
            named: HashSet::new(),
            collected: HashSet::new(),
            wg: ConnectionWg::new(),
            ends: BothEnds::default(),
            waiting: VecDeque::new(),
            passed: Passed::default(),
            last: None,
            exchange: Exchange::default(),
        }
    }

    pub(super) fn whole(&mut self, script: &[Step], end: End) -> Result<(), Failed> {
        for step in script {
            self.step(step)?;
        }
        let mut allowed = vec![Expect::Reply(success(LAST, &[]))];
        match end {
            End::Incomplete => return Ok(()),
            End::Lives => {}
            End::LivesOrCloses => allowed.push(Expect::Closed),
        }
        let null = self.null(LAST);
        let ended = self.send(&null).and_then(|()| self.expect(&allowed));
        ended.map_err(|failed| match failed {
            Failed::Deviation(what) => deviation(format!("at the NULL call at the end: {what}")),
            other => other,
        })
    }

    /// Returns a NULL call.
    pub(super) fn null(&self, xid: u32) -> Vec<u8> {
        let call = rpc::null(xid).bytes();
        match self.dialect {
            Dialect::One => v1::header(xid).with(&call),
            Dialect::Two => v2::plain(xid, v2::CALL, &call),
            Dialect::Wg => wg::call(xid, &call),
        }
    }

    /// Begins the time that a step may take.
    pub(super) fn within(&mut self) -> Result<(), Failed> {
        let deadline = Instant::now() + self.server.patience.saturating_mul(STEP);
        self.peer()?.set_deadline(deadline);
        Ok(())
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<(), Failed> {
        match step {
            Step::Connect(private) => self.connect(private)?,
            Step::Offer(segment, content) => self.offer(*segment, content.clone())?,
            Step::OfferAny(segment) => {
                let content = content(segment.handle, segment.length as usize);
                self.offer(*segment, content)?;
            }
            Step::Room(segment) => self.room(*segment)?,
            Step::Unreadable(handle) => self.memory.unreadable(*handle),
            Step::Send(message) => self.send(message)?,
            Step::SendGranting(more, message) => {
                self.within()?;
                self.wait_for_credit(false)?;
                // Messages that the script has not looked at yet do not raise the limit.
                let looked_at = self.wg.received().wrapping_sub(self.waiting.len() as u32);
                let credit = looked_at.wrapping_add_signed(*more);
                self.send(&wg::with_credit(message.clone(), credit))?;
            }
            Step::Flood(count, message) => {
                self.exchange.text(format!("sends {count} times:"));
                self.exchange.message("sent", message);
                for _ in 0..*count {
                    self.peer()?.send(message);
                }
            }
            Step::Expect(allowed) => self.expect(allowed)?,
            Step::Within(time, allowed) => self.expect_within(*time, allowed)?,
            Step::Quiet => self.quiet()?,
            Step::Properties => self.properties()?,
            Step::Characteristics(needed) => self.characteristics(needed)?,
            Step::SendPlaced(message, data) => self.send_placed(message, data)?,
            Step::Perhaps(allowed) => self.perhaps(allowed)?,
            Step::Counted => self.wg.counted().map_err(deviation)?,
            Step::Message(handles, reply) => {
                self.collect_reply(handles)?;
                self.message(handles, reply).map_err(deviation)?;
            }
            Step::Burst(most) => self.burst(*most)?,
            Step::Holds(handle, bytes) => {
                self.collect(*handle, bytes.len())?;
                self.memory.holds(*handle, bytes).map_err(deviation)?;
            }
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, private: &[u8]) -> Result<(), Failed> {
        self.peer = None;
        self.memory = Memory::default();
        self.named.clear();
        self.collected.clear();
        self.wg = ConnectionWg::new();
        self.ends = BothEnds::default();
        self.waiting.clear();
        self.passed.clear();
        let wanted = Wanted {
            address: self.server.address,
            private,
            patience: self.server.patience,
            watcher: self.server.watcher.as_ref(),
        };
        let opened = match &self.server.dial {
            Some(dial) => dial.connect(&wanted),
            None => Octets.connect(&wanted),
        };
        let (peer, answer) = opened.map_err(|error| match error {
            SetUp::Unreachable(why) => Failed::Unreachable(why),
            SetUp::NotApplicable(why) => Failed::NotApplicable(why),
        })?;
        let invalidates = settings(private).is_some_and(|[flags, ..]| flags & 1 != 0);
        self.invalidates = invalidates && peer.is_invalidated_by_peers();
        // The threshold of a direction is the smaller of the sender's and the receiver's (RFC 8797, 4.2).
        self.receive = receive_size(&answer).min(send_size(private));
        self.peer = Some(peer);
        Ok(())
    }

    pub(super) fn peer(&mut self) -> Result<&mut dyn Endpoint, Failed> {
        match &mut self.peer {
            Some(peer) => Ok(&mut **peer),
            None => Err(Failed::NotApplicable(
                "the script makes no connection".into(),
            )),
        }
    }
}

//! Performance of one case on connections of its own.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::case::{Case, End, Step, opening};
use crate::connection_wg::ConnectionWg;
use crate::dialect::Dialect;
use crate::exchange::Exchange;
use crate::expect::{Expect, Received, Reply, success};
use crate::memory::Memory;
use crate::peer::{Heard, Peer};
use crate::private_data::{receive_size, send_size, settings};
use crate::stream::{Gone, Meanwhile, Stream};
use crate::watch::Watcher;
use crate::wire::mpa::{self, Frame};
use crate::wire::{rpc, v1, v2, wg};

/// The XID of the call that shows that a connection lives.
const LAST: u32 = 0x600d_600d;
/// The XID of the first call of a burst.
const FIRST_OF_BURST: u32 = 0x600e_0000;
/// Time for which the server must stay silent.
const QUIET: Duration = Duration::from_millis(300);
/// The longest time of one step, in terms of the wait for one message. Messages that are not for the script, such as
/// RDMA2_GRANT, could come without end.
const STEP: u32 = 8;
/// The most messages that are kept while a message waits for credits. No case has more calls without a reply.
const MOST_WAITING: usize = 256;
/// The most messages that are kept of those that scripts do not look at, unless they name them.
const MOST_PASSED: usize = 64;

/// The server under test.
#[derive(Clone, Debug)]
pub struct Server {
    /// The only address that is connected to.
    pub address: SocketAddr,
    /// The longest wait for each message.
    pub patience: Duration,
    /// The observer of all connections.
    pub watcher: Option<Watcher>,
}

/// The reason why a case was not passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The server deviates from the expectation.
    #[error("{0}")]
    Deviation(String),
    /// The server cannot be tested by this case.
    #[error("{0}")]
    NotApplicable(String),
    /// No connection was established.
    #[error("{0}")]
    Unreachable(String),
}

/// A case as it was performed: its result, and the messages for whoever wants to know why.
#[derive(Clone, Debug)]
pub struct Performed {
    /// The result.
    pub result: Result<(), Failed>,
    /// The messages, in order, with the first of their octets.
    pub exchange: Vec<String>,
}

/// Performs a case.
#[must_use]
pub fn perform(case: &Case, server: &Server) -> Performed {
    let mut play = Play::new(server, case.dialect);
    let result = play.whole(&case.script, case.end);
    let exchange = play.exchange.lines();
    Performed { result, exchange }
}

/// Returns whether the server accepts a connection of this version and answers a NULL call.
///
/// # Errors
/// The server does otherwise, or is not there.
pub fn alive(server: &Server, dialect: Dialect) -> Result<(), Failed> {
    Play::new(server, dialect).whole(&opening(dialect), End::Lives)
}

/// Returns whether the server speaks this version, whether it keeps its rules or not.
///
/// # Errors
/// [`Failed::NotApplicable`]: the server says that it does not speak it. [`Failed::Deviation`]: it says nothing that
/// tells. [`Failed::Unreachable`]: there is no connection.
pub fn speaks(server: &Server, dialect: Dialect) -> Result<(), Failed> {
    let null = Play::new(server, dialect).null(LAST);
    // An end that knows the header types of version 2 of 2016 alone refuses both alike.
    let both = [wg::introduction(&wg::plain_properties()), null];
    let firsts = match dialect {
        Dialect::One | Dialect::Two => &both[1..],
        Dialect::Wg => &both[..],
    };
    let mut refused = None;
    for first in firsts {
        match answer_to(server, dialect, first)? {
            None => return Ok(()),
            Some(why) => refused = Some(why),
        }
    }
    refused.map_or(Ok(()), |why| {
        let text = format!("{dialect} is not spoken: {why}");
        Err(Failed::NotApplicable(text))
    })
}

/// Sends a first message. Returns what says that this version is not spoken, if anything does.
fn answer_to(server: &Server, dialect: Dialect, first: &[u8]) -> Result<Option<String>, Failed> {
    let mut play = Play::new(server, dialect);
    play.connect(&mpa::PRIVATE_DATA)?;
    play.send(first)?;
    play.within()?;
    match play.hear(&mut || true) {
        Ok(Some(Event::Message(received @ Received::Other(_), _))) => {
            let what = received.brief(dialect);
            match received.refuses(dialect) {
                true => Ok(Some(what)),
                false => Err(deviation(what)),
            }
        }
        // The first message may be lost or dropped (version-two-07, 4.3.2), by ends of version-two-07 that read one of
        // 2016, too.
        Ok(Some(Event::Ended(what))) if dialect != Dialect::One => Ok(Some(what)),
        Ok(Some(Event::Ended(what))) => Err(deviation(what)),
        Ok(Some(Event::Silence)) => Err(deviation(Gone::Late)),
        // A message of this version, or one that breaks a rule of it.
        Ok(Some(Event::Message(Received::Rpc(..), _)) | None) | Err(Failed::Deviation(_)) => {
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// Something that the script has to look at.
enum Event {
    /// A message, and the octets of its last part.
    Message(Received, Vec<u8>),
    /// The end of the connection.
    Ended(String),
    /// Nothing came in time.
    Silence,
}

struct Play<'a> {
    server: &'a Server,
    dialect: Dialect,
    peer: Option<Peer>,
    memory: Memory,
    /// The longest message that the server receives in version 1, bytes.
    receive: usize,
    /// Whether this client said that it supports remote invalidation, in version 1.
    invalidates: bool,
    /// The handles in the chunk lists of messages that were sent on this connection.
    named: HashSet<u32>,
    /// State of this connection in the working group's version 2.
    wg: ConnectionWg,
    /// Messages that came while another waited for credits.
    waiting: VecDeque<Event>,
    /// Messages that scripts do not look at, such as grants and parts of others, unless they name them.
    passed: VecDeque<Vec<u8>>,
    /// The last RPC message with its transport header.
    last: Option<v1::Header>,
    exchange: Exchange,
}

fn deviation(what: impl std::fmt::Display) -> Failed {
    Failed::Deviation(what.to_string())
}

impl<'a> Play<'a> {
    fn new(server: &'a Server, dialect: Dialect) -> Self {
        Self {
            server,
            dialect,
            peer: None,
            memory: Memory::default(),
            receive: receive_size(&[]),
            invalidates: false,
            named: HashSet::new(),
            wg: ConnectionWg::new(),
            waiting: VecDeque::new(),
            passed: VecDeque::new(),
            last: None,
            exchange: Exchange::default(),
        }
    }

    fn whole(&mut self, script: &[Step], end: End) -> Result<(), Failed> {
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
    fn null(&self, xid: u32) -> Vec<u8> {
        let call = rpc::null(xid).bytes();
        match self.dialect {
            Dialect::One => v1::header(xid).with(&call),
            Dialect::Two => v2::plain(xid, v2::CALL, &call),
            Dialect::Wg => wg::call(xid, &call),
        }
    }

    /// Begins the time that a step may take.
    fn within(&mut self) -> Result<(), Failed> {
        let deadline = Instant::now() + self.server.patience.saturating_mul(STEP);
        self.peer()?.stream.set_deadline(deadline);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Failed> {
        match step {
            Step::Connect(private) => self.connect(private)?,
            Step::Offer(segment, content) => self.memory.offer(*segment, content.clone()),
            Step::Room(segment) => self.memory.room(*segment),
            Step::Send(message) => self.send(message)?,
            Step::SendGranting(more, message) => {
                self.wait_for_credit()?;
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
            Step::Counted => self.wg.counted().map_err(deviation)?,
            Step::Message(handles, reply) => self.message(handles, reply).map_err(deviation)?,
            Step::Burst(most) => self.burst(*most)?,
            Step::Holds(handle, bytes) => self.memory.holds(*handle, bytes).map_err(deviation)?,
        }
        Ok(())
    }

    fn connect(&mut self, private: &[u8]) -> Result<(), Failed> {
        self.peer = None;
        self.memory = Memory::default();
        self.named.clear();
        self.wg = ConnectionWg::new();
        self.waiting.clear();
        self.passed.clear();
        let unreachable = |what: &dyn std::fmt::Display| Failed::Unreachable(what.to_string());
        let stream = Stream::connect_within(self.server.address, self.server.patience);
        let mut stream = stream.map_err(|error| unreachable(&error))?;
        if let Some(watcher) = &self.server.watcher {
            let watched = stream.watch(watcher);
            watched.map_err(|error| unreachable(&error))?;
        }
        let mut peer = Peer::new(stream);
        self.invalidates = settings(private).is_some_and(|[flags, ..]| flags & 1 != 0);
        let request = Frame {
            private: private.to_vec(),
            ..Frame::request()
        };
        peer.stream.write(&request.bytes());
        let frame = peer.hear_frame(mpa::REPLY_KEY, &mut || true);
        let frame = frame.map_err(|gone| unreachable(&format_args!("MPA set-up: {gone}")))?;
        if frame.flags & mpa::REJECT != 0 {
            return Err(Failed::Unreachable(
                "MPA set-up: the connection is rejected".into(),
            ));
        }
        if frame.flags & mpa::MARKERS != 0 {
            let text = "the server requires MPA markers, which this command does not send";
            return Err(Failed::NotApplicable(text.into()));
        }
        peer.set_crc(frame.flags & mpa::CRC != 0);
        // The threshold of a direction is the smaller of the sender's and the receiver's (RFC 8797, 4.2).
        self.receive = receive_size(&frame.private).min(send_size(private));
        self.peer = Some(peer);
        Ok(())
    }

    fn peer(&mut self) -> Result<&mut Peer, Failed> {
        let none = || Failed::NotApplicable("the script makes no connection".into());
        self.peer.as_mut().ok_or_else(none)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Failed> {
        if self.dialect == Dialect::Wg && !self.is_credit_update(message)? {
            self.wait_for_credit()?;
        }
        let (longest, section) = match self.dialect {
            Dialect::One => (self.receive, "RFC 8797"),
            Dialect::Two => (v2::INLINE, "version-two-01, 2.3"),
            Dialect::Wg => (self.wg.longest(), "version-two-07, 5.2.2"),
        };
        if message.len() > longest {
            return Err(Failed::NotApplicable(format!(
                "the server receives messages of at most {longest} bytes ({section}), and this one has {}",
                message.len()
            )));
        }
        self.exchange.message("sent", message);
        if let Some(v1::Message::Rpc(header, _)) = v1::parse(message) {
            let reads = header.reads.iter().map(|(_, segment)| segment);
            let writes = header.writes.iter().chain(&header.reply).flatten();
            self.named
                .extend(reads.chain(writes).map(|segment| segment.handle));
        }
        self.wg.sends(message);
        self.peer()?.send(message);
        Ok(())
    }

    /// Returns whether this is RDMA2_GRANT and the first message without a credit: the server must have room for one
    /// (version-two-07, section 4.2.1.1).
    fn is_credit_update(&mut self, message: &[u8]) -> Result<bool, Failed> {
        let sent = self.peer()?.next_msn().wrapping_sub(1);
        Ok(wg::htype(message) == Some(wg::GRANT) && self.wg.limit() == sent)
    }

    /// Waits until the server can receive another message (version-two-07, section 4.2.1). Where the connection
    /// has ended, that is for the next expectation to see.
    fn wait_for_credit(&mut self) -> Result<(), Failed> {
        self.within()?;
        loop {
            let sent = self.peer()?.next_msn().wrapping_sub(1);
            let has_ended = matches!(self.waiting.back(), Some(Event::Ended(_)));
            if self.wg.credits(sent) > 0 || has_ended {
                return Ok(());
            }
            match self.hear(&mut || true)? {
                None => {}
                Some(Event::Silence) => {
                    let limit = self.wg.limit();
                    return Err(deviation(format!(
                        "no credit for another message came in time: the limit is {limit}, and {sent} were sent (version-two-07, 4.2.1.1)"
                    )));
                }
                Some(event) => self.keep(event)?,
            }
        }
    }

    /// Keeps something for the next expectation.
    fn keep(&mut self, event: Event) -> Result<(), Failed> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(deviation(format!(
                "more than {MOST_WAITING} messages that nothing asked for"
            )));
        }
        self.waiting.push_back(event);
        Ok(())
    }

    /// Waits like [`Play::expect`], but no longer than this time.
    fn expect_within(&mut self, time: Duration, allowed: &[Expect]) -> Result<(), Failed> {
        let patience = self.server.patience;
        self.peer()?.stream.set_patience(time);
        self.peer()?.stream.set_deadline(Instant::now() + time);
        let result = self.expect_before(allowed);
        self.peer()?.stream.set_patience(patience);
        result.map_err(|failed| match failed {
            Failed::Deviation(what) => deviation(format!("within {time:?}: {what}")),
            other => other,
        })
    }

    fn expect(&mut self, allowed: &[Expect]) -> Result<(), Failed> {
        self.within()?;
        self.expect_before(allowed)
    }

    /// Returns a message that scripts do not look at, if one of these names it.
    fn named(&mut self, allowed: &[Expect]) -> Option<Event> {
        let is_named = |message: &Vec<u8>| {
            allowed.iter().any(|expected| match expected {
                Expect::Fields(pattern) => pattern.is_of(message),
                _ => false,
            })
        };
        let at = self.passed.iter().position(is_named)?;
        let message = self.passed.remove(at)?;
        Some(Event::Message(Received::Other(message.clone()), message))
    }

    /// Receives the next message, answers Read Requests before it, and compares it.
    fn expect_before(&mut self, allowed: &[Expect]) -> Result<(), Failed> {
        let event = loop {
            if let Some(event) = self.named(allowed) {
                break event;
            }
            if let Some(event) = self.waiting.pop_front() {
                break event;
            }
            if let Some(event) = self.hear(&mut || true)? {
                break event;
            }
        };
        let (received, message) = match event {
            Event::Message(received, message) => (received, message),
            Event::Silence => return Err(deviation(Gone::Late)),
            Event::Ended(_) if allowed.contains(&Expect::Closed) => return Ok(()),
            Event::Ended(what) => return Err(deviation(what)),
        };
        if let Received::Rpc(header, _) = &received {
            self.last = Some(header.clone());
        }
        let mut first = None;
        for expected in allowed {
            match expected.check(&received, &message, self.dialect) {
                Ok(()) => return Ok(()),
                Err(what) => first = first.or(Some(what)),
            }
        }
        first.map_or(Ok(()), |what| Err(deviation(format!("received {what}"))))
    }

    /// Takes the next thing that comes. Returns `None` if it is nothing that the script has to look at.
    fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Option<Event>, Failed> {
        let heard = self.peer()?.hear(meanwhile);
        for placed in std::mem::take(&mut self.peer()?.placed) {
            self.exchange.text(format!(
                "RDMA Write: {} bytes to {:#x}",
                placed.bytes.len(),
                placed.stag
            ));
            self.memory.write(&placed).map_err(deviation)?;
        }
        match heard {
            Ok(Heard::Read(request)) => {
                self.exchange.text(format!(
                    "RDMA Read: {} bytes of {:#x}",
                    request.length, request.source
                ));
                let bytes = self.memory.read(&request).map_err(deviation)?.to_vec();
                self.peer()?.respond(&request, &bytes);
                Ok(None)
            }
            Ok(Heard::Message { bytes, invalidate }) => {
                self.exchange.message("received", &bytes);
                if let Some(handle) = invalidate {
                    self.exchange.text(format!("which invalidates {handle:#x}"));
                }
                match self.dialect {
                    Dialect::One => {
                        self.invalidated(invalidate)?;
                        Ok(Some(Event::Message(Received::of_first(&bytes), bytes)))
                    }
                    Dialect::Two => {
                        if invalidate.is_some() {
                            let text = "a Send With Invalidate, which this client has not asked for (xcharext-02, 3.2)";
                            return Err(deviation(text));
                        }
                        let taken = Received::of_second(&bytes);
                        Ok(self.taken(taken, bytes))
                    }
                    Dialect::Wg => {
                        let taken = self.wg.take(&bytes, invalidate).map_err(deviation)?;
                        Ok(self.taken(taken, bytes))
                    }
                }
            }
            Ok(Heard::Response { .. }) => Err(deviation("an RDMA Read Response to no request")),
            Ok(Heard::Terminate(code)) => {
                let text = format!("the connection is terminated: {code:x?}");
                self.exchange.text(text.clone());
                Ok(Some(Event::Ended(text)))
            }
            Err(gone @ (Gone::Closed | Gone::Reset | Gone::CutShort)) => {
                let text = format!("the connection ended: {gone}");
                self.exchange.text(text.clone());
                Ok(Some(Event::Ended(text)))
            }
            Err(Gone::Late) => Ok(Some(Event::Silence)),
            Err(Gone::Nonsense(what)) => Err(deviation(what)),
        }
    }

    /// Returns a message for the script, or keeps it for a script that names it.
    fn taken(&mut self, taken: Option<Received>, bytes: Vec<u8>) -> Option<Event> {
        if let Some(received) = taken {
            return Some(Event::Message(received, bytes));
        }
        if self.passed.len() >= MOST_PASSED {
            self.passed.pop_front();
        }
        self.passed.push_back(bytes);
        None
    }

    /// Checks that nothing comes for a moment but credits and properties.
    fn quiet(&mut self) -> Result<(), Failed> {
        self.within()?;
        let start = Instant::now();
        let mut event = self.waiting.pop_front();
        while event.is_none() && start.elapsed() < QUIET {
            event = self.hear(&mut || start.elapsed() < QUIET)?;
        }
        match event {
            None | Some(Event::Silence) => Ok(()),
            Some(Event::Ended(what)) => Err(deviation(what)),
            Some(Event::Message(received, _)) => Err(deviation(format!(
                "{} came before it may be sent",
                received.brief(self.dialect)
            ))),
        }
    }

    /// Waits for the last of the server's properties.
    fn properties(&mut self) -> Result<(), Failed> {
        self.within()?;
        while !self.wg.has_properties() {
            match self.hear(&mut || true)? {
                None => {}
                Some(Event::Silence) => {
                    return Err(deviation("RDMA2_CONNPROP_FINAL did not come in time"));
                }
                Some(Event::Ended(what)) => return Err(deviation(what)),
                Some(event) => self.keep(event)?,
            }
        }
        Ok(())
    }

    /// Compares a message that was written into rooms, and the lengths that its Reply chunk returns.
    fn message(&self, handles: &[u32], reply: &Reply) -> Result<(), String> {
        let returned = self.last.as_ref().and_then(|it| it.reply.as_ref());
        let returned = returned.ok_or("the reply returns no Reply chunk")?;
        let mut whole = Vec::new();
        if returned.len() != handles.len() {
            return Err(format!(
                "{} segments are returned of {}",
                returned.len(),
                handles.len()
            ));
        }
        for (handle, segment) in handles.iter().zip(returned) {
            let written = self.memory.written(*handle);
            if (segment.handle, segment.length as usize) != (*handle, written.len()) {
                return Err(format!(
                    "{} bytes at handle {:#x} are returned, and {} were written to {handle:#x}",
                    segment.length,
                    segment.handle,
                    written.len()
                ));
            }
            whole.extend(written);
        }
        reply.check_payload(&whole)
    }

    /// Makes as many calls at once as were granted, and receives their replies.
    fn burst(&mut self, most: u32) -> Result<(), Failed> {
        if self.dialect == Dialect::Wg {
            // The credits that the last message left may not be known yet.
            self.wait_for_credit()?;
        }
        let sent = self.peer()?.next_msn().wrapping_sub(1);
        let granted = match self.dialect {
            Dialect::One | Dialect::Two => self.last.as_ref().map_or(1, |it| it.credits),
            Dialect::Wg => self.wg.credits(sent),
        };
        let mut waiting: Vec<u32> = (0..granted.min(most)).map(|n| FIRST_OF_BURST + n).collect();
        for xid in &waiting {
            self.send(&self.null(*xid))?;
        }
        while !waiting.is_empty() {
            let allowed = waiting.iter().map(|xid| Expect::Reply(success(*xid, &[])));
            self.expect(&allowed.collect::<Vec<_>>())?;
            let answered = self.last.as_ref().map(|it| it.xid);
            waiting.retain(|xid| Some(*xid) != answered);
        }
        Ok(())
    }

    /// Checks the handle that a message invalidates (RFC 8797, section 4.1).
    fn invalidated(&mut self, handle: Option<u32>) -> Result<(), Failed> {
        let Some(handle) = handle else {
            return Ok(());
        };
        if !self.invalidates {
            let text = "a Send With Invalidate, which this client does not support (RFC 8797, 4.1)";
            return Err(deviation(text));
        }
        match self.named.contains(&handle) {
            true => Ok(()),
            false => Err(deviation(format!(
                "handle {handle:#x} is invalidated, which was not offered (RFC 8797, 4.1)"
            ))),
        }
    }
}

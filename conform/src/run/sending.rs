//! Messages of the scripted client, and the credits for them.

use super::play::{Event, Play, deviation};
use super::server::Failed;
use crate::connection_wg::invalidation;
use crate::dialect::Dialect;
use crate::expect::{Expect, success};
use crate::wire::{v1, wg};

/// The XID of the first call of a burst.
const FIRST_OF_BURST: u32 = 0x600e_0000;
/// The most messages that are kept for later expectations. No case has more calls without a reply.
const MOST_WAITING: usize = 256;

impl Play<'_> {
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), Failed> {
        self.within()?;
        // Messages that come meanwhile can take the credit back (version-two-07, section 4.2.1).
        let mut was_taken_back = false;
        loop {
            if self.needs_credit(message)? {
                self.wait_for_credit(was_taken_back)?;
            }
            self.take_earlier()?;
            if !self.needs_credit(message)? || self.may_send()? {
                break;
            }
            was_taken_back = true;
        }
        let (longest, section) = match self.dialect {
            Dialect::One => (self.receive, "RFC 8797"),
            Dialect::Two => (
                self.ends.server.receive,
                "version-two-01, 2.3; xcharext-02, 3.1",
            ),
            Dialect::Wg => (self.wg.longest(), "version-two-07, 5.2.2"),
        };
        if message.len() > longest {
            return Err(Failed::NotApplicable(format!(
                "the server receives messages of at most {longest} bytes ({section}), and this one has {}",
                message.len()
            )));
        }
        let invalidates = self.dialect == Dialect::Wg && invalidation(message).is_some();
        if invalidates && !self.peer()?.is_invalidated_by_peers() {
            let text =
                "the device of this end does not let Sends of the server invalidate its memory";
            return Err(Failed::NotApplicable(text.into()));
        }
        self.exchange.message("sent", message);
        if let Some(v1::Message::Rpc(header, _)) = v1::parse(message) {
            let reads = header.reads.iter().map(|(_, segment)| segment);
            let writes = header.writes.iter().chain(&header.reply).flatten();
            self.named
                .extend(reads.chain(writes).map(|segment| segment.handle));
        }
        self.wg.sends(message);
        if self.dialect == Dialect::Two {
            self.ends.sends(message);
        }
        self.peer()?.send(message);
        Ok(())
    }

    /// Returns whether a message needs a credit. In version-two-07, every message does but RDMA2_GRANT where that is
    /// the first one without a credit: the server must have room for one (section 4.2.1.1).
    fn needs_credit(&mut self, message: &[u8]) -> Result<bool, Failed> {
        let sent = self.peer()?.sent();
        let is_update = wg::htype(message) == Some(wg::GRANT) && self.wg.limit() == sent;
        Ok(self.dialect == Dialect::Wg && !is_update)
    }

    /// Waits within the time of this step until the server can receive another message (version-two-07, section
    /// 4.2.1). Where the connection has ended, that is for the next expectation to see. A server may take back credits,
    /// so that it cannot be tested if it had given one in this step.
    pub(super) fn wait_for_credit(&mut self, was_taken_back: bool) -> Result<(), Failed> {
        while !self.may_send()? {
            match self.hear(&mut || true)? {
                None => {}
                Some(Event::Silence) => {
                    let limit = self.wg.limit();
                    let sent = self.peer()?.sent();
                    if was_taken_back {
                        return Err(Failed::NotApplicable(format!(
                            "the server takes back each credit before a message can use it: the limit is {limit}, and {sent} were sent (version-two-07, 4.2.1)"
                        )));
                    }
                    return Err(deviation(format!(
                        "no credit for another message came in time: the limit is {limit}, and {sent} were sent (version-two-07, 4.2.1.1)"
                    )));
                }
                Some(event) => self.keep(event)?,
            }
        }
        Ok(())
    }

    /// Returns whether there is a credit for another message, or the connection has ended.
    fn may_send(&mut self) -> Result<bool, Failed> {
        let sent = self.peer()?.sent();
        let has_ended = matches!(self.waiting.back(), Some(Event::Ended(_)));
        Ok(self.wg.credits(sent) > 0 || has_ended)
    }

    /// Takes what has come before the next message is sent, as it is no answer to that.
    fn take_earlier(&mut self) -> Result<(), Failed> {
        // In version 1, scripts look at every message.
        if self.dialect == Dialect::One {
            return Ok(());
        }
        for _ in 0..MOST_WAITING {
            if !self.peer()?.has_arrived() {
                break;
            }
            match self.hear(&mut || true)? {
                None => {}
                Some(Event::Silence) => break,
                Some(event) => {
                    let has_ended = matches!(event, Event::Ended(_));
                    self.keep(event)?;
                    if has_ended {
                        break;
                    }
                }
            }
        }
        self.passed.sent();
        Ok(())
    }

    /// Keeps something for the next expectation.
    pub(super) fn keep(&mut self, event: Event) -> Result<(), Failed> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(deviation(format!(
                "more than {MOST_WAITING} messages that nothing asked for"
            )));
        }
        self.waiting.push_back(event);
        Ok(())
    }

    /// Makes as many calls at once as were granted, and receives their replies.
    pub(super) fn burst(&mut self, most: u32) -> Result<(), Failed> {
        if self.dialect == Dialect::Wg {
            // The credits that the last message left may not be known yet.
            self.within()?;
            self.wait_for_credit(false)?;
        }
        let sent = self.peer()?.sent();
        let granted = match self.dialect {
            Dialect::One | Dialect::Two => self.last.as_ref().map_or(1, |it| it.credits),
            // Where the connection has ended, there is no credit, and the first call shows the end.
            Dialect::Wg => self.wg.credits(sent).max(1),
        };
        if granted == 0 {
            let text = "no credit for another call is granted (RFC 8166, 3.3.1)";
            return Err(deviation(text));
        }
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
}

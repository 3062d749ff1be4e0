//! Messages of the server, in the version of the connection.

use std::time::{Duration, Instant};

use super::case::Act;
use super::connection::{Connection, Event, Over};
use super::placed::announcements;
use super::stage::Report;
use crate::dialect::Dialect;
use crate::wire::v2;
use crate::wire::wg::{
    self, CONNPROP_MIDDLE, INTRODUCTION, introduction, parse_properties, plain_properties,
};
use crate::wire::{Xdr, ddp, v1};

/// The credits that are advertised without another act, in version-two-07.
const ADVERTISED: u32 = 16;
/// Time before the first answer on a connection: a second message that comes meanwhile did not wait for it.
const FIRST: Duration = Duration::from_millis(60);
/// Time without credits before RDMA2_GRANT.
const STARVED: Duration = Duration::from_millis(15);

impl Connection<'_> {
    /// Sends the answer to a call. It is given in the form of version 1 for version-two-01.
    pub(super) fn send(&mut self, opcode: u8, word: u32, message: &[u8]) -> Result<(), Over> {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.post(opcode, word, message)
    }

    /// Sends a message. It is given in the form of version 1 for version-two-01. In version-two-07, this end waits until
    /// the client has receives for it.
    pub(super) fn post(&mut self, opcode: u8, word: u32, message: &[u8]) -> Result<(), Over> {
        let message = match self.stage.dialect {
            Dialect::One => message.to_vec(),
            Dialect::Two => v2::from_first(message, v2::REPLY),
            Dialect::Wg => {
                self.await_credit(message)?;
                self.wg.stamped(message, self.advertised())
            }
        };
        let mut shared = self.stage.shared();
        shared.exchange.message("sent", &message);
        if opcode == ddp::SEND_INVALIDATE {
            shared.exchange.text(format!("which invalidates {word:#x}"));
        }
        drop(shared);
        match opcode {
            ddp::SEND_INVALIDATE => self.peer.send_invalidating(word, &message),
            _ => self.peer.send(&message),
        }
        Ok(())
    }

    /// Returns the answer to a call that this server cannot use.
    pub(super) fn refusal(&self, xid: u32) -> Vec<u8> {
        match self.stage.dialect {
            Dialect::One | Dialect::Two => v1::error(xid, 1, &[v1::ERR_CHUNK]),
            Dialect::Wg => wg::error(xid, &[wg::ERR_BAD_XDR]),
        }
    }

    /// Returns the number of messages that the client may send when it has received the next one.
    fn advertised(&self) -> u32 {
        match self.stage.act {
            Act::Grant(credits) => credits,
            Act::Starve => 0,
            _ => ADVERTISED,
        }
    }

    fn await_credit(&mut self, message: &[u8]) -> Result<(), Over> {
        let until = Instant::now() + self.stage.patience;
        while !self.wg.is_open(message) {
            if let Event::Nothing = self.next(Some(until))? {
                self.note("the client gives no credits for what this server sends".into());
                return Err(Over);
            }
        }
        Ok(())
    }

    /// Sends what is to be sent before this end waits: the answer to the first message, errors, credits.
    pub(super) fn settle(&mut self) -> Result<(), Over> {
        if self.stage.dialect != Dialect::Wg {
            return Ok(());
        }
        if std::mem::take(&mut self.owes_first) {
            self.answer_first()?;
        }
        while let Some(error) = self.owed.pop_front() {
            self.post(ddp::SEND, 0, &error)?;
        }
        if !self.waiting.is_empty() || !self.wg.needs_credit(self.advertised()) {
            return Ok(());
        }
        if self.stage.act == Act::Starve {
            self.await_calls(Instant::now() + STARVED, 1)?;
            self.stage.shared().acted = true;
            if !self.waiting.is_empty() {
                return Ok(());
            }
        }
        self.grant()
    }

    /// Sends RDMA2_GRANT, for one message at least.
    pub(super) fn grant(&mut self) -> Result<(), Over> {
        let message = wg::grant(0);
        self.await_credit(&message)?;
        let message = self.wg.stamped(&message, self.advertised().max(1));
        self.say(&message);
        Ok(())
    }

    /// Answers the first message of the client, in most cases with the properties of this end.
    fn answer_first(&mut self) -> Result<(), Over> {
        let act = self.stage.act;
        if act == Act::Honest && !self.wg.has_sent() {
            self.await_calls(Instant::now() + FIRST, usize::MAX)?;
        }
        match act {
            Act::AnnounceNothing => {
                self.stage.shared().acted = true;
                self.grant()
            }
            Act::RefuseVersion => {
                self.stage.shared().acted = true;
                let xid = self.first_xid.unwrap_or_default();
                self.waiting.clear();
                self.wg.has_refused = true;
                self.post(ddp::SEND, 0, &wg::error(xid, &[wg::ERR_VERS, 1, 1]))
            }
            Act::AnnounceBad(words, codes) => {
                let mut shared = self.stage.shared();
                shared.acted = true;
                shared.report = Some(Report {
                    xid: INTRODUCTION,
                    codes,
                    text: None,
                    came: false,
                });
                drop(shared);
                self.post(ddp::SEND, 0, &introduction(words))
            }
            Act::Announce(words) => {
                self.stage.shared().acted = true;
                self.announce(&introduction(words))
            }
            Act::AnnounceInParts => {
                self.stage.shared().acted = true;
                let [middle, last] = in_parts();
                self.announce(&middle)?;
                self.announce(&last)
            }
            Act::Place(placing) => {
                self.stage.shared().acted |= placing.is_of_announcement();
                for message in announcements(placing) {
                    self.announce(&message)?;
                }
                Ok(())
            }
            _ => self.announce(&introduction(&plain_properties())),
        }
    }

    /// Sends properties of this end, which hold from then on.
    fn announce(&mut self, message: &[u8]) -> Result<(), Over> {
        self.wg.announce(message);
        self.post(ddp::SEND, 0, message)
    }
}

/// Returns the usual properties in two messages, the last property alone in the second.
fn in_parts() -> [Vec<u8>; 2] {
    let whole = introduction(&plain_properties());
    let mut properties = parse_properties(&whole).unwrap_or_default();
    let last = properties.split_off(properties.len().saturating_sub(1));
    let encoded = |htype, properties: Vec<(u32, Vec<u8>)>| {
        let count = Xdr::new().word(properties.len() as u32);
        let all = properties
            .iter()
            .fold(count, |out, (which, value)| out.word(*which).opaque(value));
        wg::message(INTRODUCTION, htype, &[], &all.done())
    };
    [
        encoded(CONNPROP_MIDDLE, properties),
        encoded(wg::CONNPROP_FINAL, last),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_in_two_messages_are_all_of_them() {
        let parts = in_parts();
        let types = parts.each_ref().map(|it| wg::htype(it));
        assert_eq!(types, [CONNPROP_MIDDLE, wg::CONNPROP_FINAL].map(Some));
        let all: Vec<_> = parts
            .iter()
            .flat_map(|it| parse_properties(it).unwrap())
            .collect();
        assert_eq!(
            all,
            parse_properties(&introduction(&plain_properties())).unwrap()
        );
    }
}

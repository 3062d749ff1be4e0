//! Serving with placement (send-placement-00): replies with placed data, wrong ones, and placed calls that are refused.

use super::call::{Call, READ};
use super::case::{Act, Operation, Placing};
use super::connection::{Connection, Over};
use super::nfs::Results;
use super::placed::{placed_messages, stray};
use super::rules::Rule;
use crate::wire::{ddp, rpc, wg};

impl Connection<'_> {
    /// Returns how this server places data, if it does.
    fn placing(&self) -> Option<Placing> {
        match self.stage.act {
            Act::Place(placing) => Some(placing),
            _ => None,
        }
    }

    /// Returns the messages of a reply with placed data, if the client wants it placed (send-placement-00, 6.2) and can
    /// receive all of them: a reply MUST NOT wait for credits of a placed sequence (5.4). `count` is the number of wrong
    /// replies before it, if it is to be a wrong one.
    fn placed(&self, call: &Call, results: &Results, count: Option<usize>) -> Option<Vec<Vec<u8>>> {
        let placing = self.placing()?;
        let data = results.data.as_ref().filter(|_| call.is(READ))?;
        // With a Write chunk, nothing is placed.
        if !call.header.writes.is_empty() || placing == Placing::Inline {
            return None;
        }
        let targets = self.wg.reply_targets(data.len());
        let payload = rpc::accepted(call.xid(), results.accepted, &results.head);
        let (placing, count) = match (placing, count) {
            (Placing::Field(_), None) => (Placing::Plain, 0),
            (Placing::SequenceField(_), None) => (Placing::Parts, 0),
            (placing, count) => (placing, count.unwrap_or(0)),
        };
        let messages = placed_messages(placing, call.xid(), (&payload, data), &targets, count)?;
        let grants = match placing {
            Placing::Granting => messages.len().saturating_sub(1),
            _ => 0,
        };
        let needed = messages.len().saturating_add(grants);
        self.wg.is_open_for(needed).then_some(messages)
    }

    /// Returns the messages of the reply to a call whose data is placed, if it is.
    pub(super) fn placed_reply(&self, call: &Call, results: &Results) -> Option<Vec<Vec<u8>>> {
        self.placed(call, results, None)
    }

    /// Notes that this server has done what its act says, if it has with this reply.
    pub(super) fn note_placing(&self, call: &Call, results: &Results) {
        let Some(placing) = self.placing() else {
            return;
        };
        let is_left_inline = placing == Placing::Inline
            && call.is(READ)
            && call.header.writes.is_empty()
            && !self
                .wg
                .reply_targets(results.data.as_ref().map_or(0, Vec::len))
                .is_empty();
        let places = matches!(
            placing,
            Placing::Plain | Placing::Offset | Placing::Parts | Placing::Granting | Placing::Padded
        );
        let is_placed = places && self.placed(call, results, None).is_some();
        let is_call = placing == Placing::Plain && self.stage.operation != Operation::Read;
        self.stage.shared().acted |= is_left_inline || is_placed || is_call;
    }

    /// Sends a reply with a wrong value, before the right one. Its data is wrong as well, so that it shows whether the
    /// client takes it.
    pub(super) fn wrong_reply(&mut self, call: &Call, results: &Results) -> Result<(), Over> {
        if !self.placing().is_some_and(Placing::is_wrong) {
            return Ok(());
        }
        let mut wrong = results.clone();
        for octet in wrong.data.iter_mut().flatten() {
            *octet = !*octet;
        }
        let Some(messages) = self.placed(call, &wrong, Some(self.spoilt)) else {
            return Ok(());
        };
        self.spoilt += 1;
        let mut shared = self.stage.shared();
        shared.acted = true;
        shared
            .findings
            .look(Rule::RepliesUnreported, true, String::new);
        drop(shared);
        for message in messages {
            self.post(ddp::SEND, 0, &message)?;
        }
        Ok(())
    }

    /// Refuses the first placed call, if this is what the act says, and looks at those behind it.
    pub(super) fn refuses_placed(&mut self, call: &Call, is_placed: bool) -> Result<bool, Over> {
        let Some(Placing::Error(words)) = self.placing() else {
            return Ok(false);
        };
        let all = words == [wg::ERR_INVAL_HTYPE];
        let (connection, xid) = (self.number, call.xid());
        let is_first = self.stage.shared().refuses(connection, xid, is_placed, all);
        if is_first {
            self.send(ddp::SEND, 0, &wg::error(xid, words))?;
        }
        Ok(is_first)
    }

    /// Sends a placed reply that no call asked for, if this is what the act says.
    pub(super) fn unasked(&mut self, call: &Call) -> Result<(), Over> {
        if self.placing() != Some(Placing::Unasked) {
            return Ok(());
        }
        let mut shared = self.stage.shared();
        shared.acted = true;
        shared.disturbed = Some(call.clone());
        shared.findings.look(Rule::Discarded, true, String::new);
        drop(shared);
        self.post(ddp::SEND, 0, &stray(call.xid()))
    }
}

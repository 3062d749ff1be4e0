//! Serving with the extensions of version-two-01: characteristics, calls by ROPT_XMTREQ, and replies to them.

use super::arrival::Thresholds;
use super::call::{Call, READ};
use super::case::{Act, Operation, StrayTwo, Transmitting};
use super::connection::{Connection, Over};
use super::nfs::Results;
use super::rules::Rule;
use super::second::{Reply, Transmitted, refusal, report, spoil, stray, transmitted};
use super::stage::Report;
use super::versions::INTRODUCTION;
use super::waiting::Waiting;
use crate::wire::ddp;
use crate::wire::v2::{self, CALL, INITXCH};

/// The bytes of the direction, which is behind the fixed fields, and which the form of version 1 leaves out.
const DIRECTION: usize = 4;
/// Receives of 5120 bytes with a target of 4096, and calls in sixteen transmissions, or in one.
const ONE_SHORT_TARGET: [u32; 26] = short_target(16);
const ONE_TRANSMISSION: [u32; 26] = short_target(1);

/// Returns the words of ROPT_INITXCH of an end with a short target that takes calls in so many transmissions.
const fn short_target(most: u32) -> [u32; 26] {
    [
        5, 1, 4, 5120, 4, 4, 7, 5, 40, 5120, 2, 1, 1024, 1, 0, 1, 4096, 4096, 1, 6, 4, most, 7, 4,
        64, 0,
    ]
}

impl Connection<'_> {
    fn transmitting(&self) -> Option<Transmitting> {
        match self.stage.act {
            Act::Transmit(transmitting) => Some(transmitting),
            _ => None,
        }
    }

    /// Returns the characteristics of this server, if the act has some. They hold from then on.
    pub(super) fn told(&mut self) -> Option<Vec<u8>> {
        let words = match (self.stage.act, self.transmitting()) {
            (Act::Tell(words), _) => {
                self.stage.shared().acted = true;
                words.to_vec()
            }
            (_, Some(Transmitting::OneShortTarget)) => ONE_SHORT_TARGET.to_vec(),
            (_, Some(Transmitting::OneTransmission)) => ONE_TRANSMISSION.to_vec(),
            (_, Some(_)) => v2::everything(),
            _ => return None,
        };
        let is_limit = matches!(
            self.transmitting(),
            Some(
                Transmitting::Plain | Transmitting::OneShortTarget | Transmitting::OneTransmission
            )
        );
        // A reply shows whether the data of READs is placed.
        let shows = self.stage.operation != Operation::Read;
        self.stage.shared().acted |= is_limit && shows;
        let receive = self.second.tell(&words);
        self.thresholds = Thresholds {
            calls: receive.saturating_sub(DIRECTION),
            // The client has told how long its receives are, by its first message (xcharext-02, 4.1).
            replies: self.second.client_receive().saturating_sub(DIRECTION),
        };
        Some(v2::operation(INTRODUCTION, CALL, INITXCH, &words, &[]))
    }

    /// Keeps a call that came by ROPT_XMTREQ.
    pub(super) fn transmitted(&mut self, call: Transmitted, length: usize) -> Result<(), Over> {
        let Transmitted {
            header,
            payload,
            request,
        } = call;
        self.count_call(header.credits);
        self.wait(Waiting {
            length: payload.len().max(length),
            header,
            behind: payload,
            handle: 0,
            is_placed: false,
            request: Some(request),
        })
    }

    /// Takes an answer of the client to a message of this server.
    pub(super) fn reported(&self, xid: u32, code: u32) -> Result<(), Over> {
        let mut shared = self.stage.shared();
        if let Some(report) = &mut shared.report {
            report.came |= report.xid == xid && report.codes.contains(&code);
        }
        if self.stage.act == Act::Honest {
            shared.findings.look(Rule::Error, false, || {
                format!("an error or an answer with XID {xid:#x} that nothing asked for")
            });
        }
        Ok(())
    }

    /// Sends a message that no call asked for.
    pub(super) fn stray_of_2016(&mut self, call: &Call, of: StrayTwo) -> Result<(), Over> {
        let (message, expected) = stray(of);
        let mut shared = self.stage.shared();
        shared.acted = true;
        shared.disturbed = Some(call.clone());
        shared.findings.look(Rule::Discarded, true, String::new);
        shared.report = expected.map(|(xid, codes, text)| Report {
            xid,
            codes,
            text: Some(text),
            came: false,
        });
        drop(shared);
        self.post(ddp::SEND, 0, &message)
    }

    /// Refuses the first call by ROPT_XMTREQ, if this is what the act says, and looks at those behind it.
    pub(super) fn refuses_request(&mut self, call: &Call) -> Result<bool, Over> {
        let all = match self.transmitting() {
            Some(Transmitting::Refuse) => true,
            Some(Transmitting::Report) => false,
            _ => return Ok(false),
        };
        let (connection, xid, has_form) = (self.number, call.xid(), self.request.is_some());
        let is_first = self.stage.shared().refuses(connection, xid, has_form, all);
        if is_first {
            let answer = match all {
                true => refusal(xid),
                false => report(xid),
            };
            self.send(ddp::SEND, 0, &answer)?;
        }
        Ok(is_first)
    }

    /// Returns the reply to a call by ROPT_XMTREQ.
    pub(super) fn transmission(&self, call: &Call, results: &Results) -> Option<Reply> {
        let request = self.request.as_ref()?;
        let targets = self.second.client_targets();
        let longest = self.second.client_receive();
        transmitted(call, results, request, &targets, longest)
    }

    /// Sends ROPT_XMTRESP with a wrong value, before the right one. Its data is wrong as well, so that it shows whether
    /// the client takes it.
    pub(super) fn wrong_transmission(
        &mut self,
        call: &Call,
        results: &Results,
    ) -> Result<(), Over> {
        let Some(Transmitting::Field(name)) = self.transmitting().filter(|_| call.is(READ)) else {
            return Ok(());
        };
        let mut wrong = results.clone();
        for octet in wrong.data.iter_mut().flatten() {
            *octet = !*octet;
        }
        let Some(mut reply) = self.transmission(call, &wrong) else {
            return Ok(());
        };
        // The wrong values are those of a reply in one transmission with one target.
        let Some(target) = reply.target else {
            return Ok(());
        };
        if !reply.is_placed || !spoil(&mut reply, name, target, self.spoilt) {
            return Ok(());
        }
        self.spoilt += 1;
        self.stage.shared().acted = true;
        self.post(ddp::SEND, 0, &reply.message)
    }
}

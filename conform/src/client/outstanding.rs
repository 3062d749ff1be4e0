//! Calls without a reply, and the credits for them (RFC 8166, 3.3.1; version-two-01, 5).

use super::case::Act;
use super::connection::Connection;
use super::rules::Rule;
use super::serving::{CREDITS, FOUR};

impl Connection<'_> {
    /// Counts a call whose message asks for so many credits. One in several transmissions counts once.
    pub(super) fn count_call(&mut self, asked: u32) {
        self.outstanding = self.outstanding.saturating_add(1);
        let calls = self.outstanding;
        let first = match self.is_introduced {
            true => self.first_credits().max(1),
            false => 1,
        };
        let mut shared = self.stage.shared();
        let has_lowered = self.stage.act == Act::Lower && shared.acted;
        let findings = &mut shared.findings;
        match self.granted {
            None => findings.look(Rule::FirstCall, calls <= first, || {
                format!("{calls} calls before the first reply of the connection")
            }),
            Some(granted) => {
                let rule = match has_lowered {
                    true => Rule::LoweredCredits,
                    false => Rule::Credits,
                };
                let text =
                    || format!("{calls} calls outstanding; {granted} granted, {asked} asked for");
                // Every client has the one of the first call.
                findings.look(rule, calls <= granted.max(1), text);
                findings.look(Rule::Asked, calls <= asked.max(1), text);
            }
        }
    }

    /// Returns the credits that this server's characteristics and its first replies grant.
    fn first_credits(&self) -> u32 {
        match self.stage.act {
            Act::Grant(credits) => credits,
            Act::Lower => FOUR,
            _ => CREDITS,
        }
    }

    /// Returns the characteristics of this server with the credits that its first replies grant: the client may use
    /// them for its first calls (`drafts/errata.md`, xchar 4.1).
    pub(super) fn granting(&self, mut message: Vec<u8>) -> Vec<u8> {
        let credits = self.first_credits();
        if let Some(field) = message.get_mut(8..12) {
            field.copy_from_slice(&credits.to_be_bytes());
        }
        message
    }
}

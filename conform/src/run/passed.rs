//! Messages that scripts do not look at unless they name them: grants, properties, and parts of replies.

use std::collections::VecDeque;

use crate::dialect::Dialect;
use crate::wire::{v2, wg};

/// The most messages that are kept.
const MOST: usize = 64;

/// Messages that may still be expected.
#[derive(Debug, Default)]
pub(super) struct Passed(VecDeque<(bool, Vec<u8>)>);

impl Passed {
    /// Adds a message.
    pub(super) fn push(&mut self, dialect: Dialect, message: Vec<u8>) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        let is_of_beginning = match dialect {
            Dialect::One => false,
            Dialect::Two => v2::parse(&message).is_some_and(|it| it.opttype == v2::INITXCH),
            Dialect::Wg => wg::htype(&message)
                .is_some_and(|it| (wg::CONNPROP_MIDDLE..=wg::CONNPROP_FINAL).contains(&it)),
        };
        self.0.push_back((is_of_beginning, message));
    }

    /// Removes the first message that is wanted.
    pub(super) fn take(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(_, message)| is_wanted(message))?;
        self.0.remove(at).map(|(_, message)| message)
    }

    /// Forgets messages that came before one that is sent now, and that can therefore be no answer to it. A server
    /// tells its first properties when it likes, and only once: these stay.
    pub(super) fn sent(&mut self) {
        self.0.retain(|(is_of_beginning, _)| *is_of_beginning);
    }

    /// Forgets all messages.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

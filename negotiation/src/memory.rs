//! A client's record of servers that support version 1 only.

use crate::{Decision, Evidence, Reason, Verdict};

/// Maximum number of servers to remember. A client has a handful; beyond this number the oldest is
/// forgotten and will be asked again.
const MAX_REMEMBERED: usize = 256;

/// Evidence about servers, by server; `K` is the server's address.
///
/// The evidence of one connection is used for the next, so that version 2 is not tried forever at a
/// server that drops connections (version-two-01, section 5.2). It is forgotten when a connection
/// that used it ends after at least one reply, because the server may have been upgraded by then.
#[derive(Clone, Debug)]
pub struct Memory<K> {
    lessons: Vec<(K, Evidence)>,
}

impl<K> Default for Memory<K> {
    fn default() -> Self {
        Self {
            lessons: Vec::new(),
        }
    }
}

impl<K: PartialEq> Memory<K> {
    /// Returns the evidence about a server, if there is any.
    #[must_use]
    pub fn lesson(&self, server: &K) -> Option<Evidence> {
        let mut lessons = self.lessons.iter();
        lessons.find_map(|(known, lesson)| (known == server).then_some(*lesson))
    }

    /// Records a decision about a server.
    pub fn decided(&mut self, server: K, decision: &Decision) {
        match (decision.verdict, decision.reason) {
            (Verdict::Speak(_) | Verdict::Reconnect(_), Reason::Learnt(lesson)) => {
                self.forget(&server);
                if self.lessons.len() == MAX_REMEMBERED {
                    self.lessons.remove(0);
                }
                self.lessons.push((server, lesson));
            }
            // The server supports version 2 after all.
            (_, Reason::Answered) => self.forget(&server),
            _ => {}
        }
    }

    /// Reports that a connection with this decision has ended. `worked` tells whether a reply
    /// arrived on it.
    pub fn ended(&mut self, server: &K, decision: &Decision, worked: bool) {
        if worked && matches!(decision.verdict, Verdict::Speak(_)) {
            self.forget(server);
        }
    }

    /// Forgets a server, because the evidence about it turned out wrong.
    pub fn forget(&mut self, server: &K) {
        self.lessons.retain(|(known, _)| known != server);
    }
}

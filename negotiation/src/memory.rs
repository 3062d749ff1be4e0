//! What a client knows of servers that speak version 1 only.

use crate::{Decision, Lesson, Reason, Verdict};

/// Servers that are remembered. A client has a handful; of more than this, the oldest is asked
/// anew.
const MAX_REMEMBERED: usize = 256;

/// Lessons by server, `K` being its address.
///
/// A lesson is there for the connection after the one that taught it, so that a server that drops
/// connections is not asked for ever (version-two-01, section 5.2). It is forgotten when a
/// connection that went by it has ended after carrying at least one reply: the server may be
/// another by then.
#[derive(Clone, Debug)]
pub struct Memory<K> {
    lessons: Vec<(K, Lesson)>,
}

impl<K> Default for Memory<K> {
    fn default() -> Self {
        Self {
            lessons: Vec::new(),
        }
    }
}

impl<K: PartialEq> Memory<K> {
    /// What is known of a server.
    #[must_use]
    pub fn lesson(&self, server: &K) -> Option<Lesson> {
        let mut lessons = self.lessons.iter();
        lessons.find_map(|(known, lesson)| (known == server).then_some(*lesson))
    }

    /// This was decided about a server.
    pub fn decided(&mut self, server: K, decision: &Decision) {
        match (decision.verdict, decision.reason) {
            (Verdict::Speak(_) | Verdict::Reconnect(_), Reason::Learnt(lesson)) => {
                self.forget(&server);
                if self.lessons.len() == MAX_REMEMBERED {
                    self.lessons.remove(0);
                }
                self.lessons.push((server, lesson));
            }
            // It speaks version 2 after all.
            (_, Reason::Answered) => self.forget(&server),
            _ => {}
        }
    }

    /// A connection on which this had been decided has ended. `worked`: a reply came over it.
    pub fn ended(&mut self, server: &K, decision: &Decision, worked: bool) {
        if worked && matches!(decision.verdict, Verdict::Speak(_)) {
            self.forget(server);
        }
    }

    /// What was learnt of a server turned out wrong.
    pub fn forget(&mut self, server: &K) {
        self.lessons.retain(|(known, _)| known != server);
    }
}

//! A client's record of servers that lack the versions that it asked for.

use crate::{Evidence, VersionAction, VersionDecision, VersionReason};

/// Maximum number of servers to remember. A client has a handful; beyond this number the oldest is
/// forgotten and will be asked again.
const MAX_REMEMBERED: usize = 256;

/// Evidence about servers, by server; `K` is the server's address.
///
/// The evidence of one connection is used for the next, so that a version is not tried forever at a
/// server that drops connections (version-two-01, section 5.2). It is forgotten when a connection
/// that used it ends after at least one reply, because the server may have been upgraded by then.
#[derive(Clone, Debug)]
pub struct KnownServers<K> {
    evidence: Vec<(K, Evidence)>,
}

impl<K> Default for KnownServers<K> {
    fn default() -> Self {
        Self {
            evidence: Vec::new(),
        }
    }
}

impl<K: PartialEq> KnownServers<K> {
    /// Returns the evidence about a server, if there is any.
    #[must_use]
    pub fn evidence(&self, server: &K) -> Option<Evidence> {
        let mut entries = self.evidence.iter();
        entries.find_map(|(known, evidence)| (known == server).then_some(*evidence))
    }

    /// Records a decision about a server.
    pub fn decided(&mut self, server: K, decision: &VersionDecision) {
        match (decision.action, decision.reason) {
            (
                VersionAction::Use(_) | VersionAction::Reconnect(_),
                VersionReason::ShownNow(evidence),
            ) => {
                self.forget(&server);
                if self.evidence.len() == MAX_REMEMBERED {
                    self.evidence.remove(0);
                }
                self.evidence.push((server, evidence));
            }
            // The server supports the version after all.
            (_, VersionReason::Answered) => self.forget(&server),
            _ => {}
        }
    }

    /// Reports that a connection with this decision has ended. `worked` tells whether a reply
    /// arrived on it.
    pub fn ended(&mut self, server: &K, decision: &VersionDecision, worked: bool) {
        if worked && matches!(decision.action, VersionAction::Use(_)) {
            self.forget(server);
        }
    }

    /// Forgets a server, because the evidence about it turned out wrong.
    pub fn forget(&mut self, server: &K) {
        self.evidence.retain(|(known, _)| known != server);
    }
}

//! How a stream ends by an error.

use super::ddp::{HeaderView, Placement};
use super::rdmap::SEND_QUEUE;
use super::terminate::{Code, Culprit, Terminate};

/// An error of the peer's that this side found. It is answered with a Terminate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What the Terminate says.
    pub(super) code: Code,
    /// The segment it is about.
    pub(super) culprit: Option<Culprit>,
}

impl Fault {
    /// An error that no segment's header explains.
    #[must_use]
    pub(super) const fn bare(code: Code) -> Self {
        Self {
            code,
            culprit: None,
        }
    }

    /// Whether a Send was too long for the receive it was for.
    #[must_use]
    pub(super) fn overran_receive(&self) -> bool {
        let header = self.culprit.as_ref();
        let header = header.and_then(|culprit| HeaderView::new(&culprit.ddp)?.to_header().ok());
        let queue = match header.map(|header| header.placement) {
            Some(Placement::Untagged { queue, .. }) => Some(queue),
            _ => None,
        };
        self.code == Code::TOO_LONG && queue == Some(SEND_QUEUE)
    }

    /// The Terminate to send. Layers and types that do not carry headers drop them (RFC 5040,
    /// figure 10).
    #[must_use]
    pub(super) fn terminate(&self) -> Terminate {
        let carries_headers = match (self.code.layer, self.code.kind) {
            (0, kind) => kind != 0,
            (1, _) => true,
            _ => false,
        };
        let mut culprit = self.culprit.clone().filter(|_| carries_headers);
        // The RDMAP header goes with remote protection errors only.
        if let Some(culprit) = &mut culprit
            && (self.code.layer, self.code.kind) != (0, 1)
        {
            culprit.read = None;
        }
        Terminate {
            code: self.code,
            culprit,
        }
    }
}

/// Why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The peer made an error.
    Fault(Fault),
    /// The peer says that we made one.
    Terminated(Terminate),
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

//! Errors that end a stream.

use super::ddp::{HeaderView, Placement};
use super::rdmap::SEND_QUEUE;
use super::terminate::{Code, FaultySegment, Terminate};

/// A protocol error of the peer that this side found. It is answered with a Terminate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Error code of the Terminate.
    pub(super) code: Code,
    /// The segment that the error is about.
    pub(super) faulty_segment: Option<FaultySegment>,
}

impl Fault {
    /// Creates an error that is about no segment's header.
    #[must_use]
    pub(super) const fn bare(code: Code) -> Self {
        Self {
            code,
            faulty_segment: None,
        }
    }

    /// Returns whether the error is a Send that was too long for its receive.
    #[must_use]
    pub(super) fn overran_receive(&self) -> bool {
        let header = self.faulty_segment.as_ref();
        let header = header
            .and_then(|faulty_segment| HeaderView::new(&faulty_segment.ddp)?.to_header().ok());
        let queue = match header.map(|header| header.placement) {
            Some(Placement::Untagged { queue, .. }) => Some(queue),
            _ => None,
        };
        self.code == Code::TOO_LONG && queue == Some(SEND_QUEUE)
    }

    /// Returns the Terminate to send. Layers and types that do not carry headers omit them (RFC
    /// 5040, figure 10).
    #[must_use]
    pub(super) fn terminate(&self) -> Terminate {
        let carries_headers = match (self.code.layer, self.code.kind) {
            (0, kind) => kind != 0,
            (1, _) => true,
            _ => false,
        };
        let mut faulty_segment = self.faulty_segment.clone().filter(|_| carries_headers);
        // Only remote protection errors carry the RDMAP header.
        if let Some(faulty_segment) = &mut faulty_segment
            && (self.code.layer, self.code.kind) != (0, 1)
        {
            faulty_segment.read = None;
        }
        Terminate {
            code: self.code,
            faulty_segment,
        }
    }
}

/// The reason why a stream cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The peer made a protocol error.
    Fault(Fault),
    /// The peer reports an error of this side.
    Terminated(Terminate),
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

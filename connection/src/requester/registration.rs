//! Memory of a call that is registered for the responder.

use rdma::{Buf, Region, RemoteSegment, Stag};
use rpcrdma_chunks::Segment;

/// The purpose of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A segment of the read chunk at this position; 0 for the chunk with the payload of the call: the
    /// position-zero read chunk, or in the working group's version 2 the call chunk.
    Read(u32),
    /// A segment of this write chunk.
    Write(usize),
    /// A segment of the reply chunk.
    Reply,
}

/// The state of a registration.
#[derive(Debug)]
enum Validity {
    /// The device is registering the memory.
    Registering,
    /// The peer can reach the memory.
    Valid,
    /// The handle is being invalidated here, or the peer has invalidated it and the memory is being
    /// reclaimed.
    Invalidating,
    /// The peer can no longer reach the memory. It is returned here, or `None` if it has been
    /// dropped.
    Ended(Option<Region>),
}

/// A registration of a call.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) purpose: Purpose,
    pub(super) segment: Segment,
    validity: Validity,
}

impl Registration {
    pub(super) fn new(purpose: Purpose) -> Self {
        let segment = Segment {
            handle: 0,
            length: 0,
            offset: 0,
        };
        Self {
            purpose,
            segment,
            validity: Validity::Registering,
        }
    }

    pub(super) fn set_valid(&mut self, registered: RemoteSegment) {
        self.segment = Segment {
            handle: registered.stag.0,
            length: registered.length,
            offset: registered.offset,
        };
        self.validity = Validity::Valid;
    }

    pub(super) fn set_invalidating(&mut self) {
        self.validity = Validity::Invalidating;
    }

    pub(super) fn set_ended(&mut self, region: Option<Region>) {
        self.validity = Validity::Ended(region);
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.validity, Validity::Ended(_))
    }

    /// Returns the handle, which may be valid or not.
    pub(super) fn stag(&self) -> Stag {
        Stag(self.segment.handle)
    }

    /// Returns the handle while the peer can reach the memory.
    pub(super) fn valid_stag(&self) -> Option<Stag> {
        matches!(self.validity, Validity::Valid).then_some(self.stag())
    }

    /// Removes and returns the memory that the peer may have written to, after it has been
    /// reclaimed.
    pub(super) fn take_written(&mut self) -> Option<Buf> {
        match &mut self.validity {
            Validity::Ended(region) => match region.take() {
                // Memory that the peer could only read is a part of the call, which the upper layer
                // has already.
                Some(Region::RemoteWrite(buf)) => Some(buf),
                _ => None,
            },
            _ => None,
        }
    }
}

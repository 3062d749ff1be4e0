//! Memory of a call's, registered for the responder.

use rdma::{Buf, Region, RemoteSegment, Stag};
use rpcrdma_chunks::Segment;

/// What registered memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A segment of the read chunk at this position; 0 for the position-zero read chunk.
    Read(u32),
    /// A segment of this write chunk.
    Write(usize),
    /// A segment of the reply chunk.
    Reply,
}

/// How far a registration has come.
#[derive(Debug)]
enum State {
    Registering,
    /// The peer can reach it.
    Valid,
    /// Being invalidated here, or invalidated by the peer and being reclaimed.
    Leaving,
    /// The peer cannot reach it, and the memory is here (or, if it is of no use, let go of).
    Gone(Option<Region>),
}

/// A registration of a call's.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) role: Role,
    pub(super) segment: Segment,
    state: State,
}

impl Registration {
    pub(super) fn new(role: Role) -> Self {
        let segment = Segment {
            handle: 0,
            length: 0,
            offset: 0,
        };
        Self {
            role,
            segment,
            state: State::Registering,
        }
    }

    pub(super) fn valid(&mut self, registered: RemoteSegment) {
        self.segment = Segment {
            handle: registered.stag.0,
            length: registered.length,
            offset: registered.offset,
        };
        self.state = State::Valid;
    }

    pub(super) fn leaving(&mut self) {
        self.state = State::Leaving;
    }

    pub(super) fn gone(&mut self, region: Option<Region>) {
        self.state = State::Gone(region);
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone(_))
    }

    /// Its handle, while the peer can reach it.
    pub(super) fn stag(&self) -> Option<Stag> {
        matches!(self.state, State::Valid).then_some(Stag(self.segment.handle))
    }
    /// The memory that the peer wrote to, once it is back.
    pub(super) fn take_written(&mut self) -> Option<Buf> {
        match &mut self.state {
            State::Gone(region) => match region.take() {
                Some(Region::RemoteWrite(buf)) => Some(buf),
                _ => None,
            },
            _ => None,
        }
    }
}

//! Middleware that shows requests to an observer.

use std::fmt;

use crate::{Device, Gather, PostError, QpId, SendWr, Stag, WrId};

/// A send queue request that a device accepted. Like [`SendWr`], but it shares the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// A Send.
    Send {
        /// The bytes of the message.
        gather: Gather,
        /// The peer's handle that the Send invalidates.
        invalidate: Option<Stag>,
    },
    /// An RDMA Write.
    Write {
        /// The bytes to write.
        gather: Gather,
        /// Handle of the peer's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// An RDMA Read.
    Read {
        /// Number of bytes.
        length: usize,
        /// Handle of the peer's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// A local invalidation.
    Invalidate {
        /// Handle of the memory.
        stag: Stag,
    },
}

impl From<&SendWr> for Posted {
    fn from(wr: &SendWr) -> Self {
        match wr {
            SendWr::Send { gather, invalidate } => Self::Send {
                gather: gather.clone(),
                invalidate: *invalidate,
            },
            SendWr::Write {
                gather,
                stag,
                offset,
            } => Self::Write {
                gather: gather.clone(),
                stag: *stag,
                offset: *offset,
            },
            SendWr::Read { sink, stag, offset } => Self::Read {
                length: sink.len(),
                stag: *stag,
                offset: *offset,
            },
            SendWr::Invalidate { stag } => Self::Invalidate { stag: *stag },
        }
    }
}

/// Calls an observer with every send queue request that the inner device accepts, in order. Tests
/// compare the result with a capture of the wire.
pub struct Tapped<D, F> {
    device: D,
    observer: F,
}

impl<D: Device, F: FnMut(QpId, Posted)> Tapped<D, F> {
    /// Wraps `device`.
    #[must_use]
    pub fn new(device: D, observer: F) -> Self {
        Self { device, observer }
    }
}

impl<D: fmt::Debug, F> fmt::Debug for Tapped<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tapped").field(&self.device).finish()
    }
}

impl<D: Device, F: FnMut(QpId, Posted)> Device for Tapped<D, F> {
    crate::forward!(self => self.device;
        attributes pool counters attach ready set_busy_poll poll flush arm next_deadline listen
        local_address carrier close_listener connect prepare_accept accept reject disconnect abort
        destroy ending give_back register reclaim post_receive shared_receives);

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let posted = Posted::from(&wr);
        self.device.post_send(qp, id, wr, signaled)?;
        (self.observer)(qp, posted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use smallvec::smallvec;

    use super::*;
    use crate::middleware::fake::connected;

    #[test]
    fn the_observer_sees_what_the_device_took_and_nothing_else() {
        let (client, _server, qp) = connected(1);
        let script = client.script();
        let mut seen = Vec::new();
        let mut client = Tapped::new(client, |at, posted| seen.push((at, posted)));
        let gather: Gather = smallvec![Bytes::from_static(b"x")];
        let (stag, offset) = (Stag(3), 9);
        let sink = client.pool().alloc(5).unwrap();
        for wr in [
            SendWr::Send {
                gather: gather.clone(),
                invalidate: Some(stag),
            },
            SendWr::Read { sink, stag, offset },
            SendWr::Write {
                gather: gather.clone(),
                stag,
                offset,
            },
            SendWr::Invalidate { stag },
        ] {
            client.post_send(qp, WrId(1), wr, true).unwrap();
        }
        script.set_room(0);
        let refused = client.post_send(qp, WrId(1), SendWr::Invalidate { stag }, true);
        assert!(refused.is_err());
        let expected = [
            Posted::Send {
                gather: gather.clone(),
                invalidate: Some(stag),
            },
            Posted::Read {
                length: 5,
                stag,
                offset,
            },
            Posted::Write {
                gather,
                stag,
                offset,
            },
            Posted::Invalidate { stag },
        ];
        assert_eq!(seen, expected.map(|posted| (qp, posted)));
    }
}

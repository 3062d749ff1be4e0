//! Middleware that counts requests to a device.

use super::forward::forward;
use crate::{Counters, Device, DeviceError, PostError, QpId, Region, RemoteSegment, SendWr, WrId};

/// Counts the requests that its user makes and the inner device accepts: Sends, RDMA Reads and
/// Writes, registrations, local invalidations. Values that only the device can know (interrupts,
/// bytes, arrivals) come from the device's own [`Counters`].
#[derive(Debug)]
pub struct Counting<D> {
    device: D,
    /// The counts made here; the fields that this middleware does not count are unused.
    asked: Counters,
}

impl<D: Device> Counting<D> {
    /// Wraps `device`, which must not have been used yet.
    #[must_use]
    pub fn new(device: D) -> Self {
        Self {
            device,
            asked: Counters::default(),
        }
    }
}

/// Returns the counter for requests like `wr`, and whether the request is a Send With Invalidate.
fn kind(wr: &SendWr) -> (fn(&mut Counters) -> &mut u64, bool) {
    match wr {
        SendWr::Send { invalidate, .. } => (|c| &mut c.sends, invalidate.is_some()),
        SendWr::Write { .. } => (|c| &mut c.rdma_writes, false),
        SendWr::Read { .. } => (|c| &mut c.rdma_reads, false),
        SendWr::Invalidate { .. } => (|c| &mut c.local_invalidations, false),
    }
}

impl<D: Device> Device for Counting<D> {
    forward!(self => self.device;
        attributes pool attach ready set_busy_poll poll arm next_deadline listen local_address
        carrier close_listener connect prepare_accept accept reject disconnect abort destroy reclaim
        post_receive);

    /// Returns the device's counters, with the fields counted here replaced.
    fn counters(&self) -> Counters {
        Counters {
            sends: self.asked.sends,
            sends_with_invalidate: self.asked.sends_with_invalidate,
            rdma_reads: self.asked.rdma_reads,
            rdma_writes: self.asked.rdma_writes,
            registrations: self.asked.registrations,
            local_invalidations: self.asked.local_invalidations,
            ..self.device.counters()
        }
    }

    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let segment = self.device.register(qp, region)?;
        self.asked.registrations += 1;
        Ok(segment)
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let (count, invalidates) = kind(&wr);
        self.device.post_send(qp, id, wr, signaled)?;
        *count(&mut self.asked) += 1;
        self.asked.sends_with_invalidate += u64::from(invalidates);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use smallvec::smallvec;

    use super::*;
    use crate::Stag;
    use crate::middleware::fake::connected;

    #[test]
    fn accepted_requests_are_counted_once_and_refused_ones_are_not() {
        let (client, _server, qp) = connected(3);
        let script = client.script();
        let mut client = Counting::new(client);
        // A device with counters of its own that have other values.
        client.device.counters.sends = 1000;
        client.device.counters.receives = 5;
        let send = |invalidate| SendWr::Send {
            gather: smallvec![Bytes::from_static(b"x")],
            invalidate,
        };

        let region = Region::RemoteRead(Bytes::from_static(b"x"));
        let stag = client.register(qp, region).unwrap().stag;
        let long = Region::RemoteRead(Bytes::from(vec![0; 2 << 20]));
        assert!(client.register(qp, long).is_err());
        let sink = client.pool().alloc(1).unwrap();
        let offset = 0;
        let gather = smallvec![Bytes::from_static(b"x")];
        for wr in [
            send(None),
            send(Some(Stag(7))),
            send(None),
            SendWr::Read { sink, stag, offset },
            SendWr::Write {
                gather,
                stag,
                offset,
            },
            SendWr::Invalidate { stag },
            SendWr::Invalidate { stag },
        ] {
            client.post_send(qp, WrId(1), wr, true).unwrap();
        }
        script.set_room(0);
        assert!(client.post_send(qp, WrId(2), send(None), true).is_err());
        let expected = Counters {
            sends: 3,
            sends_with_invalidate: 1,
            rdma_reads: 1,
            rdma_writes: 1,
            registrations: 1,
            local_invalidations: 2,
            receives: 5,
            ..Counters::default()
        };
        assert_eq!(client.counters(), expected);
    }
}

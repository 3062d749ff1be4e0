//! Middleware that modifies requests to a device.

use std::fmt;

use crate::{Device, PostError, QpId, SendWr, WrId};

/// Passes every send queue request to an editor before it is posted, for simulations and tests in
/// which one end sends something else than intended.
pub struct Edited<D, F> {
    device: D,
    edit: F,
}

impl<D: Device, F: FnMut(QpId, &mut SendWr)> Edited<D, F> {
    /// Wraps `device`.
    #[must_use]
    pub fn new(device: D, edit: F) -> Self {
        Self { device, edit }
    }
}

impl<D: fmt::Debug, F> fmt::Debug for Edited<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Edited").field(&self.device).finish()
    }
}

impl<D: Device, F: FnMut(QpId, &mut SendWr)> Device for Edited<D, F> {
    crate::forward!(self => self.device;
        attributes pool counters attach ready set_busy_poll poll flush arm next_deadline listen
        local_address carrier close_listener connect prepare_accept accept reject disconnect abort
        destroy ending give_back register reclaim post_receive shared_receives);

    /// Posts the edited request to the inner device. A request that the device refuses is returned
    /// as edited, and is edited again when it is posted again.
    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        mut wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        (self.edit)(qp, &mut wr);
        self.device.post_send(qp, id, wr, signaled)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::Stag;
    use crate::middleware::fake::connected;
    use crate::middleware::{Posted, Tapped};

    #[test]
    fn the_device_gets_the_edited_request() {
        let (client, _server, qp) = connected(1);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        let tapped = Tapped::new(client, move |_, posted| log.borrow_mut().push(posted));
        let mut client = Edited::new(tapped, |_, wr: &mut SendWr| {
            if let SendWr::Invalidate { stag } = wr {
                *stag = Stag(stag.0 + 1);
            }
        });
        let wr = SendWr::Invalidate { stag: Stag(3) };
        client.post_send(qp, WrId(1), wr, true).unwrap();
        assert_eq!(*seen.borrow(), [Posted::Invalidate { stag: Stag(4) }]);
    }
}

//! A macro to forward methods to the inner device.

/// Implements methods of [`Device`](crate::Device) for middleware, by calling those of the inner device:
/// `rdma::forward!(self => self.device; pool attach …)`. `shared_receives` stands for the seven
/// methods of shared receive queues. The trait must be in scope (`use rdma::Device`).
#[macro_export]
macro_rules! forward {
    ($self:ident => $inner:expr; $($method:ident)*) => {
        $($crate::forward!(@ $method $self $inner);)*
    };
    (@ attributes $self:ident $inner:expr) => {
        fn attributes(&$self) -> &$crate::Attributes {
            $inner.attributes()
        }
    };
    (@ pool $self:ident $inner:expr) => {
        fn pool(&$self) -> &$crate::Pool {
            $inner.pool()
        }
    };
    (@ counters $self:ident $inner:expr) => {
        fn counters(&$self) -> $crate::Counters {
            $inner.counters()
        }
    };
    (@ attach $self:ident $inner:expr) => {
        fn attach(&mut $self, poller: $crate::Poller) -> std::io::Result<()> {
            $inner.attach(poller)
        }
    };
    (@ ready $self:ident $inner:expr) => {
        fn ready(&mut $self, local: usize, closed: bool) {
            $inner.ready(local, closed);
        }
    };
    (@ set_busy_poll $self:ident $inner:expr) => {
        fn set_busy_poll(&mut $self, on: bool) {
            $inner.set_busy_poll(on);
        }
    };
    (@ poll $self:ident $inner:expr) => {
        fn poll(
            &mut $self,
            now: $crate::Time,
            events: &mut std::collections::VecDeque<$crate::Event>,
        ) {
            $inner.poll(now, events);
        }
    };
    (@ arm $self:ident $inner:expr) => {
        fn arm(&mut $self) -> bool {
            $inner.arm()
        }
    };
    (@ flush $self:ident $inner:expr) => {
        fn flush(&mut $self) {
            $inner.flush();
        }
    };
    (@ next_deadline $self:ident $inner:expr) => {
        fn next_deadline(&$self) -> Option<$crate::Time> {
            $inner.next_deadline()
        }
    };
    (@ listen $self:ident $inner:expr) => {
        fn listen(
            &mut $self,
            address: std::net::SocketAddr,
        ) -> Result<$crate::ListenerId, $crate::DeviceError> {
            $inner.listen(address)
        }
    };
    (@ local_address $self:ident $inner:expr) => {
        fn local_address(
            &$self,
            listener: $crate::ListenerId,
        ) -> Result<std::net::SocketAddr, $crate::DeviceError> {
            $inner.local_address(listener)
        }
    };
    (@ carrier $self:ident $inner:expr) => {
        fn carrier(&$self, qp: $crate::QpId) -> $crate::Carrier {
            $inner.carrier(qp)
        }
    };
    (@ close_listener $self:ident $inner:expr) => {
        fn close_listener(&mut $self, listener: $crate::ListenerId) {
            $inner.close_listener(listener);
        }
    };
    (@ connect $self:ident $inner:expr) => {
        fn connect(
            &mut $self,
            remote: std::net::SocketAddr,
            options: &$crate::ConnectOptions,
        ) -> Result<$crate::QpId, $crate::DeviceError> {
            $inner.connect(remote, options)
        }
    };
    (@ prepare_accept $self:ident $inner:expr) => {
        fn prepare_accept(
            &mut $self,
            request: $crate::RequestId,
            receives: Option<$crate::SharedReceivesId>,
        ) -> Result<$crate::QpId, $crate::DeviceError> {
            $inner.prepare_accept(request, receives)
        }
    };
    (@ accept $self:ident $inner:expr) => {
        fn accept(
            &mut $self,
            qp: $crate::QpId,
            options: &$crate::AcceptOptions,
        ) -> Result<(), $crate::DeviceError> {
            $inner.accept(qp, options)
        }
    };
    (@ reject $self:ident $inner:expr) => {
        fn reject(
            &mut $self,
            request: $crate::RequestId,
            private_data: &[u8],
        ) -> Result<(), $crate::DeviceError> {
            $inner.reject(request, private_data)
        }
    };
    (@ disconnect $self:ident $inner:expr) => {
        fn disconnect(&mut $self, qp: $crate::QpId) {
            $inner.disconnect(qp);
        }
    };
    (@ abort $self:ident $inner:expr) => {
        fn abort(&mut $self, qp: $crate::QpId) {
            $inner.abort(qp);
        }
    };
    (@ destroy $self:ident $inner:expr) => {
        fn destroy(&mut $self, qp: $crate::QpId) {
            $inner.destroy(qp);
        }
    };
    (@ ending $self:ident $inner:expr) => {
        fn ending(&$self) -> $crate::Ending {
            $inner.ending()
        }
    };
    (@ register $self:ident $inner:expr) => {
        fn register(
            &mut $self,
            qp: $crate::QpId,
            region: $crate::Region,
        ) -> Result<$crate::RemoteSegment, ($crate::DeviceError, $crate::Region)> {
            $inner.register(qp, region)
        }
    };
    (@ reclaim $self:ident $inner:expr) => {
        fn reclaim(
            &mut $self,
            qp: $crate::QpId,
            stag: $crate::Stag,
        ) -> Result<$crate::Region, $crate::DeviceError> {
            $inner.reclaim(qp, stag)
        }
    };
    (@ post_receive $self:ident $inner:expr) => {
        fn post_receive(
            &mut $self,
            qp: $crate::QpId,
            id: $crate::WrId,
            receive: $crate::Scatter,
        ) -> Result<(), ($crate::PostError, $crate::Scatter)> {
            $inner.post_receive(qp, id, receive)
        }
    };
    (@ shared_receives $self:ident $inner:expr) => {
        fn create_shared_receives(
            &mut $self,
        ) -> Result<$crate::SharedReceivesId, $crate::DeviceError> {
            $inner.create_shared_receives()
        }

        fn post_shared_receive(
            &mut $self,
            receives: $crate::SharedReceivesId,
            id: $crate::WrId,
            receive: $crate::Scatter,
        ) -> Result<(), ($crate::PostError, $crate::Scatter)> {
            $inner.post_shared_receive(receives, id, receive)
        }

        fn arm_shared_receives(
            &mut $self,
            receives: $crate::SharedReceivesId,
            below: usize,
        ) -> Result<(), $crate::DeviceError> {
            $inner.arm_shared_receives(receives, below)
        }

        fn posted_shared_receives(&$self, receives: $crate::SharedReceivesId) -> usize {
            $inner.posted_shared_receives(receives)
        }

        fn withdraw_shared_receive(
            &mut $self,
            receives: $crate::SharedReceivesId,
        ) -> Option<$crate::Scatter> {
            $inner.withdraw_shared_receive(receives)
        }

        fn receiving(&$self, receives: $crate::SharedReceivesId, qps: &mut Vec<$crate::QpId>) {
            $inner.receiving(receives, qps);
        }

        fn destroy_shared_receives(
            &mut $self,
            receives: $crate::SharedReceivesId,
        ) -> Result<(), $crate::DeviceError> {
            $inner.destroy_shared_receives(receives)
        }
    };
    (@ give_back $self:ident $inner:expr) => {
        fn give_back(&mut $self, quiet: &[$crate::QpId]) -> usize {
            $inner.give_back(quiet)
        }
    };
    (@ post_send $self:ident $inner:expr) => {
        fn post_send(
            &mut $self,
            qp: $crate::QpId,
            id: $crate::WrId,
            wr: $crate::SendWr,
            signaled: bool,
        ) -> Result<(), ($crate::PostError, $crate::SendWr)> {
            $inner.post_send(qp, id, wr, signaled)
        }
    };
}

/// Allows a program to choose devices and middleware at run time.
impl<D: crate::Device + ?Sized> crate::Device for Box<D> {
    crate::forward!(self => (**self);
        attributes pool counters attach ready set_busy_poll poll flush arm next_deadline listen
        local_address carrier close_listener connect prepare_accept accept reject disconnect abort
        destroy ending give_back register reclaim post_receive shared_receives post_send);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;
    use smallvec::smallvec;

    use crate::middleware::fake::{accept_options, anywhere, connect_options, pair};
    use crate::middleware::{Edited, Linked, Shaper, Tapped};
    use crate::{
        Completion, Device, DeviceError, Event, PostError, RequestId, SendWr, Success, Time, WrId,
    };

    #[test]
    fn shared_receives_pass_through_every_middleware() {
        let (mut client, server) = pair();
        let server: Box<dyn Device> = Box::new(server);
        let server = Tapped::new(Edited::new(server, |_, _: &mut SendWr| {}), |_, _| {});
        let link = Shaper::new(std::time::Duration::ZERO, None);
        let mut server = Linked::new(server, link);
        let buf = server.pool().alloc(9).unwrap();
        let receives = server.create_shared_receives().unwrap();
        server
            .post_shared_receive(receives, WrId(5), buf.into())
            .unwrap();
        let other = server.pool().alloc(8).unwrap();
        let refused = server.post_shared_receive(receives, WrId(6), other.into());
        assert_eq!(refused.unwrap_err().0, PostError::Structure);
        let more = server.pool().alloc(9).unwrap();
        server
            .post_shared_receive(receives, WrId(7), more.into())
            .unwrap();
        assert_eq!(server.posted_shared_receives(receives), 2);
        assert!(server.withdraw_shared_receive(receives).is_some());
        assert_eq!(server.posted_shared_receives(receives), 1);
        server.arm_shared_receives(receives, 1).unwrap();
        let qp = client.connect(anywhere(), &connect_options()).unwrap();
        let peer = server.prepare_accept(RequestId(1), Some(receives)).unwrap();
        server.accept(peer, &accept_options(b"")).unwrap();
        let mut events = VecDeque::new();
        server.poll(Time::ZERO, &mut events);
        let wr = SendWr::Send {
            gather: smallvec![Bytes::from_static(b"x")],
            invalidate: None,
        };
        client.post_send(qp, WrId(1), wr, false).unwrap();
        events.clear();
        server.poll(Time::ZERO, &mut events);
        assert!(
            matches!(
                events.make_contiguous(),
                [
                    Event::SharedReceivesLow { id },
                    Event::Completion(Completion {
                        qp,
                        id: WrId(5),
                        result: Ok(Success::Receive { .. }),
                    }),
                ] if *id == receives && *qp == peer
            ),
            "{events:?}"
        );
        assert_eq!(server.posted_shared_receives(receives), 0);
        server.destroy_shared_receives(receives).unwrap();
        let again = server.destroy_shared_receives(receives);
        assert!(matches!(again, Err(DeviceError::Unknown(_))));
    }
}

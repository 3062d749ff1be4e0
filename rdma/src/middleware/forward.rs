//! A macro to forward methods to the inner device.

/// `forward!(self => self.device; pool attach …)` implements the named methods of
/// [`Device`](crate::Device) by calling the same method of `self.device`.
macro_rules! forward {
    ($self:ident => $inner:expr; $($method:ident)*) => {
        $($crate::middleware::forward::forward!(@ $method $self $inner);)*
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
        ) -> Result<$crate::QpId, $crate::DeviceError> {
            $inner.prepare_accept(request)
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

pub(super) use forward;

/// Allows a program to choose devices and middleware at run time.
impl<D: crate::Device + ?Sized> crate::Device for Box<D> {
    forward!(self => (**self);
        attributes pool counters attach ready set_busy_poll poll arm next_deadline listen
        local_address carrier close_listener connect prepare_accept accept reject disconnect abort
        destroy register reclaim post_receive post_send);
}

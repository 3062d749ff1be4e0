//! The TCP baseline: the time that two processes need to exchange the same number of bytes over a
//! bare TCP connection, without RPC and RDMA. Both sides block or spin, like the measured
//! operations.

use std::hint;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rpcrdma_host::CongestionControl;

use crate::latency::Latency;

/// The maximum message size of the baseline, bytes.
const MAX_MESSAGE: u32 = 64 << 20;
/// The length of a request on the wire: five 32-bit words.
const ORDER_LEN: usize = 20;
/// The server's answer to a request, and its acknowledgement of a stream.
const ACK: [u8; 1] = [1];

/// The kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests and replies in turn.
    PingPong,
    /// Requests one after the other, acknowledged once at the end.
    ToServer,
    /// Replies one after the other.
    FromServer,
}

/// A number of exchanges. It is agreed on beforehand, so that the exchanges carry only their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The kind of exchange.
    pub(crate) kind: Kind,
    /// Whether both sides spin instead of sleeping.
    pub(crate) busy: bool,
    /// The number of bytes of each request.
    pub(crate) request: u32,
    /// The number of bytes of each reply.
    pub(crate) reply: u32,
    /// The number of exchanges.
    pub(crate) count: u32,
}

impl Order {
    fn encode(self) -> [u8; ORDER_LEN] {
        let kind = match self.kind {
            Kind::PingPong => 0u32,
            Kind::ToServer => 1,
            Kind::FromServer => 2,
        };
        let words = [
            kind,
            u32::from(self.busy),
            self.request,
            self.reply,
            self.count,
        ];
        let mut out = [0; ORDER_LEN];
        for (to, word) in out.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        out
    }

    fn decode(wire: [u8; ORDER_LEN]) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut words = [0u32; ORDER_LEN / 4];
        for (word, from) in words.iter_mut().zip(wire.chunks_exact(4)) {
            *word = from
                .iter()
                .fold(0, |word, &byte| word << 8 | u32::from(byte));
        }
        let [kind, busy, request, reply, count] = words;
        if request > MAX_MESSAGE || reply > MAX_MESSAGE {
            return Err(invalid("floor message too long"));
        }
        let kind = match kind {
            0 => Kind::PingPong,
            1 => Kind::ToServer,
            2 => Kind::FromServer,
            _ => return Err(invalid("unknown floor order")),
        };
        Ok(Self {
            kind,
            busy: busy != 0,
            request,
            reply,
            count,
        })
    }
}

/// A TCP connection that sends and receives messages of an agreed length.
struct Link {
    stream: TcpStream,
    busy: bool,
}

impl Link {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            busy: false,
        })
    }

    fn set_busy(&mut self, busy: bool) -> io::Result<()> {
        self.busy = busy;
        self.stream.set_nonblocking(busy)
    }

    fn send(&mut self, mut data: &[u8]) -> io::Result<()> {
        if !self.busy {
            return self.stream.write_all(data);
        }
        while !data.is_empty() {
            match self.stream.write(data) {
                Ok(n) => data = &data[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => hint::spin_loop(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, data: &mut [u8]) -> io::Result<()> {
        if !self.busy {
            return self.stream.read_exact(data);
        }
        let mut at = 0;
        while at < data.len() {
            match self.stream.read(&mut data[at..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => at += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => hint::spin_loop(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Serves one client after the other until the listener fails.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, peer) = listener.accept()?;
        if let Err(error) = obey(stream)
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            tracing::warn!(%peer, %error, "TCP baseline connection failed");
        }
    }
}

fn obey(stream: TcpStream) -> io::Result<()> {
    let mut link = Link::new(stream)?;
    loop {
        link.set_busy(false)?;
        let mut wire = [0; ORDER_LEN];
        link.receive(&mut wire)?;
        let order = Order::decode(wire)?;
        let mut request = vec![0; order.request as usize];
        let reply = vec![0; order.reply as usize];
        link.send(&ACK)?;
        link.set_busy(order.busy)?;
        for _ in 0..order.count {
            match order.kind {
                Kind::PingPong => {
                    link.receive(&mut request)?;
                    link.send(&reply)?;
                }
                Kind::ToServer => link.receive(&mut request)?,
                Kind::FromServer => link.send(&reply)?,
            }
        }
        if order.kind == Kind::ToServer {
            link.send(&ACK)?;
        }
    }
}

/// The client side of the baseline.
pub(crate) struct TcpBaseline {
    link: Link,
}

impl TcpBaseline {
    /// Connects to a baseline server.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn connect(
        address: SocketAddr,
        congestion: Option<&CongestionControl>,
    ) -> io::Result<Self> {
        let socket = rpcrdma_host::begin_connect(address, congestion)?;
        socket.set_nonblocking(false)?;
        // The first write waits until the connection is established.
        Ok(Self {
            link: Link::new(socket)?,
        })
    }

    /// Returns the congestion control of the connection, as the system granted it.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn congestion(&self) -> io::Result<CongestionControl> {
        CongestionControl::of(&self.link.stream)
    }

    fn start(&mut self, order: Order) -> io::Result<()> {
        self.link.set_busy(false)?;
        self.link.send(&order.encode())?;
        self.link.receive(&mut [0; ACK.len()])?;
        self.link.set_busy(order.busy)
    }

    /// Exchanges `count` requests and replies in turn and records the time of each.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn ping_pong(
        &mut self,
        (request, reply): (u32, u32),
        busy: bool,
        count: u32,
        latency: &mut Latency,
    ) -> io::Result<()> {
        let out = vec![0; request as usize];
        let mut back = vec![0; reply as usize];
        self.start(Order {
            kind: Kind::PingPong,
            busy,
            request,
            reply,
            count,
        })?;
        let mut last = Instant::now();
        for _ in 0..count {
            self.link.send(&out)?;
            self.link.receive(&mut back)?;
            let now = Instant::now();
            latency.record(now - last);
            last = now;
        }
        Ok(())
    }

    /// Sends `count` messages of `size` bytes in one direction without waiting in between. Returns
    /// the time until the last one has arrived.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn stream(
        &mut self,
        kind: Kind,
        size: u32,
        busy: bool,
        count: u32,
    ) -> io::Result<Duration> {
        let mut data = vec![0; size as usize];
        self.start(Order {
            kind,
            busy,
            request: size,
            reply: size,
            count,
        })?;
        let start = Instant::now();
        for _ in 0..count {
            match kind {
                Kind::ToServer => self.link.send(&data)?,
                Kind::FromServer => self.link.receive(&mut data)?,
                Kind::PingPong => {
                    self.link.send(&data)?;
                    self.link.receive(&mut data)?;
                }
            }
        }
        if kind == Kind::ToServer {
            self.link.receive(&mut [0; ACK.len()])?;
        }
        Ok(start.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::thread;

    fn start() -> TcpBaseline {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(&listener));
        TcpBaseline::connect(address, None).unwrap()
    }

    #[test]
    fn ping_pong_exchanges_exactly_the_ordered_count() {
        let mut baseline = start();
        for busy in [false, true] {
            let mut latency = Latency::new();
            baseline
                .ping_pong((40, 24), busy, 50, &mut latency)
                .unwrap();
            assert_eq!(latency.count(), 50);
            baseline
                .ping_pong((0, 100_000), busy, 3, &mut latency)
                .unwrap();
            assert_eq!(latency.count(), 53);
        }
    }

    #[test]
    fn streams_end_when_the_last_byte_arrived() {
        let mut baseline = start();
        for kind in [Kind::ToServer, Kind::FromServer, Kind::PingPong] {
            for busy in [false, true] {
                let time = baseline.stream(kind, 1 << 20, busy, 8).unwrap();
                assert!(time > Duration::ZERO);
            }
        }
    }

    #[test]
    fn orders_survive_the_wire_and_bad_ones_do_not() {
        let order = Order {
            kind: Kind::FromServer,
            busy: true,
            request: 7,
            reply: 1 << 20,
            count: 12,
        };
        assert_eq!(Order::decode(order.encode()).unwrap(), order);
        let mut bad = order.encode();
        bad[3] = 9;
        assert!(Order::decode(bad).is_err());
        let mut long = order.encode();
        long[8] = 0xff;
        assert!(Order::decode(long).is_err());
    }
}

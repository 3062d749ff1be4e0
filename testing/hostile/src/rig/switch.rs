//! Passes TCP connections on, each to the server of the moment: so one gateway has an honest server for one of its
//! clients and a hostile one for another.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use crate::{Wrong, wrong};

/// The size of the buffer of each direction of a connection, bytes.
const BUFFER: usize = 16 << 10;
/// The time after which a thread whose receiver takes nothing looks whether the connection has been reset.
const LOOK: Duration = Duration::from_millis(20);

/// A running switch.
#[derive(Debug)]
pub(super) struct Switch {
    /// The address that it listens on.
    pub(super) address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Starts a switch to this server.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn start(server: SocketAddr) -> Result<Self, Wrong> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let (server, stop) = (Arc::new(Mutex::new(server)), Arc::default());
        let (its_server, its_stop) = (Arc::clone(&server), Arc::clone(&stop));
        let thread = std::thread::spawn(move || accept(&listener, &its_server, &its_stop));
        Ok(Self {
            address,
            server,
            stop,
            thread: Some(thread),
        })
    }

    /// Sets the server of the connections that are made from now on.
    pub(super) fn set_server(&self, server: SocketAddr) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread may be waiting for a connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            // A panic there has already been reported by the case that it failed.
            drop(thread.join());
        }
    }
}

/// Accepts connections until the switch is dropped. Threads of connections end with these.
fn accept(listener: &TcpListener, server: &Mutex<SocketAddr>, stop: &AtomicBool) {
    for from in listener.incoming() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let to = *server.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that cannot be reached is a connection that ends at once.
        let (Ok(from), Ok(to)) = (from, TcpStream::connect(to)) else {
            continue;
        };
        // Without this, what is passed on in pieces waits for acknowledgements.
        let sockets = [from, to].map(|socket| {
            drop(socket.set_nodelay(true));
            drop(socket.set_write_timeout(Some(LOOK)));
            Arc::new(socket)
        });
        let reset = Arc::new(AtomicBool::new(false));
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (Arc::clone(&sockets[from]), Arc::clone(&sockets[to]));
            let reset = Arc::clone(&reset);
            std::thread::spawn(move || pass(&from, &to, &reset));
        }
    }
}

/// Passes one direction on, and the way in which it ends: FIN as FIN, RST as RST.
fn pass(mut from: &TcpStream, to: &TcpStream, reset: &AtomicBool) {
    let mut buffer = [0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                // An error means that it has already ended.
                drop(to.shutdown(Shutdown::Write));
                return;
            }
            Ok(len) if write_all(to, &buffer[..len], reset) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
    }
    // Both sockets send RST when the last of the two threads drops them. Nothing is sent until then. The other thread is
    // woken by the end of its own reading, or looks at the flag while its receiver takes nothing.
    reset.store(true, Ordering::Release);
    for socket in [from, to] {
        drop(SockRef::from(socket).set_linger(Some(Duration::ZERO)));
        drop(socket.shutdown(Shutdown::Read));
    }
}

/// Writes all bytes. Returns false if the connection ends before, in this direction or by a reset of the other one.
fn write_all(mut to: &TcpStream, mut bytes: &[u8], reset: &AtomicBool) -> bool {
    while !bytes.is_empty() && !reset.load(Ordering::Acquire) {
        match to.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = &bytes[written..],
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => return false,
            },
        }
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Instant;

    use super::*;

    /// Returns a client, and what it is connected to through a switch.
    fn connected() -> (Switch, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let switch = Switch::start(listener.local_addr().unwrap()).unwrap();
        let client = TcpStream::connect(switch.address).unwrap();
        let (server, _) = listener.accept().unwrap();
        for socket in [&client, &server] {
            let patience = Some(crate::stream::PATIENCE);
            socket.set_read_timeout(patience).unwrap();
        }
        (switch, client, server)
    }

    #[test]
    fn bytes_pass_both_ways_and_an_end_in_order_too() {
        let (_switch, mut client, mut server) = connected();
        client.write_all(&[7; 100_000]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert_eq!(all, [7; 100_000]);
        server.write_all(b"answer").unwrap();
        drop(server);
        all.clear();
        client.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"answer");
    }

    #[test]
    fn a_reset_passes() {
        let (_switch, mut client, server) = connected();
        SockRef::from(&server)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(server);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_reset_passes_to_a_server_that_reads_nothing() {
        let (_switch, mut client, mut server) = connected();
        client.set_write_timeout(Some(10 * LOOK)).unwrap();
        // Until the switch waits for the server to read.
        while client.write(&[7; BUFFER]).is_ok() {}
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        // The switch, which cannot read from the client, learns of its end when it has something for it.
        let end = Instant::now() + crate::stream::PATIENCE;
        let error = loop {
            match server.write(b"x") {
                Ok(_) => std::thread::sleep(LOOK),
                Err(error) => break error,
            }
            assert!(Instant::now() < end, "the server was not told");
        };
        assert!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            "{error}"
        );
    }

    #[test]
    fn each_connection_has_the_server_of_its_time() {
        let (switch, mut first, mut its_server) = connected();
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        switch.set_server(other.local_addr().unwrap());
        let mut second = TcpStream::connect(switch.address).unwrap();
        let (mut others, _) = other.accept().unwrap();
        for (client, server) in [(&mut first, &mut its_server), (&mut second, &mut others)] {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
        }
    }
}

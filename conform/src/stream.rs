//! A TCP connection of a scripted peer, and its end.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::watch::{Watched, Watcher};

/// The default of the longest wait for something that must come, which is how long a failure takes.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The receive buffer of the scripted peer's socket, bytes: so small that the other end soon notices
/// that nothing is read.
pub const SMALL: usize = 64 << 10;
/// The interval at which a waiting peer does other work.
const GLANCE: Duration = Duration::from_millis(20);

/// The reason why nothing more can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// FIN at a point at which the stream may end.
    #[error("closed in order")]
    Closed,
    /// FIN in the middle of a frame or FPDU.
    #[error("closed in the middle of an FPDU")]
    CutShort,
    /// RST.
    #[error("reset")]
    Reset,
    /// No data came in time.
    #[error("nothing came in time")]
    Late,
    /// The peer sent something invalid.
    #[error("{0}")]
    Nonsense(String),
    /// The peer has terminated the connection, and a device reports why, in words of its own.
    #[error("terminated: {0}")]
    Terminated(String),
    /// This end's device has ended the connection, because of what the peer did.
    #[error("ended by the device of this end: {0}")]
    Refused(String),
}

/// A function that is called while nothing arrives. It returns false if waiting is pointless.
pub type Meanwhile<'a> = &'a mut dyn FnMut() -> bool;

/// A TCP connection.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    /// The longest wait of one read.
    patience: Duration,
    /// The time after which nothing is read any more, however much comes.
    deadline: Option<Instant>,
    /// A flag that ends every read and write, however much comes.
    stop: Option<Arc<AtomicBool>>,
    /// Whether a write was answered with RST, which the system reports only once.
    reset: bool,
    /// Whether a write has failed.
    failed: bool,
    /// Whether this end has ended the connection.
    ended: bool,
    /// The observer.
    watched: Option<Watched>,
}

impl Stream {
    /// Wraps a connected socket.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new(socket: TcpStream) -> std::io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(GLANCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            patience: PATIENCE,
            deadline: None,
            stop: None,
            reset: false,
            failed: false,
            ended: false,
            watched: None,
        })
    }

    /// Connects to a listening peer.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(SMALL)?;
        socket.connect(&address.into())?;
        Self::new(socket.into())
    }

    /// Connects within `patience`, which is also the longest wait of each read and write.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn connect_within(address: SocketAddr, patience: Duration) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.connect_timeout(&address.into(), patience)?;
        let mut stream = Self::new(socket.into())?;
        stream.socket.set_write_timeout(Some(patience))?;
        stream.patience = patience;
        Ok(stream)
    }

    /// Shows what is sent and received from here on to an observer.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn watch(&mut self, watcher: &Watcher) -> std::io::Result<()> {
        let ends = [self.socket.local_addr()?, self.socket.peer_addr()?];
        self.watched = Some(watcher.connection(ends));
        Ok(())
    }

    /// Sets the longest wait of each read.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sets the time after which every read fails with [`Gone::Late`].
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Sets a flag after which reads and writes fail. Nothing is written any more after a write that failed.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn stop_by(&mut self, stop: Arc<AtomicBool>) -> std::io::Result<()> {
        self.socket.set_write_timeout(Some(GLANCE))?;
        self.stop = Some(stop);
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|it| it.load(Ordering::Acquire))
    }

    /// Returns whether a write has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Sends raw bytes. Returns whether that succeeded; a later read shows the reason of a failure.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        if self.failed && self.stop.is_some() {
            return false;
        }
        if let Some(watched) = &self.watched {
            watched.bytes(true, bytes);
        }
        let written = match self.stop {
            Some(_) => self.write_until_stopped(bytes),
            None => self.socket.write_all(bytes),
        };
        if let Err(error) = &written {
            self.failed = true;
            self.reset |= error.kind() == ErrorKind::ConnectionReset;
        }
        written.is_ok()
    }

    fn write_until_stopped(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        let mut since = Instant::now();
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    since = Instant::now();
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if since.elapsed() < PATIENCE => {}
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
            if !bytes.is_empty() && self.is_stopped() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Sends FIN.
    pub fn shut(&self) {
        // An error means that the connection has already ended.
        drop(self.socket.shutdown(std::net::Shutdown::Write));
    }

    /// Ends the connection. Later reads fail with [`Gone::Closed`], whatever comes, and writes fail.
    pub fn end(&mut self) {
        self.ended = true;
        // An error means that the connection has already ended.
        drop(self.socket.shutdown(std::net::Shutdown::Both));
    }

    /// Makes closing the socket send RST.
    pub fn reset_on_close(&self) {
        drop(SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)));
    }

    /// Returns whether there is something to read now, or the end of the stream.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        let peeked = self
            .socket
            .set_nonblocking(true)
            .and_then(|()| self.socket.peek(&mut [0]));
        let is_waiting = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        // If the socket blocks no more, the next read fails and says so.
        self.socket.set_nonblocking(false).is_err() || !is_waiting
    }

    /// Waits until there is something to read, or the end of the stream. Returns false if `goes_on` does first.
    pub fn is_readable(&mut self, goes_on: Meanwhile<'_>) -> bool {
        loop {
            match self.socket.peek(&mut [0]) {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    if !goes_on() {
                        return false;
                    }
                }
                // A read shows the reason of an error.
                Ok(_) | Err(_) => return true,
            }
        }
    }

    /// Reads `len` bytes. `boundary` tells whether the stream may end here.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn read(
        &mut self,
        len: usize,
        boundary: bool,
        meanwhile: Meanwhile<'_>,
    ) -> Result<Vec<u8>, Gone> {
        let (start, mut bytes, mut done) = (Instant::now(), vec![0; len], 0);
        while done < len {
            if self.ended {
                return Err(Gone::Closed);
            }
            if self.is_stopped() || self.deadline.is_some_and(|it| Instant::now() > it) {
                return Err(Gone::Late);
            }
            match self.socket.read(&mut bytes[done..]) {
                Ok(0) if self.reset => return Err(Gone::Reset),
                Ok(0) if done == 0 && boundary => return Err(Gone::Closed),
                Ok(0) => return Err(Gone::CutShort),
                Ok(n) => {
                    if let Some(watched) = &self.watched {
                        watched.bytes(false, &bytes[done..done + n]);
                    }
                    done += n;
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut
                        if start.elapsed() > self.patience =>
                    {
                        return Err(Gone::Late);
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if !meanwhile() => {
                        return Err(Gone::Late);
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    ErrorKind::Interrupted => {}
                    _ => return Err(Gone::Reset),
                },
            }
        }
        Ok(bytes)
    }
}

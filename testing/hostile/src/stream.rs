//! A TCP connection of the hostile peer's, and how it ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

/// Longest wait for something that must come. It only decides how long a failure takes.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that a socket of the hostile peer's takes in before anything is read: so few that a victim
/// notices soon that nothing is.
pub const SMALL: usize = 64 << 10;
/// How often somebody who waits looks after other things.
const GLANCE: Duration = Duration::from_millis(20);

/// Why there is nothing more to read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// FIN, where the stream may end.
    #[error("closed in order")]
    Closed,
    /// FIN in the middle of a frame or FPDU.
    #[error("closed in the middle of an FPDU")]
    CutShort,
    /// RST.
    #[error("reset")]
    Reset,
    /// Nothing came.
    #[error("nothing came in {PATIENCE:?}")]
    Late,
    /// The victim said what nobody should say.
    #[error("{0}")]
    Nonsense(String),
}

/// What is done while nothing arrives. False: it is not worth waiting any longer.
pub type Meanwhile<'a> = &'a mut dyn FnMut() -> bool;

/// A connection.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    /// A write was answered with RST. The system says so once only.
    reset: bool,
}

impl Stream {
    /// Over a connected socket.
    ///
    /// # Errors
    /// What the system refused.
    pub fn new(socket: TcpStream) -> std::io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(GLANCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let reset = false;
        Ok(Self { socket, reset })
    }

    /// Connects to a victim that listens.
    ///
    /// # Errors
    /// What the system refused.
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(SMALL)?;
        socket.connect(&address.into())?;
        Self::new(socket.into())
    }

    /// Sends bytes as they are. Returns whether they are on their way; why not, shows when something
    /// is read.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let written = self.socket.write_all(bytes);
        if let Err(error) = &written {
            self.reset |= error.kind() == ErrorKind::ConnectionReset;
        }
        written.is_ok()
    }

    /// Ends this direction: FIN.
    pub fn shut(&self) {
        // An error means that there is nothing left to end.
        drop(self.socket.shutdown(std::net::Shutdown::Write));
    }

    /// Makes the close of the socket an RST.
    pub fn reset_on_close(&self) {
        drop(SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)));
    }

    /// The next `len` bytes. `boundary`: the stream may end here.
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
            match self.socket.read(&mut bytes[done..]) {
                Ok(0) if self.reset => return Err(Gone::Reset),
                Ok(0) if done == 0 && boundary => return Err(Gone::Closed),
                Ok(0) => return Err(Gone::CutShort),
                Ok(n) => done += n,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if start.elapsed() > PATIENCE => {
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

//! Calls to the rpcbind of this machine.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onc_rpc::record::{self, RecordReader};
use onc_rpc::rpcbind::{
    DUMP, Mapping, RPCBIND_PORT, RPCBIND_PROGRAM, RPCBIND_VERSION, SET, UNSET, decode_mappings,
};
use onc_rpc::{
    AcceptStatus, CallHeader, Credential, Decoder, Encoder, Message, ReplyBody, ReplyHeader,
    Verifier,
};
use rpcrdma_setup::{Context, Failure};
use socket2::{Domain, Socket, Type};

/// The socket at which rpcbind knows the user who calls.
const SOCKET: &str = "/run/rpcbind.sock";
/// How long rpcbind may take for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum length of a reply, bytes: some ten thousand mappings.
const MAX_REPLY: u32 = 1 << 20;
/// The ports from which rpcbind accepts registrations over TCP (`bindresvport(3)`).
const RESERVED_PORTS: std::ops::Range<u16> = 600..1024;

/// The way to the rpcbind of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Way {
    /// Its socket in the file system.
    File,
    /// Its socket in the abstract namespace, which newer versions have as well. Containers that share
    /// the network with the host have this one alone.
    Abstract,
    /// TCP over loopback, from a port that only privileged processes can use.
    Loopback,
}

impl Way {
    /// Returns the way to the rpcbind of this machine, or `None` if none runs.
    ///
    /// # Errors
    /// One runs, but this process may not use it.
    pub(in crate::serve) fn find() -> Result<Option<Self>, Failure> {
        for way in [Self::File, Self::Abstract, Self::Loopback] {
            // Where network namespaces share a file system, the file leads to the rpcbind of one of them.
            if way == Self::File && !is_of_this_network(SOCKET) {
                continue;
            }
            match way.connect() {
                Ok(_) => return Ok(Some(way)),
                Err(error) if is_absent(&error) => {}
                // An ordinary user cannot have a privileged port, so TCP is of no use to it.
                Err(error)
                    if way == Self::Loopback && error.kind() == io::ErrorKind::PermissionDenied => {
                }
                Err(error) => return Err(Failure::Work(cannot_reach(&error))),
            }
        }
        Ok(None)
    }

    fn connect(self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::File => Box::new(UnixStream::connect(SOCKET)?),
            Self::Abstract => {
                let name = LocalAddr::from_abstract_name(SOCKET)?;
                Box::new(UnixStream::connect_addr(&name)?)
            }
            Self::Loopback => Box::new(connect_from_reserved_port()?),
        })
    }

    /// Connects to rpcbind, for calls one after the other.
    pub(super) fn open(self) -> Result<Rpcbind, Failure> {
        let stream = self.connect();
        let stream = stream.map_err(|error| Failure::Work(cannot_reach(&error)))?;
        Ok(Rpcbind { stream, xid: 0 })
    }
}

fn cannot_reach(error: &io::Error) -> String {
    format!("cannot connect to rpcbind: {error}")
}

/// Returns whether an error of connecting means that there is no rpcbind.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | ConnectionRefused)
}

/// Returns whether a socket file was bound in the network namespace of this process: the kernel lists
/// only those. Where the list cannot be read, there is no other namespace to be expected.
fn is_of_this_network(path: &str) -> bool {
    let Ok(sockets) = fs::read_to_string("/proc/net/unix") else {
        return true;
    };
    // /var/run is the same directory.
    let is_path = |name: &str| name.strip_prefix("/var").unwrap_or(name) == path;
    sockets
        .lines()
        .any(|line| line.split_whitespace().nth(7).is_some_and(is_path))
}

fn connect_from_reserved_port() -> io::Result<TcpStream> {
    let daemon = SocketAddr::from((Ipv4Addr::LOCALHOST, RPCBIND_PORT));
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in RESERVED_PORTS.rev() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let bound = socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into());
        match bound.and_then(|()| socket.connect_timeout(&daemon.into(), PATIENCE)) {
            Ok(()) => return Ok(socket.into()),
            // The port is taken, or was a moment ago.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                ) =>
            {
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// A stream whose operations can be limited in time.
trait Stream: Read + Write {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// A connection to rpcbind.
pub(super) struct Rpcbind {
    stream: Box<dyn Stream>,
    /// The XID of the last call.
    xid: u32,
}

impl Rpcbind {
    /// Returns all mappings.
    pub(super) fn mappings(&mut self) -> Result<Vec<Mapping>, Failure> {
        let (reply, results) = self.call(DUMP, Encoder::new())?;
        decode_mappings(&mut Decoder::at(&reply, results)).context(NO_ANSWER)
    }

    /// Registers a mapping. Returns false if rpcbind refuses it.
    pub(super) fn set(&mut self, mapping: &Mapping) -> Result<bool, Failure> {
        self.change(SET, mapping)
    }

    /// Removes a mapping. Returns false if rpcbind refuses that: the mapping is another user's.
    pub(super) fn unset(&mut self, mapping: &Mapping) -> Result<bool, Failure> {
        self.change(UNSET, mapping)
    }

    fn change(&mut self, procedure: u32, mapping: &Mapping) -> Result<bool, Failure> {
        let mut args = Encoder::new();
        mapping.encode(&mut args);
        let (reply, results) = self.call(procedure, args)?;
        Decoder::at(&reply, results).bool().context(NO_ANSWER)
    }

    /// Calls a procedure. Returns the reply, and where its results begin.
    fn call(
        &mut self,
        procedure: u32,
        args: Encoder,
    ) -> Result<(Message, onc_rpc::Cursor), Failure> {
        self.xid += 1;
        let header = CallHeader {
            xid: self.xid,
            prog: RPCBIND_PROGRAM,
            vers: RPCBIND_VERSION,
            proc: procedure,
            cred: Credential::None,
            verf: Verifier::default(),
        };
        let mut call = args.finish();
        call.prepend(header.encode());
        let reply = self.exchange(&call).context(NO_ANSWER)?;
        let mut decoder = Decoder::new(&reply);
        let header = ReplyHeader::decode(&mut decoder).context(NO_ANSWER)?;
        let results = decoder.cursor();
        match header.body {
            ReplyBody::Accepted {
                status: AcceptStatus::Success,
                ..
            } if header.xid == self.xid => Ok((reply, results)),
            body => Err(Failure::Work(format!("rpcbind refuses a call: {body:?}"))),
        }
    }

    /// Sends a call and receives a record.
    fn exchange(&mut self, call: &Message) -> io::Result<Message> {
        let end = Instant::now() + PATIENCE;
        self.stream.limit(PATIENCE)?;
        let mut sent = Vec::from(record::header(call.payload_len()).map_err(io::Error::other)?);
        sent.extend(call.payload().concat());
        self.stream.write_all(&sent)?;
        let mut reader = RecordReader::new(MAX_REPLY);
        let mut buffer = [0; 4096];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // No time at all would be no limit.
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.limit(left)?;
            let n = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut received = Bytes::copy_from_slice(&buffer[..n]);
            if let Some(record) = reader.feed(&mut received).map_err(io::Error::other)? {
                return Ok(Message::without_items(record));
            }
        }
    }
}

/// The error text for a call without a usable reply.
const NO_ANSWER: &str = "no answer from rpcbind";

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Lets rpcbind answer the first call with these bytes, and returns what comes of it.
    fn answered(answer: impl FnOnce(&mut UnixStream) + Send) -> Result<Vec<Mapping>, String> {
        let (ours, mut its) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut call = [0; 44];
                its.read_exact(&mut call).unwrap();
                answer(&mut its);
            });
            let stream = Box::new(ours);
            let mut rpcbind = Rpcbind { stream, xid: 6 };
            rpcbind.mappings().map_err(|failure| failure.to_string())
        })
    }

    /// Returns a record of a reply with the given XID and results.
    fn reply(xid: u32, status: AcceptStatus, results: &[u8]) -> Vec<u8> {
        let header = ReplyHeader::accepted(xid, status).encode();
        let len = (header.len() + results.len()) as u64;
        [&record::header(len).unwrap()[..], &header, results].concat()
    }

    #[test]
    fn replies_are_read_whole_and_bad_ones_are_errors() {
        let success = AcceptStatus::Success;
        let empty = answered(|its| {
            for byte in reply(7, success, &[0; 4]) {
                its.write_all(&[byte]).unwrap();
            }
        });
        assert_eq!(empty, Ok(Vec::new()));
        let cases = [
            (Vec::new(), "no answer"),
            (vec![0xff; 8], "record"),
            (reply(8, success, &[0; 4]), "refuses"),
            (reply(7, success, &[0; 3]), "no answer"),
            (reply(7, success, &[0, 0, 0, 2]), "no answer"),
            (reply(7, AcceptStatus::ProgUnavail, &[]), "refuses"),
            (reply(7, success, &[0; 4])[..20].to_vec(), "no answer"),
        ];
        for (bytes, word) in cases {
            let error = answered(|its| its.write_all(&bytes).unwrap()).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_socket_file_that_is_bound_here_is_of_this_network() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpcbind.sock");
        let path = path.to_str().unwrap();
        assert!(!is_of_this_network(path));
        let _listener = UnixListener::bind(path).unwrap();
        assert!(is_of_this_network(path));
    }
}

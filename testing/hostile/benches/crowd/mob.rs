//! The crowd: plain sockets that hold the memory that they get, and reconnect when they are
//! disconnected.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hostile::stream::SMALL;
use hostile::wire::ddp::Untagged;
use hostile::wire::mpa::{self, Frame};
use hostile::wire::rpc;
use hostile::wire::v1::{self, segment};
use hostile::{Wrong, wrong};
use socket2::{Domain, Socket, Type};

use crate::served::Addresses;

/// The bytes of a READ or WRITE.
const LEN: u32 = 1 << 20;
/// The number of calls that a connection over RDMA may have outstanding, which the server grants.
const CREDITS: u32 = 64;
/// The number of groups of members over TCP, and over RDMA.
const TCP_KINDS: usize = 4;
const RDMA_KINDS: usize = 5;
/// The number of segments of a chunk list that fills more than a little of a receive.
const SEGMENTS: u32 = 64;
/// The pause between two rounds over all connections.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a connection that reads no replies waits before it checks whether it is still
/// connected.
const SILENCE: Duration = Duration::from_secs(5);
/// The time-out of connection setup.
const PATIENCE: Duration = Duration::from_secs(20);

/// The behaviour of a group of members.
struct Kind {
    address: SocketAddr,
    rdma: bool,
    /// The bytes that each member sends.
    said: Vec<u8>,
    /// Whether replies are not read. Over TCP, the bytes are sent repeatedly as long as the server
    /// reads.
    deaf: bool,
}

struct Member {
    kind: usize,
    /// `None` if it could not connect.
    socket: Option<TcpStream>,
    at: usize,
    since: Instant,
}

/// The crowd; see the module documentation.
pub(crate) struct Mob {
    begin: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

fn call(xid: u32, procedure: u32, args: Vec<u8>) -> Vec<u8> {
    let call = rpc::Call {
        credential: rpc::root(),
        ..rpc::nfs(xid, procedure, args)
    };
    call.bytes()
}

/// Returns a TCP record of length `len`, of which only the beginning may be present.
fn record(len: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = (0x8000_0000 | len as u32).to_be_bytes().to_vec();
    out.extend(bytes);
    out
}

/// Returns RDMA Sends, one for each credit.
fn sends(message: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let fpdu = |msn| mpa::fpdu(&Untagged::send(msn, &message(msn)).ulpdu(), false);
    (1..=CREDITS).flat_map(fpdu).collect()
}

fn kinds(addresses: Addresses, file: &[u8]) -> Vec<Kind> {
    let read = |xid: u32| {
        let offset = u64::from(xid % 8) * u64::from(LEN);
        call(xid, 6, rpc::read_args(file, offset, LEN))
    };
    let unread_records = (0..8).flat_map(|xid| {
        let call = read(xid);
        record(call.len(), &call)
    });
    let unread = sends(|xid| {
        let mut header = v1::header(xid);
        header.credits = CREDITS;
        header.writes = vec![vec![segment(0x5100_0000 + xid, LEN, 0)]];
        header.with(&read(xid))
    });
    // 64 MiB for each connection.
    let unanswered = sends(|xid| {
        let payload = call(xid, 7, rpc::write_args(file, 0, LEN));
        let mut header = v1::header(xid);
        header.credits = CREDITS;
        header.reads = vec![(payload.len() as u32, segment(0x5200_0000 + xid, LEN, 0))];
        header.with(&payload)
    });
    // The same in chunks of many segments, so that the calls themselves occupy receives.
    let occupying = sends(|xid| {
        let payload = call(xid, 7, rpc::write_args(file, 0, LEN));
        let mut header = v1::header(xid);
        header.credits = CREDITS;
        let each = LEN / SEGMENTS;
        let part = |n| segment(0x5300_0000 + xid, each, u64::from(n * each));
        let position = payload.len() as u32;
        header.reads = (0..SEGMENTS).map(|n| (position, part(n))).collect();
        header.with(&payload)
    });
    let half = unread[..100].to_vec();
    let long = LEN as usize;
    let kind = |address, rdma, said, deaf| Kind {
        address,
        rdma,
        said,
        deaf,
    };
    let Addresses { rdma, tcp } = addresses;
    vec![
        kind(tcp, false, unread_records.collect(), true),
        kind(tcp, false, record(long, &vec![0; long * 2 / 3]), false),
        kind(tcp, false, record(long, &[]), false),
        kind(tcp, false, Vec::new(), false),
        kind(rdma, true, unanswered, false),
        kind(rdma, true, occupying, false),
        kind(rdma, true, unread, true),
        kind(rdma, true, half, false),
        kind(rdma, true, Vec::new(), false),
    ]
}

impl Mob {
    /// Connects these numbers of members over TCP and over RDMA, in groups of equal size.
    pub(crate) fn gather(
        addresses: Addresses,
        file: Vec<u8>,
        tcp: usize,
        rdma: usize,
    ) -> Result<Self, Wrong> {
        let kinds = kinds(addresses, &file);
        let kinds_of = (0..tcp)
            .map(|at| at % TCP_KINDS)
            .chain((0..rdma).map(|at| TCP_KINDS + at % RDMA_KINDS));
        let mut members = Vec::new();
        for kind in kinds_of {
            members.push(Member {
                kind,
                socket: Some(connect(&kinds[kind])?),
                at: 0,
                since: Instant::now(),
            });
        }
        let (begin, stop) = (Arc::default(), Arc::default());
        let (begun, stopped): (Arc<AtomicBool>, Arc<AtomicBool>) =
            (Arc::clone(&begin), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut back = 0;
            while !stopped.load(Ordering::Relaxed) {
                if begun.load(Ordering::Relaxed) {
                    for member in &mut members {
                        if !visit(member, &kinds[member.kind]) {
                            member.socket = connect(&kinds[member.kind]).ok();
                            (member.at, member.since) = (0, Instant::now());
                            back += 1;
                        }
                    }
                }
                thread::sleep(PAUSE);
            }
            back
        });
        Ok(Self {
            begin,
            stop,
            thread,
        })
    }

    /// Makes the members start sending.
    pub(crate) fn begin(&self) {
        self.begin.store(true, Ordering::Relaxed);
    }

    /// Ends the crowd. Returns the number of reconnects.
    pub(crate) fn end(self) -> Result<usize, Wrong> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| wrong("the crowd panicked"))
    }
}

fn connect(kind: &Kind) -> Result<TcpStream, Wrong> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(wrong)?;
    socket.set_recv_buffer_size(SMALL).map_err(wrong)?;
    socket.connect(&kind.address.into()).map_err(wrong)?;
    let mut socket = TcpStream::from(socket);
    if kind.rdma {
        socket.set_read_timeout(Some(PATIENCE)).map_err(wrong)?;
        socket.write_all(&Frame::request().bytes()).map_err(wrong)?;
        let mut head = [0; 20];
        socket.read_exact(&mut head).map_err(wrong)?;
        if head[16] & mpa::REJECT != 0 {
            return Err(wrong("rejected"));
        }
        let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
        socket.read_exact(&mut private).map_err(wrong)?;
    }
    socket.set_nonblocking(true).map_err(wrong)?;
    Ok(socket)
}

/// Sends and receives as much as possible without waiting. Returns false if the member was
/// disconnected.
fn visit(member: &mut Member, kind: &Kind) -> bool {
    let Some(socket) = &mut member.socket else {
        return false;
    };
    let waits = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
    while member.at < kind.said.len() {
        match socket.write(&kind.said[member.at..]) {
            Ok(n) => {
                member.at += n;
                member.since = Instant::now();
                if kind.deaf && !kind.rdma {
                    member.at %= kind.said.len();
                }
            }
            Err(error) if waits(&error) => break,
            Err(_) => return false,
        }
    }
    if kind.deaf {
        // One message beyond the credits shows whether the peer is still there. If it is, it closes
        // the connection.
        return !(kind.rdma
            && member.since.elapsed() > SILENCE
            && socket
                .write(&kind.said[..1])
                .is_err_and(|error| !waits(&error)));
    }
    let mut heard = [0; 4096];
    loop {
        match socket.read(&mut heard) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return waits(&error),
        }
    }
}

//! One TCP connection: records in, records out.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use bytes::Bytes;
use mio::net::TcpStream;
use onc_rpc::record::{self, RecordError, RecordReader, Want};
use onc_rpc::{Message, Segments};
use smallvec::SmallVec;
use verbs::{Buf, Pool, Time};

use super::TcpCounters;

/// Bytes received at a time while it is not known what comes: several short records, or the
/// beginning of a long one. That beginning is copied, so this is not larger than pays.
const STAGING: usize = 8 << 10;
/// Pieces given to one system call.
const MAX_IOV: usize = 64;
/// Sends of up to so many bytes are copied into one piece: dearer than the copy is a system call
/// that takes several.
const SMALL_SEND: usize = 512;
/// Receives in a row before other connections get their turn, and bytes: what a long record asks
/// for, such as the next call, should be on its way while the next record is received.
const BURST: usize = 32;
const BURST_BYTES: u64 = 256 << 10;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// The peer closed it, between records or within one.
    #[error("closed by the peer")]
    Eof,
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("record of {len} bytes, where the pool has {limit}")]
    NoPool { len: usize, limit: usize },
}

/// A record to send.
struct Outbound {
    mark: [u8; record::HEADER_LEN],
    parts: Segments,
    /// Bytes, mark included.
    len: usize,
    xid: u32,
    /// When it may go out.
    release: Time,
}

/// See the module.
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    /// There may be something to receive: readiness is edge-triggered.
    readable: bool,
    writable: bool,
    /// The end of the stream is there, behind what bytes there are.
    closed: bool,
    reader: RecordReader,
    staging: Box<[u8]>,
    /// What of `staging` was received and not used.
    staged: std::ops::Range<usize>,
    /// A long fragment that is being received, and how much of it is there.
    body: Option<(Buf, usize)>,
    /// The pool had no buffer for a fragment.
    starved: bool,
    out: VecDeque<Outbound>,
    /// Bytes in `out`, and how many of the first record are sent.
    out_bytes: usize,
    sent: usize,
}

impl Stream {
    pub(super) fn new(socket: TcpStream, max_record: u32) -> Self {
        Self {
            socket,
            readable: false,
            writable: false,
            closed: false,
            reader: RecordReader::new(max_record),
            staging: vec![0; STAGING].into_boxed_slice(),
            staged: 0..0,
            body: None,
            starved: false,
            out: VecDeque::new(),
            out_bytes: 0,
            sent: 0,
        }
    }

    /// Something became possible; `closed` when the end of the stream is there.
    pub(super) fn set_ready(&mut self, closed: bool) {
        (self.readable, self.writable) = (true, true);
        self.closed |= closed;
    }

    /// Whether there may be something to do for [`Stream::receive`].
    pub(super) fn readable(&self) -> bool {
        self.readable || !self.staged.is_empty()
    }

    /// Whether the pool must be asked again.
    pub(super) fn starved(&self) -> bool {
        self.starved
    }

    /// Bytes waiting to be sent.
    pub(super) fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// When the next record may go out, if there is one.
    pub(super) fn next_release(&self) -> Option<Time> {
        Some(self.out.front()?.release)
    }

    /// Receives. Gives every record that is complete to `deliver`, until that says no more.
    /// `look` receives although nothing was reported.
    pub(super) fn receive(
        &mut self,
        look: bool,
        pool: &Pool,
        counters: &mut TcpCounters,
        mut deliver: impl FnMut(Message) -> bool,
    ) -> Result<(), Ended> {
        self.starved = false;
        self.readable |= look;
        let enough = counters.wire_bytes_received + BURST_BYTES;
        let mut delivered = false;
        for _ in 0..BURST {
            let more = self.use_staged(pool, counters, &mut |message| {
                delivered = true;
                deliver(message)
            })?;
            if !more || !self.readable || (delivered && counters.wire_bytes_received >= enough) {
                return Ok(());
            }
            match self.fill(counters) {
                Ok(()) => {}
                Err(Ended::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                }
                Err(Ended::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Uses up what was received. Returns whether to receive more.
    fn use_staged(
        &mut self,
        pool: &Pool,
        counters: &mut TcpCounters,
        deliver: &mut impl FnMut(Message) -> bool,
    ) -> Result<bool, Ended> {
        loop {
            let staged = &self.staging[self.staged.clone()];
            match self.reader.want() {
                Want::Take => {
                    if let Some(record) = self.reader.take() {
                        counters.receives += 1;
                        if !deliver(Message::new(record, [])) {
                            return Ok(false);
                        }
                    }
                }
                Want::Header(_) if staged.is_empty() => return Ok(true),
                Want::Header(_) => self.staged.start += self.reader.header(staged)?,
                Want::Body { .. } if self.body.is_some() => return Ok(true),
                Want::Body { len, .. } if staged.len() >= len => {
                    let mut body = Bytes::copy_from_slice(&staged[..len]);
                    counters.copied_bytes += len as u64;
                    self.reader.body(&mut body);
                    self.staged.start += len;
                }
                Want::Body { len, .. } => {
                    let Ok(mut buf) = pool.alloc(len) else {
                        let limit = pool.limit();
                        if len > limit {
                            return Err(Ended::NoPool { len, limit });
                        }
                        self.starved = true;
                        return Ok(false);
                    };
                    let filled = staged.len();
                    buf[..filled].copy_from_slice(staged);
                    counters.copied_bytes += filled as u64;
                    self.staged = 0..0;
                    self.body = Some((buf, filled));
                }
            }
        }
    }

    /// Receives once: the rest of a long fragment straight into its buffer, and what follows it,
    /// with the same system call, into the staging area, which is empty.
    fn fill(&mut self, counters: &mut TcpCounters) -> Result<(), Ended> {
        counters.receive_calls += 1;
        let (n, wanted) = match &mut self.body {
            None => (self.socket.read(&mut self.staging)?, self.staging.len()),
            Some((buf, filled)) => {
                let rest = &mut buf[*filled..];
                let wanted = rest.len() + self.staging.len();
                let mut into = [IoSliceMut::new(rest), IoSliceMut::new(&mut self.staging)];
                (self.socket.read_vectored(&mut into)?, wanted)
            }
        };
        if n == 0 {
            return Err(Ended::Eof);
        }
        counters.wire_bytes_received += n as u64;
        // A short read took all there was, and what comes later is reported anew; but the end of
        // the stream was reported together with what came before it.
        self.readable = n == wanted || self.closed;
        let mut staged = n;
        if let Some((buf, filled)) = &mut self.body {
            let direct = n.min(buf.len() - *filled);
            *filled += direct;
            staged -= direct;
            if *filled == buf.len()
                && let Some((buf, _)) = self.body.take()
            {
                self.reader.body(&mut buf.freeze());
            }
        }
        self.staged = 0..staged;
        Ok(())
    }

    /// Queues a record, to go out at `release` or later.
    pub(super) fn queue(
        &mut self,
        xid: u32,
        message: &Message,
        release: Time,
    ) -> Result<(), RecordError> {
        let parts = message.gather(|_| true);
        let len: usize = parts.iter().map(Bytes::len).sum();
        let mark = record::header(len as u64)?;
        let len = len + mark.len();
        self.out_bytes += len;
        self.out.push_back(Outbound {
            mark,
            parts,
            len,
            xid,
            release,
        });
        Ok(())
    }

    /// Takes a record back, if none of it was sent.
    pub(super) fn unqueue(&mut self, xid: u32) {
        let first = usize::from(self.sent > 0);
        let found = (first..self.out.len()).find(|at| self.out[*at].xid == xid);
        if let Some(outbound) = found.and_then(|at| self.out.remove(at)) {
            self.out_bytes -= outbound.len;
        }
    }

    /// Sends what may go out. `look` tries although the socket was full.
    pub(super) fn flush(
        &mut self,
        look: bool,
        now: Time,
        counters: &mut TcpCounters,
    ) -> io::Result<()> {
        self.writable |= look;
        while self.writable && self.out.front().is_some_and(|out| out.release <= now) {
            match self.send_once(now, counters) {
                Ok((n, wanted)) => {
                    counters.wire_bytes_sent += n as u64;
                    self.writable = n == wanted;
                    self.advance(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends with one system call. Returns how much went out, and how much was to.
    fn send_once(&self, now: Time, counters: &mut TcpCounters) -> io::Result<(usize, usize)> {
        let (pieces, wanted) = self.pieces(now);
        counters.send_calls += 1;
        let mut socket = &self.socket;
        let n = if wanted <= SMALL_SEND {
            let mut whole = [0; SMALL_SEND];
            let mut rest = &mut whole[..];
            for piece in &pieces {
                rest.write_all(piece)?;
            }
            counters.copied_bytes += wanted as u64;
            socket.write(&whole[..wanted])?
        } else {
            socket.write_vectored(&pieces)?
        };
        Ok((n, wanted))
    }

    /// The next bytes to send, and how many.
    fn pieces(&self, now: Time) -> (SmallVec<[IoSlice<'_>; MAX_IOV]>, usize) {
        let mut pieces = SmallVec::new();
        let (mut skip, mut wanted) = (self.sent, 0);
        let due = self.out.iter().take_while(|out| out.release <= now);
        for outbound in due {
            let parts = outbound.parts.iter().map(|part| &part[..]);
            for part in std::iter::once(&outbound.mark[..]).chain(parts) {
                if pieces.len() == MAX_IOV {
                    return (pieces, wanted);
                }
                let rest = &part[skip.min(part.len())..];
                skip -= part.len() - rest.len();
                if !rest.is_empty() {
                    wanted += rest.len();
                    pieces.push(IoSlice::new(rest));
                }
            }
        }
        (pieces, wanted)
    }

    fn advance(&mut self, n: usize) {
        self.out_bytes -= n;
        self.sent += n;
        while let Some(first) = self.out.front()
            && self.sent >= first.len
        {
            self.sent -= first.len;
            self.out.pop_front();
        }
    }
}

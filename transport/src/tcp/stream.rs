//! One TCP connection: receives and sends records.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use bytes::Bytes;
use mio::net::TcpStream;
use onc_rpc::record::{self, RecordError, RecordReader, Want};
use onc_rpc::{Message, Segments};
use rdma::middleware::Shaper;
use rdma::{Buf, Pool, Time};
use rpcrdma_host::{Account, Charge};
use smallvec::SmallVec;

use super::TcpCounters;
use super::progress::Progress;

/// The size of the staging area in bytes, used when it is not known what arrives: several short
/// records, or the beginning of a long one. That beginning is copied, which limits the useful size.
const STAGING: usize = 8 << 10;
/// The maximum number of pieces in one system call.
const MAX_IOV: usize = 64;
/// Sends of up to this many bytes are copied into one piece. A system call with several pieces
/// costs more than the copy.
const SMALL_SEND: usize = 512;
/// The size in bytes of the first buffer for a long fragment when the credit does not suffice for
/// all of it. A connection that has filled it gets a buffer for the whole: buffers that grew step
/// by step could together use up all memory without any becoming complete.
const FIRST_GRANT: usize = 32 << 10;
/// The maximum number of receives in a row, and of bytes, before other connections get their turn:
/// the response to a long record, such as the next call, should be on its way while the next record
/// is received.
const BURST: usize = 32;
const BURST_BYTES: u64 = 256 << 10;

/// The reason why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamEnd {
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

/// A long fragment that is being received.
struct Body {
    /// The buffer: for the whole fragment, or for the part that the peer may have for now.
    buf: Buf,
    /// The number of bytes received into it.
    filled: usize,
    /// The fragment's length, bytes.
    len: usize,
}

/// The memory that may be allocated for a peer's long fragment before its bytes arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// The number of bytes that may be allocated on the announcement of a record mark alone. A
    /// longer fragment gets memory as it is filled, so that a few bytes on each of many connections
    /// cannot use up the pool.
    pub(super) unfilled: usize,
    /// The number of bytes that must be left in the pool when a part of a fragment is allocated.
    pub(super) reserve: usize,
}

/// A record to send.
struct Outbound {
    /// The number of bytes charged for it besides memory of a pool.
    charged: usize,
    mark: [u8; record::HEADER_LEN],
    parts: Segments,
    /// The length in bytes, record mark included.
    len: usize,
    /// The XID of a call, which can be taken back; `None` for a reply.
    xid: Option<u32>,
    /// The earliest time to send it; `None` until it is put on the link.
    release: Option<Time>,
}

impl Outbound {
    fn is_due(&self, now: Time) -> bool {
        self.release.is_some_and(|release| release <= now)
    }
}

/// One TCP connection: its socket, the record that is being received, and the records that wait to
/// be sent.
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    /// The pool for receiving long records.
    pool: Pool,
    /// The charge for memory that is not from the pool.
    charge: Charge,
    /// Whether there may be data to receive: readiness is edge-triggered.
    readable: bool,
    writable: bool,
    /// Whether the end of the stream was reported. Data may still come before it.
    closed: bool,
    reader: RecordReader,
    staging: Box<[u8]>,
    /// The part of `staging` that was received and not yet consumed.
    staged: std::ops::Range<usize>,
    body: Option<Body>,
    /// The progress of an incomplete record.
    receiving: Progress,
    /// The progress of records that wait for the peer to read them.
    sending: Progress,
    /// Whether the pool had no buffer for a fragment.
    waits_for_memory: bool,
    out: VecDeque<Outbound>,
    /// The number of bytes of replies in `out`.
    reply_bytes: usize,
    /// How many bytes of the first record in `out` have been sent.
    sent: usize,
}

impl Stream {
    /// Creates a stream that receives into memory of `pool`, and charges other memory to the pool's
    /// account.
    pub(super) fn new(socket: TcpStream, max_record: u32, pool: Pool) -> Self {
        let mut charge = Charge::new(pool.account().cloned());
        charge.add(STAGING + size_of::<Self>());
        Self {
            socket,
            pool,
            charge,
            readable: false,
            writable: false,
            closed: false,
            reader: RecordReader::new(max_record),
            staging: vec![0; STAGING].into_boxed_slice(),
            staged: 0..0,
            body: None,
            receiving: Progress::default(),
            sending: Progress::default(),
            waits_for_memory: false,
            out: VecDeque::new(),
            reply_bytes: 0,
            sent: 0,
        }
    }

    /// Handles a readiness event. `closed` reports the end of the stream.
    pub(super) fn set_ready(&mut self, closed: bool) {
        (self.readable, self.writable) = (true, true);
        self.closed |= closed;
    }

    /// Returns whether there may be work for [`Stream::receive`].
    pub(super) fn readable(&self) -> bool {
        self.readable || !self.staged.is_empty()
    }

    /// Returns whether the stream waits for a buffer from the pool.
    pub(super) fn waits_for_memory(&self) -> bool {
        self.waits_for_memory
    }

    /// Returns the memory that was allocated for the peer's data and is not filled, bytes.
    pub(super) fn promised(&self) -> usize {
        let body = self.body.as_ref();
        body.map_or(0, |body| body.buf.len() - body.filled)
    }

    /// Updates how long an incomplete record has waited for its peer. `came` is the number of bytes
    /// just received. With `held` the server itself has stopped reading, so the peer is not to
    /// blame. A record that waits for buffer memory counts as well if its connection holds more
    /// than its guaranteed memory: otherwise such connections could block each other for ever.
    pub(super) fn note_wait(&mut self, came: u64, held: bool, now: Time) {
        let over = || {
            self.pool
                .account()
                .is_some_and(|account| account.beyond_guaranteed() > 0)
        };
        let waits = !held && !self.reader.at_boundary() && (!self.waits_for_memory || over());
        self.receiving.note(waits, came, now);
    }

    /// Returns the progress of an incomplete record.
    pub(super) fn receiving(&self) -> &Progress {
        &self.receiving
    }

    /// Returns the progress of records that wait for the peer to read them.
    pub(super) fn sending(&self) -> &Progress {
        &self.sending
    }

    /// Returns whether the connection holds memory that others need.
    pub(super) fn holds_scarce_memory(&self) -> bool {
        let account = self.pool.account();
        account.is_some_and(Account::blocks_others)
    }

    /// Returns the number of bytes that the connection could allocate if it freed `own` bytes
    /// first.
    fn room_without(&self, own: usize) -> usize {
        let account = self.pool.account();
        account.map_or(usize::MAX, |account| account.room_without(own))
    }

    /// Marks the connection's memory account as proven once a long record was received completely,
    /// or was taken completely by the socket.
    fn record_completed(&self, len: usize) {
        if len > FIRST_GRANT
            && let Some(account) = self.pool.account()
        {
            account.prove();
        }
    }

    /// Returns the number of bytes of replies that are not sent completely. Calls do not count: were reading
    /// stopped because of them, two ends could each wait for the other to take its calls.
    pub(super) fn reply_bytes(&self) -> usize {
        self.reply_bytes
    }

    /// Returns the earliest time to send the next record, if there is one.
    pub(super) fn next_release(&self) -> Option<Time> {
        self.out.front()?.release
    }

    /// Puts the first record that is not on the link there.
    pub(super) fn put_on(&mut self, link: &mut Shaper, now: Time) {
        let on_it = self.out.partition_point(|out| out.release.is_some());
        if let Some(outbound) = self.out.get_mut(on_it) {
            outbound.release = Some(link.release(now, outbound.len as u64));
        }
    }

    /// Receives data and passes every complete record to `deliver`, until it returns false. With
    /// `look`, tries to receive even if no readiness event came.
    pub(super) fn receive(
        &mut self,
        look: bool,
        credit: Credit,
        counters: &mut TcpCounters,
        mut deliver: impl FnMut(Message) -> bool,
    ) -> Result<(), StreamEnd> {
        self.waits_for_memory = false;
        self.readable |= look;
        let enough = counters.wire_bytes_received + BURST_BYTES;
        let mut delivered = false;
        for _ in 0..BURST {
            let more = self.use_staged(credit, counters, &mut |message| {
                delivered = true;
                deliver(message)
            })?;
            if !more || !self.readable || (delivered && counters.wire_bytes_received >= enough) {
                return Ok(());
            }
            match self.fill(counters) {
                Ok(()) => {}
                Err(StreamEnd::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                }
                Err(StreamEnd::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // The last of these may have completed a record, and nothing would announce that again.
        self.use_staged(credit, counters, &mut deliver).map(|_| ())
    }

    /// Consumes the staged bytes. Returns whether to receive more.
    fn use_staged(
        &mut self,
        credit: Credit,
        counters: &mut TcpCounters,
        deliver: &mut impl FnMut(Message) -> bool,
    ) -> Result<bool, StreamEnd> {
        loop {
            let staged = &self.staging[self.staged.clone()];
            match self.reader.want() {
                Want::Take => {
                    if let Some(record) = self.reader.take() {
                        counters.receives += 1;
                        if !deliver(Message::without_items(record)) {
                            return Ok(false);
                        }
                    }
                }
                Want::Header(_) if staged.is_empty() => return Ok(true),
                Want::Header(_) => self.staged.start += self.reader.header(staged)?,
                Want::Body { .. } if self.body.is_some() => {
                    return self.grow(credit, counters);
                }
                Want::Body { len, last } if staged.len() >= len => {
                    let mut body = Bytes::copy_from_slice(&staged[..len]);
                    // The memory of a record that is one short fragment is part of what is reserved
                    // for its call.
                    if !(last && self.reader.fragments() == 1)
                        && let Some(account) = self.pool.account()
                    {
                        if account.room() < len {
                            self.waits_for_memory = true;
                            return Ok(false);
                        }
                        body = account.hold(body);
                    }
                    counters.copied_bytes += len as u64;
                    self.reader.body(&mut body);
                    self.staged.start += len;
                }
                Want::Body { len, .. } => {
                    let filled = staged.len();
                    let Some(mut buf) = self.body_buf(len, filled, 0, credit)? else {
                        return Ok(false);
                    };
                    buf[..filled].copy_from_slice(&self.staging[self.staged.clone()]);
                    counters.copied_bytes += filled as u64;
                    self.staged = 0..0;
                    self.body = Some(Body { buf, filled, len });
                }
            }
        }
    }

    /// Allocates a buffer for a fragment of `len` bytes, of which `filled` have arrived: for the
    /// whole fragment if there is credit for the rest or if the first part was filled. It replaces
    /// a buffer of `own` bytes. Returns `None` if the fragment has to wait for memory.
    fn body_buf(
        &mut self,
        len: usize,
        filled: usize,
        own: usize,
        credit: Credit,
    ) -> Result<Option<Buf>, StreamEnd> {
        let pool = &self.pool;
        let limit = pool.limit();
        if len > limit {
            return Err(StreamEnd::NoPool { len, limit });
        }
        let room = self.room_without(own);
        let fits = |grant| Pool::block_size(grant) <= room;
        let whole = len - filled <= credit.unfilled && fits(len);
        let grant = match whole || filled >= FIRST_GRANT {
            true => len,
            false => len.min(FIRST_GRANT),
        };
        // Partial buffers that no peer can complete must not use up the pool together.
        let spare = || grant == len || (limit - pool.in_use()) / 2 >= grant.max(credit.reserve);
        let buf = (whole || (fits(grant) && spare())).then(|| pool.alloc(grant));
        self.waits_for_memory = !matches!(buf, Some(Ok(_)));
        Ok(buf.and_then(Result::ok))
    }

    /// Replaces a full partial buffer of a long fragment with a larger one. Returns whether to
    /// receive more. The copy is needed only in exceptional times: while many peers have announced
    /// much and sent little.
    fn grow(&mut self, credit: Credit, counters: &mut TcpCounters) -> Result<bool, StreamEnd> {
        let full = |body: &mut Body| body.filled == body.buf.len();
        let Some(Body { buf, filled, len }) = self.body.take_if(full) else {
            return Ok(true);
        };
        let own = Pool::block_size(buf.len());
        let larger = self.body_buf(len, filled, own, credit)?;
        let more = larger.is_some();
        let buf = match larger {
            Some(mut larger) => {
                larger[..filled].copy_from_slice(&buf);
                counters.copied_bytes += filled as u64;
                larger
            }
            None => buf,
        };
        self.body = Some(Body { buf, filled, len });
        Ok(more)
    }

    /// Receives with one system call: the rest of a long fragment directly into its buffer, and the
    /// data after it into the staging area, which is empty.
    fn fill(&mut self, counters: &mut TcpCounters) -> Result<(), StreamEnd> {
        counters.receive_calls += 1;
        let (n, wanted) = match &mut self.body {
            None => (self.socket.read(&mut self.staging)?, self.staging.len()),
            Some(Body { buf, filled, len }) => {
                let whole = buf.len() == *len;
                let rest = &mut buf[*filled..];
                // The data after a part of a fragment is the next part, which belongs in a buffer.
                let staging = match whole {
                    true => &mut self.staging[..],
                    false => &mut [],
                };
                let wanted = rest.len() + staging.len();
                let mut into = [IoSliceMut::new(rest), IoSliceMut::new(staging)];
                (self.socket.read_vectored(&mut into)?, wanted)
            }
        };
        if n == 0 {
            return Err(StreamEnd::Eof);
        }
        counters.wire_bytes_received += n as u64;
        // A short read has emptied the socket, and later data is reported anew. But the end of the
        // stream was reported together with the data before it.
        self.readable = n == wanted || self.closed;
        let mut staged = n;
        if let Some(body) = &mut self.body {
            let direct = n.min(body.buf.len() - body.filled);
            body.filled += direct;
            staged -= direct;
        }
        if let Some(body) = self.body.take_if(|body| body.filled == body.len) {
            self.record_completed(body.len);
            self.reader.body(&mut body.buf.freeze());
        }
        self.staged = 0..staged;
        Ok(())
    }

    /// Queues a record to be sent at `release` or later, or with `None` once it was put on the link.
    pub(super) fn queue(
        &mut self,
        xid: Option<u32>,
        message: &Message,
        release: Option<Time>,
    ) -> Result<(), RecordError> {
        let parts = message.gather(|_| true);
        let len: usize = parts.iter().map(Bytes::len).sum();
        let mark = record::header(len as u64)?;
        let len = len + mark.len();
        if xid.is_none() {
            self.reply_bytes += len;
        }
        // Bulk items are in pool memory, which is charged to the pool's account.
        let payload = usize::try_from(message.payload_len()).unwrap_or(usize::MAX);
        let charged = payload.saturating_add(size_of::<Outbound>());
        self.charge.add(charged);
        self.out.push_back(Outbound {
            charged,
            mark,
            parts,
            len,
            xid,
            release,
        });
        Ok(())
    }

    /// Takes a call back if none of it was sent. Returns whether it was taken back.
    pub(super) fn unqueue(&mut self, xid: u32) -> bool {
        let first = usize::from(self.sent > 0);
        let found = (first..self.out.len()).find(|at| self.out[*at].xid == Some(xid));
        let Some(outbound) = found.and_then(|at| self.out.remove(at)) else {
            return false;
        };
        self.charge.sub(outbound.charged);
        true
    }

    /// Sends what is due. With `look`, tries even if the socket was full.
    pub(super) fn flush(
        &mut self,
        look: bool,
        now: Time,
        counters: &mut TcpCounters,
    ) -> io::Result<()> {
        self.writable |= look;
        let before = counters.wire_bytes_sent;
        while self.writable && self.out.front().is_some_and(|out| out.is_due(now)) {
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
        let due = self.out.front().is_some_and(|out| out.is_due(now));
        self.sending
            .note(due, counters.wire_bytes_sent - before, now);
        Ok(())
    }

    /// Sends with one system call. Returns the number of bytes sent, and the number that was passed
    /// to the system call.
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

    /// Returns the next pieces to send, and their length in bytes.
    fn pieces(&self, now: Time) -> (SmallVec<[IoSlice<'_>; MAX_IOV]>, usize) {
        let mut pieces = SmallVec::new();
        let (mut skip, mut wanted) = (self.sent, 0);
        let due = self.out.iter().take_while(|out| out.is_due(now));
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
        self.sent += n;
        while let Some(first) = self.out.front()
            && self.sent >= first.len
        {
            let (len, charged) = (first.len, first.charged);
            if first.xid.is_none() {
                self.reply_bytes -= len;
            }
            self.sent -= len;
            self.out.pop_front();
            self.charge.sub(charged);
            self.record_completed(len);
        }
    }
}

//! One TCP connection: records in, records out.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use bytes::Bytes;
use mio::net::TcpStream;
use onc_rpc::record::{self, RecordError, RecordReader, Want};
use onc_rpc::{Message, Segments};
use rdma::{Account, Buf, Charge, Pool, Time};
use smallvec::SmallVec;

use super::TcpCounters;
use super::progress::Progress;

/// Bytes received at a time while it is not known what comes: several short records, or the
/// beginning of a long one. That beginning is copied, so this is not larger than pays.
const STAGING: usize = 8 << 10;
/// Pieces given to one system call.
const MAX_IOV: usize = 64;
/// Sends of up to so many bytes are copied into one piece: dearer than the copy is a system call
/// that takes several.
const SMALL_SEND: usize = 512;
/// The first buffer for a long fragment when there is no credit for all of it. Whoever has filled that
/// gets the whole: parts that grew bit by bit could fill all memory among them, and none ever end.
const FIRST_GRANT: usize = 32 << 10;
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

/// A long fragment that is being received.
struct Body {
    /// Where to: all of it, or as much as the peer is trusted with for now.
    buf: Buf,
    /// How much of it is there.
    filled: usize,
    /// The fragment's length.
    len: usize,
}

/// What memory a peer gets for a long fragment before its bytes are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// Bytes that are given on the word of a record mark. Without so many left, memory is given as
    /// it is filled: so a few bytes of many connections cannot take up the pool.
    pub(super) unfilled: usize,
    /// What the pool must have left, bytes, when a part of a fragment is given.
    pub(super) reserve: usize,
}

/// A record to send.
struct Outbound {
    /// Bytes that are counted for it beside memory of a pool.
    charged: usize,
    mark: [u8; record::HEADER_LEN],
    parts: Segments,
    /// Bytes, mark included.
    len: usize,
    /// Of a call, which can be taken back.
    xid: Option<u32>,
    /// When it may go out.
    release: Time,
}

/// See the module.
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    /// Where long records are received into.
    pool: Pool,
    /// Charge for memory that is not from the pool.
    charge: Charge,
    /// There may be something to receive: readiness is edge-triggered.
    readable: bool,
    writable: bool,
    /// The end of the stream is there, behind what bytes there are.
    closed: bool,
    reader: RecordReader,
    staging: Box<[u8]>,
    /// What of `staging` was received and not used.
    staged: std::ops::Range<usize>,
    body: Option<Body>,
    /// The rest of a record that is incomplete.
    receiving: Progress,
    /// Records that wait for the peer to take them.
    sending: Progress,
    /// The pool had no buffer for a fragment.
    starved: bool,
    out: VecDeque<Outbound>,
    /// Bytes in `out`, and how many of the first record are sent.
    out_bytes: usize,
    sent: usize,
}

impl Stream {
    /// Receives into memory of `pool`, and counts for its account what it holds elsewhere.
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

    /// Memory that the peer has been given and has not filled, bytes.
    pub(super) fn promised(&self) -> usize {
        let body = self.body.as_ref();
        body.map_or(0, |body| body.buf.len() - body.filled)
    }

    /// Updates how long an incomplete record has waited for its peer. `came` is the number of bytes just
    /// received. With `held` the server itself has stopped reading, so the peer is not to blame. A record
    /// that waits for buffer memory counts as well if its connection holds more than its guaranteed
    /// memory: otherwise such connections could block each other for ever.
    pub(super) fn note_wait(&mut self, came: u64, held: bool, now: Time) {
        let over = || {
            self.pool
                .account()
                .is_some_and(|account| account.over() > 0)
        };
        let waits = !held && !self.reader.at_boundary() && (!self.starved || over());
        self.receiving.note(waits, came, now);
    }

    /// The rest of a record that is incomplete.
    pub(super) fn receiving(&self) -> &Progress {
        &self.receiving
    }

    /// Records that wait for the peer to take them.
    pub(super) fn sending(&self) -> &Progress {
        &self.sending
    }

    /// Whether it holds memory that others want.
    pub(super) fn is_in_the_way(&self) -> bool {
        let account = self.pool.account();
        account.is_some_and(Account::is_in_the_way)
    }

    /// Bytes that it may take, if it gave back `own` of those that it has.
    fn room_without(&self, own: usize) -> usize {
        let account = self.pool.account();
        account.map_or(usize::MAX, |account| account.room_without(own))
    }

    /// The peer took, or sent, a long record to its end.
    fn prove(&self, len: usize) {
        if len > FIRST_GRANT
            && let Some(account) = self.pool.account()
        {
            account.prove();
        }
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
        credit: Credit,
        counters: &mut TcpCounters,
        mut deliver: impl FnMut(Message) -> bool,
    ) -> Result<(), Ended> {
        self.starved = false;
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
        credit: Credit,
        counters: &mut TcpCounters,
        deliver: &mut impl FnMut(Message) -> bool,
    ) -> Result<bool, Ended> {
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
                    // A record that is one short fragment is part of what is set aside for its call.
                    if !(last && self.reader.fragments() == 1)
                        && let Some(account) = self.pool.account()
                    {
                        if account.room() < len {
                            self.starved = true;
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

    /// A buffer for a fragment of `len` bytes, of which `filled` are there: for all of it, if there
    /// is credit for the rest, or if the first part was filled. It replaces one of `own` bytes. None when
    /// it has to wait.
    fn body_buf(
        &mut self,
        len: usize,
        filled: usize,
        own: usize,
        credit: Credit,
    ) -> Result<Option<Buf>, Ended> {
        let pool = &self.pool;
        let limit = pool.limit();
        if len > limit {
            return Err(Ended::NoPool { len, limit });
        }
        let room = self.room_without(own);
        let fits = |grant| Pool::block_size(grant) <= room;
        let whole = len - filled <= credit.unfilled && fits(len);
        let grant = match whole || filled >= FIRST_GRANT {
            true => len,
            false => len.min(FIRST_GRANT),
        };
        // Parts that none can complete must not use up the pool among them.
        let spare = || grant == len || (limit - pool.in_use()) / 2 >= grant.max(credit.reserve);
        let buf = (whole || (fits(grant) && spare())).then(|| pool.alloc(grant));
        self.starved = !matches!(buf, Some(Ok(_)));
        Ok(buf.and_then(Result::ok))
    }

    /// Gives a long fragment more room if it has filled what it had. Returns whether to receive
    /// more. The copy is paid for in exceptional times only: while many peers have announced much
    /// and sent little.
    fn grow(&mut self, credit: Credit, counters: &mut TcpCounters) -> Result<bool, Ended> {
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

    /// Receives once: the rest of a long fragment straight into its buffer, and what follows it,
    /// with the same system call, into the staging area, which is empty.
    fn fill(&mut self, counters: &mut TcpCounters) -> Result<(), Ended> {
        counters.receive_calls += 1;
        let (n, wanted) = match &mut self.body {
            None => (self.socket.read(&mut self.staging)?, self.staging.len()),
            Some(Body { buf, filled, len }) => {
                let whole = buf.len() == *len;
                let rest = &mut buf[*filled..];
                // What follows a part of a fragment is its next part, which belongs into a buffer.
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
            return Err(Ended::Eof);
        }
        counters.wire_bytes_received += n as u64;
        // A short read took all there was, and what comes later is reported anew; but the end of
        // the stream was reported together with what came before it.
        self.readable = n == wanted || self.closed;
        let mut staged = n;
        if let Some(body) = &mut self.body {
            let direct = n.min(body.buf.len() - body.filled);
            body.filled += direct;
            staged -= direct;
        }
        if let Some(body) = self.body.take_if(|body| body.filled == body.len) {
            self.prove(body.len);
            self.reader.body(&mut body.buf.freeze());
        }
        self.staged = 0..staged;
        Ok(())
    }

    /// Queues a record, to go out at `release` or later.
    pub(super) fn queue(
        &mut self,
        xid: Option<u32>,
        message: &Message,
        release: Time,
    ) -> Result<(), RecordError> {
        let parts = message.gather(|_| true);
        let len: usize = parts.iter().map(Bytes::len).sum();
        let mark = record::header(len as u64)?;
        let len = len + mark.len();
        self.out_bytes += len;
        // Items are in memory that is counted where it comes from.
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

    /// Takes a call back, if none of it was sent.
    pub(super) fn unqueue(&mut self, xid: u32) {
        let first = usize::from(self.sent > 0);
        let found = (first..self.out.len()).find(|at| self.out[*at].xid == Some(xid));
        if let Some(outbound) = found.and_then(|at| self.out.remove(at)) {
            self.out_bytes -= outbound.len;
            self.charge.sub(outbound.charged);
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
        let before = counters.wire_bytes_sent;
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
        let due = self.out.front().is_some_and(|out| out.release <= now);
        self.sending
            .note(due, counters.wire_bytes_sent - before, now);
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
            let (len, charged) = (first.len, first.charged);
            self.sent -= len;
            self.out.pop_front();
            self.charge.sub(charged);
            self.prove(len);
        }
    }
}

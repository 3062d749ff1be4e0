//! Posting: conversion of the device model's requests to those of the device.

use std::ffi::c_uint;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use super::caps::Kind;
use super::conn::{Conn, EventSink, Phase};
use super::device::RdmaCore;
use super::memory::memory_hint;
use super::objects::Mr;
use super::queue::{Batch, LocalBuffer, NotBuilt, Posted, Receive, Request, Work};
use super::regions::{Invalidation, Policy};
use super::sys;
use rdma::{
    Buf, Completion, Disconnect, Event, Failed, PostError, QpId, Scatter, SendWr, Stag, Success,
    WorkError, WrId,
};

/// Time after a post at which completed requests are polled for, to release their memory, if
/// nothing else polls before.
pub(super) const REAP_AFTER: Duration = Duration::from_millis(20);

/// Returns the number of bytes in a gather list.
fn length(gather: &[Bytes]) -> u64 {
    gather.iter().map(|piece| piece.len() as u64).sum()
}

/// Adds the pieces of a gather list to the batch. Pieces outside the pool's memory are copied into
/// a buffer of the pool, which is returned.
fn gather(
    batch: &mut Batch,
    policy: &Policy,
    conn: &Conn,
    pieces: &[Bytes],
    copied: &mut u64,
) -> Result<Option<Buf>, NotBuilt> {
    let mut keys = SmallVec::<[Option<u32>; 8]>::new();
    let mut foreign = 0;
    for piece in pieces {
        let key = match piece.is_empty() {
            true => None,
            false => policy
                .arenas
                .key(&conn.domain, piece.as_ptr(), piece.len())
                .map_err(NotBuilt::Registration)?,
        };
        if key.is_none() {
            foreign += piece.len();
        }
        keys.push(key.map(|key| key.lkey));
    }
    let mut copy = None;
    let mut copy_key = 0;
    if foreign > 0 {
        let buf = policy.pool.alloc(foreign).map_err(|_| NotBuilt::NoMemory)?;
        let key = policy.arenas.key(&conn.domain, buf.as_ptr(), foreign);
        let key = key.map_err(NotBuilt::Registration)?;
        copy_key = key.ok_or(NotBuilt::NoMemory)?.lkey;
        copy = Some(buf);
    }
    let mut at = 0;
    for (piece, key) in pieces.iter().zip(keys) {
        let (start, lkey) = match (key, &mut copy) {
            (Some(lkey), _) => (piece.as_ptr().addr(), lkey),
            (None, Some(copy)) if !piece.is_empty() => {
                let room = &mut copy[at..at + piece.len()];
                room.copy_from_slice(piece);
                at += piece.len();
                (room.as_ptr().addr(), copy_key)
            }
            _ => continue,
        };
        batch.piece(sys::ibv_sge {
            addr: start as u64,
            length: piece.len() as u32,
            lkey,
        });
    }
    *copied += foreign as u64;
    Ok(copy)
}

impl RdmaCore {
    /// Implements [`rdma::Device::post_receive`].
    pub(super) fn receive(
        &mut self,
        qp: QpId,
        id: WrId,
        buf: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return Err((PostError::Unknown, buf));
        };
        if conn.is_ending() || matches!(conn.phase, Phase::Draining) {
            return Err((PostError::NotConnected, buf));
        }
        if conn.binding.is_some() {
            return Err((PostError::Bound, buf));
        }
        if conn.receives() >= self.attributes.max_recv_wr {
            return Err((PostError::QueueFull, buf));
        }
        if buf.count() > self.attributes.max_scatter {
            return Err((PostError::TooManyElements, buf));
        }
        let policy = &self.policy;
        match Receive::new(id, buf, &policy.arenas, &conn.domain, &policy.pool) {
            Ok(receive) => {
                if let Err(error) = conn.post_receive(receive) {
                    self.broken(qp, "a receive was not posted", &error);
                }
                Ok(())
            }
            Err((NotBuilt::NoMemory, buf)) => Err((PostError::QueueFull, buf)),
            Err((NotBuilt::Registration(error), buf)) => {
                self.broken(qp, "memory cannot be registered", &error);
                Err((PostError::NotConnected, buf))
            }
        }
    }

    /// Implements [`rdma::Device::post_send`].
    pub(super) fn send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return Err((PostError::Unknown, wr));
        };
        if !matches!(conn.phase, Phase::Up) {
            return Err((PostError::NotConnected, wr));
        }
        if let SendWr::Send { gather, .. } | SendWr::Write { gather, .. } = &wr
            && gather.len() > self.attributes.max_gather
        {
            return Err((PostError::TooManyElements, wr));
        }
        if let SendWr::Invalidate { stag } = wr {
            if !self.invalidate(qp, id, stag) {
                self.make_room(qp);
                return Err((PostError::QueueFull, wr));
            }
            self.counters.local_invalidations += 1;
            return Ok(());
        }
        if conn.room() <= conn.regions.waiting() {
            self.make_room(qp);
            return Err((PostError::QueueFull, wr));
        }
        let mut batch = std::mem::take(&mut conn.batch);
        let built = self.build(qp, &mut batch, id, wr, signaled);
        if built.is_err() {
            batch.abandon();
        }
        if let Some(conn) = self.conns.get_mut(&qp.0) {
            conn.batch = batch;
        }
        let (posted, request) = match built {
            Ok(built) => built,
            Err((NotBuilt::NoMemory, wr)) => return Err((PostError::QueueFull, wr)),
            Err((NotBuilt::Registration(error), wr)) => {
                let what = format!("memory cannot be registered{}", memory_hint(&error));
                self.broken(qp, &what, &error);
                return Err((PostError::NotConnected, wr));
            }
        };
        self.hand_over(qp, posted, request, true);
        Ok(())
    }

    /// Implements [`rdma::Device::flush`].
    pub(super) fn ring_all(&mut self) {
        let mut holding = std::mem::take(&mut self.holding);
        for qp in holding.drain(..) {
            let Some(conn) = self.conns.get_mut(&qp.0) else {
                continue;
            };
            conn.holds = false;
            if let Err(error) = conn.ring() {
                self.broken(qp, "requests were not posted", &error);
            }
        }
        self.holding = holding;
    }

    /// Posts the bindings of windows that wait, whose completion makes room, after a request was refused.
    fn make_room(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        conn.wants_room = true;
        let result = conn.post(None, false);
        self.look_at(qp);
        if let Err(error) = result {
            self.broken(qp, "a window was not bound", &error);
        }
    }

    /// Posts a request that has been built and fits the queue. With `hold`, the device is given it by the next
    /// [`RdmaCore::ring_all`].
    pub(super) fn hand_over(&mut self, qp: QpId, posted: Posted, request: Request, hold: bool) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let result = conn.post(Some((posted, request)), hold);
        if conn.batch.len() > 0 && !std::mem::replace(&mut conn.holds, true) {
            self.holding.push(qp);
        }
        self.look_at(qp);
        let reap_at = self.now + REAP_AFTER;
        self.reap_at.get_or_insert(reap_at);
        if let Err(error) = result {
            self.broken(qp, "a request was not posted", &error);
        }
    }

    fn build(
        &mut self,
        qp: QpId,
        batch: &mut Batch,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(Posted, Request), (NotBuilt, SendWr)> {
        let Some(conn) = self.conns.get(&qp.0) else {
            return Err((NotBuilt::NoMemory, wr));
        };
        let (policy, counters) = (&self.policy, &mut self.counters);
        let mut request = Request::default();
        let mut posted = Posted {
            id,
            work: Work::Send,
            signaled,
            gather: SmallVec::new(),
            copy: None,
        };
        if let SendWr::Read { sink, stag, offset } = wr {
            request.opcode = sys::IBV_WR_RDMA_READ;
            (request.rkey, request.offset) = (Some(stag), offset);
            let again = |sink| SendWr::Read { sink, stag, offset };
            let built = match self.capabilities.kind {
                Kind::Iwarp => exposed_sink(conn, sink, sys::IBV_ACCESS_REMOTE_WRITE),
                Kind::Siw => exposed_sink(conn, sink, 0),
                _ => LocalBuffer::new(sink, &policy.arenas, &conn.domain, &policy.pool)
                    .map(|(local, sge)| (local, sge, None)),
            };
            let (local, sge, mr) = built.map_err(|(why, sink)| (why, again(sink)))?;
            if sge.length > 0 {
                batch.piece(sge);
            }
            counters.rdma_reads += 1;
            posted.work = Work::Read(local, mr);
            posted.signaled = true;
            return Ok((posted, request));
        }
        let pieces = match &wr {
            SendWr::Send { gather, .. } | SendWr::Write { gather, .. } => gather,
            _ => return Err((NotBuilt::NoMemory, wr)),
        };
        let total = length(pieces);
        if total <= u64::from(conn.sizes.max_inline_data) {
            request.flags |= sys::IBV_SEND_INLINE;
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                batch.piece(sys::ibv_sge {
                    addr: piece.as_ptr().addr() as u64,
                    length: piece.len() as u32,
                    lkey: 0,
                });
            }
            counters.copied_bytes += total;
        } else {
            let built = gather(batch, policy, conn, pieces, &mut counters.copied_bytes);
            posted.copy = match built {
                Ok(copy) => copy,
                Err(why) => return Err((why, wr)),
            };
        }
        counters.wire_bytes_sent += total;
        match wr {
            SendWr::Send { gather, invalidate } => {
                counters.sends += 1;
                counters.sends_with_invalidate += u64::from(invalidate.is_some());
                // A Send without invalidation is always allowed, and some devices support no other.
                let invalidate = invalidate.filter(|_| self.capabilities.invalidation);
                request.opcode = match invalidate {
                    Some(_) => sys::IBV_WR_SEND_WITH_INV,
                    None => sys::IBV_WR_SEND,
                };
                request.invalidate = invalidate;
                posted.gather = gather;
            }
            SendWr::Write {
                gather,
                stag,
                offset,
            } => {
                counters.rdma_writes += 1;
                request.opcode = sys::IBV_WR_RDMA_WRITE;
                (request.rkey, request.offset) = (Some(stag), offset);
                posted.work = Work::Write;
                posted.gather = gather;
            }
            other => return Err((NotBuilt::NoMemory, other)),
        }
        Ok((posted, request))
    }

    /// Invalidates a handle with the method that its kind needs. Returns false if the queue has no
    /// room.
    fn invalidate(&mut self, qp: QpId, id: WrId, stag: Stag) -> bool {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return false;
        };
        let mut out = EventSink {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        let mut cause = None;
        match conn.regions.ending(&self.policy, stag) {
            Some(Invalidation::Request) => {
                if conn.room() <= conn.regions.waiting() {
                    return false;
                }
                let request = Request {
                    opcode: sys::IBV_WR_LOCAL_INV,
                    invalidate: Some(stag),
                    ..Request::default()
                };
                let posted = Posted {
                    id,
                    work: Work::Invalidate(stag),
                    signaled: true,
                    gather: SmallVec::new(),
                    copy: None,
                };
                self.hand_over(qp, posted, request, true);
                return true;
            }
            Some(Invalidation::Over) => {
                conn.regions.ended(stag);
                let result = Ok(Success::Invalidate);
                let done = Event::Completion(Completion { qp, id, result });
                out.events.push_back(done);
            }
            Some(ending @ (Invalidation::Now | Invalidation::After(_))) => {
                if ending.is_due(conn.sends.first()) {
                    conn.invalidate_now(id, stag, &mut out, &mut cause);
                } else {
                    conn.deferred.push((id, stag, ending));
                }
            }
            None => {
                let (error, buf) = (WorkError::LocalProtection, None);
                let result = Err(Failed { error, buf });
                let done = Event::Completion(Completion { qp, id, result });
                out.events.push_back(done);
                cause = Some(Disconnect::Lost(format!("no handle {stag}")));
            }
        }
        if let Some(cause) = cause {
            conn.lose(cause, self.now);
        }
        self.look_at(qp);
        true
    }

    /// Ends the connection because the device refused an operation.
    pub(super) fn broken(&mut self, qp: QpId, what: &str, error: &io::Error) {
        tracing::error!(qp = qp.0, %error, "{what}, ending the connection");
        if let Some(conn) = self.conns.get_mut(&qp.0) {
            let reason = Disconnect::Lost(format!("{what}: {error}"));
            conn.lose(reason, self.now);
            self.timer(qp);
        }
    }
}

/// Creates a sink with a handle of its own. On iWARP the Read Request carries the handle to the
/// peer (RFC 5040, section 4.4), so it must cover the sink and nothing else. An RDMA NIC requires
/// that the peer may write it; siw does not, and lets the peer read through any handle.
fn exposed_sink(
    conn: &Conn,
    mut sink: Buf,
    right: c_uint,
) -> Result<(LocalBuffer, sys::ibv_sge, Option<Mr>), (NotBuilt, Buf)> {
    let len = sink.len();
    if len == 0 {
        return Ok((LocalBuffer::direct(sink), sys::ibv_sge::default(), None));
    }
    let start = sink.as_mut_ptr();
    let access = sys::IBV_ACCESS_LOCAL_WRITE | right;
    // SAFETY: the sink stays with the request, out of reach, until the registration has ended; if
    // it does not end, the sink is never dropped (`conn.rs`).
    match unsafe { Mr::new(&conn.domain.pd, start, len, access) } {
        Ok(mr) => {
            let sge = sys::ibv_sge {
                addr: start.addr() as u64,
                length: len as u32,
                lkey: mr.lkey(),
            };
            Ok((LocalBuffer::direct(sink), sge, Some(mr)))
        }
        Err(error) => Err((NotBuilt::Registration(error), sink)),
    }
}

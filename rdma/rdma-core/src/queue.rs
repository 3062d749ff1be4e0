//! The posted requests of a queue pair: they own the memory in use until they complete.
//!
//! Every request is signaled, except window bindings. The send queue has its own completion queue,
//! which is armed only while a completion is awaited. So requests for which the program wants no
//! completion wake nobody, their memory is released at the next poll, and it is known when the
//! queue is empty.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint};
use std::io;
use std::ptr;

use bytes::Bytes;
use smallvec::SmallVec;

use super::memory::{Arenas, Domain};
use super::objects::Mr;
use super::sys;
use rdma::{Buf, Pool, Scatter, Stag, WorkError, WrId};

/// The reason why a request could not be built.
pub(super) enum NotBuilt {
    /// The pool has no memory for a copy.
    NoMemory,
    /// The device refuses to register the memory.
    Registration(io::Error),
}

/// Memory that the device writes.
#[derive(Debug)]
pub(super) struct LocalBuffer {
    buf: Buf,
    /// The memory that the device writes instead, if `buf` is not the pool's memory.
    copy: Option<Buf>,
}

impl LocalBuffer {
    /// Prepares `buf` for the device. Returns the buffer if it cannot be used.
    pub(super) fn new(
        mut buf: Buf,
        arenas: &Arenas,
        domain: &Domain,
        pool: &Pool,
    ) -> Result<(Self, sys::ibv_sge), (NotBuilt, Buf)> {
        let len = buf.len();
        if len == 0 {
            return Ok((Self { buf, copy: None }, sys::ibv_sge::default()));
        }
        let mut copy = None;
        let start = buf.as_mut_ptr();
        let (start, key) = match arenas.key(domain, start, len) {
            Ok(None) => {
                let Ok(mut other) = pool.alloc(len) else {
                    return Err((NotBuilt::NoMemory, buf));
                };
                let start = other.as_mut_ptr();
                copy = Some(other);
                (start, arenas.key(domain, start, len))
            }
            found => (start, found),
        };
        match key {
            Ok(Some(key)) => {
                let sge = sys::ibv_sge {
                    addr: start.addr() as u64,
                    length: len as u32,
                    lkey: key.lkey,
                };
                Ok((Self { buf, copy }, sge))
            }
            Ok(None) => Err((NotBuilt::NoMemory, buf)),
            Err(error) => Err((NotBuilt::Registration(error), buf)),
        }
    }

    /// Wraps memory that has a registration of its own.
    pub(super) fn direct(buf: Buf) -> Self {
        Self { buf, copy: None }
    }

    /// Returns the memory with the `len` bytes that the device wrote.
    pub(super) fn finish(mut self, len: usize, copied: &mut u64) -> Buf {
        self.buf.truncate(len);
        if let Some(copy) = self.copy {
            let len = self.buf.len();
            self.buf.copy_from_slice(&copy[..len]);
            *copied += len as u64;
        }
        self.buf
    }

    /// Returns the memory as it was passed in.
    pub(super) fn give_back(self) -> Buf {
        self.buf
    }
}

/// The kind of a posted request.
pub(super) enum Work {
    /// A window binding.
    Bind,
    Send,
    Write,
    /// An RDMA Read, with the registration of the sink if it needs its own.
    Read(LocalBuffer, Option<Mr>),
    Invalidate(Stag),
    /// A probe of the peer.
    Probe,
}

/// A posted request and the memory that it holds.
pub(super) struct Posted {
    pub(super) id: WrId,
    pub(super) work: Work,
    /// Whether the program or this crate waits for its completion.
    pub(super) signaled: bool,
    /// Memory that the device reads.
    pub(super) gather: SmallVec<[Bytes; 2]>,
    pub(super) copy: Option<Buf>,
}

impl Posted {
    /// Creates a window binding, whose completion is not awaited.
    pub(super) fn bind() -> Self {
        Self {
            id: WrId(0),
            work: Work::Bind,
            signaled: false,
            gather: SmallVec::new(),
            copy: None,
        }
    }
}

impl Posted {
    /// Creates a probe of the peer's device. Its completion is awaited, so that the completion
    /// queue is armed for it.
    pub(super) fn probe() -> Self {
        Self {
            work: Work::Probe,
            signaled: true,
            ..Self::bind()
        }
    }
}

/// The parameters of a request to the device, apart from its memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request {
    pub(super) opcode: c_int,
    pub(super) flags: c_uint,
    pub(super) invalidate: Option<Stag>,
    pub(super) rkey: Option<Stag>,
    pub(super) offset: u64,
}

/// A send queue. Requests are numbered from 0.
///
/// Each request has a completion of its own, except window bindings, which are done when a later
/// request is. Nothing else follows from a completion: siw reports Sends and Writes that were
/// posted after a Read before it reports that Read.
#[derive(Default)]
pub(super) struct SendQueue {
    /// Requests from the oldest that is not done; `None` in the place of a completed one.
    posted: VecDeque<Option<Posted>>,
    first: u64,
    /// Number of signaled requests in `posted`.
    awaited: usize,
}

impl SendQueue {
    /// Returns the number of occupied slots, including completed requests behind the oldest one
    /// that is not done.
    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Returns whether a completion is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Returns whether a request is outstanding that fails if the peer is gone. Bindings and invalidations
    /// are done by the device alone, and nobody may have looked for the completion of a binding.
    pub(super) fn awaits_peer(&self) -> bool {
        let mut outstanding = self.posted.iter().flatten();
        outstanding.any(|posted| !matches!(posted.work, Work::Bind | Work::Invalidate(_)))
    }

    /// Returns the number of the oldest request that is not done. All earlier ones are.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.first + self.posted.len() as u64
    }

    /// Frees the memory for more requests than are outstanding, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        rdma::shrink(&mut self.posted)
    }

    pub(super) fn push(&mut self, posted: Posted) {
        self.awaited += usize::from(posted.signaled);
        self.posted.push_back(Some(posted));
    }

    /// Removes the request of a completion, if it exists.
    pub(super) fn complete(&mut self, number: u64) -> Option<Posted> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let done = self.posted.get_mut(index)?.take();
        for earlier in self.posted.iter_mut().take(index) {
            if matches!(
                earlier,
                Some(Posted {
                    work: Work::Bind,
                    ..
                })
            ) {
                *earlier = None;
            }
        }
        while matches!(self.posted.front(), Some(None)) {
            self.posted.pop_front();
            self.first += 1;
        }
        if let Some(done) = &done {
            self.awaited -= usize::from(done.signaled);
        }
        done
    }

    /// Removes the oldest request. The device must no longer know it.
    pub(super) fn give_up(&mut self) -> Option<Posted> {
        while let Some(oldest) = self.posted.pop_front() {
            self.first += 1;
            if let Some(posted) = oldest {
                self.awaited -= usize::from(posted.signaled);
                return Some(posted);
            }
        }
        None
    }
}

/// A receive, posted or waiting for the queue pair to be created.
pub(super) struct Receive {
    pub(super) id: WrId,
    first: LocalBuffer,
    rest: Vec<LocalBuffer>,
    /// The scatter list for the device. Without empty elements, because a length of 0 can mean 2
    /// GiB.
    pub(super) pieces: SmallVec<[sys::ibv_sge; 2]>,
}

impl Receive {
    /// Creates a receive. Returns the memory if a buffer cannot be used.
    pub(super) fn new(
        id: WrId,
        buf: Scatter,
        arenas: &Arenas,
        domain: &Domain,
        pool: &Pool,
    ) -> Result<Self, (NotBuilt, Scatter)> {
        let (first, rest) = buf.into_parts();
        let (first, sge) = match LocalBuffer::new(first, arenas, domain, pool) {
            Ok(local) => local,
            Err((why, first)) => return Err((why, Scatter::new(first, rest))),
        };
        let mut receive = Self {
            id,
            first,
            rest: Vec::with_capacity(rest.len()),
            pieces: SmallVec::new(),
        };
        receive.pieces.extend((sge.length > 0).then_some(sge));
        let mut later = rest.into_iter();
        while let Some(piece) = later.next() {
            match LocalBuffer::new(piece, arenas, domain, pool) {
                Ok((local, sge)) => {
                    receive.rest.push(local);
                    receive.pieces.extend((sge.length > 0).then_some(sge));
                }
                Err((why, piece)) => {
                    let mut receive = receive.give_back();
                    receive.push(piece);
                    later.for_each(|piece| receive.push(piece));
                    return Err((why, receive));
                }
            }
        }
        Ok(receive)
    }

    /// Returns the memory with the `len` bytes that the device wrote.
    pub(super) fn finish(self, mut len: usize, copied: &mut u64) -> Scatter {
        let mut finish = |local: LocalBuffer| {
            let buf = local.finish(len, copied);
            len -= buf.len();
            buf
        };
        let first = finish(self.first);
        let rest: Vec<Buf> = self.rest.into_iter().map(finish).collect();
        Scatter::new(first, rest)
    }

    /// Returns the memory as it was passed in.
    pub(super) fn give_back(self) -> Scatter {
        let rest: Vec<Buf> = self.rest.into_iter().map(LocalBuffer::give_back).collect();
        Scatter::new(self.first.give_back(), rest)
    }
}

/// Requests that the device is given with one call, and the gather lists to which they point. Reused to save
/// allocations.
#[derive(Default)]
pub(super) struct Batch {
    requests: Vec<sys::ibv_send_wr>,
    /// The gather lists of all requests, one behind the other, and that of the request being built.
    pieces: Vec<sys::ibv_sge>,
    /// Number of `pieces` that belong to `requests`.
    owned: usize,
}

// SAFETY: pointers to its own memory are set and used within `chain` and the call that follows. Those of window bindings
// are used in the call in which they are added (`Conn::post`).
unsafe impl Send for Batch {}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.pieces.clear();
        self.owned = 0;
    }

    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Drops the gather list of the request being built, which is not added.
    pub(super) fn abandon(&mut self) {
        self.pieces.truncate(self.owned);
    }

    /// Adds a request without memory, to be completed by the caller.
    pub(super) fn add(&mut self, number: u64, opcode: c_int) -> &mut sys::ibv_send_wr {
        self.requests.push(sys::ibv_send_wr {
            wr_id: number,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
            opcode,
            send_flags: sys::IBV_SEND_SIGNALED,
            invalidate_rkey: 0,
            wr: sys::wr_union { largest: [0; 4] },
            remote_srqn: 0,
            bind_mw: sys::wr_bind_mw {
                mw: ptr::null_mut(),
                rkey: 0,
                bind_info: sys::ibv_mw_bind_info {
                    mr: ptr::null_mut(),
                    addr: 0,
                    length: 0,
                    mw_access_flags: 0,
                },
            },
        });
        let last = self.requests.len() - 1;
        &mut self.requests[last]
    }

    /// Gives the gather list that was built to the request that was added last.
    pub(super) fn end(&mut self) {
        if let Some(last) = self.requests.last_mut() {
            last.num_sge = (self.pieces.len() - self.owned) as c_int;
        }
        self.owned = self.pieces.len();
    }

    /// Adds an element to the gather list of the request being built. Elements that are adjacent in
    /// memory are merged.
    pub(super) fn piece(&mut self, piece: sys::ibv_sge) {
        if let Some(last) = self.pieces[self.owned..].last_mut()
            && last.lkey == piece.lkey
            && last.addr + u64::from(last.length) == piece.addr
            && let Some(length) = last.length.checked_add(piece.length)
        {
            last.length = length;
        } else {
            self.pieces.push(piece);
        }
    }

    /// Links the requests, and returns the first. Valid until the batch is changed.
    pub(super) fn chain(&mut self) -> *mut sys::ibv_send_wr {
        let count = self.requests.len();
        let mut pieces = &mut self.pieces[..];
        for request in &mut self.requests {
            let (own, rest) = pieces.split_at_mut(request.num_sge as usize);
            request.sg_list = own.as_mut_ptr();
            pieces = rest;
        }
        let start = self.requests.as_mut_ptr();
        for at in 1..count {
            // SAFETY: both are within the `count` requests.
            unsafe { (*start.add(at - 1)).next = start.add(at) };
        }
        start
    }

    /// Updates the handles of bound windows in the library's structures, which is expected after a
    /// binding was posted.
    ///
    /// # Safety
    /// The windows of the batch must be valid.
    pub(super) unsafe fn rename_windows(&self) {
        for request in &self.requests {
            let bind = request.bind_mw;
            if request.opcode == sys::IBV_WR_BIND_MW {
                // SAFETY: as promised.
                unsafe { (*bind.mw).rkey = bind.rkey };
            }
        }
    }
}

/// Converts a completion's status to the device model.
pub(super) fn work_error(status: c_int) -> WorkError {
    match status {
        sys::IBV_WC_LOC_LEN_ERR => WorkError::LocalLength,
        sys::IBV_WC_REM_ACCESS_ERR => WorkError::RemoteAccess,
        sys::IBV_WC_REM_INV_REQ_ERR | sys::IBV_WC_REM_OP_ERR => WorkError::RemoteOperation,
        sys::IBV_WC_LOC_PROT_ERR
        | sys::IBV_WC_LOC_ACCESS_ERR
        | sys::IBV_WC_LOC_QP_OP_ERR
        | sys::IBV_WC_MW_BIND_ERR => WorkError::LocalProtection,
        // Flushed; or the network lost the request, which the end of the connection reports.
        _ => WorkError::Flushed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(signaled: bool) -> Posted {
        Posted {
            id: WrId(0),
            work: Work::Send,
            signaled,
            gather: SmallVec::new(),
            copy: None,
        }
    }

    #[test]
    fn requests_are_done_one_by_one_and_in_any_order() {
        let mut queue = SendQueue::default();
        for signaled in [false, true, false, true] {
            queue.push(posted(signaled));
        }
        assert!(queue.complete(2).is_some());
        assert!(queue.complete(2).is_none(), "the same completion again");
        assert_eq!((queue.first(), queue.next(), queue.len()), (0, 4, 4));
        assert!(queue.complete(0).is_some() && queue.is_awaited());
        assert_eq!((queue.first(), queue.len()), (1, 3));
        assert!(queue.complete(3).is_some() && queue.is_awaited());
        assert!(queue.complete(1).is_some() && !queue.is_awaited());
        assert_eq!((queue.first(), queue.next(), queue.len()), (4, 4, 0));
        assert!(queue.complete(4).is_none() && queue.complete(0).is_none());
    }

    /// Regression test: after a burst, the queue kept memory for as many requests as had been outstanding.
    #[test]
    fn memory_for_requests_that_are_done_is_given_back() {
        let mut queue = SendQueue::default();
        (0..1000).for_each(|_| queue.push(posted(true)));
        assert!((0..990).all(|number| queue.complete(number).is_some()));
        let each = size_of::<Option<Posted>>();
        assert!(queue.give_back() >= 900 * each);
        assert!(queue.posted.capacity() < 100);
        assert_eq!((queue.first(), queue.next(), queue.len()), (990, 1000, 10));
        assert!((990..1000).all(|number| queue.complete(number).is_some()));
        queue.give_back();
        assert_eq!(queue.give_back(), 0, "memory for a few requests stays");
        queue.push(posted(false));
        assert_eq!((queue.first(), queue.next()), (1000, 1001));
    }

    #[test]
    fn a_binding_is_done_when_a_later_request_is() {
        let mut queue = SendQueue::default();
        queue.push(posted(true));
        queue.push(Posted::bind());
        queue.push(posted(true));
        queue.push(Posted::bind());
        assert!(queue.complete(2).is_some());
        assert!(queue.complete(0).is_some());
        assert_eq!(
            (queue.first(), queue.len()),
            (3, 1),
            "the last binding is not"
        );
        assert!(matches!(
            queue.give_up(),
            Some(Posted {
                work: Work::Bind,
                ..
            })
        ));
        assert!(queue.give_up().is_none());
    }

    #[test]
    fn a_binding_does_not_tell_that_the_peer_is_there() {
        let mut queue = SendQueue::default();
        queue.push(Posted::bind());
        queue.push(Posted {
            work: Work::Invalidate(Stag(1)),
            ..posted(true)
        });
        assert!(!queue.is_empty() && !queue.awaits_peer());
        queue.push(posted(false));
        assert!(queue.awaits_peer());
        assert!(queue.complete(2).is_some() && !queue.awaits_peer());
        queue.push(Posted::probe());
        assert!(queue.awaits_peer());
    }

    #[test]
    fn adjacent_gather_elements_are_merged() {
        let mut batch = Batch::default();
        let piece = |addr, length, lkey| sys::ibv_sge { addr, length, lkey };
        batch.add(7, sys::IBV_WR_SEND);
        for one in [
            piece(100, 50, 1),
            piece(150, 6, 1),
            piece(156, 4, 2),
            piece(8, 1, 2),
        ] {
            batch.piece(one);
        }
        assert_eq!(
            batch.pieces,
            [piece(100, 56, 1), piece(156, 4, 2), piece(8, 1, 2)]
        );
    }

    /// Returns what the device would read of a batch: the number and the gather list of each request.
    fn read(batch: &mut Batch) -> Vec<(u64, Vec<sys::ibv_sge>)> {
        let mut next = batch.chain();
        let mut seen = Vec::new();
        while !next.is_null() {
            // SAFETY: a request of the batch.
            let request = unsafe { &*next };
            let count = request.num_sge as usize;
            let pieces = match count {
                0 => Vec::new(),
                // SAFETY: its gather list, which is in the batch.
                _ => unsafe { std::slice::from_raw_parts(request.sg_list, count) }.to_vec(),
            };
            seen.push((request.wr_id, pieces));
            next = request.next;
        }
        seen
    }

    #[test]
    fn requests_are_chained_in_order_and_each_has_its_memory() {
        let mut batch = Batch::default();
        let piece = |addr| sys::ibv_sge {
            addr,
            length: 8,
            lkey: 1,
        };
        // The memory of one request is not merged with that of another, even if it adjoins.
        batch.piece(piece(0));
        batch.add(0, sys::IBV_WR_SEND);
        batch.end();
        batch.piece(piece(8));
        batch.piece(piece(100));
        batch.add(1, sys::IBV_WR_BIND_MW);
        batch.add(2, sys::IBV_WR_SEND);
        batch.end();
        // A request that could not be built leaves nothing behind.
        batch.piece(piece(200));
        batch.abandon();
        batch.add(3, sys::IBV_WR_SEND);
        batch.end();
        let expected = [
            (0, vec![piece(0)]),
            (1, vec![]),
            (2, vec![piece(8), piece(100)]),
            (3, vec![]),
        ];
        assert_eq!(batch.len(), 4);
        assert_eq!(read(&mut batch), expected);
        batch.clear();
        batch.piece(piece(1));
        batch.add(7, sys::IBV_WR_SEND);
        batch.end();
        assert_eq!(read(&mut batch), [(7, vec![piece(1)])]);
    }
}

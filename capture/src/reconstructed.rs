//! Middleware that shows a [`Tap`] the traffic of a device that has no tap, such as hardware.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use rdma::middleware::Posted;
use rdma::{
    AcceptOptions, Completion, ConnectOptions, ConnectRequest, Device, DeviceError, Event, Frame,
    Gather, PostError, QpId, Region, RemoteSegment, RequestId, Scatter, SendWr, Setup,
    SharedReceivesId, Stag, Success, Tap, Time, WrId,
};

/// Maximum number of bytes of a message in which announced memory is looked for. Chunk lists
/// precede everything else.
const LISTS: usize = 8 << 10;
/// Maximum number of messages and of their bytes that are held back on a connection. Beyond that,
/// RDMA Writes are left out.
const HELD_ITEMS: usize = 1024;
const HELD_BYTES: usize = 4 << 20;

/// Memory that is registered for the peer.
struct Registered {
    length: usize,
    offset: u64,
    /// The bytes, if the peer may read them.
    readable: Option<Bytes>,
    /// The XID of the call that announced it, and the place of the announcement in that.
    announced: Option<([u8; 4], usize)>,
}

/// Memory that a reply says was written.
struct Written {
    stag: Stag,
    offset: u64,
    /// Number of bytes that the reply says were written.
    length: usize,
    /// The bytes, once the memory is reclaimed.
    content: Option<Vec<u8>>,
}

/// A piece of traffic that is shown when everything before it is.
enum Item {
    Posted(Posted),
    /// The bytes of an RDMA Read of this side.
    Response(Vec<u8>),
    Received {
        payload: Vec<u8>,
        invalidated: Option<Stag>,
        read: Vec<(Stag, u64, Bytes)>,
        written: Vec<Written>,
    },
}

impl Item {
    fn is_complete(&self) -> bool {
        match self {
            Self::Posted(_) | Self::Response(_) => true,
            Self::Received { written, .. } => {
                written.iter().all(|written| written.content.is_some())
            }
        }
    }

    fn len(&self) -> usize {
        let of = |gather: &Gather| gather.iter().map(Bytes::len).sum();
        match self {
            Self::Posted(Posted::Send { gather, .. } | Posted::Write { gather, .. }) => of(gather),
            Self::Posted(_) => 0,
            Self::Response(payload) | Self::Received { payload, .. } => payload.len(),
        }
    }
}

/// A connection.
struct Pair {
    initiator: bool,
    local: SocketAddr,
    peer: SocketAddr,
    request: Bytes,
    reply: Bytes,
    established: bool,
    regions: HashMap<Stag, Registered>,
    held: VecDeque<(Time, Item)>,
    held_bytes: usize,
}

/// Shows a tap the traffic of the inner device, reconstructed from requests, completions and
/// registered memory.
///
/// A device reports what its owner posts and what completes, which is all that the responder of an
/// RPC does and sees: it posts the RDMA Reads and Writes itself. At the requester, the peer's RDMA
/// operations leave no trace but the contents of registered memory. They are reconstructed at the
/// reply, for the regions that the call has announced:
///
/// * a region that the peer may read was read once, as a whole;
/// * a region that the peer may write was written from its beginning, as far as the reply says.
///
/// This takes two facts about the messages, which hold for both versions of RPC-over-RDMA: they
/// begin with the XID, which a reply has from its call, and announce memory as a handle, a length
/// and an offset, of 4, 4 and 8 bytes (RFC 8166, sections 4.1 and 3.4.2). Written memory can be
/// looked at only when it is reclaimed, after the reply; everything on the connection is held back
/// until then.
pub struct Reconstructed<D, T> {
    device: D,
    tap: T,
    /// Address of this side where the device does not say it.
    local: Option<IpAddr>,
    now: Time,
    requests: HashMap<RequestId, (SocketAddr, SocketAddr, Bytes)>,
    pairs: HashMap<QpId, Pair>,
}

impl<D: Device, T: Tap> Reconstructed<D, T> {
    /// Wraps `device`. `local` is the address of this side for connections to which the device
    /// gives none; without it, one from a block for documentation is shown (RFC 5737, RFC 3849).
    #[must_use]
    pub fn new(device: D, tap: T, local: Option<IpAddr>) -> Self {
        Self {
            device,
            tap,
            local,
            now: Time::ZERO,
            requests: HashMap::new(),
            pairs: HashMap::new(),
        }
    }

    /// Returns the address of this side towards `peer`.
    fn local(&self, peer: SocketAddr) -> IpAddr {
        self.local.unwrap_or(match peer {
            SocketAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
            SocketAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        })
    }

    fn saw(&mut self, event: &Event) {
        match event {
            Event::ConnectRequest(request) => self.requested(request),
            Event::Established { qp, private_data } => self.established(*qp, private_data),
            // The queue pair no longer exists, so nobody destroys it.
            Event::ConnectFailed { qp, .. } => {
                self.pairs.remove(qp);
            }
            Event::Disconnected { qp, .. } => self.ended(*qp),
            Event::Completion(Completion {
                qp,
                result: Ok(success),
                ..
            }) => self.completed(*qp, success),
            Event::Completion(_) | Event::SharedReceivesLow { .. } | Event::Removed => {}
        }
    }

    fn requested(&mut self, request: &ConnectRequest) {
        let heard = self.device.local_address(request.listener).ok();
        let ip = heard
            .map(|heard| heard.ip())
            .filter(|ip| !ip.is_unspecified());
        let local = SocketAddr::new(
            ip.unwrap_or_else(|| self.local(request.peer)),
            heard.map_or(0, |heard| heard.port()),
        );
        let private_data = request.private_data.clone();
        let seen = (local, request.peer, private_data);
        self.requests.insert(request.request, seen);
    }

    fn established(&mut self, qp: QpId, private_data: &Bytes) {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(&qp) else {
            return;
        };
        if pair.initiator {
            pair.reply = private_data.clone();
        }
        pair.established = true;
        let setup = Setup {
            initiator: pair.initiator,
            local: pair.local,
            peer: pair.peer,
            request: &pair.request,
            reply: &pair.reply,
        };
        self.tap.established(now, qp, &setup);
    }

    fn ended(&mut self, qp: QpId) {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(&qp).filter(|pair| pair.established) else {
            return;
        };
        pair.established = false;
        // Memory of an ended connection is not worth waiting for.
        pair.release(&mut self.tap, qp, true);
        self.tap.ended(now, qp);
    }

    fn completed(&mut self, qp: QpId, success: &Success) {
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(&qp) else {
            return;
        };
        let item = match success {
            Success::Read { sink } => Item::Response(sink.to_vec()),
            Success::Receive { buf, invalidated } => pair.received(buf, *invalidated),
            Success::Send | Success::Write | Success::Invalidate => return,
        };
        pair.add(&mut self.tap, qp, now, item);
    }
}

impl Pair {
    fn new(initiator: bool, ends: [SocketAddr; 2], request: Bytes) -> Self {
        Self {
            initiator,
            local: ends[0],
            peer: ends[1],
            request,
            reply: Bytes::new(),
            established: false,
            regions: HashMap::new(),
            held: VecDeque::new(),
            held_bytes: 0,
        }
    }

    /// Notes which memory a message announces.
    fn announce(&mut self, gather: &Gather) {
        if self
            .regions
            .values()
            .all(|region| region.announced.is_some())
        {
            return;
        }
        let mut message = Vec::new();
        for piece in gather {
            let room = LISTS - message.len();
            message.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let Some(&xid) = message.first_chunk() else {
            return;
        };
        for (place, (stag, _, offset)) in segments(&message).enumerate() {
            if let Some(region) = self.regions.get_mut(&stag)
                && region.offset == offset
            {
                region.announced.get_or_insert((xid, place));
            }
        }
    }

    fn received(&mut self, buf: &Scatter, invalidated: Option<Stag>) -> Item {
        let mut payload = Vec::with_capacity(buf.len());
        for piece in buf.pieces() {
            payload.extend_from_slice(piece);
        }
        let xid = payload.first_chunk().copied();
        let (mut read, mut written) = (Vec::new(), Vec::new());
        let lists = &payload[..payload.len().min(LISTS)];
        // In the order of the lists, which is that in which memory is read and filled.
        let mut regions: Vec<(usize, Stag, &mut Registered)> = self
            .regions
            .iter_mut()
            .filter_map(|(&stag, region)| match region.announced {
                Some((call, place)) if Some(call) == xid => Some((place, stag, region)),
                _ => None,
            })
            .collect();
        regions.sort_by_key(|(place, stag, _)| (*place, *stag));
        for (_, stag, region) in regions {
            if let Some(bytes) = region.readable.take() {
                read.push((stag, region.offset, bytes));
                continue;
            }
            let said = segments(lists).find(|said| (said.0, said.2) == (stag, region.offset));
            if let Some((_, length, offset)) = said.filter(|said| said.1 > 0) {
                written.push(Written {
                    stag,
                    offset,
                    length: (length as usize).min(region.length),
                    content: None,
                });
            }
        }
        Item::Received {
            payload,
            invalidated,
            read,
            written,
        }
    }

    fn reclaimed(&mut self, stag: Stag, region: &Region) {
        self.regions.remove(&stag);
        let Region::RemoteWrite(buf) = region else {
            return;
        };
        let items = self.held.iter_mut().map(|(_, item)| item);
        let written = items.filter_map(|item| match item {
            Item::Received { written, .. } => Some(written),
            _ => None,
        });
        for written in written.flatten().filter(|written| written.stag == stag) {
            written.content = buf.get(..written.length).map(<[u8]>::to_vec);
        }
    }

    fn add(&mut self, tap: &mut impl Tap, qp: QpId, at: Time, item: Item) {
        self.held_bytes += item.len();
        self.held.push_back((at, item));
        self.release(tap, qp, false);
    }

    /// Shows what needs not wait any more, or everything.
    fn release(&mut self, tap: &mut impl Tap, qp: QpId, all: bool) {
        while let Some((_, item)) = self.held.front() {
            let many = self.held.len() > HELD_ITEMS || self.held_bytes > HELD_BYTES;
            if !(all || many || item.is_complete()) {
                return;
            }
            let Some((at, item)) = self.held.pop_front() else {
                return;
            };
            self.held_bytes -= item.len();
            show(tap, at, qp, &item);
        }
    }
}

fn show(tap: &mut impl Tap, at: Time, qp: QpId, item: &Item) {
    match item {
        Item::Posted(Posted::Send { gather, invalidate }) => {
            let payload = &concat(gather);
            let invalidate = *invalidate;
            tap.sent(
                at,
                qp,
                Frame::Send {
                    payload,
                    invalidate,
                },
            );
        }
        Item::Posted(Posted::Write {
            gather,
            stag,
            offset,
        }) => {
            let (payload, stag, offset) = (&concat(gather)[..], *stag, *offset);
            tap.sent(
                at,
                qp,
                Frame::Write {
                    payload,
                    stag,
                    offset,
                },
            );
        }
        Item::Posted(Posted::Read {
            length,
            stag,
            offset,
        }) => {
            let (length, stag, offset) = (*length, *stag, *offset);
            tap.sent(
                at,
                qp,
                Frame::ReadRequest {
                    length,
                    stag,
                    offset,
                },
            );
        }
        Item::Posted(Posted::Invalidate { .. }) => {}
        Item::Response(payload) => tap.received(at, qp, Frame::ReadResponse { payload }),
        Item::Received {
            payload,
            invalidated,
            read,
            written,
        } => {
            for (stag, offset, bytes) in read {
                let request = Frame::ReadRequest {
                    length: bytes.len(),
                    stag: *stag,
                    offset: *offset,
                };
                tap.received(at, qp, request);
                tap.sent(at, qp, Frame::ReadResponse { payload: bytes });
            }
            for written in written {
                if let Some(payload) = &written.content {
                    let (stag, offset) = (written.stag, written.offset);
                    tap.received(
                        at,
                        qp,
                        Frame::Write {
                            payload,
                            stag,
                            offset,
                        },
                    );
                }
            }
            let invalidate = *invalidated;
            tap.received(
                at,
                qp,
                Frame::Send {
                    payload,
                    invalidate,
                },
            );
        }
    }
}

fn concat(gather: &Gather) -> Vec<u8> {
    gather.iter().flatten().copied().collect()
}

/// Returns everything in a message that can be an announced segment: handle, length and offset.
fn segments(message: &[u8]) -> impl Iterator<Item = (Stag, u32, u64)> {
    let word = |at: usize| -> u32 {
        let bytes = message.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let last = message.len().saturating_sub(16);
    (0..=last).step_by(4).map(move |at| {
        let offset = u64::from(word(at + 8)) << 32 | u64::from(word(at + 12));
        (Stag(word(at)), word(at + 4), offset)
    })
}

impl<D: fmt::Debug, T> fmt::Debug for Reconstructed<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reconstructed").field(&self.device).finish()
    }
}

impl<D: Device, T: Tap> Device for Reconstructed<D, T> {
    rdma::forward!(self => self.device;
        attributes pool counters attach ready set_busy_poll flush arm next_deadline listen
        local_address carrier close_listener disconnect abort ending give_back post_receive
        shared_receives);

    fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        // A request may have been posted after the owner read its clock. Its completion is not before it.
        self.now = self.now.max(now);
        let before = events.len();
        self.device.poll(now, events);
        for event in events.range(before..) {
            self.saw(event);
        }
    }

    fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        let qp = self.device.connect(remote, options)?;
        let ends = [SocketAddr::new(self.local(remote), 0), remote];
        let pair = Pair::new(true, ends, options.private_data.clone());
        self.pairs.insert(qp, pair);
        Ok(qp)
    }

    fn prepare_accept(
        &mut self,
        request: RequestId,
        receives: Option<SharedReceivesId>,
    ) -> Result<QpId, DeviceError> {
        let qp = self.device.prepare_accept(request, receives)?;
        if let Some((local, peer, private_data)) = self.requests.remove(&request) {
            let pair = Pair::new(false, [local, peer], private_data);
            self.pairs.insert(qp, pair);
        }
        Ok(qp)
    }

    fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        self.device.accept(qp, options)?;
        if let Some(pair) = self.pairs.get_mut(&qp) {
            pair.reply = options.private_data.clone();
        }
        Ok(())
    }

    fn reject(&mut self, request: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        self.requests.remove(&request);
        self.device.reject(request, private_data)
    }

    fn destroy(&mut self, qp: QpId) {
        self.ended(qp);
        self.pairs.remove(&qp);
        self.device.destroy(qp);
    }

    fn register(
        &mut self,
        qp: QpId,
        region: Region,
    ) -> Result<RemoteSegment, (DeviceError, Region)> {
        let length = region.len();
        let readable = match &region {
            Region::RemoteRead(bytes) => Some(bytes.clone()),
            Region::RemoteWrite(_) => None,
        };
        let segment = self.device.register(qp, region)?;
        if let Some(pair) = self.pairs.get_mut(&qp) {
            let registered = Registered {
                length,
                offset: segment.offset,
                readable,
                announced: None,
            };
            pair.regions.insert(segment.stag, registered);
        }
        Ok(segment)
    }

    fn reclaim(&mut self, qp: QpId, stag: Stag) -> Result<Region, DeviceError> {
        let region = self.device.reclaim(qp, stag)?;
        if let Some(pair) = self.pairs.get_mut(&qp) {
            pair.reclaimed(stag, &region);
            pair.release(&mut self.tap, qp, false);
        }
        Ok(region)
    }

    fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let posted = Posted::from(&wr);
        self.device.post_send(qp, id, wr, signaled)?;
        if let Some(pair) = self.pairs.get_mut(&qp) {
            if let Posted::Send { gather, .. } = &posted {
                pair.announce(gather);
            }
            // The last poll may be long ago: after an idle time, the owner posts before it polls.
            self.now = self.now.max(Time::now());
            pair.add(&mut self.tap, qp, self.now, Item::Posted(posted));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

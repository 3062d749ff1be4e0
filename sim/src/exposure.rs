//! An independent check of memory access: the segments that calls offer on the wire, compared with
//! registrations and with the peer's accesses (RFC 8166, sections 3.4.1 and 4.4.1; RFC 8797,
//! section 4.1; version-two-07, section 6.5).

use std::collections::{BTreeMap, BTreeSet};

use rdma::Stag;
use rdma_sim::{Access, End, NodeId};

use crate::message::Offered;

/// The chunk segment by which a call offers a region.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// The XID of the call.
    xid: u32,
    /// Whether the responder may write to the region; otherwise it may read it.
    write: bool,
    /// Whether the reply may invalidate the handle.
    may_be_invalidated: bool,
    /// The tagged offset of the first byte.
    offset: u64,
}

/// A registered region of a requester.
#[derive(Debug)]
struct Exposed {
    end: End,
    len: usize,
    /// `None` until a call that names the region is sent.
    offer: Option<Offer>,
    /// Whether the call's reply was taken.
    answered: bool,
}

/// All registrations of requesters.
#[derive(Debug, Default)]
pub(crate) struct Exposure {
    regions: BTreeMap<Stag, Exposed>,
    /// Handles that were invalidated by messages which their receivers have not taken yet. For
    /// each, the end that had registered it, and the XID of the call that had offered it to be
    /// invalidated.
    ended: BTreeMap<Stag, (End, Option<u32>)>,
    /// Ends that have sent messages which nothing here can read, and in which they may have offered
    /// memory.
    unknown: BTreeSet<End>,
}

impl Exposure {
    pub(crate) fn registered(&mut self, end: End, stag: Stag, len: usize) {
        let exposed = Exposed {
            end,
            len,
            offer: None,
            answered: false,
        };
        self.regions.insert(stag, exposed);
    }

    /// Records that a call is sent. Returns a violation if the call offers memory that is not
    /// registered with this length, or that another call has offered.
    pub(crate) fn offered(&mut self, end: End, xid: u32, offers: &[Offered]) -> Option<String> {
        for offered in offers {
            let Offered { segment, .. } = offered;
            let stag = Stag(segment.handle);
            let Some(region) = self.regions.get_mut(&stag).filter(|known| known.end == end) else {
                return Some(format!(
                    "{end} offers {stag}, which is not registered there"
                ));
            };
            if region.len != segment.length as usize {
                return Some(format!(
                    "{end} offers {} bytes at {stag}, and registered {}",
                    segment.length, region.len
                ));
            }
            if let Some(before) = region.offer {
                return Some(format!(
                    "{end} offers {stag} in call {xid:#x} and in call {:#x}",
                    before.xid
                ));
            }
            region.offer = Some(Offer {
                xid,
                write: offered.write,
                may_be_invalidated: offered.may_be_invalidated,
                offset: segment.offset,
            });
        }
        None
    }

    /// Records that an end sends a message of a version or an extension that is not known here. From now
    /// on, what it has offered is not known.
    pub(crate) fn unknown(&mut self, end: End) {
        self.unknown.insert(end);
    }

    /// Checks an access of the peer to memory of `end` that the device allowed.
    pub(crate) fn accessed(&self, end: End, access: &Access) -> Option<String> {
        let region = self.regions.get(&access.stag);
        let Some(region) = region.filter(|known| known.end == end) else {
            return Some(format!(
                "{end} serves a {access} that is not registered there"
            ));
        };
        let Some(offer) = region.offer else {
            if self.unknown.contains(&end) {
                return None;
            }
            return Some(format!("{end} serves a {access} that nobody was offered"));
        };
        let last = access.offset.checked_add(access.len as u64);
        let inside = access.offset >= offer.offset
            && last.is_some_and(|last| last <= offer.offset + region.len as u64);
        if offer.write != access.write || !inside {
            return Some(format!("{end} serves a {access}, and offered {offer:?}"));
        }
        region.answered.then(|| {
            format!(
                "{end} serves a {access} after the answer to {:#x}",
                offer.xid
            )
        })
    }

    pub(crate) fn invalidated(&mut self, end: End, stag: Stag, by_the_peer: bool) {
        let region = self.regions.remove(&stag);
        if by_the_peer {
            let offer = region.and_then(|region| region.offer);
            let offer = offer.filter(|offer| offer.may_be_invalidated);
            let xid = offer.map(|offer| offer.xid);
            self.ended.insert(stag, (end, xid));
        }
    }

    /// Records that a requester took the reply to a call, or another message (without an XID).
    /// `invalidated` is the handle that it invalidated, which must be one that the call offered.
    pub(crate) fn taken(
        &mut self,
        end: End,
        answered: Option<u32>,
        invalidated: Option<Stag>,
    ) -> Option<String> {
        if answered.is_some() {
            for region in self.regions.values_mut() {
                let same = region.end == end && region.offer.map(|offer| offer.xid) == answered;
                region.answered |= same;
            }
        }
        let stag = invalidated?;
        let (_, offered) = self.ended.remove(&stag)?;
        if offered.is_none() && self.unknown.contains(&end) {
            return None;
        }
        (offered.is_none() || offered != answered).then(|| {
            format!("{end} got {stag} of {offered:x?} invalidated by the answer to {answered:x?}")
        })
    }

    /// Records that a connection has ended, and with it all its registrations.
    pub(crate) fn over(&mut self, end: End) {
        self.unknown.remove(&end);
        self.regions.retain(|_, region| region.end != end);
        self.ended.retain(|_, (at, _)| *at != end);
    }

    pub(crate) fn crashed(&mut self, node: NodeId) {
        self.unknown.retain(|end| end.node != node);
        self.regions.retain(|_, region| region.end.node != node);
        self.ended.retain(|_, (at, _)| at.node != node);
    }

    /// Counts the calls of `node` with registered memory, by whether they were answered.
    pub(crate) fn calls(&self, node: NodeId) -> Exposing {
        let regions = self.regions.values();
        let offers = regions
            .filter(|region| region.end.node == node)
            .map(|region| {
                let offer = region.offer.map(|offer| offer.xid);
                (region.end, offer, region.answered)
            });
        let mut calls: Vec<_> = offers.collect();
        calls.sort_unstable();
        calls.dedup();
        let answered = calls.iter().filter(|(.., answered)| *answered).count();
        Exposing {
            answered,
            unanswered: calls.len() - answered,
        }
    }
}

/// The numbers of a host's calls that have registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exposing {
    /// Calls whose replies the requester has taken.
    pub(crate) answered: usize,
    /// Calls that the responder may still process, or that are not sent yet.
    pub(crate) unanswered: usize,
}

#[cfg(test)]
mod tests {
    use rdma::QpId;
    use rpcrdma_chunks::Segment;

    use super::*;

    const ONE: End = End {
        node: NodeId(0),
        qp: QpId(1),
    };
    const TWO: End = End {
        node: NodeId(0),
        qp: QpId(2),
    };
    const STAG: Stag = Stag(7);

    #[test]
    fn only_memory_that_is_registered_there_and_offered_may_be_accessed() {
        let access = Access {
            write: true,
            stag: STAG,
            offset: 100,
            len: 8,
        };
        let mut exposure = Exposure::default();
        assert!(exposure.accessed(ONE, &access).is_some(), "unknown");
        exposure.registered(ONE, STAG, 8);
        assert!(exposure.accessed(ONE, &access).is_some(), "not offered");
        let offered = Offered {
            segment: Segment {
                handle: STAG.0,
                length: 8,
                offset: 100,
            },
            write: true,
            may_be_invalidated: false,
        };
        assert_eq!(exposure.offered(ONE, 1, &[offered]), None);
        assert_eq!(exposure.accessed(ONE, &access), None);
        assert!(exposure.accessed(TWO, &access).is_some(), "of another");
        let longer = Access { len: 9, ..access };
        assert!(exposure.accessed(ONE, &longer).is_some(), "too long");
        exposure.invalidated(ONE, STAG, false);
        assert!(exposure.accessed(ONE, &access).is_some(), "no more");
    }
}

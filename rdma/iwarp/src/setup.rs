//! Negotiation with the two set-up frames (RFC 5044, section 7.1; RFC 6581). No I/O.
//!
//! CRC32C is used if either side asks for it (RFC 5044, section 7.1). By default this device does
//! not ask, nor does Linux's siw. `rpcrdma serve` asks by default; `rpcrdma compare` does not,
//! because the raw TCP stream beside it has no CRC either.

use bytes::Bytes;

use super::mpa::{DEPTH_UNSPECIFIED, Enhanced, Frame, Kind, REVISION_1, REVISION_2, Rtr};
use super::terminate::Code;

/// The parameters that this side requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants {
    pub(super) crc: bool,
    /// Number of RDMA Reads that the peer may have outstanding (IRD).
    pub(super) inbound_reads: u16,
    /// Number of outstanding RDMA Reads that this side requests (ORD).
    pub(super) outbound_reads: u16,
}

/// The parameters that set-up agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    pub(super) crc: bool,
    /// RDMA Reads the peer may have outstanding here (IRD).
    pub(super) inbound_reads: usize,
    /// RDMA Reads we may have outstanding there (ORD).
    pub(super) outbound_reads: usize,
    /// Whether the peer may begin with an FPDU or a Send without payload.
    pub(super) empty_rtr: bool,
    /// Whether this side must not send before the peer's first FPDU (RFC 5044, section 7.1.2, rule
    /// 4).
    pub(super) wait_for_peer: bool,
}

/// The action on a Request Frame that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unacceptable {
    /// Close without an answer, because the peer uses another protocol.
    Close(String),
    /// Reject the connection.
    Reject(&'static str),
}

/// The reaction to a Reply Frame that does not lead to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The peer's program rejected the connection.
    Rejected(Bytes),
    /// The peer requires something that this side does not support.
    Protocol(String),
    /// The peer requires something that this side does not support, and RFC 6581 defines a
    /// Terminate for it. It is an FPDU, so it has a CRC if either side asked for CRCs.
    Terminate { code: Code, crc: bool },
}

/// Returns the initiator's frame. It is an RFC 6581 frame at first, because Linux servers refuse
/// others for lack of IRD and ORD. A responder that knows revision 1 alone closes the connection
/// (RFC 5044, section 7.1.1, "Rev") or rejects it; then a frame of that revision follows on another
/// connection.
///
/// It does not ask for peer-to-peer set-up, although the ready-to-receive message of that is sent
/// anyway. In peer-to-peer set-up, Linux's siw establishes the connection with the first FPDU,
/// misses an FPDU that arrives while it still leaves set-up, and if the connection ends then, its
/// kernel stops with a "BUG" in iw_cm (seen with 6.12). Any other RNIC treats the message as what
/// it is: an RDMA Write without payload.
pub(super) fn request(wants: &Wants, revision: u8, private_data: Bytes) -> Frame {
    let enhanced = Enhanced {
        inbound_reads: wants.inbound_reads,
        outbound_reads: wants.outbound_reads,
        peer_to_peer: None,
    };
    Frame {
        kind: Kind::Request,
        markers: false,
        crc: wants.crc,
        rejected: false,
        revision,
        enhanced: (revision >= REVISION_2).then_some(enhanced),
        private_data,
    }
}

/// Checks the initiator's frame before the program is notified.
pub(super) fn check_request(request: &Frame) -> Result<(), Unacceptable> {
    if !(REVISION_1..=REVISION_2).contains(&request.revision) {
        // RFC 5044, section 7.1.1, "Rev".
        let text = format!("MPA revision {}", request.revision);
        return Err(Unacceptable::Close(text));
    }
    if request.markers {
        return Err(Unacceptable::Reject("the peer requires markers"));
    }
    Ok(())
}

/// Returns the responder's rejection.
pub(super) fn rejection(request: &Frame, private_data: Bytes) -> Frame {
    Frame {
        kind: Kind::Reply,
        markers: false,
        crc: request.crc,
        rejected: true,
        revision: request.revision,
        enhanced: request.enhanced.map(|theirs| Enhanced {
            inbound_reads: answer_depth(theirs.outbound_reads, 0),
            outbound_reads: answer_depth(theirs.inbound_reads, 0),
            peer_to_peer: theirs.peer_to_peer.map(choose),
        }),
        private_data,
    }
}

/// Returns the responder's acceptance and the agreed parameters. The flag says whether the
/// connection is established only with the peer's ready-to-receive message.
pub(super) fn accept(
    request: &Frame,
    wants: &Wants,
    private_data: Bytes,
) -> (Frame, Agreement, bool) {
    let crc = request.crc || wants.crc;
    let mut inbound = wants.inbound_reads;
    let mut outbound = wants.outbound_reads;
    let mut rtr = None;
    if let Some(theirs) = request.enhanced {
        // This side's IRD need not exceed the peer's ORD. An ORD of 0, as of Linux's NFS client, counts as 1.
        if theirs.outbound_reads != DEPTH_UNSPECIFIED {
            inbound = inbound.min(theirs.outbound_reads.max(1));
        }
        if theirs.inbound_reads != DEPTH_UNSPECIFIED {
            outbound = outbound.min(theirs.inbound_reads);
        }
        rtr = theirs.peer_to_peer.map(choose);
    }
    let enhanced = request.enhanced.map(|theirs| Enhanced {
        inbound_reads: answer_depth(theirs.outbound_reads, inbound),
        outbound_reads: answer_depth(theirs.inbound_reads, outbound),
        peer_to_peer: rtr,
    });
    let reply = Frame {
        kind: Kind::Reply,
        markers: false,
        crc,
        rejected: false,
        revision: request.revision,
        enhanced,
        private_data,
    };
    let agreement = Agreement {
        crc,
        inbound_reads: usize::from(inbound),
        outbound_reads: usize::from(outbound),
        empty_rtr: rtr == Some(Rtr::EMPTY),
        wait_for_peer: true,
    };
    (reply, agreement, rtr.is_some())
}

/// Returns the IRD or ORD for a reply: 0x3fff if the initiator sent 0x3fff in the field that this one
/// answers, which leaves the value to upper layers (RFC 6581, section 9.1); otherwise `ours`.
fn answer_depth(theirs: u16, ours: u16) -> u16 {
    if theirs == DEPTH_UNSPECIFIED {
        DEPTH_UNSPECIFIED
    } else {
        ours
    }
}

/// Chooses one of the kinds of ready-to-receive message that the initiator offers, preferably one
/// without side effects. An initiator that offers none is asked for a Write, as by Linux's siw: the
/// reply to peer-to-peer set-up must be peer-to-peer set-up with a kind that the responder supports
/// (RFC 6581, section 9.2). The initiator then sends that, or a Terminate, or is timed out.
fn choose(offered: Rtr) -> Rtr {
    [Rtr::WRITE, Rtr::READ, Rtr::EMPTY]
        .into_iter()
        .find(|kind| offered.contains(*kind))
        .unwrap_or(Rtr::WRITE)
}

/// Evaluates the reply at the initiator. `most_inbound` is the device's limit for IRD.
pub(super) fn conclude(
    reply: &Frame,
    wants: &Wants,
    most_inbound: u16,
) -> Result<Agreement, Failure> {
    if reply.rejected {
        return Err(Failure::Rejected(reply.private_data.clone()));
    }
    if reply.markers {
        return Err(Failure::Protocol("the peer requires markers".into()));
    }
    let crc = wants.crc || reply.crc;
    if reply.revision == REVISION_1 {
        // Nothing is said of IRD and ORD, which are the upper layers' matter then (RFC 5044). The
        // peer knows no limit, so that of the device holds.
        return Ok(Agreement {
            crc,
            inbound_reads: usize::from(most_inbound),
            outbound_reads: usize::from(wants.outbound_reads),
            empty_rtr: false,
            wait_for_peer: false,
        });
    }
    let Some(theirs) = reply.enhanced.filter(|_| reply.revision == REVISION_2) else {
        let text = format!("the peer answers with MPA revision {}", reply.revision);
        return Err(Failure::Protocol(text));
    };
    let terminate = |code| Failure::Terminate { code, crc };
    let mut inbound = wants.inbound_reads;
    let mut outbound = wants.outbound_reads;
    if theirs.outbound_reads != DEPTH_UNSPECIFIED {
        if theirs.outbound_reads > most_inbound {
            return Err(terminate(Code::INSUFFICIENT_IRD));
        }
        inbound = inbound.max(theirs.outbound_reads);
    }
    if theirs.inbound_reads != DEPTH_UNSPECIFIED {
        outbound = outbound.min(theirs.inbound_reads);
    }
    // A peer that uses peer-to-peer set-up unasked gets the message that is sent anyway, or none
    // (RFC 6581, section 9.2).
    if let Some(kinds) = theirs.peer_to_peer
        && !kinds.contains(Rtr::WRITE)
    {
        return Err(terminate(Code::NO_MATCHING_RTR));
    }
    Ok(Agreement {
        crc,
        inbound_reads: usize::from(inbound),
        outbound_reads: usize::from(outbound),
        empty_rtr: false,
        wait_for_peer: false,
    })
}

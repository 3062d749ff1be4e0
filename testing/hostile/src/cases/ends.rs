//! The Terminate codes of the specifications (RFC 5040, section 4.8; RFC 5041, section 7.2; RFC
//! 5044, section 8).

use crate::End::{self, Terminate};
use crate::wire::ddp::Code;

/// DDP, untagged: invalid queue number.
pub(super) const QUEUE: End = Terminate(Code(1, 2, 1));
/// DDP, untagged: no buffer available for the MSN.
pub(super) const NO_BUFFER: End = Terminate(Code(1, 2, 2));
/// DDP, untagged: MSN out of range.
pub(super) const MSN: End = Terminate(Code(1, 2, 3));
/// DDP, untagged: invalid message offset.
pub(super) const OFFSET: End = Terminate(Code(1, 2, 4));
/// DDP, untagged: message too long for its buffer.
pub(super) const TOO_LONG: End = Terminate(Code(1, 2, 5));
/// DDP, untagged: invalid DDP version.
pub(super) const UNTAGGED_VERSION: End = Terminate(Code(1, 2, 6));
/// DDP, tagged: invalid STag.
pub(super) const STAG: End = Terminate(Code(1, 1, 0));
/// DDP, tagged: base or bounds violation.
pub(super) const BOUNDS: End = Terminate(Code(1, 1, 1));
/// DDP, tagged: the tagged offset wraps around.
pub(super) const WRAP: End = Terminate(Code(1, 1, 3));
/// DDP, tagged: invalid DDP version.
pub(super) const TAGGED_VERSION: End = Terminate(Code(1, 1, 4));
/// RDMAP: local catastrophic error.
pub(super) const LOCAL: End = Terminate(Code(0, 0, 0));
/// RDMAP: invalid STag of an RDMA Read.
pub(super) const READ_STAG: End = Terminate(Code(0, 1, 0));
/// RDMAP: base or bounds violation of an RDMA Read.
pub(super) const READ_BOUNDS: End = Terminate(Code(0, 1, 1));
/// RDMAP: access rights violation of an RDMA Read.
pub(super) const READ_RIGHTS: End = Terminate(Code(0, 1, 2));
/// RDMAP: the tagged offset of an RDMA Read wraps around.
pub(super) const READ_WRAP: End = Terminate(Code(0, 1, 4));
/// RDMAP: the STag cannot be invalidated.
pub(super) const INVALIDATE: End = Terminate(Code(0, 1, 9));
/// RDMAP: invalid RDMAP version.
pub(super) const RDMAP_VERSION: End = Terminate(Code(0, 2, 5));
/// RDMAP: unexpected opcode.
pub(super) const OPCODE: End = Terminate(Code(0, 2, 6));
/// RDMAP: an error of the stream without a code of its own.
pub(super) const CATASTROPHE: End = Terminate(Code(0, 2, 7));
/// MPA: CRC error.
pub(super) const BAD_CRC: End = Terminate(Code(2, 0, 2));
/// MPA, enhanced setup: the responder's ORD exceeds this side's IRD.
pub(super) const INSUFFICIENT_IRD: End = Terminate(Code(2, 0, 6));
/// MPA, enhanced setup: no ready-to-receive message that both sides support.
pub(super) const NO_MATCHING_RTR: End = Terminate(Code(2, 0, 7));

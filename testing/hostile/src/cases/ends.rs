//! The Terminates that the documents name (RFC 5040, section 4.8; RFC 5041, section 7.2; RFC 5044,
//! section 8).

use crate::End::{self, Terminate};
use crate::wire::ddp::Code;

/// DDP, untagged: a queue that there is not.
pub(super) const QUEUE: End = Terminate(Code(1, 2, 1));
/// DDP, untagged: no buffer for it.
pub(super) const NO_BUFFER: End = Terminate(Code(1, 2, 2));
/// DDP, untagged: MSN.
pub(super) const MSN: End = Terminate(Code(1, 2, 3));
/// DDP, untagged: message offset.
pub(super) const OFFSET: End = Terminate(Code(1, 2, 4));
/// DDP, untagged: too long for its buffer.
pub(super) const TOO_LONG: End = Terminate(Code(1, 2, 5));
/// DDP, untagged: version.
pub(super) const UNTAGGED_VERSION: End = Terminate(Code(1, 2, 6));
/// DDP, tagged: handle.
pub(super) const STAG: End = Terminate(Code(1, 1, 0));
/// DDP, tagged: bounds.
pub(super) const BOUNDS: End = Terminate(Code(1, 1, 1));
/// DDP, tagged: the offset passes the address space.
pub(super) const WRAP: End = Terminate(Code(1, 1, 3));
/// DDP, tagged: version.
pub(super) const TAGGED_VERSION: End = Terminate(Code(1, 1, 4));
/// RDMAP: this side cannot do what it has to.
pub(super) const LOCAL: End = Terminate(Code(0, 0, 0));
/// RDMAP: handle of a Read.
pub(super) const READ_STAG: End = Terminate(Code(0, 1, 0));
/// RDMAP: bounds of a Read.
pub(super) const READ_BOUNDS: End = Terminate(Code(0, 1, 1));
/// RDMAP: a Read of what may not be read.
pub(super) const READ_RIGHTS: End = Terminate(Code(0, 1, 2));
/// RDMAP: the offset of a Read passes the address space.
pub(super) const READ_WRAP: End = Terminate(Code(0, 1, 4));
/// RDMAP: handle to invalidate.
pub(super) const INVALIDATE: End = Terminate(Code(0, 1, 9));
/// RDMAP: version.
pub(super) const RDMAP_VERSION: End = Terminate(Code(0, 2, 5));
/// RDMAP: opcode.
pub(super) const OPCODE: End = Terminate(Code(0, 2, 6));
/// RDMAP: what has no code of its own.
pub(super) const CATASTROPHE: End = Terminate(Code(0, 2, 7));
/// MPA: CRC.
pub(super) const BAD_CRC: End = Terminate(Code(2, 0, 2));
/// MPA, enhanced set-up: the responder's ORD is over our IRD.
pub(super) const INSUFFICIENT_IRD: End = Terminate(Code(2, 0, 6));
/// MPA, enhanced set-up: no ready-to-receive message that both can do.
pub(super) const NO_MATCHING_RTR: End = Terminate(Code(2, 0, 7));

//! Calls that are made again after an error that says what to change (version-two-07, section 7.3).
//!
//! Some errors refuse the chunks of a call that was not executed: it is sent again with fewer.
//! Others say that a reply did not fit what its call offered: the call was executed, so only one
//! that is idempotent is made again, with larger chunks.

use onc_rpc::padded;
use transfer_plan::Limits;

use super::Requester;
use super::outstanding::Outstanding;
use super::pending::PendingCall;
use super::registration::Purpose;
use crate::dialect::{PeerError, Returned};

/// The maximum number of times that a call is sent again. Each error that refuses chunks can lead
/// to one more, and so can a result that has grown meanwhile.
const MAX_REPEATS: u8 = 3;
/// The most memory that is offered for a result because a responder says so, bytes. A responder
/// must not decide how much memory a requester registers; no NFS result that a binding
/// underestimates is near this.
const MOST_ROOM: u64 = 4 << 20;

impl Requester {
    /// Returns the changed call to send again after this answer, or `None` if the answer ends the
    /// call.
    pub(super) fn repeated(
        &self,
        key: usize,
        returned: &Returned,
        limits: &Limits,
    ) -> Option<PendingCall> {
        let Returned::Error(error) = *returned else {
            return None;
        };
        let call = &self.calls[key];
        let source = call.original().filter(|call| call.repeats < MAX_REPEATS)?;
        let mut again = source.clone();
        again.repeats += 1;
        let changed = match error {
            PeerError::WriteResource { .. } | PeerError::ReplyResource { .. } => {
                // `self.chunks` is false for calls in the reverse direction to a client that supports
                // only inline messages there. No write or reply chunk can be offered to it.
                source.idempotent && self.chunks && with_more_room(call, &mut again, error, limits)
            }
            _ => with_fewer_chunks(call, &mut again, error),
        };
        changed.then(|| {
            rpcrdma_host::limited!(
                warn,
                xid = call.xid,
                ?error,
                "call is sent again in another way"
            );
            again
        })
    }
}

/// Limits the chunks of a call that was refused with this error. Returns false if it is no such
/// error, or if the call has no more chunks than the responder takes.
fn with_fewer_chunks(call: &Outstanding, again: &mut PendingCall, error: PeerError) -> bool {
    let offered = call.offered_chunks();
    let listed = offered.reads.iter().map(|read| read.position);
    let mut positions: Vec<u32> = listed.filter(|&position| position != 0).collect();
    positions.dedup();
    let chunks = &mut again.chunks;
    let (limit, max, count) = match error {
        PeerError::ReadChunks { max: 0 } => {
            // The call chunk is a read chunk, too (section 4.5.1.2). Without it, the call is continued.
            chunks.position_zero = false;
            (&mut chunks.read_chunks, 0, offered.reads.len())
        }
        PeerError::ReadChunks { max } => (&mut chunks.read_chunks, max, positions.len()),
        PeerError::WriteChunks { max } => (&mut chunks.write_chunks, max, offered.writes.len()),
        PeerError::Segments { max } => (&mut chunks.segments, max, call.registrations.len()),
        _ => return false,
    };
    *limit = max;
    count > max as usize
}

/// Sets the length of a result or reply in `again` to the length that the error asks for. Returns
/// false if the error names no length, no more than the call offered, or more than [`MOST_ROOM`].
/// `limits` are those of the connection.
fn with_more_room(
    call: &Outstanding,
    again: &mut PendingCall,
    error: PeerError,
    limits: &Limits,
) -> bool {
    // These errors say that the reply cannot be continued (version-two-07, sections 7.3.4 and 7.3.5),
    // so the next plan must offer chunks and not rely on continuation or an extension.
    again.base_only = true;
    match error {
        PeerError::WriteResource { chunk, needed } => {
            let (index, needed) = ((chunk as usize).wrapping_sub(1), u64::from(needed));
            let room = call.registered_bytes(Purpose::Write(index));
            match again.need.items.get_mut(index) {
                Some(item) if room > 0 && needed > room && needed <= MOST_ROOM => {
                    *item = needed;
                    true
                }
                _ => false,
            }
        }
        PeerError::ReplyResource { needed } => {
            let needed = u64::from(needed);
            let room = call.registered_bytes(Purpose::Reply);
            // The reply includes the items that had no Write chunk. The next call offers one for each.
            let unplaced: u64 = match call.offered_chunks().writes.is_empty() {
                true => again.need.items.iter().copied().map(padded).sum(),
                false => 0,
            };
            let payload = &mut again.need.payload;
            *payload = match room {
                // The reply was to be inline or continued. A payload that does not fit the inline
                // threshold makes the next plan offer a Reply chunk, with the room of the binding
                // or more.
                0 => {
                    let needed = needed.saturating_sub(unplaced);
                    needed.max(*payload).max(limits.inline_receive)
                }
                room => payload.saturating_add(needed.saturating_sub(room)),
            };
            needed > room && needed <= MOST_ROOM
        }
        _ => false,
    }
}

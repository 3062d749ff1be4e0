//! Plain messages of the working group's version 2.

use onc_rpc::Segments;
use rpcrdma_chunks::{Direction, FIXED_LEN, Fixed};
use rpcrdma_v2_wg::header_type;
use rpcrdma_v2_wg::limits::{CALL_INLINE_LEN, REPLY_INLINE_LEN};

use super::super::{Plain, Receiver};

/// Length of the zeroes behind the prefix of the working group's version 2 in a plain call, bytes: no handle to
/// invalidate, and three empty lists.
const WG_CALL_LISTS: usize = CALL_INLINE_LEN - FIXED_LEN;
/// Length of the zeroes behind the prefix in a plain reply of that version, bytes: an empty write list.
const WG_REPLY_LISTS: usize = REPLY_INLINE_LEN - FIXED_LEN;

impl Plain {
    /// Removes the header of a message and returns its direction and fields, if it is a plain header
    /// of the working group's version 2 without a handle to invalidate, its XID and direction are
    /// those of the RPC message (version-two-07, section 7.2), and `receiver` takes it. Otherwise
    /// returns `None` and changes nothing.
    pub(in super::super) fn take_wg(
        message: &mut Segments,
        receiver: &Receiver,
    ) -> Option<(Direction, Self)> {
        let fixed = Fixed::peek(message.first()?)?;
        if fixed.version != rpcrdma_v2_wg::VERSION {
            return None;
        }
        match fixed.procedure {
            header_type::CALL_INLINE => {
                let direction = Direction::Call;
                Self::take_after::<WG_CALL_LISTS>(message, fixed, FIXED_LEN, direction, receiver)
            }
            header_type::REPLY_INLINE => {
                let direction = Direction::Reply;
                Self::take_after::<WG_REPLY_LISTS>(message, fixed, FIXED_LEN, direction, receiver)
            }
            _ => None,
        }
    }
}

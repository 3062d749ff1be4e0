//! Several RPC messages in one transmission (rtissues-01, section 4).
//!
//! On receipt an extension takes such a transmission apart and delivers each message
//! ([`Outbox::transferred`](crate::Outbox::transferred)). To have one sent, it is offered the messages
//! that can be sent now ([`Batching::send_batch`]): the calls that were made, or the replies that were
//! given, since the driver last asked the connection what to send. None waits for others to come.
//!
//! *Credits.* Each call stays a call of its own. Where calls are counted, it takes a credit until
//! its reply arrives, as if it had been sent alone; the transmission consumes one receive of the
//! peer, so that fewer are consumed than credits are taken. Where messages are counted, the
//! transmission is one message, whatever it carries: only this end's own maximum limits its calls
//! then, and at the peer `rpcrdma_connection::flow::FURTHER_CALLS`. The receiver of calls says by
//! [`IncomingCall::transmissions`] which of the two it is.
//!
//! *XIDs.* A transmission with calls has an XID of its own, which is that of no call. So an error of
//! the peer says whether it is about the transmission or about one of its calls. After an error
//! about the transmission, none of its calls has been executed, and each is sent again by itself. A
//! transmission with replies has the XID of the first one. Every call is answered under its own XID,
//! whatever it was sent with, and can be cancelled by itself.
//!
//! *Invalidation.* The Send of a batch invalidates no handle: it can name one only, and calls that a
//! batch carries offer none. A reply that is to invalidate a handle of its call is sent alone.
//!
//! [`IncomingCall::transmissions`]: crate::IncomingCall::transmissions

use onc_rpc::Message;
use rpcrdma_chunks::Direction;

use crate::{PeerError, Transmission};

/// RPC messages that can be sent now. Each has no bulk items, neither itself nor in its reply, and
/// fits one plain transmission without chunks.
#[derive(Clone, Copy, Debug)]
pub struct SmallMessages<'a> {
    /// Whether all are calls or all are replies.
    pub direction: Direction,
    /// The messages, two at least, in the order in which they are sent. There are no more calls than
    /// credits.
    pub messages: &'a [&'a Message],
    /// Maximum length in bytes of a transmission's fields and payload together.
    pub room: u64,
}

/// A transmission that carries several RPC messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of messages that it carries: the first ones of those that were offered, two at least.
    pub count: usize,
    /// The transmission. It has no padding and places no data.
    pub transmission: Transmission,
}

/// The interface of an extension that has several small RPC messages sent together.
pub trait Batching {
    /// Returns a transmission that carries the first of these messages. With `None`, each is sent by
    /// itself.
    fn send_batch(&mut self, small: &SmallMessages<'_>) -> Option<Batch>;

    /// Reports that the peer answered a transmission with calls with an error. Each of its calls is sent
    /// again by itself. The extension should make no more batches for this peer.
    fn batch_refused(&mut self, error: PeerError) {
        let _ = error;
    }
}

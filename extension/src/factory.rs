//! The making of extensions for connections.

use std::fmt;
use std::sync::Arc;

use rpcrdma_chunks::Side;
use transfer_plan::CostModel;

use crate::Extension;
use crate::layout::ReceiveStructure;

/// The configuration of one end of a connection, as far as extensions depend on it.
#[derive(Clone, Copy, Debug)]
pub struct EndConfig<'a> {
    /// The end of the connection that this is.
    pub side: Side,
    /// The maximum number of outstanding calls from client to server.
    pub credits: u32,
    /// The maximum number of outstanding calls from server to client; 0 if there are none.
    pub callbacks: u32,
    /// Whether calls from server to client and their replies may have chunks.
    pub callback_chunks: bool,
    /// The structure of the first receives.
    pub receives: &'a ReceiveStructure,
    /// Whether there is memory for receives in which data is placed.
    pub may_place: bool,
    /// Whether there is memory for the receives that the parts of incomplete calls hold.
    pub may_hold_calls: bool,
    /// Maximum length in bytes to which this end enlarges its receives at the peer's request.
    pub max_receive_size: u32,
    /// Maximum length in bytes of a message to send, whatever the peer can receive.
    pub max_send: u32,
    /// Maximum length in bytes of an RPC message, items included.
    pub max_message: u32,
    /// Maximum length in bytes of a segment that this end registers or takes.
    pub max_segment: u32,
    /// Maximum number of segments in the chunk lists of a call that this end takes.
    pub max_segments: u32,
    /// Whether replies may invalidate handles of calls (Send With Invalidate).
    pub remote_invalidation: bool,
    /// The cost of each kind of work request and registration, by which transfer modes are
    /// compared.
    pub costs: &'a CostModel,
}

impl EndConfig<'_> {
    /// Returns whether this end makes calls.
    #[must_use]
    pub fn makes_calls(&self) -> bool {
        self.side == Side::Client || self.callbacks > 0
    }

    /// Returns whether this end takes calls with chunks.
    #[must_use]
    pub fn takes_chunks(&self) -> bool {
        self.side == Side::Server || self.callbacks > 0 && self.callback_chunks
    }
}

/// A configured extension, of which each connection gets a state of its own.
pub trait ExtensionFactory: fmt::Debug + Send + Sync {
    /// Makes the state for a new connection, or none if the extension is of no use there.
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>>;

    /// Returns the structure of the receives that the extension wants, each for messages of at least
    /// `plain` bytes. `None`, the default, if receives of one segment will do.
    fn receives(&self, plain: u32) -> Option<ReceiveStructure> {
        let _ = plain;
        None
    }

    /// Returns the length in bytes of the longest message that the extension sends, if it is more than
    /// other messages may have. 0 by default.
    fn max_send(&self) -> u32 {
        0
    }

    /// Returns the maximum number of receives that the parts of one incomplete call can hold if
    /// `credits` are granted. 0 by default.
    fn held_by_a_call(&self, credits: u32) -> u32 {
        let _ = credits;
        0
    }
}

/// Returns a factory that makes each state by calling `make`.
#[must_use]
pub fn made_by(
    make: impl Fn(&EndConfig<'_>) -> Box<dyn Extension> + Send + Sync + 'static,
) -> Arc<dyn ExtensionFactory> {
    Arc::new(MadeBy(make))
}

struct MadeBy<F>(F);

impl<F> fmt::Debug for MadeBy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadeBy")
    }
}

impl<F> ExtensionFactory for MadeBy<F>
where
    F: Fn(&EndConfig<'_>) -> Box<dyn Extension> + Send + Sync,
{
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        Some(self.0(end))
    }
}

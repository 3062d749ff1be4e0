//! The state of the base protocol at one end of a connection: the exchange of properties (section
//! 5) and messages in several parts (section 6.6.2).
//!
//! [`Base`] is a [`TransferMode`](rpcrdma_extension::TransferMode), like an extension that carries
//! messages. Received messages are passed to its other methods.

mod collect;
mod exchange;
mod parts;
mod transfer;

use rpcrdma_chunks::Side;
use rpcrdma_extension::agreed::{
    CALL_TRANSMISSIONS, CHARACTERISTICS, INVALIDATED_HERE, INVALIDATED_THERE, PLACED_HERE,
    PLACED_THERE, REPLY_TRANSMISSIONS, both,
};
use rpcrdma_extension::{
    AgreedFeatures, ConnectionLimits, FeatureReason, FeatureValue, Outbox, Property, Reassembly,
    ReverseDirection,
};

use self::exchange::PeerProperties;
pub use self::transfer::preferred_handle;
use crate::limits::{DEFAULT_INLINE, LEAST_REPLY};
use crate::{Properties, ReverseSupport};

/// The configuration of one end.
#[derive(Clone, Debug)]
pub struct Config {
    /// The side of the connection that this end is: client or server.
    pub side: Side,
    /// The properties that this end announces.
    pub properties: Properties,
    /// Whether calls of this end offer a handle to be invalidated by the reply (section 6.5).
    pub offer_invalidation: bool,
    /// Whether replies of this end may invalidate the handle that a call offers.
    pub can_invalidate: bool,
    /// Maximum length of an RPC message in bytes, items included.
    pub max_message: u64,
}

/// The state of the base protocol at one end of a connection.
#[derive(Debug)]
pub struct Base {
    config: Config,
    peer: PeerProperties,
    collection: Option<Reassembly>,
    /// Bytes of parts that were copied.
    copied: u64,
    /// Whether the peer has refused RDMA2_CALL_MIDDLE as an unknown header type. This end then
    /// sends no more continued calls on the connection (section 7.1.3).
    no_continued_calls: bool,
    /// Whether the peer was unable to return a reply that was to be continued. Calls whose replies may
    /// be long offer chunks from then on (section 7.3.5).
    no_continued_replies: bool,
}

impl Base {
    /// Creates the state for a new connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            peer: PeerProperties::default(),
            collection: None,
            copied: 0,
            no_continued_calls: false,
            no_continued_replies: false,
        }
    }

    /// Returns the properties that this end announces.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.config.properties
    }

    /// Returns the properties that the peer announced, once all have arrived.
    #[must_use]
    pub fn peer(&self) -> Option<&Properties> {
        self.peer.known()
    }

    /// Returns the maximum length in bytes of a message to the peer. Section 5.2.2 has no minimum:
    /// a call or reply whose header does not fit fails.
    fn inline_send(&self) -> u32 {
        let takes = self.peer().map_or(DEFAULT_INLINE, |peer| peer.receive_size);
        takes.min(self.config.properties.send_size)
    }

    /// Returns whether calls of this end and their replies may have several parts. Those of a server
    /// are in the reverse direction, for which its client may support the simple format alone
    /// (section 5.2.5).
    fn may_have_parts(&self) -> bool {
        match self.config.side {
            Side::Client => true,
            Side::Server => {
                let peer = self.peer();
                peer.is_some_and(|peer| peer.reverse >= ReverseSupport::Continued)
            }
        }
    }

    /// Returns whether calls of this end may be continued.
    fn may_continue_calls(&self) -> bool {
        self.may_have_parts() && !self.no_continued_calls
    }

    /// Returns whether replies to calls of this end may be continued.
    fn may_have_continued_replies(&self) -> bool {
        self.may_have_parts() && !self.no_continued_replies
    }

    /// Returns the number of segments that a header to the peer may list (section 5.2.4).
    #[must_use]
    pub fn max_segments(&self) -> u32 {
        let default = Properties::default();
        self.peer().unwrap_or(&default).segment_count
    }
}

impl Base {
    /// Sends the properties of this end, and those of its extensions.
    pub fn announce(&self, of_extensions: &[Property], out: &mut Outbox<'_>) {
        let Config {
            side, properties, ..
        } = &self.config;
        exchange::announce(properties, *side, of_extensions, out);
    }

    /// Sets the limits that follow from the properties of both ends.
    pub fn limits(&self, limits: &mut ConnectionLimits) {
        let inline_send = self.inline_send();
        limits.inline_send = inline_send;
        limits.reply_last_resort = Some(inline_send);
        limits.may_invalidate = self.config.can_invalidate;
        limits.reverse_direction = ReverseDirection::None;
        limits.max_segments = Some(self.max_segments());
        if let Some(peer) = self.peer() {
            // The properties of this end precede its RPC messages, so a peer that replies to one has
            // received them. A peer that sends less than this end receives needs chunks for replies
            // that are longer than its own maximum (section 5.2.1). No call provides for less than
            // LEAST_REPLY: a peer that announces less either sends that much, or can answer nothing.
            let send_size = peer.send_size.max(LEAST_REPLY);
            limits.inline_receive = self.config.properties.receive_size.min(send_size);
            limits.max_segment = Some(peer.segment_size);
            limits.reverse_direction = match peer.reverse {
                ReverseSupport::None => ReverseDirection::None,
                ReverseSupport::Simple | ReverseSupport::Continued => ReverseDirection::Inline,
                ReverseSupport::General => ReverseDirection::General,
            };
        }
    }

    /// Lists the features that the base protocol settles, with the reasons. Bulk data is placed by Sends
    /// only if an extension does it.
    pub fn agreed(&self, agreed: &mut AgreedFeatures) {
        let each_call = |offered: bool| match offered {
            true => (true, FeatureReason::EachCall),
            false => (false, FeatureReason::Here),
        };
        let known = both(true, self.peer().is_some(), FeatureReason::NotSaidYet);
        agreed.set(CHARACTERISTICS, known);
        agreed.set(INVALIDATED_HERE, each_call(self.config.offer_invalidation));
        agreed.set(INVALIDATED_THERE, each_call(self.config.can_invalidate));
        for name in [PLACED_THERE, PLACED_HERE] {
            agreed.set(name, (false, FeatureReason::Here));
        }
        for name in [CALL_TRANSMISSIONS, REPLY_TRANSMISSIONS] {
            agreed.set(name, (FeatureValue::UpTo(u32::MAX), FeatureReason::Version));
        }
    }

    /// Returns whether some of the peer's properties have arrived and others are to follow.
    #[must_use]
    pub fn exchange_is_incomplete(&self) -> bool {
        self.peer.is_incomplete()
    }

    /// Returns how many bytes of memory the parts of an incomplete message take.
    #[must_use]
    pub fn collected_bytes(&self) -> usize {
        self.collection.as_ref().map_or(0, Reassembly::memory)
    }

    /// Returns how many of these bytes are copies of short parts.
    #[must_use]
    pub fn collected_copies(&self) -> usize {
        self.collection.as_ref().map_or(0, Reassembly::copies)
    }

    /// Returns the number of bytes of messages that were copied.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied
    }
}

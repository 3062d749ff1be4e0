//! What is said on a connection: which version is found, and what its extensions want.
//!
//! A conversation stands between the driver and the requester or responder of one connection. Until
//! the version is known, messages are the negotiation's. In version 1 they then pass straight
//! through; in version 2 ([`Extended`]) each header is decoded once and shown to the extensions,
//! and what is left for the base goes on with its header.

mod client;
mod convey;
mod server;

use std::collections::VecDeque;

use bytes::Bytes;
use conveyance::Limits;
use onc_rpc::Segments;
use rpcrdma_ext_continuation::Transmit;
use rpcrdma_ext_xchar::{BackwardSupport, Config, Exchange, Registry};
use rpcrdma_negotiation::{Features, Have, PeerHas, Version, decide_features, decide_round_trips};
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::extension::{Action, Calls, Extension, Extensions, OpttypeTaken, Routed};
use rpcrdma_v2::limits::FIRST_MESSAGE_MAX;
use rpcrdma_v2::{Body, Direction, Header, Side};

pub(crate) use self::client::ClientConversation;
pub use self::convey::Considered;
pub(crate) use self::server::ServerConversation;
use super::wire::{self, Answer, BadCall, pieces};
use super::{CallbackOptions, RdmaOptions, ReceiveStructure, Requester, Responder, round_trips};

/// Credits asked for and granted in a direction in which nobody calls: the least that can be said.
const LEAST_CREDITS: u32 = 1;

/// What this end of a connection has.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) side: Side,
    pub(crate) options: RdmaOptions,
    /// Longest piece of memory for a segment, bytes.
    pub(crate) max_segment: u64,
    /// What the receives are made of that are posted at the beginning.
    pub(crate) receives: ReceiveStructure,
    /// Receives that can be posted for replies in several transmissions.
    pub(crate) spare_receives: u32,
    /// What the peer said in private data.
    pub(crate) peer: Option<PrivateData>,
}

impl Setup {
    /// Limits of a connection that sends and receives messages of these lengths.
    pub(crate) fn limits(&self, version: Version, send: u32, receive: u32) -> Limits {
        Limits {
            inline_send: u64::from(send),
            inline_receive: u64::from(receive),
            max_segment: self.max_segment,
            max_message: u64::from(self.options.max_message),
            header_len: wire::header_len(version),
        }
    }

    fn receive_size(&self) -> u32 {
        u32::try_from(self.receives.size()).unwrap_or(u32::MAX)
    }

    fn config(&self) -> Config {
        let invalidation = self.options.remote_invalidation;
        let mut registry = Registry::default();
        if !self.options.features.is_none()
            && let Err(taken) = rpcrdma_ext_continuation::register(&mut registry)
        {
            tracing::error!(%taken, "characteristics are not understood");
        }
        Config {
            registry,
            receive_size: self.receive_size(),
            max_receive_size: self.options.max_receive_size,
            max_send: self.max_send(),
            accept_invalidation: invalidation && self.side == Side::Client,
            can_invalidate: invalidation && self.side == Side::Server,
            backward: match self.options.callbacks {
                _ if self.side == Side::Server => BackwardSupport::None,
                CallbackOptions { credits: 0, .. } => BackwardSupport::None,
                CallbackOptions { chunks: false, .. } => BackwardSupport::Inline,
                CallbackOptions { chunks: true, .. } => BackwardSupport::General,
            },
        }
    }

    pub(super) fn max_send(&self) -> u32 {
        let inline = self.options.inline_send.max(FIRST_MESSAGE_MAX);
        round_trips::max_send(self.options.features, inline)
    }

    /// What may be used, and why.
    fn features(&self, version: Version, second: Option<&Extended>) -> Features {
        let config = self.config();
        let have = Have {
            side: self.side,
            max_send: config.max_send,
            // It may have changed since the beginning.
            receive_size: match second {
                Some(second) => second.extensions.limits().inline_receive,
                None => config.receive_size,
            },
            accept_invalidation: config.accept_invalidation,
            can_invalidate: config.can_invalidate,
            private_data: self.options.private_data(),
            characteristics: true,
        };
        let exchange = second.and_then(|second| second.extensions.find::<Exchange>());
        let peer = match (version, exchange) {
            (Version::One, _) => PeerHas::PrivateData(self.peer),
            (Version::Two, None) => PeerHas::NotSaidYet,
            (Version::Two, Some(exchange)) => match exchange.supported() {
                None => PeerHas::NotSaidYet,
                Some(false) => PeerHas::NoCharacteristics,
                Some(true) => PeerHas::Characteristics(exchange.peer()),
            },
        };
        let round_trips = round_trips::config(self);
        let round_trips = round_trips.map(|own| decide_round_trips(self.side, &own, peer));
        decide_features(&have, peer).with_round_trips(round_trips.flatten())
    }
}

/// What the driver must do for a conversation.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Send this message. It takes no credit.
    Send(Bytes),
    /// Replace receives by such as these, as they are used.
    ReplaceReceives(ReceiveStructure),
}

/// A message's first piece, in which negotiation finds what it looks at: no receive begins with a
/// segment that is too short for that ([`ReceiveStructure::new`]).
fn first(message: &Segments) -> &[u8] {
    message.first().map_or(&[], |first| first)
}

/// The parts that this end plays: one in each direction, as far as there are calls in it.
pub(crate) struct Parts<'a> {
    requester: Option<&'a mut Requester>,
    responder: Option<&'a mut Responder>,
}

impl Parts<'_> {
    /// What a message that carries no RPC says of credits: those that are asked for in its direction,
    /// or granted.
    fn credits(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Call => self.requester.as_ref().map(|part| part.requested()),
            Direction::Reply => self.responder.as_ref().map(|part| part.grant()),
        }
        .unwrap_or(LEAST_CREDITS)
    }
}

/// What a message of version 2 was.
#[derive(Debug)]
enum Heard {
    /// It is for the base; with its payload.
    Base(Header, Segments),
    /// It was for an extension; its direction, and its credits unless it was an error: those of the
    /// first message count that is none (version-two-01, section 5).
    Taken(Direction, Option<u32>),
    /// It is not acted upon, and may have to be answered with an error.
    Bad(BadCall),
}

/// A connection's version 2.
#[derive(Debug)]
pub(crate) struct Extended {
    setup: Setup,
    extensions: Extensions,
    /// The extensions know that the connection has begun.
    begun: bool,
    /// Part of a message has arrived, and the rest has not.
    collecting: bool,
    /// Errors to send.
    errors: VecDeque<Bytes>,
}

impl Extended {
    /// With operations that have XIDs from `first_xid` downwards.
    ///
    /// # Errors
    /// Extensions that were chosen do not go together.
    fn new(setup: Setup, first_xid: u32) -> Result<Self, OpttypeTaken> {
        let mut list: Vec<Box<dyn Extension>> = vec![Box::new(Exchange::new(setup.config()))];
        if let Some(config) = round_trips::config(&setup) {
            list.push(Box::new(Transmit::new(config)));
        }
        list.extend(setup.options.extensions.iter().map(|make| make(setup.side)));
        let extensions = Extensions::new(setup.side, first_xid, list)?;
        Ok(Self {
            setup,
            extensions,
            begun: false,
            collecting: false,
            errors: VecDeque::new(),
        })
    }

    /// This side begins, or the peer did with this message.
    fn begin(&mut self, opened_by: Option<&Header>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.extensions.connected(opened_by);
        }
    }

    fn received(&mut self, mut message: Segments) -> Heard {
        let decoded = pieces::decode_header(&message, Header::decode);
        self.begin(decoded.as_ref().ok().map(|(header, _)| header));
        let (header, at) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return Heard::Bad(wire::v2::bad_header(&error, self.setup.side)),
        };
        let routed = self.extensions.received(&header, &message, at);
        if self.collecting || matches!(header.body, Body::Optional(_)) {
            self.collecting = self.extensions.is_collecting();
        }
        match routed {
            Routed::Base => {
                pieces::advance(&mut message, at);
                Heard::Base(header, message)
            }
            Routed::Taken => {
                let error = matches!(header.body, Body::Error(_));
                Heard::Taken(header.direction(), (!error).then_some(header.credits))
            }
            Routed::Refused(answer) => Heard::Bad(BadCall {
                answer: Some(Answer::V2(answer)),
                reason: answer.error.to_string(),
            }),
            Routed::Discarded(refusal) => Heard::Bad(BadCall {
                answer: None,
                reason: refusal.to_string(),
            }),
        }
    }

    fn limits(&self) -> Limits {
        let now = self.extensions.limits();
        // The base's default counts only as far as this end wants to send as much.
        let send = now.inline_send.min(self.setup.max_send());
        self.setup.limits(Version::Two, send, now.inline_receive)
    }

    /// Tells the base what the extensions know.
    fn apply(&self, parts: &mut Parts<'_>) {
        if let Some(requester) = &mut parts.requester {
            requester.limits_changed(self.limits());
        }
        if let Some(responder) = &mut parts.responder {
            let now = self.extensions.limits();
            let last_resort = now.reply_last_resort.map(u64::from);
            responder.limits_changed(self.limits(), now.may_invalidate, last_resort);
        }
    }

    /// Every receive is made like that.
    fn receives_replaced(&mut self, receives: &ReceiveStructure) {
        let size = u32::try_from(receives.size()).unwrap_or(u32::MAX);
        self.extensions.receives_replaced(size);
    }

    /// The next thing that the driver must do. What an extension wants comes before whatever the
    /// base does next: an end's characteristics are the first that it sends.
    fn next(&mut self, mut parts: Parts<'_>) -> Option<Wanted> {
        loop {
            if let Some(requester) = &mut parts.requester {
                while let Some(calls) = requester.next_answered() {
                    self.extensions.replies_arrived(calls);
                }
            }
            let Some(action) = self.extensions.next_action() else {
                if let Some(error) = self.errors.pop_front() {
                    return Some(Wanted::Send(error));
                }
                if self.convey(&mut parts) {
                    continue;
                }
                return None;
            };
            match action {
                Action::Send(operation) => {
                    let credits = parts.credits(operation.optional.direction);
                    return Some(Wanted::Send(operation.header(credits).encode()));
                }
                Action::ReplaceReceives { size } => {
                    let receives = round_trips::resized(&self.setup.receives, size);
                    return Some(Wanted::ReplaceReceives(receives));
                }
                Action::AwaitReplies(calls) => match (&mut parts.requester, calls) {
                    (Some(requester), calls) => requester.await_replies(calls),
                    // Who calls nobody has no calls outstanding, and its next one does not come.
                    (None, Calls::Earlier) => self.extensions.replies_arrived(calls),
                    (None, Calls::Next) => {}
                },
                Action::LimitsChanged => self.apply(&mut parts),
                Action::Conveyed { by, conveyed } => self.conveyed(by, *conveyed, &mut parts),
            }
        }
    }
}

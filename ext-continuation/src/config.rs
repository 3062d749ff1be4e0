//! What an end does of the document, and what follows from both ends.

use std::fmt;
use std::str::FromStr;

use rpcrdma_ext_send_ddp::{
    BufferStructure, Frame, ReceiveBufferStructure, RoundTripSupport, Support,
};
use rpcrdma_ext_xchar::Peer;

use crate::{RequestReceiveLimit, ResponseSendLimit};

/// Which ways something is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ways {
    /// In what this end sends.
    pub send: bool,
    /// In what it receives.
    pub receive: bool,
}

impl Ways {
    /// Both.
    pub const BOTH: Self = Self {
        send: true,
        receive: true,
    };
    /// None.
    pub const NONE: Self = Self {
        send: false,
        receive: false,
    };
}

/// The features of the document that an end has. Printed and read as `ddp+cont`, `ddp:send`,
/// `ddp:receive+cont`, `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Send-based direct data placement (section 3).
    pub ddp: Ways,
    /// Message continuation (section 4).
    pub cont: Ways,
}

impl Features {
    /// All.
    pub const ALL: Self = Self {
        ddp: Ways::BOTH,
        cont: Ways::BOTH,
    };

    /// Whether there is none: the extension is of no use then.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (name, ways) in [("ddp", self.ddp), ("cont", self.cont)] {
            let ways = match (ways.send, ways.receive) {
                (true, true) => "",
                (true, false) => ":send",
                (false, true) => ":receive",
                (false, false) => continue,
            };
            write!(f, "{before}{name}{ways}")?;
            before = "+";
        }
        if before.is_empty() {
            f.write_str("none")?;
        }
        Ok(())
    }
}

/// What [`Features`] cannot be read from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no feature {0:?}: write none, ddp, cont, or several with + between them as ddp:send+cont (:send, \
     :receive: one way only)"
)]
pub struct UnknownFeature(
    /// What was read.
    pub String,
);

impl FromStr for Features {
    type Err = UnknownFeature;

    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        let mut features = Self::default();
        if text == "none" {
            return Ok(features);
        }
        for word in text.split('+') {
            let (name, way) = word.split_once(':').unwrap_or((word, ""));
            let ways = match name {
                "ddp" => &mut features.ddp,
                "cont" => &mut features.cont,
                _ => return Err(UnknownFeature(word.to_owned())),
            };
            match way {
                "" if word == name => *ways = Ways::BOTH,
                "send" => ways.send = true,
                "receive" => ways.receive = true,
                _ => return Err(UnknownFeature(word.to_owned())),
            }
        }
        Ok(features)
    }
}

/// What this end is like.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it does.
    pub features: Features,
    /// How its receives are made up, from the first on. The receive buffer size that the exchange of
    /// characteristics tells is the length of this (section 8.3). Its segments for placement are
    /// told only with [`Features::ddp`].
    pub structure: BufferStructure,
    /// Transmissions of the longest call that it takes; 1 without [`Features::cont`].
    pub request_limit: u32,
    /// Transmissions of the longest reply that it sends; 1 without [`Features::cont`].
    pub response_limit: u32,
    /// Shortest bulk item that is placed, and that is wanted placed, bytes.
    pub min_placed: u32,
    /// Longest RPC message, items included, bytes.
    pub max_message: u64,
    /// Longest transmission to send, whatever the peer can receive, bytes.
    pub max_send: u32,
}

impl Config {
    /// Transmissions of a call that it takes.
    #[must_use]
    pub fn takes(&self) -> u32 {
        match self.features.cont.receive {
            true => self.request_limit.max(1),
            false => 1,
        }
    }

    /// Transmissions of a reply that it sends.
    #[must_use]
    pub fn sends(&self) -> u32 {
        match self.features.cont.send {
            true => self.response_limit.max(1),
            false => 1,
        }
    }

    /// What it says of its operations.
    #[must_use]
    pub fn support(&self) -> Support {
        let cont = self.features.cont;
        let mut support = Support::XREQ | Support::XRESP;
        support.set(Support::XCONT, cont.send || cont.receive);
        support
    }

    /// Its receive buffers as the peer knows them.
    #[must_use]
    pub fn frame(&self) -> Frame {
        let plain = || Frame::plain(u64::from(self.structure.len()));
        match self.features.ddp.receive {
            true => Frame::new(&self.structure).unwrap_or_else(|_| plain()),
            false => plain(),
        }
    }
}

/// What the peer said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSaid {
    /// Its operations.
    pub support: Support,
    /// Its receive buffers, where they are such that bulk data can be placed.
    pub frame: Option<Frame>,
    /// Transmissions of a call that it takes; 0 and 1 are the same.
    pub takes: u32,
    /// Transmissions of a reply that it sends.
    pub sends: u32,
}

impl PeerSaid {
    /// From its characteristics.
    #[must_use]
    pub fn of(peer: &Peer) -> Self {
        let structure = peer.said::<ReceiveBufferStructure>();
        Self {
            support: peer.get::<RoundTripSupport>(),
            frame: structure.and_then(|structure| Frame::new(&structure).ok()),
            takes: peer.get::<RequestReceiveLimit>(),
            sends: peer.get::<ResponseSendLimit>(),
        }
    }
}

/// What may be used on a connection, from this end's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usable {
    /// Calls may go by ROPT_XMTREQ.
    pub requests: bool,
    /// Bulk items of calls, and of replies to the peer, may be placed.
    pub place: bool,
    /// Transmissions of a call, at most.
    pub call_transmissions: u32,
    /// Replies come by ROPT_XMTRESP.
    pub responses: bool,
    /// Bulk items of replies may be wanted placed.
    pub placed_replies: bool,
    /// Transmissions of a reply that the peer sends, at most.
    pub reply_transmissions: u32,
}

/// What may be used, from what this end has and what the peer said.
#[must_use]
pub fn decide(own: &Config, peer: &PeerSaid) -> Usable {
    let has = |bits| peer.support.contains(bits);
    let continued = |here: bool, limit: u32| match here && has(Support::XCONT) {
        true => limit.max(1),
        false => 1,
    };
    let Features { ddp, cont } = own.features;
    let responses = has(Support::XRESP);
    Usable {
        requests: has(Support::XREQ),
        place: ddp.send && peer.frame.as_ref().is_some_and(Frame::can_place),
        call_transmissions: continued(cont.send, peer.takes),
        responses,
        placed_replies: ddp.receive && responses && own.frame().can_place(),
        reply_transmissions: continued(cont.receive && responses, peer.sends),
    }
}

impl fmt::Display for Usable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |value: bool| if value { "yes" } else { "no" };
        write!(f, "bulk data placed, to the peer: {}", yes(self.place))?;
        let placed = yes(self.placed_replies);
        write!(f, "\nbulk data placed, in replies from the peer: {placed}")?;
        let calls = match self.requests {
            true => self.call_transmissions,
            false => 1,
        };
        write!(f, "\ntransmissions of a call: up to {calls}")?;
        let replies = self.reply_transmissions;
        write!(
            f,
            "\ntransmissions of a reply from the peer: up to {replies}"
        )
    }
}

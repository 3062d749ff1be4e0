//! The configuration of an end, and the features that follow from both ends.

use std::fmt;
use std::str::FromStr;

use rpcrdma_ext_send_ddp::Support;
use rpcrdma_extension::layout::{BufferStructure, Frame};

/// The directions in which an end supports a feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directions {
    /// Whether the end supports the feature in messages that it sends.
    pub send: bool,
    /// Whether the end supports the feature in messages that it receives.
    pub receive: bool,
}

impl Directions {
    /// Support in both directions.
    pub const BOTH: Self = Self {
        send: true,
        receive: true,
    };
    /// No support.
    pub const NONE: Self = Self {
        send: false,
        receive: false,
    };
}

/// The features of rtrext-00 that an end supports. Formatted and parsed as `ddp+cont`, `ddp:send`,
/// `ddp:receive+cont`, `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Send-based direct data placement (section 3).
    pub ddp: Directions,
    /// Message continuation (section 4).
    pub cont: Directions,
}

impl Features {
    /// All features in both directions.
    pub const ALL: Self = Self {
        ddp: Directions::BOTH,
        cont: Directions::BOTH,
    };

    /// Returns whether there are no features. The extension is of no use then.
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

/// A string that does not name [`Features`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no feature {0:?}: write none, ddp, cont, or several with + between them as ddp:send+cont (:send, \
     :receive: one way only)"
)]
pub struct UnknownFeature(
    /// The string.
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
                "" if word == name => *ways = Directions::BOTH,
                "send" => ways.send = true,
                "receive" => ways.receive = true,
                _ => return Err(UnknownFeature(word.to_owned())),
            }
        }
        Ok(features)
    }
}

/// The configuration of this end.
#[derive(Clone, Debug)]
pub struct Config {
    /// The supported features.
    pub features: Features,
    /// Whether this end accepts calls by ROPT_XMTREQ. Without it, such calls are answered with
    /// RDMA2_ERR_INVAL_OPTION.
    pub takes_calls: bool,
    /// Structure of the receives. Its length is the receive buffer size that the exchange of
    /// characteristics announces when the connection begins (section 8.3). The structure itself is
    /// announced only if [`Features::ddp`] is supported in messages that are received.
    pub structure: BufferStructure,
    /// Maximum number of transmissions of a call that this end accepts; 1 without
    /// [`Features::cont`].
    pub request_limit: u32,
    /// Maximum number of transmissions of a reply that this end sends; 1 without
    /// [`Features::cont`].
    pub response_limit: u32,
    /// Minimum length in bytes of an item to place, and of a reply item for which placement is
    /// requested.
    pub min_placed: u32,
    /// Maximum length in bytes of an RPC message, items included.
    pub max_message: u64,
    /// Maximum length in bytes of a transmission to the peer, whatever the peer can receive.
    pub max_send: u32,
}

impl Config {
    /// Returns the maximum number of transmissions of a call that this end accepts.
    #[must_use]
    pub fn max_call_transmissions(&self) -> u32 {
        match self.features.cont.receive {
            true => self.request_limit.max(1),
            false => 1,
        }
    }

    /// Returns the maximum number of transmissions of a reply that this end sends.
    #[must_use]
    pub fn max_reply_transmissions(&self) -> u32 {
        match self.features.cont.send {
            true => self.response_limit.max(1),
            false => 1,
        }
    }

    /// Returns the operations that this end announces.
    #[must_use]
    pub fn support(&self) -> Support {
        let cont = self.features.cont;
        let mut support = Support::XRESP;
        support.set(Support::XREQ, self.takes_calls);
        support.set(Support::XCONT, cont.send || cont.receive);
        support
    }

    /// Returns this end's receive buffers as announced to the peer.
    #[must_use]
    pub fn frame(&self) -> Frame {
        let plain = || Frame::plain(u64::from(self.structure.len()));
        match self.features.ddp.receive {
            true => Frame::new(&self.structure).unwrap_or_else(|_| plain()),
            false => plain(),
        }
    }
}

/// Announcements of the peer about sending and receiving in several transmissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerAnnouncements {
    /// The operations that the peer supports.
    pub support: Support,
    /// The peer's receive buffers, if bulk data can be placed in them.
    pub frame: Option<Frame>,
    /// Maximum number of transmissions of a call that the peer accepts; 0 is treated as 1.
    pub takes: u32,
    /// Maximum number of transmissions of a reply that the peer sends; 0 is treated as 1.
    pub sends: u32,
}

/// The features that this end may use on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usable {
    /// Whether calls may be sent by ROPT_XMTREQ.
    pub requests: bool,
    /// Whether bulk items of calls, and of replies to the peer, may be placed.
    pub place: bool,
    /// Maximum number of transmissions of a call.
    pub call_transmissions: u32,
    /// Whether the peer replies by ROPT_XMTRESP.
    pub responses: bool,
    /// Whether placement may be requested for bulk items of replies.
    pub placed_replies: bool,
    /// Maximum number of transmissions of a reply from the peer.
    pub reply_transmissions: u32,
}

/// Combines this end's configuration with the peer's announcements.
#[must_use]
pub fn decide(own: &Config, peer: &PeerAnnouncements) -> Usable {
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

//! The direction of a message (version-two-01, section 4.2.2; version-two-07, section 6.1).

use std::fmt;

use crate::Role;

/// The direction of a message: the `msg_type` of the RPC message that its header belongs to. Calls
/// go from requester to responder, whichever end of the connection that is, and replies go back.
///
/// The direction tells to which end's XID space the header's XID belongs. The 2016 draft of version
/// 2 has it in a field of its own (`rdma_direction`, `rdma_optdir`; version-two-01, section 4.2.2),
/// the draft of the working group in the header type (version-two-07, section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A call: from requester to responder.
    Call,
    /// A reply: from responder to requester.
    Reply,
}

impl Direction {
    /// Returns the `msg_type` of this direction (RFC 5531, section 9).
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Call => onc_rpc::CALL,
            Self::Reply => onc_rpc::REPLY,
        }
    }

    /// Returns the direction with this `msg_type`, or `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            onc_rpc::CALL => Some(Self::Call),
            onc_rpc::REPLY => Some(Self::Reply),
            _ => None,
        }
    }

    /// Returns the role of the receiver of a message with this direction.
    #[must_use]
    pub const fn receiver(self) -> Role {
        match self {
            Self::Call => Role::Responder,
            Self::Reply => Role::Requester,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "CALL",
            Self::Reply => "REPLY",
        })
    }
}

/// One end of a connection. Unlike [`Role`], it never changes: a client is also the responder of
/// reverse-direction calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that established the connection.
    Client,
    /// The end that accepted the connection.
    Server,
}

impl Side {
    /// Returns the role of a message's receiver. The role follows from `direction`; if that could
    /// not be decoded, it is the role of this end in the forward direction.
    #[must_use]
    pub fn role(self, direction: Option<Direction>) -> Role {
        match (direction, self) {
            (Some(direction), _) => direction.receiver(),
            (None, Self::Client) => Role::Requester,
            (None, Self::Server) => Role::Responder,
        }
    }
}

//! ONC RPC call and reply headers (RFC 5531, section 9).

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{
    AuthStat, Credential, DecodeError, Decoder, Encoder, Message, Verifier, padded, put_words, word,
};

/// The version of the RPC protocol itself (RFC 5531, section 9).
pub const RPC_VERSION: u32 = 2;
/// `msg_type` of a call.
pub const CALL: u32 = 0;
/// `msg_type` of a reply.
pub const REPLY: u32 = 1;

/// Values of `reply_stat`.
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
/// Values of `accept_stat`.
const SUCCESS: u32 = 0;
/// Values of `reject_stat`.
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// Returns the XID, the first word of every call and reply, or `None` if the message is shorter
/// than that.
#[must_use]
pub fn peek_xid(message: &Message) -> Option<u32> {
    Decoder::new(message).u32().ok()
}

/// Returns the XID and the `msg_type` ([`CALL`], [`REPLY`] or an invalid value), the first two
/// words of every call and reply, or `None` if the message is shorter than that.
#[must_use]
pub fn peek_start(message: &Message) -> Option<(u32, u32)> {
    let mut words = Decoder::new(message);
    Some((words.u32().ok()?, words.u32().ok()?))
}

/// The header of a call, which precedes the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    /// Transaction id.
    pub xid: u32,
    /// Program number.
    pub prog: u32,
    /// Program version.
    pub vers: u32,
    /// Procedure number.
    pub proc: u32,
    /// The caller's credential.
    pub cred: Credential,
    /// The verifier that belongs to the credential.
    pub verf: Verifier,
}

/// The reason why a message is not a call that can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallDecodeError {
    /// The message is not a call, or is too short to hold an XID and an RPC version. It must not be
    /// answered.
    #[error("not an RPC call: {0}")]
    NotACall(DecodeError),
    /// The call has an unsupported RPC version. The reply is RPC_MISMATCH.
    #[error("call {xid:#010x} is of RPC version {version}")]
    RpcVersion {
        /// XID of the call.
        xid: u32,
        /// RPC version of the call.
        version: u32,
    },
    /// The credential or verifier cannot be decoded. The reply is AUTH_ERROR.
    #[error("call {xid:#010x}: {stat}: {reason}")]
    Auth {
        /// XID of the call.
        xid: u32,
        /// The `auth_stat` to put into the reply.
        stat: AuthStat,
        /// The error in the credential or verifier.
        reason: DecodeError,
    },
    /// A bulk item is at a position inside the header, where no DDP-eligible data can be. The reply
    /// is GARBAGE_ARGS and not AUTH_ERROR, because the credential is not at fault (RFC 8166,
    /// section 4.5.2).
    #[error("call {xid:#010x}: {reason} in the header")]
    Bulk {
        /// XID of the call.
        xid: u32,
        /// Which item, and its position.
        reason: DecodeError,
    },
}

impl CallDecodeError {
    /// Returns the reply to send, or `None` if the message must not be answered (RFC 5531, section
    /// 9).
    #[must_use]
    pub fn reply(&self) -> Option<ReplyHeader> {
        let (xid, body) = match *self {
            Self::NotACall(_) => return None,
            Self::RpcVersion { xid, .. } => (
                xid,
                ReplyBody::RpcMismatch {
                    low: RPC_VERSION,
                    high: RPC_VERSION,
                },
            ),
            Self::Auth { xid, stat, .. } => (xid, ReplyBody::AuthError(stat)),
            Self::Bulk { xid, .. } => {
                return Some(ReplyHeader::accepted(xid, AcceptStatus::GarbageArgs));
            }
        };
        Some(ReplyHeader { xid, body })
    }
}

impl CallHeader {
    /// Encodes the header as XDR, a multiple of four bytes, for [`Message::prepend`] to put before
    /// the arguments.
    ///
    /// # Panics
    /// Panics if the body of a credential or verifier is longer than 400 bytes, which is a
    /// programming error.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new();
        out.u32(self.xid).u32(CALL).u32(RPC_VERSION);
        out.u32(self.prog).u32(self.vers).u32(self.proc);
        self.cred.encode(&mut out);
        self.verf.encode(&mut out);
        out.into_bytes()
    }

    /// Decodes a header and leaves `from` at the arguments.
    ///
    /// # Errors
    /// [`CallDecodeError`], which says which reply to send.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, CallDecodeError> {
        let (xid, prog, vers, proc) = match from.ahead::<24>() {
            Some(words) if (word(words, 1), word(words, 2)) == (CALL, RPC_VERSION) => {
                from.pass(words.len());
                let procedure = (word(words, 3), word(words, 4), word(words, 5));
                (word(words, 0), procedure.0, procedure.1, procedure.2)
            }
            _ => Self::decode_fixed(from)?,
        };
        let auth = |stat| {
            move |reason| match reason {
                DecodeError::StrayBulk(_) | DecodeError::BulkLength { .. } => {
                    CallDecodeError::Bulk { xid, reason }
                }
                _ => CallDecodeError::Auth { xid, stat, reason },
            }
        };
        let cred = Credential::decode(from).map_err(auth(AuthStat::BAD_CRED))?;
        let verf = Verifier::decode(from).map_err(auth(AuthStat::BAD_VERF))?;
        Ok(Self {
            xid,
            prog,
            vers,
            proc,
            cred,
            verf,
        })
    }

    /// Decodes XID, program, version and procedure one by one.
    #[cold]
    fn decode_fixed(from: &mut Decoder<'_>) -> Result<(u32, u32, u32, u32), CallDecodeError> {
        let (xid, version) = Self::decode_start(from).map_err(CallDecodeError::NotACall)?;
        // The fields that follow are those of RPC version 2 only.
        if version != RPC_VERSION {
            return Err(CallDecodeError::RpcVersion { xid, version });
        }
        let mut number = || from.u32().map_err(CallDecodeError::NotACall);
        Ok((xid, number()?, number()?, number()?))
    }

    /// Decodes XID and RPC version, which are at the same offsets in every RPC version.
    fn decode_start(from: &mut Decoder<'_>) -> Result<(u32, u32), DecodeError> {
        let xid = from.u32()?;
        match from.u32()? {
            CALL => Ok((xid, from.u32()?)),
            value => Err(DecodeError::Invalid {
                what: "msg_type of a call",
                value,
            }),
        }
    }
}

/// The header of a reply, which precedes the results; the whole reply if there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// XID of the call.
    pub xid: u32,
    /// Whether the call was accepted, and with which status.
    pub body: ReplyBody,
}

/// `reply_body`: whether a call was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// MSG_ACCEPTED. Results follow if the status is [`AcceptStatus::Success`].
    Accepted {
        /// The server's verifier.
        verf: Verifier,
        /// `accept_stat`: whether the call was executed, and if not, why.
        status: AcceptStatus,
    },
    /// MSG_DENIED with RPC_MISMATCH: the server supports only these RPC versions.
    RpcMismatch {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// MSG_DENIED with AUTH_ERROR: the caller could not be authenticated.
    AuthError(AuthStat),
}

impl ReplyHeader {
    /// Creates an MSG_ACCEPTED header with `status` and an empty verifier.
    #[must_use]
    pub fn accepted(xid: u32, status: AcceptStatus) -> Self {
        let verf = Verifier::default();
        let body = ReplyBody::Accepted { verf, status };
        Self { xid, body }
    }

    /// Encodes the header as XDR, a multiple of four bytes, for [`Message::prepend`] to put before
    /// the results.
    ///
    /// # Panics
    /// Panics if the verifier's body is longer than 400 bytes, which is a programming error.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut room = BytesMut::new();
        self.encode_in(&mut room);
        room.freeze()
    }

    /// Encodes like [`ReplyHeader::encode`], but into `room`, an empty buffer whose allocation the headers
    /// of several replies can share, for [`Message::prepend_in`].
    ///
    /// # Panics
    /// Panics if the verifier's body is longer than 400 bytes, which is a programming error.
    pub fn encode_in(&self, room: &mut BytesMut) {
        debug_assert!(room.is_empty(), "another header is in the buffer");
        if let ReplyBody::Accepted { verf, status } = &self.body
            && *status == AcceptStatus::Success
            && verf.body.is_empty()
        {
            // Nearly every reply begins with these words.
            room.reserve(24);
            put_words(
                room,
                [self.xid, REPLY, MSG_ACCEPTED, verf.flavor, 0, SUCCESS],
            );
            return;
        }
        room.reserve(match &self.body {
            ReplyBody::Accepted { verf, .. } => 24 + padded(verf.body.len() as u64) as usize,
            ReplyBody::RpcMismatch { .. } | ReplyBody::AuthError(_) => 24,
        });
        let mut out = Encoder::in_room(std::mem::take(room));
        out.u32(self.xid).u32(REPLY);
        match &self.body {
            ReplyBody::Accepted { verf, status } => {
                out.u32(MSG_ACCEPTED);
                verf.encode(&mut out);
                status.encode(&mut out);
            }
            ReplyBody::RpcMismatch { low, high } => {
                out.u32(MSG_DENIED).u32(RPC_MISMATCH).u32(*low).u32(*high);
            }
            ReplyBody::AuthError(stat) => {
                out.u32(MSG_DENIED).u32(AUTH_ERROR).u32(stat.0);
            }
        }
        *room = out.into_room();
    }

    /// Decodes a header and leaves `from` at the results, if there are any.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is not a reply or is malformed. A requester cannot answer
    /// either.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        // Nearly every reply is accepted with an empty verifier and status SUCCESS.
        if let Some(words) = from.ahead::<24>()
            && (word(words, 1), word(words, 2)) == (REPLY, MSG_ACCEPTED)
            && (word(words, 4), word(words, 5)) == (0, SUCCESS)
        {
            from.pass(words.len());
            let verf = Verifier {
                flavor: word(words, 3),
                body: Bytes::new(),
            };
            let status = AcceptStatus::Success;
            let body = ReplyBody::Accepted { verf, status };
            let xid = word(words, 0);
            return Ok(Self { xid, body });
        }
        Self::decode_steps(from)
    }

    #[cold]
    fn decode_steps(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let xid = from.u32()?;
        let invalid = |what, value| Err(DecodeError::Invalid { what, value });
        match from.u32()? {
            REPLY => {}
            value => return invalid("msg_type of a reply", value),
        }
        let body = match from.u32()? {
            MSG_ACCEPTED => ReplyBody::Accepted {
                verf: Verifier::decode(from)?,
                status: AcceptStatus::decode(from)?,
            },
            MSG_DENIED => match from.u32()? {
                RPC_MISMATCH => ReplyBody::RpcMismatch {
                    low: from.u32()?,
                    high: from.u32()?,
                },
                AUTH_ERROR => ReplyBody::AuthError(AuthStat(from.u32()?)),
                value => return invalid("reject_stat", value),
            },
            value => return invalid("reply_stat", value),
        };
        Ok(Self { xid, body })
    }
}

/// `accept_stat`: the status of an accepted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// The procedure ran; results follow.
    Success,
    /// The server does not have the program.
    ProgUnavail,
    /// The server has the program, but not in the version that was called.
    ProgMismatch {
        /// Lowest supported program version.
        low: u32,
        /// Highest supported program version.
        high: u32,
    },
    /// The program does not have the procedure.
    ProcUnavail,
    /// The arguments could not be decoded.
    GarbageArgs,
    /// A failure of the server, such as a failed memory allocation.
    SystemErr,
}

impl AcceptStatus {
    fn encode(self, out: &mut Encoder) {
        match self {
            Self::Success => out.u32(SUCCESS),
            Self::ProgUnavail => out.u32(1),
            Self::ProgMismatch { low, high } => out.u32(2).u32(low).u32(high),
            Self::ProcUnavail => out.u32(3),
            Self::GarbageArgs => out.u32(4),
            Self::SystemErr => out.u32(5),
        };
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u32()? {
            SUCCESS => Self::Success,
            1 => Self::ProgUnavail,
            2 => Self::ProgMismatch {
                low: from.u32()?,
                high: from.u32()?,
            },
            3 => Self::ProcUnavail,
            4 => Self::GarbageArgs,
            5 => Self::SystemErr,
            value => {
                return Err(DecodeError::Invalid {
                    what: "accept_stat",
                    value,
                });
            }
        })
    }
}

impl fmt::Display for AcceptStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => write!(f, "success"),
            Self::ProgUnavail => write!(f, "program unavailable"),
            Self::ProgMismatch { low, high } => {
                write!(
                    f,
                    "program version mismatch: the server has {low} to {high}"
                )
            }
            Self::ProcUnavail => write!(f, "procedure unavailable"),
            Self::GarbageArgs => write!(f, "arguments could not be decoded"),
            Self::SystemErr => write!(f, "system error on the server"),
        }
    }
}

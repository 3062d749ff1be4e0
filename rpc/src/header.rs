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

/// `reply_stat`.
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
/// `accept_stat`.
const SUCCESS: u32 = 0;
/// `reject_stat`.
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// The XID, which is the first word of every call and reply; nothing when the message is shorter.
#[must_use]
pub fn peek_xid(message: &Message) -> Option<u32> {
    Decoder::new(message).u32().ok()
}

/// The XID and `msg_type` ([`CALL`], [`REPLY`] or something that is neither), the first two words of
/// every call and reply; nothing when the message is shorter.
#[must_use]
pub fn peek_start(message: &Message) -> Option<(u32, u32)> {
    let mut words = Decoder::new(message);
    Some((words.u32().ok()?, words.u32().ok()?))
}

/// What precedes a call's arguments.
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
    /// Who calls.
    pub cred: Credential,
    /// The proof of it.
    pub verf: Verifier,
}

/// Why a message is not a call that can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallDecodeError {
    /// It is not a call, or so broken that nobody knows whom to answer. No answer is due.
    #[error("not an RPC call: {0}")]
    NotACall(DecodeError),
    /// It is a call of another version of RPC. The answer is RPC_MISMATCH.
    #[error("call {xid:#010x} is of RPC version {version}")]
    RpcVersion {
        /// Its transaction id.
        xid: u32,
        /// Its version.
        version: u32,
    },
    /// Its credential or verifier cannot be decoded. The answer is AUTH_ERROR.
    #[error("call {xid:#010x}: {stat}: {reason}")]
    Auth {
        /// Its transaction id.
        xid: u32,
        /// What the answer says.
        stat: AuthStat,
        /// What is wrong with it.
        reason: DecodeError,
    },
    /// A bulk item is at a place where the header has none: who calls is not known, and has nothing
    /// to do with it. The answer is GARBAGE_ARGS (RFC 8166, section 4.5.2).
    #[error("call {xid:#010x}: {reason} in the header")]
    Bulk {
        /// Its transaction id.
        xid: u32,
        /// Which item, and where.
        reason: DecodeError,
    },
}

impl CallDecodeError {
    /// The answer that the caller is owed, if any (RFC 5531, section 9).
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
    /// The header as XDR, a multiple of four bytes: what [`Message::prepend`] puts before the
    /// arguments.
    ///
    /// # Panics
    /// When a credential's or verifier's own body is over 400 bytes: a programming error.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new();
        out.u32(self.xid).u32(CALL).u32(RPC_VERSION);
        out.u32(self.prog).u32(self.vers).u32(self.proc);
        self.cred.encode(&mut out);
        self.verf.encode(&mut out);
        out.into_bytes()
    }

    /// Reads a header; `from` is then at the arguments.
    ///
    /// # Errors
    /// [`CallDecodeError`], which says what answer is due.
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

    /// XID, program, version and procedure, step by step.
    #[cold]
    fn decode_fixed(from: &mut Decoder<'_>) -> Result<(u32, u32, u32, u32), CallDecodeError> {
        let (xid, version) = Self::decode_start(from).map_err(CallDecodeError::NotACall)?;
        // The fields that follow are those of version 2 only.
        if version != RPC_VERSION {
            return Err(CallDecodeError::RpcVersion { xid, version });
        }
        let mut number = || from.u32().map_err(CallDecodeError::NotACall);
        Ok((xid, number()?, number()?, number()?))
    }

    /// XID and RPC version, whose places are the same in every version.
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

/// What precedes a reply's results, or all of a reply that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The call's transaction id.
    pub xid: u32,
    /// Accepted, or why not.
    pub body: ReplyBody,
}

/// Whether a call was accepted (`reply_body`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// MSG_ACCEPTED. Results follow a status of success.
    Accepted {
        /// The server's proof of identity.
        verf: Verifier,
        /// How the call ended.
        status: AcceptStatus,
    },
    /// MSG_DENIED: the server speaks only these versions of RPC.
    RpcMismatch {
        /// Lowest.
        low: u32,
        /// Highest.
        high: u32,
    },
    /// MSG_DENIED: the caller could not be authenticated.
    AuthError(AuthStat),
}

impl ReplyHeader {
    /// MSG_ACCEPTED with that status and an empty verifier.
    #[must_use]
    pub fn accepted(xid: u32, status: AcceptStatus) -> Self {
        let verf = Verifier::default();
        let body = ReplyBody::Accepted { verf, status };
        Self { xid, body }
    }

    /// The header as XDR, a multiple of four bytes: what [`Message::prepend`] puts before the
    /// results.
    ///
    /// # Panics
    /// When the verifier's body is over 400 bytes: a programming error.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut room = BytesMut::new();
        self.encode_in(&mut room)
    }

    /// As [`ReplyHeader::encode`], in `room`, which headers of further replies can share.
    ///
    /// # Panics
    /// Likewise.
    #[must_use]
    pub fn encode_in(&self, room: &mut BytesMut) -> Bytes {
        if let ReplyBody::Accepted { verf, status } = &self.body
            && *status == AcceptStatus::Success
            && verf.body.is_empty()
        {
            // What nearly all replies begin with.
            room.reserve(24);
            put_words(
                room,
                [self.xid, REPLY, MSG_ACCEPTED, verf.flavor, 0, SUCCESS],
            );
            return room.split().freeze();
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
        let (header, left) = out.split();
        *room = left;
        header
    }

    /// Reads a header; `from` is then at the results, if there are any.
    ///
    /// # Errors
    /// It is not a reply, or a broken one: nothing that could be answered.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        // What nearly all replies begin with: accepted, an empty verifier, success.
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

/// Status of an accepted call (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// The procedure ran; results follow.
    Success,
    /// The program is not here.
    ProgUnavail,
    /// The program is here, in other versions.
    ProgMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The program has no such procedure.
    ProcUnavail,
    /// The arguments could not be decoded.
    GarbageArgs,
    /// Memory allocation failure and the like.
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

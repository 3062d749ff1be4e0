//! Credentials and verifiers (RFC 5531, sections 8 and 10, appendix A).

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{DecodeError, Decoder, Encoder, Message, padded, word};

/// Flavor of no authentication (RFC 5531, section 8.2).
pub const AUTH_NONE: u32 = 0;
/// `AUTH_SYS`: the client states the caller's user and group ids itself (appendix A).
pub const AUTH_SYS: u32 = 1;
/// `AUTH_SHORT`: a shorthand credential that the server issued in place of an earlier full one
/// (appendix A).
pub const AUTH_SHORT: u32 = 2;

/// Maximum length of a credential's or verifier's body, in bytes (RFC 5531, section 8.2).
pub const MAX_AUTH_BYTES: u32 = 400;
/// Maximum length of the machine name in AUTH_SYS, in bytes (appendix A).
pub const MAX_MACHINE_NAME: u32 = 255;
/// Maximum number of supplementary groups in AUTH_SYS (appendix A).
pub const MAX_GIDS: u32 = 16;

/// Number of words of an AUTH_SYS credential that precede the bytes of the machine name: flavor,
/// body length, stamp and name length.
const BODY_WORDS: usize = 4;

/// AUTH_SYS credentials (RFC 5531, appendix A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// An arbitrary number that the client chose.
    pub stamp: u32,
    /// The client's host name, at most 255 bytes.
    pub machine_name: Bytes,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups, at most 16.
    pub gids: SmallVec<[u32; 16]>,
}

impl AuthSys {
    /// Encodes the body of the credential. Groups after the 16th and bytes of the machine name
    /// after the 255th do not fit AUTH_SYS and are dropped, as every client does.
    fn encode_body(&self) -> Bytes {
        let name = &self.machine_name[..self.machine_name.len().min(MAX_MACHINE_NAME as usize)];
        let gids = &self.gids[..self.gids.len().min(MAX_GIDS as usize)];
        let mut out = Encoder::with_capacity(MAX_AUTH_BYTES as usize);
        out.u32(self.stamp).opaque(name).u32(self.uid).u32(self.gid);
        out.u32(gids.len() as u32);
        for gid in gids {
            out.u32(*gid);
        }
        out.into_bytes()
    }

    /// Decodes a whole AUTH_SYS credential, flavor included, if it is well formed and lies in one
    /// segment. Otherwise returns `None` and leaves `from` unmoved, so that the step-by-step
    /// decoder can report what is wrong.
    fn decode_ahead(from: &mut Decoder<'_>) -> Option<Self> {
        let start = from.ahead::<{ 4 * BODY_WORDS }>()?;
        let (flavor, len) = (word(start, 0), word(start, 1));
        if flavor != AUTH_SYS || len > MAX_AUTH_BYTES || len % 4 != 0 {
            return None;
        }
        let (stamp, name) = (word(start, 2), word(start, 3));
        if name > MAX_MACHINE_NAME {
            return None;
        }
        let whole = 8 + len as usize;
        let ids_at = 4 * BODY_WORDS + padded(u64::from(name)) as usize;
        let (ids, gids) = from
            .ahead_of(whole)?
            .get(ids_at..)?
            .split_first_chunk::<12>()?;
        let (uid, gid, count) = (word(ids, 0), word(ids, 1), word(ids, 2));
        if count > MAX_GIDS || gids.len() != 4 * count as usize {
            return None;
        }
        let mut sys = Self {
            stamp,
            machine_name: from.share(4 * BODY_WORDS, name as usize)?,
            uid,
            gid,
            gids: SmallVec::new(),
        };
        for at in 0..count as usize {
            sys.gids.push(word(gids, at));
        }
        from.pass(whole);
        Some(sys)
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let body = Message::from_payload(body);
        let mut from = Decoder::new(&body);
        let stamp = from.u32()?;
        let machine_name = from.opaque(MAX_MACHINE_NAME)?;
        let (uid, gid) = (from.u32()?, from.u32()?);
        let count = from.u32()?;
        if count > MAX_GIDS {
            return Err(DecodeError::TooLong {
                len: u64::from(count),
                max: u64::from(MAX_GIDS),
            });
        }
        let mut gids = SmallVec::new();
        for _ in 0..count {
            gids.push(from.u32()?);
        }
        from.finish()?;
        Ok(Self {
            stamp,
            machine_name,
            uid,
            gid,
            gids,
        })
    }
}

/// The credential of a call: the identity of the caller (RFC 5531, section 8.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
    /// A flavor that this crate does not implement (AUTH_SHORT, RPCSEC_GSS), undecoded.
    Other {
        /// Flavor number.
        flavor: u32,
        /// Body of the credential, at most 400 bytes.
        body: Bytes,
    },
}

impl Credential {
    /// Returns the flavor number of the credential.
    #[must_use]
    pub fn flavor(&self) -> u32 {
        match self {
            Self::None => AUTH_NONE,
            Self::Sys(_) => AUTH_SYS,
            Self::Other { flavor, .. } => *flavor,
        }
    }

    /// Appends the credential as an `opaque_auth`.
    ///
    /// # Panics
    /// Panics if the body of an [`Credential::Other`] is longer than 400 bytes, which is a
    /// programming error.
    pub(crate) fn encode(&self, out: &mut Encoder) {
        match self {
            Self::None => encode_opaque_auth(AUTH_NONE, &[], out),
            Self::Sys(sys) => encode_opaque_auth(AUTH_SYS, &sys.encode_body(), out),
            Self::Other { flavor, body } => encode_opaque_auth(*flavor, body, out),
        }
    }

    /// Decodes an `opaque_auth`. The body of AUTH_NONE has no meaning and is skipped (RFC 5531,
    /// section 8.2).
    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if let Some(sys) = AuthSys::decode_ahead(from) {
            return Ok(Self::Sys(sys));
        }
        Self::decode_steps(from)
    }

    #[inline(never)]
    fn decode_steps(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (flavor, body) = decode_opaque_auth(from)?;
        Ok(match flavor {
            AUTH_NONE => Self::None,
            AUTH_SYS => Self::Sys(AuthSys::decode_body(body)?),
            _ => Self::Other { flavor, body },
        })
    }
}

/// The verifier that accompanies a credential or a reply (RFC 5531, section 8.2). AUTH_NONE and
/// AUTH_SYS use the default: an empty body of flavor AUTH_NONE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verifier {
    /// Flavor number.
    pub flavor: u32,
    /// Body of the verifier, at most 400 bytes.
    pub body: Bytes,
}

impl Verifier {
    pub(crate) fn encode(&self, out: &mut Encoder) {
        encode_opaque_auth(self.flavor, &self.body, out);
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        // Nearly every verifier has an empty body.
        if let Some(words) = from.ahead::<8>()
            && word(words, 1) == 0
        {
            from.pass(8);
            return Ok(Self {
                flavor: word(words, 0),
                body: Bytes::new(),
            });
        }
        Self::decode_steps(from)
    }

    #[cold]
    fn decode_steps(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (flavor, body) = decode_opaque_auth(from)?;
        Ok(Self { flavor, body })
    }
}

fn encode_opaque_auth(flavor: u32, body: &[u8], out: &mut Encoder) {
    assert!(
        body.len() <= MAX_AUTH_BYTES as usize,
        "body of an opaque_auth over 400 bytes"
    );
    out.u32(flavor).opaque(body);
}

fn decode_opaque_auth(from: &mut Decoder<'_>) -> Result<(u32, Bytes), DecodeError> {
    Ok((from.u32()?, from.opaque(MAX_AUTH_BYTES)?))
}

/// `auth_stat`: the reason why authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// No error. A server never sends this value in a rejection.
    pub const OK: Self = Self(0);
    /// Bad credential (seal broken).
    pub const BAD_CRED: Self = Self(1);
    /// The client must begin a new session.
    pub const REJECTED_CRED: Self = Self(2);
    /// Bad verifier.
    pub const BAD_VERF: Self = Self(3);
    /// Verifier expired or replayed.
    pub const REJECTED_VERF: Self = Self(4);
    /// Rejected for security reasons.
    pub const TOO_WEAK: Self = Self(5);
    /// The server's verifier is invalid. Set by the client itself, never received.
    pub const INVALID_RESP: Self = Self(6);
    /// An unknown reason. Set by the client itself, never received.
    pub const FAILED: Self = Self(7);
}

impl fmt::Display for AuthStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BAD_CRED => write!(f, "bad credential"),
            Self::REJECTED_CRED => write!(f, "credential rejected"),
            Self::BAD_VERF => write!(f, "bad verifier"),
            Self::REJECTED_VERF => write!(f, "verifier rejected"),
            Self::TOO_WEAK => write!(f, "credential too weak"),
            Self::INVALID_RESP => write!(f, "bad verifier in the reply"),
            Self(other) => write!(f, "auth_stat {other}"),
        }
    }
}

//! RPCSEC_GSS (RFC 2203) as far as it decides what of a call may be reduced.

use onc_rpc::{DecodeError, Decoder, MAX_AUTH_BYTES};

/// The flavor of RPCSEC_GSS.
pub(super) const RPCSEC_GSS: u32 = 6;
/// The maximum length that is assumed for the checksum of a reply with integrity, in bytes, as an
/// opaque. A verifier, which holds one as well, has no more.
pub(super) const MAX_CHECKSUM: u32 = 4 + MAX_AUTH_BYTES;

/// `RPCSEC_GSS_DATA`: the call is of a program, and not one that makes or destroys a context.
const DATA: u32 = 0;
/// Values of `rpc_gss_service_t`.
const SERVICE_NONE: u32 = 1;
const SERVICE_INTEGRITY: u32 = 2;

/// The protection of the arguments and results of a call. Protected ones are not reduced (RFC 8166,
/// section 8.2.2): a checksum covers them, and they are encoded as an opaque in an opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// They are as without RPCSEC_GSS.
    None,
    /// They can be read, and have a checksum.
    Integrity,
    /// They cannot be read: they are encrypted, or belong to RPCSEC_GSS itself.
    Hidden,
}

/// Passes the body of an RPCSEC_GSS credential, with its length, and returns the protection that it
/// states.
pub(super) fn protection(from: &mut Decoder<'_>) -> Result<Protection, DecodeError> {
    let mut body = from.clone();
    if from.skip_opaque()? < 16 {
        return Ok(Protection::Hidden);
    }
    // The length word, and the version.
    body.skip(8)?;
    let procedure = body.u32()?;
    // The sequence number.
    body.skip(4)?;
    let service = body.u32()?;
    Ok(match (procedure, service) {
        (DATA, SERVICE_NONE) => Protection::None,
        (DATA, SERVICE_INTEGRITY) => Protection::Integrity,
        _ => Protection::Hidden,
    })
}

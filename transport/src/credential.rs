//! Credentials of calls, encoded once for many calls.

use bytes::Bytes;
use onc_rpc::{CallHeader, Credential, MAX_AUTH_BYTES, Verifier};

use crate::CallError;

/// The offset of the credential in a call header: it follows XID, message type, RPC version,
/// program, version and procedure (RFC 5531, section 9).
pub(crate) const CREDENTIAL_AT: usize = 24;

/// A credential with its verifier, encoded as in a call header. Clones share the memory.
///
/// A client that calls on behalf of several users makes one for each, and passes it to
/// [`crate::Client::call_as`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedCredential(Bytes);

impl EncodedCredential {
    /// Encodes a credential.
    ///
    /// # Errors
    /// [`CallError::TooLarge`] if its body is longer than RFC 5531 allows (section 8.2).
    pub fn new(credential: &Credential) -> Result<Self, CallError> {
        if let Credential::Other { body, .. } = credential
            && body.len() > MAX_AUTH_BYTES as usize
        {
            let len = body.len();
            let text = format!("credential of {len} bytes, the limit is {MAX_AUTH_BYTES}");
            return Err(CallError::TooLarge(text));
        }
        Ok(Self::encode(credential))
    }

    /// Encodes a credential whose length has been checked.
    pub(crate) fn encode(credential: &Credential) -> Self {
        let header = CallHeader {
            xid: 0,
            prog: 0,
            vers: 0,
            proc: 0,
            cred: credential.clone(),
            verf: Verifier::default(),
        };
        Self(header.encode().slice(CREDENTIAL_AT..))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

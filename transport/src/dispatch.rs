//! Decodes RPC headers and decides how a server handles a message (RFC 5531, section 9).

use bytes::BytesMut;
use onc_rpc::{
    AUTH_SHORT, AcceptStatus, AuthStat, CallDecodeError, CallHeader, Credential, Cursor, Decoder,
    Message, ReplyBody, ReplyHeader,
};

use crate::{ErrorReply, ProgramVersions, ServiceReply};

/// The handling of a message by a server.
pub(crate) enum Disposition {
    /// Execute the call: pass it to the service.
    Execute {
        /// The call's header.
        header: CallHeader,
        /// The position of the arguments.
        args: Cursor,
        /// The offset of the arguments in the XDR stream, in bytes.
        args_at: u64,
    },
    /// Answer with this header. The service does not see the call.
    Answer(ReplyHeader),
    /// Close the connection, for this reason: the message is not a call, so no reply is possible.
    Disconnect(String),
}

/// Decodes the header of a message and decides what to do with it.
pub(crate) fn dispatch(message: &Message, programs: &[ProgramVersions]) -> Disposition {
    let mut decoder = Decoder::new(message);
    let header = match CallHeader::decode(&mut decoder) {
        Ok(header) => header,
        Err(error) => return not_decoded(&error),
    };
    match refusal(&header, programs) {
        Some(denial) => Disposition::Answer(denial_header(header.xid, denial)),
        None => Disposition::Execute {
            header,
            args: decoder.cursor(),
            args_at: decoder.position(),
        },
    }
}

#[cold]
fn not_decoded(error: &CallDecodeError) -> Disposition {
    match error.reply() {
        Some(reply) => Disposition::Answer(reply),
        None => Disposition::Disconnect(error.to_string()),
    }
}

fn refusal(header: &CallHeader, programs: &[ProgramVersions]) -> Option<ErrorReply> {
    match header.cred {
        Credential::None | Credential::Sys(_) => {}
        // This server issues no shorthand credentials (AUTH_SHORT), so it must stem from before a
        // restart. The client has to start over with a full credential.
        Credential::Other { flavor, .. } if flavor == AUTH_SHORT => {
            return Some(ErrorReply::Auth(AuthStat::REJECTED_CRED));
        }
        Credential::Other { .. } => return Some(ErrorReply::Auth(AuthStat::BAD_CRED)),
    }
    let mut range: Option<(u32, u32)> = None;
    for known in programs.iter().filter(|known| known.prog == header.prog) {
        if (known.low..=known.high).contains(&header.vers) {
            return None;
        }
        let (low, high) = range.unwrap_or((known.low, known.high));
        range = Some((low.min(known.low), high.max(known.high)));
    }
    Some(ErrorReply::Accepted(match range {
        Some((low, high)) => AcceptStatus::ProgMismatch { low, high },
        None => AcceptStatus::ProgUnavail,
    }))
}

/// Returns the RPC-level error of a reply that has no results.
#[cold]
pub(crate) fn error_of(body: &ReplyBody) -> ErrorReply {
    match *body {
        ReplyBody::Accepted { status, .. } => ErrorReply::Accepted(status),
        ReplyBody::AuthError(stat) => ErrorReply::Auth(stat),
        ReplyBody::RpcMismatch { low, high } => ErrorReply::RpcMismatch { low, high },
    }
}

fn denial_header(xid: u32, denial: ErrorReply) -> ReplyHeader {
    let body = match denial {
        ErrorReply::Accepted(status) => return ReplyHeader::accepted(xid, status),
        ErrorReply::Auth(stat) => ReplyBody::AuthError(stat),
        ErrorReply::RpcMismatch { low, high } => ReplyBody::RpcMismatch { low, high },
    };
    ReplyHeader { xid, body }
}

/// Builds the message that answers a call. `room`, which must be empty, provides the memory for the header,
/// and for short results behind it.
pub(crate) fn answer(xid: u32, reply: ServiceReply, room: &mut BytesMut) -> Message {
    match reply {
        Ok(mut results) => {
            ReplyHeader::accepted(xid, AcceptStatus::Success).encode_in(room);
            results.prepend_in(room);
            results
        }
        Err(denial) => Message::from_payload(denial_header(xid, denial).encode()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use onc_rpc::{Encoder, RPC_VERSION, Verifier};
    use quickcheck::quickcheck;

    use super::*;

    const PROGRAMS: [ProgramVersions; 3] = [
        ProgramVersions {
            prog: 100,
            low: 3,
            high: 4,
        },
        ProgramVersions {
            prog: 100,
            low: 7,
            high: 7,
        },
        ProgramVersions {
            prog: 200,
            low: 1,
            high: 1,
        },
    ];

    fn header(prog: u32, vers: u32, cred: Credential) -> CallHeader {
        CallHeader {
            xid: 0xabcd,
            prog,
            vers,
            proc: 0,
            cred,
            verf: Verifier::default(),
        }
    }

    fn dispatched(prog: u32, vers: u32, cred: Credential) -> Disposition {
        let bytes = header(prog, vers, cred).encode();
        dispatch(&Message::from_payload(bytes), &PROGRAMS)
    }

    fn answered(disposition: Disposition) -> ReplyBody {
        match disposition {
            Disposition::Answer(header) => {
                assert_eq!(header.xid, 0xabcd);
                header.body
            }
            Disposition::Execute { .. } => panic!("it would be executed"),
            Disposition::Disconnect(reason) => panic!("it would disconnect: {reason}"),
        }
    }

    fn status(disposition: Disposition) -> AcceptStatus {
        match answered(disposition) {
            ReplyBody::Accepted { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn known_programs_and_versions_are_executed_from_their_arguments_on() {
        for (prog, vers) in [(100, 3), (100, 4), (100, 7), (200, 1)] {
            let mut bytes = header(prog, vers, Credential::None).encode().to_vec();
            let args_start = bytes.len() as u64;
            bytes.extend([0, 0, 0, 42]);
            let message = Message::from_payload(Bytes::from(bytes));
            let Disposition::Execute { args, args_at, .. } = dispatch(&message, &PROGRAMS) else {
                panic!("{prog} {vers}");
            };
            assert_eq!(args_at, args_start);
            assert_eq!(Decoder::at(&message, args).u32(), Ok(42));
        }
    }

    #[test]
    fn other_programs_and_versions_are_refused_with_what_there_is() {
        let none = Credential::None;
        assert_eq!(
            status(dispatched(100, 5, none.clone())),
            AcceptStatus::ProgMismatch { low: 3, high: 7 }
        );
        assert_eq!(
            status(dispatched(200, 0, none.clone())),
            AcceptStatus::ProgMismatch { low: 1, high: 1 }
        );
        assert_eq!(status(dispatched(300, 1, none)), AcceptStatus::ProgUnavail);
    }

    #[test]
    fn credentials_that_cannot_be_checked_are_refused() {
        let other = |flavor| Credential::Other {
            flavor,
            body: Bytes::from_static(b"body"),
        };
        let rejected = ReplyBody::AuthError(AuthStat::REJECTED_CRED);
        assert_eq!(answered(dispatched(100, 3, other(AUTH_SHORT))), rejected);
        let bad = ReplyBody::AuthError(AuthStat::BAD_CRED);
        assert_eq!(answered(dispatched(100, 3, other(6))), bad);
        let mut broken = Encoder::new();
        broken.u32(0xabcd).u32(0).u32(RPC_VERSION);
        broken.u32(100).u32(3).u32(0).u32(1).opaque(b"not AUTH_SYS");
        let disposition = dispatch(&broken.finish(), &PROGRAMS);
        assert_eq!(answered(disposition), bad);
    }

    #[test]
    fn another_rpc_version_is_a_mismatch() {
        let mut old = Encoder::new();
        old.u32(0xabcd).u32(0).u32(3);
        let body = answered(dispatch(&old.finish(), &PROGRAMS));
        assert_eq!(body, ReplyBody::RpcMismatch { low: 2, high: 2 });
    }

    #[test]
    fn what_is_not_a_call_disconnects() {
        let mut reply = Encoder::new();
        reply.u32(0xabcd).u32(1).u32(0);
        let not_calls = [reply.finish(), Message::from_payload(Bytes::new())];
        for message in not_calls {
            assert!(matches!(
                dispatch(&message, &PROGRAMS),
                Disposition::Disconnect(_)
            ));
        }
    }

    quickcheck! {
        fn any_bytes_are_dispatched(bytes: Vec<u8>) -> bool {
            let executed = dispatch(&Message::from_payload(Bytes::from(bytes.clone())), &PROGRAMS);
            // Random bytes would hardly be a call to a known program.
            !matches!(executed, Disposition::Execute { .. }) || bytes.len() >= 40
        }
    }
}

//! Call and reply headers: the bytes of RFC 5531, and a server's answers to invalid ones.

use bytes::Bytes;
use onc_rpc::{
    AcceptStatus, AuthStat, AuthSys, BulkItem, CallDecodeError, CallHeader, Credential,
    DecodeError, Decoder, Encoder, Message, Position, ReplyBody, ReplyHeader, Verifier, peek_xid,
};
use quickcheck::{Arbitrary, Gen, quickcheck};

fn bytes(g: &mut Gen, max: usize) -> Bytes {
    let mut bytes = Vec::arbitrary(g);
    bytes.truncate(max);
    Bytes::from(bytes)
}

#[derive(Clone, Debug)]
struct AnyCall(CallHeader);

impl Arbitrary for AnyCall {
    fn arbitrary(g: &mut Gen) -> Self {
        let cred = match u8::arbitrary(g) % 3 {
            0 => Credential::None,
            1 => Credential::Sys(AuthSys {
                stamp: u32::arbitrary(g),
                machine_name: bytes(g, 255),
                uid: u32::arbitrary(g),
                gid: u32::arbitrary(g),
                gids: Vec::arbitrary(g).into_iter().take(16).collect(),
            }),
            _ => Credential::Other {
                flavor: u32::arbitrary(g).max(2),
                body: bytes(g, 400),
            },
        };
        Self(CallHeader {
            xid: u32::arbitrary(g),
            prog: u32::arbitrary(g),
            vers: u32::arbitrary(g),
            proc: u32::arbitrary(g),
            cred,
            verf: any_verifier(g),
        })
    }
}

fn any_verifier(g: &mut Gen) -> Verifier {
    Verifier {
        flavor: u32::arbitrary(g),
        body: bytes(g, 400),
    }
}

#[derive(Clone, Debug)]
struct AnyReply(ReplyHeader);

impl Arbitrary for AnyReply {
    fn arbitrary(g: &mut Gen) -> Self {
        let (low, high) = (u32::arbitrary(g), u32::arbitrary(g));
        let mut accepted = |status| ReplyBody::Accepted {
            verf: any_verifier(g),
            status,
        };
        let body = match low % 8 {
            0 => accepted(AcceptStatus::Success),
            1 => accepted(AcceptStatus::ProgUnavail),
            2 => accepted(AcceptStatus::ProgMismatch { low, high }),
            3 => accepted(AcceptStatus::ProcUnavail),
            4 => accepted(AcceptStatus::GarbageArgs),
            5 => accepted(AcceptStatus::SystemErr),
            6 => ReplyBody::RpcMismatch { low, high },
            _ => ReplyBody::AuthError(AuthStat(high)),
        };
        Self(ReplyHeader { xid: high, body })
    }
}

fn call_of(payload: Bytes) -> Result<CallHeader, CallDecodeError> {
    CallHeader::decode(&mut Decoder::new(&Message::from_payload(payload)))
}

fn reply_of(payload: Bytes) -> Result<ReplyHeader, DecodeError> {
    ReplyHeader::decode(&mut Decoder::new(&Message::from_payload(payload)))
}

/// Returns a header in one piece or in two, with a bulk item at a multiple of four if there is one.
fn message(header: &Bytes, cut: Option<usize>, item: Option<u8>) -> Message {
    let pieces = match cut.map(|at| at % header.len()) {
        None => vec![header.clone()],
        Some(at) => vec![header.slice(..at), header.slice(at..)],
    };
    let item = item.map(|at| BulkItem {
        position: Position::At(4 * u32::from(at)),
        data: b"bulk".into(),
    });
    Message::new(pieces.into_iter().collect(), item)
}

fn flip(bytes: &Bytes, flips: &[usize]) -> Bytes {
    let mut bytes = bytes.to_vec();
    for flip in flips {
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Bytes::from(bytes)
}

quickcheck! {
    fn calls_round_trip_and_arguments_follow(call: AnyCall, args: u32) -> bool {
        let mut out = Encoder::new();
        out.u32(args);
        let mut message = out.finish();
        message.prepend(call.0.encode());
        let mut from = Decoder::new(&message);
        peek_xid(&message) == Some(call.0.xid)
            && CallHeader::decode(&mut from) == Ok(call.0)
            && from.u32() == Ok(args)
    }

    fn replies_round_trip_and_results_follow(reply: AnyReply, results: u32) -> bool {
        let mut out = Encoder::new();
        out.u32(results);
        let mut message = out.finish();
        message.prepend(reply.0.encode());
        let mut from = Decoder::new(&message);
        ReplyHeader::decode(&mut from) == Ok(reply.0) && from.u32() == Ok(results)
    }

    fn bad_calls_do_not_panic_and_are_answered_under_their_xid(
        call: AnyCall,
        flips: Vec<usize>
    ) -> bool {
        let bytes = flip(&call.0.encode(), &flips);
        let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        match call_of(bytes) {
            Ok(call) => call.xid == xid,
            Err(error) => error.reply().is_none_or(|reply| reply.xid == xid),
        }
    }

    fn bad_replies_do_not_panic_and_good_ones_are_canonical(
        reply: AnyReply,
        flips: Vec<usize>
    ) -> bool {
        let bytes = flip(&reply.0.encode(), &flips);
        match reply_of(bytes.clone()) {
            Ok(reply) => {
                let again = reply.encode();
                // A flip in the status may shorten the header, or padding may be zeroed.
                again.len() <= bytes.len() && again[..12] == bytes[..12] && reply_of(again) == Ok(reply)
            }
            Err(_) => true,
        }
    }

    /// A header in one piece is decoded as a whole, and one in several pieces step by step.
    fn a_header_is_the_same_in_one_piece_and_in_two(
        call: AnyCall,
        reply: AnyReply,
        change: (Vec<usize>, usize),
        item: Option<u8>
    ) -> bool {
        let (flips, at) = (&change.0[..change.0.len().min(2)], change.1);
        [call.0.encode(), reply.0.encode()].iter().all(|header| {
            let bytes = flip(header, flips);
            let (one, two) = (message(&bytes, None, item), message(&bytes, Some(at), item));
            let (mut whole, mut cut) = (Decoder::new(&one), Decoder::new(&two));
            let calls = CallHeader::decode(&mut whole) == CallHeader::decode(&mut cut);
            let ended = whole.position() == cut.position();
            let (mut whole, mut cut) = (Decoder::new(&one), Decoder::new(&two));
            let replies = ReplyHeader::decode(&mut whole) == ReplyHeader::decode(&mut cut);
            calls && replies && ended && whole.position() == cut.position()
        })
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        let bytes = Bytes::from(bytes);
        let shortest = (call_of(bytes.clone()).is_ok(), reply_of(bytes.clone()).is_ok());
        bytes.len() >= match shortest {
            (true, _) => 40,
            (_, true) => 20,
            _ => 0,
        }
    }

    // Small words are more likely to be valid field values.
    fn arbitrary_words_do_not_panic(start: u8, rest: Vec<u8>) -> bool {
        let start = [9, u32::from(start % 2), u32::from(start % 3)];
        let all: Vec<u32> = start.into_iter().chain(rest.into_iter().map(|w| u32::from(w % 9))).collect();
        let message = Message::from_payload(words(&all));
        let (mut call, mut reply) = (Decoder::new(&message), Decoder::new(&message));
        let _ = (CallHeader::decode(&mut call), ReplyHeader::decode(&mut reply));
        call.position() <= message.stream_len() && reply.position() <= message.stream_len()
    }

    fn a_call_cut_short_is_not_a_call(call: AnyCall, at: usize) -> bool {
        let bytes = call.0.encode();
        call_of(bytes.slice(..at % bytes.len())).is_err()
    }
}

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn getattr() -> CallHeader {
    CallHeader {
        xid: 0x0102_0304,
        prog: 100_003,
        vers: 3,
        proc: 1,
        cred: Credential::Sys(AuthSys {
            stamp: 7,
            machine_name: Bytes::from_static(b"host1"),
            uid: 1000,
            gid: 100,
            gids: [4, 24].into_iter().collect(),
        }),
        verf: Verifier::default(),
    }
}

/// RFC 5531, section 9 and appendix A, word by word.
#[test]
fn a_call_has_these_bytes() {
    let mut expected = vec![0x0102_0304, 0, 2, 100_003, 3, 1];
    expected.extend([
        1,
        36,
        7,
        5,
        u32::from_be_bytes(*b"host"),
        u32::from_be_bytes(*b"1\0\0\0"),
    ]);
    expected.extend([1000, 100, 2, 4, 24]);
    expected.extend([0, 0]);
    assert_eq!(getattr().encode(), words(&expected));
}

/// RFC 5531, section 9, word by word.
#[test]
fn replies_have_these_bytes() {
    let accepted = |status| ReplyHeader::accepted(9, status).encode();
    assert_eq!(accepted(AcceptStatus::Success), words(&[9, 1, 0, 0, 0, 0]));
    assert_eq!(
        accepted(AcceptStatus::ProgUnavail),
        words(&[9, 1, 0, 0, 0, 1])
    );
    let mismatch = AcceptStatus::ProgMismatch { low: 3, high: 4 };
    assert_eq!(accepted(mismatch), words(&[9, 1, 0, 0, 0, 2, 3, 4]));
    assert_eq!(
        accepted(AcceptStatus::ProcUnavail),
        words(&[9, 1, 0, 0, 0, 3])
    );
    assert_eq!(
        accepted(AcceptStatus::GarbageArgs),
        words(&[9, 1, 0, 0, 0, 4])
    );
    assert_eq!(
        accepted(AcceptStatus::SystemErr),
        words(&[9, 1, 0, 0, 0, 5])
    );
    let denied = |body| ReplyHeader { xid: 9, body }.encode();
    let body = ReplyBody::RpcMismatch { low: 2, high: 2 };
    assert_eq!(denied(body), words(&[9, 1, 1, 0, 2, 2]));
    let body = ReplyBody::AuthError(AuthStat::TOO_WEAK);
    assert_eq!(denied(body), words(&[9, 1, 1, 1, 5]));
}

#[test]
fn another_rpc_version_is_answered_with_rpc_mismatch() {
    let error = call_of(words(&[9, 0, 3])).unwrap_err();
    assert_eq!(error, CallDecodeError::RpcVersion { xid: 9, version: 3 });
    let body = ReplyBody::RpcMismatch { low: 2, high: 2 };
    assert_eq!(error.reply(), Some(ReplyHeader { xid: 9, body }));
}

#[test]
fn what_is_not_a_call_is_not_answered() {
    for payload in [
        &[][..],
        &[9],
        &[9, 0],
        &[9, 1, 0, 0, 0, 0],
        &[9, 2, 2],
        &[9, 0, 2, 1, 1],
    ] {
        let error = call_of(words(payload)).unwrap_err();
        assert!(matches!(error, CallDecodeError::NotACall(_)), "{payload:?}");
        assert_eq!(error.reply(), None, "{payload:?}");
    }
}

fn auth_error(stat: AuthStat) -> Option<ReplyHeader> {
    let body = ReplyBody::AuthError(stat);
    Some(ReplyHeader { xid: 9, body })
}

#[test]
fn a_bad_credential_is_answered_with_auth_error() {
    let bad = [
        &[1, 0][..],                // no body
        &[1, 4, 7],                 // cut off in the body
        &[1, 404],                  // over 400 bytes
        &[1, u32::MAX],             // length wraps if rounded up
        &[1, 20, 7, 256, 0, 0, 0],  // name over 255 bytes
        &[1, 20, 7, 0, 1, 1, 17],   // over 16 groups
        &[1, 20, 7, 0, 1, 1, 1],    // a group is missing
        &[1, 24, 7, 0, 1, 1, 0, 5], // bytes left over
        &[0],                       // no length
    ];
    for cred in bad {
        let call = [&[9, 0, 2, 100_003, 3, 1], cred, &[0, 0]].concat();
        // If the credential is cut off, the verifier's words may serve as the rest of its body.
        let error = call_of(words(&call[..6 + cred.len()])).unwrap_err();
        assert_eq!(error.reply(), auth_error(AuthStat::BAD_CRED), "{cred:?}");
    }
}

#[test]
fn a_seventeenth_group_is_one_too_many() {
    let cred = |groups: u32| {
        let body = [7, 0, 1, 1, groups].into_iter().chain(0..groups);
        let body: Vec<u32> = body.collect();
        let start = [9, 0, 2, 100_003, 3, 1, 1, body.len() as u32 * 4];
        call_of(words(&[&start[..], &body, &[0, 0]].concat()))
    };
    assert!(cred(16).is_ok());
    let error = cred(17).unwrap_err();
    assert_eq!(error.reply(), auth_error(AuthStat::BAD_CRED));
}

#[test]
fn a_bad_verifier_is_answered_with_auth_error() {
    for verf in [&[][..], &[0], &[0, 4], &[0, 401]] {
        let call = [&[9, 0, 2, 100_003, 3, 1, 0, 0], verf].concat();
        let error = call_of(words(&call)).unwrap_err();
        assert_eq!(error.reply(), auth_error(AuthStat::BAD_VERF), "{verf:?}");
    }
}

#[test]
fn a_bulk_item_inside_the_header_is_answered_with_garbage_args() {
    // RFC 8166, section 4.5.2: a chunk contradicts the payload stream. A NULL call without
    // arguments ends at 40, after an empty verifier.
    for position in [4, 24, 28, 36, 40] {
        let item = BulkItem {
            position: Position::At(position),
            data: b"stray".into(),
        };
        let payload = words(&[9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
        let message = Message::new([payload].into_iter().collect(), [item]);
        let error = CallHeader::decode(&mut Decoder::new(&message)).unwrap_err();
        let garbage = ReplyHeader::accepted(9, AcceptStatus::GarbageArgs);
        assert_eq!(error.reply(), Some(garbage), "{position}");
    }
}

#[test]
fn the_limits_of_auth_sys_are_within() {
    let mut call = getattr();
    call.cred = Credential::Sys(AuthSys {
        machine_name: Bytes::from(vec![b'x'; 255]),
        gids: (0..16).collect(),
        ..AuthSys::default()
    });
    assert_eq!(call_of(call.encode()), Ok(call));
}

#[test]
fn auth_sys_truncates_long_names_and_group_lists() {
    let mut call = getattr();
    call.cred = Credential::Sys(AuthSys {
        machine_name: Bytes::from(vec![b'x'; 300]),
        gids: (0..40).collect(),
        ..AuthSys::default()
    });
    let Credential::Sys(sent) = call_of(call.encode()).unwrap().cred else {
        panic!("another flavor");
    };
    assert_eq!(sent.machine_name.len(), 255);
    assert_eq!(sent.gids.as_slice(), (0..16).collect::<Vec<_>>());
}

#[test]
fn a_reply_with_unknown_words_is_an_error() {
    for payload in [
        &[9, 0, 0][..],         // a call
        &[9, 1, 2],             // reply_stat
        &[9, 1, 0, 0, 0, 6],    // accept_stat
        &[9, 1, 1, 2],          // reject_stat
        &[9, 1, 0, 0, 0, 2, 3], // cut off
        &[9, 1, 0, 0, 404],     // verifier over 400 bytes
    ] {
        assert!(reply_of(words(payload)).is_err(), "{payload:?}");
    }
}

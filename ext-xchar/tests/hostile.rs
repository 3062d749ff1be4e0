//! Malformed messages: each has exactly the answer that the documents specify, and the connection
//! goes on.

mod common;

use bytes::Bytes;
use common::{XID, config, end, exchange, words};
use rpcrdma_ext_xchar::{Response, Subset};
use rpcrdma_extension::{Action, Extensions};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{
    Answer, Body, Direction, Header, Role, Side, check_call, check_payload, check_returned,
};

/// Credits granted in answers.
const GRANT: u32 = 7;
const MAX_CALL: u64 = 1 << 20;

/// The expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// RDMA2_ERR_BAD_HEADER.
    BadHeader,
    /// RDMA2_ERR_INVAL_OPTION.
    InvalidOption,
    /// RDMA2_ERR_VERS, with this version in the header.
    Version(u32),
    /// No answer: the message is discarded.
    Nothing,
    /// No error: the message is valid.
    Taken,
}

impl Reply {
    fn bytes(self) -> Option<Bytes> {
        match self {
            Self::BadHeader => Some(words(&[XID, 2, GRANT, 4, 2])),
            Self::InvalidOption => Some(words(&[XID, 2, GRANT, 4, 3])),
            Self::Version(version) => Some(words(&[XID, version, GRANT, 4, 1, 2, 2])),
            Self::Nothing | Self::Taken => None,
        }
    }
}

/// Handles a message like the engine does, as far as errors are concerned. Returns the answers, and
/// whether the message was executed or delivered.
fn receive(end: &mut Extensions, side: Side, message: &Bytes) -> (Vec<Bytes>, bool) {
    let answered = |answer: Option<Answer>| answer.map(|answer| answer.encode(GRANT));
    let (header, at) = match Header::decode(message) {
        Ok(decoded) => decoded,
        Err(error) => {
            let answer = answered(error.answer(side));
            return (answer.into_iter().collect(), false);
        }
    };
    let payload = message.slice(at..);
    let routed = operations::route(end, &header, std::slice::from_ref(message), at);
    let (xid, direction) = (header.xid, header.direction());
    match (routed, &header.body) {
        (Routed::Taken, _) => (Vec::new(), true),
        (Routed::Discarded(_), _) => (Vec::new(), false),
        (Routed::Refused(error), _) => {
            let error = error.into();
            let version = rpcrdma_v2::VERSION;
            let answer = Answer {
                xid,
                version,
                error,
            };
            (vec![answer.encode(GRANT)], false)
        }
        // No call is outstanding to which the error could belong.
        (Routed::Base, Body::Error(_)) => (Vec::new(), false),
        (
            Routed::Base,
            Body::Msg(Direction::Reply, chunks) | Body::NoMsg(Direction::Reply, chunks),
        ) => {
            let (inline, offered) = (payload.len() as u64, rpcrdma_v2::Chunks::default());
            let long = matches!(header.body, Body::NoMsg(..));
            let good = check_returned(chunks, long, inline, &offered).is_ok();
            (Vec::new(), good)
        }
        (Routed::Base, _) if direction == Direction::Reply => (Vec::new(), false),
        (Routed::Base, _) => {
            let inline = payload.len() as u64;
            let message = onc_rpc::Message::from_payload(payload);
            let checked =
                check_call(header, inline, MAX_CALL).and_then(|call| match call.payload {
                    Some(_) => Ok(()),
                    None => check_payload(xid, direction, &message),
                });
            match checked {
                Ok(()) => (Vec::new(), true),
                Err(violation) => {
                    let answer = Answer::to_violation(&violation, xid, Role::Responder);
                    (answered(answer).into_iter().collect(), false)
                }
            }
        }
    }
}

/// Returns an operation with this direction, type and information.
fn op(direction: u32, opttype: u32, info: &[u32]) -> Vec<u32> {
    let len = info.len() as u32 * 4;
    [&[XID, 2, 8, 5, direction, opttype, len], info].concat()
}

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// Returns the test cases: message, answer of a server, answer of a client.
fn cases() -> Vec<(Vec<u32>, Reply, Reply)> {
    use Reply::{BadHeader, InvalidOption, Nothing, Taken, Version};
    let both = |message: Vec<u32>, reply: Reply| (message, reply, reply);
    let msg = |rest: &[u32]| [&[XID, 2, 8, 0], rest].concat();
    let long = |rest: &[u32]| [&[XID, 2, 8, 1], rest].concat();
    let call = [XID, 0, 2, 100_003];
    let mut cases = vec![
        // Too short for a header.
        both(vec![], Nothing),
        both(vec![XID, 2, 8, 0, 0, 0], Nothing),
        both(vec![XID, 2, 8, 4], Nothing),
        // Other protocol versions.
        (vec![XID, 0, 8, 0, 0, 0, 0], Version(0), Nothing),
        (vec![XID, 1, 8, 0, 0, 0, 0], Version(1), Nothing),
        (vec![XID, 3, 8, 0, 0, 0, 0], Version(3), Nothing),
        (
            vec![XID, u32::MAX, 8, 0, 0, 0, 0],
            Version(u32::MAX),
            Nothing,
        ),
        both(vec![XID, 1, 8, 4, 1, 1, 1], Nothing),
        // Unknown procedures.
        (vec![XID, 2, 8, 2, 0, 0, 0, 0], BadHeader, Nothing),
        (vec![XID, 2, 8, 3, 0, 0, 0, 0], BadHeader, Nothing),
        (vec![XID, 2, 8, 6, 0, 0, 0, 0], BadHeader, Nothing),
        (vec![XID, 2, 8, u32::MAX, 0, 0, 0], BadHeader, Nothing),
        // Invalid directions.
        (msg(&[2, 0, 0, 0]), BadHeader, Nothing),
        (long(&[u32::MAX, 0, 0, 0]), BadHeader, Nothing),
        (vec![XID, 2, 8, 5, 9, 1, 0], BadHeader, Nothing),
        // Errors, well-formed and malformed.
        both(vec![XID, 2, 8, 4, 1, 1, 1], Nothing),
        both(vec![XID, 2, 8, 4, 2], Nothing),
        both(vec![XID, 2, 8, 4, 3], Nothing),
        both(vec![XID, 2, 8, 4, 0], Nothing),
        both(vec![XID, 2, 8, 4, 4, 0, 0], Nothing),
        both(vec![XID, 2, 8, 4, 1, 1], Nothing),
        // Malformed chunk lists, in calls and in replies.
        both(msg(&[CALL, 0, 0]), BadHeader),
        both(msg(&[CALL, 2, 0, 0]), BadHeader),
        both(msg(&[CALL, 1, 0, 1, 1]), BadHeader),
        both(msg(&[CALL, 0, 1, u32::MAX, 0, 0]), BadHeader),
        both(msg(&[CALL, 0, 0, 1, 600, 0, 0]), BadHeader),
        both(msg(&[REPLY, 2, 0, 0]), Nothing),
        both(msg(&[REPLY, 0, 0, 1, 600, 0, 0]), Nothing),
        // Errors in the payload.
        both(msg(&[CALL, 0, 0, 0]), BadHeader),
        both(msg(&[CALL, 0, 0, 0, XID]), BadHeader),
        both(msg(&[CALL, 0, 0, 0, XID, REPLY]), BadHeader),
        both(msg(&[CALL, 0, 0, 0, 7, CALL]), BadHeader),
        both(msg(&[&[CALL, 0, 0, 0], &call[..]].concat()), Taken),
        both(long(&[CALL, 0, 0, 0]), BadHeader),
        both(long(&[CALL, 1, 0, 1, 64, 0, 0, 0, 0, 0, 5]), BadHeader),
        both(long(&[CALL, 1, 0, 1, 6, 0, 0, 0, 0, 0]), BadHeader),
        both(long(&[CALL, 1, 0, 1, 64, 0, 0, 0, 0, 0]), Taken),
        both(
            long(&[CALL, 1, 0, 1, 64, u32::MAX, u32::MAX, 0, 0, 0]),
            BadHeader,
        ),
        both(
            msg(&[&[CALL, 1, 3, 1, 8, 0, 0, 0, 0, 0], &call[..]].concat()),
            BadHeader,
        ),
        both(
            msg(&[&[CALL, 1, 20, 1, 8, 0, 0, 0, 0, 0], &call[..]].concat()),
            BadHeader,
        ),
        both(long(&[REPLY, 0, 0, 0]), Nothing),
        // Operations without an owner, in either direction.
        both(op(CALL, 0, &[]), InvalidOption),
        both(op(CALL, 5, &[0, 0, 1, 0, 0]), InvalidOption),
        both(op(REPLY, 6, &[0, 1, 0]), InvalidOption),
        both(op(CALL, 7, &[1, 5, 0]), InvalidOption),
        both(op(REPLY, 8, &[]), InvalidOption),
        both(op(CALL, 9, &[1]), InvalidOption),
        both(op(REPLY, u32::MAX, &[]), InvalidOption),
        // Operations whose information is shorter or longer than stated.
        both(vec![XID, 2, 8, 5, CALL, 1, 4], BadHeader),
        both(vec![XID, 2, 8, 5, CALL, 99, u32::MAX], BadHeader),
        both(vec![XID, 2, 8, 5, CALL, 99, 1, 1], BadHeader),
        both(vec![XID, 2, 8, 5, REPLY, 3, 4], Nothing),
        // ROPT_INITXCH.
        both(op(CALL, 1, &[]), BadHeader),
        both(op(CALL, 1, &[65, 0]), BadHeader),
        both(op(CALL, 1, &[1, 1, 8, 4096, 0]), BadHeader),
        both(op(CALL, 1, &[1, 1, 4, 4096]), BadHeader),
        both(op(CALL, 1, &[1, 2, 4, 2, 0]), BadHeader),
        both(op(REPLY, 1, &[1, 3, 4, 3, 0]), BadHeader),
        both(op(CALL, 1, &[1, 1, 0, 0]), BadHeader),
        both(op(CALL, 1, &[0, 0, 0]), BadHeader),
        both(op(CALL, 1, &[0, 3, 0, 0, 1]), BadHeader),
        both(op(CALL, 1, &[2, 99, 4, 7, 0xffff_ff01, 0, 0]), Taken),
        // ROPT_REQXCH.
        both(op(CALL, 2, &[]), BadHeader),
        both(op(CALL, 2, &[1, 1, 4]), BadHeader),
        both(op(CALL, 2, &[1, 2, 4, 7]), BadHeader),
        both(op(CALL, 2, &[1, 1, 8, 4096, 4096]), BadHeader),
        both(op(REPLY, 2, &[0]), Nothing),
        both(op(CALL, 2, &[2, 99, 0, 4_294_967_040, 0]), Taken),
        // ROPT_RESPXCH.
        both(op(REPLY, 3, &[0, 0, 0]), Nothing),
        both(op(REPLY, 3, &[1]), Nothing),
        both(op(CALL, 3, &[0, 0, 0]), BadHeader),
        // ROPT_UPDXCH.
        both(op(CALL, 4, &[]), BadHeader),
        both(op(CALL, 4, &[1, 4, 8192]), BadHeader),
        both(op(CALL, 4, &[1, 4, 8192, 2]), BadHeader),
        both(op(CALL, 4, &[2, 4, 9, 0]), BadHeader),
        both(op(REPLY, 4, &[3, 4, 9, 0]), BadHeader),
        both(op(CALL, 4, &[99, 4, 9, 0]), Taken),
        both(op(CALL, 4, &[1, 4, 8192, 1]), Taken),
    ];
    // A bulk item longer than allowed.
    cases.push(both(
        msg(&[&[CALL, 1, 8, 1, 2 << 20, 0, 0, 0, 0, 0], &call[..]].concat()),
        BadHeader,
    ));
    cases
}

#[test]
fn each_bad_message_has_the_answer_that_the_documents_name() {
    let cases = cases();
    assert!(cases.len() >= 75);
    for (message, server, client) in cases {
        for (side, expected) in [(Side::Server, server), (Side::Client, client)] {
            let mut end = end(side, config());
            end.connected(None);
            while end.next_action().is_some() {}
            let (answers, acted) = receive(&mut end, side, &words(&message));
            let expected_answers: Vec<_> = expected.bytes().into_iter().collect();
            assert_eq!(answers, expected_answers, "{side:?} {message:?}");
            assert_eq!(acted, expected == Reply::Taken, "{side:?} {message:?}");
            goes_on(&mut end, side);
        }
    }
}

/// Checks that the end still answers valid messages.
fn goes_on(end: &mut Extensions, side: Side) {
    while end.next_action().is_some() {}
    let init = words(&op(CALL, 1, &[1, 1, 4, 20480, 0]));
    let known = exchange(end).supported().is_some();
    let (answers, acted) = receive(end, side, &init);
    assert_eq!((answers.len(), acted), (0, !known));
    let want = words(&op(CALL, 2, &[1, 99, 0]));
    let (answers, acted) = receive(end, side, &want);
    assert_eq!((answers.len(), acted), (0, true));
    let mut actions = std::iter::from_fn(|| end.next_action());
    let response = actions.find_map(|action| match action {
        Action::Send(op) => Some(op.fields),
        _ => None,
    });
    let rejected = Response {
        rejected: Subset::new([0]),
        ..Response::default()
    };
    assert_eq!(response, Some(rejected.encode()));
}

#[test]
fn one_bad_message_has_one_answer_among_many() {
    let mut end = end(Side::Server, config());
    end.connected(None);
    let mut sent = 0;
    let cases = cases();
    let expected = cases.iter().filter(|case| case.1.bytes().is_some()).count();
    for (message, ..) in &cases {
        sent += receive(&mut end, Side::Server, &words(message)).0.len();
    }
    assert_eq!(sent, expected);
    // The end also sends operations of its own: its INITXCH, and the response to a valid request.
    let said = std::iter::from_fn(|| end.next_action());
    let said = said.filter(|action| matches!(action, Action::Send(_)));
    assert_eq!(said.count(), 2);
}

//! Scripts against a server that is one itself.

mod devices;
mod extensions;
mod rows;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::*;
use crate::case::{Ground, Step, case};
use crate::expect::{Expect, success};
use crate::file::{Vocabularies, parse};
use crate::peer::{Heard, Peer};
use crate::stream::Stream;
use crate::wire::ddp::Untagged;
use crate::wire::mpa::Frame;
use crate::wire::rpc;
use crate::wire::v1::{self, Header};

/// The longest wait for something that a server does at once.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest wait for something that never comes; a step takes up to eight times as long.
const SHORT: Duration = Duration::from_millis(500);
/// Lines that send a call, in version-two-07.
const CALL: &str = "--> RDMA2_CALL_INLINE\nrpc = call NFS 3 NULL\n";

/// Serves one connection, until `answer` returns false for a message or the client ends it.
fn start(mut answer: impl FnMut(&mut Peer, &[u8]) -> bool + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut peer = Peer::new(Stream::new(socket).unwrap());
        peer.hear_frame(mpa::REQUEST_KEY, &mut || true).unwrap();
        peer.stream.write(&Frame::reply().bytes());
        while let Ok(Heard::Message { bytes, .. }) = peer.hear(&mut || true)
            && answer(&mut peer, &bytes)
        {}
    });
    address
}

/// Performs a case with a server.
fn performed(
    case: &Case,
    patience: Duration,
    answer: impl FnMut(&mut Peer, &[u8]) -> bool + Send + 'static,
) -> Result<(), Failed> {
    let server = Server {
        address: start(answer),
        patience,
        watcher: None,
        dial: None,
    };
    perform(case, &server).result
}

fn xid(message: &[u8]) -> u32 {
    u32::from_be_bytes(*message.first_chunk().unwrap())
}

/// Returns a case of version-two-07 with these lines.
fn case_of(lines: &str) -> Case {
    let text =
        format!("case rpcrdma2-07/4.2.1/900 MUST\nsends a call\nexpects what follows\n{lines}");
    let ground = Ground::without_files(7);
    let mut cases = parse("a.case", &text, &Vocabularies::new(&[]), &ground).unwrap();
    cases.remove(0)
}

/// Performs lines of version-two-07 with a server. `begin` answers the client's properties, after which it has no
/// credit, and `call` a call with this XID.
fn performed_lines(
    lines: &str,
    patience: Duration,
    mut begin: impl FnMut(&mut Peer) -> bool + Send + 'static,
    mut call: impl FnMut(&mut Peer, u32) + Send + 'static,
) -> Result<(), Failed> {
    performed(
        &case_of(lines),
        patience,
        move |peer, message| match wg::htype(message) {
            Some(wg::CONNPROP_FINAL) => begin(peer),
            _ => {
                call(peer, xid(message));
                true
            }
        },
    )
}

/// Tells the client that it has no credit, and then this end's properties with new credits.
fn introduce(peer: &mut Peer) -> bool {
    peer.send(&wg::grant(1));
    peer.send(&wg::introduction(&wg::plain_properties()));
    true
}

fn reply(peer: &mut Peer, xid: u32) {
    peer.send(&wg::reply(xid, &rpc::accepted(xid, 0, &[])));
}

/// The first grant comes before the call is sent, and is no answer to it.
#[test]
fn a_grant_that_came_before_a_message_is_no_answer_to_it() {
    let lines = format!("{CALL}<-- RDMA2_GRANT\n<-- RDMA2_REPLY_INLINE");
    let early = performed_lines(&lines, PATIENCE, introduce, reply);
    let text = "received RDMA2_REPLY_INLINE, not RDMA2_GRANT";
    assert_eq!(early, Err(Failed::Deviation(text.into())));
    let again = performed_lines(&lines, PATIENCE, introduce, |peer, xid| {
        peer.send(&wg::grant(wg::CREDIT));
        reply(peer, xid);
    });
    assert_eq!(again, Ok(()));
}

/// A server tells its properties once, and when it likes.
#[test]
fn properties_that_came_before_a_message_can_be_expected_after_it() {
    let lines = format!("{CALL}<-- RDMA2_CONNPROP_FINAL\n<-- RDMA2_REPLY_INLINE");
    assert_eq!(performed_lines(&lines, PATIENCE, introduce, reply), Ok(()));
}

/// Gives a credit and takes it back at once, this often, and then gives credits that last. Returns false if a message
/// comes before these.
fn take_back(peer: &mut Peer, times: usize) -> bool {
    for _ in 0..times {
        let both = [2, 1].into_iter().zip(peer.next_msn()..);
        let both = both.map(|(limit, msn)| {
            let send = Untagged::send(msn, &wg::grant(limit)).ulpdu();
            mpa::fpdu(&send, false)
        });
        // In one write: who reads the first can read the second.
        peer.stream.write(&both.collect::<Vec<_>>().concat());
        peer.said(2);
        std::thread::sleep(Duration::from_millis(50));
        if peer.stream.has_arrived() {
            return false;
        }
    }
    introduce(peer)
}

#[test]
fn no_message_uses_a_credit_that_was_taken_back() {
    let lines = format!("{CALL}<-- RDMA2_REPLY_INLINE");
    let at_last = performed_lines(&lines, PATIENCE, |peer| take_back(peer, 4), reply);
    assert_eq!(at_last, Ok(()));
    let never = |peer: &mut Peer| take_back(peer, usize::MAX);
    let never = performed_lines(&lines, SHORT, never, reply);
    assert!(matches!(never, Err(Failed::NotApplicable(_))), "{never:?}");
}

/// Sends the first message of a reply.
fn reply_in_part(peer: &mut Peer, xid: u32) {
    peer.send(&wg::message(
        xid,
        wg::REPLY_MIDDLE,
        &[20],
        &xid.to_be_bytes(),
    ));
}

#[test]
fn a_part_of_a_reply_breaks_the_silence_unless_it_was_expected() {
    let quiet = |lines: &str, call: fn(&mut Peer, u32)| {
        let lines = format!("{CALL}{lines}<-- nothing\nend incomplete");
        performed_lines(&lines, PATIENCE, introduce, call)
    };
    let text = "RDMA2_REPLY_MIDDLE came where nothing may come";
    let deviation = Err(Failed::Deviation(text.into()));
    assert_eq!(quiet("", reply_in_part), deviation);
    assert_eq!(quiet("<-- RDMA2_REPLY_MIDDLE\n", reply_in_part), Ok(()));
    let two = |peer: &mut Peer, xid: u32| {
        reply_in_part(peer, xid);
        reply_in_part(peer, xid);
    };
    assert_eq!(quiet("<-- RDMA2_REPLY_MIDDLE\n", two), deviation);
    // The parts of a reply that has come are parts of that.
    let whole = |peer: &mut Peer, xid: u32| {
        reply_in_part(peer, xid);
        let rest = &rpc::accepted(xid, 0, &[])[4..];
        peer.send(&wg::reply(xid, rest));
    };
    let lines = "<-- RDMA2_REPLY_INLINE\nrpc = reply SUCCESS\n";
    assert_eq!(quiet(lines, whole), Ok(()));
    let grants = |peer: &mut Peer, _: u32| peer.send(&wg::grant(wg::CREDIT));
    assert_eq!(quiet("", grants), Ok(()));
}

/// Returns a case of version 1 without a call at the end.
fn case_with(steps: Vec<Step>) -> Case {
    let connect = Step::Connect(mpa::PRIVATE_DATA.to_vec());
    let script = [vec![connect], steps].concat();
    case("RFC 8166, 3.3.1", 900, "calls", "replies", script).incomplete()
}

/// Answers a call of version 1 with this status and these credits.
fn answer(peer: &mut Peer, xid: u32, status: u32, credits: u32) -> bool {
    let header = Header {
        credits,
        ..v1::header(xid)
    };
    peer.send(&header.with(&rpc::accepted(xid, status, &[])));
    true
}

fn null(xid: u32) -> Vec<u8> {
    v1::header(xid).with(&rpc::null(xid).bytes())
}

#[test]
fn a_script_that_expects_nothing_in_particular_tests_nothing() {
    for step in [Step::Expect(Vec::new()), Step::Within(PATIENCE, Vec::new())] {
        let case = case_with(vec![Step::Send(null(7)), step]);
        let result = performed(&case, PATIENCE, |peer, message| {
            answer(peer, xid(message), 0, 8)
        });
        assert!(
            matches!(result, Err(Failed::NotApplicable(_))),
            "{result:?}"
        );
    }
}

#[test]
fn a_burst_without_credits_is_a_deviation() {
    let first = Expect::Reply(success(7, &[]));
    let steps = vec![
        Step::Send(null(7)),
        Step::Expect(vec![first]),
        Step::Burst(4),
    ];
    let burst = |credits| {
        performed(&case_with(steps.clone()), PATIENCE, move |peer, message| {
            answer(peer, xid(message), 0, credits)
        })
    };
    let none = burst(0);
    assert!(matches!(none, Err(Failed::Deviation(_))), "{none:?}");
    assert_eq!(burst(1), Ok(()));
}

#[test]
fn a_burst_on_a_connection_that_has_ended_is_a_deviation() {
    let lines = format!("{CALL}<-- RDMA2_REPLY_INLINE");
    let mut case = case_of(&lines);
    case.script.truncate(2);
    case.script.push(Step::Burst(4));
    let result = performed(&case.incomplete(), PATIENCE, |_, _| false);
    assert!(matches!(result, Err(Failed::Deviation(_))), "{result:?}");
}

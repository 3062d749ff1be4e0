//! Scripts against a server that is one itself.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::*;
use crate::case::Ground;
use crate::file::{Vocabularies, parse};
use crate::peer::{Heard, Peer};
use crate::stream::Stream;
use crate::wire::mpa::Frame;
use crate::wire::rpc;

/// Serves one connection of version-two-07. RDMA2_GRANT comes before the client may make a call, and again before the
/// reply to each call if `again` says so.
fn start(again: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut peer = Peer::new(Stream::new(socket).unwrap());
        peer.hear_frame(mpa::REQUEST_KEY, &mut || true).unwrap();
        peer.stream.write(&Frame::reply().bytes());
        while let Ok(Heard::Message { bytes, .. }) = peer.hear(&mut || true) {
            let xid = bytes.first_chunk().map(|it| u32::from_be_bytes(*it));
            match wg::htype(&bytes) {
                Some(wg::CONNPROP_FINAL) => {
                    // The client has used its only credit, and gets another one behind the grant.
                    peer.send(&wg::grant(1));
                    peer.send(&wg::introduction(&wg::plain_properties()));
                }
                _ => {
                    let xid = xid.unwrap();
                    if again {
                        peer.send(&wg::grant(wg::CREDIT));
                    }
                    peer.send(&wg::reply(xid, &rpc::accepted(xid, 0, &[])));
                }
            }
        }
    });
    address
}

fn performed(again: bool, lines: &str) -> Result<(), Failed> {
    let text =
        format!("case rpcrdma2-07/4.2.1/900 MUST\nsends a call\nexpects what follows\n{lines}");
    let ground = Ground::without_files(7);
    let cases = parse("a.case", &text, &Vocabularies::new(&[]), &ground).unwrap();
    let server = Server {
        address: start(again),
        patience: Duration::from_secs(20),
        watcher: None,
    };
    perform(&cases[0], &server).result
}

/// The first grant comes before the call is sent, and is no answer to it.
#[test]
fn a_grant_that_came_before_a_message_is_no_answer_to_it() {
    let lines =
        "--> RDMA2_CALL_INLINE\nrpc = call NFS 3 NULL\n<-- RDMA2_GRANT\n<-- RDMA2_REPLY_INLINE";
    let early = performed(false, lines);
    assert_eq!(
        early,
        Err(Failed::Deviation(
            "received RDMA2_REPLY_INLINE, not RDMA2_GRANT".into()
        ))
    );
    assert_eq!(performed(true, lines), Ok(()));
}

/// A server tells its properties once, and when it likes.
#[test]
fn properties_that_came_before_a_message_can_be_expected_after_it() {
    let lines = "--> RDMA2_CALL_INLINE\nrpc = call NFS 3 NULL\n<-- RDMA2_CONNPROP_FINAL\n<-- RDMA2_REPLY_INLINE";
    assert_eq!(performed(false, lines), Ok(()));
}

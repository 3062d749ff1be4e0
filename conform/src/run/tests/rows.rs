//! Rows of the tables of cases, against servers of which each does one thing.

use super::{LAST, PATIENCE, answer, performed, xid};
use crate::case::Ground;
use crate::cases::{headers, lists};
use crate::peer::{Heard, Peer};
use crate::run::Failed;
use crate::wire::ddp::ReadRequest;
use crate::wire::v1;

/// Performs a case of the tables of version 1 with a server.
fn performed_row(
    address: &str,
    answer: impl FnMut(&mut Peer, &[u8]) -> bool + Send + 'static,
) -> Result<(), Failed> {
    let ground = Ground::without_files(7);
    let all = [lists(&ground), headers(&ground)].concat();
    let case = all.iter().find(|it| it.address() == address).unwrap();
    performed(case, PATIENCE, answer)
}

/// `accept_stat` GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;

/// Answers the call at the end, and others with GARBAGE_ARGS.
fn garbage(peer: &mut Peer, message: &[u8]) -> bool {
    let xid = xid(message);
    answer(peer, xid, if xid == LAST { 0 } else { GARBAGE_ARGS }, 8)
}

/// Answers the call at the end, and others with ERR_CHUNK.
fn refuse(peer: &mut Peer, message: &[u8]) -> bool {
    match xid(message) {
        LAST => answer(peer, LAST, 0, 8),
        xid => {
            peer.send(&v1::error(xid, 1, &[v1::ERR_CHUNK]));
            true
        }
    }
}

/// Reads the Read chunks of a call before it is answered with GARBAGE_ARGS.
fn read_first(peer: &mut Peer, message: &[u8]) -> bool {
    let Some(v1::Message::Rpc(header, _)) = v1::parse(message) else {
        return false;
    };
    for (sink, (_, segment)) in (1..).zip(header.reads) {
        peer.read(&ReadRequest {
            sink,
            sink_offset: 0,
            length: segment.length,
            source: segment.handle,
            source_offset: segment.offset,
        });
        loop {
            match peer.hear(&mut || true) {
                Ok(Heard::Response { last: true, .. }) => break,
                Ok(Heard::Response { .. }) => {}
                _ => return false,
            }
        }
    }
    garbage(peer, message)
}

#[test]
fn chunks_that_do_not_fit_the_call_may_be_garbage_args() {
    for number in [2, 3, 5, 6, 7, 8, 9, 10] {
        let address = format!("rfc8166/3.4.5/{number}");
        assert_eq!(performed_row(&address, garbage), Ok(()), "{address}");
    }
    let misaligned = performed_row("rfc8166/3.4.5/1", garbage);
    assert!(matches!(misaligned, Err(Failed::Deviation(_))));
}

#[test]
fn chunks_that_are_there_may_be_read_before_the_arguments_are_decoded() {
    for address in ["rfc8166/4.5.2/30", "rfc8166/4.5.2/31", "rfc8166/6.1/1"] {
        assert_eq!(performed_row(address, read_first), Ok(()), "{address}");
        let accepted = performed_row(address, |peer, message| answer(peer, xid(message), 0, 8));
        assert!(matches!(accepted, Err(Failed::Deviation(_))), "{address}");
    }
    let twice = performed_row("rfc8166/3.4.5/14", read_first);
    assert!(matches!(twice, Err(Failed::Deviation(_))), "{twice:?}");
}

#[test]
fn memory_that_there_cannot_be_may_end_the_connection() {
    for address in ["rfc8166/3.4.5/13", "rfc8166/4.2.4/18"] {
        assert_eq!(performed_row(address, read_first), Ok(()), "{address}");
        assert_eq!(performed_row(address, |_, _| false), Ok(()), "{address}");
        assert_eq!(performed_row(address, refuse), Ok(()), "{address}");
        let accepted = performed_row(address, |peer, message| answer(peer, xid(message), 0, 8));
        assert!(matches!(accepted, Err(Failed::Deviation(_))), "{address}");
    }
}

/// An error about a message that must be discarded could come behind the reply to the next call, which ended the case.
/// So the next call is made after a silence.
#[test]
fn an_error_about_a_message_that_must_be_discarded_is_seen() {
    let text = "an RDMA_ERROR of ERR_CHUNK came where nothing may come";
    for address in ["rfc8166/4.5/4", "rfc8166/4.5/9"] {
        // On a busy machine, the server may be late by the time of the silence.
        let is_seen = || performed_row(address, refuse) == Err(Failed::Deviation(text.into()));
        assert!((0..10).any(|_| is_seen()), "{address}");
    }
}

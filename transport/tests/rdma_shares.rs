//! What a connection over RDMA may hold of the memory that all share: its calls wait for it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use conveyance::Limits;
use onc_rpc::{CALL, Encoder, Message, REPLY};
use rdma::{Account, Budget, GUARANTEED, PER_CALL, Pool};
use rpc_transport::rdma::{Responder, ResponderAction, ResponderConfig, Version, header_len};
use rpcrdma_v1::{Body, Chunks, Header, ReadSegment, Segment};

const MIB: usize = 1 << 20;

/// A responder whose connection shares 4 MiB with seven others, and its account.
fn responder() -> (Responder, Account) {
    let account = Budget::new(4 * MIB, 8).account();
    assert_eq!(account.guaranteed(), GUARANTEED);
    let responder = Responder::new(ResponderConfig {
        version: Version::One,
        credits: 8,
        max_fetched: 64 << 20,
        outbound_reads: 4,
        remote_invalidation: false,
        limits: Limits {
            inline_send: 4096,
            inline_receive: 4096,
            max_segment: 1 << 30,
            max_message: 64 << 20,
            header_len: header_len(Version::One),
        },
        pool: Pool::new(64 * MIB).charged_to(&account),
    });
    (responder, account)
}

/// A call, with a read chunk of so many bytes if there are any.
fn call(xid: u32, fetched: u32) -> Bytes {
    let mut chunks = Chunks::default();
    let payload = [xid, CALL, 0].map(u32::to_be_bytes).concat();
    if fetched > 0 {
        chunks.reads.push(ReadSegment {
            position: payload.len() as u32,
            segment: Segment {
                handle: xid,
                length: fetched,
                offset: 0,
            },
        });
    }
    let header = Header {
        xid,
        credits: 8,
        body: Body::Msg(chunks),
    };
    [&header.encode()[..], &payload].concat().into()
}

/// A reply of so many bytes of payload.
fn reply(xid: u32, len: usize) -> Message {
    let mut encoder = Encoder::new();
    encoder.u32(xid);
    encoder.u32(REPLY);
    for _ in 0..len / 4 {
        encoder.u32(7);
    }
    encoder.finish()
}

fn delivered(responder: &mut Responder) -> Option<u64> {
    match responder.next_action()? {
        ResponderAction::Deliver { token, .. } => Some(token),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_wait_while_replies_that_nobody_takes_fill_the_share() {
    let (mut responder, account) = responder();
    let mut untaken = Vec::new();
    let mut xid = 0;
    // As many replies as there may be; the device lets go of none.
    loop {
        xid += 1;
        responder.received(call(xid, 0));
        let Some(token) = delivered(&mut responder) else {
            break;
        };
        assert!(xid < 10_000, "it goes on for ever");
        responder.reply(token, Some(reply(xid, 3000)));
        untaken.extend(responder.next_action());
    }
    assert!(responder.starved());
    assert!(
        account.over() > 0 && account.held() < 3 * MIB,
        "{}",
        account.held()
    );
    responder.retry();
    assert!(delivered(&mut responder).is_none(), "nothing has changed");
    drop(untaken);
    assert_eq!(account.held(), 0);
    responder.retry();
    assert!(delivered(&mut responder).is_some() && !responder.starved());
    assert_eq!(account.held(), PER_CALL);
}

#[test]
fn a_fetch_waits_for_its_share_and_short_calls_pass_it() {
    let (mut responder, account) = responder();
    responder.received(call(1, MIB as u32));
    let Some(ResponderAction::Read { id, sink, .. }) = responder.next_action() else {
        panic!("there is room for the first");
    };
    assert_eq!(account.held(), MIB);
    responder.received(call(2, 2 * MIB as u32));
    assert!(responder.next_action().is_none() && responder.starved());
    responder.received(call(3, 0));
    let short = delivered(&mut responder).expect("it needs no memory to be fetched");
    responder.reply(short, None);
    responder.read_done(id, sink);
    let first = delivered(&mut responder).expect("it was fetched");
    assert!(responder.next_action().is_none() && responder.starved());
    // The call's message was dropped above: what is left of it goes with its answer.
    responder.reply(first, None);
    assert!(matches!(
        responder.next_action(),
        Some(ResponderAction::Read { .. })
    ));
}

/// RFC 8166, section 4.5.3: what can never be conveyed is an error, and no wait.
#[test]
fn a_call_that_is_longer_than_any_share_is_refused() {
    let (mut responder, account) = responder();
    responder.received(call(1, 4 * MIB as u32));
    let Some(ResponderAction::Send { gather, .. }) = responder.next_action() else {
        panic!("it is answered");
    };
    let (header, _) = Header::decode(&gather.concat().into()).unwrap();
    assert!(matches!(header.body, Body::Error(_)), "{header:?}");
    assert_eq!((account.held(), responder.starved()), (0, false));
}

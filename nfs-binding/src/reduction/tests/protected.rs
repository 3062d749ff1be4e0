//! RPCSEC_GSS and other flavors of credentials.

use super::*;

/// Returns a READ of NFS version 3 with a credential of RPCSEC_GSS.
fn read(procedure: u32, service: u32, args: impl Fn(&mut Out)) -> Out {
    let mut out = Out::default();
    out.u32(7).u32(0).u32(2).u32(100_003).u32(4).u32(1);
    out.u32(6)
        .u32(24)
        .u32(1)
        .u32(procedure)
        .u32(77)
        .u32(service)
        .opaque(4);
    out.u32(6).opaque(28);
    args(&mut out);
    out
}

/// PUTFH, WRITE of 3000 bytes, and READ of 4096.
fn compound(out: &mut Out) {
    out.opaque(0).u32(0).u32(3).u32(22).opaque(9);
    out.u32(38).fixed(28).item(3000).u32(25).fixed(24).u32(4096);
}

/// The results without and with RPCSEC_GSS's verifier: status, tag and count; PUTFH, WRITE, READ.
const RESULTS: u32 = 12 + 8 + 24 + 16;
const VERIFIER: u32 = 400;

/// RFC 8166, section 8.2.2: authentication alone is no obstacle.
#[test]
fn authentication_by_rpcsec_gss_leaves_items_eligible() {
    let call = read(0, 1, compound);
    let mut reducer = reducer();
    let reduced = forward(&mut reducer, &call);
    assert_eq!(reduced.kind.whole, None);
    assert_reduced(&reduced.message, &call, MAX_ITEMS);
    assert_eq!(reduced.room, ReplyRoom::new(RESULTS + VERIFIER, [4096]));
    // The reply has a verifier, too.
    let mut reply = Out::default();
    reply.u32(7).u32(1).u32(0).u32(6).opaque(28).u32(0);
    reply.u32(0).opaque(0).u32(3).u32(22).u32(0);
    reply
        .u32(38)
        .u32(0)
        .fixed(16)
        .u32(25)
        .u32(0)
        .u32(1)
        .item(4000);
    let answer = reducer
        .reply(reduced.remembered, received(&reply, &[]))
        .unwrap();
    assert_reduced(&answer, &reply, MAX_ITEMS);
}

#[test]
fn with_integrity_nothing_is_reduced_and_the_room_follows_from_the_call() {
    let call = read(0, 2, |out| {
        let mut body = Out::default();
        body.u32(77);
        compound(&mut body);
        out.u32(body.bytes.len() as u32).append(&body).opaque(28);
    });
    for message in [received(&call, &[]), received(&call, &[200, 200])] {
        let mut reducer = reducer();
        let reduced = reducer.call(Direction::Forward, message);
        assert_eq!(reduced.kind.whole, Some(WholeReason::Protected));
        assert_eq!(reduced.message.gather(|_| true).concat(), call.bytes);
        assert!(reduced.message.items().is_empty());
        // Length and sequence number, and the checksum with its length.
        let wrapped = RESULTS + 4096 + 12 + 404;
        assert_eq!(reduced.room, ReplyRoom::new(wrapped + VERIFIER, []));
        assert_eq!(reduced.kind.to_string(), "NFSv4.0 PUTFH WRITE READ");
        let mut reply = Out::default();
        reply.u32(7).u32(1).u32(0).u32(6).opaque(28).u32(0);
        reply.opaque(4000).opaque(28);
        let answer = reducer
            .reply(reduced.remembered, received(&reply, &[]))
            .unwrap();
        assert_eq!(answer, received(&reply, &[]));
    }
}

#[test]
fn with_privacy_nothing_is_reduced_and_there_is_room_for_any_reply() {
    // Data, and the calls that make and destroy a context.
    for (procedure, service) in [(0, 3), (1, 1), (2, 1), (3, 1), (0, 9)] {
        let call = read(procedure, service, |out| {
            out.opaque(3000);
        });
        let reduced = forward(&mut reducer(), &call);
        assert_eq!(reduced.kind.whole, Some(WholeReason::Protected));
        assert_eq!(reduced.kind.to_string(), "NFSv4 COMPOUND (encrypted)");
        assert_eq!(reduced.message, received(&call, &[]));
        assert_eq!(reduced.room.payload, DEFAULT_MAX_REPLY);
    }
}

/// The probe of RPC-with-TLS is answered with a verifier.
#[test]
fn another_flavor_has_room_for_its_verifier() {
    let mut call = Out::default();
    call.u32(7).u32(0).u32(2).u32(100_003).u32(4).u32(0);
    call.u32(7).opaque(0).u32(0).u32(0);
    let reduced = forward(&mut reducer(), &call);
    assert_eq!(
        reduced.room,
        ReplyRoom {
            idempotent: true,
            ..ReplyRoom::new(VERIFIER, [])
        }
    );
}

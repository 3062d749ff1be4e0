//! Sessions, their limits, and callbacks.

use super::*;

const SESSION: [u8; 16] = [9; 16];
const PROGRAM: u32 = 0x4000_0007;
/// Limits of the fore channel and of the back channel: replies, and replies that are kept.
const FORE: (u32, u32) = (200_000, 3000);
const BACK: (u32, u32) = (4096, 100);

fn compound(minor: u32, count: u32) -> Out {
    let mut out = Out::default();
    call_header(&mut out, 100_003, 4, 1);
    out.opaque(0).u32(minor).u32(count);
    out
}

/// Makes a session by CREATE_SESSION and its reply.
fn create(reducer: &mut Reducer) {
    let mut call = compound(1, 1);
    call.u32(43).fixed(16);
    for _ in 0..2 {
        // What a client asks for is not what it gets.
        call.fixed(8).u32(1 << 30).u32(1 << 30).fixed(8).u32(0);
    }
    call.u32(PROGRAM).u32(1).u32(0);
    let reduced = forward(reducer, &call);
    assert_eq!(reduced.kind.to_string(), "NFSv4.1 CREATE_SESSION");
    let mut reply = Out::default();
    reply_header(&mut reply);
    reply.u32(0).opaque(0).u32(1).u32(43).u32(0);
    reply.bytes.extend(SESSION);
    reply.u64(0);
    for (longest, cached) in [FORE, BACK] {
        reply
            .fixed(8)
            .u32(longest)
            .u32(cached)
            .fixed(8)
            .u32(1)
            .u32(7);
    }
    let answer = reducer
        .reply(reduced.remembered, received(&reply, &[]))
        .unwrap();
    assert_eq!(answer, received(&reply, &[]));
}

/// Returns the room of a call in the session that asks for an access control list, or for a
/// directory of 100 KB.
fn room(reducer: &mut Reducer, cached: bool, unlimited: bool) -> u32 {
    let mut call = compound(1, 2);
    call.u32(53);
    call.bytes.extend(SESSION);
    call.fixed(12).u32(u32::from(cached));
    match unlimited {
        true => call.u32(9).u32(1).u32(1 << 12),
        false => call.u32(26).fixed(20).u32(100_000).u32(0),
    };
    forward(reducer, &call).room.payload
}

#[test]
fn rfc8267_s6_2_2_the_session_limits_replies_that_have_no_other_limit() {
    let mut reducer = reducer();
    assert_eq!(room(&mut reducer, false, true), DEFAULT_MAX_REPLY);
    create(&mut reducer);
    assert_eq!(room(&mut reducer, false, true), FORE.0);
    assert_eq!(room(&mut reducer, true, true), FORE.1);
    // What follows from the call, as far as the session allows it.
    let directory = room(&mut reducer, false, false);
    assert!(directory > 100_000 && directory < 100_200);
    assert_eq!(room(&mut reducer, true, false), FORE.1);
    let mut destroy = compound(1, 1);
    destroy.u32(44);
    destroy.bytes.extend(SESSION);
    forward(&mut reducer, &destroy);
    assert_eq!(room(&mut reducer, false, true), DEFAULT_MAX_REPLY);
}

#[test]
fn rfc8267_s6_2_1_without_a_session_the_relay_has_room_for_any_reply() {
    let mut call = compound(0, 1);
    call.u32(9).u32(1).u32(1 << 24);
    assert_eq!(
        forward(&mut reducer(), &call).room.payload,
        DEFAULT_MAX_REPLY
    );
}

/// A READ that asks for more than a reply can have gets no chunk for more.
#[test]
fn the_session_limits_items() {
    let mut reducer = reducer();
    create(&mut reducer);
    let mut call = compound(1, 2);
    call.u32(53);
    call.bytes.extend(SESSION);
    call.fixed(12).u32(0).u32(25).fixed(24).u32(1 << 30);
    assert_eq!(forward(&mut reducer, &call).room.items[..], [FORE.0]);
}

/// Returns a CB_COMPOUND of CB_SEQUENCE and CB_RECALL, or CB_GETATTR of the access control list.
fn callback(program: u32, recall: bool) -> Out {
    let mut out = Out::default();
    call_header(&mut out, program, 1, 1);
    out.opaque(0).u32(1).u32(0).u32(2).u32(11);
    out.bytes.extend(SESSION);
    out.fixed(12).u32(0);
    // A list of referring calls.
    out.u32(1).fixed(16).u32(2).fixed(16);
    match recall {
        true => out.u32(4).fixed(16).u32(0).opaque(32),
        false => out.u32(3).opaque(32).u32(1).u32(1 << 12),
    };
    out
}

#[test]
fn rfc8267_s6_5_2_callbacks_are_bounded_and_have_no_eligible_items() {
    let mut reducer = reducer();
    let call = |reducer: &mut Reducer, program, recall| {
        let out = callback(program, recall);
        let reduced = reducer.call(Direction::Backward, received(&out, &[]));
        assert_eq!(reduced.message, received(&out, &[]));
        assert!(reduced.room.items.is_empty());
        reduced
    };
    // The number of the program is the client's choice.
    let unknown = call(&mut reducer, PROGRAM, true);
    assert_eq!(unknown.kind.whole, Some(WholeReason::NoBinding));
    assert_eq!(unknown.room.payload, DEFAULT_MAX_REPLY);
    create(&mut reducer);
    let known = call(&mut reducer, PROGRAM, true);
    assert_eq!(known.kind.whole, None);
    assert_eq!(known.kind.to_string(), "NFSv4.1 CB_SEQUENCE CB_RECALL");
    assert_eq!(known.room, ReplyRoom::new(12 + 40 + 8, []));
    assert_eq!(call(&mut reducer, PROGRAM, false).room.payload, BACK.0);
    // A client may change it.
    let mut control = compound(1, 1);
    control.u32(40).u32(PROGRAM + 1).u32(0);
    forward(&mut reducer, &control);
    assert_eq!(call(&mut reducer, PROGRAM + 1, true).kind.whole, None);
    // The same number from the client's side is another program.
    let forwards = forward(&mut reducer, &callback(PROGRAM, true));
    assert_eq!(forwards.kind.whole, Some(WholeReason::NoBinding));
}

/// All operations of CB_COMPOUND.
#[test]
fn every_callback_operation_is_known() {
    let mut reducer = reducer();
    create(&mut reducer);
    for number in 3..16 {
        let mut out = Out::default();
        call_header(&mut out, PROGRAM, 1, 1);
        out.opaque(3).u32(2).u32(0).u32(2).u32(number);
        match number {
            3 => out.opaque(9).u32(1).u32(1 << 3),
            4 => out.fixed(16).u32(0).opaque(9),
            5 => out.fixed(12).u32(1).opaque(9).fixed(16).fixed(16),
            6 => out
                .fixed(16)
                .opaque(9)
                .u32(2)
                .u32(1)
                .u32(1)
                .opaque(9)
                .u32(0)
                .opaque(0),
            7 => out
                .opaque(9)
                .u32(2)
                .fixed(16)
                .u32(0)
                .u32(2)
                .u64(1)
                .fixed(12)
                .opaque(9),
            8 | 9 => out.u32(1).u32(1).u32(1),
            10 => out.u32(1),
            11 => out.fixed(32).u32(1).fixed(16).u32(1).fixed(8),
            12 => out.fixed(8),
            13 => out.opaque(9).u64(0).opaque(9),
            14 => out.u32(1).u32(1).u32(1).opaque(9),
            _ => out.opaque(9).fixed(16).u32(0).u32(1).fixed(16).fixed(20),
        };
        // Another one behind it shows that all of it was passed.
        out.u32(4).fixed(16).u32(0).opaque(9);
        let reduced = reducer.call(Direction::Backward, received(&out, &[]));
        assert_eq!(reduced.kind.whole, None, "{number}");
        assert!(reduced.kind.to_string().ends_with(" CB_RECALL"));
        assert!(reduced.room.payload < 100);
    }
}

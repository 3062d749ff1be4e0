//! COMPOUNDs of all operations and minor versions.

use super::*;

/// Checks that the reply fits the room that was offered for it.
fn assert_fits(room: &ReplyRoom, reply: &Message, what: &dyn std::fmt::Debug) {
    // Items beyond those offered stay in the payload.
    let offered = room.items.len();
    let inline = reply.items().iter().skip(offered);
    let inline: u64 = inline
        .map(|item| onc_rpc::padded(item.data.len() as u64))
        .sum();
    let payload = reply.payload_len() + inline - 24;
    assert!(
        payload <= u64::from(room.payload),
        "{payload} bytes in {room:?}: {what:?}"
    );
    for (item, &most) in reply.items().iter().zip(&room.items) {
        assert!(
            item.data.len() as u64 <= u64::from(most),
            "{room:?}: {what:?}"
        );
    }
}

#[test]
fn any_compound_and_its_reply_are_reduced_to_the_same_streams_within_the_room() {
    fn property(exchange: Exchange, cuts: Vec<u8>, apart: u16, few: bool) -> bool {
        let options = ReducerOptions {
            max_items: if few { 1 } else { MAX_ITEMS },
            ..ReducerOptions::default()
        };
        let Exchange { call, reply } = &exchange;
        let mut reducer = Reducer::new(options);
        let reduced = reducer.call(Direction::Forward, received(call, &cuts));
        assert_eq!(reduced.kind.whole, None);
        assert_reduced(&reduced.message, call, options.max_items);
        // The same call as a responder received it by RDMA.
        let again = reducer.call(Direction::Forward, with_items(call, apart, at));
        assert_eq!(again.message.gather(|_| true).concat(), call.bytes);
        assert_eq!(again.message.items(), reduced.message.items());
        assert_eq!(
            (&again.room, &again.remembered),
            (&reduced.room, &reduced.remembered)
        );

        let answer = reducer
            .reply(reduced.remembered, received(reply, &cuts))
            .unwrap();
        assert_reduced(&answer, reply, MAX_ITEMS);
        assert_fits(&reduced.room, &answer, &reduced.kind);
        // The same reply with the items in write chunks, without positions or with.
        let chunks = reply.items.iter().filter(|item| !item.is_empty()).count();
        if chunks <= MAX_ITEMS {
            for place in [|_| Position::InOrder, at as fn(usize) -> Position] {
                let placed = with_items(reply, u16::MAX, place);
                let back = reducer.reply(reduced.remembered, placed).unwrap();
                assert_reduced(&back, reply, MAX_ITEMS);
            }
        }
        true
    }
    QuickCheck::new()
        .rng(Gen::new(20))
        .tests(3000)
        .quickcheck(property as fn(Exchange, Vec<u8>, u16, bool) -> bool);
}

/// Every operation once by itself, so that none is missing in the tables.
#[test]
fn every_operation_is_known() {
    let mut g = Gen::new(20);
    for number in generator::OPERATIONS {
        for _ in 0..20 {
            let exchange = Exchange::of(&mut g, 2, &[53, number, 25], 3);
            let mut reducer = reducer();
            let reduced = forward(&mut reducer, &exchange.call);
            assert_eq!(reduced.kind.whole, None, "{number}");
            assert_eq!(reduced.kind.operations[..], [53, number as u8, 25]);
            assert_reduced(&reduced.message, &exchange.call, MAX_ITEMS);
            let reply = received(&exchange.reply, &[]);
            let reply = reducer.reply(reduced.remembered, reply).unwrap();
            assert_reduced(&reply, &exchange.reply, MAX_ITEMS);
            assert_fits(&reduced.room, &reply, &reduced.kind);
        }
    }
}

#[test]
fn a_message_that_ends_anywhere_is_carried_whole() {
    fn property(exchange: Exchange, cuts: Vec<u8>) -> bool {
        let Exchange { call, reply } = exchange;
        let remembered = forward(&mut reducer(), &call).remembered;
        for len in 0..call.bytes.len() {
            let out = Out {
                bytes: call.bytes[..len].to_vec(),
                items: Vec::new(),
            };
            let mut reducer = reducer();
            let reduced = reducer.call(Direction::Forward, received(&out, &cuts));
            assert_eq!(reduced.kind.whole, Some(WholeReason::Malformed));
            assert_eq!(reduced.message.gather(|_| true).concat(), out.bytes);
            assert_eq!(reduced.room, ReplyRoom::new(DEFAULT_MAX_REPLY, []));
        }
        for len in 0..reply.bytes.len() {
            let bytes = reply.bytes[..len].to_vec();
            let out = Out {
                bytes,
                items: Vec::new(),
            };
            let answer = reducer().reply(remembered, received(&out, &cuts)).unwrap();
            assert_eq!(answer.gather(|_| true).concat(), out.bytes);
        }
        true
    }
    QuickCheck::new()
        .rng(Gen::new(6))
        .tests(30)
        .quickcheck(property as fn(Exchange, Vec<u8>) -> bool);
}

/// Any octets in place of those of a COMPOUND: never a panic, and never another stream.
#[test]
fn any_octets_are_carried() {
    fn property(exchange: Exchange, changes: Vec<(u16, u8)>, apart: u16) -> bool {
        let Exchange {
            mut call,
            mut reply,
        } = exchange;
        let remembered = forward(&mut reducer(), &call).remembered;
        for out in [&mut call, &mut reply] {
            for &(at, value) in &changes {
                let at = usize::from(at) % out.bytes.len();
                out.bytes[at] = value;
            }
        }
        let mut reducer = reducer();
        let reduced = reducer.call(Direction::Forward, with_items(&call, apart, at));
        assert_eq!(
            reduced.message.gather(|_| true).concat(),
            with_items(&call, apart, at).gather(|_| true).concat()
        );
        for message in [received(&reply, &[]), with_items(&reply, apart, at)] {
            let whole = message.gather(|_| true).concat();
            let answer = reducer.reply(remembered, message).unwrap();
            assert_eq!(answer.gather(|_| true).concat(), whole);
        }
        let _ = reducer.reply(remembered, with_items(&reply, apart, |_| Position::InOrder));
        true
    }
    QuickCheck::new()
        .rng(Gen::new(20))
        .tests(2000)
        .quickcheck(property as fn(Exchange, Vec<(u16, u8)>, u16) -> bool);
}

/// An independent check of single figures, as Linux's client asks.
#[test]
fn rooms_are_as_short_as_the_arguments_allow() {
    let room = |operations: &dyn Fn(&mut Out) -> u32| {
        let mut body = Out::default();
        let count = operations(&mut body);
        let mut call = Out::default();
        call_header(&mut call, 100_003, 4, 1);
        call.opaque(0).u32(1).u32(count).append(&body);
        forward(&mut reducer(), &call).room
    };
    let sequence = |out: &mut Out| {
        out.u32(53).fixed(28).u32(0);
    };
    // The compound, SEQUENCE, PUTFH, and READ of a page: 12, 44, 8, and 16 without the data.
    let read = room(&|out| {
        sequence(out);
        out.u32(22).opaque(28).u32(25).fixed(24).u32(4096);
        3
    });
    assert_eq!(read, ReplyRoom::new(12 + 44 + 8 + 16, [4096]));
    // WRITE, and GETATTR of change, size, and the times of metadata and data.
    let write = room(&|out| {
        sequence(out);
        out.u32(22).opaque(28).u32(38).fixed(28).item(8192);
        out.u32(9)
            .u32(2)
            .u32(1 << 3 | 1 << 4)
            .u32(1 << 20 | 1 << 21);
        4
    });
    let attributes = 4 + 4 * 3 + 4 + 8 + 8 + 12 + 12;
    assert_eq!(write, ReplyRoom::new(12 + 44 + 8 + 24 + 8 + attributes, []));
    // ACLs have no limit.
    let acl = room(&|out| {
        out.u32(9).u32(1).u32(1 << 12);
        1
    });
    assert_eq!(acl.payload, DEFAULT_MAX_REPLY);
    // Nor has an attribute that nobody knows.
    for words in [[0, 0, 1 << 31, 0], [0, 0, 0, 1]] {
        let unknown = room(&|out| {
            out.u32(9).u32(4);
            for word in words {
                out.u32(word);
            }
            1
        });
        assert_eq!(unknown.payload, DEFAULT_MAX_REPLY);
    }
}

#[test]
fn calls_that_change_nothing_or_whose_replies_are_kept_may_be_made_again() {
    let idempotent = |minor, operations: &[(u32, bool)]| {
        let mut call = Out::default();
        call_header(&mut call, 100_003, 4, 1);
        call.opaque(0).u32(minor).u32(operations.len() as u32);
        for &(number, cached) in operations {
            call.u32(number);
            match number {
                53 => call.fixed(28).u32(u32::from(cached)),
                22 | 28 => call.opaque(9),
                _ => &mut call,
            };
        }
        forward(&mut reducer(), &call).room.idempotent
    };
    assert!(idempotent(0, &[(22, false), (27, false)]));
    assert!(!idempotent(0, &[(22, false), (28, false)]));
    assert!(idempotent(1, &[(53, true), (22, false), (28, false)]));
    // NFS4ERR_RETRY_UNCACHED_REP would be the answer.
    assert!(!idempotent(1, &[(53, false), (22, false), (27, false)]));
}

#[test]
fn rfc8267_s6_4_1_the_nth_read_operation_uses_the_nth_write_chunk() {
    let mut g = Gen::new(20);
    let numbers = [22, 25, 22, 27, 38, 22, 25];
    for _ in 0..100 {
        let Exchange { call, reply } = Exchange::of(&mut g, 0, &numbers, 7);
        let mut reducer = reducer();
        let reduced = forward(&mut reducer, &call);
        // READ, READLINK and READ have a chunk each, none shorter than those behind it.
        assert_eq!(reduced.room.items.len(), 3);
        assert!(reduced.room.items.is_sorted_by(|a, b| a >= b));
        // WRITE's data does not count.
        assert_eq!(
            reduced.message.items().len(),
            usize::from(!call.items[0].is_empty())
        );
        let placed = with_items(&reply, u16::MAX, |_| Position::InOrder);
        let back = reducer.reply(reduced.remembered, placed).unwrap();
        assert_reduced(&back, &reply, MAX_ITEMS);
    }
}

/// A READ that fails ends the COMPOUND. Its chunk and those behind it come back unused.
#[test]
fn rfc8267_s6_4_1_chunks_of_operations_that_failed_are_empty() {
    let mut g = Gen::new(20);
    let Exchange { call, reply } = Exchange::of(&mut g, 0, &[22, 25, 22, 25, 25], 3);
    let mut reducer = reducer();
    let remembered = forward(&mut reducer, &call).remembered;
    let placed = with_items(&reply, u16::MAX, |_| Position::InOrder);
    let unused = || BulkItem {
        position: Position::InOrder,
        data: Bytes::new().into(),
    };
    let items = placed.items().iter().cloned().chain([unused(), unused()]);
    let placed = Message::new(placed.payload().clone(), items);
    let back = reducer.reply(remembered, placed).unwrap();
    assert_reduced(&back, &reply, MAX_ITEMS);
}

/// Without an agreement about more, one read chunk and one write chunk are enough for any server.
#[test]
fn rfc8267_s6_4_2_a_relay_can_keep_to_one_chunk_in_each_list() {
    let mut g = Gen::new(20);
    let options = ReducerOptions {
        max_items: 1,
        ..ReducerOptions::default()
    };
    let mut reducer = Reducer::new(options);
    let Exchange { call, reply } = Exchange::of(&mut g, 0, &[38, 38, 27, 27], 4);
    let reduced = forward(&mut reducer, &call);
    assert_reduced(&reduced.message, &call, 1);
    assert_eq!(reduced.room.items[..], [4095]);
    assert!(
        reduced.room.payload > 4095,
        "the second link text is inline"
    );
    let answer = reducer
        .reply(reduced.remembered, received(&reply, &[]))
        .unwrap();
    // The other side may have offered more.
    assert_reduced(&answer, &reply, MAX_ITEMS);
}

#[test]
fn rfc8267_s6_1_only_data_and_link_texts_are_eligible() {
    let mut g = Gen::new(20);
    for number in generator::OPERATIONS {
        let (mut args, mut results) = (0, 0);
        for _ in 0..50 {
            let Exchange { call, reply } = Exchange::of(&mut g, 2, &[number], 1);
            let mut reducer = reducer();
            let reduced = forward(&mut reducer, &call);
            args = args.max(reduced.message.items().len());
            let answer = reducer
                .reply(reduced.remembered, received(&reply, &[]))
                .unwrap();
            results = results.max(answer.items().len());
            assert_eq!(
                reduced.room.items.len(),
                usize::from([25, 27].contains(&number))
            );
        }
        // CREATE and WRITE; READ and READLINK.
        assert_eq!(args, usize::from([6, 38].contains(&number)), "{number}");
        assert_eq!(results, usize::from([25, 27].contains(&number)), "{number}");
    }
}

#[test]
fn rfc8267_s6_1_nothing_of_read_plus_is_eligible() {
    let mut g = Gen::new(20);
    let Exchange { call, reply } = Exchange::of(&mut g, 2, &[22, 68, 22, 25], 4);
    let mut reducer = reducer();
    let reduced = forward(&mut reducer, &call);
    assert_eq!(reduced.room.items.len(), 1, "READ alone");
    let answer = reducer
        .reply(reduced.remembered, received(&reply, &[]))
        .unwrap();
    assert_reduced(&answer, &reply, MAX_ITEMS);
}

/// An item that is reduced though it is not eligible is put back, and the kind says that it was there.
#[test]
fn an_item_at_a_wrong_place_is_put_back_and_named() {
    let mut call = Out::default();
    call_header(&mut call, 100_003, 4, 1);
    call.opaque(0).u32(0).u32(2).u32(22).item(32);
    call.u32(38).fixed(28).item(100);
    let reduced = reducer().call(Direction::Forward, with_items(&call, 3, at));
    assert_eq!(reduced.kind.whole, Some(WholeReason::Misplaced));
    assert_eq!(reduced.message.gather(|_| true).concat(), call.bytes);
    assert!(reduced.message.items().is_empty());
    // One that is within a value that is passed over, here a stateid.
    let mut call = Out::default();
    call_header(&mut call, 100_003, 4, 1);
    call.opaque(0)
        .u32(0)
        .u32(2)
        .u32(25)
        .fixed(16)
        .u64(0)
        .u32(100);
    let stateid = call.bytes.len() - 28;
    call.u32(34).fixed(16).opaque(0).opaque(8);
    call.items = std::iter::once(stateid + 4..stateid + 12).collect();
    let reduced = reducer().call(Direction::Forward, with_items(&call, 1, at));
    assert_ne!(reduced.kind.whole, None);
    assert_eq!(reduced.message.gather(|_| true).concat(), call.bytes);
}

/// A reply whose data was placed cannot be put together where the place of the data is not found.
#[test]
fn a_placed_item_without_a_place_is_an_error() {
    let mut g = Gen::new(20);
    let Exchange { call, .. } = Exchange::of(&mut g, 0, &[22, 25], 2);
    let mut reducer = reducer();
    let remembered = forward(&mut reducer, &call).remembered;
    let item = |data: &'static [u8]| BulkItem {
        position: Position::InOrder,
        data: data.into(),
    };
    let mut reply = Out::default();
    reply_header(&mut reply);
    reply.u32(10_013).opaque(0).u32(1).u32(22).u32(10_013);
    let with = |item| Message::new(received(&reply, &[]).into_payload(), [item]);
    assert!(reducer.reply(remembered, with(item(b"data"))).is_err());
    let back = reducer.reply(remembered, with(item(b""))).unwrap();
    assert_eq!(back, received(&reply, &[]));
}

#[test]
fn rfc8267_s7_an_operation_that_is_not_known_leaves_the_call_whole() {
    let mut call = Out::default();
    call_header(&mut call, 100_003, 4, 1);
    call.opaque(0)
        .u32(2)
        .u32(3)
        .u32(38)
        .fixed(28)
        .item(100)
        .u32(76)
        .u32(1);
    for message in [received(&call, &[]), with_items(&call, 1, at)] {
        let mut reducer = reducer();
        let reduced = reducer.call(Direction::Forward, message);
        assert_eq!(reduced.kind.whole, Some(WholeReason::UnknownOperation(76)));
        assert_eq!(reduced.kind.to_string(), "NFSv4.2 WRITE");
        assert_eq!(reduced.message.gather(|_| true).concat(), call.bytes);
        assert!(reduced.message.items().is_empty());
        assert_eq!(reduced.room, ReplyRoom::new(DEFAULT_MAX_REPLY, []));
        // Its reply is not read.
        let mut reply = Out::default();
        reply_header(&mut reply);
        reply.u32(0).opaque(0).u32(1).u32(25).u32(0).u32(1).item(40);
        let answer = reducer
            .reply(reduced.remembered, received(&reply, &[]))
            .unwrap();
        assert!(answer.items().is_empty());
    }
}

//! Tests of cases that are made of recorded exchanges.

use std::time::{Duration, Instant};

use quickcheck::quickcheck;

use super::*;
use crate::wire::{rpc, v1};

fn ground() -> Ground {
    Ground::without_files(7)
}

fn recorded(packet: u64, from_client: bool, octets: Vec<u8>) -> Recorded {
    Recorded {
        packet,
        connection: 0,
        dialect: Dialect::Wg,
        from_client,
        octets,
    }
}

#[test]
fn a_recorded_exchange_is_written_as_a_case_that_can_be_read() {
    let mut recording = Recording::new(Vocabularies::new(&[]));
    let call = |xid| {
        let call = rpc::nfs(xid, 6, rpc::read_args(&[9; 32], 0, 4096));
        let header = v1::Header {
            writes: vec![vec![v1::segment(0x77, 4096, 0)]],
            ..v1::header(xid)
        };
        wg::call_with(&header, 0x77, &call.bytes())
    };
    let reply = |xid| wg::reply(xid, &rpc::accepted(xid, 0, &[0; 8]));
    for (packet, xid) in [(1, 0x1000), (3, 0x1001)] {
        recording.take(recorded(packet, true, call(xid))).unwrap();
        recording
            .take(recorded(packet + 1, false, reply(xid)))
            .unwrap();
    }
    // Neither a call without a reply nor one with RPCSEC_GSS is a case.
    recording.take(recorded(5, true, call(0x1002))).unwrap();
    let secured = rpc::Call {
        credential: (6, vec![0; 4]),
        ..rpc::null(9)
    };
    recording
        .take(recorded(6, true, wg::call(9, &secured.bytes())))
        .unwrap();
    recording.take(recorded(7, false, reply(9))).unwrap();
    let written = recording.written("captured-x", "x.pcap").unwrap();
    let left = Left {
        alike: 1,
        beyond: 0,
        others: 3,
    };
    assert_eq!((written.cases, written.left), (1, left));
    let text = written.text;
    let expected = "\
case captured-x/0/1 robustness
speaks rpcrdma2-07
sends NFS 3 READ, as in packet 1
expects RDMA2_REPLY_INLINE, as in packet 2

room m1 4096 octets
    --- RDMA2_CALL_INLINE ------------------->
          rdma_provisional_writes[0].rdma_target[0] = memory m1
          rdma_inv_handle = handle m1
          rpc = call NFS 3 READ {file} x00000000 x00000000 x00001000
    <-- RDMA2_REPLY_INLINE -------------------
          rpc = reply SUCCESS 0 ...
";
    let (_, case) = text.split_once("\n\n").unwrap();
    assert_eq!(case, expected);
    let cases = parse("x.case", &text, &Vocabularies::new(&[]), &ground()).unwrap();
    assert_eq!(cases.len(), 1);
}

/// Returns whether a file that was made of a recording is read, with all of its cases.
fn is_read_again(written: &Written) -> bool {
    let read = parse("x.case", &written.text, &Vocabularies::new(&[]), &ground());
    match written.cases {
        0 => read.is_err(),
        cases => read.is_ok_and(|it| it.len() == cases),
    }
}

/// Returns a NULL call and its reply.
fn null(packet: u64, xid: u32, header: v1::Header) -> [Recorded; 2] {
    let call = wg::call_with(&header, 0, &rpc::null(xid).bytes());
    let reply = wg::reply(xid, &rpc::accepted(xid, 0, &[]));
    [
        recorded(packet, true, call),
        recorded(packet + 1, false, reply),
    ]
}

fn recording(messages: impl IntoIterator<Item = Recorded>) -> Recording {
    let mut recording = Recording::new(Vocabularies::new(&[]));
    for message in messages {
        recording.take(message).unwrap();
    }
    recording
}

#[test]
fn an_exchange_that_the_language_cannot_express_is_left_out() {
    let reads = |count, length| v1::Header {
        reads: vec![(0, v1::segment(0x51, length, 0)); count],
        ..v1::header(7)
    };
    for (header, cases) in [
        (reads(1, 4096), 1),
        // More elements than can be named.
        (reads(5000, 4), 0),
        // More memory than a case may offer.
        (reads(1, u32::MAX), 0),
    ] {
        let written = recording(null(1, 7, header)).written("x", "x").unwrap();
        let left = 2 * (1 - cases as u64);
        assert_eq!((written.cases, written.left.others), (cases, left));
        assert!(is_read_again(&written), "{}", written.text);
    }
    // A name that contains that of a document is none of its.
    let written = recording(null(1, 7, reads(0, 0)));
    let written = written.written("captured-version-two-07", "x").unwrap();
    assert_eq!(written.cases, 1);
    assert!(is_read_again(&written), "{}", written.text);
}

#[test]
fn what_is_written_is_no_longer_than_a_file_may_be() {
    let of_length = |procedure| {
        let call = rpc::nfs(procedure, procedure, vec![0; 32 << 10]);
        let call = wg::call(procedure, &call.bytes());
        let reply = wg::reply(procedure, &rpc::accepted(procedure, 0, &[]));
        [recorded(1, true, call), recorded(2, false, reply)]
    };
    let all = recording((1..9).flat_map(of_length));
    let written = all.written("x", "x").unwrap();
    assert!(written.text.len() <= 256 << 10);
    // Each word takes ten characters, and each of the eight calls has 8192.
    assert_eq!((written.cases, written.left.others), (3, 10));
    assert!(is_read_again(&written));
}

#[test]
fn exchanges_beyond_the_most_cases_are_counted_apart_from_those_like_one() {
    let of_procedure = |procedure| {
        let call = wg::call(
            procedure,
            &rpc::nfs(procedure, procedure, vec![0; 4]).bytes(),
        );
        let reply = wg::reply(procedure, &rpc::accepted(procedure, 0, &[]));
        [recorded(1, true, call), recorded(2, false, reply)]
    };
    // Three of the last five are of kinds that are cases.
    let procedures = (100..164).chain([164, 100, 165, 163, 100]);
    let written = recording(procedures.flat_map(of_procedure));
    let written = written.written("x", "x").unwrap();
    let left = Left {
        alike: 3,
        beyond: 2,
        others: 0,
    };
    assert_eq!((written.cases, written.left), (MOST_CASES, left));
}

#[test]
fn recorded_messages_that_are_kept_have_a_limit() {
    let call = |xid| recorded(1, true, wg::call(xid, &vec![0; 1 << 20]));
    let mut recording = recording((1..33).map(call));
    // Of 32 calls in progress, each a little longer than a MiB, fifteen are kept.
    let left = recording.written("x", "x").unwrap().left;
    assert_eq!((left.others, recording.kept()), (32, 15));
    // Those that end make room for others.
    for xid in 1..16 {
        let reply = wg::reply(xid, &[0; 8]);
        recording.take(recorded(2, false, reply)).unwrap();
    }
    assert_eq!(recording.kept(), 0);
    recording.take(call(99)).unwrap();
    assert_eq!(recording.kept(), 1);
}

/// Each field was once looked for among all others: 4,000 segments took 1.5 s, and twice as many four times as long.
#[test]
fn a_long_list_takes_a_time_that_is_proportional_to_it() {
    let header = v1::Header {
        reads: vec![(0, v1::segment(0x51, 4, 0)); 20_000],
        ..v1::header(7)
    };
    let started = Instant::now();
    let written = recording(null(1, 7, header)).written("x", "x").unwrap();
    // The text is longer than a file may be.
    assert_eq!(written.left.others, 2);
    assert!(started.elapsed() < Duration::from_secs(15));
}

quickcheck! {
    /// Nothing that is in a capture makes a recording panic, and what is made of it is read.
    fn any_message_is_recorded(xid: u32, number: u8, octets: Vec<u8>, payload: bool) -> bool {
        let octets = match payload {
            true => [&octets[..], &rpc::null(xid).bytes()].concat(),
            false => octets,
        };
        let message = wg::message(xid, (number % 16).into(), &[], &octets);
        let both = [true, false].map(|from_client| recorded(1, from_client, message.clone()));
        is_read_again(&recording(both).written("x", "x").unwrap())
    }
}

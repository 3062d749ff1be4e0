//! Tests against servers whose replies violate the protocol.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{BulkItem, Cursor, Encoder, Message, Position};
use rpc_transport::{Call, Reply};

use super::super::{Limits, Nfs3};
use super::*;
use crate::proto::{
    Attributes, Data, EntryPlus, FileHandle, Name, Procedure, ReadOk, ReadResult, ReaddirplusOk,
    ReaddirplusResult, WccData, WriteOk, WriteResult, Xdr,
};

/// A server that answers every call with the same results.
struct Always(Message);

impl RpcClient for Always {
    async fn call(&self, _: Call) -> Result<Reply, CallError> {
        Ok(Reply::new(
            self.0.clone(),
            Cursor::default(),
            Duration::ZERO,
        ))
    }

    async fn sleep(&self, _: Duration) {}
}

fn always(results: &impl Xdr) -> Mount<Always> {
    let mut out = Encoder::new();
    results.encode(&mut out);
    mount(out.finish())
}

fn mount(results: Message) -> Mount<Always> {
    Mount {
        nfs: Nfs3::new(Always(results)),
        root: FileHandle::new(b"root").unwrap(),
        export: b"/".to_vec(),
        limits: Limits {
            rsize: 4096,
            wsize: 4096,
            write_multiple: 4096,
            list: 4096,
            max_file_size: u64::MAX,
        },
        readdirplus: Cell::new(true),
        read_only: false,
    }
}

fn listing(names: &[&'static [u8]], eof: bool) -> ReaddirplusResult {
    let entry = |(at, name): (usize, &&'static [u8])| EntryPlus {
        fileid: 1,
        name: Name::from(*name),
        cookie: at as u64 + 1,
        attributes: Some(Attributes::default()),
        handle: None,
    };
    Ok(ReaddirplusOk {
        dir_attributes: None,
        verifier: [0; 8],
        entries: names.iter().enumerate().map(entry).collect(),
        eof,
    })
}

#[track_caller]
fn nonsense<T: std::fmt::Debug>(outcome: Result<T, NfsError>) {
    assert!(
        matches!(outcome, Err(NfsError::Nonsense { .. })),
        "{outcome:?}"
    );
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let list = |names: &[&'static [u8]], eof| {
        let mount = always(&listing(names, eof));
        run(mount.list_all(mount.root, AT))
    };
    assert_eq!(list(&[b".", b"..", b"good"], true).unwrap().len(), 1);
    for name in [&b"../etc"[..], b"/etc", b"a/b", b"", b"a\0b"] {
        nonsense(list(&[b"good", name], true));
    }
}

#[test]
fn listings_without_end_are_refused() {
    let mount = always(&listing(&[b"same"], false));
    nonsense(run(mount.list_all(mount.root, AT)));
    let mount = always(&listing(&[], false));
    nonsense(run(mount.list_all(mount.root, AT)));
}

/// RFC 8166, section 6.1: a reply in which an item is reduced that is not DDP-eligible fails its
/// call permanently.
#[test]
fn s6_1_a_reply_with_a_reduced_item_that_is_not_eligible_fails_its_call() {
    let mut out = Encoder::new();
    listing(&[b"a name"], true).encode(&mut out);
    let payload = Bytes::from(out.finish().payload().concat());
    let at = payload.windows(6).position(|bytes| bytes == b"a name");
    let at = at.expect("it has the name");
    let without: Bytes = [&payload[..at], &payload[at + 8..]].concat().into();
    let list = |payload: &Bytes, position: Option<Position>| {
        let item = |position| BulkItem {
            position,
            data: Bytes::from_static(b"a name").into(),
        };
        let message = Message::new([payload.clone()].into_iter().collect(), position.map(item));
        let mount = mount(message);
        run(mount.list_all(mount.root, AT))
    };
    assert_eq!(list(&payload, None).unwrap().len(), 1);
    // The payload has the name removed, or is complete and has an additional item; the item is in a
    // write chunk or at a position.
    for payload in [&without, &payload] {
        for position in [Position::InOrder, Position::At(at as u32)] {
            let outcome = list(payload, Some(position));
            let is_protocol = matches!(&outcome, Err(NfsError::Call { source, .. })
                if matches!(source, CallError::Protocol(_)));
            assert!(is_protocol, "{position:?}: {outcome:?}");
        }
    }
}

/// RFC 8166, section 6.1: data in the payload although the call provided a write chunk for it,
/// which is unused, fails the call permanently. Without an unused chunk, data in the payload is
/// correct.
#[test]
fn s6_1_a_reply_with_data_beside_the_unused_chunk_for_it_fails_its_call() {
    let result: ReadResult = Ok(ReadOk {
        attributes: None,
        count: 4,
        eof: true,
        data: Data(b"four"[..].into()),
    });
    let mut out = Encoder::new();
    result.encode(&mut out);
    let inline = Bytes::from(out.finish().gather(|_| true).concat());
    let read = |chunks: &[&'static [u8]]| {
        let item = |data: &&'static [u8]| BulkItem {
            position: Position::InOrder,
            data: Bytes::from_static(data).into(),
        };
        let message = Message::new(
            [inline.clone()].into_iter().collect(),
            chunks.iter().map(item),
        );
        let mount = mount(message);
        run(mount.read(mount.root, 0, 4, AT))
    };
    assert!(read(&[]).is_ok());
    let outcome = read(&[b""]);
    let is_protocol = matches!(&outcome, Err(NfsError::Call { source, .. })
        if matches!(source, CallError::Protocol(_)));
    assert!(is_protocol, "{outcome:?}");
}

#[test]
fn reads_of_more_or_nothing_are_refused() {
    let read = |count: u32, data: &'static [u8], eof| {
        let result: ReadResult = Ok(ReadOk {
            attributes: None,
            count,
            eof,
            data: Data(data.into()),
        });
        let mount = always(&result);
        run(mount.read(mount.root, 0, 4, AT))
    };
    assert!(read(4, b"four", false).is_ok());
    nonsense(read(5, b"fives", false));
    nonsense(read(3, b"four", false));
    nonsense(read(0, b"", false));
}

#[test]
fn writes_of_more_or_nothing_or_less_stable_are_refused() {
    let write = |count, committed| {
        let result: WriteResult = Ok(WriteOk {
            wcc: WccData::default(),
            count,
            committed,
            verifier: [0; 8],
        });
        let mount = always(&result);
        let data = Bytes::from_static(b"four");
        run(mount.write(mount.root, 0, data, Stable::DataSync, AT))
    };
    assert!(write(3, Stable::FileSync).is_ok());
    nonsense(write(5, Stable::FileSync));
    nonsense(write(0, Stable::FileSync));
    nonsense(write(4, Stable::Unstable));
}

#[test]
fn results_that_cannot_be_decoded_are_protocol_errors() {
    for bytes in [&b""[..], &[0, 0, 0, 0], &[0; 1000]] {
        let mount = mount(Message::from_payload(Bytes::copy_from_slice(bytes)));
        let error = run(mount.getattr(mount.root, AT)).unwrap_err();
        let NfsError::Call {
            source: CallError::Protocol(text),
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(
            text.starts_with(&format!("results of {}: ", nfs::Getattr::NAME)),
            "{text}"
        );
    }
}

#[test]
fn what_a_listing_keeps_is_bounded() {
    let mount = always(&listing(&[b"a"], true));
    let mut listing = mount.list(mount.root());
    let entry = EntryPlus {
        fileid: 1,
        name: Name::from([b'x'; 200].as_slice()),
        cookie: 1,
        attributes: None,
        handle: None,
    };
    let entries = vec![entry; 1000];
    let each = size_of_val(&entries[..]) + 1000 * 200;
    let at = b"dir".as_slice();
    for _ in 0..super::super::MAX_KEPT / each {
        listing.keep(&entries, at).unwrap();
    }
    let error = listing.keep(&entries, at).unwrap_err();
    assert!(matches!(error, NfsError::TooManyEntries { .. }), "{error}");
    assert!(error.to_string().ends_with("listing dir"), "{error}");
}

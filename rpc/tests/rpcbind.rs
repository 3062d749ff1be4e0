//! The messages of rpcbind: the bytes of RFC 1833, universal addresses, and hostile lists.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use onc_rpc::rpcbind::{MAX_STRING, Mapping, decode_mappings, socket_address, universal_address};
use onc_rpc::{DecodeError, Decoder, Encoder, Message};
use quickcheck::quickcheck;

fn nfs() -> Mapping {
    Mapping {
        prog: 100_003,
        vers: 3,
        netid: Bytes::from_static(b"rdma"),
        address: Bytes::from_static(b"0.0.0.0.78.81"),
        owner: Bytes::from_static(b"superuser"),
    }
}

fn decoded(bytes: &[u8]) -> Result<Vec<Mapping>, DecodeError> {
    let message = Message::from_payload(Bytes::copy_from_slice(bytes));
    let mut decoder = Decoder::new(&message);
    let mappings = decode_mappings(&mut decoder)?;
    decoder.finish()?;
    Ok(mappings)
}

fn encoded(mappings: &[Mapping]) -> Bytes {
    let mut out = Encoder::new();
    for mapping in mappings {
        mapping.encode(out.bool(true));
    }
    out.bool(false);
    out.into_bytes()
}

#[test]
fn a_mapping_has_the_bytes_of_rfc_1833() {
    let mut out = Encoder::new();
    nfs().encode(&mut out);
    let mut expected = vec![0, 1, 0x86, 0xa3, 0, 0, 0, 3];
    expected.extend(b"\0\0\0\x04rdma\0\0\0\x0d0.0.0.0.78.81\0\0\0\0\0\0\x09superuser\0\0\0");
    assert_eq!(out.into_bytes(), expected);
}

#[test]
fn universal_addresses_end_with_the_bytes_of_the_port() {
    for (socket, universal) in [
        ("0.0.0.0:20049", "0.0.0.0.78.81"),
        ("10.8.0.2:2049", "10.8.0.2.8.1"),
        ("[::]:111", "::.0.111"),
        ("[fe80::1]:65535", "fe80::1.255.255"),
    ] {
        let address: SocketAddr = socket.parse().unwrap();
        assert_eq!(universal_address(address), universal);
        assert_eq!(socket_address(universal.as_bytes()), Some(address));
    }
    for other in [
        &b""[..],
        b"/run/rpcbind.sock",
        b"10.8.0.2",
        b"10.8.0.2.8.256",
        b"10.8.0.2.8.-1",
        b"10.8.0.2.8.1.0",
        b"::.1",
        b"\xff.0.0.0.8.1",
    ] {
        assert_eq!(socket_address(other), None, "{other:?}");
    }
}

#[test]
fn lists_that_are_cut_off_or_have_long_strings_are_refused() {
    let list = encoded(&[nfs(), nfs()]);
    assert_eq!(decoded(&list).unwrap(), [nfs(), nfs()]);
    for len in 0..list.len() {
        let refused = decoded(&list[..len]).unwrap_err();
        assert!(matches!(refused, DecodeError::Truncated { .. }), "{len}");
    }
    let long = |len: u32| Mapping {
        owner: Bytes::from(vec![b'o'; len as usize]),
        ..nfs()
    };
    decoded(&encoded(&[long(MAX_STRING)])).unwrap();
    let refused = decoded(&encoded(&[long(MAX_STRING + 1)])).unwrap_err();
    assert!(matches!(refused, DecodeError::TooLong { .. }));
}

/// Program, version, netid, address and owner of a mapping.
type Random = (u32, u32, Vec<u8>, Vec<u8>, Vec<u8>);

quickcheck! {
    fn mappings_are_decoded_as_they_were_encoded(mappings: Vec<Random>) -> bool {
        let short = |mut bytes: Vec<u8>| {
            bytes.truncate(MAX_STRING as usize);
            Bytes::from(bytes)
        };
        let mappings = mappings.into_iter().map(|(prog, vers, netid, address, owner)| Mapping {
            prog,
            vers,
            netid: short(netid),
            address: short(address),
            owner: short(owner),
        });
        let mappings: Vec<_> = mappings.collect();
        decoded(&encoded(&mappings)) == Ok(mappings)
    }

    fn arbitrary_lists_do_not_panic(bytes: Vec<u8>) -> bool {
        // A list with an entry has 28 bytes or more.
        decoded(&bytes).map_or(true, |mappings| mappings.is_empty() || bytes.len() >= 28)
    }

    fn arbitrary_addresses_do_not_panic(bytes: Vec<u8>, ip: IpAddr, port: u16) -> bool {
        let address = SocketAddr::new(ip, port);
        let same = socket_address(universal_address(address).as_bytes()) == Some(address);
        same && socket_address(&bytes).is_none_or(|other| bytes.len() >= 7 || other.is_ipv6())
    }
}

//! DDP and RDMAP headers (RFC 5041, section 4; RFC 5040, section 4).

use iwarp::ddp::{HeaderView, Placement, TAGGED, UNTAGGED, header_len};
use iwarp::rdmap::{Opcode, READ_REQUEST, ReadRequest};
use iwarp::terminate::{MAX_TERMINATE, Terminate};

/// The bits of a DDP control field that have a meaning: tagged, last, version.
const MEANINGFUL: u8 = 0xc3;

/// Decodes `data` as each kind of DDP segment.
pub fn check(data: &[u8]) {
    header(data);
    control(data);
    read_request(data);
    terminate(data);
}

fn header(data: &[u8]) {
    let Some(view) = HeaderView::new(data) else {
        let shortest = data.first().map_or(1, |control| header_len(*control));
        assert!(data.len() < shortest);
        return;
    };
    let bytes = view.bytes();
    assert_eq!(bytes, &data[..bytes.len()]);
    let Ok(header) = view.to_header() else {
        assert_ne!(data[0] & 0x03, 1);
        return;
    };
    let expected = match header.placement {
        Placement::Tagged { .. } => TAGGED,
        Placement::Untagged { .. } => UNTAGGED,
    };
    assert_eq!((header.header_len(), bytes.len()), (expected, expected));
    let mut again = [0; UNTAGGED];
    assert_eq!(header.emit(&mut again), expected);
    assert_eq!(again[0], bytes[0] & MEANINGFUL);
    assert_eq!(again[1..expected], bytes[1..]);
}

fn control(data: &[u8]) {
    let Some(&byte) = data.first() else {
        return;
    };
    if let Ok(opcode) = Opcode::from_control(byte) {
        // Two reserved bits lie between version and opcode.
        assert_eq!(opcode.control(), byte & 0xcf);
    }
}

fn read_request(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<READ_REQUEST>() {
        assert_eq!(ReadRequest::parse(bytes).to_bytes(), *bytes);
    }
}

fn terminate(data: &[u8]) {
    let parsed = crate::within(1024, || Terminate::parse(data));
    let Some(terminate) = parsed else {
        assert!(data.len() < 4);
        return;
    };
    // For a log; never empty.
    assert!(!terminate.code.to_string().is_empty());
    let again = terminate.to_bytes();
    assert!(again.len() <= MAX_TERMINATE);
    assert_eq!(Terminate::parse(&again), Some(terminate));
    assert_eq!(again[..2], data[..2]);
}

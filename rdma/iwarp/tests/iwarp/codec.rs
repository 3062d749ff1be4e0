//! Encoding and decoding of headers and set-up frames: round trips, and arbitrary bytes.

use bytes::Bytes;
use iwarp::ddp::{Header, HeaderView, Placement};
use iwarp::mpa::{self, Enhanced, Frame, FrameView, Kind, Rtr};
use iwarp::rdmap::{Opcode, ReadRequest};
use iwarp::terminate::{Code, FaultySegment, Terminate};
use quickcheck::{Arbitrary, Gen, quickcheck};
use smallvec::SmallVec;

#[derive(Clone, Debug)]
struct AnyHeader(Header);

impl Arbitrary for AnyHeader {
    fn arbitrary(g: &mut Gen) -> Self {
        let placement = if bool::arbitrary(g) {
            Placement::Tagged {
                stag: u32::arbitrary(g),
                offset: u64::arbitrary(g),
            }
        } else {
            Placement::Untagged {
                ulp_word: u32::arbitrary(g),
                queue: u32::arbitrary(g),
                msn: u32::arbitrary(g),
                offset: u32::arbitrary(g),
            }
        };
        Self(Header {
            last: bool::arbitrary(g),
            ulp_control: u8::arbitrary(g),
            placement,
        })
    }
}

#[derive(Clone, Debug)]
struct AnyFrame(Frame);

impl Arbitrary for AnyFrame {
    fn arbitrary(g: &mut Gen) -> Self {
        let kind = *g.choose(&[Kind::Request, Kind::Reply]).unwrap();
        let enhanced = Option::<(u16, u16, Option<u8>)>::arbitrary(g);
        let enhanced = enhanced.map(|(inbound, outbound, rtr)| Enhanced {
            inbound_reads: inbound & mpa::DEPTH_UNSPECIFIED,
            outbound_reads: outbound & mpa::DEPTH_UNSPECIFIED,
            peer_to_peer: rtr.map(Rtr::from_bits_truncate),
        });
        let mut private_data = Vec::<u8>::arbitrary(g);
        private_data.truncate(mpa::MAX_PRIVATE_DATA - mpa::ENHANCED);
        Self(Frame {
            kind,
            markers: bool::arbitrary(g),
            crc: bool::arbitrary(g),
            rejected: kind == Kind::Reply && bool::arbitrary(g),
            revision: if enhanced.is_some() {
                2
            } else {
                u8::arbitrary(g)
            },
            enhanced,
            private_data: private_data.into(),
        })
    }
}

quickcheck! {
    fn ddp_headers_round_trip(header: AnyHeader, rest: Vec<u8>) -> bool {
        let mut bytes = vec![0; 18];
        let len = header.0.emit(&mut bytes);
        bytes.truncate(len);
        let short = (0..len).all(|len| HeaderView::new(&bytes[..len]).is_none());
        bytes.extend(rest);
        let view = HeaderView::new(&bytes).unwrap();
        short && view.bytes() == &bytes[..len] && view.to_header() == Ok(header.0)
    }

    fn any_ddp_bytes(bytes: Vec<u8>) -> bool {
        // A decoded header is encoded to the same bytes, except for reserved bits.
        let Some(Ok(header)) = HeaderView::new(&bytes).map(|view| view.to_header()) else {
            return true;
        };
        let mut out = vec![0; 18];
        let len = header.emit(&mut out);
        out[0] |= bytes[0] & 0x3c;
        out[..len] == bytes[..len]
    }

    fn frames_round_trip(frame: AnyFrame, rest: Vec<u8>) -> bool {
        let mut bytes = Vec::new();
        frame.0.emit(&mut bytes);
        let len = bytes.len();
        let kind = frame.0.kind;
        let short = (0..len).all(|len| matches!(FrameView::new(kind, &bytes[..len]), Ok(None)));
        bytes.extend(rest);
        let view = FrameView::new(kind, &bytes).unwrap().unwrap();
        short && view.frame_len() == len && view.to_frame(kind) == frame.0
    }

    fn flipped_frames(frame: AnyFrame, at: usize, bit: u8) -> bool {
        let mut bytes = Vec::new();
        frame.0.emit(&mut bytes);
        let at = at % bytes.len();
        bytes[at] ^= 1 << (bit % 8);
        // A flipped key is always detected. Any other flip results in another frame, an invalid
        // one, or an incomplete one.
        match FrameView::new(frame.0.kind, &bytes) {
            Ok(Some(view)) => at >= 16 && view.to_frame(frame.0.kind).private_data.len() <= 512,
            Ok(None) => at >= 16,
            Err(_) => true,
        }
    }

    fn read_requests_round_trip(a: u32, b: u64, c: u32, d: u32, e: u64) -> bool {
        let request = ReadRequest {
            sink_stag: a,
            sink_offset: b,
            length: c,
            source_stag: d,
            source_offset: e,
        };
        ReadRequest::parse(&request.to_bytes()) == request
    }

    fn terminates_round_trip(code: (u8, u8, u8), header: Option<(u16, AnyHeader, Option<u8>)>)
        -> bool
    {
        let faulty_segment = header.map(|(segment_len, header, read)| {
            let mut ddp = [0; 18];
            let len = header.0.emit(&mut ddp);
            FaultySegment {
                segment_len,
                ddp: SmallVec::from_slice(&ddp[..len]),
                read: read.map(|byte| ReadRequest::parse(&[byte; 28])),
            }
        });
        let code = Code { layer: code.0 & 15, kind: code.1 & 15, code: code.2 };
        let terminate = Terminate { code, faulty_segment };
        Terminate::parse(&terminate.to_bytes()) == Some(terminate)
    }

    fn any_terminate(bytes: Vec<u8>) -> bool {
        Terminate::parse(&bytes).is_some() == (bytes.len() >= 4)
    }

    fn any_opcode(control: u8) -> bool {
        match Opcode::from_control(control) {
            Ok(opcode) => opcode.control() == control & !0x30,
            Err(_) => control >> 6 != 1 || control & 15 > 7,
        }
    }
}

/// Bytes captured between Linux's NFS client and server over siw.
#[test]
fn set_up_frames_captured_from_linux_decode() {
    let mut request = b"MPA ID Req Frame".to_vec();
    request.extend([
        0x10, 2, 0, 12, 0, 128, 0, 0, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3,
    ]);
    let view = FrameView::new(Kind::Request, &request).unwrap().unwrap();
    let frame = view.to_frame(Kind::Request);
    assert_eq!(
        frame,
        Frame {
            kind: Kind::Request,
            markers: false,
            crc: false,
            rejected: false,
            revision: 2,
            enhanced: Some(Enhanced {
                inbound_reads: 128,
                outbound_reads: 0,
                peer_to_peer: None,
            }),
            private_data: Bytes::from_static(&[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3]),
        }
    );
    let mut back = Vec::new();
    frame.emit(&mut back);
    assert_eq!(back, request);
}

#[test]
fn mpa_padding_and_mulpdu_match_the_rfc() {
    // RFC 5044, section 4: ULPDU_Length, ULPDU and padding fill whole words.
    for ulpdu in 0..100 {
        let pad = mpa::padding(ulpdu);
        assert!(pad < 4 && (2 + ulpdu + pad).is_multiple_of(4));
    }
    // Section 4.5: MULPDU = EMSS - (6 + EMSS mod 4).
    for mss in [536, 1448, 1460, 8948, 65_483] {
        assert_eq!(mpa::max_ulpdu(mss), mss - (6 + mss % 4));
    }
    assert_eq!(mpa::max_ulpdu(0), 128);
    assert_eq!(mpa::max_ulpdu(1 << 20), 65_535);
}

#[test]
fn terminate_codes_have_their_names() {
    assert_eq!(Code::TAGGED_WRAP.to_string(), "DDP: tagged offset wraps");
    let unknown = Code {
        layer: 4,
        kind: 0,
        code: 1,
    };
    assert_eq!(
        unknown.to_string(),
        "layer 4, error type 0, error code 0x01"
    );
}

//! MPA Request and Reply Frames (RFC 5044, section 7.1; RFC 6581).

use iwarp::mpa::{ENHANCED, FRAME_HEADER, Frame, FrameView, Kind, MAX_PRIVATE_DATA};

/// Checks the decoder of MPA frames. The first byte chooses between Request and Reply Frame; the
/// rest is the frame.
pub fn check(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    let kind = match first & 1 {
        0 => Kind::Request,
        _ => Kind::Reply,
    };
    match FrameView::new(kind, bytes) {
        Err(error) => {
            // What comes later cannot make it right.
            let mut longer = bytes.to_vec();
            longer.resize(FRAME_HEADER + MAX_PRIVATE_DATA, 0);
            assert_eq!(FrameView::new(kind, &longer).err(), Some(error));
        }
        Ok(None) => assert!(bytes.len() < FRAME_HEADER + MAX_PRIVATE_DATA),
        Ok(Some(view)) => accepted(kind, bytes, &view),
    }
}

fn accepted(kind: Kind, bytes: &[u8], view: &FrameView<'_>) {
    let len = view.frame_len();
    assert!(len <= bytes.len() && len <= FRAME_HEADER + MAX_PRIVATE_DATA);
    // Nothing depends on what follows it, and all of it is needed.
    for cut in [0, FRAME_HEADER - 1, FRAME_HEADER, len - 1] {
        if cut < len {
            assert!(FrameView::new(kind, &bytes[..cut]).is_ok_and(|view| view.is_none()));
        }
    }
    let frame = crate::within(MAX_PRIVATE_DATA + 256, || view.to_frame(kind));
    assert_eq!(frame.kind, kind);
    if let Some(enhanced) = frame.enhanced {
        assert!(enhanced.inbound_reads < 1 << 14 && enhanced.outbound_reads < 1 << 14);
        assert_eq!(frame.private_data.len(), len - FRAME_HEADER - ENHANCED);
    } else {
        assert_eq!(frame.private_data.len(), len - FRAME_HEADER);
    }

    let again = emit(&frame);
    assert_eq!(again.len(), len);
    let view = FrameView::new(kind, &again).expect("a frame of ours is one");
    let view = view.expect("a frame of ours is whole");
    assert_eq!(view.to_frame(kind), frame);
    // Reserved bits are the only ones that may not come back.
    assert_eq!(
        again[FRAME_HEADER + 4.min(len - FRAME_HEADER)..],
        bytes[FRAME_HEADER + 4.min(len - FRAME_HEADER)..len]
    );
    assert_eq!(again[17..20], bytes[17..20]);
}

fn emit(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

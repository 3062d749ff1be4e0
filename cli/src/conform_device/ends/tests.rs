//! Connections of the iwarp device, on the thread of a test.

use rpcrdma_conform::wire::v1::segment;
use rpcrdma_setup::access::LinkOptions;
use rpcrdma_setup::device::DeviceChoice;

use super::*;

const HANDLE: u32 = 0x5100_0001;

/// Returns a device.
fn ends() -> Ends {
    let opened = LinkOptions::default().device(&DeviceChoice::default());
    Ends::new(opened.unwrap().device)
}

/// Adds an end whose queue pair the device does not know.
fn add(ends: &mut Ends, qp: QpId) -> Arc<Inbox> {
    let inbox = Arc::new(Inbox::default());
    ends.ends
        .insert(qp, End::new(Arc::clone(&inbox), 4096, true));
    inbox
}

#[test]
fn memory_that_the_device_does_not_return_is_not_told_as_empty() {
    let (mut ends, qp) = (ends(), QpId(7));
    assert!(ends.take_back(qp, HANDLE).is_err());
    let inbox = add(&mut ends, qp);
    // Nothing is registered for a room of no bytes.
    assert_eq!(ends.take_back(qp, HANDLE), Ok(false));
    let real = RemoteSegment {
        stag: Stag(9),
        length: 16,
        offset: 0,
    };
    let end = ends.ends.get_mut(&qp).unwrap();
    end.offered.add(segment(HANDLE, 16, 0), real, Kind::Guard);
    end.is_over = true;
    assert_eq!(ends.take_back(qp, HANDLE), Ok(false));
    let end = ends.ends.get_mut(&qp).unwrap();
    end.offered.add(segment(HANDLE, 16, 0), real, Kind::Room);
    assert_eq!(ends.take_back(qp, HANDLE), Ok(true));
    let content = inbox.state().rooms.remove(&HANDLE);
    assert!(matches!(content, Some(Err(_))), "{content:?}");
}

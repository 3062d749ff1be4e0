//! Scripts over an end that behaves as one of a device.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::endpoint::{Dial, Endpoint, Opened, SetUp, Wanted};
use crate::octets::Octets;
use crate::peer::Placed;
use crate::run::server::Server;
use crate::stream::{Gone, Meanwhile};
use crate::wire::ddp::ReadRequest;
use crate::wire::v1::{Segment, segment};

const HANDLE: u32 = 0x5100_0001;

/// An end of a connection, and a maker of such ends. What it does not say itself, one over TCP does.
#[derive(Clone, Debug, Default)]
struct Device {
    /// The octets that were written to each room.
    written: Option<Result<Vec<u8>, String>>,
}

/// An end over TCP that says what a device would say.
#[derive(Debug)]
struct DeviceEnd(Device, Box<dyn Endpoint>);

impl Dial for Device {
    fn connect(&self, wanted: &Wanted<'_>) -> Result<Opened, SetUp> {
        let (inner, private) = Octets.connect(wanted)?;
        Ok((Box::new(DeviceEnd(self.clone(), inner)), private))
    }
}

impl Endpoint for DeviceEnd {
    fn send(&mut self, message: &[u8]) {
        self.1.send(message);
    }

    fn send_invalidating(&mut self, handle: u32, message: &[u8]) {
        self.1.send_invalidating(handle, message);
    }

    fn sent(&self) -> u32 {
        self.1.sent()
    }

    fn offer(&mut self, segment: Segment, content: &[u8]) -> Result<(), String> {
        self.1.offer(segment, content)
    }

    fn room(&mut self, segment: Segment) -> Result<(), String> {
        self.1.room(segment)
    }

    fn written(&mut self, _: u32, _: usize) -> Result<Option<Vec<u8>>, String> {
        self.0.written.clone().transpose()
    }

    fn placed(&mut self) -> Vec<Placed> {
        Vec::new()
    }

    fn write(&mut self, handle: u32, offset: u64, bytes: &[u8]) {
        self.1.write(handle, offset, bytes);
    }

    fn read(&mut self, request: &ReadRequest) {
        self.1.read(request);
    }

    fn respond(&mut self, request: &ReadRequest, bytes: &[u8]) {
        self.1.respond(request, bytes);
    }

    fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Heard, Gone> {
        self.1.hear(meanwhile)
    }

    fn has_arrived(&mut self) -> bool {
        self.1.has_arrived()
    }

    fn is_readable(&mut self, goes_on: Meanwhile<'_>) -> bool {
        self.1.is_readable(goes_on)
    }

    fn has_failed(&self) -> bool {
        self.1.has_failed()
    }

    fn is_invalidated_by_peers(&self) -> bool {
        true
    }

    fn set_patience(&mut self, patience: Duration) {
        self.1.set_patience(patience);
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.1.set_deadline(deadline);
    }

    fn end(&mut self) {
        self.1.end();
    }

    fn reset_on_close(&mut self) {
        self.1.reset_on_close();
    }
}

/// Performs a script of version 1 over a device with a server that answers each call.
fn over(device: Device, script: Vec<Step>) -> Result<(), Failed> {
    let script = [vec![Step::Connect(Vec::new())], script].concat();
    let case = case("RFC 8166, 3.4", 900, "a call", "its reply", script);
    let server = Server {
        address: start(|peer, message| {
            let xid = xid(message);
            peer.send(&v1::header(xid).with(&rpc::accepted(xid, 0, &[])));
            true
        }),
        patience: PATIENCE,
        watcher: None,
        dial: Some(Arc::new(device)),
    };
    perform(&case, &server).result
}

#[test]
fn a_room_can_be_compared_twice() {
    let holds = || Step::Holds(HANDLE, vec![1, 2]);
    let script = vec![Step::Room(segment(HANDLE, 16, 0)), holds(), holds()];
    let device = Device {
        written: Some(Ok(vec![1, 2])),
    };
    assert_eq!(over(device, script), Ok(()));
}

#[test]
fn a_room_that_cannot_be_seen_is_no_empty_room() {
    let script = || {
        let room = Step::Room(segment(HANDLE, 16, 0));
        vec![room, Step::Holds(HANDLE, Vec::new())]
    };
    let seen = |written| over(Device { written }, script());
    assert_eq!(seen(Some(Ok(Vec::new()))), Ok(()));
    let wrong = seen(Some(Ok(vec![1])));
    assert!(matches!(wrong, Err(Failed::Deviation(_))), "{wrong:?}");
    let why = "the device is gone".to_owned();
    let unseen = seen(Some(Err(why.clone())));
    assert_eq!(unseen, Err(Failed::NotApplicable(why)));
}

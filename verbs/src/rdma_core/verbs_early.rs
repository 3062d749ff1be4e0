//! The device. (Being written: there is none yet, so opening one fails.)
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use super::{OpenError, Options, sys};
use crate::{
    AcceptOptions, Attributes, Buf, ConnectOptions, Counters, Device, DeviceError, Event,
    ListenerId, Poller, Pool, PostError, QpId, Region, RemoteSegment, RequestId, SendWr, Stag,
    Time, WrId,
};

/// A real device.
#[derive(Debug)]
pub struct Verbs(Infallible);

/// Opens a device.
///
/// # Errors
/// What is missing.
pub fn open(_options: &Options) -> Result<Verbs, OpenError> {
    sys::library()?;
    Err(OpenError::NoDevice(": not written yet".into()))
}

#[rustfmt::skip]
impl Device for Verbs {
    fn attributes(&self) -> &Attributes { match self.0 {} }
    fn pool(&self) -> &Pool { match self.0 {} }
    fn counters(&self) -> Counters { match self.0 {} }
    fn attach(&mut self, _: Poller) -> io::Result<()> { match self.0 {} }
    fn ready(&mut self, _: usize, _: bool) { match self.0 {} }
    fn set_busy_poll(&mut self, _: bool) { match self.0 {} }
    fn poll(&mut self, _: Time, _: &mut VecDeque<Event>) { match self.0 {} }
    fn arm(&mut self) -> bool { match self.0 {} }
    fn next_deadline(&self) -> Option<Time> { match self.0 {} }
    fn listen(&mut self, _: SocketAddr) -> Result<ListenerId, DeviceError> { match self.0 {} }
    fn local_address(&self, _: ListenerId) -> Result<SocketAddr, DeviceError> { match self.0 {} }
    fn close_listener(&mut self, _: ListenerId) { match self.0 {} }
    fn connect(&mut self, _: SocketAddr, _: &ConnectOptions) -> Result<QpId, DeviceError> { match self.0 {} }
    fn prepare_accept(&mut self, _: RequestId) -> Result<QpId, DeviceError> { match self.0 {} }
    fn accept(&mut self, _: QpId, _: &AcceptOptions) -> Result<(), DeviceError> { match self.0 {} }
    fn reject(&mut self, _: RequestId, _: &[u8]) -> Result<(), DeviceError> { match self.0 {} }
    fn disconnect(&mut self, _: QpId) { match self.0 {} }
    fn abort(&mut self, _: QpId) { match self.0 {} }
    fn destroy(&mut self, _: QpId) { match self.0 {} }
    fn register(&mut self, _: QpId, _: Region) -> Result<RemoteSegment, (DeviceError, Region)> { match self.0 {} }
    fn reclaim(&mut self, _: QpId, _: Stag) -> Result<Region, DeviceError> { match self.0 {} }
    fn post_receive(&mut self, _: QpId, _: WrId, _: Buf) -> Result<(), (PostError, Buf)> { match self.0 {} }
    fn post_send(&mut self, _: QpId, _: WrId, _: SendWr, _: bool) -> Result<(), (PostError, SendWr)> { match self.0 {} }
}

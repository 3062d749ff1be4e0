//! Ends of `conform`'s connections on a device of the device model: the scripts of cases over verbs devices, RoCE and
//! InfiniBand among them, and over the software RNIC of this project.
//!
//! A device makes and checks the headers of RDMA itself. So the cases see Sends, private data, and the end of a
//! connection with its reason, and not the single RDMA Reads and Writes of the other end: what was written into memory
//! is looked at when a case compares it, and what the other end must not access ends the connection. Handles and
//! offsets of memory are the device's: [`offered`] exchanges those in messages. The thread that owns the device is in
//! [`turning`], its connections in [`ends`].

mod endpoint;
mod ends;
mod inbox;
mod offered;
mod requests;
#[cfg(test)]
mod tests;
mod turning;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rdma::RequestId;
use rpcrdma_conform::endpoint::{Answer, Dial, Endpoint, Incoming, Listen, Opened, SetUp, Wanted};
use rpcrdma_setup::Failure;
use rpcrdma_setup::access::LinkOptions;
use rpcrdma_setup::device::DeviceChoice;

use endpoint::{DeviceEnd, GONE};
use ends::Ends;
use inbox::Inbox;
use requests::Requests;
use turning::Turning;

/// The longest message that is received, bytes: with the longest placed data of the cases, which is 64 KiB.
const RECEIVE: usize = 80 << 10;
/// The format identifier of private data, and its only version (RFC 8797, section 4).
const FORMAT: [u8; 5] = [0xf6, 0xab, 0x0e, 0x18, 1];
/// The R flag, in the next octet: remote invalidation (RFC 8797, section 4.1).
const INVALIDATES: u8 = 1;
/// The time in which an accepted connection must be complete, and by which a device may answer late.
const COMPLETES: Duration = Duration::from_secs(10);

/// An open device.
#[derive(Clone, Debug)]
pub(crate) struct ConformDevice {
    turning: Arc<Turning>,
}

impl ConformDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// The device cannot be opened, or does not support a setting.
    pub(crate) fn open(choice: DeviceChoice, link: LinkOptions) -> Result<Self, Failure> {
        let turning = Arc::new(Turning::start(choice, link)?);
        Ok(Self { turning })
    }

    /// Listens for clients.
    ///
    /// # Errors
    /// The device cannot listen on this address.
    pub(crate) fn listen(&self, address: SocketAddr) -> Result<Listening, Failure> {
        let requests = Arc::new(Requests::default());
        let its = Arc::clone(&requests);
        let listening = self.turning.ask(move |ends| ends.listen(address, its));
        let listening = listening.unwrap_or_else(|| Err(GONE.into()));
        let address = listening.map_err(|error| Failure::Work(error).at(address))?;
        Ok(Listening {
            turning: Arc::clone(&self.turning),
            address,
            requests,
        })
    }

    /// Returns private data without the promise that memory can be invalidated, where the device cannot keep that.
    fn private(&self, private: &[u8]) -> Bytes {
        let mut private = private.to_vec();
        let at = private.windows(FORMAT.len()).position(|it| it == FORMAT);
        if let Some(flags) = at.and_then(|at| private.get_mut(at + FORMAT.len()))
            && !self.turning.facts.remote_invalidation
        {
            *flags &= !INVALIDATES;
        }
        private.into()
    }
}

/// Returns why private data of this length cannot be sent, if it cannot.
fn too_long(turning: &Turning, length: usize) -> Option<String> {
    let most = turning.facts.max_private_data;
    let text =
        format!("the device sends at most {most} bytes of private data, and this has {length}");
    (length > most).then_some(text)
}

impl Dial for ConformDevice {
    fn connect(&self, wanted: &Wanted<'_>) -> Result<Opened, SetUp> {
        let turning = &self.turning;
        if let Some(why) = too_long(turning, wanted.private.len()) {
            return Err(SetUp::NotApplicable(why));
        }
        let private = self.private(wanted.private);
        let inbox = Arc::new(Inbox::default());
        let (remote, patience, its) = (wanted.address, wanted.patience, Arc::clone(&inbox));
        let connect =
            move |ends: &mut Ends| ends.connect(remote, private, (RECEIVE, patience), its);
        let qp = turning.ask(connect);
        let qp = qp.unwrap_or_else(|| Err(GONE.into()));
        let qp = qp.map_err(SetUp::Unreachable)?;
        let mut end = DeviceEnd::new(turning, qp, inbox);
        end.set_patience(patience);
        // The device itself gives up after `patience`. The added time only waits for its answer.
        let answer = end.set_up(patience + COMPLETES);
        let answer = answer.map_err(SetUp::Unreachable)?;
        Ok((Box::new(end), answer))
    }
}

/// A device that listens.
#[derive(Debug)]
pub(crate) struct Listening {
    turning: Arc<Turning>,
    pub(crate) address: SocketAddr,
    requests: Arc<Requests>,
}

impl Listen for Listening {
    fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn request(&self) -> io::Result<Option<Box<dyn Incoming>>> {
        let next = self.requests.next();
        Ok(next.map(|(request, private)| -> Box<dyn Incoming> {
            Box::new(Asked {
                turning: Arc::clone(&self.turning),
                request: Some(request),
                private,
            })
        }))
    }

    fn hides_headers(&self) -> Option<String> {
        let text = "the device checks the headers of RDMA, and does not show them";
        Some(text.into())
    }

    fn refuses_private_data(&self, length: usize) -> Option<String> {
        too_long(&self.turning, length)
    }
}

/// A client's request for a connection.
struct Asked {
    turning: Arc<Turning>,
    /// `None` once it was answered.
    request: Option<RequestId>,
    private: Bytes,
}

impl Incoming for Asked {
    fn accept(mut self: Box<Self>, answer: &Answer<'_>) -> Result<Opened, String> {
        let failed = |error: String| format!("a connection: {error}");
        let Some(request) = self.request.take() else {
            return Err(failed("it was answered before".into()));
        };
        let inbox = Arc::new(Inbox::default());
        let private = Bytes::copy_from_slice(answer.private);
        let its = Arc::clone(&inbox);
        let accept = move |ends: &mut Ends| ends.accept(request, private, RECEIVE, its);
        let qp = self.turning.ask(accept);
        let qp = qp.unwrap_or_else(|| Err(GONE.into()));
        let mut end = DeviceEnd::new(&self.turning, qp.map_err(failed)?, inbox);
        end.stop_by(Arc::clone(&answer.stop));
        end.set_up(COMPLETES).map_err(failed)?;
        Ok((Box::new(end), self.private.to_vec()))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.turning.post(move |ends| ends.reject(request));
        }
    }
}

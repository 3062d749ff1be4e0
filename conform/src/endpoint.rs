//! The seam between scripts and the end of an RDMA connection that performs them.
//!
//! A script needs little: a connection with private data, Sends as octets, memory that the other end may read or write,
//! and RDMA Reads and Writes of the other end's memory. [`crate::octets`] has an end that makes the octets of iWARP
//! itself, and sees those of the other end. An RDMA device can be another one: it makes and checks all headers itself,
//! so that fewer things are seen, and what it cannot do is said by [`SetUp::NotApplicable`] and by the other functions
//! that return a reason.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::peer::{Heard, Placed};
use crate::stream::{Gone, Meanwhile};
use crate::watch::Watcher;
use crate::wire::ddp::ReadRequest;
use crate::wire::v1::Segment;

/// One end of a connection. Dropping it closes the connection.
pub trait Endpoint: Debug + Send {
    /// Sends a message. A later [`Endpoint::hear`] shows the reason of a failure.
    fn send(&mut self, message: &[u8]);

    /// Sends a message that invalidates a handle of the other end's memory.
    fn send_invalidating(&mut self, handle: u32, message: &[u8]);

    /// Returns the number of messages sent.
    fn sent(&self) -> u32;

    /// Offers memory with this content to RDMA Reads. An end that sees Read Requests
    /// ([`Heard::Read`]) has nothing to do.
    ///
    /// # Errors
    /// The end cannot offer this memory, and the case is not applicable for the reason given.
    fn offer(&mut self, segment: Segment, content: &[u8]) -> Result<(), String>;

    /// Offers memory to RDMA Writes. An end that sees each of them ([`Endpoint::placed`]) has nothing to do.
    ///
    /// # Errors
    /// The end cannot offer this memory, as for [`Endpoint::offer`].
    fn room(&mut self, segment: Segment) -> Result<(), String>;

    /// Takes back a room, and returns what the other end has written, from the first byte of the memory on. From then
    /// on, the other end cannot access the memory. Returns `None` if this end shows RDMA Writes by [`Endpoint::placed`]
    /// instead. `expected` is the number of bytes that should have been written: written bytes at the end that equal
    /// the earlier content cannot be told from bytes that were not written.
    ///
    /// # Errors
    /// The end cannot look at the memory, and the case is not applicable for the reason given.
    fn written(&mut self, handle: u32, expected: usize) -> Result<Option<Vec<u8>>, String>;

    /// Takes the RDMA Writes that came before what was heard last.
    fn placed(&mut self) -> Vec<Placed>;

    /// Writes to memory of the other end, at an offset that the other end announced. The offset may wrap around.
    fn write(&mut self, handle: u32, offset: u64, bytes: &[u8]);

    /// Sends a Read Request, which is answered by [`Heard::Response`].
    fn read(&mut self, request: &ReadRequest);

    /// Answers [`Heard::Read`].
    fn respond(&mut self, request: &ReadRequest, bytes: &[u8]);

    /// Waits for what comes next.
    ///
    /// # Errors
    /// The end of the connection, silence, or something that no device sends.
    fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Heard, Gone>;

    /// Returns whether something has come that [`Endpoint::hear`] would take now, or the end.
    fn has_arrived(&mut self) -> bool;

    /// Waits until something has come or the connection has ended, and returns true. Returns false as soon as `goes_on`
    /// returns false.
    fn is_readable(&mut self, goes_on: Meanwhile<'_>) -> bool;

    /// Returns whether a request or a receive could not be posted, or sending takes too long.
    fn has_failed(&self) -> bool;

    /// Returns whether the other end may invalidate memory of this end by its Sends.
    fn is_invalidated_by_peers(&self) -> bool;

    /// Sets the longest wait for what comes next.
    fn set_patience(&mut self, patience: Duration);

    /// Sets the time after which nothing is heard any more, however much comes.
    fn set_deadline(&mut self, deadline: Instant);

    /// Ends the connection. Nothing is heard any more but [`Gone::Closed`].
    fn end(&mut self);

    /// Makes dropping this end abort the connection rather than close it.
    fn reset_on_close(&mut self);
}

/// A connection that is set up, and the private data of the other end.
pub type Opened = (Box<dyn Endpoint>, Vec<u8>);

/// The reason why a connection was not set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetUp {
    /// The other end is not there, or refuses.
    Unreachable(String),
    /// This end cannot do what is wanted.
    NotApplicable(String),
}

/// A connection that is wanted.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The address of the server.
    pub address: SocketAddr,
    /// The private data.
    pub private: &'a [u8],
    /// The longest wait.
    pub patience: Duration,
    /// The observer of the octets, such as a capture. Devices do not use it.
    pub watcher: Option<&'a Watcher>,
}

/// Something that makes connections to servers.
pub trait Dial: Debug + Send + Sync {
    /// Connects.
    ///
    /// # Errors
    /// [`SetUp`].
    fn connect(&self, wanted: &Wanted<'_>) -> Result<Opened, SetUp>;
}

/// An answer to a client's request for a connection.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The private data.
    pub private: &'a [u8],
    /// The flag that ends everything on the connection.
    pub stop: Arc<AtomicBool>,
    /// The observer of the octets, such as a capture. Devices do not use it.
    pub watcher: Option<&'a Watcher>,
}

/// A client's request for a connection. Dropping it refuses the connection.
pub trait Incoming: Send {
    /// Accepts the connection.
    ///
    /// # Errors
    /// The reason why it was not set up.
    fn accept(self: Box<Self>, answer: &Answer<'_>) -> Result<Opened, String>;
}

/// Something that clients connect to.
pub trait Listen: Debug + Sync {
    /// Prepares the listener, before the first client is told its address.
    ///
    /// # Errors
    /// The error of the operating system.
    fn begin(&self) -> std::io::Result<()>;

    /// Returns the address.
    ///
    /// # Errors
    /// The error of the operating system.
    fn address(&self) -> std::io::Result<SocketAddr>;

    /// Returns a request that waits, if there is one.
    ///
    /// # Errors
    /// The listener has failed. Errors of the kinds `Interrupted` and `ConnectionAborted` concern one request alone:
    /// further ones can follow.
    fn request(&self) -> std::io::Result<Option<Box<dyn Incoming>>>;

    /// Returns why the headers of RDMA that clients send are not seen, if they are not.
    fn hides_headers(&self) -> Option<String>;

    /// Returns why connections cannot be accepted with private data of this length, if they cannot.
    fn refuses_private_data(&self, length: usize) -> Option<String>;
}

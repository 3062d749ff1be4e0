//! An example of a version of RPC-over-RDMA: version 2 of 2016 with another number, in which a client
//! begins by a message that says hello, and not by the exchange of characteristics. `src/main.rs` is the
//! `rpcrdma` command with it.
//!
//! A client asks a server for it first, since that is what [`Negotiable::is_asked_for`] says, and uses
//! another version at a server that lacks it.

#![forbid(unsafe_code)]

use bytes::Bytes;
use rpcrdma::Version;
use rpcrdma_chunks::{Direction, Side};
use rpcrdma_connection::dialect::{Derived, Dialect, Negotiable, VersionTwo};
use rpcrdma_extension::{EndConfig, Extension, Outbox, ReceivedMessage, Refusal, Start};

/// Its number on the wire, and its name in options.
pub const THIRD: Version = Version::new(3, "third");
/// The message that says hello: from the range that nobody has assigned.
pub const HELLO: u32 = 0x7fff_0003;

/// The version.
#[derive(Clone, Copy, Debug)]
pub struct Third;

impl Negotiable for Third {
    fn version(&self) -> Version {
        THIRD
    }

    fn is_asked_for(&self) -> bool {
        true
    }
}

/// The part that it does itself; everything else is as in version 2, with its own number.
impl Derived for Third {
    fn base(&self) -> &'static dyn Dialect {
        &VersionTwo
    }

    fn own_extensions(&self, _: &EndConfig<'_>) -> Vec<Box<dyn Extension>> {
        vec![Box::new(Hello)]
    }
}

/// Says hello, by which a client asks for the version, and a server answers in it.
#[derive(Debug)]
struct Hello;

impl Extension for Hello {
    fn name(&self) -> &'static str {
        "hello"
    }

    fn numbers(&self) -> &[u32] {
        &[HELLO]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(HELLO, Bytes::new());
        }
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        match it.direction {
            Direction::Call => out.reply(it.xid, HELLO, Bytes::new()),
            Direction::Reply => out.answered(it.xid),
        }
        Ok(())
    }
}

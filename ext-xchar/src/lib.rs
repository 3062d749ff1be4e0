//! Transport characteristics: the extension of RPC-over-RDMA version 2 through which both ends of a
//! connection announce what they support (draft-dnoveck-nfsv4-rpcrdma-xcharext-02). No I/O and no
//! clock.
//!
//! [`Exchange`] is the state of one end of a connection and implements
//! [`Extension`](rpcrdma_extension::Extension) of version 2. It announces the properties of all
//! extensions of this side, records those of the peer ([`Peer`]), requests changes and answers the
//! peer's requests. A [`Registry`] lists the characteristics that this end understands: this
//! crate's three ([`ReceiveBufferSize`], [`RequesterRemoteInvalidation`],
//! [`BackwardRequestSupport`]), and those that other crates register by implementing
//! [`Characteristic`]. Unknown characteristics are kept as bytes and otherwise ignored.
//!
//! ```
//! use bytes::BytesMut;
//! use rpcrdma_ext_xchar::{Characteristic, Peer, Registry};
//! use rpcrdma_v2::{Malformed, Reader};
//!
//! /// How many worker threads a server has. From the experimental range.
//! struct Workers;
//!
//! impl Characteristic for Workers {
//!     type Value = u32;
//!     const ID: u32 = 4_294_967_041;
//!     const NAME: &'static str = "workers";
//!
//!     fn default_value() -> u32 {
//!         1
//!     }
//!
//!     fn encode(value: &u32, out: &mut BytesMut) {
//!         out.extend_from_slice(&value.to_be_bytes());
//!     }
//!
//!     fn decode(from: &mut Reader<'_>) -> Result<u32, Malformed> {
//!         from.u32()
//!     }
//! }
//!
//! let mut registry = Registry::default();
//! registry.register::<Workers>()?;
//! assert!(registry.check(&Workers::property(&8)).is_ok());
//! assert_eq!(Peer::default().get::<Workers>(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Section numbers in this crate are those of xcharext-02. MUSTS.md, beside this crate's manifest,
//! lists its requirements with the name of the test for each.

#![forbid(unsafe_code)]

mod agreed;
mod characteristic;
mod codec;
mod exchange;
mod extension;
mod factory;
mod known;
mod peer;
mod receive_size;
mod received;
mod registry;
mod request;
mod subset;
mod updates;

pub use characteristic::{Characteristic, EXPERIMENTAL};
pub use codec::{INITXCH, Init, REQXCH, RESPXCH, Request, Response, UPDXCH, Update};
pub use exchange::{Config, Exchange};
pub use factory::Factory;
pub use known::{
    BackwardRequestSupport, BackwardSupport, ReceiveBufferSize, RequesterRemoteInvalidation,
};
pub use peer::Peer;
pub use registry::{IdTaken, Registry};
pub use rpcrdma_extension::NotChanged;
pub use subset::{MAX_CHARACTERISTICS, Subset};

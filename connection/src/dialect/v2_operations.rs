//! The operations of version 2 (version-two-01, section 3).

use bytes::BytesMut;
use rpcrdma_extension::{Extension, OutgoingMessage};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::operations;

use super::{OperationHeader, Operations, VersionTwo};
use crate::Config;

impl Operations for VersionTwo {
    fn extensions(&self, config: &Config) -> Vec<Box<dyn Extension>> {
        config.options.protocols.make(Version::Two, &config.end())
    }

    fn encode_operation(&self, out: &mut BytesMut, header: OperationHeader) {
        let message = OutgoingMessage {
            xid: header.xid,
            direction: header.direction,
            number: header.number,
            fields: header.fields,
        };
        operations::header(message, header.credits).encode_into(out);
    }
}

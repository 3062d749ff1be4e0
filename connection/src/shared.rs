//! What the two halves of an open connection, requester and responder, share.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use onc_rpc::Segments;
use rdma::Stag;
use rpcrdma_chunks::Chunks;
use rpcrdma_v2::Direction;
use transfer_plan::Limits;

use crate::dialect::{Dialect, ErrorMessage, OperationHeader, OperationRouter, Outgoing, Plain};
use crate::{Action, Config};

/// The size in bytes of the allocations that headers are encoded into. Some tens of headers share
/// one allocation, which lives as long as any of them.
const HEADER_ROOM: usize = 2048;
/// The maximum length of a plain header, in bytes.
const PLAIN_HEADER: usize = 32;

/// What the two halves of an open connection, requester and responder, share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The version that the connection speaks.
    pub(crate) dialect: &'static dyn Dialect,
    /// The limits with which messages are planned.
    pub(crate) limits: Limits,
    /// The extensions, in a version that has operations.
    pub(crate) operations: Option<Box<OperationRouter>>,
    /// Actions that are to be returned to the driver, in this order.
    pub(crate) actions: VecDeque<Action>,
    /// The buffer that headers are encoded into.
    pub(crate) headers: BytesMut,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        dialect: &'static dyn Dialect,
        limits: Limits,
        operations: Option<Box<OperationRouter>>,
    ) -> Self {
        Self {
            config,
            dialect,
            limits,
            operations,
            actions: VecDeque::new(),
            headers: BytesMut::with_capacity(HEADER_ROOM),
        }
    }

    /// Encodes the header of a message without chunks.
    pub(crate) fn encode_plain(&mut self, direction: Direction, header: Plain) -> Bytes {
        self.headers.reserve(PLAIN_HEADER);
        self.dialect
            .encode_plain(&mut self.headers, direction, header);
        self.headers.split().freeze()
    }

    /// Encodes a header that may have chunks. Returns it with its chunk lists.
    pub(crate) fn encode(&mut self, header: Outgoing) -> (Bytes, Chunks) {
        let chunks = self.dialect.encode(&mut self.headers, header);
        (self.headers.split().freeze(), chunks)
    }

    /// Sends a message that takes one Send.
    pub(crate) fn send(&mut self, header: Bytes, mut payload: Segments, invalidate: Option<Stag>) {
        payload.insert(0, header);
        self.actions.push_back(Action::Send {
            gather: payload,
            invalidate,
            more: false,
        });
    }

    /// Sends an operation of an extension, without payload.
    pub(crate) fn send_operation(&mut self, header: OperationHeader) {
        if let Some(operations) = &self.operations {
            let message = operations.encode(&mut self.headers, header);
            self.send(message, Segments::new(), None);
        }
    }

    /// Sends an error message that grants `credits`.
    pub(crate) fn send_error(&mut self, error: &ErrorMessage, credits: u32) {
        let message = self.dialect.encode_error(error, credits);
        self.send(message, Segments::new(), None);
    }
}

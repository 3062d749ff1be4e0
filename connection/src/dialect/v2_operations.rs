//! The operations of version 2 (version-two-01, section 3), and the extensions that a connection
//! has.

use bytes::BytesMut;
use rpcrdma_ext_continuation::Transmit;
use rpcrdma_ext_xchar::{BackwardSupport, Config as ExchangeConfig, Exchange, Registry};
use rpcrdma_extension::{Extension, OutgoingMessage};
use rpcrdma_v2::{Side, operations};

use super::{OperationHeader, Operations, VersionTwo};
use crate::{CallbackOptions, Config, round_trips};

impl Operations for VersionTwo {
    fn extensions(&self, config: &Config) -> Vec<Box<dyn Extension>> {
        let side = config.role.side();
        let mut list: Vec<Box<dyn Extension>> = vec![Box::new(Exchange::new(exchange(config)))];
        if let Some(config) = round_trips::config(config) {
            list.push(Box::new(Transmit::new(config)));
        }
        list.extend(config.options.extensions.iter().map(|make| make(side)));
        list
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

/// Returns the configuration of the exchange of transport characteristics.
pub(crate) fn exchange(config: &Config) -> ExchangeConfig {
    let options = &config.options;
    let side = config.role.side();
    let invalidation = options.remote_invalidation;
    let mut registry = Registry::default();
    if !options.features.is_none()
        && let Err(taken) = rpcrdma_ext_continuation::register(&mut registry)
    {
        tracing::error!(%taken, "two characteristics have the same number");
    }
    ExchangeConfig {
        registry,
        receive_size: config.receives.len(),
        max_receive_size: options.max_receive_size,
        max_send: config.max_send(),
        accept_invalidation: invalidation && side == Side::Client,
        can_invalidate: invalidation && side == Side::Server,
        backward: match options.callbacks {
            _ if side == Side::Server => BackwardSupport::None,
            // A short receive queue can leave no room for callbacks.
            _ if config.callbacks == 0 => BackwardSupport::None,
            CallbackOptions { credits: 0, .. } => BackwardSupport::None,
            CallbackOptions { chunks: false, .. } => BackwardSupport::Inline,
            CallbackOptions { chunks: true, .. } => BackwardSupport::General,
        },
    }
}

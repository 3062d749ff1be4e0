//! The optional operations of version 2 on one connection: its extensions, and the limits that they
//! report to the rest of the connection.

use rpcrdma_ext_continuation::Transmit;
use rpcrdma_ext_xchar::{BackwardSupport, Config as ExchangeConfig, Exchange, Registry};
use rpcrdma_v2::extension::{DuplicateOpttype, Extension, Extensions, Routed};
use rpcrdma_v2::{Body, Header, Side};

use crate::{CallbackOptions, Config, round_trips};

/// The extensions of a connection that speaks version 2.
#[derive(Debug)]
pub struct Extended {
    pub(crate) extensions: Extensions,
    /// Whether [`Extended::begin`] has been called.
    begun: bool,
    /// Whether a part of a message has arrived and the rest has not.
    pub(crate) collecting: bool,
    /// Whether any extension carries RPC messages.
    pub(crate) carries_messages: bool,
}

impl Extended {
    /// Returns the extensions that `config` asks for. Operations that they begin have XIDs from
    /// `first_xid` downwards.
    ///
    /// # Errors
    /// [`DuplicateOpttype`]: two extensions own the same operation.
    pub(crate) fn new(config: &Config, first_xid: u32) -> Result<Self, DuplicateOpttype> {
        let side = config.role.side();
        let mut list: Vec<Box<dyn Extension>> = vec![Box::new(Exchange::new(exchange(config)))];
        if let Some(config) = round_trips::config(config) {
            list.push(Box::new(Transmit::new(config)));
        }
        list.extend(config.options.extensions.iter().map(|make| make(side)));
        let mut extensions = Extensions::new(side, first_xid, list)?;
        let carries_messages = extensions.transfer_modes().next().is_some();
        Ok(Self {
            extensions,
            begun: false,
            collecting: false,
            carries_messages,
        })
    }

    /// Tells the extensions that version 2 is spoken from now on. `opened_by` is the header of the
    /// peer's message, or `None` if this end sends first. Later calls have no effect.
    pub(crate) fn begin(&mut self, opened_by: Option<&Header>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.extensions.connected(opened_by);
        }
    }

    /// Passes a message to the extensions, and returns which of them, if any, handles it.
    pub(crate) fn route(&mut self, header: &Header, message: &[bytes::Bytes], at: usize) -> Routed {
        let routed = self.extensions.received(header, message, at);
        // Only operations begin and end a collection.
        if self.collecting || matches!(header.body, Body::Optional(_)) {
            self.collecting = self.extensions.is_collecting();
        }
        routed
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
            CallbackOptions { credits: 0, .. } => BackwardSupport::None,
            CallbackOptions { chunks: false, .. } => BackwardSupport::Inline,
            CallbackOptions { chunks: true, .. } => BackwardSupport::General,
        },
    }
}

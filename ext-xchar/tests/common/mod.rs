//! Ends of a connection for tests.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]

use bytes::Bytes;
use rpcrdma_ext_xchar::{BackwardSupport, Config, Exchange, Init, Registry, Subset};
use rpcrdma_extension::{Action, Extensions, OutgoingMessage, Property};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Direction, ErrorBody, Header, Optional, Side};

pub(crate) const XID: u32 = 0x1234_5678;

pub(crate) fn config() -> Config {
    Config {
        registry: Registry::default(),
        receive_size: 16 << 10,
        max_receive_size: 256 << 10,
        max_send: 64 << 10,
        accept_invalidation: true,
        can_invalidate: true,
        backward: BackwardSupport::General,
    }
}

/// Creates an end with only this extension, whose XIDs count down from 1000 (client) or 2000
/// (server).
pub(crate) fn end(side: Side, config: Config) -> Extensions {
    let first_xid = match side {
        Side::Client => 1000,
        Side::Server => 2000,
    };
    let exchange = Box::new(Exchange::new(config));
    Extensions::new(side, first_xid, vec![exchange]).expect("one extension")
}

pub(crate) fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(crate) fn property(id: u32, value: &[u32]) -> Property {
    let value = words(value);
    Property { id, value }
}

pub(crate) fn operation(direction: Direction, opttype: u32, info: Bytes) -> Header {
    Header {
        xid: XID,
        credits: 8,
        body: Body::Optional(Optional {
            direction,
            opttype,
            info,
        }),
    }
}

pub(crate) fn call(opttype: u32, info: Bytes) -> Header {
    operation(Direction::Call, opttype, info)
}

pub(crate) fn error(xid: u32, error: ErrorBody) -> Header {
    Header {
        xid,
        credits: 8,
        body: Body::Error(error),
    }
}

/// Passes a message to `end` as if it came from the wire.
pub(crate) fn deliver(end: &mut Extensions, header: &Header) -> Routed {
    let message = header.encode();
    let at = message.len();
    operations::route(end, header, &[message], at)
}

/// Returns the operations that the end has queued for sending.
pub(crate) fn sent(end: &mut Extensions) -> Vec<OutgoingMessage> {
    let actions = std::iter::from_fn(|| end.next_action());
    let sent = actions.filter_map(|action| match action {
        Action::Send(op) => Some(op),
        _ => None,
    });
    sent.collect()
}

pub(crate) fn init(start: &[Property]) -> Init {
    Init {
        start: start.to_vec(),
        no_change: Subset::default(),
    }
}

/// Returns an end that has received the announcement of a peer with receives of 32 KiB, and has
/// nothing left to send.
pub(crate) fn settled(side: Side) -> Extensions {
    let mut end = end(side, config());
    end.connected(None);
    let said = init(&[property(1, &[32 << 10]), property(2, &[1])]);
    assert_eq!(deliver(&mut end, &call(1, said.encode())), Routed::Taken);
    let _ = sent(&mut end);
    end
}

pub(crate) fn exchange(end: &Extensions) -> &Exchange {
    end.find().expect("it is there")
}

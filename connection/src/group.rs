//! Sending of the messages that carry one RPC message.

use bytes::{BufMut as _, BytesMut};
use onc_rpc::{Segments, total_len};
use rdma::Stag;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::Transmissions;
use rpcrdma_extension::layout::pad;

use crate::dialect::ExtensionHeader;
use crate::shared::Shared;

/// Maximum length in bytes of a payload that is copied behind its header.
const SHORT: usize = 256;
/// Maximum length in bytes of padding that is written behind a header.
const SHORT_PADDING: u32 = 1024;

/// Returns a message whose header is in `headers`, in few pieces, because these are cheaper to send: short
/// payload and padding are put behind the header.
fn gather(
    headers: &mut BytesMut,
    mut payload: Segments,
    padding: u32,
    placed: Segments,
) -> Segments {
    if let [only] = &payload[..]
        && only.len() <= SHORT
    {
        headers.extend_from_slice(only);
        payload.clear();
    }
    let mut message = placed;
    if payload.is_empty() && padding <= SHORT_PADDING {
        headers.put_bytes(0, padding as usize);
    } else {
        pad(&mut payload, u64::from(padding));
        payload.extend(message);
        message = payload;
    }
    message.insert(0, headers.split().freeze());
    message
}

/// The messages that carry one RPC message, in order. No other message is sent between them.
#[derive(Debug)]
pub(crate) struct Group {
    messages: Transmissions,
}

impl Group {
    pub(crate) fn new(messages: Transmissions) -> Self {
        Self { messages }
    }

    /// Returns the number of messages.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.messages.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number (header type or type of operation) of the first message, or 0 if there is
    /// no message.
    pub(crate) fn first_type(&self) -> u32 {
        self.messages.first().map_or(0, |first| first.number)
    }

    /// Sends the messages. The last one invalidates a handle of the peer, if one is given.
    pub(crate) fn send(
        self,
        shared: &mut Shared,
        direction: Direction,
        xid: u32,
        mut invalidate: Option<Stag>,
    ) {
        let last = self.messages.len().saturating_sub(1);
        for (index, message) in self.messages.into_iter().enumerate() {
            let header = ExtensionHeader {
                xid,
                credits: shared.flow.credit_field(direction),
                direction,
                number: message.number,
                fields: message.fields,
            };
            let sent = &mut shared.moved.sent;
            sent.placed += total_len(&message.placed);
            let bytes = match last {
                0 => &mut sent.inline,
                _ => &mut sent.continued,
            };
            *bytes += total_len(&message.payload);
            let dialect = shared.dialect;
            dialect.encode_extension(&mut shared.headers, header);
            let gather = gather(
                &mut shared.headers,
                message.payload,
                message.padding,
                message.placed,
            );
            // The last message ends the call at the requester, which then has no use for the handle.
            let invalidate = invalidate.take_if(|_| index == last);
            shared.queue_send(direction, gather, invalidate, index < last);
        }
    }
}

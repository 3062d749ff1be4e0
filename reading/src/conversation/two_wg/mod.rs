//! Messages of the working group's version 2 (version-two-07), and of its placement extension
//! (ext-wg-ddp).

mod announced;
mod parts;
mod placed;

use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_ext_wg_ddp::{NO_RESULTS, Support, header_type};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_v2_wg::{Body, EXPERIMENTAL, ErrorBody, Header, HeaderError, Prefix, Properties};

use super::one::{form_rule, shown};
use super::{Conversation, Out, Sent};
use crate::call::MessageKind;
use crate::rules::{self, Rule};
use parts::{Part, Parts};

/// Properties that an end has announced, and the message in parts that it is sending.
#[derive(Debug)]
pub(super) struct State {
    properties: Properties,
    /// Whether messages with properties have begun, and whether the last one was sent.
    properties_begun: bool,
    properties_done: bool,
    structure: Option<BufferStructure>,
    support: Support,
    smallest_result: u32,
    /// The number of messages that it may have sent.
    limit: u64,
    /// Whether its last message has used the limit up.
    is_exhausted: bool,
    pub(super) parts: Option<Parts>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            properties: Properties::default(),
            properties_begun: false,
            properties_done: false,
            structure: None,
            support: Support::empty(),
            smallest_result: NO_RESULTS,
            limit: 1,
            is_exhausted: false,
            parts: None,
        }
    }
}

impl State {
    pub(super) fn receive_size(&self) -> Option<u32> {
        Some(self.properties.receive_size)
    }
}

impl Conversation {
    pub(super) fn two_wg(&mut self, from: usize, sent: &Sent, out: &mut Out<'_>) {
        let (at, bytes) = (sent.span.last, sent.known());
        let Some(prefix) = Prefix::peek(&bytes) else {
            return;
        };
        let xid = prefix.xid;
        let decoded = Header::decode(&bytes);
        let is_grant = matches!(&decoded, Ok((header, _)) if header.body == Body::Grant);
        self.check_limit(from, is_grant, prefix.xid, sent, out);
        let is_version_error = matches!(
            &decoded,
            Ok((
                Header {
                    body: Body::Error(ErrorBody::Version { .. }),
                    ..
                },
                _
            ))
        );
        if !is_version_error {
            self.take_limit(from, prefix.credit, sent, out);
        }
        let (header, len) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                let known = match error.error {
                    HeaderError::HeaderType(number) => placed::placed_header(number, &bytes),
                    _ => None,
                };
                match known {
                    Some(Ok((fields, len))) => {
                        self.check_sizes(from, false, xid, sent, out);
                        self.placed_part(from, &prefix, &fields, (&bytes, len), sent, out);
                    }
                    Some(Err(reason)) => {
                        let rule = (form_rule(&reason), "malformed");
                        self.refused(from, rule, Some(xid), reason.to_string(), sent, out);
                    }
                    None => {
                        let rule = header_rule(&error.error);
                        let detail = error.error.to_string();
                        self.refused(from, (rule, "malformed"), error.xid, detail, sent, out);
                    }
                }
                return;
            }
        };
        let is_properties = matches!(header.body, Body::Properties { .. });
        self.check_sizes(from, is_properties, xid, sent, out);
        let name = name(header.body.header_type());
        let mut message = self.message(from, sent, MessageKind::Control, name, header.credit);
        message.header = len as u64;
        let none = Chunks::default();
        let direction = header.body.direction();
        let is_inline_reply = matches!(header.body, Body::Reply { .. });
        if sent.invalidates.is_some() && !is_inline_reply {
            self.breach(
                &rules::INVALIDATED,
                at,
                Some(xid),
                format!("by {name}"),
                out,
            );
        }
        match &header.body {
            Body::Error(error) => {
                let what = error.to_string();
                if let Some(parts) = &mut self.ends[1 - from].two_wg.parts
                    && parts.xid == xid
                {
                    parts.is_refused = true;
                }
                self.error(from, (xid, None), what, message, sent, out);
            }
            Body::Grant => {
                if xid != 0 {
                    let detail = format!("{xid:#010x}");
                    self.breach(&rules::GRANT_XID, at, Some(xid), detail, out);
                }
                out.sink.other(&self.connection, message);
            }
            Body::Properties { last, properties } => {
                let properties = properties.clone();
                self.properties(from, *last, &properties, message, sent, out);
            }
            Body::Middle { remaining, .. } => {
                let part = Part {
                    direction: direction.unwrap_or(Direction::Call),
                    is_placed: false,
                    following: Some((*remaining, 0)),
                    head: &bytes[len..],
                    payload: sent.length - len as u64,
                    chunks: &none,
                    items: &[],
                    inv_handle: None,
                };
                self.part(from, &prefix, &part, message, sent, out);
            }
            Body::Call {
                external: false,
                chunks,
                ..
            }
            | Body::Reply {
                external: false,
                chunks,
            } => {
                let inv_handle = match &header.body {
                    Body::Call { inv_handle, .. } => Some(*inv_handle),
                    _ => None,
                };
                message.summary = shown(chunks);
                let part = Part {
                    direction: direction.unwrap_or(Direction::Call),
                    is_placed: false,
                    following: None,
                    head: &bytes[len..],
                    payload: sent.length - len as u64,
                    chunks,
                    items: &[],
                    inv_handle,
                };
                self.part(from, &prefix, &part, message, sent, out);
            }
            Body::Call {
                inv_handle, chunks, ..
            } => {
                message.summary = shown(chunks);
                self.external(
                    from,
                    &prefix,
                    (chunks, Some(*inv_handle)),
                    message,
                    sent,
                    out,
                );
            }
            Body::Reply { chunks, .. } => {
                message.summary = shown(chunks);
                self.external(from, &prefix, (chunks, None), message, sent, out);
            }
        }
    }
}

/// Returns the rule that a header breaks.
fn header_rule(error: &HeaderError) -> &'static Rule {
    match error {
        HeaderError::TooShort(_) => &rules::SHORT,
        HeaderError::Version { .. } => &rules::VERSION,
        HeaderError::HeaderType(number) if EXPERIMENTAL.contains(number) => {
            &rules::UNKNOWN_OPERATION
        }
        HeaderError::HeaderType(_) => &rules::HEADER_TYPE,
        HeaderError::Malformed { reason, .. } | HeaderError::BadError(reason) => form_rule(reason),
        HeaderError::Property { .. } => &rules::PROPERTY_VALUE,
        HeaderError::Limit { .. } => &rules::FORM,
    }
}

/// Returns the name of a header type.
fn name(number: u32) -> &'static str {
    match number {
        4 => "RDMA2_ERROR",
        5 => "RDMA2_GRANT",
        6 => "RDMA2_CONNPROP_MIDDLE",
        7 => "RDMA2_CONNPROP_FINAL",
        8 => "RDMA2_CALL_EXTERNAL",
        9 => "RDMA2_CALL_MIDDLE",
        10 => "RDMA2_CALL_INLINE",
        11 => "RDMA2_REPLY_EXTERNAL",
        12 => "RDMA2_REPLY_MIDDLE",
        13 => "RDMA2_REPLY_INLINE",
        header_type::CALL_PLACED_MIDDLE => "RDMA2_CALL_PLACED_MIDDLE",
        header_type::CALL_PLACED => "RDMA2_CALL_PLACED",
        header_type::REPLY_PLACED_MIDDLE => "RDMA2_REPLY_PLACED_MIDDLE",
        header_type::REPLY_PLACED => "RDMA2_REPLY_PLACED",
        _ => "unknown",
    }
}

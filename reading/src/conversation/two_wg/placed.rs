//! Messages of the placement extension (ext-wg-ddp).

use bytes::Bytes;
use rpcrdma_chunks::{Chunks, Direction, Malformed, Reader};
use rpcrdma_ext_wg_ddp::{
    CallPlaced, NO_RESULTS, PlacedItem, PlacedMiddle, ReplyPlaced, Support, header_type,
    property_id, smallest_result_from, structure_from, support_from,
};
use rpcrdma_extension::layout::{BadPlacement, Frame, locate};
use rpcrdma_v2_wg::{Prefix, Property, limits};

use super::super::one::shown;
use super::super::{Conversation, Out, Sent};
use super::parts::{Part, Parts};
use super::{State, name};
use crate::call::MessageKind;
use crate::rules::{self, Rule};

/// Fields of a header of the placement extension.
pub(super) enum Placed {
    Middle(Direction, PlacedMiddle),
    Call(CallPlaced),
    Reply(ReplyPlaced),
}

impl Conversation {
    pub(super) fn placed_part(
        &mut self,
        from: usize,
        prefix: &Prefix,
        fields: &Placed,
        (bytes, len): (&Bytes, usize),
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let none = Chunks::default();
        let returned;
        let (direction, payload, following, chunks, items, inv_handle) = match fields {
            Placed::Middle(
                direction,
                PlacedMiddle {
                    messages,
                    remaining,
                    payload,
                },
            ) => {
                let following = Some((*remaining, *messages));
                (*direction, *payload, following, &none, &[][..], None)
            }
            Placed::Call(call) => {
                let handle = Some(call.inv_handle);
                (
                    Direction::Call,
                    call.payload,
                    None,
                    &call.chunks,
                    &call.items[..],
                    handle,
                )
            }
            Placed::Reply(reply) => {
                let writes = reply.writes.clone();
                returned = Chunks {
                    writes,
                    ..Chunks::default()
                };
                (
                    Direction::Reply,
                    reply.payload,
                    None,
                    &returned,
                    &reply.items[..],
                    None,
                )
            }
        };
        let peer = &self.ends[1 - from].two_wg;
        let is_supported = match direction {
            Direction::Call => peer.support.contains(Support::CALLS),
            Direction::Reply => peer.smallest_result != NO_RESULTS,
        };
        let name = name(prefix.header_type);
        if !is_supported && self.is_whole() {
            let xid = Some(prefix.xid);
            self.breach(&rules::UNSUPPORTED, sent.span.last, xid, name.into(), out);
        }
        let mut message = self.message(from, sent, MessageKind::Call, name, prefix.credit);
        message.header = len as u64;
        let item = |item: &PlacedItem| format!("{} B placed, at {}", item.length, item.position);
        let mut summary: Vec<String> = items.iter().map(item).collect();
        summary.extend(Some(shown(chunks)).filter(|text| !text.is_empty()));
        message.summary = summary.join(", ");
        let head = &bytes[len..];
        let part = Part {
            direction,
            is_placed: true,
            following,
            head: &head[..head.len().min(payload as usize)],
            payload: payload.into(),
            chunks,
            items,
            inv_handle,
        };
        self.part(from, prefix, &part, message, sent, out);
    }

    /// Checks the positions and the places of items.
    pub(super) fn check_items(
        &mut self,
        from: usize,
        parts: &Parts,
        part: &Part<'_>,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let (xid, at) = (Some(parts.xid), sent.span.last);
        let mut last = 0;
        for item in part.items {
            let position = u64::from(item.position);
            if item.length == 0 || position % 4 != 0 || position < last {
                let detail = format!("{} bytes at {position}", item.length);
                self.breach(&rules::PLACED_POSITION, at, xid, detail, out);
            }
            last = position + onc_rpc::padded(item.length.into());
        }
        if !self.is_whole() {
            return;
        }
        let peer = &self.ends[1 - from].two_wg;
        let own = self.ends[from].two_wg.properties.send_size;
        let most = own.min(peer.properties.receive_size);
        let structure = peer.structure.as_ref();
        let frame = structure.and_then(|structure| Frame::new(structure).ok());
        let frame = frame.unwrap_or_else(|| Frame::plain(most.into()));
        let frame = frame.within(most.into()).with_usable_targets();
        for item in part.items {
            let broken = place(&frame, parts, item);
            if let Some((rule, detail)) = broken {
                self.breach(rule, at, xid, detail, out);
            }
        }
    }
}

impl State {
    pub(super) fn apply_placement(&mut self, list: &[Property]) -> Result<(), String> {
        for Property { id, value } in list {
            let shown = |reason| format!("value of property {id:#010x}: {reason}");
            match *id {
                property_id::STRUCTURE if value.is_empty() => self.structure = None,
                property_id::STRUCTURE => {
                    self.structure = Some(structure_from(value).map_err(shown)?)
                }
                property_id::SUPPORT if value.is_empty() => self.support = Support::empty(),
                property_id::SUPPORT => self.support = support_from(value).map_err(shown)?,
                property_id::SMALLEST_RESULT if value.is_empty() => {
                    self.smallest_result = NO_RESULTS
                }
                property_id::SMALLEST_RESULT => {
                    self.smallest_result = smallest_result_from(value).map_err(shown)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks the place of an item in the transmissions. Returns the rule that it breaks.
fn place(frame: &Frame, parts: &Parts, item: &PlacedItem) -> Option<(&'static Rule, String)> {
    let count = parts.lengths.len() as u32;
    let Some(spot) = frame.spot(item.segment, item.offset, item.length) else {
        let detail = format!(
            "{} bytes at {} of segment {}",
            item.length, item.offset, item.segment
        );
        return Some((&rules::SEGMENT_NUMBER, detail));
    };
    match locate(frame, count, &spot, item.length) {
        Err(bad @ BadPlacement::Segment { .. }) => Some((&rules::SEGMENT_NUMBER, bad.to_string())),
        Err(bad @ BadPlacement::Offset { .. }) => Some((&rules::SEGMENT_OFFSET, bad.to_string())),
        Ok(places) => places.iter().find_map(|place| {
            let length = parts.lengths.get(place.transmission).copied().unwrap_or(0);
            let detail = || format!("data up to {} of {length} bytes", place.end());
            (place.end() > length).then(|| (&rules::NOT_PLACED, detail()))
        }),
    }
}

/// Decodes a header of the placement extension. `None` if the header type is none of it.
pub(super) fn placed_header(
    number: u32,
    bytes: &Bytes,
) -> Option<Result<(Placed, usize), Malformed>> {
    let mut from = Reader::new(&bytes[limits::PREFIX_LEN..]);
    let fields = match number {
        header_type::CALL_PLACED_MIDDLE => {
            PlacedMiddle::decode(&mut from).map(|it| Placed::Middle(Direction::Call, it))
        }
        header_type::REPLY_PLACED_MIDDLE => {
            PlacedMiddle::decode(&mut from).map(|it| Placed::Middle(Direction::Reply, it))
        }
        header_type::CALL_PLACED => CallPlaced::decode(&mut from).map(Placed::Call),
        header_type::REPLY_PLACED => ReplyPlaced::decode(&mut from).map(Placed::Reply),
        _ => return None,
    };
    Some(fields.map(|fields| (fields, bytes.len() - from.left())))
}

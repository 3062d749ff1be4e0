//! The memory that calls offer, and the RDMA operations on it.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{Conversation, Data, Out};
use crate::call::{At, List, Operation, OperationKind, Segment};
use crate::limits::{HEAD, MAX_LISTED, MAX_READS};
use crate::rules::{self, Rule};
use crate::span::Span;

/// A segment of a call, by the call's XID and the segment's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    xid: u32,
    index: usize,
}

/// The memory that an end offers, by its handles.
#[derive(Debug, Default)]
pub(super) struct Regions(HashMap<u32, SmallVec<[Region; 1]>>);

impl Regions {
    pub(super) fn knows(&self, handle: u32) -> bool {
        self.0.contains_key(&handle)
    }

    pub(super) fn withdraw(&mut self, xid: u32, segments: &[Segment]) {
        for segment in segments {
            if let Some(regions) = self.0.get_mut(&segment.handle) {
                regions.retain(|region| region.xid != xid);
                if regions.is_empty() {
                    self.0.remove(&segment.handle);
                }
            }
        }
    }
}

/// An RDMA Read in progress: the call, the index of the operation if it is listed, and where it reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    region: Region,
    operation: Option<usize>,
    /// Offset in the segment.
    at: u64,
    arrived: u64,
    length: u32,
}

impl Conversation {
    /// Offers a segment of a call.
    pub(super) fn offer(
        &mut self,
        from: usize,
        xid: u32,
        list: List,
        segment: &rpcrdma_chunks::Segment,
    ) {
        let end = &mut self.ends[from];
        let Some(pending) = end.calls.get_mut(&xid) else {
            return;
        };
        let index = pending.call.segments.len();
        pending.call.segments.push(Segment {
            list,
            handle: segment.handle,
            offset: segment.offset,
            length: segment.length,
            moved: 0,
            returned: None,
        });
        let regions = end.regions.0.entry(segment.handle).or_default();
        regions.push(Region { xid, index });
    }

    /// Finds the memory of an end for an access. Returns its region and the offset in it, or the rule
    /// that the access breaks, and the values.
    fn find(
        &self,
        owner: usize,
        (handle, offset): (u32, u64),
        length: u64,
        kind: OperationKind,
    ) -> Result<(Region, u64), (&'static Rule, String)> {
        let end = &self.ends[owner];
        let mut broken = (&rules::UNKNOWN_HANDLE, format!("handle {handle:#010x}"));
        // The newest first: handles are used again.
        for region in end.regions.0.get(&handle).into_iter().flatten().rev() {
            let pending = end.calls.get(&region.xid);
            let Some(segment) = pending.and_then(|it| it.call.segments.get(region.index)) else {
                continue;
            };
            let at = offset.checked_sub(segment.offset);
            let fits = |at: &u64| at.saturating_add(length) <= u64::from(segment.length);
            match at.filter(fits) {
                None => {
                    let at = at.map_or_else(|| "an offset before".to_owned(), |at| at.to_string());
                    let detail =
                        format!("{length} bytes at {at} in a segment of {}", segment.length);
                    broken = (&rules::OUT_OF_BOUNDS, detail);
                }
                Some(at) => {
                    let offered = match segment.list {
                        List::Read(_) => OperationKind::Read,
                        List::Write(_) | List::Reply => OperationKind::Write,
                    };
                    if offered == kind {
                        return Ok((*region, at));
                    }
                    broken = (
                        &rules::WRONG_ACCESS,
                        format!("offered for RDMA {offered:?}"),
                    );
                }
            }
        }
        Err(broken)
    }

    /// Handles data that an end writes into the memory of the other.
    pub(crate) fn write(
        &mut self,
        from: usize,
        (handle, offset): (u32, u64),
        data: &Data<'_>,
        span: Span,
        out: &mut Out<'_>,
    ) {
        let (by, owner, length) = (self.side(from), 1 - from, data.bytes.len() as u64);
        if length == 0 || !self.is_announced {
            return;
        }
        let found = self.find(owner, (handle, offset), length, OperationKind::Write);
        let (region, at) = match found {
            Ok(found) => found,
            Err((rule, detail)) => {
                self.access_breach(rule, detail, span.last, out);
                return;
            }
        };
        let Some(pending) = self.ends[owner].calls.get_mut(&region.xid) else {
            return;
        };
        let before = chunk_offset(&pending.call.segments, region.index);
        let segment = &mut pending.call.segments[region.index];
        segment.moved += length;
        let list = segment.list;
        if list == List::Reply {
            keep(
                &mut pending.heads[1],
                before + at,
                &data.bytes[..data.known],
            );
        }
        let operations = &mut pending.call.operations;
        let open = operations.iter_mut().rfind(|it| {
            let follows = it.handle == handle && it.offset.wrapping_add(it.octets) == offset;
            it.kind == OperationKind::Write && !it.is_complete && follows
        });
        if let Some(open) = open {
            let mut whole = Span {
                first: open.first,
                last: open.last,
                packets: open.packets,
            };
            whole.extend(span);
            (open.last, open.packets) = (whole.last, whole.packets);
            open.octets += length;
            open.is_complete = data.is_last;
        } else if operations.len() < MAX_LISTED {
            operations.push(Operation {
                kind: OperationKind::Write,
                by,
                request: None,
                first: span.first,
                last: span.last,
                packets: span.packets,
                handle,
                offset,
                octets: length,
                list,
                is_complete: data.is_last,
            });
        }
    }

    /// Handles a request of an end to read the memory of the other.
    pub(crate) fn read_request(
        &mut self,
        from: usize,
        id: u64,
        (handle, offset): (u32, u64),
        length: u32,
        span: Span,
        out: &mut Out<'_>,
    ) {
        if !self.is_announced {
            return;
        }
        let (by, owner) = (self.side(from), 1 - from);
        let found = self.find(owner, (handle, offset), length.into(), OperationKind::Read);
        let (region, at) = match found {
            Ok(found) => found,
            Err((rule, detail)) => {
                self.access_breach(rule, detail, span.last, out);
                return;
            }
        };
        let Some(pending) = self.ends[owner].calls.get_mut(&region.xid) else {
            return;
        };
        let list = pending.call.segments[region.index].list;
        let operations = &mut pending.call.operations;
        let operation = (operations.len() < MAX_LISTED).then(|| {
            operations.push(Operation {
                kind: OperationKind::Read,
                by,
                request: Some(span.first),
                first: span.last,
                last: span.last,
                packets: 0,
                handle,
                offset,
                octets: length.into(),
                list,
                is_complete: false,
            });
            operations.len() - 1
        });
        let reads = &mut self.ends[from].reads;
        if reads.len() < MAX_READS {
            let reading = Reading {
                region,
                operation,
                at,
                arrived: 0,
                length,
            };
            reads.insert(id, reading);
        }
    }

    /// Handles data for an RDMA Read of the end `reader`.
    pub(crate) fn read_data(
        &mut self,
        reader: usize,
        id: u64,
        at: u64,
        data: &Data<'_>,
        span: Span,
    ) {
        let length = data.bytes.len() as u64;
        let reads = &mut self.ends[reader].reads;
        let Some(reading) = reads.get_mut(&id) else {
            return;
        };
        reading.arrived += length;
        let is_complete = reading.arrived >= u64::from(reading.length);
        let Reading {
            region,
            operation,
            at: start,
            ..
        } = *reading;
        if is_complete || data.is_last {
            reads.remove(&id);
        }
        let Some(pending) = self.ends[1 - reader].calls.get_mut(&region.xid) else {
            return;
        };
        let before = chunk_offset(&pending.call.segments, region.index);
        let Some(segment) = pending.call.segments.get_mut(region.index) else {
            return;
        };
        segment.moved += length;
        if segment.list == List::Read(0) && pending.is_long {
            keep(
                &mut pending.heads[0],
                before + start + at,
                &data.bytes[..data.known],
            );
        }
        if let Some(operation) = operation.and_then(|at| pending.call.operations.get_mut(at)) {
            if operation.packets == 0 {
                operation.first = span.first;
                operation.packets = span.packets;
            } else {
                let mut whole = Span {
                    first: operation.first,
                    last: operation.last,
                    packets: operation.packets,
                };
                whole.extend(span);
                operation.packets = whole.packets;
            }
            operation.last = operation.last.max(span.last);
            operation.is_complete = is_complete;
        }
    }

    /// Handles data of an RDMA Read that nobody asked for.
    pub(crate) fn unrequested(&mut self, stag: u32, span: Span, out: &mut Out<'_>) {
        if self.is_whole() && self.is_announced {
            let detail = format!("handle {stag:#010x}");
            self.breach(&rules::UNREQUESTED, span.last, None, detail, out);
        }
    }

    /// Reports an invalid access, unless the call that offers the memory may be missing.
    fn access_breach(&mut self, rule: &'static Rule, detail: String, at: At, out: &mut Out<'_>) {
        if self.is_whole() {
            self.breach(rule, at, None, detail, out);
        }
    }
}

/// Returns the offset of a segment in its chunk.
fn chunk_offset(segments: &[Segment], index: usize) -> u64 {
    let list = segments[index].list;
    let before = segments[..index].iter().filter(|it| it.list == list);
    before.map(|it| u64::from(it.length)).sum()
}

/// Keeps the beginning of a message, which arrives in order.
fn keep(head: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    if at == head.len() as u64 && head.len() < HEAD {
        let room = (HEAD - head.len()).min(bytes.len());
        head.extend_from_slice(&bytes[..room]);
    }
}

//! RDMA Reads of a client's memory.

use std::time::Instant;

use super::call::{Call, total};
use super::connection::{Connection, Event, Over};
use crate::wire::ddp::ReadRequest;
use crate::wire::v1::Segment;

/// The handle of the sink of Read Requests.
const SINK: u32 = 0x51;
/// The longest call or data that is fetched, bytes.
const LONGEST: u64 = 1 << 20;

impl Connection<'_> {
    /// Returns the data of a WRITE. Returns an inner `None` if it cannot be had.
    pub(super) fn data(&mut self, call: &Call) -> Result<Option<Vec<u8>>, Over> {
        let Some((at, length)) = call.data() else {
            return Ok(Some(Vec::new()));
        };
        let reduced = call.reduced();
        if reduced.is_empty() {
            let end = at.checked_add(length as usize);
            let inline = end.and_then(|end| call.payload.get(at..end));
            return Ok(inline.map(<[u8]>::to_vec));
        }
        let segments: Vec<Segment> = reduced.iter().map(|(_, segment)| *segment).collect();
        let mut fetched = self.fetched(&segments)?;
        if let Some(data) = &mut fetched {
            data.truncate(length as usize);
        }
        Ok(fetched)
    }

    /// Reads segments. Returns an inner `None` if they are too long.
    pub(super) fn fetched(&mut self, segments: &[Segment]) -> Result<Option<Vec<u8>>, Over> {
        if total(segments) > LONGEST {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for segment in segments.iter().filter(|it| it.length > 0) {
            self.read(*segment);
            let whole = bytes.len() + segment.length as usize;
            loop {
                let until = Instant::now() + self.stage.patience;
                match self.next(Some(until))? {
                    Event::Response(payload, last) => {
                        bytes.extend(payload);
                        if bytes.len() == whole && last {
                            break;
                        }
                        if last || bytes.len() > whole {
                            self.note("a Read Response of another length".into());
                            return Err(Over);
                        }
                    }
                    Event::Message => {}
                    Event::Nothing => {
                        self.note("no Read Response came in time".into());
                        return Err(Over);
                    }
                }
            }
        }
        Ok(Some(bytes))
    }

    /// Sends a Read Request.
    pub(super) fn read(&mut self, segment: Segment) {
        self.note(format!(
            "RDMA Read: {} bytes of {:#x}",
            segment.length, segment.handle
        ));
        self.peer.read(&ReadRequest {
            sink: SINK,
            sink_offset: 0,
            length: segment.length,
            source: segment.handle,
            source_offset: segment.offset,
        });
    }
}

//! Memory that a script offers, and what the server has written to it.

use super::play::{Play, deviation};
use super::server::Failed;
use crate::peer::Placed;
use crate::wire::v1::Segment;

impl Play<'_> {
    /// Offers memory that the server may read.
    pub(super) fn offer(&mut self, segment: Segment, content: Vec<u8>) -> Result<(), Failed> {
        let offered = self.peer()?.offer(segment, &content);
        offered.map_err(Failed::NotApplicable)?;
        self.memory.offer(segment, content);
        Ok(())
    }

    /// Offers memory that the server may write.
    pub(super) fn room(&mut self, segment: Segment) -> Result<(), Failed> {
        let offered = self.peer()?.room(segment);
        offered.map_err(Failed::NotApplicable)?;
        self.memory.room(segment);
        Ok(())
    }

    /// Looks at what was written to a handle, where this end does not see single RDMA Writes. It is taken once: later,
    /// nobody can write there any more.
    pub(super) fn collect(&mut self, handle: u32, expected: usize) -> Result<(), Failed> {
        let Some(offset) = self.memory.offset(handle) else {
            return Ok(());
        };
        if self.collected.contains(&handle) {
            return Ok(());
        }
        let written = self.peer()?.written(handle, expected);
        let Some(bytes) = written.map_err(Failed::NotApplicable)? else {
            return Ok(());
        };
        self.collected.insert(handle);
        let count = bytes.len();
        self.exchange
            .text(format!("{count} bytes were written to {handle:#x}"));
        let placed = Placed {
            stag: handle,
            offset,
            bytes,
        };
        self.memory.write(&placed).map_err(deviation)
    }

    /// Looks at what was written to the segments of a Reply chunk, of which the last message says how much it is.
    pub(super) fn collect_reply(&mut self, handles: &[u32]) -> Result<(), Failed> {
        let reply = self.last.as_ref().and_then(|it| it.reply.clone());
        let returned = reply.unwrap_or_default();
        for (at, handle) in handles.iter().enumerate() {
            let length = returned.get(at).map_or(0, |it| it.length as usize);
            self.collect(*handle, length)?;
        }
        Ok(())
    }
}

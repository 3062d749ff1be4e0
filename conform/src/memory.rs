//! Memory that a script offers to the server, and the checks of its use (RFC 8166, 3.4; RFC 5042).

use crate::peer::Placed;
use crate::wire::ddp::ReadRequest;
use crate::wire::v1::Segment;

/// Offered memory of one connection.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sources: Vec<(Segment, Vec<u8>)>,
    rooms: Vec<Room>,
    /// Handles of memory that there cannot be.
    unreadable: Vec<u32>,
}

/// Memory that may be written.
#[derive(Debug)]
struct Room {
    segment: Segment,
    /// The bytes written so far, from the beginning on.
    written: Vec<u8>,
}

impl Memory {
    pub(crate) fn offer(&mut self, segment: Segment, content: Vec<u8>) {
        self.sources.push((segment, content));
    }

    pub(crate) fn room(&mut self, segment: Segment) {
        let written = Vec::new();
        self.rooms.push(Room { segment, written });
    }

    pub(crate) fn unreadable(&mut self, handle: u32) {
        self.unreadable.push(handle);
    }

    /// Returns whether a handle is that of memory that there cannot be.
    pub(crate) fn is_unreadable(&self, handle: u32) -> bool {
        self.unreadable.contains(&handle)
    }

    /// Returns the bytes that a Read Request asks for.
    pub(crate) fn read(&self, request: &ReadRequest) -> Result<&[u8], String> {
        let (handle, length) = (request.source, request.length);
        let beyond =
            || format!("an RDMA Read of {length} bytes at handle {handle:#x}, not offered");
        let found = self.sources.iter().find(|(it, _)| it.handle == handle);
        let (segment, content) = found.ok_or_else(beyond)?;
        let start = request.source_offset.checked_sub(segment.offset);
        let start = start.and_then(|it| usize::try_from(it).ok());
        let start = start.ok_or_else(beyond)?;
        let end = start.checked_add(length as usize).ok_or_else(beyond)?;
        content.get(start..end).ok_or_else(beyond)
    }

    /// Takes bytes that the server has written.
    pub(crate) fn write(&mut self, placed: &Placed) -> Result<(), String> {
        let (handle, length) = (placed.stag, placed.bytes.len());
        let beyond =
            || format!("an RDMA Write of {length} bytes at handle {handle:#x}, not offered");
        let room = self.rooms.iter_mut().find(|it| it.segment.handle == handle);
        let room = room.ok_or_else(beyond)?;
        let start = placed.offset.checked_sub(room.segment.offset);
        let start = start.ok_or_else(beyond)?;
        let end = start.checked_add(length as u64).ok_or_else(beyond)?;
        if end > u64::from(room.segment.length) {
            return Err(beyond());
        }
        // Sections 3.4.6: a chunk is filled contiguously and in order.
        if start != room.written.len() as u64 {
            let so_far = room.written.len();
            return Err(format!(
                "an RDMA Write at byte {start} of handle {handle:#x} after {so_far} bytes"
            ));
        }
        room.written.extend(&placed.bytes);
        Ok(())
    }

    /// Returns whether there is a handle of memory that there cannot be.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Returns the tagged offset of memory that may be written, if there is any with this handle.
    pub(crate) fn offset(&self, handle: u32) -> Option<u64> {
        let room = self.rooms.iter().find(|it| it.segment.handle == handle);
        room.map(|it| it.segment.offset)
    }

    /// Returns what was written to a handle.
    pub(crate) fn written(&self, handle: u32) -> &[u8] {
        let room = self.rooms.iter().find(|it| it.segment.handle == handle);
        room.map_or(&[], |it| &it.written)
    }

    /// Compares what was written to a handle.
    pub(crate) fn holds(&self, handle: u32, bytes: &[u8]) -> Result<(), String> {
        let written = self.written(handle);
        if written == bytes {
            return Ok(());
        }
        let differ = written.iter().zip(bytes).position(|(a, b)| a != b);
        Err(match differ {
            Some(at) => format!("byte {at} that was written to handle {handle:#x} is wrong"),
            None => format!(
                "{} bytes were written to handle {handle:#x}, not {}",
                written.len(),
                bytes.len()
            ),
        })
    }
}

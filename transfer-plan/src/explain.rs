//! Formatting of plans in one line, for logs and for `explain`.

use std::fmt;

use crate::{CallItem, CallPayload, CallPlan, ReplyItem, ReplyPayload, ReplyPlan};

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.payload {
            CallPayload::Inline => write!(f, "call: payload inline ({} B)", self.payload_len)?,
            CallPayload::PositionZero => {
                let chunk = match self.call_chunk {
                    true => "call chunk",
                    false => "position-zero read chunk",
                };
                write!(f, "call: payload by {chunk} ({} B)", self.payload_len)?;
            }
        }
        for (index, (item, how)) in self.items.iter().enumerate() {
            match how {
                CallItem::InPayload => write!(f, ", item {index} in it ({} B)", item.len)?,
                CallItem::ReadChunk => write!(
                    f,
                    ", item {index} by read chunk at {} ({} B)",
                    item.position, item.len
                )?,
            }
        }
        let (all, threshold) = self.call_inline;
        if all > threshold {
            write!(f, ", as all inline is {all} B of {threshold} B")?;
        }
        if self.reply_chunk.is_some() {
            write!(f, "; reply: reply chunk (<= {} B)", self.reply_payload)?;
        } else {
            write!(f, "; reply: inline (<= {} B)", self.reply_payload)?;
        }
        for (index, len) in self.write_chunks.iter().enumerate() {
            write!(f, ", item {index} by write chunk (<= {len} B)")?;
        }
        let (all, threshold) = self.reply_inline;
        if all > threshold {
            write!(f, ", as all inline is {all} B of {threshold} B")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReplyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.payload {
            ReplyPayload::Inline => write!(f, "reply: payload inline ({} B)", self.payload_len)?,
            ReplyPayload::ReplyChunk => write!(
                f,
                "reply: payload by reply chunk ({} B), as inline it is {} B of {} B",
                self.payload_len,
                self.header_len + self.payload_len,
                self.inline_send
            )?,
        }
        for (index, (item, how)) in self.items.iter().enumerate() {
            match how {
                ReplyItem::InPayload => write!(f, ", item {index} in it ({} B)", item.len)?,
                ReplyItem::WriteChunk(chunk) => {
                    write!(f, ", item {index} by write chunk {chunk} ({} B)", item.len)?;
                }
            }
        }
        if self.unused_writes > 0 {
            write!(f, ", {} write chunks unused", self.unused_writes)?;
        }
        Ok(())
    }
}

//! Uses of a client's memory that it must refuse (RFC 8166, 4.4.1 and 8.1).

use std::time::Instant;

use super::case::Act;
use super::connection::{Connection, Event, Over};
use super::rules::Rule;
use crate::wire::v1::{Segment, segment};

/// The bytes that are read or written where nothing is offered.
const FEW: u32 = 8;

impl Connection<'_> {
    /// Uses memory beyond a segment, or in the direction for which it is not offered. The connection must end.
    pub(super) fn misuse(&mut self, offered: Segment) -> Result<(), Over> {
        self.stage.shared().acted = true;
        // An offset that would wrap is beyond everything.
        let end = offered.offset.wrapping_add(u64::from(offered.length));
        match self.stage.act {
            Act::ReadBeyond => self.read(segment(offered.handle, FEW, end)),
            Act::WriteBeyond => self.written(offered.handle, end),
            _ => self.written(offered.handle, offered.offset),
        }
        self.ends(Rule::Bounds)
    }

    /// Reads memory of a call that has ended. The connection must end.
    pub(super) fn read_again(&mut self, offered: Segment) -> Result<(), Over> {
        self.stage.shared().acted = true;
        self.read(segment(offered.handle, FEW, offered.offset));
        self.ends(Rule::OutOfReach)
    }

    /// Writes, and asks for a sign of life by a Read Request of nothing, whose response would follow.
    fn written(&mut self, handle: u32, offset: u64) {
        self.note(format!("RDMA Write: {FEW} bytes to {handle:#x}"));
        self.peer.write(handle, offset, &[0xaa; FEW as usize]);
        self.read(segment(0, 0, 0));
    }

    /// Looks whether the client ends the connection rather than answering the last Read Request.
    fn ends(&mut self, rule: Rule) -> Result<(), Over> {
        let until = Instant::now() + self.stage.patience;
        let kept = loop {
            match self.next(Some(until)) {
                Err(Over) => break true,
                // Calls that were on the way.
                Ok(Event::Message) => {}
                Ok(Event::Response(..) | Event::Nothing) => break false,
            }
        };
        // The end of the performance is not the client's.
        if !self.stage.has_ended() {
            let mut shared = self.stage.shared();
            shared.findings.look(rule, kept, || {
                "the client does not end the connection".to_owned()
            });
        }
        Err(Over)
    }
}

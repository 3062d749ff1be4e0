//! Uses of a client's memory that it must refuse (RFC 8166, 4.4.1 and 8.1).

use std::time::{Duration, Instant};

use super::case::Act;
use super::connection::{Connection, End, Event, Over};
use super::rules::Rule;
use crate::wire::v1::{Segment, segment};

/// The longest time in which a client that finds an access out ends its connection. No wait for a reply is as short.
const AT_ONCE: Duration = Duration::from_secs(1);
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
        let began = Instant::now();
        let until = began + self.stage.patience;
        let answer = loop {
            match self.next(Some(until)) {
                Err(Over) => break None,
                // Calls that were on the way.
                Ok(Event::Message) => {}
                Ok(Event::Response(..)) => break Some("an RDMA Read is answered"),
                Ok(Event::Nothing) => break Some("nothing comes"),
            }
        };
        let wrong = match (answer, &self.end) {
            (Some(answer), _) => Some(format!("the connection goes on: {answer}")),
            // The end of the performance is not the client's.
            (None, Some(end)) if end.is_terminated || !self.stage.has_ended() => {
                late(end, began.elapsed())
            }
            // No finding: the performance has ended, or the client broke another rule.
            (None, _) => return Err(Over),
        };
        let mut shared = self.stage.shared();
        let text = || wrong.clone().unwrap_or_default();
        shared.findings.look(rule, wrong.is_none(), text);
        Err(Over)
    }
}

/// Returns why an end of a connection is no answer to an access that must be prevented, if it is none: the end of a
/// client that waits in vain for its reply comes later, and without a reason.
fn late(end: &End, after: Duration) -> Option<String> {
    let is_answer = end.is_terminated || after <= AT_ONCE;
    (!is_answer).then(|| {
        let seconds = after.as_secs_f64();
        format!("{} after {seconds:.1} s, without a Terminate", end.how)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_a_terminate_comes_at_once() {
        let end = |is_terminated| End {
            is_terminated,
            how: "the connection ends: reset".into(),
        };
        let [soon, later] = [10, 3000].map(Duration::from_millis);
        assert_eq!(late(&end(false), soon), None);
        assert_eq!(late(&end(true), later), None);
        let why = late(&end(false), later).unwrap();
        assert_eq!(
            why,
            "the connection ends: reset after 3.0 s, without a Terminate"
        );
    }
}

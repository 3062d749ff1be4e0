//! The program: its work requests and their completions.

use super::*;

impl Run {
    pub(super) fn register(&mut self, writable: bool, len: usize) {
        let fill = 1 + self.regions.len() as u8;
        let memory = self.memory(len, fill);
        let region = match writable {
            true => Region::RemoteWrite(memory),
            false => Region::RemoteRead(memory.freeze()),
        };
        let segment = self.side.register(region);
        assert_eq!(segment.length as usize, len);
        let known = self.regions.iter();
        assert!(
            known
                .filter(|other| !other.reclaimed)
                .all(|other| other.segment.stag != segment.stag)
        );
        self.regions.push(Registered {
            segment,
            writable,
            fill,
            content: vec![None; len],
            reclaimed: false,
        });
    }

    pub(super) fn gather(&mut self, len: u8) -> (Vec<u8>, SmallVec<[Bytes; 2]>) {
        let bytes = vec![self.next as u8; 5 * usize::from(len)];
        let (head, tail) = bytes.split_at(bytes.len() / 3);
        let gather = [head, tail].map(Bytes::copy_from_slice);
        (bytes, SmallVec::from_iter(gather))
    }

    pub(super) fn post(&mut self, wr: SendWr, sends: Option<Vec<u8>>) {
        if self.pending.len() >= MOST {
            return;
        }
        let id = self.id();
        let invalidates = matches!(wr, SendWr::Invalidate { .. });
        self.side.post(id, wr).expect("the queue has room");
        if let Some(bytes) = sends {
            self.posted.push_back(bytes);
        } else if !invalidates {
            // A Read Request.
            self.posted.push_back(Vec::new());
        }
    }

    /// Returns the index of a registered region, if there is one.
    pub(super) fn pick(&self, which: u8) -> Option<usize> {
        let here = |at: &usize| !self.regions[*at].reclaimed;
        let here: SmallVec<[usize; 24]> = (0..self.regions.len()).filter(here).collect();
        let at = usize::from(which).checked_rem(here.len())?;
        Some(here[at])
    }

    /// Reclaims a region, if the device allows it, and checks the bytes that the peer wrote.
    pub(super) fn reclaim(&mut self, at: usize) {
        let Ok(region) = self.side.reclaim(self.regions[at].segment.stag) else {
            return;
        };
        self.apply_writes();
        let known = &mut self.regions[at];
        known.reclaimed = true;
        assert_eq!(matches!(region, Region::RemoteWrite(_)), known.writable);
        match region {
            Region::RemoteRead(bytes) => {
                assert!(
                    bytes.iter().all(|byte| *byte == known.fill),
                    "read-only memory changed"
                );
            }
            Region::RemoteWrite(buf) if !self.wild => {
                // Those on their way may have written a part.
                for (_, _, from, bytes) in self.writes.iter().filter(|(_, to, ..)| *to == at) {
                    known.content[*from..*from + bytes.len()].fill(None);
                }
                let mut bytes = buf.iter().zip(&known.content);
                assert!(
                    bytes.all(|(is, written)| written.is_none_or(|byte| *is == byte)),
                    "a Write is lost"
                );
            }
            Region::RemoteWrite(_) => {}
        }
    }

    pub(super) fn apply_writes(&mut self) {
        while let Some((end, ..)) = self.writes.front()
            && *end <= self.arrived
            && let Some((_, to, from, bytes)) = self.writes.pop_front()
        {
            for (at, byte) in bytes.into_iter().enumerate() {
                self.regions[to].content[from + at] = Some(byte);
            }
        }
    }

    /// Checks that each work request completes once, and with the right result.
    pub(super) fn look(&mut self) {
        while let Some(event) = self.side.events.pop_front() {
            let DeviceEvent::Completion(completion) = event else {
                panic!("{event:?}");
            };
            let WrId(id) = completion.id;
            assert!(self.pending.remove(&id), "{id} completed twice");
            match completion.result {
                Ok(Success::Receive { buf, invalidated }) => {
                    if let Some(stag) = invalidated {
                        let mut known = self.regions.iter();
                        assert!(known.any(|known| known.segment.stag == stag));
                    }
                    if !self.wild {
                        let message = self.messages.pop_front().expect("a message out of nothing");
                        assert!(buf.to_vec() == message, "a message changed on its way");
                    }
                }
                Ok(Success::Read { sink }) if !self.wild => {
                    let content = self.answered.pop_front().expect("an answer out of nothing");
                    assert!(sink[..] == content, "an answer changed on its way");
                }
                Ok(_) => {}
                Err(_) => assert!(
                    self.ended.is_some(),
                    "a request failed on a stream that lives"
                ),
            }
        }
    }

    pub(super) fn finish(&mut self) {
        if self.ended.is_none() {
            self.arrive(usize::MAX);
            self.look();
        }
        if self.ended.is_none() {
            self.leave(usize::MAX);
            self.look();
        }
        if self.set_up.crc && self.damage.is_some_and(|end| end <= self.arrived) {
            assert!(self.ended.is_some(), "a CRC did not find a flipped bit");
        }
        if self.ended.is_none() {
            self.side.end();
            self.ended = Some(Ended::Terminated);
        } else if let Ok(bytes) = self.side.take(usize::MAX) {
            self.left(&bytes);
            let due = self.ended != Some(Ended::Terminated);
            assert_eq!(
                self.terminates,
                usize::from(due),
                "a Terminate for each error"
            );
        }
        self.look();
        assert!(
            self.pending.is_empty(),
            "requests that never completed: {:?}",
            self.pending
        );
        // What was on its way when the stream ended may have been written in part.
        self.wild = true;
        for at in 0..self.regions.len() {
            if !self.regions[at].reclaimed {
                self.reclaim(at);
                assert!(
                    self.regions[at].reclaimed,
                    "memory that the end does not give back"
                );
            }
        }
        let mut guards = self.guards.iter().flat_map(|guard| guard.iter());
        assert!(
            guards.all(|byte| *byte == GUARD_BYTE),
            "written beside a buffer"
        );
    }
}

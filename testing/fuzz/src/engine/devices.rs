//! The two devices and the wire between them.

use super::*;

impl Run {
    pub(super) fn registered(&mut self, id: RegId, region: Region, fails: bool) {
        if fails {
            // Whichever call it was: that is for the caller's log only.
            self.made.values_mut().for_each(|made| made.may_fail = true);
            return self
                .requester
                .registered(id, Err("the device has no room".to_owned()));
        }
        let stag = Stag(self.next_stag);
        self.next_stag += 1;
        let (length, offset) = (region.len() as u32, u64::from(stag.0) << 32);
        self.memory.insert(stag.0, (region, offset));
        let segment = RemoteSegment {
            stag,
            length,
            offset,
        };
        self.requester.registered(id, Ok(segment));
    }

    pub(super) fn invalidated(&mut self, id: RegId, stag: Stag) {
        let (region, _) = self.memory.remove(&stag.0).expect("invalidated once");
        self.requester.reclaimed(id, region);
    }

    pub(super) fn lies(&self) -> bool {
        self.client_lies || self.server_lies
    }

    /// Whether a handle's failure is the peer's own doing, or a cancelled call's.
    pub(super) fn excused(&self) -> bool {
        self.lies() || self.made.values().any(|made| made.cancelled)
    }

    pub(super) fn read(&mut self, (id, mut sink, stag, offset): (ReadId, Buf, Stag, u64)) {
        let source = match self.memory.get(&stag.0) {
            Some((Region::RemoteRead(bytes), base)) => offset
                .checked_sub(*base)
                .and_then(|at| bytes.get(at as usize..)?.get(..sink.len())),
            _ => None,
        };
        match source {
            Some(source) => sink.copy_from_slice(source),
            None => {
                assert!(self.excused(), "a Read of what was not offered");
                if !self.lies() {
                    self.lost = true;
                    return;
                }
                sink.fill(stag.0 as u8);
            }
        }
        self.responder.read_done(id, sink);
    }

    pub(super) fn next_reply(&mut self) {
        match self.replies.pop_front() {
            None => {}
            Some(Posted::Write(bytes, stag, offset)) => {
                let target = match self.memory.get_mut(&stag.0) {
                    Some((Region::RemoteWrite(buf), base)) => offset
                        .checked_sub(*base)
                        .and_then(|at| buf.get_mut(at as usize..)?.get_mut(..bytes.len())),
                    _ => None,
                };
                match target {
                    Some(target) => target.copy_from_slice(&bytes),
                    None => {
                        assert!(self.excused(), "a Write to what was not offered");
                        self.lost |= !self.lies();
                    }
                }
            }
            Some(Posted::Send(bytes, invalidate)) => self.reply(bytes, invalidate),
        }
    }

    pub(super) fn reply(&mut self, bytes: Bytes, invalidate: Option<Stag>) {
        if let Some(stag) = invalidate {
            // The device ends a connection whose peer invalidates what is not valid; and one of
            // ours fails that comes too late.
            let pending = self.invalidating.iter().any(|(_, other)| *other == stag);
            match self.memory.remove(&stag.0) {
                Some((region, _)) if !pending => self.invalid.insert(stag.0, region),
                _ => {
                    assert!(self.excused(), "invalidated twice");
                    self.lost = true;
                    return;
                }
            };
        }
        self.last_reply = Some(bytes.clone());
        let before = self.requester.counters();
        self.requester.received(bytes.clone(), invalidate);
        let after = self.requester.counters();
        let passed_over = |counters: &RequesterCounters| counters.unknown_xid + counters.discarded;
        if passed_over(&before) == passed_over(&after) {
            let (header, _) = Header::decode(&bytes).expect("the requester took it");
            self.granted = header.credits.max(1);
            self.in_flight -= 1;
        } else {
            assert!(
                self.server_lies || self.client_lies,
                "an honest reply was passed over"
            );
        }
    }
}

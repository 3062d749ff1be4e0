//! The two devices and the wire between them.

use super::*;

impl Run {
    pub(super) fn registered(&mut self, id: RegistrationId, region: Region, fails: bool) {
        if fails {
            // Whichever call it was: that is for the caller's log only.
            self.made.values_mut().for_each(|made| made.may_fail = true);
            let result = Err("the device has no room".to_owned());
            return self.client.handle(NOW, Event::Registered { id, result });
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
        let result = Ok(segment);
        self.client.handle(NOW, Event::Registered { id, result });
    }

    pub(super) fn invalidated(&mut self, id: RegistrationId, stag: Stag) {
        let (region, _) = self.memory.remove(&stag.0).expect("invalidated once");
        self.client.handle(NOW, Event::Reclaimed { id, region });
    }

    pub(super) fn lies(&self) -> bool {
        self.client_lies || self.server_lies
    }

    /// Returns whether an invalid handle is to be expected: an end lied, or the handle was that of
    /// a cancelled call. Where the server may invalidate handles, those of cancelled calls stay
    /// valid until the reply.
    fn excused(&self) -> bool {
        let cancelled = self.made.values().any(|made| made.cancelled);
        self.lies() || (cancelled && !self.remote_invalidation)
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
        self.server.handle(NOW, Event::ReadDone { id, sink });
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
        let before = self.counters();
        let message = Segments::from_iter([bytes.clone()]);
        let invalidated = invalidate;
        self.client.handle(
            NOW,
            Event::Received {
                message,
                invalidated,
            },
        );
        self.reply_counted(&bytes, &before);
    }

    /// Checks which counter of the client a message increased, and updates the model accordingly.
    fn reply_counted(&mut self, bytes: &Bytes, before: &RequesterCounters) {
        let after = self.counters();
        let unknown = after.unknown_xid - before.unknown_xid;
        let passed_over = unknown + after.discarded - before.discarded;
        let header = Header::decode(bytes).ok().map(|(header, _)| header);
        let awaited = header.filter(|header| self.awaited.contains(&header.xid));
        let mut cancelled = 0;
        match (passed_over, awaited) {
            (0, Some(header)) => {
                self.awaited.remove(&header.xid);
                self.granted = header.credits.max(1);
                let made = self.made.get(&header.xid);
                cancelled = u64::from(made.is_some_and(|made| made.cancelled));
            }
            (0, None) => panic!("a message that answers no outstanding call was acted upon"),
            (1, awaited) => {
                assert!(self.lies(), "an honest reply was passed over");
                assert!(
                    unknown == 0 || awaited.is_none(),
                    "an outstanding call was taken for unknown"
                );
            }
            (times, _) => panic!("a message was passed over {times} times"),
        }
        let replies = after.cancelled_replies - before.cancelled_replies;
        assert_eq!(replies, cancelled, "replies to cancelled calls");
    }

    pub(super) fn counters(&self) -> RequesterCounters {
        let counters = self.client.requester_counters();
        counters.expect("a client makes calls")
    }

    /// Delivers a message to the server, and checks that it increases exactly one counter: calls,
    /// errors sent, or discarded messages. Otherwise the connection must be closed.
    pub(super) fn call_arrives(&mut self, message: Bytes) {
        let count = |server: &Connection| {
            let counters = server.responder_counters().unwrap_or_default();
            let refused = counters.errors_sent + counters.discarded;
            (refused, server.unanswered_calls() as u64)
        };
        let (refused, unanswered) = count(&self.server);
        let message = Segments::from_iter([message]);
        let invalidated = None;
        self.server.handle(
            NOW,
            Event::Received {
                message,
                invalidated,
            },
        );
        let after = count(&self.server);
        let (refused, taken) = (after.0 - refused, after.1 - unanswered);
        assert!(
            refused == 0 || self.client_lies,
            "an honest call was refused"
        );
        match refused + taken {
            0 => self.overrun = true,
            1 => {}
            times => panic!("a message counted {times} times"),
        }
    }
}

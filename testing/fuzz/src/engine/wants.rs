//! What the machines ask for, what holds at all times, and what must hold in the end.

use super::*;

impl Run {
    /// Does what both ask for, and checks what holds at all times.
    pub(super) fn settle(&mut self) {
        while let Some(action) = self.requester.next_action() {
            self.requester_wants(action);
        }
        while let Some(action) = self.responder.next_action() {
            self.responder_wants(action);
        }
        if self.lost {
            return;
        }
        assert_eq!(self.requester.in_flight(), self.in_flight);
        assert!(self.responder.outstanding() <= self.server_credits as usize);
        assert!(self.held.len() <= self.server_credits as usize);
        assert!(self.reads.len() <= READS as usize, "more Reads than ORD");
        assert!(self.requester.unfinished() <= self.made.len());
        assert!(self.registering.len() + self.memory.len() <= 16 * self.made.len());
    }

    pub(super) fn requester_wants(&mut self, action: RequesterAction) {
        match action {
            RequesterAction::Register { id, region } => self.registering.push((id, region)),
            RequesterAction::Reserve { .. } | RequesterAction::Release { .. } => {
                unreachable!("nobody conveys")
            }
            RequesterAction::Send { gather } => self.sent(&gather),
            RequesterAction::Invalidate { id, stag } => self.invalidating.push((id, stag)),
            RequesterAction::Reclaim { id, stag } => {
                let region = self
                    .invalid
                    .remove(&stag.0)
                    .expect("the peer invalidated it");
                self.requester.reclaimed(id, region);
            }
            RequesterAction::Deliver { xid, message } => self.ended(xid, Ok(&message)),
            RequesterAction::Fail { xid, error } => self.ended(xid, Err(&error)),
        }
    }

    pub(super) fn sent(&mut self, gather: &Segments) {
        let bytes = Bytes::from(gather.concat());
        assert!(bytes.len() as u64 <= INLINE, "over the inline threshold");
        let (header, _) = Header::decode(&bytes).expect("a header of ours");
        let (Body::Msg(chunks) | Body::NoMsg(chunks)) = header.body else {
            panic!("a requester sent RDMA_ERROR");
        };
        let mut handles = chunks.handles();
        assert!(
            handles.all(|handle| self.memory.contains_key(&handle)),
            "offered, not registered"
        );
        assert_eq!(header.credits, self.client_credits);
        drop(handles);
        assert!(
            self.offered.insert(header.xid, chunks).is_none(),
            "sent twice"
        );
        self.in_flight += 1;
        assert!(
            self.in_flight <= self.granted.min(self.client_credits),
            "more calls than granted"
        );
        self.calls.push_back(bytes);
    }

    pub(super) fn responder_wants(&mut self, action: ResponderAction) {
        match action {
            ResponderAction::Read {
                id,
                sink,
                stag,
                offset,
            } => {
                assert!(sink.len() as u64 <= MAX_MESSAGE);
                self.reads.push((id, sink, stag, offset));
            }
            ResponderAction::Write {
                gather,
                stag,
                offset,
            } => {
                let bytes = Bytes::from(gather.concat());
                self.replies.push_back(Posted::Write(bytes, stag, offset));
            }
            ResponderAction::Send {
                gather, invalidate, ..
            } => {
                let bytes = Bytes::from(gather.concat());
                assert!(bytes.len() as u64 <= INLINE, "over the inline threshold");
                self.replies.push_back(Posted::Send(bytes, invalidate));
            }
            ResponderAction::Deliver { token, message } => {
                assert!(
                    message.stream_len() <= MAX_MESSAGE + INLINE,
                    "a call over the limit"
                );
                self.held.push((token, message));
            }
            ResponderAction::Close { .. } => {
                assert!(self.lies(), "closed on an honest client");
                self.lost = true;
            }
        }
    }

    /// Everything that can happen does, in the ordinary way.
    pub(super) fn finish(&mut self) {
        self.ballast.iter_mut().for_each(Vec::clear);
        // Each round gets every call on by a step at least.
        for _ in 0..64 * (MAX_CALLS as usize + 8) {
            self.settle();
            if self.lost {
                return;
            }
            if let Some((id, region)) = pick(&mut self.registering, 0) {
                self.registered(id, region, false);
            } else if let Some((id, stag)) = pick(&mut self.invalidating, 0) {
                self.invalidated(id, stag);
            } else if let Some(read) = pick(&mut self.reads, 0) {
                self.read(read);
            } else if !self.replies.is_empty() {
                self.next_reply();
            } else if let Some(call) = self.calls.pop_front() {
                self.responder.received(call);
            } else if let Some((token, call)) = pick(&mut self.held, 0) {
                self.answer(token, &call, &Answer::Echo);
            } else if self.requester.starved() || self.responder.starved() {
                self.requester.retry();
                self.responder.retry();
            } else {
                break;
            }
        }
        self.finished();
    }

    pub(super) fn finished(&mut self) {
        self.settle();
        if self.lost {
            return;
        }
        assert_eq!((self.responder.outstanding(), self.held.len()), (0, 0));
        let open = |made: &Made| !made.ended && !made.cancelled;
        let left: BTreeSet<u32> = self
            .made
            .iter()
            .filter(|(_, made)| open(made))
            .map(|(xid, _)| *xid)
            .collect();
        let silenced =
            self.made.values().any(|made| made.cancelled) || self.client_lies || self.server_lies;
        assert!(silenced || left.is_empty(), "calls {left:?} never ended");
        // Their callers give up: no memory stays in reach, whatever the server does.
        for xid in left {
            if let Some(made) = self.made.get_mut(&xid) {
                made.cancelled = true;
            }
            self.requester.cancel(xid);
        }
        self.settle();
        while let Some((id, region)) = pick(&mut self.registering, 0) {
            self.registered(id, region, false);
            self.settle();
        }
        while let Some((id, stag)) = pick(&mut self.invalidating, 0) {
            self.invalidated(id, stag);
            self.settle();
        }
        assert!(
            self.memory.is_empty() && self.invalid.is_empty(),
            "something stays registered"
        );
        assert_eq!(self.requester.unfinished(), self.in_flight as usize);
    }
}

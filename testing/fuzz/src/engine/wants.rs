//! The execution of both ends' actions, and the checks during and at the end of a run.

use super::*;

impl Run {
    /// Executes the actions of both ends, and checks the invariants.
    pub(super) fn settle(&mut self) {
        while let Some(action) = self.client.poll_action(SEND_QUEUE) {
            self.client_wants(action);
        }
        while let Some(action) = self.server.poll_action(SEND_QUEUE) {
            self.server_wants(action);
        }
        if self.lost {
            return;
        }
        assert!(!self.overrun, "a message without a credit was passed over");
        let timeouts = (self.client.poll_timeout(), self.server.poll_timeout());
        assert_eq!(timeouts, (None, None), "a time-out in version 1");
        // In version 1, one message is expected for each call that has a credit.
        assert_eq!(self.client.expected_messages(), self.awaiting());
        assert!(self.server.unanswered_calls() <= self.server_credits as usize);
        assert!(self.held.len() <= self.server_credits as usize);
        assert!(self.reads.len() <= READS as usize, "more Reads than ORD");
        assert!(self.client.unfinished_calls() <= self.made.len());
        assert!(self.registering.len() + self.memory.len() <= 16 * self.made.len());
    }

    /// Returns the number of calls that were sent and not answered.
    pub(super) fn awaiting(&self) -> u32 {
        self.awaited.len() as u32
    }

    fn client_wants(&mut self, action: Action) {
        match action {
            Action::PostReceives { id, count } => {
                assert!(count > self.client_credits, "fewer receives than credits");
                let posted = true;
                self.client
                    .handle(NOW, Event::ReceivesPosted { id, posted });
            }
            Action::Decided(_) => {}
            Action::Register { id, region } => self.registering.push((id, region)),
            Action::Send {
                gather,
                invalidate: None,
                more: false,
            } => self.sent(&gather),
            Action::Invalidate { id, stag } => self.invalidating.push((id, stag)),
            Action::Reclaim { id, stag } => {
                let region = self
                    .invalid
                    .remove(&stag.0)
                    .expect("the peer invalidated it");
                self.client.handle(NOW, Event::Reclaimed { id, region });
            }
            Action::Finished { xid, result } => self.ended(xid, result),
            other => panic!("a client of version 1 wants {other:?}"),
        }
    }

    fn sent(&mut self, gather: &Segments) {
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
        let made = self
            .made
            .get(&header.xid)
            .expect("only calls that were made");
        assert!(!made.ended && !made.cancelled, "sent after its end");
        assert!(
            self.offered.insert(header.xid, chunks).is_none(),
            "sent twice"
        );
        self.awaited.insert(header.xid);
        self.most_awaited = self.most_awaited.max(self.awaiting());
        assert!(
            self.awaiting() <= self.granted.min(self.client_credits),
            "more calls than granted"
        );
        self.calls.push_back(bytes);
    }

    fn server_wants(&mut self, action: Action) {
        match action {
            Action::PostReceives { id, count } => {
                assert!(count > self.server_credits, "fewer receives than credits");
                let posted = true;
                self.server
                    .handle(NOW, Event::ReceivesPosted { id, posted });
            }
            Action::Decided(_) => {}
            Action::Read {
                id,
                sink,
                stag,
                offset,
            } => {
                assert!(sink.len() <= MAX_MESSAGE as usize);
                self.reads.push((id, sink, stag, offset));
            }
            Action::Write {
                gather,
                stag,
                offset,
            } => {
                let bytes = Bytes::from(gather.concat());
                self.replies.push_back(Posted::Write(bytes, stag, offset));
            }
            Action::Send {
                gather,
                invalidate,
                more: false,
            } => {
                let bytes = Bytes::from(gather.concat());
                assert!(bytes.len() as u64 <= INLINE, "over the inline threshold");
                assert!(
                    self.remote_invalidation || invalidate.is_none(),
                    "invalidated without consent"
                );
                self.replies.push_back(Posted::Send(bytes, invalidate));
            }
            Action::Deliver { id, message } => {
                assert!(
                    message.stream_len() <= u64::from(MAX_MESSAGE) + INLINE,
                    "a call over the limit"
                );
                self.held.push((id, message));
            }
            Action::Close { .. } => {
                assert!(self.lies(), "closed on an honest client");
                assert!(self.overrun, "closed without a reason");
                self.lost = true;
            }
            other => panic!("a server of version 1 wants {other:?}"),
        }
    }

    /// Completes all outstanding work without errors, and checks that every call has ended.
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
                self.call_arrives(call);
            } else if let Some((id, call)) = pick(&mut self.held, 0) {
                self.answer(id, &call, &Answer::Echo);
            } else if self.client.waits_for_memory() || self.server.waits_for_memory() {
                self.client.retry();
                self.server.retry();
            } else {
                break;
            }
        }
        self.finished();
    }

    fn finished(&mut self) {
        self.settle();
        if self.lost {
            return;
        }
        // Calls that have no answer keep their memory.
        let short = self.client.waits_for_memory() && self.awaited.is_empty();
        assert!(
            !short && !self.server.waits_for_memory(),
            "a wait for memory did not end"
        );
        assert_eq!((self.server.unanswered_calls(), self.held.len()), (0, 0));
        let open = |made: &Made| !made.ended && !made.cancelled;
        let left: BTreeSet<u32> = self
            .made
            .iter()
            .filter(|(_, made)| open(made))
            .map(|(xid, _)| *xid)
            .collect();
        let silenced = self.made.values().any(|made| made.cancelled) || self.lies();
        assert!(silenced || left.is_empty(), "calls {left:?} never ended");
        // Their callers give up: no memory stays in reach, whatever the server does, unless it may
        // invalidate that with a reply.
        for xid in left {
            if let Some(made) = self.made.get_mut(&xid) {
                made.cancelled = true;
            }
            self.client.cancel(xid);
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
        assert!(self.invalid.is_empty(), "memory was not taken back");
        let awaited = self.awaited.iter().filter(|_| self.remote_invalidation);
        let kept = awaited.filter_map(|xid| self.offered.get(xid));
        let kept: BTreeSet<u32> = kept.flat_map(Chunks::handles).collect();
        let mut reachable = self.memory.keys();
        assert!(
            reachable.all(|handle| kept.contains(handle)),
            "something stays registered"
        );
        assert_eq!(self.client.unfinished_calls(), self.awaited.len());
        assert_eq!(self.counters().most_in_flight, self.most_awaited);
    }

    /// Ends the connection and releases the memory of the devices. Returns both connections.
    pub(super) fn closed(mut self) -> [Connection; 2] {
        for end in [&mut self.client, &mut self.server] {
            end.handle(NOW, Event::Closed);
            while let Some(action) = end.poll_action(SEND_QUEUE) {
                match action {
                    Action::Close { .. } | Action::Decided(_) | Action::Finished { .. } => {}
                    Action::Reclaim { id, stag } => {
                        let region = self.memory.remove(&stag.0).map(|(region, _)| region);
                        let region = region.or_else(|| self.invalid.remove(&stag.0));
                        let region = region.expect("memory that was registered");
                        end.handle(NOW, Event::Reclaimed { id, region });
                    }
                    other => panic!("a connection that has ended wants {other:?}"),
                }
            }
        }
        [self.client, self.server]
    }
}

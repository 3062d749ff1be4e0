//! Fetching calls, and delivering them.

use onc_rpc::Message;
use rdma::{Buf, PER_CALL, Stag};
use rpcrdma_v2::Direction;

use super::super::wire;
use super::fetch::FetchError;
use super::{QueuedRead, ReadId, Responder, ResponderAction};

impl Responder {
    /// There may be memory now.
    pub fn retry(&mut self) {
        let mut waiting = std::mem::take(&mut self.starved);
        let mut blocked = false;
        waiting.retain(|&key| {
            // Calls that need no memory to be fetched pass those that do.
            let long = self.calls[key]
                .fetch
                .as_ref()
                .is_some_and(|fetch| fetch.memory() > 0);
            let waits = (blocked && long) || !self.start(key);
            blocked |= waits && long;
            waits
        });
        self.starved = waiting;
    }

    /// Answers [`ResponderAction::Read`].
    pub fn read_done(&mut self, id: ReadId, sink: Buf) {
        self.reading = self.reading.saturating_sub(1);
        if let Some(call) = self.calls.get_mut(id.call)
            && let Some(fetch) = &mut call.fetch
            && fetch.arrived(id.chunk, id.piece, sink)
        {
            self.complete(id.call);
        }
        self.start_reads();
    }

    /// Takes memory for a call's chunks and starts to fetch them. False when it must wait.
    pub(super) fn start(&mut self, key: usize) -> bool {
        let call = &mut self.calls[key];
        let Some(fetch) = &mut call.fetch else {
            return true;
        };
        let wanted = fetch.wanted();
        // One call alone is always taken, as soon as there is room for it: its length was checked on
        // arrival.
        if self.fetched > 0 && self.fetched + wanted > self.config.max_fetched {
            return false;
        }
        let memory = fetch.memory();
        if let Some(account) = self.config.pool.account()
            && memory <= account.largest()
            && account.room() < memory
        {
            return false;
        }
        if memory == 0 && !self.may_deliver() {
            return false;
        }
        let call = &mut self.calls[key];
        let Some(fetch) = &mut call.fetch else {
            return true;
        };
        let reads = match fetch.allocate(&self.config.pool) {
            Ok(reads) => reads,
            Err(FetchError::Later) => return false,
            Err(FetchError::Never(error)) => {
                let call = self.remove(key);
                let (xid, transmissions) = (call.xid, call.transmissions());
                let credits = self.credits.answered_group(transmissions);
                self.chunk_error(xid, credits, &error);
                return true;
            }
        };
        let call = &mut self.calls[key];
        call.fetched = wanted;
        self.fetched += wanted;
        if reads.is_empty() {
            self.complete(key);
            return true;
        }
        for read in reads {
            let (chunk, piece) = (read.chunk, read.piece);
            self.reads.push_back(QueuedRead {
                id: ReadId {
                    call: key,
                    chunk,
                    piece,
                },
                sink: read.sink,
                stag: Stag(read.segment.handle),
                offset: read.segment.offset,
            });
        }
        self.start_reads();
        true
    }

    fn start_reads(&mut self) {
        while self.reading < self.config.outbound_reads.max(1)
            && let Some(read) = self.reads.pop_front()
        {
            self.reading += 1;
            self.actions.push_back(ResponderAction::Read {
                id: read.id,
                sink: read.sink,
                stag: read.stag,
                offset: read.offset,
            });
        }
    }

    /// Everything is here.
    fn complete(&mut self, key: usize) {
        let call = &mut self.calls[key];
        let Some(fetch) = call.fetch.take() else {
            return;
        };
        if call.fetched > PER_CALL as u64
            && let Some(account) = self.config.pool.account()
        {
            account.prove();
        }
        let xid = call.xid;
        let message = fetch.finish();
        let checked = wire::belongs(self.config.version, xid, Direction::Call, &message);
        if let Err(error) = checked {
            let transmissions = self.remove(key).transmissions();
            let credits = self.credits.answered_group(transmissions);
            return self.chunk_error(xid, credits, &error);
        }
        self.deliver(key, message);
    }

    /// A call is whole, and for the upper layer.
    pub(super) fn deliver(&mut self, key: usize, message: Message) {
        if let Some(token) = self.token(key) {
            self.delivered.add(PER_CALL);
            self.actions
                .push_back(ResponderAction::Deliver { token, message });
        }
    }
}

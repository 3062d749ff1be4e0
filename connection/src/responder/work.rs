//! Fetching and delivery of calls.

use onc_rpc::Message;
use rdma::trace::{Event, Wait};
use rdma::{Buf, Stag};
use rpcrdma_chunks::Direction;
use rpcrdma_host::{Account, PER_CALL};

use super::fetch::FetchError;
use super::{QueuedRead, Responder};
use crate::Action;
use crate::action::ReadId;
use crate::dialect::PeerError;
use crate::shared::Shared;

impl Responder {
    /// Returns whether there is memory for the reply to one more call. The bytes of fetched chunks do not count against
    /// the guaranteed memory, so a connection that is fetching can still execute short calls. A connection that holds
    /// nothing but fetched chunks and waiting calls may always execute one call. Memory of waiting calls is left out,
    /// because executing them releases it. Parts of calls whose chunks are being fetched count like the chunks.
    pub(super) fn may_deliver(&self, shared: &Shared) -> bool {
        let Some(account) = shared.config.pool.account() else {
            return true;
        };
        let fetched = usize::try_from(self.fetched).unwrap_or(usize::MAX);
        let kept = self.kept.bytes();
        let others = account.held().saturating_sub(fetched).saturating_sub(kept);
        others == 0
            || others + PER_CALL <= account.guaranteed()
            || account.room_without(self.kept_waiting()) >= PER_CALL
    }

    /// Returns the bytes of the parts of calls that wait for memory.
    fn kept_waiting(&self) -> usize {
        self.kept.bytes().saturating_sub(self.kept_fetching)
    }

    /// Charges the parts of a call that is not executed yet to the connection, so that other connections get less. The
    /// call waits for memory or for its chunks. Returns false if the call was refused.
    ///
    /// A call that came in several messages can have any length. What the driver counts is left out, such as receives
    /// that all connections share. A call in a single message is bounded by its receive or the copy of that, and the
    /// number of those by the credits.
    ///
    /// All kept parts of a connection together may not exceed [`Account::largest`], as no account ever has room for
    /// more.
    #[inline]
    pub(super) fn keep_parts(&mut self, shared: &mut Shared, key: usize) -> bool {
        shared.uncounted_parts == 0 || self.charge_parts(shared, key)
    }

    #[cold]
    fn charge_parts(&mut self, shared: &mut Shared, key: usize) -> bool {
        let held = shared.uncounted_parts;
        let most = shared.config.pool.account().map(Account::largest);
        if most.is_some_and(|most| most.saturating_sub(self.kept.bytes()) < held) {
            let call = self.remove_call(key);
            shared.flow.call_ended(call.messages);
            let why = "no memory for one more long call that waits for memory or its chunks";
            self.refuse_call(shared, call.xid, PeerError::System, &why);
            return false;
        }
        self.calls[key].kept = held;
        self.kept.add(held);
        true
    }

    /// Keeps a call until there is memory for its chunks, or for its reply if it has none.
    #[cold]
    pub(super) fn wait_for_memory(&mut self, shared: &Shared, key: usize) {
        let call = &self.calls[key];
        shared.trace(call.xid, Event::Held(Wait::Memory));
        let needed = call.fetch.as_ref().map_or(0, |fetch| fetch.memory_needed());
        match needed {
            0 => self.put_off.push_back(key),
            _ => self.no_memory.push_back(key),
        }
    }

    /// Retries the calls that wait for memory.
    pub(crate) fn retry(&mut self, shared: &mut Shared) {
        // Calls that need no memory to be fetched pass those that do.
        while let Some(&key) = self.put_off.front()
            && self.start_fetch(shared, key)
        {
            self.put_off.pop_front();
        }
        while let Some(&key) = self.no_memory.front()
            && self.start_fetch(shared, key)
        {
            self.no_memory.pop_front();
        }
    }

    /// Records the completion of an RDMA Read.
    pub(crate) fn read_done(&mut self, shared: &mut Shared, id: ReadId, sink: Buf) {
        self.reading = self.reading.saturating_sub(1);
        shared.moved.received.chunk += sink.len() as u64;
        if let Some(call) = self.calls.get_mut(id.call)
            && let Some(fetch) = &mut call.fetch
            && fetch.read_arrived(id.chunk, id.piece, sink)
        {
            shared.trace(call.xid, Event::Fetched);
            self.deliver_fetched(shared, id.call);
        }
        self.start_reads(shared);
    }

    /// Allocates memory for the chunks of a call and starts to fetch them. Returns false if the
    /// call has to wait for memory, and true also if it has ended with an error.
    pub(super) fn start_fetch(&mut self, shared: &mut Shared, key: usize) -> bool {
        let call = &mut self.calls[key];
        let Some(fetch) = &mut call.fetch else {
            return true;
        };
        let wanted = fetch.bytes_to_fetch();
        // One call alone is taken as soon as there is room for it: its length was checked on
        // arrival.
        if self.fetched > 0 && self.fetched + wanted > shared.config.max_fetched {
            return false;
        }
        let memory = fetch.memory_needed();
        // A call that is too long for any connection does not wait: `allocate` reports it.
        if let Some(account) = shared.config.pool.account()
            && memory <= account.largest()
            && account.room_without(self.kept_waiting()) < memory
        {
            return false;
        }
        // With nothing to fetch, only the memory for the reply may be short.
        if memory == 0 && !self.may_deliver(shared) {
            return false;
        }
        let call = &mut self.calls[key];
        let Some(fetch) = &mut call.fetch else {
            return true;
        };
        let reads = match fetch.allocate(&shared.config.pool) {
            Ok(reads) => reads,
            Err(FetchError::Later) => return false,
            Err(FetchError::Never(error)) => {
                let call = self.remove_call(key);
                shared.flow.call_ended(call.messages);
                // The call is well-formed: this host has no memory for it at any time.
                self.refuse_call(shared, call.xid, PeerError::System, &error);
                return true;
            }
        };
        let call = &mut self.calls[key];
        call.fetched = wanted;
        self.fetched += wanted;
        if reads.is_empty() {
            self.kept.sub(std::mem::take(&mut call.kept));
            self.deliver_fetched(shared, key);
            return true;
        }
        self.kept_fetching += call.kept;
        let bytes = u32::try_from(wanted).unwrap_or(u32::MAX);
        shared.trace(call.xid, Event::Fetching { bytes });
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
        self.start_reads(shared);
        true
    }

    /// Starts queued RDMA Reads, up to the maximum number of outstanding ones.
    fn start_reads(&mut self, shared: &mut Shared) {
        // A device holds back a Read beyond the agreed number, and with it all requests that were
        // posted after it, replies included.
        while self.reading < shared.config.options.outbound_reads.max(1)
            && let Some(read) = self.reads.pop_front()
        {
            self.reading += 1;
            shared.actions.push_back(Action::Read {
                id: read.id,
                sink: read.sink,
                stag: read.stag,
                offset: read.offset,
            });
        }
    }

    /// Delivers a call whose chunks have all arrived.
    fn deliver_fetched(&mut self, shared: &mut Shared, key: usize) {
        let call = &mut self.calls[key];
        // From here on, the call is charged as a delivered one.
        let parts = std::mem::take(&mut call.kept);
        self.kept.sub(parts);
        self.kept_fetching -= parts;
        if let Some(fetch) = call.fetch.take() {
            self.check_and_deliver(shared, key, fetch.into_message());
        }
    }

    /// Delivers a call whose data has arrived completely, if its header agrees with the RPC message.
    pub(super) fn check_and_deliver(&mut self, shared: &mut Shared, key: usize, message: Message) {
        let xid = self.calls[key].xid;
        // A complete long call is progress: from now on, the connection may use memory that is kept
        // from peers which only begin calls.
        if message.stream_len() > PER_CALL as u64
            && let Some(account) = shared.config.pool.account()
        {
            account.prove();
        }
        // A payload that was in a chunk could not be compared with the header before.
        let checked = shared.dialect.check_payload(xid, Direction::Call, &message);
        if let Err(error) = checked {
            let call = self.remove_call(key);
            shared.flow.call_ended(call.messages);
            return self.chunk_error(shared, xid, &error);
        }
        self.deliver(shared, key, message);
    }

    /// Delivers a call to the upper layer.
    pub(super) fn deliver(&mut self, shared: &mut Shared, key: usize, message: Message) {
        if let Some(id) = self.call_id(key) {
            self.delivered.add(PER_CALL);
            shared.actions.push_back(Action::Deliver { id, message });
        }
    }
}
